"""Asking both sides, and looking closer where they disagree."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError
from tests.differential.kinds import Kind
from tests.differential.oracle import Answer, Case, Oracle
from tests.differential.shrinking import shrink

ASKED_AGAIN = 30


@dataclass(frozen=True)
class Difference:
    """A case on which we and the engine disagree."""

    case: Case
    ours: Answer
    theirs: Answer

    @property
    def fields(self) -> frozenset[str]:
        names = {*self.ours, *self.theirs}
        return frozenset(name for name in names if self.ours.get(name) != self.theirs.get(name))


@dataclass
class Tally:
    """How often the sides agreed.

    Not judged: no cluster would have such a case. Refused: gpuflow would not compile it, and said so. Unknown: gpuflow
    gives no answer, and says why.
    """

    agreed: int = 0
    unknown: int = 0
    not_judged: int = 0
    refused: int = 0
    differed: int = 0


def ours(kind: Kind, case: Case) -> Answer:
    """Our answer, with values as the reader of files gives them; a refusal to read the case is an answer too."""
    try:
        return kind.ours(yaml_tree.parse(json.dumps(case), "case.json"))
    except (GpuflowError, ValueError, KeyError, TypeError, AttributeError, IndexError) as refusal:
        return {"raises": f"{type(refusal).__name__}: {refusal}"}


def compare(kind: Kind, oracle: Oracle, cases: Sequence[Case], tally: Tally) -> Iterator[Difference]:
    """The differences among these cases, and the count of the rest."""
    asked = [(case, question) for case in cases if (question := _asked(kind, case)) is not None]
    tally.refused += len(cases) - len(asked)
    answers = oracle.ask([question for _, question in asked])
    for (case, _), answer in zip(asked, answers, strict=True):
        difference = _difference(kind, case, answer)
        if "error" in answer or (difference is not None and not _stands(kind, oracle, case, answer)):
            tally.not_judged += 1
        elif difference is None:
            tally.agreed += 1
        elif "unknown" in difference.ours:
            tally.unknown += 1
        else:
            tally.differed += 1
            yield difference


def _stands(kind: Kind, oracle: Oracle, case: Case, answer: Answer) -> bool:
    """Whether the engine says the same each time it is asked: where it does not, nobody can agree with it.

    Kueue goes through its flavors in Go's random order, so of two reasons it tells one or the other, like a coin.
    """
    first = kind.theirs(answer)
    again = oracle.ask([kind.question(case)] * ASKED_AGAIN)
    return all("error" not in each and kind.theirs(each) == first for each in again)


def _difference(kind: Kind, case: Case, answer: Answer) -> Difference | None:
    if "error" in answer:
        return None
    theirs, mine = kind.theirs(answer), ours(kind, case)
    return None if mine == theirs else Difference(case, mine, theirs)


def shrunk(kind: Kind, oracle: Oracle, found: Difference) -> Difference:
    """The same difference with everything left out that it does not need."""
    answers: dict[int, Difference | None] = {}

    def shows(smaller: Sequence[Case]) -> list[bool]:
        answers.clear()
        asked = {number: _asked(kind, case) for number, case in enumerate(smaller)}
        askable = {number: question for number, question in asked.items() if question is not None}
        replies = dict(zip(askable, oracle.ask(list(askable.values())), strict=True))
        for number, case in enumerate(smaller):
            reply = replies.get(number)
            answers[number] = _difference(kind, case, reply) if reply is not None else None
        return [_same(answers[number], found) for number in range(len(smaller))]

    case = shrink(found.case, shows, kind.keep)
    (reply,) = oracle.ask([kind.question(case)])
    return _difference(kind, case, reply) or found


def _asked(kind: Kind, case: Case) -> Case | None:
    """The question, unless gpuflow refuses to compile the case, or leaving something out has broken it."""
    try:
        return kind.question(case)
    except (GpuflowError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


def _same(smaller: Difference | None, found: Difference) -> bool:
    return (
        smaller is not None
        and "unknown" not in smaller.ours
        and bool(smaller.fields & found.fields)
        and ("raises" in smaller.ours) == ("raises" in found.ours)
    )
