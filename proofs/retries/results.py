"""What was seen, one line a case, kept with the digest of the code it is about: a stopped proof goes on from there."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("gpuflow", "proofs/retries")


def digest() -> str:
    """Of all code that decides what is counted."""
    found = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]


Result = dict[str, Any]


class Results:
    """The results so far, in a file that only grows."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or ROOT / "build" / "prove-retries" / digest()) / "results.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.all: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                found = json.loads(line)
                self.all[found["name"]] = found

    def __contains__(self, name: str) -> bool:
        return name in self.all

    def keep(self, result: dict[str, Any]) -> None:
        self.all[result["name"]] = result
        with self.path.open("a") as file:
            file.write(json.dumps(result) + "\n")


def line(result: dict[str, Any]) -> str:
    """One case, as it is said when it is over."""
    seen = result["seen"]
    counted = f"failures {seen.get('failures', '-')} interruptions {seen.get('interruptions', '-')}"
    verdict = "as promised" if not result["differences"] else "DIFFERENT: " + "; ".join(result["differences"])
    verdict += "".join(f" ({note})" for note in result["notes"])
    acts = " ".join(result["acts"])
    return (
        f"{result['engine']:7} {result['care']:10} {result['budget']:8} {acts:40} "
        f"{seen['state']} after {seen['starts']} starts, {counted}: {verdict} ({result['name']}, {result['seconds']} s)"
    )


def summary(results: list[dict[str, Any]], outcomes: int) -> Iterator[str]:
    """The table of rows and the totals."""
    rows = [item for item in results if item["name"].startswith("row-")]
    if rows:
        yield "| cause | engine | the table's rows | outcome | counted | as promised |"
        yield "|---|---|---|---|---|---|"
        yield from (_row(item) for item in rows)
    for engine in sorted({item["engine"] for item in results}):
        chosen = [item for item in results if item["engine"] == engine]
        judged = [row for item in chosen if item["name"].startswith("row-") for row in item["rows"]]
        numbers = {row["row"] for row in judged if "row" in row}
        yield (
            f"{engine}: {len(chosen)} cases, {sum(item['faults'] for item in chosen)} faults, "
            f"{len(numbers)} of {outcomes} rows of the table seen, "
            f"{sum(bool(item['differences']) for item in chosen)} different"
        )
    drawn = [item for item in results if item["name"].startswith("seq-")]
    if drawn:
        acts = Counter(act for item in drawn for act in item["acts"][: item["faults"]])
        yield f"random sequences: {len(drawn)} cases, {sum(acts.values())} faults: " + ", ".join(
            f"{act} {number}" for act, number in sorted(acts.items())
        )
    for note, number in sorted(Counter(note for item in results for note in item["notes"]).items()):
        yield f"{note}: {number}"
    different = [item for item in results if item["differences"]]
    yield f"all: {len(results)} cases, {sum(item['faults'] for item in results)} faults, {len(different)} different"
    for item in different:
        yield "DIFFERENT " + line(item)


def _row(item: dict[str, Any]) -> str:
    named = [row for row in item["rows"] if row["outcome"] == item["outcome"]]
    shown = named or [row for row in item["rows"] if row["outcome"] not in ("succeeded", "never started")]
    because = sorted({row["because"] for row in shown})
    outcomes = sorted({row["outcome"] for row in shown})
    seen = item["seen"]
    counted = f"{seen.get('failures', '–')} / {seen.get('interruptions', '–')}"
    cause = item["name"].removeprefix(f"row-{item['engine']}-")
    verdict = "yes" if not item["differences"] else "**no**: " + "; ".join(item["differences"])
    return f"| {cause} | {item['engine']} | {'; '.join(because)} | {', '.join(outcomes)} | {counted} | {verdict} |"
