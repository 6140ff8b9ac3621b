"""Hostile text over every field of the models, every target and every output format; `python -m proofs trust`.

`python -m proofs.trust --environment argo --count 9000 --seed 1` runs the cases of one environment, and goes on where
it was stopped as long as nothing of gpuflow or of this suite has changed. `--sum` adds up what all environments found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from proofs.trust.argo_itself import ArgoItself
from proofs.trust.compiling import ENVIRONMENTS
from proofs.trust.running import Tally, cases, run

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "hostile"
SHARES = {"core": 0.2, "argo": 0.45, "airflow": 0.35, "kubeflow": 0.2}
"""How the count is spread: it counts compiled artifacts and refusals; what core shows comes on top."""
EVERY_SECONDS = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.trust", description=__doc__)
    parser.add_argument("--environment", choices=ENVIRONMENTS)
    parser.add_argument("--count", type=int, default=20_000, help="cases of all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sum", action="store_true", help="add up what the environments found")
    args = parser.parse_args()
    if args.sum:
        return _sum(args.seed)
    if args.environment is None:
        parser.error("--environment or --sum is needed")
    return prove(args.environment, round(args.count * SHARES[args.environment]), args.seed)


def prove(environment: str, count: int, seed: int) -> int:
    """Run what is left of the cases; 1 when something was injected."""
    file, made_of = FOLDER / f"{seed}-{environment}.json", fingerprint()
    state = _state(file, made_of)
    tally, done, spent = Tally.read(state["tally"]), state["done"], state["seconds"]
    argo = ArgoItself() if environment == "argo" else None
    if argo is not None:
        argo.asked, argo.ended = state["asked"], state["ended"]
        print(f"{environment}: Argo's own code is " + (f"not asked: {argo.missing}" if argo.missing else "asked too"))
    begun = shown = time.monotonic()

    def keep() -> None:
        now = {"seconds": spent + time.monotonic() - begun, "made of": made_of, "done": done}
        now |= {"asked": argo.asked if argo else 0, "ended": argo.ended if argo else 0, "tally": tally.document()}
        FOLDER.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(now, ensure_ascii=True), encoding="utf-8")
        part.replace(file)

    first = done
    try:
        for number, case in cases(environment, seed, first, max(0, count - first)):
            run(case, tally, argo)
            done = number + 1
            if time.monotonic() - shown > EVERY_SECONDS:
                shown = time.monotonic()
                rate = (done - first) / (shown - begun)
                left = (count - done) / rate
                print(f"{environment}: {done:,} of {count:,}, {rate:.1f} a second, {left / 60:.1f} min left, "
                      f"{len(tally.injected)} injections", flush=True)  # fmt: skip
                keep()
    finally:
        keep()
        if argo is not None:
            argo.close()
    print(f"{environment}: {done:,} cases, {sum(tally.compiled.values()):,} compiled or shown, "
          f"{sum(tally.refused.values()):,} refused, {len(tally.injected)} injections")  # fmt: skip
    for line in tally.injected[:20]:
        print(f"  {line}")
    return 1 if tally.injected else 0


def _state(file: Path, made_of: str) -> dict[str, Any]:
    fresh: dict[str, Any] = {"tally": {}, "done": 0, "seconds": 0.0, "asked": 0, "ended": 0}
    if not file.exists():
        return fresh
    known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if known["made of"] != made_of:
        print("gpuflow or the suite has changed since the last run: all cases begin anew")
        return fresh
    print(f"going on after {known['done']:,} cases")
    return known


def fingerprint() -> str:
    """What the answers depend on."""
    digest = hashlib.sha256()
    for folder in (ROOT / "gpuflow", ROOT / "proofs" / "trust"):
        for path in sorted((*folder.rglob("*.py"), *folder.rglob("*.yaml"))):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _sum(seed: int) -> int:
    """All environments together, and the fields of which the judge has seen nothing."""
    states = {name: FOLDER / f"{seed}-{name}.json" for name in ENVIRONMENTS}
    missing = [name for name, file in states.items() if not file.exists()]
    if missing:
        print(f"not run with seed {seed}: {', '.join(missing)}")
        return 1
    total, compiles, injected = Tally(), 0, 0
    for name, file in states.items():
        state = json.loads(file.read_text(encoding="utf-8"))
        tally = Tally.read(state["tally"])
        compiled, refused = sum(tally.compiled.values()), sum(tally.refused.values())
        rate = state["done"] / max(state["seconds"], 0.001)
        print(f"{name:9} {state['done']:7,} cases  {compiled:7,} made  {refused:7,} refused  "
              f"{len(tally.injected):3} injections  {rate:5.1f} a second")  # fmt: skip
        if state["asked"]:
            print(f"{'':9} Argo's own code gave {state['asked']:,} pods; it ended {state['ended']:,} by itself")
        compiles += 0 if name == "core" else compiled + refused
        injected += len(tally.injected)
        total.held += tally.held
        total.turned_away += tally.turned_away
        total.codes += tally.codes
    print(f"{compiles:,} compiles for engines, {injected} injections")
    print(f"refused by: {', '.join(f'{code} {count:,}' for code, count in total.codes.most_common(12))}")
    print(f"{len(total.always_refused)} fields take no hostile text at all; of these the artifacts say nothing:")
    print("  " + ", ".join(total.always_refused))
    return 1 if injected else 0


if __name__ == "__main__":
    sys.exit(main())
