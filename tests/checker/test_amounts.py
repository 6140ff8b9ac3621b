"""Amounts of memory and storage in the sentences of a report: never in bytes.

Tests amount of gpuflow/checker/report.py.
"""

from __future__ import annotations

import re

import pytest

from gpuflow.checker.report import Report, amount
from gpuflow.quantity import Quantity
from gpuflow.report.ci_formats import junit
from gpuflow.report.text import comparison, markdown, render
from tests.checker.test_controllers import quota
from tests.checker.whole_scenes import NAMESPACE, Body, checked, node, queues

STEP = "steps: {a: {command: [x], memory: 1000000001GANG}, b: {command: [x], memory: 900000001}}"


def memory(amount: int) -> Body:
    return {**quota(amount, "requests.memory"), "metadata": {"name": "q", "namespace": NAMESPACE}}


SMALL = memory(1200000001)
SCENES: dict[str, tuple[str, list[Body]]] = {
    "a quota": (STEP.replace("GANG", ""), [SMALL]),
    "a quota that is full": (STEP.replace("GANG", ""), [memory(1000000003)]),
    "a gang": (STEP.replace("GANG", ", gang: 2"), [SMALL]),
    "gangs": (
        "steps: {a: {command: [x], memory: 700000001, gang: 2, for_each: {i: [1, 2, 3]}}}",
        [memory(1500000001)],
    ),
    "a loop that may be shorter": (
        "params: {all: {type: bool, default: true}}\n"
        "steps: {a: {command: [x], memory: 1000000001, when: params.all}, b: {command: [x], memory: 900000001}}",
        [SMALL],
    ),
    "nodes": (STEP.replace("GANG", ""), [node("n", memory="800000001")]),
    "a queue": (
        STEP.replace("GANG", ", queue: lq").replace("900000001", "900000001, queue: lq"),
        queues({"f": {"nvidia.com/gpu": "0", "cpu": "9", "memory": "1500000001"}}),
    ),
    "nodes that are full": (STEP.replace("GANG", ""), [node("n", memory="1500000001")]),
}


def texts(report: Report) -> str:
    """All that a person reads, but for the words of Kubernetes itself."""
    said = [f"{each.message}\n{each.hint or ''}" for each in report.findings]
    own = "\n".join(each for each in said)
    shown = [render(report), markdown([report]), junit([report], set()), comparison(report, report)]
    words = [each.kubernetes for each in report.findings if each.kubernetes]
    for text in words:
        shown = [each.replace(text, "") for each in shown]
    return own + "\n".join(line for each in shown for line in each.splitlines() if "Kubernetes:" not in line)


@pytest.mark.parametrize("scene", SCENES)
def test_no_sentence_has_an_amount_of_memory_in_bytes(scene: str) -> None:
    text, objects = SCENES[scene]
    report = checked(text, *objects)
    assert report.verdict != "always"
    assert "Mi" in texts(report)
    assert [line for line in texts(report).splitlines() if re.search(r"\b\d{9,}\b", line)] == []


def test_a_number_that_people_write_is_rounded_up() -> None:
    some = Quantity("1000000001")
    assert (amount(some, "limits.memory"), amount(some, "memory", round_up=True)) == ("~953.7Mi", "954Mi")
    assert amount(Quantity("1048576000"), "requests.storage", round_up=True) == "1000Mi"
    assert (amount(None, "memory"), amount(Quantity("2k"), "cpu")) == ("?", "2000")
