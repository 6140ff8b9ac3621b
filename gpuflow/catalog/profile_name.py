"""The grammar of MIG profile names, and of lists of slices on a command line.

    <g>g.<gb>gb            3g.40gb
    <g>g.<gb>gb+<attr>     1g.10gb+me   1g.24gb+me.all   1g.24gb+gfx
    <g>g.<gb>gb-<attr>     1g.24gb-me

Compute instances (`1c.3g.20gb`) are refused: the device plugin serves whole GPU instances only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

ATTRIBUTES: Final = ("me", "me.all", "gfx")
_ATTRIBUTE: Final = "|".join(re.escape(name) for name in sorted(ATTRIBUTES, key=len, reverse=True))
_LIST: Final = rf"(?:{_ATTRIBUTE})(?:,(?:{_ATTRIBUTE}))*"
_NAME: Final = re.compile(
    rf"(?:(?P<c>[1-9][0-9]*)c\.)?(?P<g>[1-9][0-9]*)g\.(?P<gb>[1-9][0-9]*)gb"
    rf"(?:\+(?P<plus>{_LIST})|-(?P<minus>{_LIST}))?",
    re.ASCII,
)
_DOTTED_NAME: Final = re.compile(rf"([1-9][0-9]*g\.[1-9][0-9]*gb)\.({_ATTRIBUTE})", re.ASCII)
_COUNT_AND_NAME: Final = re.compile(r"([0-9]+)\s*[x*]\s*(.+)", re.ASCII)


class BadProfileName(ValueError):
    """Text that is no MIG profile name gpuflow can use. `.text` is what was written."""

    def __init__(self, text: str, why: str) -> None:
        self.text = text
        super().__init__(f'"{text}" is no MIG profile: {why}')


@dataclass(frozen=True, slots=True)
class ProfileName:
    """A parsed name. `gb` is what the name says, which is more than the slice gets."""

    g: int
    gb: int
    plus: tuple[str, ...] = ()
    minus: tuple[str, ...] = ()

    def __str__(self) -> str:
        plus = "+" + ",".join(self.plus) if self.plus else ""
        minus = "-" + ",".join(self.minus) if self.minus else ""
        return f"{self.g}g.{self.gb}gb{plus}{minus}"


def parse_profile(text: str) -> ProfileName:
    """Read a profile name, or say what is wrong with it and what to write instead."""
    found = _NAME.fullmatch(text)
    if found is None:
        raise BadProfileName(text, _hint(text))
    if found["c"]:
        whole = text.partition(".")[2]
        why = f"it asks for a compute instance inside {whole}, which the device plugin does not serve; "
        raise BadProfileName(text, why + f"write {whole}")
    plus, minus = _attributes(found["plus"]), _attributes(found["minus"])
    return ProfileName(int(found["g"]), int(found["gb"]), plus, minus)


def read_slices(words: Iterable[str]) -> dict[str, int]:
    """Count slices as a person lists them: `3g.40gb 2x1g.10gb 1g.10gb` is one 3g.40gb and three 1g.10gb."""
    counts: Counter[str] = Counter()
    for word in words:
        counted = _COUNT_AND_NAME.fullmatch(word.strip())
        number, name = (int(counted[1]), counted[2]) if counted else (1, word.strip())
        counts[str(parse_profile(name))] += number
    return {name: number for name, number in counts.items() if number}


def dotted_name(name: str) -> str:
    """The name as resource and label names carry it: `1g.10gb+me` becomes `1g.10gb.me`."""
    return name.replace("+", ".")


def profile_of_dotted(name: str) -> str:
    """The profile that a dotted name came from: `1g.10gb.me` was `1g.10gb+me`."""
    found = _DOTTED_NAME.fullmatch(name)
    return f"{found[1]}+{found[2]}" if found else name


def _attributes(text: str | None) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _hint(text: str) -> str:
    plain = profile_of_dotted(text.strip().lower().removeprefix("nvidia.com/").removeprefix("mig-"))
    if plain != text and _NAME.fullmatch(plain):
        return f"write {plain}"
    stem = re.match(r"([1-9][0-9]*g\.[1-9][0-9]*gb)[+-]", text)
    if stem:
        return f"after {stem[1]} only +{', +'.join(ATTRIBUTES)} or -me may follow"
    return "write compute slices and memory, such as 1g.10gb or 1g.10gb+me"
