"""What a target does not support of a pipeline: constructs by its capability table, and parts of them by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from gpuflow.errors import Finding, Where
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.capabilities import Cannot, Capabilities, Weaker
from gpuflow.targets.constructs import RUN, VOCABULARY, Use, uses

NEEDED = (*RUN, "outputs_from")
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


def refused(finding: Finding) -> Loss:
    """A finding as a loss that cannot be left out: the pipeline would do something else, or never run."""
    return Loss(finding.message, finding.where, finding.hint, None, False, finding.code)


def left_out(finding: Finding) -> Loss:
    """A finding as a loss that may be left out: the pipeline does the same work without it."""
    return Loss(finding.message, finding.where, finding.hint, None, True, finding.code)


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
    missing = {construct for construct in VOCABULARY if isinstance(table[construct], Cannot)}
    for use in uses(pipeline) if used is None else used:
        if use.construct in missing and counts(use):
            found.setdefault(use.construct, []).append((use.step, pipeline.where(*use.path)))
    result = []
    for construct in VOCABULARY:
        if construct in found:
            why = table[construct]
            assert isinstance(why, Cannot)
            steps = tuple(dict.fromkeys(step for step, _ in found[construct] if step is not None))
            whose = f" ({named_steps(steps)})" if steps else ""
            message = f"{target} does not support {construct}{whose}: {why.reason}"
            where = replace(found[construct][0][1], step=steps[0] if len(steps) == 1 else None)
            # Without a text that stands in a command there is no command; without its word, outputs are never found.
            result.append(Loss(message, where, why.instead, construct, optional and construct not in NEEDED))
    return result


def weaknesses(pipeline: Pipeline, table: Capabilities, used: Iterable[Use] | None = None) -> list[Finding]:
    """What a target carries only in part, as notes, one per construct. `used`: as for `construct_losses`."""
    notes: dict[str, Finding] = {}
    weaker = {name: how for name in VOCABULARY if isinstance(how := table[name], Weaker) and not how.by_step}
    for use in uses(pipeline) if used is None else used:
        if use.construct in weaker and use.construct not in notes:
            text = f"{use.construct}: {weaker[use.construct].reason}"
            notes[use.construct] = Finding("GF305", text, pipeline.where(*use.path), severity="note")
    return [notes[construct] for construct in sorted(notes)]
