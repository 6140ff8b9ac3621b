"""Device claims against the scheduler's own allocator: `python -m proofs checker-dra --count 5000 --seed 1`.

Prints each difference, the share of cases that get a verdict, and how often each construct occurs. Exit codes: 0 no
difference and a verdict for nine of ten; 1 otherwise; 3 the allocator is missing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.differential.comparison import ours
from tests.differential.kinds import KINDS
from tests.differential.oracle import Case, Oracle, OracleUnavailable

BATCH = 250
SHOWN = 5
LEAST_SHARE = 0.9
CONSTRUCTS = (
    "selectors", "matchAttribute", "distinctAttribute", "firstAvailable", "adminAccess", "tolerations", "taints",
    "consumesCounters", "sharedCounters", "nodeSelector", "perDeviceNodeSelection", "allNodes", "bindingConditions",
    "allowMultipleAllocations", "requestPolicy", "results",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs checker-dra", description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    try:
        return prove(chosen.count, chosen.seed)
    except OracleUnavailable as missing:
        print(f"dra: {missing}", file=sys.stderr)
        return 3


def prove(count: int, seed: int) -> int:
    kind = KINDS["dra"]
    answers: Counter[str] = Counter()
    families: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    judged = differing = 0
    with Oracle(kind.engine, kind.mode) as oracle:
        cases = kind.cases(count, seed)
        while batch := list(itertools.islice(cases, BATCH)):
            for case, answer in zip(batch, oracle.ask(batch), strict=True):
                if "error" in answer:
                    answers["not valid"] += 1
                    continue
                mine, theirs = ours(kind, case), kind.theirs(answer)
                judged += 1
                families.update({case["family"], *_constructs(case)})
                statuses.update(each["status"] for each in theirs["nodes"].values())
                answers["unknown" if "unknown" in mine else "verdict"] += 1
                if "unknown" not in mine and mine != theirs:
                    differing += 1
                    if differing <= SHOWN:
                        print(f"difference\n  case   {json.dumps(case)}\n  ours   {mine}\n  theirs {theirs}")
        name = oracle.name
    share = answers["verdict"] / max(judged, 1)
    print(f"{judged} cases against {name}, seed {seed}: {differing} differences, {share:.1%} with a verdict")
    print("occurring in: " + ", ".join(f"{what} {often}" for what, often in sorted(families.items())))
    print("nodes: " + ", ".join(f"{what} {often}" for what, often in sorted(statuses.items())))
    if answers["not valid"]:
        print(f"not valid, and not counted: {answers['not valid']}")
    return 1 if differing or share < LEAST_SHARE else 0


def _constructs(case: Case) -> set[str]:
    found = {"All"} if '"All"' in json.dumps(case["claims"]) else set()
    return found | {each for each in _keys({**case, "classes": []}) if each in CONSTRUCTS}


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if inner:
                yield key
            yield from _keys(inner)
    elif isinstance(value, list):
        for each in value:
            yield from _keys(each)


if __name__ == "__main__":
    sys.exit(main())
