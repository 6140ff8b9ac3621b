"""Absolute paths of a step, mapped into the folder of a run.

A step names paths of its container: where volumes and inputs are, where it saves checkpoints and writes outputs. On
this machine each is a folder of the run, and what the step runs is written with these instead; nothing is written at
`/`. A program that has such a path in its own code does not find it: for that one a container is needed.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from gpuflow.core.errors import fail
from gpuflow.plan import PlannedStep, writes_xcom
from gpuflow.pod.gang import SHM
from gpuflow.pod.supervision import OUTPUTS
from gpuflow.pod.volumes import scratch_folders
from gpuflow.spec.storage_paths import is_below, normalize_path, volume_above
from gpuflow.spec.volumes import Volume

_PLAIN = re.compile(r"[\w@%+=./~-]+")
"""A path that stays one word in a shell, in a list with colons or commas, and in an option."""
_END = r"""(?=\Z|/|\s|["'](?![\w$.])|[:,;)\]}<>|&`=!]|\.(?=\s|\Z|["'])|\\(?! ))"""
"""What may follow the last component of a path. A dot ends a sentence; a backslash begins `\\n` or an escaped quote."""
_LOOK_BACK = 500
_QUOTES = "\"'"
_TEXT_PREFIX = re.compile(r"(\A|[\s=:,;(\[{<>|&`!@+])[rRbBfFuU]{1,2}\Z")
"""Of a text in Python, as in f"/data"."""
_GLUED_OPTION = re.compile(r"(?:\A|\s)-[A-Za-z]\Z")
_OPENING = " \t\r\f\v=:,;([{<>|&`!"
_BETWEEN_WORDS = re.compile(r"[\s\"',;|<>()]")


@dataclass
class PathMap:
    """Where paths of a step are on this machine."""

    entries: dict[str, Path] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """What each of them is, in words."""
    stays: list[str] = field(default_factory=list)
    """Sentences about paths that are this machine's own."""
    files: set[str] = field(default_factory=set)
    """Those that may be files: their folders are made, they are not."""
    in_image: set[str] = field(default_factory=set)
    """Those that a container has by itself, and that no folder may hide."""
    read_only: set[str] = field(default_factory=set)
    own: Path = Path()
    """What stands for `/` where nothing else is said of a path."""
    shared: Path = Path()
    """The folder that the steps of the run share."""

    @cached_property
    def _words(self) -> dict[str, str]:
        known = {normalize_path(path): str(here) for path, here in self.entries.items()}
        known.pop("/", None)
        # What is there already is found as itself, so that nothing is mapped twice.
        return {**{here: here for here in known.values()}, **known}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self._words, key=lambda path: (-len(path), path))
        return re.compile(f"(?:{'|'.join(map(re.escape, longest_first))}){_END}" if self._words else r"(?!)")

    def word(self, text: str) -> str:
        """The text with each of its paths where it is here: whole components, the longest one that is known. What goes
        on in front, as in `host/data` or `https://host/data`, is another path and stays."""
        return self._pattern.sub(lambda at: self._words[at[0]] if _begins_path(text, at.start()) else at[0], text)

    def make(self) -> None:
        """Make the folders that the step expects to be there."""
        for path, here in self.entries.items():
            folder = here.parent if path in self.files else here
            if not folder.exists():
                folder.mkdir(parents=True, exist_ok=True)

    @property
    def mounts(self) -> dict[str, Path]:
        """What a container gets at the step's own paths."""
        inside = {path: here for path, here in self.entries.items() if path not in self.in_image}
        return {path: here for path, here in inside.items() if path not in self.files or here.exists()}

    def sentences(self) -> list[str]:
        """What is where, one sentence for each path."""
        told = [f"{path} is {here}: {self.notes[path]}" for path, here in self.entries.items() if path in self.notes]
        return [*told, *self.stays]

    def add(self, path: str, note: str, here: Path | None = None) -> None:
        path = normalize_path(path)
        self.entries[path] = here or self.own / path.lstrip("/")
        self.notes[path] = note

    def holds(self, path: str) -> bool:
        return any(is_below(path, known) for known in self.entries if known not in self.in_image)

    def volume(self, path: str, volume: Volume) -> None:
        if volume.read_only:
            self.read_only.add(normalize_path(path))
        if normalize_path(path) == SHM:
            return self.memory_files()
        if volume.host_path is not None and volume.read_only and os.path.exists(volume.host_path.path):
            return self.add(path, "read where it is on this machine", Path(volume.host_path.path))
        if volume.sub_path is not None and (volume.config_map or volume.secret):
            self.files.add(normalize_path(path))
        folder, note = _folder_of(volume)
        here = None if folder is None else self.shared / folder / (volume.sub_path or "")
        return self.add(path, note, here)

    def memory_files(self) -> None:
        if Path(SHM).is_dir():
            self.stays.append(f"{SHM} is this machine's own, of its own size")
        else:
            self.add(SHM, "on disk, because this machine has none in memory")


def _begins_path(text: str, at: int) -> bool:
    """Whether a path begins at this place, and does not only go on."""
    begin = max(0, at - _LOOK_BACK)
    before = text[max(begin, text.rfind("\n", begin, at) + 1) : at]
    if not before or before.endswith("file://") or _GLUED_OPTION.search(before[-3:]):
        return True
    if before[-1] in _QUOTES:
        before = before.rstrip(_QUOTES + "\\")
        before = before[:-3] + _TEXT_PREFIX.sub(r"\1", before[-3:])
        if before.rstrip().endswith("+"):  # a text that is put behind another one
            return False
    if not before:
        return True
    if before[-1] == "@":  # `-d @/data/x` reads a file; `user@/data` is no path
        return before[-2:-1] in ("", *_OPENING)
    if before[-1] not in _OPENING or before.endswith("\\ "):
        return False
    word = _BETWEEN_WORDS.split(before)[-1]
    is_remote = "://" in word or (before[-1] == ":" and "@" in word)  # https://host/?path=/data, user@host:/data
    return not is_remote


def _folder_of(volume: Volume) -> tuple[str | None, str]:
    """The folder of a volume that the steps of a run share, None where it is a step's own, and what it is."""
    nfs, host = volume.nfs, volume.host_path
    if volume.claim is not None:
        return f"claims/{volume.claim}", f"the claim {volume.claim}, a folder that the run begins without its data"
    if volume.new_claim is not None:
        return f"new-claims/{_name(volume.new_claim)}", f"the run's own claim {volume.new_claim}"
    if nfs is not None:
        here = f"nfs/{_name(nfs.server)}{normalize_path(nfs.path)}"
        return here, f"a folder of the run instead of {nfs.server}:{nfs.path}, without its data"
    if host is not None:
        return f"host{normalize_path(host.path)}", f"a folder of the run instead of the node's {host.path}"
    if volume.csi is not None:
        return None, f"an empty folder instead of a volume of {volume.csi.driver}"
    named = {"config map": volume.config_map, "secret": volume.secret}
    for kind, name in named.items():
        if name is not None:
            return None, f"the {kind} {name}"
    if volume.projected is not None:
        return None, "a projected volume"
    return None, "scratch space" if volume.memory is None else "scratch space, on disk and not in memory"


def _name(text: str) -> str:
    """A text as the name of one folder."""
    return re.sub(r"[^\w-]", "_", text)


def paths_of(planned: PlannedStep, folder: Path, shared: Path) -> PathMap:
    """Where the paths of a step are, below the folder of its own and the one that the steps of the run share."""
    step, places = planned.step, PathMap(own=folder.absolute() / "root", shared=shared.absolute())
    for path, volume in step.volumes.items():
        places.volume(path, volume)
    if step.shm is not None and SHM not in step.volumes:
        places.memory_files()
    if step.checkpoint is not None and volume_above(step, step.checkpoint.path) is None:
        places.add(step.checkpoint.path, "where the program saves its checkpoints")
    if step.outputs and not writes_xcom(step):
        places.add(OUTPUTS, "the values of its outputs", folder.absolute() / "outputs")
    if writes_xcom(step):
        places.add("/airflow/xcom", "its outputs, as Airflow reads them")
    for path, given in step.inputs.items():
        if given.claim is not None:
            places.volume(path, Volume(claim=given.claim, sub_path=given.path, read_only=True))
            places.files.update([normalize_path(path)] if given.path is not None else ())
    for path in scratch_folders(planned.pipeline, step):
        places.add(path, "where inputs are brought to")
    for output in step.outputs.values():
        if output.path is not None and not places.holds(output.path):
            _add_output(places, output.path, step.working_dir, is_folder=output.type == "directory")
    if step.working_dir is not None and normalize_path(step.working_dir) != "/" and not places.holds(step.working_dir):
        places.in_image.add(normalize_path(step.working_dir))
        places.add(step.working_dir, "the directory in which the run was started, in place of the image's", Path.cwd())
    _require_plain(planned, places)
    return places


def _add_output(places: PathMap, path: str, working_dir: str | None, *, is_folder: bool) -> None:
    """A program makes the folder of its output, or finds it in its image. One that this machine does not have can only
    be the step's own."""
    above = posixpath.dirname(normalize_path(path))
    in_image = working_dir is not None and is_below(above, working_dir)
    if not is_folder and above != "/" and not in_image and not os.path.exists(above):
        places.add(above, "where it writes outputs")
        return
    places.add(path, "an output")
    if not is_folder:
        places.files.add(normalize_path(path))


def _require_plain(planned: PlannedStep, places: PathMap) -> None:
    for path, here in places.entries.items():
        if not _PLAIN.fullmatch(str(here)):
            sign = _PLAIN.sub("", str(here))[:1]
            text = f"{path} of the step would be {str(here)!r}, and {sign!r} in it would be read as the end of a word"
            where = planned.where("volumes", path) if path in planned.step.volumes else planned.where()
            raise fail(
                "GF940",
                f'step "{planned.name}": {text}',
                where=where,
                hint="start the run where the path has letters, digits, '-', '_' and '.' alone",
            )
