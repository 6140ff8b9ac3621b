"""What lies in a store, as typed values. The only reader and writer of JSON there; docs/reference/store.md has it all.

Every record is one JSON object with `format`, `hash` (SHA-256 over the rest) and `signature` (see `signing`). What is
not exactly what it should be is Corrupt; a format number that we do not know is UnknownFormat and never guessed at.
Records of version 1 (no `format`) are read; they are never written.
"""

from __future__ import annotations

from gpuflow.runtime.base import record_fields as may_be
from gpuflow.runtime.base.record_fields import (
    FORMAT,
    LARGE,
    LAST,
    REQUIRED,
    SMALL,
    Corrupt,
    Record,
    UnknownFormat,
    attempt_of,
    digest,
    encode,
    is_id,
    pack,
    text_digest,
    unpack,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__all__ = [
    "FORMAT",
    "LARGE",
    "LAST",
    "SMALL",
    "Claim",
    "Corrupt",
    "End",
    "File",
    "Judgment",
    "Kept",
    "Manifest",
    "Previous",
    "Record",
    "Success",
    "UnknownFormat",
    "Usage",
    "artifact_name",
    "attempt_of",
    "checkpoint_name",
    "digest",
    "encode",
    "is_id",
    "pack",
    "text_digest",
    "unpack",
]


class Previous(Record):
    """What was known of the attempt before when the next one was claimed.

    `assumed` says that it had left no word: should one turn up later, or a judgment, that is counted instead of
    `outcome`.
    """

    attempt: int
    id: str
    outcome: str
    assumed: bool
    FIELDS = (
        ("attempt", may_be.count, REQUIRED),
        ("id", may_be.word, REQUIRED),
        ("outcome", may_be.outcome, REQUIRED),
        ("assumed", may_be.flag, REQUIRED),
    )


class Claim(Record):
    """`attempts/000007.json`: a number that belongs to one attempt, and the sums of all before it since `since`."""

    attempt: int
    id: str
    host: str
    time: str
    since: int
    failures: int
    interruptions: int
    seconds: float
    checkpoint: str | None
    forget: bool
    previous: Previous | None
    engine_attempt: int | None
    FIELDS = (
        ("attempt", may_be.count, REQUIRED),
        ("id", may_be.word, REQUIRED),
        ("host", may_be.text, ""),
        ("time", may_be.text, ""),
        ("since", may_be.count, 0),
        ("failures", may_be.count, REQUIRED),
        ("interruptions", may_be.count, REQUIRED),
        ("seconds", may_be.number, REQUIRED),
        ("checkpoint", may_be.or_none(may_be.checkpoint), None),
        ("forget", may_be.flag, False),
        ("previous", may_be.or_none(may_be.inner(Previous)), None),
        ("engine_attempt", may_be.or_none(may_be.count), None),
    )

    def check(self) -> None:
        if self.since > self.attempt:
            raise ValueError("since is later than the attempt itself")
        if self.checkpoint is not None and (attempt_of(self.checkpoint) or 0) >= self.attempt:
            raise ValueError("its checkpoint is of a later attempt")
        if self.previous is not None and self.previous.attempt >= self.attempt:
            raise ValueError("the attempt before it is a later one")


class End(Record):
    """`attempts/000007-<id>.end.json`: how an attempt ended."""

    outcome: str
    final: bool
    exit_code: int
    because: str
    seconds: float
    time: str
    checkpoint: str | None
    cause: Any
    evidence: Any
    FIELDS = (
        ("outcome", may_be.outcome, REQUIRED),
        ("final", may_be.flag, False),
        ("exit_code", may_be.integer, REQUIRED),
        ("because", may_be.text, ""),
        ("seconds", may_be.number, REQUIRED),
        ("time", may_be.text, ""),
        ("checkpoint", may_be.or_none(may_be.checkpoint), None),
        ("cause", may_be.anything, None),
        ("evidence", may_be.anything, None),
    )


class Judgment(Record):
    """`attempts/000007-<id>.judged.json`: what someone found out about an attempt that left no word, or not all."""

    outcome: str
    cause: Any
    evidence: Any
    by: str
    FIELDS = (
        ("outcome", may_be.outcome, REQUIRED),
        ("cause", may_be.anything, None),
        ("evidence", may_be.anything, None),
        ("by", may_be.text, ""),
    )


class Usage(Record):
    """`attempts/000007-<id>.memory.json`: the last that was seen of an attempt's memory, in bytes."""

    used: int
    limit: int
    time: str
    FIELDS = (
        ("used", may_be.natural, REQUIRED),
        ("limit", may_be.natural, REQUIRED),
        ("time", may_be.text, ""),
    )

    def check(self) -> None:
        if self.limit == 0:
            raise ValueError("no limit")

    @property
    def share(self) -> float:
        return self.used / self.limit


class File(Record):
    """One entry of a manifest: a file with `size`, `sha256` and `mode`, a `link`, or a `directory`."""

    path: str
    size: int | None
    sha256: str | None
    mode: int | None
    link: str | None
    directory: bool | None
    FIELDS = (
        ("path", may_be.path, REQUIRED),
        ("size", may_be.or_none(may_be.natural), None),
        ("sha256", may_be.or_none(may_be.sha256), None),
        ("mode", may_be.or_none(may_be.mode), None),
        ("link", may_be.or_none(may_be.clean), None),
        ("directory", may_be.or_none(may_be.flag), None),
    )

    def check(self) -> None:
        kinds = [self.sha256 is not None, self.link is not None, bool(self.directory)]
        if sum(kinds) != 1 or (self.sha256 is not None and self.size is None):
            raise ValueError(f"{self.path!r} is no file, link or directory"[:200])

    def plain(self) -> dict[str, Any]:
        return {name: value for name, value in super().plain().items() if value is not None}


class Manifest(Record):
    """`…/manifest.json`, written last: a checkpoint or an artifact exists when its manifest does."""

    checkpoint: str
    entry: str
    kind: str
    attempt: int
    id: str
    seconds: float
    files: list[File]
    shards: Any
    run: str | None
    NAMES_FILES = True
    FIELDS = (
        ("checkpoint", may_be.word, REQUIRED),
        ("entry", may_be.name, REQUIRED),
        ("kind", may_be.one_of("file", "directory"), REQUIRED),
        ("attempt", may_be.count, REQUIRED),
        ("id", may_be.word, REQUIRED),
        ("seconds", may_be.number, 0.0),
        ("files", may_be.each(may_be.inner(File)), REQUIRED),
        ("shards", may_be.anything, None),
        ("run", may_be.or_none(may_be.path), None),
    )

    def plain(self) -> dict[str, Any]:
        plain = super().plain()
        return plain if self.run is not None else {name: plain[name] for name in plain if name != "run"}

    def check(self) -> None:
        flaw = layout_problem(self.files, single=self.kind == "file")
        if flaw is not None:
            raise ValueError(flaw)

    def key(self, file: File) -> str:
        """Where a file of it lies, below the manifest's own folder."""
        return f"files/{file.path}" if file.path else "file"


class Kept(Record):
    """One output in the success marker: a value, or an artifact with its files."""

    type: str
    value: str | None
    sha256: str
    uri: str | None
    key: str | None
    bytes: int | None
    files: list[File] | None
    FIELDS = (
        ("type", may_be.one_of("string", "int", "float", "bool", "json", "file", "directory"), REQUIRED),
        ("value", may_be.or_none(may_be.clean), None),
        ("sha256", may_be.sha256, REQUIRED),
        ("uri", may_be.or_none(may_be.clean), None),
        ("key", may_be.or_none(may_be.path), None),
        ("bytes", may_be.or_none(may_be.natural), None),
        ("files", may_be.or_none(may_be.each(may_be.inner(File))), None),
    )

    def check(self) -> None:
        if (self.value is None) != (self.type in ("file", "directory")):
            raise ValueError("neither a value nor an artifact")
        if self.value is not None and text_digest(self.value) != self.sha256:
            raise ValueError("a value that does not match its hash")
        if self.key is not None and self.files is None:
            raise ValueError("an artifact without its files")
        flaw = layout_problem(self.files, single=self.type == "file") if self.files is not None else None
        if flaw is not None:
            raise ValueError(flaw)

    def plain(self) -> dict[str, Any]:
        return {name: value for name, value in super().plain().items() if value is not None}


def _outputs(value: Any) -> dict[str, Kept]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return {may_be.name(name): may_be.inner(Kept)(item) for name, item in value.items()}


class Success(Record):
    """`success.json`: the run is done. The first one stays."""

    attempt: int
    id: str
    time: str
    outputs: dict[str, Kept]
    NAMES_FILES = True
    FIELDS = (
        ("attempt", may_be.count, REQUIRED),
        ("id", may_be.word, REQUIRED),
        ("time", may_be.text, ""),
        ("outputs", _outputs, REQUIRED),
    )


def checkpoint_name(attempt: int, number: int, owner: str) -> str:
    """`000007-000003-1a2b3c4d`: ordered by attempt, then by number."""
    return f"{attempt:06d}-{number:06d}-{owner[:8]}"


def artifact_name(attempt: int, owner: str) -> str:
    """`000007-1a2b3c4d`."""
    return f"{attempt:06d}-{owner[:8]}"


def layout_problem(files: Iterable[File], *, single: bool) -> str | None:
    """Why files and links cannot all be made below one folder, or as one `single` file; None when they can."""
    listed = list(files)
    paths = {file.path for file in listed}
    if len(paths) != len(listed):
        return "a file is named twice"
    if single and not (len(listed) == 1 and "/" not in listed[0].path and listed[0].sha256):
        return "not one file"
    if not single and "" in paths:
        return "a file without a name"
    leaves = {file.path for file in listed if not file.directory}
    above = {path.rpartition("/")[0] for path in paths}
    seen: set[str] = set()
    while above:
        seen |= above
        inside = sorted(above & leaves - {""})
        if inside:
            return f"something lies below {inside[0]!r}, a file or a link"[:200]
        above = {path.rpartition("/")[0] for path in above} - seen
    for file in listed:
        if file.link is not None and may_be.leads_out(file.path, file.link):
            return f"{file.path!r} is a link out of its folder to {file.link!r}"[:300]
    return None
