"""Truths on file, so that the checker is held against them without Go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proofs.checker.case import Case
from proofs.checker.draw_case import case as drawn_case
from proofs.checker.judge import Judge, Truth
from proofs.checker.proving import answered, key_of, truths_of
from tests.differential.oracle import version

FILE = Path(__file__).resolve().parent / "recorded.json"
SEED = 17
COUNT = 360


def record() -> str:
    """Ask the judge anew and write its answers down, with the faults that are known."""
    cases = [drawn_case(f"{SEED}/{number}") for number in range(COUNT)]
    with Judge() as judge:
        truths = truths_of(cases, {}, judge)
    rows = [[key_of(case), *truth.worlds] for case, truth in zip(cases, truths, strict=True)]
    faults = {
        answer.seed: answer.fault
        for answer in map(answered, cases, truths)
        if answer.fault in ("wrong always", "wrong never", "error")
    }
    written: dict[str, Any] = {"judge": version("simulator"), "seed": SEED, "known faults": faults, "truths": rows}
    text = ",\n".join(
        f"{json.dumps(key)}: {_rows(value) if key == 'truths' else json.dumps(value)}" for key, value in written.items()
    )
    FILE.write_text("{\n" + text + "\n}\n")
    return f"{len(rows)} truths, {len(faults)} known faults: {FILE}"


def _rows(rows: list[list[Any]]) -> str:
    return "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]"


def on_file() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def cases() -> Iterator[tuple[Case, str, Truth]]:
    """Each case with the fingerprint that it was asked under, and its truth."""
    found = on_file()
    for number, (key, *worlds) in enumerate(found["truths"]):
        yield drawn_case(f"{found['seed']}/{number}"), key, Truth(tuple(worlds))
