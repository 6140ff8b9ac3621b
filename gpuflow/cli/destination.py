"""Where compiled files go: standard output, one file, or a folder. Compiling never overwrites its input."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuflow.cli.output import MOST, stale, write_files
from gpuflow.errors import Where, fail
from gpuflow.files import read_at_most
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.frame import Artifact

COMMAND = Where("gpuflow compile")


class Destination:
    """What -o names, and the files that will stand there."""

    def __init__(self, output: str | None, pipelines: int, read: Iterable[str], *, follow_links: bool = False) -> None:
        """`pipelines`: how many there are to write; `read`: the files that this command reads."""
        self.follow_links = follow_links
        self.output = Path(output) if output not in (None, "-") else None
        is_folder = output is not None and (
            output.endswith("/") or Path(output).is_dir() or (pipelines > 1 and not Path(output).is_file())
        )
        self.folder = self.output if is_folder else None
        self.files: dict[Path, str] = {}
        self._read = tuple(read)

    @property
    def file(self) -> str | None:
        """The name of the one file that -o names."""
        return self.output.name if self.output is not None and self.folder is None else None

    def place(self, pipeline: Pipeline, artifacts: tuple[Artifact, ...]) -> None:
        """Note what goes where."""
        if self.output is None:
            return
        if self.folder is None and len(artifacts) > 1:
            text = f'"{pipeline.name}" becomes {len(artifacts)} files, and -o {self.output} is one'
            raise fail("GF903", text, where=COMMAND, hint=f"name a folder: -o {self.output.parent}/")
        for artifact in artifacts:
            path = self.folder / artifact.name if self.folder else self.output
            self._refuse(path, pipeline)
            self.files[path] = artifact.text

    def _refuse(self, path: Path, pipeline: Pipeline) -> None:
        source = pipeline.source.file
        over = next(
            (file for file in self._read if path.exists() and Path(file).exists() and path.samefile(file)), None
        )
        if over is not None:
            itself = "the pipeline itself" if over == source else "a file that this command reads"
            text = f"-o {path} would overwrite {itself}"
            raise fail("GF903", text, where=Where(source), hint="name another file, or a folder")
        if path in self.files:
            text = f'two pipelines would be written to {path}; the second is "{pipeline.name}"'
            raise fail("GF304", text, where=Where(source), hint="give them different names, or name a folder at -o")

    def add(self, artifact: Artifact) -> None:
        """A file that stands beside those of the pipelines."""
        if self.folder is not None:
            self.files[self.folder / artifact.name] = artifact.text

    def stale(self) -> list[str]:
        """A diff for every file that is not what it should be."""
        return stale(self.files, folder=self.folder, follow_links=self.follow_links)

    def write(self) -> None:
        """Write all files, or none when one of them leads elsewhere."""
        write_files(self.files, folder=self.folder, follow_links=self.follow_links)

    def present(self) -> Mapping[str, str]:
        """The files that lie in the folder now, with their text."""
        files = self.folder.glob("*") if self.folder is not None else ()
        # A link is not followed here either; the one that would be compared or written is refused by name.
        ordinary = [file for file in files if file.is_file() and (self.follow_links or not file.is_symlink())]
        return {file.name: _text(file) for file in ordinary}


def _text(file: Path) -> str:
    try:
        return read_at_most(file, MOST, root=Path(os.path.realpath(file)).parent).decode("utf-8", errors="replace")
    except OSError:
        return ""  # comparing or writing says why
