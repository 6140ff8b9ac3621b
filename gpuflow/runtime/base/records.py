"""What lies in a store, as typed values. The only reader and writer of JSON there; docs/reference/store.md has it all.

Every record is one JSON object with `format`, `hash` (SHA-256 over the rest) and `signature` (see `signing`). What is
not exactly what it should be is Corrupt; a format number that we do not know is UnknownFormat and never guessed at.
"""

from __future__ import annotations

import json

from gpuflow.runtime.base import record_fields
from gpuflow.runtime.base.record_fields import Record, attempt_of, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from gpuflow.runtime.base.signing import Keys


class PreviousAttempt(Record):
    """What was known of the attempt before when the next one was claimed. `assumed` says that it had left no word:
    should one turn up later, or a judgment, that is counted instead of `outcome`."""

    attempt: int = field(record_fields.count)
    id: str = field(record_fields.word)
    outcome: str = field(record_fields.outcome)
    assumed: bool = field(record_fields.flag)


class Claim(Record):
    """`attempts/000007.json`: a number that belongs to one attempt, and the sums of all before it since `since`."""

    attempt: int = field(record_fields.count)
    id: str = field(record_fields.word)
    host: str = field(record_fields.text, "")
    time: str = field(record_fields.text, "")
    since: int = field(record_fields.count, 0)
    failures: int = field(record_fields.count)
    interruptions: int = field(record_fields.count)
    seconds: float = field(record_fields.number)
    checkpoint: str | None = field(record_fields.or_none(record_fields.checkpoint), None)
    forget: bool = field(record_fields.flag, False)
    previous: PreviousAttempt | None = field(record_fields.or_none(record_fields.inner(PreviousAttempt)), None)
    engine_attempt: int | None = field(record_fields.or_none(record_fields.count), None)

    def check(self) -> None:
        if self.since > self.attempt:
            raise ValueError("since is later than the attempt itself")
        if self.checkpoint is not None and (attempt_of(self.checkpoint) or 0) >= self.attempt:
            raise ValueError("its checkpoint is of a later attempt")
        if self.previous is not None and self.previous.attempt >= self.attempt:
            raise ValueError("the attempt before it is a later one")


class End(Record):
    """`attempts/000007-<id>.end.json`: how an attempt ended."""

    outcome: str = field(record_fields.outcome)
    final: bool = field(record_fields.flag, False)
    exit_code: int = field(record_fields.integer)
    because: str = field(record_fields.text, "")
    seconds: float = field(record_fields.number)
    time: str = field(record_fields.text, "")
    checkpoint: str | None = field(record_fields.or_none(record_fields.checkpoint), None)
    cause: Any = field(record_fields.anything, None)
    evidence: Any = field(record_fields.anything, None)


class Judgment(Record):
    """`attempts/000007-<id>.judged.json`: what someone found out about an attempt that left no word, or not all."""

    outcome: str = field(record_fields.outcome)
    cause: Any = field(record_fields.anything, None)
    evidence: Any = field(record_fields.anything, None)
    by: str = field(record_fields.text, "")


class Usage(Record):
    """`attempts/000007-<id>.memory.json`: the last that was seen of an attempt's memory, in bytes."""

    used: int = field(record_fields.natural)
    limit: int = field(record_fields.natural)
    time: str = field(record_fields.text, "")

    def check(self) -> None:
        if self.limit == 0:
            raise ValueError("no limit")

    @property
    def share(self) -> float:
        return self.used / self.limit


class File(Record):
    """One entry of a manifest: a file with `size`, `sha256` and `mode`, a `link`, or a `directory`."""

    path: str = field(record_fields.path)
    size: int | None = field(record_fields.or_none(record_fields.natural), None)
    sha256: str | None = field(record_fields.or_none(record_fields.sha256), None)
    mode: int | None = field(record_fields.or_none(record_fields.mode), None)
    link: str | None = field(record_fields.or_none(record_fields.clean_text), None)
    directory: bool | None = field(record_fields.or_none(record_fields.flag), None)

    def check(self) -> None:
        kinds = [self.sha256 is not None, self.link is not None, bool(self.directory)]
        if sum(kinds) != 1 or (self.sha256 is not None and self.size is None):
            raise ValueError(f"{self.path!r} is no file, link or directory"[:200])

    def plain(self) -> dict[str, Any]:
        return {name: value for name, value in super().plain().items() if value is not None}


class Manifest(Record):
    """`…/manifest.json`, written last: a checkpoint or an artifact exists when its manifest does."""

    checkpoint: str = field(record_fields.word)
    entry: str = field(record_fields.name)
    kind: str = field(record_fields.one_of("file", "directory"))
    attempt: int = field(record_fields.count)
    id: str = field(record_fields.word)
    seconds: float = field(record_fields.number, 0.0)
    files: list[File] = field(record_fields.list_of(record_fields.inner(File)))
    shards: Any = field(record_fields.anything, None)
    run: str | None = field(record_fields.or_none(record_fields.path), None)
    NAMES_FILES = True

    def plain(self) -> dict[str, Any]:
        plain = super().plain()
        return plain if self.run is not None else {name: plain[name] for name in plain if name != "run"}

    def check(self) -> None:
        if (flaw := layout_problem(self.files, single=self.kind == "file")) is not None:
            raise ValueError(flaw)

    def key(self, file: File) -> str:
        """Where a file of it lies, below the manifest's own folder."""
        return f"files/{file.path}" if file.path else "file"


class KeptOutput(Record):
    """One output in the success marker: a value, or an artifact with its files."""

    type: str = field(record_fields.one_of("string", "int", "float", "bool", "json", "file", "directory"))
    value: str | None = field(record_fields.or_none(record_fields.clean_text), None)
    sha256: str = field(record_fields.sha256)
    uri: str | None = field(record_fields.or_none(record_fields.clean_text), None)
    key: str | None = field(record_fields.or_none(record_fields.path), None)
    bytes: int | None = field(record_fields.or_none(record_fields.natural), None)
    files: list[File] | None = field(record_fields.or_none(record_fields.list_of(record_fields.inner(File))), None)

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

    def facts(self) -> dict[str, Any]:
        """The facts that a user interface shows of an artifact: URI, type, digest, size and number of files."""
        count = None if self.files is None else sum(not file.directory for file in self.files)
        known = {"uri": self.uri, "type": self.type, "sha256": self.sha256, "bytes": self.bytes, "files": count}
        return {key: value for key, value in known.items() if value is not None}


def _outputs(value: Any) -> dict[str, KeptOutput]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return {record_fields.name(name): record_fields.inner(KeptOutput)(item) for name, item in value.items()}


class Success(Record):
    """`success.json`: the run is done. The first one stays."""

    attempt: int = field(record_fields.count)
    id: str = field(record_fields.word)
    time: str = field(record_fields.text, "")
    outputs: dict[str, KeptOutput] = field(_outputs)
    NAMES_FILES = True


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
        if inside := sorted(above & leaves - {""}):
            return f"something lies below {inside[0]!r}, a file or a link"[:200]
        above = {path.rpartition("/")[0] for path in above} - seen
    for file in listed:
        if file.link is not None and record_fields.leads_out(file.path, file.link):
            return f"{file.path!r} is a link out of its folder to {file.link!r}"[:300]
    return None


FORMAT = 2
SMALL, LARGE = 1 << 20, 64 << 20
"""Most bytes of a claim, an end or a judgment, and of a manifest or a marker, which name files. More is corrupt."""
_UNSEALED = ("hash", "signature")


class Corrupt(Exception):
    """What came from the store is not what was put there."""


class UnknownFormat(Exception):
    """A record of a format that this version does not know: exit code 78."""


def pack(record: Record, place: str = "", keys: Keys | None = None) -> bytes:
    """The bytes of a record, signed for its place in the store when there are keys."""
    value = {"format": FORMAT, **record.plain()}
    hashed = digest(value)
    return encode({**value, "hash": hashed, "signature": None if keys is None else keys.sign(hashed, place)})


def unpack(kind: type[Record], data: bytes, key: str, keys: Keys | None = None) -> Any:
    """The record in these bytes; Corrupt, or UnknownFormat. `key` is its place in the store. With keys, what none of
    them has signed for this place is Corrupt, whatever format it claims to have."""
    most = LARGE if kind.NAMES_FILES else SMALL
    if len(data) > most:
        raise Corrupt(f"{key} is larger than {most} bytes, and so no record")
    try:
        return _unpack(kind, data, key, keys)
    except (RecursionError, MemoryError):
        raise Corrupt(f"{key} is not whole") from None


def _unpack(kind: type[Record], data: bytes, key: str, keys: Keys | None) -> Any:
    try:
        value = json.loads(data.decode("utf-8", "surrogatepass"), parse_int=_whole_number)
    except ValueError:
        raise Corrupt(f"{key} is not whole") from None
    if not isinstance(value, dict):
        raise Corrupt(f"{key} is not whole")
    hashed = digest(value)
    if keys is not None and (value.get("hash") != hashed or not keys.verify(value.get("signature"), hashed, key)):
        raise Corrupt(f"{key} is not signed with our key")
    version = value.get("format", value.get("contract"))  # manifests and successes of format 1 have `contract`
    if isinstance(version, bool) or not isinstance(version, int):
        raise Corrupt(f"{key} is not whole")
    if version != FORMAT:
        raise UnknownFormat(
            f"{key} is of format {version}, and this gpuflow-run knows {FORMAT}; use the gpuflow-run that wrote it, "
            "or another --run-id, or remove the object if no gpuflow-run wrote it"
        )
    if value.get("hash") != hashed:
        raise Corrupt(f"{key} is not whole")
    try:
        record = kind(**record_fields.known_fields(kind, value))
    except ValueError as refusal:
        raise Corrupt(f"{key}: {refusal}") from None
    record.signed = value.get("signature") is not None
    return record


def _whole_number(digits: str) -> int:
    """Numbers of a million digits take minutes to read, and none of ours has more than these."""
    if len(digits) > 20:
        raise ValueError("too large a number")
    return int(digits)


def encode(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")) + "\n").encode(
        "utf-8", "surrogatepass"
    )


def digest(value: Mapping[str, Any]) -> str:
    """The hash of a record without its own `hash` and without a signature, which is over the hash."""
    import hashlib

    return hashlib.sha256(encode({key: item for key, item in value.items() if key not in _UNSEALED})).hexdigest()


def text_digest(text: str) -> str:
    """The hash of a value's text."""
    import hashlib

    return hashlib.sha256(text.encode("utf-8")).hexdigest()
