"""`python -m proofs airflow`: DAGs on a real Airflow and a private cluster; goes on where it was stopped.

Needs Go and root: it uses the cluster that is up under `--cluster`, or starts one and ends it. Ends with 1 when
something was seen that must not be; such a case is played again at the next start.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cluster.borrowing import borrowed
from tests.targets.airflow.home import ROOT

from .cases import CASES
from .ground import Ground
from .judging import wrong

KEPT = ROOT / "build" / "airflow-proof"


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proofs airflow", description=__doc__.splitlines()[0])
    parser.add_argument("--cluster", default="default", help="the name of the private cluster")
    parser.add_argument("--only", choices=tuple(CASES), action="append", help="only these cases")
    parser.add_argument("--again", action="store_true", help="play also what has been played")
    parser.add_argument("--sum", action="store_true", help="play nothing; print what there is")
    return parser.parse_args(given)


def _commit() -> str:
    words = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(words, cwd=ROOT, text=True, capture_output=True, check=False).stdout.strip() or "unknown"


def _is_good(name: str, results: dict[str, Any]) -> bool:
    return name in results and not wrong(name, results[name]["seen"])


def _print(results: dict[str, Any]) -> None:
    for name, result in results.items():
        red = wrong(name, result["seen"])
        print(f"\n== {name}: {'RED' if red else 'green'} ({result['commit']}, {result['seconds']} s)")
        for line in red:
            print(f"  RED {line}")
        for key, value in result["seen"].items():
            print(f"  {key}: {json.dumps(value, ensure_ascii=False)}")


def _play(name: str, ground: Ground) -> dict[str, Any]:
    print(f"{name} …", flush=True)
    began, commit = time.monotonic(), _commit()
    seen = CASES[name](ground)
    return {"commit": commit, "seconds": round(time.monotonic() - began), "seen": seen}


def main(given: Sequence[str] | None = None) -> int:
    options = _arguments(given)
    file = KEPT / "results.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    wanted = [name for name in CASES if not options.only or name in options.only]
    left = [] if options.sum else [name for name in wanted if options.again or not _is_good(name, results)]
    if left:
        folder = Path("/tmp") / "gpuflow-airflow-proof" / options.cluster
        with borrowed(options.cluster) as cluster, Ground(cluster, folder) as ground:
            for name in left:
                results[name] = _play(name, ground)
                KEPT.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(results, indent=1))
    _print({name: results[name] for name in wanted if name in results})
    return 0 if all(_is_good(name, results) for name in wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
