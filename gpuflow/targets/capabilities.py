"""Capability tables, and what a target does not support of a pipeline.

A table answers for every construct exactly once. One that does not is an error when its module is imported, so that a
new construct is refused by every target until somebody has decided. A loss is a construct that the table does not
carry, or a named part of one. What the launcher or the ranks of a gang keep is not asked of the engine
(`asked_of_engine`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, Literal

from gpuflow.core.errors import Context, Finding, Problem, Where, did_you_mean
from gpuflow.plan import Plan
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.constructs import RUN, VOCABULARY, Use, uses

Gap = Literal["not yet", "upstream", "never"]
"""not yet: this version of gpuflow does not do it. upstream: the engine cannot do it yet. never: it cannot be."""


@dataclass(frozen=True, slots=True)
class NoSupport:
    """Why a target does not support a construct, and what to do instead."""

    gap: Gap
    reason: str
    instead: str | None = None


@dataclass(frozen=True, slots=True)
class PartialSupport:
    """A construct that a target supports only in part: it is compiled, with a note."""

    reason: str
    by_step: bool = False
    """Whether the target itself says of which steps that holds, and how (`Target.weaker`)."""


Capabilities = Mapping[str, Literal[True] | NoSupport | PartialSupport]
"""For each construct: True when the target carries it, how it is weaker, or why it is not carried."""


class IncompleteTable(Exception):
    """A capability table that does not answer for every construct exactly once."""


def capabilities(
    *,
    carried: Iterable[str],
    weaker: Mapping[str, PartialSupport] | None = None,
    cannot: Mapping[str, NoSupport] | None = None,
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


REQUIRED_CONSTRUCTS = (*RUN, "outputs_from")
"""Constructs without which a step does other work, or none."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that an artifact does not hold: a construct over all the steps that use it, or a part of one."""

    message: str
    """For people, with the target's name in it."""
    where: Where
    instead: str | None = None
    """What to do about it."""
    construct: str | None = None
    optional: bool = True
    """Whether it may be left out (--allow-lossy): without it the pipeline still does the same work."""
    code: str = "GF301"

    def refusal(self) -> Finding:
        """The loss as an error."""
        if not self.optional:
            return Finding(self.code, self.message, self.where, self.instead)
        hint = f"{self.instead or 'change the pipeline'}; or --allow-lossy to compile without it"
        return Finding(self.code, self.message, self.where, hint)

    def refusal_by_hand(self, where: Where) -> Finding:
        """The loss as an error of hand-written code, which has no flag to accept it, at the line that asks for it."""
        return Finding(self.code, self.message, where, self.instead)

    def warning(self) -> Finding:
        """The loss once it has been accepted."""
        return Finding("GF303", self.message, self.where, self.instead, "warning")


@dataclass(frozen=True, slots=True)
class RefusalRule(Generic[Context]):
    """A function that finds parts of constructs that an engine does not support."""

    find: Callable[[Context], Iterable[Problem | Finding | Loss]]
    codes: tuple[str, ...]
    """The first is that of its `Problem`s."""
    optional: bool
    """Whether what it finds may be left out; otherwise the pipeline would do something else, or never run."""

    def __call__(self, context: Context) -> Iterator[Loss]:
        for each in self.find(context):
            if isinstance(each, Loss):
                yield each
            else:
                code = self.codes[0] if isinstance(each, Problem) else each.code
                yield Loss(each.message, each.where, each.hint, None, self.optional, code)


def refusal(
    *codes: str, optional: bool = False
) -> Callable[[Callable[[Context], Iterable[Problem | Finding | Loss]]], RefusalRule[Context]]:
    """`@refusal("GF306")` makes a rule of the function below it."""
    return lambda find: RefusalRule(find, codes, optional)


def named_steps(names: tuple[str, ...]) -> str:
    """Steps by name in a sentence, the first few of them."""
    shown = ", ".join(f'"{name}"' for name in names[:4])
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"step{'s' if len(names) > 1 else ''} {shown}{more}"


def construct_losses(
    pipeline: Pipeline,
    table: Capabilities,
    target: str,
    *,
    optional: bool = True,
    counts: Callable[[Use], bool] = lambda use: True,
    used: Iterable[Use] | None = None,
) -> list[Loss]:
    """The constructs that a table cannot carry: one loss each, in the order of the vocabulary. `counts`: which uses.

    `used`: all uses of the pipeline, where they have been looked for already.
    """
    found: dict[str, list[tuple[str | None, Where]]] = {}
    missing = {construct for construct in VOCABULARY if isinstance(table[construct], NoSupport)}
    for use in uses(pipeline) if used is None else used:
        if use.construct in missing and counts(use):
            found.setdefault(use.construct, []).append((use.step, pipeline.where(*use.path)))
    result = []
    for construct in VOCABULARY:
        if construct in found:
            why = table[construct]
            assert isinstance(why, NoSupport)
            steps = tuple(dict.fromkeys(step for step, _ in found[construct] if step is not None))
            whose = f" ({named_steps(steps)})" if steps else ""
            message = f"{target} does not support {construct}{whose}: {why.reason}"
            where = replace(found[construct][0][1], step=steps[0] if len(steps) == 1 else None)
            # Without a text that stands in a command there is no command; without its word, outputs are never found.
            result.append(
                Loss(message, where, why.instead, construct, optional and construct not in REQUIRED_CONSTRUCTS)
            )
    return result


def partial_support_notes(pipeline: Pipeline, table: Capabilities, used: Iterable[Use] | None = None) -> list[Finding]:
    """What a target carries only in part, as notes, one per construct. `used`: as for `construct_losses`."""
    notes: dict[str, Finding] = {}
    weaker = {name: how for name in VOCABULARY if isinstance(how := table[name], PartialSupport) and not how.by_step}
    for use in uses(pipeline) if used is None else used:
        if use.construct in weaker and use.construct not in notes:
            text = f"{use.construct}: {weaker[use.construct].reason}"
            notes[use.construct] = Finding("GF305", text, pipeline.where(*use.path), severity="note")
    return [notes[construct] for construct in sorted(notes)]


LATER_ATTEMPTS = ("retry.more_memory", "retry.other_node", "spot.fallback_after")
"""What makes a later attempt different from the first: the launcher makes each attempt of a gang anew."""


def asked_of_engine(plan: Plan, used: tuple[Use, ...], carried: Collection[str]) -> tuple[Use, ...]:
    """The uses that an engine's table answers for. `carried`: what steps with a gang have whatever the engine can."""
    gangs = {each.name for each in plan.containers if each.step.gang is not None}
    return tuple(use for use in used if use.construct not in carried or use.step not in gangs) if gangs else used
