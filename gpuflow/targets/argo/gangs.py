"""What a gang cannot have yet on Argo: what belongs to one pod, or to Argo's own."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.errors import Finding
from gpuflow.pod.gang_kinds import Refusal, refusals_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import RunRef
from gpuflow.targets.gang_uses import LATER

BY_LAUNCHER = ("queue_timeout", *LATER)
"""What the launcher of a gang keeps, and Argo cannot, or only in part."""


def gang_findings(pipeline: Pipeline, name: str, kind: str) -> Iterator[Finding]:
    """One finding for each thing that the launcher of a step could not keep. `kind`: of gangs on the site."""
    step = pipeline.effective(name)
    if step.gang is None:
        return
    for field, problem, hint in _refusals(step, kind):
        yield Finding("GF378", f'step "{name}": {problem}', pipeline.where_step(name, *field), hint)


def _refusals(step: Step, kind: str) -> Iterator[Refusal]:
    yield from refusals_of(step, kind)
    if step.cache:
        yield ("cache",), "the result of a gang is not kept for other runs", "remove cache"
    for place, ref in step.references():
        if isinstance(ref, RunRef) and ref.field == "attempt":
            # Argo would fill in how often it started the launcher.
            hint = "let the program read $GPUFLOW_ATTEMPT"
            yield tuple(map(str, place[:1])), "the attempts of a gang are not Argo's: {run: attempt} is not known", hint
    for path, volume in step.volumes.items():
        if volume.new_claim is not None:
            hint = "use a claim that is there before the run"
            yield (
                ("volumes", path),
                f'Argo mounts "{volume.new_claim}", which it makes for the run, in its own pods',
                hint,
            )
