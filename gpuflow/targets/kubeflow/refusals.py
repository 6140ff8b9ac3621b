"""Parts of constructs that KFP carries otherwise. Each is refused by name, because dropping it would be silent.

Some can be left out when losses are accepted; they then stand in the artefact's header. Others would make a pipeline
that does something else, or that KFP cannot run at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gpuflow.errors import Finding
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Range, Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef
from gpuflow.targets.kubeflow.retries import waits

Place = tuple[str | int, ...]
Problem = tuple[str, Place, str]
EXACT = 2**53


def refusals(pipeline: Pipeline, inside: Place = ()) -> Iterator[Finding]:
    """What cannot be carried and cannot be left out."""
    return _everywhere(pipeline, inside, _pipeline, _step)


def omissions(pipeline: Pipeline, inside: Place = ()) -> Iterator[Finding]:
    """What cannot be carried, and is left out when losses are accepted."""
    return _everywhere(pipeline, inside, _pipeline_omissions, _step_omissions)


def _everywhere(
    pipeline: Pipeline,
    inside: Place,
    of_pipeline: Callable[[Pipeline, bool], Iterator[Problem]],
    of_step: Callable[[Pipeline, str, Step], Iterator[Problem]],
) -> Iterator[Finding]:
    for message, place, hint in of_pipeline(pipeline, bool(inside)):
        yield Finding("GF301", f"kubeflow: {message}", pipeline.where(*place), hint)
    for section in ("steps", "exit"):
        for name in getattr(pipeline, section):
            step = pipeline.effective(name)
            for message, place, hint in of_step(pipeline, name, step):
                where = pipeline.where(section, name, *place)
                yield Finding("GF301", f'kubeflow: step "{name}": {message}', where, hint)
            if step.pipeline is not None:
                yield from _everywhere(step.pipeline, (*inside, name), of_pipeline, of_step)


def _pipeline(pipeline: Pipeline, sub: bool) -> Iterator[Problem]:
    for name, param in pipeline.params.items():
        yield from _values(param.default, f'the default of "{name}"', ("params", name))
        if param.type == "json" and not isinstance(param.default, list | dict | None):
            yield f'the default of "{name}" is neither a list nor a map', ("params", name), "give it another type"
    for name, claim in pipeline.claims.items():
        if claim.storage_class is None:
            yield (
                f'the claim "{name}" names no storage_class, and KFP cannot ask for the cluster\'s default',
                ("claims", name),
                "name the class",
            )
    if sub and pipeline.claims:
        yield "a sub-pipeline's claims cannot be carried", ("claims",), "move them to the pipeline that uses it"


def _pipeline_omissions(pipeline: Pipeline, sub: bool) -> Iterator[Problem]:
    if sub and pipeline.deadline:
        yield "a sub-pipeline's deadline cannot be carried", ("deadline",), "move it to the pipeline that uses it"


def _step(pipeline: Pipeline, name: str, step: Step) -> Iterator[Problem]:
    if f"{name}-driver" in pipeline.steps or f"{name}-driver" in pipeline.exit:
        yield f'KFP calls its own task "{name}-driver", like another step', (), f'rename "{name}-driver"'
    yield from _fan_out(pipeline, name, step)
    for key, value in step.params.items():
        if not isinstance(value, ParamRef | OutputRef | ItemRef):
            yield from _values(value, f'"{key}"', ("params", key))
    for output in step.outputs:
        if name.startswith("loop-item") or f"{name}-{output}".endswith("loop-item"):
            yield (
                f'the output "{output}" would be taken for a loop\'s item',
                ("outputs", output),
                "rename the step or the output",
            )


def _step_omissions(pipeline: Pipeline, name: str, step: Step) -> Iterator[Problem]:
    for path, volume in step.volumes.items():
        claim = volume.claim or volume.new_claim
        if claim and volume.read_only:
            yield f'the claim "{claim}" would be mounted writable', ("volumes", path, "read_only"), "drop read_only"
        if volume.sub_path and not claim:
            yield (
                "sub_path works on claims only",
                ("volumes", path, "sub_path"),
                "mount the whole volume and use the path below it",
            )
    affinity = (step.kubernetes.affinity if step.kubernetes else None) or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if affinity.get(kind):
            yield f"{kind} is never read by KFP's backend", ("kubernetes", "affinity"), "use nodeAffinity"
    if step.timeout is not None and not step.runs_container:
        yield "a sub-pipeline has no timeout", ("timeout",), "give timeouts to its steps"
    yield from _backoff(step)


def _backoff(step: Step) -> Iterator[Problem]:
    if step.retry is None or step.retry.backoff is None or step.retry.backoff.max is None:
        return
    longest, most = max(waits(step.retry), default=0), step.retry.backoff.max
    if longest > most.seconds:
        yield (
            f"the waits grow to {longest}s, and KFP has no longest wait (backoff.max is {most})",
            ("retry", "backoff"),
            "lower factor, start or failures until the last wait fits",
        )


def _fan_out(pipeline: Pipeline, name: str, step: Step) -> Iterator[Problem]:
    sources = step.for_each or {}
    for variable, source in sources.items():
        if isinstance(source, tuple):
            yield from _values(source, f'an item of "{variable}"', ("for_each", variable))
    nested = len(sources) > 1 and not all(isinstance(source, tuple | Range) for source in sources.values())
    if nested and name in _read_steps(pipeline):
        yield (
            "the outputs of loops that nest would arrive as lists of lists",
            ("for_each",),
            "let an earlier step write all combinations as one list",
        )


def _read_steps(pipeline: Pipeline) -> set[str]:
    """The steps whose outputs somebody reads."""
    refs = [ref for name in (*pipeline.steps, *pipeline.exit) for _, ref in pipeline.effective(name).references()]
    return {ref.step for ref in (*refs, *pipeline.outputs.values()) if isinstance(ref, OutputRef)}


def _values(value: Any, what: str, place: Place) -> Iterator[Problem]:
    """What a value loses on its way: KFP hands numbers over as doubles, and Argo evaluates `{{`."""
    if isinstance(value, str):
        if "{{" in value:
            yield f"{what} holds {{{{, which Argo would evaluate", place, "keep it in a file or a ConfigMap"
    elif isinstance(value, int) and abs(value) > EXACT:
        yield f"{what} is {value}, and KFP's numbers are exact up to {EXACT} only", place, "make it text"
    elif isinstance(value, dict):
        yield from _values([*value, *value.values()], what, place)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _values(item, what, place)
