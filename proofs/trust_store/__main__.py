"""`python -m proofs trust-store --count 5000 --seed 1`: goes on where it was stopped."""

from __future__ import annotations

import argparse
import collections
import faulthandler
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from proofs.trust_store.sound import build
from proofs.trust_store.trial import Case

ROOT = Path(__file__).resolve().parents[2]
SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs trust-store", description=__doc__)
    parser.add_argument("--count", type=int, default=5000, help="cases in this process")
    parser.add_argument("--processes", type=int, default=300, help="of those, how many also as real processes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this one case, with everything that is said")
    parser.add_argument("--afresh", action="store_true", help="do not go on where it was stopped")
    wanted = parser.parse_args()
    progress = ROOT / "build" / f"prove-trust-store-{wanted.seed}.json"
    state: dict[str, Any] = {"cases": 0, "processes": 0, "tally": {}, "faults": []}
    if progress.exists() and not wanted.afresh and wanted.only is None:
        state = json.loads(progress.read_text())
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = Path(tempfile.mkdtemp(prefix="gpuflow-hostile-", dir=memory))
    try:
        sounds = build(folder / "sound")
        if wanted.only is not None:
            case = Case(sounds, wanted.seed, wanted.only, folder / "case")
            result = case.start()
            print(case, result.code, result.resumed, *result.said, *case.faults(result), sep="\n  ")
            return bool(case.faults(result))
        began = time.monotonic()
        # The sample is spread over all cases.
        every = max(1, wanted.count // max(1, wanted.processes))
        for number in range(state["cases"], wanted.count):
            faulthandler.dump_traceback_later(180, exit=True)  # no case takes so long: show where it stands
            for real in (False, True) if wanted.processes and number % every == 0 else (False,):
                case = Case(sounds, wanted.seed, number, folder / "case")
                result = case.start_process() if real else case.start()
                tally = collections.Counter(state["tally"])
                tally[f"exit {result.code}"] += 1
                state["tally"] = dict(tally)
                state["faults"] += [f"{case}: {fault}" for fault in case.faults(result)]
                state["processes"] += real
            state["cases"] = number + 1
            if (number + 1) % 250 == 0 or number + 1 == wanted.count:
                progress.parent.mkdir(exist_ok=True)
                progress.write_text(json.dumps(state))
                spent = time.monotonic() - began
                print(f"{number + 1} of {wanted.count}, {len(state['faults'])} faults, {spent:.0f} s", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\nseed {wanted.seed}: {state['cases']} changed objects, {state['processes']} of them as real processes too")
    print("  " + ", ".join(f"{what}: {times}" for what, times in sorted(state["tally"].items())))
    for fault in state["faults"][:SHOWN]:
        print(f"  FAULT {fault}")
    print("  no traceback, nothing outside, no checkpoint passed over" if not state["faults"] else "  it does not hold")
    return bool(state["faults"])


if __name__ == "__main__":
    sys.exit(main())
