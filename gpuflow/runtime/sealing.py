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
    try:
        value = json.loads(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        raise Corrupt(f"{key} is not whole") from None
    if not isinstance(value, dict):
        raise Corrupt(f"{key} is not whole")
    try:
        hashed = digest(value)
    except RecursionError:
        raise Corrupt(f"{key} is not whole") from None
    if keys is not None and (value.get("hash") != hashed or not keys.verify(value.get("signature"), hashed, key)):
        raise Corrupt(f"{key} is not signed with our key")
    version = value.get("format", value.get("contract", 1))
    if isinstance(version, bool) or not isinstance(version, int):
        raise Corrupt(f"{key} is not whole")
    if version not in (1, FORMAT) or ("format" in value and version != FORMAT):
        raise UnknownFormat(
            f"{key} is of format {version}, and this gpuflow-run knows 1 and {FORMAT}; use a newer gpuflow-run, "
            "or another --run-id"
        )
    if (version == FORMAT or "hash" in value or kind.HASHED_IN_VERSION_1) and value.get("hash") != hashed:
        raise Corrupt(f"{key} is not whole")
    try:
        record = kind(**known(kind, value))
        record.signed = value.get("signature") is not None
        return record
    except ValueError as refusal:
        raise Corrupt(f"{key}: {refusal}") from None


def encode(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")) + "\n").encode(
        "utf-8", "surrogatepass"
    )


def digest(value: Mapping[str, Any]) -> str:
    """The hash of a record without its own `hash` and without a signature, which is over the hash."""
    import hashlib

    return hashlib.sha256(encode({key: item for key, item in value.items() if key not in _UNSEALED})).hexdigest()
