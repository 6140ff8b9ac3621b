"""Answers on file: the recorded sample of each oracle, and the differences that were once found.

A recorded sample is gzip-compressed JSON lines, the first of which says whose answers these are. The same
answers make the same bytes. A table of regressions is plain JSON lines, one shrunken difference each.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.differential.comparison import Difference
from tests.differential.kinds import Kind
from tests.differential.oracle import Answer, Case, version

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "recorded"
REGRESSIONS = HERE / "regressions"


def record(kind: Kind, seed: int, answered: Iterable[tuple[Case, Answer]]) -> Path:
    """Write the sample of a kind."""
    head = {"oracle": f"{kind.engine} {version(kind.engine)}", "mode": kind.mode, "seed": seed}
    lines = [head, *({"input": case, "output": answer} for case, answer in answered)]
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9, mtime=0, filename="") as file:
        file.write(text.encode())
    path = RECORDED / f"{kind.name}.jsonl.gz"
    path.write_bytes(packed.getvalue())
    return path


def recorded(kind: Kind) -> Iterator[tuple[Case, Answer]]:
    """The sample of a kind."""
    with gzip.open(RECORDED / f"{kind.name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        next(lines)
        for line in lines:
            entry = json.loads(line)
            yield entry["input"], entry["output"]


def recorded_version(kind: Kind) -> str:
    """The engine whose answers were recorded, such as `kubernetes v1.36.3`."""
    with gzip.open(RECORDED / f"{kind.name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        oracle: str = json.loads(next(lines))["oracle"]
        return oracle


def regressions(kind: Kind) -> Iterator[tuple[Case, Answer]]:
    """Cases that once made a difference, and the engine's answer."""
    path = REGRESSIONS / f"{kind.name}.jsonl"
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            yield entry["case"], entry["answer"]


def remember(kind: Kind, difference: Difference) -> bool:
    """Add a difference to the table, unless it is there already."""
    if any(case == difference.case for case, _ in regressions(kind)):
        return False
    entry = {
        "oracle": f"{kind.engine} {version(kind.engine)}",
        "case": difference.case,
        "answer": difference.theirs,
    }
    REGRESSIONS.mkdir(exist_ok=True)
    with (REGRESSIONS / f"{kind.name}.jsonl").open("a", encoding="utf-8") as table:
        table.write(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n")
    return True
