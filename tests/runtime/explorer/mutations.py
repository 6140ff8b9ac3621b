"""The fixes taken back, one by one, in a copy of the package: the explorer must find each.

A text that is no longer in the code is an error: then the mutation must be written anew.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import gpuflow

PACKAGE = Path(gpuflow.__file__).resolve().parent


class Mutation:
    """A fix, how it is taken back, and where the explorer looks for the consequence."""

    def __init__(self, says: str, scenario: str, bounds: dict[str, int], *edits: tuple[str, str, str]) -> None:
        self.says, self.scenario, self.bounds, self.edits = says, scenario, bounds, edits
        """`bounds`: so many decisions of these kinds, none of the others: enough to find it, and quick."""


ALL: dict[str, Mutation] = {}


def apply(mutation: Mutation, into: Path) -> None:
    """A copy of the package below `into`, without the fix."""
    shutil.copytree(PACKAGE, into / "gpuflow", ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in mutation.edits:
        path = into / "gpuflow" / "runtime" / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} has changed, write this mutation anew: {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")
