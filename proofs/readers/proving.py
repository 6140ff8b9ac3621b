"""All runs of a case, and what they show."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from proofs.readers.case import ENGINES, Case
from proofs.readers.judging import exceeded, most, reached
from proofs.readers.playing import RESULTS, Plan, Player, Run
from proofs.readers.watching import Watch
from tests.differential.live.api import Api

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("gpuflow/readers", "gpuflow/demands", "gpuflow/graph", "proofs/readers")
MOST_RUNS = 4
Result = dict[str, Any]


def prove(api: Api, watch: Watch, case: Case, seed: int) -> Result:
    """Runs that aim at each exact peak, and one in which pods end and fail at random."""
    done: dict[tuple[str, str], bool] = {
        (engine, key): False
        for engine in ENGINES
        for key, bound in case.bounds(engine).items()
        if bound.bound == "exact" and bound.value
    }
    result: Result = {"name": case.name, "exceeded": [], "notes": [], "runs": 0}
    pods = case.bounds("none").get("pods") or case.bounds("argo").get("pods")
    result["bound"] = pods.bound if pods is not None else "no pods"
    result["stated"] = {key: str(bound.value) for key, bound in case.bounds("argo").items()}
    result["because"] = pods.because if pods is not None else None
    for plan in _plans(case, done, seed):
        run = Player(api, watch, case, plan).play()
        result["runs"] += 1
        result["notes"] += [note for note in run.notes if note not in result["notes"]]
        _judge(case, run, done, result)
        watch.places.pop(next((key for key, each in watch.places.items() if each is run.place), ""), None)
        if not run.place.log or (run.phase in ("Error", "Failed", "Refused") and not _had_pods(run)):
            result["notes"].append("it never gets to a pod here")
            break
    result["exact"], result["reached"] = len(done), sum(done.values())
    missed = [f"{key} ({engine})" for (engine, key), is_seen in done.items() if not is_seen]
    result["missed"] = missed
    return result


def _had_pods(run: Run) -> bool:
    return any(each.pod for each in run.place.log)


def _plans(case: Case, done: Mapping[tuple[str, str], bool], seed: int) -> Iterator[Plan]:
    tried: Counter[tuple[str, str]] = Counter()
    for _ in range(MOST_RUNS):
        left = [each for each, is_seen in done.items() if not is_seen and tried[each] < 2]
        if not left:
            break
        engine, key = min(left, key=lambda each: (tried[each], each))
        attempt = tried[engine, key]
        tried[engine, key] += 1
        witness = case.bounds(engine)[key].witness
        yield Plan(engine, key, witness, seed + attempt, RESULTS[attempt % 2], 1.0 + attempt)
    yield Plan(seed=seed)


def _judge(case: Case, run: Run, done: dict[tuple[str, str], bool], result: Result) -> None:
    for engine in ENGINES:
        bounds, seen = case.bounds(engine), most(run.place, engine)
        for key, is_seen in reached(seen, bounds).items():
            done[engine, key] = done[engine, key] or is_seen
        for key, (amount, stated) in exceeded(seen, bounds).items():
            text = f"{key} ({engine}): {amount} of {stated}"
            if text not in result["exceeded"]:
                result["exceeded"].append(text)


def digest() -> str:
    """Of the code that the proof is about."""
    found = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]


class Results:
    """What was seen so far, in a file that only grows: a stopped proof goes on from there."""

    def __init__(self, seed: int) -> None:
        self.path = ROOT / "build" / "prove-readers" / digest() / f"seed-{seed}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.all: dict[str, Result] = {each["name"]: each for each in map(json.loads, lines)}

    def keep(self, result: Result) -> None:
        self.all[result["name"]] = result
        with self.path.open("a") as file:
            file.write(json.dumps(result) + "\n")


def line(result: Result) -> str:
    """One workflow, as it is said when it is over."""
    words = f"{result['reached']}/{result['exact']} exact peaks reached" if result["exact"] else "nothing exact"
    verdict = f"EXCEEDED {'; '.join(result['exceeded'])}" if result["exceeded"] else "not exceeded"
    missed = f"; not reached: {', '.join(result['missed'])}" if result["missed"] else ""
    notes = f" [{' | '.join(result['notes'])}]" if result["notes"] else ""
    return f"{result['name']:44} {result['bound']:8} {result['runs']} runs: {verdict}, {words}{missed}{notes}"


def table(results: Iterable[Result]) -> Iterator[str]:
    """What was shown."""
    found = list(results)
    yield "| workflows | all | exact | at most | unknown | no pods | runs | exact peaks | reached | exceeded |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, chosen in (
        ("corpus", [each for each in found if not each["name"].startswith("generated-")]),
        ("generated", [each for each in found if each["name"].startswith("generated-")]),
        ("together", found),
    ):
        counts = Counter(each["bound"] for each in chosen)
        numbers = [len(chosen), *(counts[word] for word in ("exact", "at-most", "unknown", "no pods"))]
        numbers += [sum(each[field] for each in chosen) for field in ("runs", "exact", "reached")]
        numbers.append(sum(bool(each["exceeded"]) for each in chosen))
        yield f"| {name} | {' | '.join(map(str, numbers))} |"
    for each in found:
        if each["exceeded"] or each["missed"]:
            yield line(each)
