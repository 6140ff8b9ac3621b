"""Hold the oracles against a running cluster: `python -m tests.differential.live --kind admission --cases 500`.

The cluster is that of KUBECONFIG. It should be a private one: objects are made and deleted all over it.
Exit codes: 0 they agree; 1 they do not; 3 the cluster or an oracle cannot be asked.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.differential.kinds import KINDS
from tests.differential.live import admission, kueue, nodefit
from tests.differential.live.api import Api
from tests.differential.oracle import Answer, Case, Oracle, OracleUnavailable

SHOWN = 10


class Live(NamedTuple):
    """How a kind is asked of a running cluster."""

    askable: Callable[[Case], bool]
    agreement: Callable[[Api, Sequence[Case], Sequence[Answer]], Iterator[tuple[Case, str | None]]]
    prepared: Callable[[Case], Case]


def _as_it_is(case: Case) -> Case:
    return case


WAYS = {
    "admission": Live(admission.askable, admission.agreement, _as_it_is),
    "nodefit": Live(nodefit.askable, nodefit.agreement, _as_it_is),
    "kueue": Live(kueue.askable, kueue.agreement, kueue.in_order),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.live", description=__doc__)
    parser.add_argument("--kind", required=True, choices=sorted(WAYS))
    parser.add_argument("--cases", type=int, default=500, help="how many are asked of the cluster")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kubeconfig", type=Path, default=os.environ.get("KUBECONFIG"))
    chosen = parser.parse_args(arguments)
    if chosen.kubeconfig is None:
        parser.error("name a kubeconfig, or set KUBECONFIG")
    try:
        return _compare(chosen.kind, chosen.cases, chosen.seed, Path(chosen.kubeconfig))
    except (OracleUnavailable, OSError) as missing:
        print(f"{chosen.kind}: {missing}", file=sys.stderr)
        return 3


def _compare(name: str, count: int, seed: int, kubeconfig: Path) -> int:
    kind, way = KINDS[name], WAYS[name]
    api = Api(kubeconfig)
    server = api.must("GET", "/version")["gitVersion"]
    agreed = differed = 0
    started = time.monotonic()
    with Oracle(kind.engine, kind.mode) as oracle:
        cases, answers = _judged(oracle, kind.cases(20 * count, seed), way, count)
        for case, difference in way.agreement(api, cases, answers):
            if difference is None:
                agreed += 1
                continue
            differed += 1
            if differed <= SHOWN:
                print(f"{difference}\n  case {case}")
        print(
            f"{name}: {agreed} agree, {differed} differ, of {len(cases)} cases; {oracle.name} against a running "
            f"{server}, seed {seed}, {time.monotonic() - started:.0f} s"
        )
    return 1 if differed else 0


def _judged(oracle: Oracle, drawn: Iterator[Case], way: Live, count: int) -> tuple[list[Case], list[Answer]]:
    """The first so many cases that both the oracle and a cluster can be asked."""
    cases: list[Case] = []
    answers: list[Answer] = []
    for case in drawn:
        if way.askable(case):
            prepared = way.prepared(case)
            (answer,) = oracle.ask([prepared])
            if "error" not in answer:
                cases.append(prepared)
                answers.append(answer)
        if len(cases) == count:
            break
    return cases, answers


if __name__ == "__main__":
    sys.exit(main())
