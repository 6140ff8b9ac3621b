"""`python -m proofs retries`: every row of the table of evidence and random sequences of faults, on a real cluster.

Needs the private cluster: it uses the one that `python -m tests.cluster up` left running, or starts one and ends it.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from gpuflow.runtime.supervise import evidence
from tests.cluster.borrowing import borrowed

from . import results
from .contract import Case, Engine
from .ground import ground
from .rows import BOTH, rows
from .running import run
from .sequences import sequences

ATTENTIVE = {"ARGO_POD_STATUS_CAPTURE_FINALIZER": "true"}
"""Lets Argo see how every deleted pod ended; without it a step that nobody supervises may be made again for nothing."""


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proofs retries", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the random sequences")
    parser.add_argument("--count", type=int, default=200, help="how many faults the random sequences have at least")
    parser.add_argument("--engine", choices=(*BOTH, "both"), default="both")
    parser.add_argument("--smoke", action="store_true", help="a handful of rows and nothing else: three minutes")
    parser.add_argument("--only", default="", metavar="PATTERN", help="only cases whose name has this in it")
    parser.add_argument("--again", action="store_true", help="play also what has been played")
    parser.add_argument("--sum", action="store_true", help="play nothing; print what there is")
    parser.add_argument("--cluster", default="default", help="the name of the private cluster")
    return parser.parse_args(given)


def chosen(options: argparse.Namespace) -> list[Case]:
    engines: tuple[Engine, ...] = BOTH if options.engine == "both" else (options.engine,)
    cases = list(rows(engines, smoke=options.smoke))
    if not options.smoke and options.count:
        cases += sequences(engines, options.seed, options.count)
    return [case for case in cases if re.search(options.only, case.name)]


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(given: Sequence[str] | None = None) -> int:
    # Also when started in the background, where shells have SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    options = _arguments(given)
    kept = results.Results()
    wanted = chosen(options)
    cases = [case for case in wanted if options.again or case.name not in kept]
    print(
        f"seed {options.seed}: {len(wanted)} cases, {len(wanted) - len(cases)} played before; {kept.path}", flush=True
    )
    begun = time.monotonic()

    def keep(result: results.Result) -> None:
        kept.keep(result)
        print(results.line(result), flush=True)

    if cases and not options.sum:
        with borrowed(options.cluster, "argo", "kueue") as cluster:
            cluster.image("gpuflow")
            attentive = [case for case in cases if case.engine == "argo" and not case.supervised]
            for group, settings in (([case for case in cases if case not in attentive], None), (attentive, ATTENTIVE)):
                if not group:
                    continue
                if settings:
                    cluster.restart("workflow-controller", env=settings)
                try:
                    with ground(cluster) as place:
                        run(place, group, keep)
                finally:
                    if settings:
                        cluster.restart("workflow-controller")
    found = [kept.all[case.name] for case in wanted if case.name in kept]
    for text in results.summary(found, len(evidence.TABLE)):
        print(text)
    print(f"{time.monotonic() - begun:.0f} s; seed {options.seed}; code {results.digest()}")
    return 1 if any(item["differences"] for item in found) or len(found) < len(wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
