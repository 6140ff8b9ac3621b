"""What is true of a case: the engines' own code, in every order. Nothing here knows the checker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proofs.checker.case import Case
from proofs.checker.worlds import questions, refusals
from tests.differential.oracle import Oracle

WORDS = ("always", "may-queue", "never")


@dataclass(frozen=True)
class Truth:
    """What is true in each world that is possible; `None` is a world too large to look at."""

    worlds: tuple[str | None, ...]
    because: tuple[dict[str, Any], ...] = ()

    @property
    def word(self) -> str:
        """One word when all worlds agree; open when they do not."""
        found = set(self.worlds)
        if None in found:
            return "too-large"
        return str(found.pop()) if len(found) == 1 else "open"


class Judge:
    """The judge, running. Use it in a `with` statement."""

    def __init__(self) -> None:
        self._oracle = Oracle("simulator", "judge")

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self._oracle.close()

    def truths(self, cases: Sequence[Case]) -> list[Truth]:
        """The truth of each case."""
        asked: list[dict[str, Any]] = []
        spans: list[tuple[int, str]] = []
        for case in cases:
            refused = refusals(case)
            worlds = [] if refused else questions(case)
            asked += worlds
            spans.append((len(worlds), refused[0] if refused else ""))
        answers = iter(self._oracle.ask(asked))
        found = []
        for count, reason in spans:
            if reason:
                found.append(Truth(("never",), ({"refused": reason},)))
                continue
            said = [next(answers) for _ in range(count)]
            for each in said:
                if "error" in each:
                    raise RuntimeError(f"the judge could not be asked: {each['error']}")
            found.append(Truth(tuple(each["truth"] or None for each in said), tuple(said)))
        return found
