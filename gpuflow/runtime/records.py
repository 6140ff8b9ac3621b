"""What lies in a store, as typed values. The only reader and writer of JSON there; docs/reference/store.md has it all.

Every record is one JSON object with `format`, `hash` (SHA-256 over the rest) and `signature` (room for one). What is
not exactly what it should be is Corrupt; a format number that we do not know is UnknownFormat and never guessed at.
Records of version 1 (no `format`) are read; they are never written.
"""

from __future__ import annotations

import json

from gpuflow.runtime import naming

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Check = Callable[[Any], Any]

FORMAT = 2
LAST = 999_999_999
"""No attempt has a higher number: whoever says so makes it up."""
SMALL, LARGE = 1 << 20, 64 << 20
"""Most bytes of a claim, an end or a judgment, and of a manifest or a marker, which name files. More is corrupt."""
_REQUIRED = object()
_UNSEALED = ("hash", "signature")
_OUTCOMES = (
    "succeeded",
    "failed (retryable)",
    "failed (final)",
    "interrupted",
    "out of memory",
    "timed out",
    "disk limit",
    "never started",
)
"""The words of the evidence table, and the two that it will have: a store may have been written by a newer gpuflow."""


class Corrupt(Exception):
    """What came from the store is not what was put there."""


class UnknownFormat(Exception):
    """A record of a format that this version does not know: exit code 78."""


class Record:
    """One record: its fields are attributes. `FIELDS` says what each must be, and what it is when it is not there."""

    FIELDS: tuple[tuple[str, Check, Any], ...] = ()

    def __init__(self, **values: Any) -> None:
        unknown = sorted(set(values) - {name for name, _, _ in self.FIELDS})
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {unknown[0]}")
        for name, check, default in self.FIELDS:
            value = values.get(name, default)
            if value is _REQUIRED:
                raise ValueError(f"{name} is missing")
            try:
                setattr(self, name, value if value is default else check(value))
            except ValueError as refusal:
                raise ValueError(f"{name}: {refusal}") from None
        self.check()

    def check(self) -> None:
        """What no single field can see; ValueError when it is wrong."""

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: _plain(getattr(self, name)) for name, _, _ in self.FIELDS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and type(self) is type(other) and self.plain() == other.plain()

    __hash__ = None  # type: ignore[assignment]  # compared by value, and may be changed


# -- what a field may be


def _natural(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError("not a whole number")
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 63:
        raise ValueError("not a whole number")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        raise ValueError("not a number")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _count(value: Any) -> int:
    """A number that attempts count up to: far from where counting on would end."""
    if _natural(value) > LAST:
        raise ValueError("too large a number")
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def _clean(value: Any) -> str:
    """A text that can be written to a file as it is."""
    try:
        _text(value).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("not a text") from None
    return str(value)


def _checkpoint(value: Any) -> str:
    """The name of a checkpoint."""
    if attempt_of(_word(value)) is None:
        raise ValueError("not a checkpoint")
    return str(value)


def _word(value: Any) -> str:
    """A part of a key: letters, digits, dash and underscore."""
    if not isinstance(value, str) or not 0 < len(value) <= 64 or not value.isascii():
        raise ValueError("not an id")
    if not all(letter.isalnum() or letter in "-_" for letter in value):
        raise ValueError("not an id")
    return value


def _sha256(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 64 or not all(letter in "0123456789abcdef" for letter in value):
        raise ValueError("not a SHA-256")
    return value


def _outcome(value: Any) -> str:
    if value not in _OUTCOMES:
        raise ValueError(f"no outcome: {value!r}"[:80])
    return str(value)


def _anything(value: Any) -> Any:
    return value


def _name(value: Any) -> str:
    """A file name: one part of a path, not hidden."""
    if not naming.is_name(value):
        raise ValueError("not a file name")
    return str(value)


def _path(value: Any) -> str:
    """A path below a folder, or nothing for the one file itself."""
    if not naming.is_path(value):
        raise ValueError(f"not a path below its folder: {value!r}"[:200])
    return str(value)


def _mode(value: Any) -> int:
    """Permissions only: what comes from a store never sets an id bit."""
    return _natural(value) & 0o777


def _or_none(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _each(check: Check) -> Check:
    def all_of(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError("not a list")
        return [check(item) for item in value]

    return all_of


def _one_of(*words: str) -> Check:
    def one(value: Any) -> str:
        if value not in words:
            raise ValueError(f"not one of {', '.join(words)}")
        return str(value)

    return one


def _inner(kind: type[Record]) -> Check:
    """A record inside another one. What it has beyond what we know is not ours to keep."""

    def inner(value: Any) -> Record:
        if isinstance(value, Record):
            return value
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return kind(**_known(kind, value))

    return inner


def _known(kind: type[Record], value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[name] for name, _, _ in kind.FIELDS if name in value}


# -- the records


class Previous(Record):
    """What was known of the attempt before when the next one was claimed.

    `assumed` says that it had left no word: should one turn up later, it is counted instead of the interruption.
    """

    attempt: int
    id: str
    outcome: str
    assumed: bool
    FIELDS = (
        ("attempt", _count, _REQUIRED),
        ("id", _word, _REQUIRED),
        ("outcome", _outcome, _REQUIRED),
        ("assumed", _flag, _REQUIRED),
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
    FIELDS = (
        ("attempt", _count, _REQUIRED),
        ("id", _word, _REQUIRED),
        ("host", _text, ""),
        ("time", _text, ""),
        ("since", _count, 0),
        ("failures", _count, _REQUIRED),
        ("interruptions", _count, _REQUIRED),
        ("seconds", _number, _REQUIRED),
        ("checkpoint", _or_none(_checkpoint), None),
        ("forget", _flag, False),
        ("previous", _or_none(_inner(Previous)), None),
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
        ("outcome", _outcome, _REQUIRED),
        ("final", _flag, False),
        ("exit_code", _integer, _REQUIRED),
        ("because", _text, ""),
        ("seconds", _number, _REQUIRED),
        ("time", _text, ""),
        ("checkpoint", _or_none(_checkpoint), None),
        ("cause", _anything, None),
        ("evidence", _anything, None),
    )


class Judgment(Record):
    """`attempts/000007-<id>.judged.json`: what someone found out about an attempt that left no word."""

    outcome: str
    cause: Any
    evidence: Any
    by: str
    FIELDS = (
        ("outcome", _outcome, _REQUIRED),
        ("cause", _anything, None),
        ("evidence", _anything, None),
        ("by", _text, ""),
    )


class File(Record):
    """One entry of a manifest: a file with `size`, `sha256` and `mode`, a `link`, or a `directory`."""

    path: str
    size: int | None
    sha256: str | None
    mode: int | None
    link: str | None
    directory: bool | None
    FIELDS = (
        ("path", _path, _REQUIRED),
        ("size", _or_none(_natural), None),
        ("sha256", _or_none(_sha256), None),
        ("mode", _or_none(_mode), None),
        ("link", _or_none(_clean), None),
        ("directory", _or_none(_flag), None),
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
    FIELDS = (
        ("checkpoint", _word, _REQUIRED),
        ("entry", _name, _REQUIRED),
        ("kind", _one_of("file", "directory"), _REQUIRED),
        ("attempt", _count, _REQUIRED),
        ("id", _word, _REQUIRED),
        ("seconds", _number, 0.0),
        ("files", _each(_inner(File)), _REQUIRED),
        ("shards", _anything, None),
    )

    def check(self) -> None:
        flaw = naming.flaw(self.files, single=self.kind == "file")
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
        ("type", _one_of("string", "int", "float", "bool", "json", "file", "directory"), _REQUIRED),
        ("value", _or_none(_clean), None),
        ("sha256", _sha256, _REQUIRED),
        ("uri", _or_none(_clean), None),
        ("key", _or_none(_path), None),
        ("bytes", _or_none(_natural), None),
        ("files", _or_none(_each(_inner(File))), None),
    )

    def check(self) -> None:
        if (self.value is None) != (self.type in ("file", "directory")):
            raise ValueError("neither a value nor an artifact")
        if self.value is not None and text_digest(self.value) != self.sha256:
            raise ValueError("a value that does not match its hash")
        if self.key is not None and self.files is None:
            raise ValueError("an artifact without its files")
        flaw = naming.flaw(self.files, single=self.type == "file") if self.files is not None else None
        if flaw is not None:
            raise ValueError(flaw)

    def plain(self) -> dict[str, Any]:
        return {name: value for name, value in super().plain().items() if value is not None}


def _outputs(value: Any) -> dict[str, Kept]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return {_name(name): _inner(Kept)(item) for name, item in value.items()}


class Success(Record):
    """`success.json`: the run is done. The first one stays."""

    attempt: int
    id: str
    time: str
    outputs: dict[str, Kept]
    FIELDS = (
        ("attempt", _count, _REQUIRED),
        ("id", _word, _REQUIRED),
        ("time", _text, ""),
        ("outputs", _outputs, _REQUIRED),
    )


# -- bytes to records and back


def pack(record: Record, signature: str | None = None) -> bytes:
    """The bytes of a record."""
    value = {"format": FORMAT, **record.plain()}
    return encode({**value, "hash": digest(value), "signature": signature})


def unpack(kind: type[Record], data: bytes, key: str) -> Any:
    """The record in these bytes; Corrupt, or UnknownFormat. `key` is only for the sentence."""
    most = LARGE if kind in (Manifest, Success) else SMALL
    if len(data) > most:
        raise Corrupt(f"{key} is larger than {most} bytes, and so no record")
    try:
        return _unpack(kind, data, key)
    except (RecursionError, MemoryError):
        raise Corrupt(f"{key} is not whole") from None


def _unpack(kind: type[Record], data: bytes, key: str) -> Any:
    try:
        value = json.loads(data.decode("utf-8", "surrogatepass"), parse_int=_whole_number)
    except ValueError:
        raise Corrupt(f"{key} is not whole") from None
    if not isinstance(value, dict):
        raise Corrupt(f"{key} is not whole")
    version = value.get("format", value.get("contract", 1))
    if isinstance(version, bool) or not isinstance(version, int):
        raise Corrupt(f"{key} is not whole")
    if version not in (1, FORMAT) or ("format" in value and version != FORMAT):
        raise UnknownFormat(
            f"{key} is of format {version}, and this gpuflow-run knows 1 and {FORMAT}; use a newer gpuflow-run, "
            "or another --run-id, or remove the object if no gpuflow-run wrote it"
        )
    # Version 1 had no hash in attempts and ends.
    if (version == FORMAT or "hash" in value or kind in (Manifest, Success)) and value.get("hash") != digest(value):
        raise Corrupt(f"{key} is not whole")
    try:
        return kind(**_known(kind, value))
    except ValueError as refusal:
        raise Corrupt(f"{key}: {refusal}") from None


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


# -- names


def checkpoint_name(attempt: int, number: int, owner: str) -> str:
    """`000007-000003-1a2b3c4d`: ordered by attempt, then by number."""
    return f"{attempt:06d}-{number:06d}-{owner[:8]}"


def artifact_name(attempt: int, owner: str) -> str:
    """`000007-1a2b3c4d`."""
    return f"{attempt:06d}-{owner[:8]}"


def is_id(value: str) -> bool:
    """Whether it can be the id of an attempt."""
    try:
        return bool(_word(value))
    except ValueError:
        return False


def attempt_of(name: str) -> int | None:
    """The attempt that a checkpoint, an artifact or an attempt record belongs to, by its name."""
    digits = name[: len(name) - len(name.lstrip("0123456789"))]
    number = int(digits) if 6 <= len(digits) <= len(str(LAST)) else None
    return number if number is not None and digits == f"{number:06d}" else None


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.plain()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value
