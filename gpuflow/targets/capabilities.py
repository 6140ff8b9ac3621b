"""Capability tables: what a target carries of a pipeline, construct by construct.

A table answers for every construct exactly once. One that does not is an error when its module is imported, so that a
new construct is refused by every target until somebody has decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gpuflow.errors import did_you_mean
from gpuflow.targets.constructs import VOCABULARY

Gap = Literal["not yet", "upstream", "never"]
"""not yet: this version of gpuflow does not do it. upstream: the engine cannot do it yet. never: it cannot be."""


@dataclass(frozen=True, slots=True)
class Cannot:
    """Why a target does not support a construct, and what to do instead."""

    gap: Gap
    reason: str
    instead: str | None = None


@dataclass(frozen=True, slots=True)
class Weaker:
    """A construct that a target carries, but not in full; compiled, and said."""

    reason: str
    by_step: bool = False
    """Whether the target itself says of which steps that holds, and how (`Target.weaker`)."""


Capabilities = Mapping[str, Literal[True] | Cannot | Weaker]
"""For each construct: True when the target carries it, how it is weaker, or why it is not carried."""


class IncompleteTable(Exception):
    """A capability table that does not answer for every construct exactly once."""


def capabilities(
    *,
    carried: Iterable[str],
    weaker: Mapping[str, Weaker] | None = None,
    cannot: Mapping[str, Cannot] | None = None,
    vocabulary: Iterable[str] = VOCABULARY,
) -> Capabilities:
    """The table of a target, checked against the vocabulary."""
    carried, weaker, cannot = tuple(carried), weaker or {}, cannot or {}
    asked, answers = set(vocabulary), Counter((*carried, *weaker, *cannot))
    wrong = [f'"{name}" is not answered for' for name in sorted(asked - set(answers))]
    wrong += [f'"{name}" is answered for {count} times' for name, count in sorted(answers.items()) if count > 1]
    for name in sorted(set(answers) - asked):
        wrong.append(f'"{name}" is not a construct; {did_you_mean(name, asked) or "see gpuflow.targets.constructs"}')
    if wrong:
        raise IncompleteTable("; ".join(wrong))
    return {name: weaker.get(name) or cannot.get(name) or True for name in sorted(asked)}
