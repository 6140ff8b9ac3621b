"""Names of templates: unique in a workflow, short enough for Argo, and the same every time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from itertools import count, takewhile

LONGEST = 63
"""What Argo puts into pod names and labels is cut after this many characters, so nothing longer is written."""
_TOKENS = re.compile(r"[a-z]+|[0-9]+|-")


class Names:
    """Hands every template a name of its own: the wish itself, or the wish with a short hash of it."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = set(reserved)

    def claim(self, wish: str) -> str:
        """A free name for the wish. `a` with a sub-step `b-c` and `a-b` with a sub-step `c` wish for the same."""
        for attempt in count():
            name = wish if attempt == 0 else _hashed(wish, attempt)
            if len(name) <= LONGEST and name not in self._taken:
                self._taken.add(name)
                return name
        raise AssertionError  # count() never ends

    def release(self, names: Iterable[str]) -> None:
        """Make names free again, because their templates are gone."""
        self._taken.difference_update(names)


def _hashed(wish: str, attempt: int) -> str:
    digest = hashlib.sha256(f"{wish}/{attempt}".encode()).hexdigest()[:8]
    return f"{wish[: LONGEST - 9].rstrip('-')}-{digest}"


def kin(name: str) -> str:
    """The word a name begins with: `shard` for `shard-10`."""
    word = _TOKENS.match(name)
    return word[0] if word else name


def stem(names: Sequence[str]) -> str:
    """What names have in common, by whole words and numbers: `shard` for `shard-10` and `shard-11`; may be empty."""
    words = [_TOKENS.findall(name) for name in (names[0], *names[1:])]
    alike = takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False))
    return "".join(column[0] for column in alike).strip("-")
