"""Many cases: truths are kept on file by what was asked, verdicts are always asked anew."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofs.checker.advice import Followed, followed
from proofs.checker.case import Case
from proofs.checker.comparing import checked, fault
from proofs.checker.draw_case import case as drawn_case
from proofs.checker.judge import Judge, Truth
from proofs.checker.worlds import fingerprint, questions, refusals
from tests.differential.oracle import program

HOME = Path(__file__).resolve().parents[2] / "build" / "prove-checker"
CHUNK = 100
REPORT_EVERY = 10.0


@dataclass(frozen=True)
class Answer:
    """What became of one case."""

    seed: str
    families: tuple[str, ...]
    engine: str
    verdict: str
    truth: str
    fault: str | None
    is_open: bool = False


def truths_of(cases: Sequence[Case], known: dict[str, list[Any]], judge: Judge) -> list[Truth]:
    """The truths of cases; those on file are not asked again."""
    keys = [key_of(case) for case in cases]
    missing = [(key, case) for key, case in zip(keys, cases, strict=True) if key not in known]
    for (key, _), truth in zip(missing, judge.truths([case for _, case in missing]), strict=True):
        known[key] = list(truth.worlds)
    return [Truth(tuple(known[key])) for key in keys]


def key_of(case: Case) -> str:
    """The same for questions that have the same answer."""
    refused = refusals(case)
    return f"refused {len(refused)}" if refused else fingerprint(questions(case))


def chunk(seed: int, number: int, count: int) -> list[Answer]:
    """The answers to one chunk of cases. Run in a process of its own."""
    cases = [drawn_case(f"{seed}/{number * CHUNK + index}") for index in range(count)]
    file = HOME / program("simulator").name / f"{seed}-{number:05d}.json"
    known: dict[str, list[Any]] = json.loads(file.read_text()) if file.exists() else {}
    before = len(known)
    with Judge() as judge:
        truths = truths_of(cases, known, judge)
    if len(known) != before:
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(".new")
        unfinished.write_text(json.dumps(known))
        unfinished.rename(file)
    return [answered(case, truth) for case, truth in zip(cases, truths, strict=True)]


def answered(case: Case, truth: Truth) -> Answer:
    """The verdict beside the truth. A checker that breaks down has no verdict."""
    try:
        verdict: str = checked(case).verdict
        found = fault(verdict, truth, case.is_open)
    except Exception as error:
        verdict, found = f"error: {type(error).__name__}", "error"
    return Answer(case.seed, case.families, case.engine, verdict, truth.word, found, case.is_open)


def advice_chunk(seed: int, number: int) -> list[Followed]:
    """The advice on one chunk of cases, followed. Run in a process of its own."""
    found: list[Followed] = []
    with Judge() as judge:
        for index in range(CHUNK):
            case = drawn_case(f"{seed}/{number * CHUNK + index}")
            try:
                found += followed(case, checked(case), judge)
            except Exception as error:
                print(f"{case.seed}: {error}", file=sys.stderr)
    return found


def advice(count: int, seed: int, workers: int) -> Iterator[Followed]:
    """So many lines of advice or more, followed."""
    program("simulator")
    given, number = 0, 0
    with ProcessPoolExecutor(workers) as pool:
        while given < count:
            for chunk_of in pool.map(advice_chunk, [seed] * workers * 2, range(number, number + workers * 2)):
                given += len(chunk_of)
                yield from chunk_of
            number += workers * 2
            print(f"  {given:,} of {count:,} lines, {number * CHUNK:,} cases", file=sys.stderr, flush=True)


def answers(count: int, seed: int, workers: int) -> Iterator[Answer]:
    """The answers to so many cases, chunk by chunk as they are ready; progress goes to standard error."""
    program("simulator")  # built once, not by every worker
    sizes = [min(CHUNK, count - start) for start in range(0, count, CHUNK)]
    done, faults, began, told = 0, 0, time.monotonic(), 0.0
    with ProcessPoolExecutor(workers) as pool:
        pending = [pool.submit(chunk, seed, number, size) for number, size in enumerate(sizes)]
        for future in as_completed(pending):
            for answer in future.result():
                done += 1
                faults += answer.fault in ("wrong always", "wrong never", "error")
                yield answer
            now = time.monotonic()
            if now - told > REPORT_EVERY or done == count:
                told = now
                rate = done / (now - began)
                print(f"  {done:,} of {count:,} cases, {rate:.0f}/s, {faults} wrong", file=sys.stderr, flush=True)
