"""Records to bytes and back: one JSON object with its format, its hash and a signature."""

from __future__ import annotations

import json

from gpuflow.runtime.record_fields import Record, known

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FORMAT = 2
_UNSEALED = ("hash", "signature")


class Corrupt(Exception):
    """What came from the store is not what was put there."""


class UnknownFormat(Exception):
    """A record of a format that this version does not know: exit code 78."""


def pack(record: Record, signature: str | None = None) -> bytes:
    """The bytes of a record."""
    value = {"format": FORMAT, **record.plain()}
    return encode({**value, "hash": digest(value), "signature": signature})


def unpack(kind: type[Record], data: bytes, key: str) -> Any:
    """The record in these bytes; Corrupt, or UnknownFormat. `key` is only for the sentence."""
    try:
        value = json.loads(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        raise Corrupt(f"{key} is not whole") from None
    if not isinstance(value, dict):
        raise Corrupt(f"{key} is not whole")
    version = value.get("format", value.get("contract", 1))
    if isinstance(version, bool) or not isinstance(version, int):
        raise Corrupt(f"{key} is not whole")
    if version not in (1, FORMAT) or ("format" in value and version != FORMAT):
        raise UnknownFormat(
            f"{key} is of format {version}, and this gpuflow-run knows 1 and {FORMAT}; use a newer gpuflow-run, "
            "or another --run-id"
        )
    if (version == FORMAT or "hash" in value or kind.HASHED_IN_VERSION_1) and value.get("hash") != digest(value):
        raise Corrupt(f"{key} is not whole")
    try:
        return kind(**known(kind, value))
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
