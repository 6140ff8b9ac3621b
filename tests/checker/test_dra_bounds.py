"""Claims that once did not end or were judged wrongly: administrators, numbers from YAML, hostile patterns.

Tests gpuflow/checker/dra/cel/patterns.py and gpuflow/core/work_budget.py.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
import yaml

from gpuflow.checker.dra.cel.patterns import NotEvaluated, Pattern
from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.cluster import read_cluster
from gpuflow.core.work_budget import LIMITS
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.checker.dra_scenes import (
    GPU,
    LISTED,
    Body,
    device_class,
    exactly,
    gpu,
    gpus,
    holding,
    judged,
    partitions,
    slice_of,
    step,
    steps,
    template,
)
from tests.checker.whole_scenes import HEAD, HOME, NAMESPACE, codes, node, text_of

LABELED: Body = {**HOME, "metadata": {"name": NAMESPACE, "labels": {"resource.kubernetes.io/admin-access": "true"}}}
TWO_NODES = [device_class(), node("n"), node("m"), gpus("n", 2), gpus("m", 2)]


def from_files(folder: Path, text: str, *objects: Body) -> Report:
    """The report against a cluster that was read from a YAML file, as users give it."""
    file = folder / "cluster.yaml"
    items = [*objects, holding("elsewhere", "gpu-0", name="theirs")]  # shows that claims were listed
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    demand = demand_of(loads(HEAD + text, "p.yaml"), Site.load("nvidia"), "none")
    return check(demand, read_cluster(str(file)), NAMESPACE)


def admin(count: int = 1, **more: str) -> Body:
    return template(exactly(count=count, adminAccess=True, **more))


# adminAccess ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [1, 3, 40])
def test_access_for_administrators_uses_no_device_up(tmp_path: Path, copies: int) -> None:
    report = from_files(tmp_path, steps(step(copies=copies)), LABELED, *TWO_NODES, admin(2), holding("n", "gpu-0"))
    assert report.verdict == "always"


def test_access_for_administrators_takes_nothing_from_the_others(tmp_path: Path) -> None:
    lines = steps(step(name="watch", copies=9), step("{template: own}", name="train", copies=4))
    own = template(exactly(), name="own")
    assert from_files(tmp_path, lines, LABELED, *TWO_NODES, admin(), own).verdict == "always"


def test_access_for_administrators_needs_devices_that_are_there(tmp_path: Path) -> None:
    assert from_files(tmp_path, steps(), LABELED, *TWO_NODES, admin(3)).verdict == "never"


def test_partitions_for_administrators_are_judged(tmp_path: Path) -> None:
    """Counters that are in use refuse them too, so that they take turns."""
    objects = [device_class("mig", "true"), node("n"), *partitions("n", "1g.10gb", list(range(7)), 1)]
    claim = template(exactly(device_class="mig", adminAccess=True))
    assert from_files(tmp_path, steps(step(copies=7)), LABELED, *objects, claim).verdict == "always"


def test_without_the_label_of_the_namespace_the_server_refuses_the_claim() -> None:
    report = judged(steps(), *TWO_NODES, admin())
    assert (report.verdict, codes(report)) == ("never", ["GF546"])
    sentence = (
        "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing"
    )
    assert sentence in (report.findings[0].kubernetes or "")
    assert "have the namespace labeled" in text_of(report, "GF546")


def test_the_label_of_a_namespace_that_is_not_shown_is_unknown(tmp_path: Path) -> None:
    report = from_files(tmp_path, steps(), *TWO_NODES, admin())
    assert report.verdict == "unknown"
    assert "does not show namespace" in text_of(report, "GF547")


# Attributes from YAML -------------------------------------------------------------------------------------


def attribute(name: str) -> str:
    return f"device.attributes['{GPU}'].{name}"


@pytest.mark.parametrize(
    ("selector", "verdict"),
    [
        (f"{attribute('index')} == 0", "always"),
        (f"{attribute('index')} != 0", "never"),
        (f"!({attribute('index')} == 0)", "never"),
        (f"{attribute('index')} in [0, 1]", "always"),
        (f"{attribute('index')} in [1]", "never"),
        (f"{attribute('index')} < 1 && {attribute('index')} >= 0", "always"),
        (f"{attribute('index')} > 0", "never"),
        (f"{attribute('fast')} == true && {attribute('fast')} != false", "always"),
        (f"!{attribute('fast')}", "never"),
        (f"{attribute('word')} == 'on' && {attribute('word')} in ['on']", "always"),
        (f"{attribute('word')} != 'on'", "never"),
        (f"{attribute('digits')} == '10' && {attribute('digits')}.startsWith('1')", "always"),
        (f"{attribute('driverVersion')}.compareTo(semver('580.65.6')) == 0", "always"),
    ],
)
def test_attributes_are_compared_as_their_type_says(tmp_path: Path, selector: str, verdict: str) -> None:
    device = gpu(0)
    device["attributes"] |= {
        "index": {"int": 0}, "fast": {"bool": True}, "word": {"string": "on"}, "digits": {"string": "10"},
    }  # fmt: skip
    objects = [HOME, device_class(), node("n"), slice_of("n", [device])]
    report = from_files(tmp_path, steps(), *objects, template(exactly(selector=selector)))
    assert report.verdict == verdict


# Patterns -------------------------------------------------------------------------------------------------

HOSTILE = ("((.+)+)+Q$", "(a+)+$", "(a|aa)+$", "a*" * 30 + "b", "(a*)*b", "((a|a)*)*c", "(.*)*" * 20 + "x")


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_pattern_that_python_would_never_finish_is_judged(tmp_path: Path, pattern: str) -> None:
    device = gpu(0, product="a" * 64 + "!")
    selector = f"{attribute('productName')}.matches('{pattern}')"
    objects = [HOME, device_class(), node("n"), slice_of("n", [device]), template(exactly(selector=selector))]
    assert from_files(tmp_path, steps(), *objects).verdict == "never"


@pytest.mark.slow
def test_a_pattern_that_takes_more_than_a_check_may_is_unknown() -> None:
    device = gpu(0, product="a" * 64 + "!")
    selector = f"{attribute('productName')}.matches('{'(.*)*' * 1900}x')"
    slices = [slice_of(f"n{index}", [device], name=f"s{index}") for index in range(40)]
    nodes = [node(f"n{index}") for index in range(40)]
    report = judged(steps(), device_class(), *nodes, *slices, template(exactly(selector=selector)), listed=LISTED)
    assert report.verdict == "unknown"
    assert "a pattern that takes too many steps" in text_of(report, "GF547")


def test_patterns_say_what_python_says() -> None:
    draw = random.Random(1)
    words = ["a", "b", ".", "(", ")", "|", "*", "+", "?", "^", "$", "[ab]", "[^a]", "[a-c]", "\\.", "\\+", "[a-]"]
    compared = 0
    for _ in range(4000):
        text = "".join(draw.choice(words) for _ in range(draw.randint(0, 7)))
        try:
            pattern = Pattern(text)
        except NotEvaluated:
            continue
        for _ in range(4):
            value = "".join(draw.choice("abc.+-") for _ in range(draw.randint(0, 6)))
            assert pattern.is_in(value) is bool(re.search(text, value)), (text, value)
            compared += 1
    assert compared > 1000


@pytest.mark.parametrize("text", ["a{2}", "(?i)a", "a**", "*a", "(a", "a)", "[b-a]", "\\d", "^*", "(" * 60 + ")" * 60])
def test_other_patterns_are_not_evaluated(text: str) -> None:
    with pytest.raises(NotEvaluated):
        Pattern(text)


# Bounds ---------------------------------------------------------------------------------------------------


def test_more_devices_than_a_check_looks_at_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuflow.core.work_budget.LIMITS", {**LIMITS, "devices": 5})
    report = judged(steps(), *TWO_NODES, template(exactly(count=2)))
    assert report.verdict == "unknown"
    assert "the search for devices takes too many steps" in text_of(report, "GF547")
