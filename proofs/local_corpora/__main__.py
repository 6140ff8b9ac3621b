"""`python -m proofs local-corpora`: what of others' and of our own pipelines runs on this machine.

Every file of the corpora beside the repository that `gpuflow import` reads is run with `gpuflow run`, each program
replaced by one that writes the step's outputs; at least 80 % must succeed. Our examples, templates and one pipeline for
each construct are run in the same way, and those that do not must be on a short list, with the reason. GPUs are
pretended, questions are answered with yes, variables from Secrets have a value, and what runs beside a program is left
out (`--pretend-gpus --approve … --allow-lossy`). Ends with 1 when less runs, or something else.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from proofs.airflow.__main__ import _commit

from .cases import Case, of_corpora, of_our_own
from .playing import GOOD, play

LEAST = 0.8
CORPORA = ("argo-workflows", "kubeflow-pipelines", "kueue")
KNOWN: dict[str, str] = {
    "outputs_from": "GF923",  # xcom is a place of Airflow's pods
    "inputs.size": "a failed: s3:// needs s3fs",  # its data comes from a bucket outside
    "when": "nothing of it ran",  # its one step is skipped, as it says
}
"""Of our own: what does not run here, and how its reason begins."""


def judge(found: dict[Case, str]) -> list[str]:
    """What must not be."""
    red = []
    others = {case: said for case, said in found.items() if case.group.split("/")[0] in CORPORA}
    good = sum(said == GOOD for said in others.values())
    if others and good < LEAST * len(others):
        red.append(f"of the importable files {good} of {len(others)} run, which is less than {LEAST:.0%}")
    for case, said in found.items():
        known = None if case in others else KNOWN.get(case.name)
        if case in others or (known is None and said == GOOD):
            continue
        if known is None:
            red.append(f"{case.group}: {case.name} is not on the list of what does not run: {said}")
        elif said == GOOD:
            print(f"{case.group}: {case.name} runs now: take it off the list")
        elif not said.startswith(known):
            red.append(f"{case.group}: {case.name} is on the list for {known!r}, and: {said}")
    return red


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs local-corpora", description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=("corpora", "own"), help="only what others wrote, or what is our own")
    parser.add_argument("--match", default="", help="only what has this in its name")
    options = parser.parse_args()
    others = [] if options.only == "own" else [*of_corpora()]
    own = [] if options.only == "corpora" else [*of_our_own()]
    cases = [case for case in (*others, *own) if case is not None]
    cases = [case for case in cases if options.match in case.name]
    if not cases:
        print("RED there is nothing to run")
        return 1
    importable = sum(case is not None for case in others)
    print(f"{importable} of {len(others)} objects of the corpora can be imported", flush=True)
    found = play(cases, options.workers)
    for group, total in Counter(case.group for case in found).items():
        print(f"{group}: {sum(said == GOOD for case, said in found.items() if case.group == group)} of {total} succeed")
    red = judge(found)
    for line in red:
        print(f"RED {line}")
    good = sum(said == GOOD for said in found.values())
    print(f"{good} of {len(found)} pipelines at {_commit()} run to their end: {'RED' if red else 'as it must be'}")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
