"""The pods that the spec says a run has: every reference filled in with the value it has in that run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from gpuflow.kubernetes.expansion import escape
from gpuflow.pod import Engine, pod_for
from gpuflow.pod.supervision import OUTPUTS
from gpuflow.site import Site
from gpuflow.spec.fan_out import Range
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref, parts_of

from .standins import VALUES

ENGINE = Engine("argo", OUTPUTS)


@dataclass(frozen=True)
class Known:
    """References as the values they have in one pod: a `Spelling` for `pod_for`."""

    pipeline: Pipeline
    run: str
    """The workflow's uid."""
    given: Mapping[str, str]
    """Parameters that are not left at their defaults."""
    made: Mapping[str, str]
    """Outputs of programs that are no stand-ins, by `step.output`."""
    item: Mapping[str, Any]
    values: Mapping[str, str] = field(default_factory=lambda: VALUES)
    """What the stand-ins write, by the type of an output."""

    def literal(self, text: str) -> str:
        return text

    def reference(self, ref: Ref) -> str:
        return escape(self.text(ref), glued=True)

    def text(self, ref: Ref) -> str:
        if isinstance(ref, ParamRef):
            return self.given[ref.name] if ref.name in self.given else text_of(self.pipeline.params[ref.name].default)
        if isinstance(ref, ItemRef):
            return text_of(self.item[ref.name])
        return self._output(ref) if isinstance(ref, OutputRef) else self.run

    def _output(self, ref: OutputRef) -> str:
        step = self.pipeline.effective(ref.step)
        made = self.made.get(f"{ref.step}.{ref.name}")
        if step.for_each is None:
            return made or self._one(step, ref.name)
        # A list of what the copies wrote: text as JSON text, values as they are.
        texts = (replace(self, item=item)._one(step, ref.name) for item in items(step, self))
        is_text = _type(step, ref.name) in ("string", "file", "directory")
        return f"[{','.join(json.dumps(text, ensure_ascii=False) if is_text else text for text in texts)}]"

    def _one(self, step: Step, name: str) -> str:
        if step.pipeline is not None:
            inner = step.pipeline.outputs[name]
            assert isinstance(inner, OutputRef)
            return replace(self, pipeline=step.pipeline, given={}).text(inner)
        output = step.outputs[name]
        if output.uri is not None:
            return "".join(part if isinstance(part, str) else self.text(part) for part in parts_of(output.uri))
        return self.values[output.type]


def _type(step: Step, name: str) -> str:
    if step.pipeline is None:
        return step.outputs[name].type
    inner = step.pipeline.outputs[name]
    assert isinstance(inner, OutputRef)
    return _type(step.pipeline.effective(inner.step), inner.name)


def items(step: Step, known: Known) -> Iterator[dict[str, Any]]:
    """What a step repeats over; one empty item when it does not."""
    lists = []
    for source in (step.for_each or {}).values():
        if isinstance(source, Range):
            lists.append(list(source.items))
        elif isinstance(source, ParamRef | OutputRef):
            lists.append(yaml.safe_load(known.text(source)))
        else:
            lists.append(list(source))
    for row in itertools.product(*lists):
        yield dict(zip(step.for_each or {}, row, strict=True))


def pods(known: Known, site: Site, idle: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Every pod of a run, those of sub-pipelines included; `idle` steps have none."""
    pipeline = known.pipeline
    for name in (*pipeline.steps, *pipeline.exit):
        step = pipeline.effective(name)
        if name in idle or step.approval is not None:
            continue
        for item in items(step, known):
            here = replace(known, item=item)
            if step.pipeline is None:
                yield pod_for(pipeline, name, site, here, ENGINE)
                continue
            given = {
                key: here.text(value) if isinstance(value, ParamRef | OutputRef | ItemRef) else text_of(value)
                for key, value in step.params.items()
            }
            yield from pods(replace(here, pipeline=step.pipeline, given=given), site, frozenset())
