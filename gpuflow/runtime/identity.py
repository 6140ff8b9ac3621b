"""Who an attempt is: pipeline / run / step / fan-out item, as a path that any file system and object store accepts."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_LONGEST = 120


def part(text: str) -> str:
    """One part of a path: other characters as %XX; long names cut, with a hash so that they stay apart."""
    encoded = "".join(
        chr(byte) if chr(byte) in _PLAIN and not (index == 0 and byte == 0x2E) else f"%{byte:02X}"
        for index, byte in enumerate(text.encode("utf-8", "surrogateescape"))
    )
    if len(encoded) <= _LONGEST:
        return encoded or "%"
    import hashlib

    digest = hashlib.sha256(encoded.encode()).hexdigest()[:16]
    return f"{encoded[: _LONGEST - 18]}%~{digest}"


def path(pipeline: str, run: str, step: str, item: str | None, task: str | None = None) -> str:
    """Where a run's state lives under the store. Items lie in a folder of their own, so none meets the step itself."""
    own = step if task is None else f"{without_attempts(task)}/{step}"
    whole = f"{part(pipeline)}/{part(run)}/{part(own)}"
    return whole if item is None else f"{whole}/items/{part(item)}"


def without_attempts(task: str) -> str:
    """The name of a task without the numbers of attempts: Argo calls them `train(0)` and `train(1)`.

    The turns of its loops are called `train(0:item)`, and stay apart.
    """
    import re

    return re.sub(r"\(\d+\)", "", task)


def engine_attempt(text: str | None, say: Callable[[str], None]) -> int | None:
    """The engine's own number of an attempt. What is no number, such as a variable it did not fill in, is left out."""
    if text is None or (text.isascii() and text.isdigit() and len(text) < 10):
        return None if text is None else int(text)
    say(f"--engine-attempt is no number, and is left out: {text[:80]!r}")
    return None
