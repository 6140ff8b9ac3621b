"""What references stand for in one run: parameters, items, outputs and facts of the run, when a step starts.

A value travels as the text that a program wrote or receives; it is read as its type where a condition, a parameter of a
sub-pipeline or a fan-out asks for it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic_core import PydanticCustomError

from gpuflow.core.cron import previous_time
from gpuflow.core.date_format import format_date
from gpuflow.kubernetes.expansion import escape, expand
from gpuflow.pod.spelling import spell_text
from gpuflow.spec import expression
from gpuflow.spec.fan_out import MOST_COPIES, Range
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import called_pipeline, output_types
from gpuflow.spec.schedule import Schedule, zone_of
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref, RunRef

Outputs = Mapping[str, str]
"""Texts by name."""


class NoValue(Exception):
    """What a reference stands for cannot be had, or is not of its type: a sentence."""


@dataclass(frozen=True)
class RunFacts:
    """The facts that `{run: …}` names."""

    id: str
    moment: datetime
    schedule: Schedule | None = None

    def text(self, ref: RunRef, attempt: int) -> str:
        """A fact as text."""
        if not ref.is_date:
            return str(attempt) if ref.field == "attempt" else self.id
        zone = ref.timezone or (self.schedule.timezone if self.schedule is not None else "UTC")
        moment: datetime | None = self.moment
        if ref.field == "interval_start" and self.schedule is not None:
            moment = previous_time(self.schedule.cron, self.schedule.timezone, self.moment)
        return format_date((moment or self.moment).astimezone(zone_of(zone)), ref.layout)


class Scope:
    """A pipeline in one place of a run: the values of its parameters, and where the outputs of its steps are."""

    def __init__(
        self,
        pipeline: Pipeline,
        params: Mapping[str, Any],
        facts: RunFacts,
        outputs_of: Callable[[str], Outputs | None],
    ) -> None:
        """`outputs_of`: the texts of a step that succeeded; None for one that was skipped, failed or never ran."""
        self.pipeline, self.params, self.facts, self._outputs_of = pipeline, params, facts, outputs_of

    def output(self, ref: OutputRef) -> str:
        """The text of an output; its default where the step did not succeed."""
        found = self._outputs_of(ref.step)
        if found is None:
            found = outputs_when_skipped(self.pipeline.steps[ref.step])
        if ref.name not in found:
            raise NoValue(f'step "{ref.step}" left no output "{ref.name}"')
        return found[ref.name]

    def arguments(self, step: Step, item: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a sub-pipeline, for one copy of the step that calls it."""
        inner = called_pipeline(self.pipeline, step)
        found = {name: param.default for name, param in inner.params.items()}
        for name, given in step.params.items():
            if isinstance(given, ParamRef | OutputRef | ItemRef):
                found[name] = self._argument(inner, name, given, item)
        return found

    def _argument(self, inner: Pipeline, name: str, ref: Ref, item: Mapping[str, Any]) -> Any:
        param, what = inner.params[name], f'the parameter "{name}" of "{inner.name}"'
        value = Values(self, item).value(ref)
        if param.type == "string":
            value = text_of(value)
        elif isinstance(value, str):
            value = typed_value(value, param.type, what)
        try:
            return param.accept(value)
        except PydanticCustomError as refusal:
            raise NoValue(f"{what}: {(refusal.context or {}).get('message')}") from None

    def lists(self, step: Step) -> dict[str, Any]:
        """What a fan-out runs over, each list by its variable."""
        found = {name: self._list(name, source) for name, source in (step.for_each or {}).items()}
        copies = math.prod(len(items) for items in found.values())
        if copies > MOST_COPIES:
            raise NoValue(f"the fan-out has {copies:,} copies; {MOST_COPIES:,} is the most")
        return found

    def _list(self, name: str, source: Any) -> Any:
        if isinstance(source, Range):
            return source.items
        if not isinstance(source, ParamRef | OutputRef):
            return source
        value = Values(self, {}).value(source)
        if not isinstance(value, list):
            raise NoValue(f'the fan-out over "{name}" needs a list, and {json.dumps(value)[:80]} is none')
        return value

    def holds(self, step: Step, item: Mapping[str, Any]) -> bool:
        """Whether the step's condition is met."""
        return step.when is None or bool(expression.evaluate(step.when, Values(self, item).value))

    def results(self) -> dict[str, str]:
        """The outputs of the pipeline itself, for the one around it."""
        return {name: self.output(ref) for name, ref in self.pipeline.outputs.items() if isinstance(ref, OutputRef)}


class Values:
    """The spelling of a run: each reference becomes its value, in the place of one copy of one step."""

    def __init__(self, scope: Scope, item: Mapping[str, Any], attempt: int = 1) -> None:
        self.scope, self.item, self.attempt = scope, item, attempt

    def literal(self, text: str) -> str:
        return text

    def reference(self, ref: Ref) -> str:
        return escape(self.text(ref), glued=True)

    def text(self, ref: Ref) -> str:
        """What a program receives for a reference."""
        if isinstance(ref, OutputRef):
            return self.scope.output(ref)
        if isinstance(ref, RunRef):
            return self.scope.facts.text(ref, self.attempt)
        return text_of(self.value(ref))

    def value(self, ref: Ref) -> Any:
        """A reference as a value of its type."""
        if isinstance(ref, ParamRef):
            return self.scope.params[ref.name]
        if isinstance(ref, ItemRef):
            return self.item[ref.name]
        if not isinstance(ref, OutputRef):
            return self.text(ref)
        kind = output_types(self.scope.pipeline.steps[ref.step]).get(ref.name, "string")
        return typed_value(self.scope.output(ref), kind, f'the output "{ref.name}" of "{ref.step}"')

    def plain(self, text: Any) -> str:
        """A text of the document as a program receives it."""
        return unescape(spell_text(text, self))


def unescape(text: str) -> str:
    """What the kubelet makes of a word that was protected from its expansion."""
    return expand(text, {})


def outputs_when_skipped(step: Step) -> dict[str, str]:
    """What others read of a step that did not run: defaults, and of a fan-out no values at all."""
    if step.for_each:
        return dict.fromkeys(output_types(step), "[]")
    return {name: text_of(output.default) for name, output in step.outputs.items() if output.default is not None}


def gathered_outputs(step: Step, copies: list[Outputs]) -> dict[str, str]:
    """The outputs of a fan-out: a JSON list each, of the copies that ran, in the order of their items."""
    kinds = output_types(step.model_copy(update={"for_each": None}))
    return {
        name: text_of([typed_value(copy[name], kind, f'the output "{name}"') for copy in copies if name in copy])
        for name, kind in kinds.items()
    }


def typed_value(text: str, kind: str, what: str) -> Any:
    """A text read as its type."""
    if kind in ("string", "file", "directory"):
        return text
    try:
        if kind == "int":
            return int(text.strip())
        if kind == "float":
            return float(text.strip())
        value = json.loads(text.strip().lower() if kind == "bool" else text)
        if kind == "bool" and not isinstance(value, bool):
            raise ValueError
        return value
    except (ValueError, RecursionError):
        raise NoValue(f"{what} is not of type {kind}: {text[:80]!r}") from None


def item_at(lists: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The item of one copy; the last list runs fastest."""
    found: dict[str, Any] = {}
    for name, items in reversed(list(lists.items())):
        index, at = divmod(index, len(items))
        found[name] = items[at]
    return {name: found[name] for name in lists}
