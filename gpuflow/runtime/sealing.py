"""Records to bytes and back: one JSON object with its format, its hash and a signature."""

from __future__ import annotations

import json

from gpuflow.runtime.record_fields import Record, known

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuflow.runtime.signing import Keys

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
    """The record in these bytes; Corrupt, or UnknownFormat. `key` is its place in the store.

    With keys, what none of them has signed for this place is Corrupt, whatever format it claims to have.
    """
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
    version = value.get("format", value.get("contract", 1))
    if isinstance(version, bool) or not isinstance(version, int):
        raise Corrupt(f"{key} is not whole")
    if version not in (1, FORMAT) or ("format" in value and version != FORMAT):
        raise UnknownFormat(
            f"{key} is of format {version}, and this gpuflow-run knows 1 and {FORMAT}; use a newer gpuflow-run, "
            "or another --run-id, or remove the object if no gpuflow-run wrote it"
        )
    if (version == FORMAT or "hash" in value or kind.NAMES_FILES) and value.get("hash") != hashed:
        raise Corrupt(f"{key} is not whole")
    try:
        record = kind(**known(kind, value))
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
