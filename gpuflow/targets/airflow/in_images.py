"""What a DAG without gpuflow still needs of it: the supervisor, in the images of some steps."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.errors import Finding
from gpuflow.plan import PlannedStep
from gpuflow.pod import is_supervised
from gpuflow.pod.restarts import counts_budgets
from gpuflow.runtime import bundle
from gpuflow.site import Site
from gpuflow.spec.step import Step
from gpuflow.targets.airflow.options import AirflowOptions
from gpuflow.targets.frame import Request
from gpuflow.targets.losses import named_steps


def image_lines(request: Request) -> list[str]:
    """For the head of the file: which steps run under gpuflow-run, why, and which need nothing of gpuflow."""
    if not request.options_as(AirflowOptions).standalone:
        return []
    kept, free = _parted(request)
    lines = [f"{_needs(request)}: {', '.join(_shown(each, request.site) for each in kept)}."] if kept else []
    return lines + ([f"Nothing of gpuflow in the image: {', '.join(each.name for each in free)}."] if free else [])


def image_notes(request: Request) -> Iterator[Finding]:
    """The same, on the console."""
    if not request.options_as(AirflowOptions).standalone:
        return
    kept, free = _parted(request)
    if not kept:
        text = "the DAG imports nothing of gpuflow, and no image needs gpuflow-run"
        yield Finding("GF366", text, request.pipeline.where("steps"), severity="note")
        return
    text = f"{_needs(request)}: {', '.join(_shown(each, request.site) for each in kept)}"
    text += f"; {named_steps(tuple(each.name for each in free))} need nothing" if free else ""
    hint = "outputs alone need no gpuflow-run where the program writes /airflow/xcom/return.json: outputs_from: xcom"
    yield Finding("GF366", text, request.plan.where(kept[0].name), hint, "note")


def _parted(request: Request) -> tuple[list[PlannedStep], list[PlannedStep]]:
    steps = list(request.plan.containers)
    kept = [each for each in steps if is_supervised(each.step, request.site)]
    return kept, [each for each in steps if each not in kept]


def _needs(request: Request) -> str:
    runtime = request.site.runtime
    if runtime.delivery == "image":
        return "gpuflow-run must be in the image"
    return f"gpuflow-run is mounted from ConfigMap {bundle.config_map_name(runtime.config_map)}"


def _shown(each: PlannedStep, site: Site) -> str:
    return f"{each.name} (for its {_reason(each.step, site)})"


def _reason(step: Step, site: Site) -> str:
    reasons = {
        "gang": step.gang is not None,
        "checkpoint": step.checkpoint is not None,
        "outputs": bool(step.outputs),
        "retry budget": counts_budgets(step, site),
    }
    return " and ".join(name for name, holds in reasons.items() if holds)
