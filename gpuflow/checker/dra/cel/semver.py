"""Semantic versions as attributes and selectors have them.

Mirrors github.com/blang/semver/v4.Parse and Version.Compare, and
k8s.io/apiserver/pkg/cel/library.normalizeAndParse, Kubernetes v1.36.3.
"""

from __future__ import annotations

import re
from functools import lru_cache, total_ordering
from typing import Final

NUMBER: Final = r"(0|[1-9][0-9]*)"
IDENTIFIER: Final = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
VERSION: Final = re.compile(
    rf"{NUMBER}\.{NUMBER}\.{NUMBER}(?:-({IDENTIFIER}(?:\.{IDENTIFIER})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
MAX_UINT64: Final = 2**64 - 1


@total_ordering
class Semver:
    """A version; what follows `+` does not count when two are compared."""

    __slots__ = ("_key", "major", "minor", "patch")

    def __init__(self, major: int, minor: int, patch: int, before: tuple[str, ...]) -> None:
        self.major, self.minor, self.patch = major, minor, patch
        # Numbers come before words, and a release after everything that leads up to it.
        words = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in before)
        self._key = (major, minor, patch, not before, words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._key == other._key

    def __lt__(self, other: Semver) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=4096)
def parse(text: str) -> Semver:
    """`ValueError` when the text is no version."""
    found = VERSION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no semantic version")
    numbers = [int(found[index]) for index in (1, 2, 3)]
    before = tuple(found[4].split(".")) if found[4] else ()
    if max(*numbers, *(int(each) for each in before if each.isdigit())) > MAX_UINT64:
        raise ValueError(f"{text!r}: a number of it is too large")
    return Semver(numbers[0], numbers[1], numbers[2], before)


def normalized(text: str) -> Semver:
    """A version that may be short, with a `v` before it or with zeros before its numbers."""
    parts = text.removeprefix("v").split(".", 2)
    parts = [_without_zeros(part) if len(part) > 1 else part for part in parts]
    if len(parts) < 3 and any(sign in parts[-1] for sign in "+-"):
        raise ValueError(f"{text!r}: a short version has no pre-release or build")
    return parse(".".join([*parts, "0", "0"][: max(len(parts), 3)]))


def _without_zeros(part: str) -> str:
    bare = part.lstrip("0")
    return bare if bare[:1] in tuple("0123456789") else f"0{bare}"
