"""Regular expressions of `matches`, in time that grows with pattern times text, as RE2 promises.

Python's own matcher tries one way after the other, and a pattern such as `(a+)+$` has more ways than anybody can wait
for. Here all ways are followed at once (Thompson's construction). Evaluated are patterns without flags, counts and
escapes but of signs; a text has one line.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from gpuflow.core.work_budget import spend

SIGNS: Final = r".\-+()[]?*|^$"
"""What stands for itself behind a backslash."""
PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _/:,=@-")
CLASS: Final = re.compile(r"\[(\^?)([A-Za-z0-9 _.-]+)\]")
REPEATS: Final = ("*", "+", "?")
MOST_DEPTH: Final = 50


class NotEvaluated(Exception):
    """A pattern that is not among what is evaluated."""


class Step(NamedTuple):
    """`any` and `set` take a letter, `begin` and `end` ask where the text stands, `split` goes on at two places."""

    kind: str
    letters: frozenset[str] = frozenset()
    is_negated: bool = False
    to: tuple[int, ...] = ()
    """Where to go on, counted from here."""


Program = list[Step]


class Pattern:
    def __init__(self, text: str) -> None:
        self.text, self.position, self.depth = text, 0, 0
        self.program = self._alternation()
        if self.position < len(text):
            raise NotEvaluated(text)

    def is_in(self, text: str) -> bool:
        """Whether a part of the text matches. `TooLarge` where a check has matched too much already."""
        places: set[int] = set()
        for position in range(len(text) + 1):
            places = self._epsilon_closure(places | {0}, is_begin=position == 0, is_end=position == len(text))
            if len(self.program) in places:
                return True
            if position < len(text):
                places = {place + 1 for place in places if self._takes(self.program[place], text[position])}
        return False

    @staticmethod
    def _takes(step: Step, letter: str) -> bool:
        return step.kind == "any" or (step.kind == "set" and (letter in step.letters) is not step.is_negated)

    def _epsilon_closure(self, places: set[int], *, is_begin: bool, is_end: bool) -> set[int]:
        """The places that are reached without a letter."""
        found, todo = set(places), list(places)
        while todo:
            place = todo.pop()
            if place == len(self.program):
                continue
            step = self.program[place]
            goes_on = step.kind == "split" or (step.kind == "begin" and is_begin) or (step.kind == "end" and is_end)
            for way in step.to if goes_on else ():
                if place + way not in found:
                    found.add(place + way)
                    todo.append(place + way)
        spend("patterns", len(found))
        return found

    # The parser: a program for each part, with ways counted from where they begin -----------------------------

    def _next(self) -> str:
        return self.text[self.position : self.position + 1]

    def _alternation(self) -> Program:
        program = self._sequence()
        while self._next() == "|":
            self.position += 1
            other = self._sequence()
            program = [_split(1, len(program) + 2), *program, _split(len(other) + 1), *other]
        return program

    def _sequence(self) -> Program:
        program: Program = []
        while self._next() not in ("", "|", ")"):
            program += self._repetition()
        return program

    def _repetition(self) -> Program:
        can_repeat = self._next() not in ("^", "$")
        one = self._atom()
        sign = self._next()
        if sign not in REPEATS:
            return one
        self.position += 1
        if not can_repeat or self._next() in REPEATS:
            raise NotEvaluated(self.text)
        if sign == "+":
            return [*one, _split(-len(one), 1)]
        if sign == "?":
            return [_split(1, len(one) + 1), *one]
        return [_split(1, len(one) + 2), *one, _split(-len(one) - 1)]

    def _atom(self) -> Program:
        letter = self._next()
        self.position += 1
        if letter == "(":
            self.depth += 1
            if self.depth > MOST_DEPTH or self._next() == "?":
                raise NotEvaluated(self.text)
            program = self._alternation()
            if self._next() != ")":
                raise NotEvaluated(self.text)
            self.position += 1
            self.depth -= 1
            return program
        if letter == "[":
            found = CLASS.match(self.text, self.position - 1)
            if found is None:
                raise NotEvaluated(self.text)
            self.position = found.end()
            return [Step("set", self._letters(found[2]), bool(found[1]))]
        if letter == "\\":
            letter = self._next()
            self.position += 1
            if not letter or letter not in SIGNS:
                raise NotEvaluated(self.text)
            return [Step("set", frozenset(letter))]
        if letter == ".":
            return [Step("any")]
        if letter in ("^", "$"):
            return [Step("begin" if letter == "^" else "end", to=(1,))]
        if letter not in PLAIN:
            raise NotEvaluated(self.text)
        return [Step("set", frozenset(letter))]

    def _letters(self, text: str) -> frozenset[str]:
        """The letters of a class; a dash between two of them is a range."""
        letters: set[str] = set()
        position = 0
        while position < len(text):
            first, last = text[position], text[position]
            if text[position + 1 : position + 2] == "-" and position + 2 < len(text):
                last = text[position + 2]
            if last < first:
                raise NotEvaluated(self.text)
            letters.update(map(chr, range(ord(first), ord(last) + 1)))
            position += 1 if position + 2 >= len(text) or text[position + 1] != "-" else 3
        return frozenset(letters)


def _split(*to: int) -> Step:
    return Step("split", to=to)


@lru_cache(maxsize=1024)
def pattern(text: str) -> Pattern:
    """`NotEvaluated` for a pattern that is not."""
    return Pattern(text)
