"""What a reader of the artifact should know, although nothing is lost, and paths that KFP mounts itself.

KFP and Argo mount folders into every step's container (`MOUNTS`: argocompiler/container.go, 2.17).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpuflow.core.errors import Finding, Problem, Rule, Where, rule
from gpuflow.plan import Plan, PlannedStep
from gpuflow.pod.supervision import has_records, saves_to_scratch
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import output_types
from gpuflow.spec.step import Step
from gpuflow.spec.storage_paths import is_below, normalize_path
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref
from gpuflow.targets.capabilities import named_steps, refusal
from gpuflow.targets.kubeflow.containers import never_cached
from gpuflow.targets.kubeflow.gangs import account_notes, own_pods
from gpuflow.targets.kubeflow.installation import unowned_volumes
from gpuflow.targets.kubeflow.retries import restarts_at
from gpuflow.targets.refusals import endless_waits

MOUNTS = ("/kfp-launcher", "/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config", "/var/run/argo")
"""Each is an empty folder of the pod: what the image has there is hidden."""

Place = tuple[tuple[str | int, ...], str]


@refusal("GF386")
def taken_mounts(plan: Plan) -> Iterator[Problem]:
    """Volumes where KFP mounts one itself: Kubernetes refuses two mounts of one path, and the step never starts."""
    for each in own_pods(plan):
        for place, path in _mount_places(each):
            if normalize_path(path) in MOUNTS:
                yield Problem(
                    f'step "{each.name}" mounts a volume at {path}, where KFP mounts one of its own: Kubernetes '
                    "refuses such a pod",
                    each.where(*place),
                    "mount it at another path, or at a folder below this one",
                )


@rule("GF387", severity="note")
def hidden_paths(plan: Plan) -> Iterator[Problem]:
    """Steps that work where KFP mounts an empty folder."""
    for each in own_pods(plan):
        for place, path in _used_paths(each):
            mount = next((mount for mount in MOUNTS if is_below(path, mount)), None)
            covered = any(is_below(path, own) for _, own in _mount_places(each))
            if mount is not None and not covered:
                yield Problem(
                    f'step "{each.name}": {path} is in {mount}, where KFP mounts an empty folder: files of the image '
                    "are hidden there, and what is written there goes with the pod",
                    each.where(*place),
                    "use another path",
                )


def _mount_places(each: PlannedStep) -> list[Place]:
    found: list[Place] = [(("volumes", path), path) for path in each.step.volumes]
    if each.step.checkpoint is not None and saves_to_scratch(each.step):
        found.append((("checkpoint", "path"), each.step.checkpoint.path))
    return found


def _used_paths(each: PlannedStep) -> Iterator[Place]:
    step = each.step
    if step.working_dir is not None:
        yield ("working_dir",), step.working_dir
    for name, output in step.outputs.items():
        if output.path is not None:
            yield ("outputs", name, "path"), output.path


_TEXT = ("string", "json")
_CONTAINER = ("command", "args", "env", "outputs", "checkpoint")
"""Where a reference ends in what the container is started with: a URI and a store are options of the supervisor."""


@rule("GF305", severity="note")
def run_time_text(plan: Plan) -> Iterator[Problem]:
    """One note about all text that is only known when the pipeline runs, with the steps that are handed it."""
    handed: dict[str, Where] = {}
    for each in plan.containers:
        for place, ref in each.step.references():
            if place[0] in _CONTAINER and _is_run_time_text(each.pipeline, each.step, ref):
                handed[each.name] = each.where(*place)
                break
    if handed:
        text = f"{named_steps(tuple(handed))}: text that is only known in the run passes Argo and the kubelet, "
        text += "which replace {{…}} and $(NAME) in it and make $$ one $"
        hint = "pass such text in a file, or give the parameter an enum; whoever may start runs with any text can read "
        hint += "variables of these steps, Secrets included"
        yield Problem(text, next(iter(handed.values())), hint)


@rule("GF305", severity="note")
def key_notes(plan: Plan) -> Iterator[Problem]:
    """KFP can mount a Secret, but neither a single key of it nor with permissions of its own."""
    key = plan.site.runtime.key
    signed = tuple(each.name for each in own_pods(plan.under(restarts_at(plan.site))) if has_records(each))
    if key is not None and signed:
        yield Problem(
            f'{named_steps(signed)}: KFP mounts the whole Secret "{key.secret}", and every user in the container '
            "may read it",
            plan.by_name[signed[0]].where(),
            f'keep nothing but "{key.key}" in that Secret',
        )


def _is_run_time_text(pipeline: Pipeline, step: Step, ref: Ref) -> bool:
    """Whether a reference stands for text that somebody else writes: a parameter, an output, an item of either."""
    source = (step.for_each or {}).get(ref.name) if isinstance(ref, ItemRef) else ref
    if isinstance(source, ParamRef):
        param = pipeline.params[source.name]
        return param.type in _TEXT and not param.enum
    if not isinstance(source, OutputRef):
        return False
    before = pipeline.steps[source.step]
    one = before.model_copy(update={"for_each": None})  # a list of numbers is no text
    return output_types(one).get(source.name) in _TEXT


@rule("GF384")
def waits_without_end(plan: Plan) -> Iterator[Finding]:
    return endless_waits(plan)


NOTES: Final[tuple[Rule[Plan], ...]] = (
    run_time_text, key_notes, hidden_paths, never_cached, unowned_volumes, account_notes, waits_without_end,
)  # fmt: skip
