"""A Go project that no module proxy has: its source comes as an archive that somebody puts beside this project.

The archive is looked for in `../shared/engines`, or where a variable says. It is taken only when it is the one that is
pinned here by its hash, and nothing of it is kept in this project.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "engines"


class NoArchive(RuntimeError):
    """The archive is not here, or is another one; one line that says what to do."""


@dataclass(frozen=True)
class Archive:
    """A pinned archive: `root` is the one folder in it, `replaced` the modules that it is built with instead."""

    name: str
    sha256: str
    variable: str
    root: str
    replaced: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        given = os.environ.get(self.variable)
        return Path(given) if given else BESIDE / self.name

    def judge(self) -> None:
        """Say in one line why nothing can be built from it, if so."""
        if not self.path.is_file():
            where = f"{self.path} (named by {self.variable})" if os.environ.get(self.variable) else self.name
            raise NoArchive(f"no source {where}: put it into ../shared/engines, or name it in {self.variable}")
        with self.path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != self.sha256:
            raise NoArchive(f"{self.path} has the SHA-256 {found}, and {self.sha256} is what is built here")

    def unpack(self, place: Path) -> Path:
        """The source tree under `place`, ready to build; complete or not there."""
        tree = place / self.root
        if tree.exists():
            return tree
        self.judge()
        partial = place / ".partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        with tarfile.open(self.path) as tar:
            tar.extractall(partial, filter="data")
        edits = [f"-replace={module}={other}" for module, other in self.replaced.items()]
        # Whatever Go is here builds it: a `toolchain` line would have another one downloaded.
        command = ["go", "mod", "edit", "-toolchain=none", *edits]
        subprocess.run(command, cwd=partial / self.root, check=True)
        (partial / self.root).replace(tree)
        shutil.rmtree(partial)
        return tree
