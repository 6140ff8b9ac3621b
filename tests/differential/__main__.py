"""Ask both sides: `python -m tests.differential --kind admission --cases 5000 --seed 7`.

Exit codes: 0 they agree; 1 they do not, and each difference is printed, shrunken, and added to the table of
regressions; 3 a side is missing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time

from tests.differential.comparison import Tally, compare, ours, shrunk
from tests.differential.kinds import KINDS, Kind
from tests.differential.oracle import Oracle, OracleUnavailable
from tests.differential.sides import NotOurs
from tests.differential.tables import record, remember

BATCH = 500
SHOWN = 5


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--kind", required=True, choices=sorted(KINDS))
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="write the oracle's answers to the recorded sample")
    parser.add_argument("--forget", action="store_true", help="do not add differences to the table of regressions")
    chosen = parser.parse_args(arguments)
    kind = KINDS[chosen.kind]
    try:
        if chosen.record:
            return _record(kind, chosen.cases, chosen.seed)
        return _compare(kind, chosen.cases, chosen.seed, remembering=not chosen.forget)
    except (NotOurs, OracleUnavailable) as missing:
        print(f"{kind.name}: {missing}", file=sys.stderr)
        return 3


def _compare(kind: Kind, count: int, seed: int, *, remembering: bool) -> int:
    # A side that is missing is told before thousands of questions are asked.
    kind.ours(next(kind.cases(1, seed)))
    tally = Tally()
    with Oracle(kind.engine, kind.mode) as oracle:
        started = time.monotonic()
        cases = kind.cases(count, seed)
        while batch := list(itertools.islice(cases, BATCH)):
            for found in compare(kind, oracle, batch, tally):
                if tally.differed <= SHOWN:
                    small = shrunk(kind, oracle, found)
                    _show(small.case, small.ours, small.theirs, small.fields)
                    if remembering and kind.replayable and remember(kind, small):
                        print(f"  added to tests/differential/regressions/{kind.name}.jsonl")
        name = oracle.name
    seconds = time.monotonic() - started
    print(
        f"{kind.name}: {tally.agreed} agree, {tally.differed} differ, {tally.not_judged} not judged by {name}, "
        f"{tally.refused} refused by gpuflow, {tally.unknown} unknown; "
        f"seed {seed}, {count / seconds:.0f} cases a second, both sides"
    )
    return 1 if tally.differed else 0


def _show(case: object, ours: dict[str, object], theirs: dict[str, object], fields: frozenset[str]) -> None:
    print(f"difference in {', '.join(sorted(fields))}")
    print(f"  case   {json.dumps(case, ensure_ascii=False)}")
    for field in sorted(fields):
        print(f"  {field}\n    ours   {ours.get(field)!r}\n    theirs {theirs.get(field)!r}")


def _record(kind: Kind, count: int, seed: int) -> int:
    questions = [kind.question(case) for case in kind.cases(count, seed)]
    with Oracle(kind.engine, kind.mode) as oracle:
        started = time.monotonic()
        answers = oracle.ask(questions)
        seconds = time.monotonic() - started
    judged = [
        (case, answer)
        for case, answer in zip(questions, answers, strict=True)
        if "error" not in answer and not (kind.replayable and "unknown" in ours(kind, case))
    ]
    path = record(kind, seed, judged)
    print(f"{path.name}: {len(judged)} answers, {path.stat().st_size} bytes, {count / seconds:.0f} cases a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
