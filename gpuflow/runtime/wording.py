"""What the supervisor says is one line, whatever texts of a store or a program are in it."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Line ends, terminal codes and characters that cannot be seen, or that turn text around, as escapes."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "backslashreplace").decode("ascii")
