"""What a record is, and what each of its fields may be. Everything else is refused with ValueError."""

from __future__ import annotations

from gpuflow.runtime import naming

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Check = Callable[[Any], Any]

LAST = 999_999_999
"""No attempt has a higher number: whoever says so makes it up."""
REQUIRED = object()
OUTCOMES = (
    "succeeded",
    "failed (retryable)",
    "failed (final)",
    "interrupted",
    "out of memory",
    "timed out",
    "disk limit",
    "never started",
)
"""The words of the evidence table. Spelled out here: what a store may hold does not change with the table."""


class Record:
    """One record: its fields are attributes. `FIELDS` says what each must be, and what it is when it is not there."""

    FIELDS: tuple[tuple[str, Check, Any], ...] = ()
    NAMES_FILES = False
    """Whether it may be large. In version 1 these had a hash, attempts and ends had none."""
    signed = False
    """Whether it came with a signature; with keys, one that was verified."""

    def __init__(self, **values: Any) -> None:
        unknown = sorted(set(values) - {name for name, _, _ in self.FIELDS})
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {unknown[0]}")
        for name, check, default in self.FIELDS:
            value = values.get(name, default)
            if value is REQUIRED:
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


def natural(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError("not a whole number")
    return value


def integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 63:
        raise ValueError("not a whole number")
    return value


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        raise ValueError("not a number")
    return float(value)


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def count(value: Any) -> int:
    """A number that attempts count up to: far from where counting on would end."""
    if natural(value) > LAST:
        raise ValueError("too large a number")
    return int(value)


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def clean(value: Any) -> str:
    """A text that can be written to a file as it is."""
    try:
        text(value).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("not a text") from None
    return str(value)


def checkpoint(value: Any) -> str:
    """The name of a checkpoint."""
    if attempt_of(word(value)) is None:
        raise ValueError("not a checkpoint")
    return str(value)


def word(value: Any) -> str:
    """A part of a key: letters, digits, dash and underscore."""
    if not isinstance(value, str) or not 0 < len(value) <= 64 or not value.isascii():
        raise ValueError("not an id")
    if not all(letter.isalnum() or letter in "-_" for letter in value):
        raise ValueError("not an id")
    return value


def sha256(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 64 or not all(letter in "0123456789abcdef" for letter in value):
        raise ValueError("not a SHA-256")
    return value


def outcome(value: Any) -> str:
    if value not in OUTCOMES:
        raise ValueError(f"no outcome: {value!r}"[:80])
    return str(value)


def anything(value: Any) -> Any:
    return value


def name(value: Any) -> str:
    """A file name: one part of a path, not hidden."""
    if not naming.is_name(value):
        raise ValueError("not a file name")
    return str(value)


def path(value: Any) -> str:
    """A path below a folder, or nothing for the one file itself."""
    if not naming.is_path(value):
        raise ValueError(f"not a path below its folder: {value!r}"[:200])
    return str(value)


def mode(value: Any) -> int:
    """Permissions only: what comes from a store never sets an id bit."""
    return natural(value) & 0o777


def or_none(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def each(check: Check) -> Check:
    def all_of(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError("not a list")
        return [check(item) for item in value]

    return all_of


def one_of(*words: str) -> Check:
    def one(value: Any) -> str:
        if value not in words:
            raise ValueError(f"not one of {', '.join(words)}")
        return str(value)

    return one


def inner(kind: type[Record]) -> Check:
    """A record inside another one. What it has beyond what we know is not ours to keep."""

    def inner(value: Any) -> Record:
        if isinstance(value, Record):
            return value
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return kind(**known(kind, value))

    return inner


def known(kind: type[Record], value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[name] for name, _, _ in kind.FIELDS if name in value}


def is_id(value: str) -> bool:
    """Whether it can be the id of an attempt."""
    try:
        return bool(word(value))
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
