"""A target's own options as a frozen dataclass, each with its flag and help text, for the command line."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a target that has none."""


@dataclass(frozen=True, slots=True)
class Flag:
    """How an option is written on the command line."""

    field: str
    flag: str
    help: str
    metavar: str | None
    """None for a flag that is on or off."""


def option(flag: str, help: str, *, metavar: str | None = None) -> Any:
    """A field of a target's options: text when it has a metavar, else on or off."""
    default: Any = False if metavar is None else None
    return dataclasses.field(default=default, metadata={"flag": flag, "help": help, "metavar": metavar})


def flags_of(options: type[Any]) -> list[Flag]:
    """The flags of a target's options, in their order."""
    return [
        Flag(field.name, field.metadata["flag"], field.metadata["help"], field.metadata["metavar"])
        for field in dataclasses.fields(options)
    ]
