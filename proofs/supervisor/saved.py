"""How far a search has come, in a file: a search that was stopped goes on there, as long as the code is the same."""

from __future__ import annotations

import array
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import gpuflow.runtime

if TYPE_CHECKING:
    from proofs.supervisor.search import Report

EVERY = 5.0
FOLDER = Path(__file__).resolve().parents[2] / "build" / "explorer"


def digest_of_code() -> str:
    """What is explored, and what explores."""
    total = hashlib.sha256(sys.version.encode())
    for folder in (Path(gpuflow.runtime.__path__[0]), Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()[:12]


class Saved:
    """One share of one scenario within one bound."""

    def __init__(self, name: str) -> None:
        self.path = FOLDER / digest_of_code() / f"{name}.json"
        self._next = time.monotonic() + EVERY

    def take_up(self, report: Report) -> tuple[list[int] | None, bool]:
        """Fill in what was explored before; the decisions to go on with, and whether all is done."""
        try:
            known = json.loads(self.path.read_text())
            states = array.array("q", self.path.with_suffix(".states").read_bytes())
        except (OSError, ValueError):
            return [], False
        report.executions, report.moves, report.points = known["executions"], known["moves"], known["points"]
        report.earlier, report.states = known["seconds"], set(states)
        return known["given"], known["complete"]

    def due(self) -> bool:
        return time.monotonic() >= self._next

    def save(self, report: Report, given: list[int], seconds: float, *, complete: bool = False) -> None:
        self._next = time.monotonic() + EVERY
        self.path.parent.mkdir(parents=True, exist_ok=True)
        known = {"executions": report.executions, "moves": report.moves, "points": report.points, "seconds": seconds}
        _put(self.path.with_suffix(".states"), array.array("q", sorted(report.states)).tobytes())
        _put(self.path, json.dumps({**known, "given": given, "complete": complete}).encode())


def _put(path: Path, data: bytes) -> None:
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)
