"""What records are made of: names and fields. The rest is refused with ValueError.

Names come from a store too: a file name, a path below a folder, a link that stays in it. A name that passes here can be
made below a folder on any Linux file system, and leads nowhere else.
"""

from __future__ import annotations

import posixpath

from gpuflow.runtime.base.outcomes import OUTCOMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Check = Callable[[Any], Any]

NAME_MOST = 255
"""Bytes of one name, as file systems have it."""
STAGING_FOLDER = ".gpuflow-input"
"""The folder at an input's place in which it is gathered: nothing that is kept may have this name at its top."""
PATH_MOST = 3000
"""Bytes of a path below its folder; the system takes 4096 with the folder."""


def is_path(value: object) -> bool:
    """A path below a folder, or nothing for the one file itself."""
    if not isinstance(value, str) or len(value) > PATH_MOST:
        return False
    return not value or all(_is_part(part) for part in value.split("/"))


def leads_out(relative: str, link: str) -> bool:
    """Whether a link at a path below a folder might point out of it.

    `..` may only come first, and no more often than there are folders above: after a name it would be taken from
    wherever that name leads, which may be another link. What only goes down from inside stays inside, link by link.
    """
    if not link or len(link) > PATH_MOST or "\0" in link or posixpath.isabs(link) or not _is_utf_8(link):
        return True
    parts = [part for part in link.split("/") if part not in ("", ".")]
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    return ".." in parts[up:] or up > relative.count("/")


def _is_part(value: str) -> bool:
    return value not in ("", ".", "..") and "/" not in value and "\0" not in value and _is_utf_8(value, NAME_MOST)


def _is_utf_8(value: str, most: int = 4 * PATH_MOST) -> bool:
    try:
        return len(value.encode("utf-8")) <= most
    except UnicodeEncodeError:
        return False


LAST = 999_999_999
"""No attempt has a higher number: whoever says so makes it up."""
REQUIRED = object()


class Field:
    """One field of a record: what it must be, and what it is when it is not there."""

    def __init__(self, check: Check, default: Any) -> None:
        self.check, self.default = check, default


def field(check: Check, default: Any = REQUIRED) -> Any:
    """A field as the attribute that it becomes."""
    return Field(check, default)


class Record:
    """One record. Each kind lists its fields as `name: type = field(…)`; they become attributes."""

    FIELDS: Mapping[str, Field] = {}
    NAMES_FILES = False
    """Whether it may be large."""
    signed = False
    """Whether it came with a signature; with keys, one that was verified."""

    def __init_subclass__(cls) -> None:
        own = {name: found for name, found in vars(cls).items() if isinstance(found, Field)}
        cls.FIELDS = {**cls.FIELDS, **own}

    def __init__(self, **values: Any) -> None:
        if unknown := sorted(set(values) - set(self.FIELDS)):
            raise TypeError(f"{type(self).__name__} has no field {unknown[0]}")
        for name, field in self.FIELDS.items():
            value = values.get(name, field.default)
            if value is REQUIRED:
                raise ValueError(f"{name} is missing")
            try:
                setattr(self, name, value if value is field.default else field.check(value))
            except ValueError as refusal:
                raise ValueError(f"{name}: {refusal}") from None
        self.check()

    def check(self) -> None:
        """What no single field can see; ValueError when it is wrong."""

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: _is_plain(getattr(self, name)) for name in self.FIELDS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and type(self) is type(other) and self.plain() == other.plain()

    __hash__ = None  # type: ignore[assignment]  # compared by value, and may be changed


def natural(value: Any) -> int:
    if integer(value) < 0:
        raise ValueError("not a whole number")
    return int(value)


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


def clean_text(value: Any) -> str:
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
    if not isinstance(value, str) or not _is_part(value) or value.startswith("."):
        raise ValueError("not a file name")
    return value


def path(value: Any) -> str:
    """A path below a folder, or nothing for the one file itself."""
    if not is_path(value):
        raise ValueError(f"not a path below its folder: {value!r}"[:200])
    return str(value)


def mode(value: Any) -> int:
    """Permissions only: what comes from a store never sets an id bit."""
    return natural(value) & 0o777


def or_none(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def list_of(check: Check) -> Check:
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
        return kind(**known_fields(kind, value))

    return inner


def known_fields(kind: type[Record], value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[name] for name in kind.FIELDS if name in value}


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


def _is_plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.plain()
    if isinstance(value, list):
        return [_is_plain(item) for item in value]
    return {name: _is_plain(item) for name, item in value.items()} if isinstance(value, dict) else value
