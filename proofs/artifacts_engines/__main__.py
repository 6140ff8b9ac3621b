"""`python -m proofs artifacts-engines`: the guide's example on Argo, Airflow and KFP, its artifacts compared by bytes.

Needs Go, root and KFP's source: it uses the cluster that is up under `--cluster`, or starts one and ends it. Ends with
1 when an engine failed, an artifact is damaged or missing, or two engines have different bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofs.airflow.__main__ import _commit
from tests.cluster.borrowing import borrowed

from .engines import ENGINES, GOOD
from .ground import Ground

EXPECTED = {"data": {"set": 1}, "train": {"model": 3}, "best": {"model": 1}, "evaluate": {"metrics": 1, "report": 1}}
"""How many artifacts each output has."""


def digests(artifacts: dict[str, dict[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """The hash of each artifact by step and output, sorted: fan-outs have several, in no order of their own."""
    found: dict[str, dict[str, list[str]]] = {}
    for uri, told in artifacts.items():
        parts = uri.split("/")
        at = len(parts) - 1 - parts[::-1].index("artifacts")
        output, head = parts[at + 1], parts[:at]
        step = head[-3] if len(head) > 2 and head[-2] == "items" else head[-1]
        # Without modes: Argo's executor gives its programs an umask of 0, Airflow's pods have the image's.
        lines = [(file["path"], file.get("sha256"), file.get("link")) for file in told["files"]]
        digest = hashlib.sha256(json.dumps(sorted(lines, key=str)).encode()).hexdigest()[:16]
        found.setdefault(step, {}).setdefault(output, []).append(digest)
        found[step][output].sort()
    return found


def faults(results: dict[str, Any]) -> list[str]:
    """What must not be."""
    found = []
    for engine, result in results.items():
        if result["state"] != GOOD[engine]:
            found.append(f"{engine} ended with {result['state']}: {result['why']}")
        found += [f"{engine}: {uri} is damaged: {files}" for uri, files in result["damaged"].items()]
        count = {
            step: {name: len(each) for name, each in outputs.items()} for step, outputs in result["digests"].items()
        }
        if count != EXPECTED:
            found.append(f"{engine} kept {count}, and should have kept {EXPECTED}")
    first = next(iter(results), None)
    for engine, result in results.items():
        if first is not None and result["digests"] != results[first]["digests"]:
            found.append(f"{engine} and {first} have different bytes")
    return found


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs artifacts-engines", description=__doc__.splitlines()[0])
    parser.add_argument("--cluster", default="artifacts", help="the name of the private cluster")
    parser.add_argument("--only", choices=tuple(ENGINES), action="append", help="only these engines")
    options = parser.parse_args(given)
    results: dict[str, Any] = {}
    with borrowed(options.cluster, "argo", "kubeflow") as cluster:
        ground = Ground(cluster, Path("/tmp") / f"gpuflow-artifacts-{options.cluster}")
        for engine in options.only or ENGINES:
            before, began = set(ground.artifacts()), time.monotonic()
            told = ENGINES[engine](ground)
            kept = {uri: each for uri, each in ground.artifacts().items() if uri not in before}
            damaged = {uri: each["damaged"] for uri, each in kept.items() if each["damaged"]}
            took = round(time.monotonic() - began)
            results[engine] = {**told, "seconds": took, "damaged": damaged, "digests": digests(kept)}
            print(json.dumps({engine: results[engine]}, indent=1), flush=True)
    red = faults(results)
    for line in red:
        print(f"RED {line}")
    print(f"{len(results)} engines at {_commit()}: {'RED' if red else 'the same bytes on all of them'}")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
