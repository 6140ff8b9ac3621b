"""`python -m tests.airflow_proof`: three DAGs on a real Airflow and a private cluster; goes on where it was stopped.

Needs Go and root: it uses the cluster that is up under `--cluster`, or starts one and ends it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..cluster.cluster import Cluster
from ..targets.airflow.home import ROOT
from .cases import CASES
from .ground import Ground

KEPT = ROOT / "build" / "airflow-proof"


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.airflow_proof", description=__doc__.splitlines()[0])
    parser.add_argument("--cluster", default="default", help="the name of the private cluster")
    parser.add_argument("--only", choices=tuple(CASES), action="append", help="only these cases")
    parser.add_argument("--again", action="store_true", help="play also what has been played")
    parser.add_argument("--sum", action="store_true", help="play nothing; print what there is")
    return parser.parse_args(given)


@contextlib.contextmanager
def _cluster(name: str) -> Iterator[Cluster]:
    found = Cluster.find(name)
    if found is not None:
        yield found
        return
    made = Cluster.up(name)
    try:
        yield made
    finally:
        Cluster.down(name)


def _print(results: dict[str, Any]) -> None:
    for name, seen in results.items():
        print(f"\n== {name}")
        for key, value in seen.items():
            print(f"  {key}: {json.dumps(value, ensure_ascii=False)}")


def main(given: Sequence[str] | None = None) -> int:
    options = _arguments(given)
    file = KEPT / "results.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    wanted = [name for name in CASES if not options.only or name in options.only]
    left = [] if options.sum else [name for name in wanted if options.again or name not in results]
    if left:
        with _cluster(options.cluster) as cluster:
            ground = Ground(cluster, Path("/tmp") / "gpuflow-airflow-proof" / options.cluster)
            for name in left:
                began = time.monotonic()
                print(f"{name} …", flush=True)
                results[name] = CASES[name](ground)
                KEPT.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(results, indent=1))
                print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    _print({name: results[name] for name in wanted if name in results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
