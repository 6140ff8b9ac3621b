"""Answers that others recorded of the same engines come out of our oracles again."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.differential.conftest import Ask

CORPUS = Path(__file__).resolve().parents[2] / ".." / "shared" / "corpora" / "oracles" / "recorded"

pytestmark = [
    pytest.mark.go,
    pytest.mark.skipif(not CORPUS.exists(), reason="the corpora folder is not beside the checkout"),
]

Answer = dict[str, Any]


def recorded(kind: str) -> tuple[list[Answer], list[Answer]]:
    with gzip.open(CORPUS / f"{kind}.jsonl.gz", "rt") as lines:
        entries = [json.loads(line) for line in lines]
    return [entry["input"] for entry in entries], [entry["output"] for entry in entries]


def in_any_order(answer: Answer) -> list[str]:
    """An answer and its alternatives: any of them is right, so their order says nothing."""
    alone = {field: value for field, value in answer.items() if field != "alternatives"}
    return sorted(json.dumps(each, sort_keys=True) for each in (alone, *answer.get("alternatives", [])))


def test_every_recorded_admission_is_given_again(oracle: Ask) -> None:
    cases, answers = recorded("admission")
    for number, (ours, theirs) in enumerate(zip(oracle("kubernetes", "admission").ask(cases), answers, strict=True)):
        assert in_any_order(ours) == in_any_order(theirs), f"case {number}"


def test_every_recorded_node_fit_is_given_again(oracle: Ask) -> None:
    cases, answers = recorded("nodefit")
    for number, (ours, theirs) in enumerate(zip(oracle("kubernetes", "nodefit").ask(cases), answers, strict=True)):
        assert ours == theirs, f"case {number}"


def test_every_recorded_flavor_assignment_is_given_again(oracle: Ask) -> None:
    cases, answers = recorded("kueue")
    for number, (ours, theirs) in enumerate(zip(oracle("kueue", "kueue").ask(cases), answers, strict=True)):
        expected = {field: value for field, value in theirs.items() if field != "conditionReason"}
        assert ours == expected, f"case {number}"


def test_every_recorded_kueue_condition_is_written_again(oracle: Ask) -> None:
    cases, answers = recorded("kueue")
    for number, (ours, theirs) in enumerate(zip(oracle("kueue", "condition").ask(cases), answers, strict=True)):
        assert (ours["reason"], ours["message"]) == (theirs["conditionReason"], theirs["message"]), f"case {number}"
