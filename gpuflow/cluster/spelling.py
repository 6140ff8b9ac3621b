"""Words that differ by a slip of the pen."""

from __future__ import annotations

from collections.abc import Iterable

SLIPS = 2
"""How many letters may be wrong before it is another word."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is the same but for a letter or two; the word itself when it is known."""
    scored = sorted((distance(word.lower(), name.lower()), name) for name in known)
    return scored[0][1] if scored and scored[0][0] <= min(SLIPS, len(word) // 3) else None


def distance(left: str, right: str) -> int:
    """How many letters must be added, dropped or changed to get from one word to the other."""
    if abs(len(left) - len(right)) > SLIPS:
        return SLIPS + 1  # far, and quicker to see
    row = list(range(len(right) + 1))
    for index, letter in enumerate(left, 1):
        corner, row[0] = row[0], index
        for column, other in enumerate(right, 1):
            corner, row[column] = (
                row[column],
                min(row[column] + 1, row[column - 1] + 1, corner + (letter != other)),
            )
    return row[-1]
