"""Selectors of devices: what is evaluated, which errors count, and what is left to the scheduler.

Tests gpuflow/checker/dra/cel/parser.py.
"""

from __future__ import annotations

import pytest

from gpuflow.checker.dra.cel.parser import (
    CelError,
    Unsupported,
    View,
    compile_expression,
    parse_semver,
    parse_short_semver,
)
from gpuflow.checker.dra.inventory import extended_claim
from gpuflow.checker.dra.objects import DeviceClass
from gpuflow.kubernetes.admission.pod import read_pod
from gpuflow.quantity import Quantity

DEVICE = View(
    "gpu.example.com",
    False,
    {"gpu.example.com": {"model": "a100", "index": 3, "fast": True, "firmware": parse_semver("1.10.0")}},
    {"gpu.example.com": {"memory": Quantity("80Gi")}},
)
ATTRIBUTES = 'device.attributes["gpu.example.com"]'
MEMORY = 'device.capacity["gpu.example.com"].memory'


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ('device.driver == "gpu.example.com"', True),
        (f"{ATTRIBUTES}.fast", True),
        (f"{ATTRIBUTES}.index >= 3 && {ATTRIBUTES}.index < 4", True),
        (f"{ATTRIBUTES}.index in [1, 2]", False),
        (f'{ATTRIBUTES}.index == "3"', False),
        (f'{MEMORY}.compareTo(quantity("80Gi")) == 0', True),
        (f'{MEMORY} == quantity("81920Mi")', True),
        (f'{ATTRIBUTES}.firmware.isGreaterThan(semver("1.9.0"))', True),
        (f'{ATTRIBUTES}.firmware.compareTo(semver("v1.10", true)) == 0', True),
        (f'{ATTRIBUTES}.model.matches("^a[0-9]+$")', True),
        ('has(device.attributes["elsewhere"].x)', False),
        ('"model" in device.attributes["gpu.example.com"]', True),
        ('device.attributes["elsewhere"].x == 1 || true', True),
        ('false && device.attributes["elsewhere"].x == 1', False),
        (f"cel.bind(a, {ATTRIBUTES}, a.fast ? a.index == 3 : a.nothing)", True),
    ],
)
def test_what_a_selector_says(expression: str, answer: bool) -> None:
    assert compile_expression(expression).matches(DEVICE) is answer


@pytest.mark.parametrize(
    "expression",
    [
        f"{ATTRIBUTES}.nothing == 1",
        f"{ATTRIBUTES}.model < 5",
        f"{ATTRIBUTES}.index.startsWith('a')",
        f"{ATTRIBUTES}.firmware == 'a'",
        f"({ATTRIBUTES}.firmware in ['a']) || true",  # CEL's own code crashes: nothing beside it helps
        f"{ATTRIBUTES}.model",
        f"{ATTRIBUTES}.index && true",
        'semver("1.2") == semver("1.2.0")',
    ],
)
def test_an_error_that_is_left_over_is_an_error(expression: str) -> None:
    with pytest.raises(CelError):
        compile_expression(expression).matches(DEVICE)


@pytest.mark.parametrize(
    "expression",
    [
        "size(device.driver) > 3",
        f"{ATTRIBUTES}.index + 1 == 4",
        f"{ATTRIBUTES}.?model.orValue('x') == 'x'",
        "['a'].exists(x, x == device.driver)",
        "device.name == 'x'",
        "device.driver == 5",
        "device.driver",
        "device.driver ==",
        "1.5 < 2.0",
        f"{ATTRIBUTES}.model.matches('a{{2}}')",
        '"""x""" == device.driver',
    ],
)
def test_other_text_is_not_judged(expression: str) -> None:
    with pytest.raises(Unsupported):
        compile_expression(expression)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("!-1", "'-'"),
        ("'a' 'b'", "\"'b'\""),
        ('"\\q" +', "the escape \\q"),
        ("1 && 2 && foo", "a condition of type int"),
        ("1 == 1 1", "'1'"),
        ("device.driver == @", "'@'"),
        ("(1 == 1", "'' where ')' is expected"),
        ("device.", "'' where a name is expected"),
        ("device.driver ==", "a selector that breaks off"),
        ("true ? true ? 1 : 2 : 3", "'?' where ':' is expected"),
        ("99999999999999999999", "the number 99999999999999999999"),
        ("!" * 5000 + "true", "a selector that is nested so deep"),
        ("(" * 60 + "true" + ")" * 60, "a selector that is nested so deep"),
    ],
)
def test_text_that_is_not_judged_says_why(expression: str, words: str) -> None:
    with pytest.raises(Unsupported) as refusal:
        compile_expression(expression)
    assert str(refusal.value) == words


def test_versions_are_ordered_as_semver_says() -> None:
    texts = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0", "1.0.1"]
    assert sorted(texts, key=parse_semver) == texts
    assert parse_semver("1.0.0+a") == parse_semver("1.0.0+b") and parse_short_semver("v01.2") == parse_semver("1.2.0")
    for text in ("1.0", "01.0.0", "1.0.0-", "1.0.0-01", "v1.0.0"):
        with pytest.raises(ValueError, match="version"):
            parse_semver(text)


def test_init_containers_use_the_devices_of_those_that_run_after_them() -> None:
    gpu = DeviceClass("gpu", (), "nvidia.com/gpu", "")

    def container(name: str, count: int, **more: str) -> dict[str, object]:
        return {"name": name, "image": "i", "resources": {"limits": {"nvidia.com/gpu": str(count)}}, **more}

    pod = {
        "metadata": {"name": "p"},
        "spec": {
            "initContainers": [container("i", 3), container("s", 1, restartPolicy="Always")],
            "containers": [container("c", 1)],
        },
    }
    claim = extended_claim(read_pod(pod), {"nvidia.com/gpu": gpu})
    assert {each.name: each.devices for (each,) in claim.requests} == {
        "container-0-request-0": 1,
        "container-1-request-0": 1,
        "container-2-request-0": 1,
    }
