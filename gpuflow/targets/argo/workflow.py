"""The workflow object around the templates, compared with Hera's models, and how large a run's object can become.

What went into a manifest must come out of Hera's models; they drop fields they do not know without a word.

Argo keeps the state of every node in the Workflow object. The controller refuses objects over 1 MiB as JSON: spec, and
status with one entry per node. It packs the entries when they do not fit, and gives up when that is not enough, unless
an administrator has given it a database for them. The figures per node are the means over the statuses in Argo's own
test data, rounded up; they leave out long arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hera.workflows import models

from gpuflow.core.date_format import TIMESTAMP, format_date
from gpuflow.core.emit import emit
from gpuflow.core.errors import Finding, Where, did_you_mean, fail
from gpuflow.core.printable import comment
from gpuflow.plan import Plan
from gpuflow.pod.build import LABEL
from gpuflow.pod.volumes import run_claim_spec, run_claim_volume
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.argo import engine_options
from gpuflow.targets.argo.alerts import run_metrics, sent_by_agent
from gpuflow.targets.argo.facts import FACTS, ArgoOptions, for_version
from gpuflow.targets.argo.graph import EXIT, MAIN, Templates
from gpuflow.targets.argo.references import MANUAL_RUN_NOTE, RunFacts, without_schedule
from gpuflow.targets.argo.retries import most_retries
from gpuflow.targets.argo.shared_templates import share_templates
from gpuflow.targets.argo.templates import semaphore_remark
from gpuflow.targets.cron import go_cron
from gpuflow.targets.target import Artifact, Request, header

KINDS: dict[str, Any] = {
    "WorkflowTemplate": models.WorkflowTemplate,
    "Workflow": models.Workflow,
    "CronWorkflow": models.CronWorkflow,
    "ClusterWorkflowTemplate": models.ClusterWorkflowTemplate,
}


def check_against_hera(manifest: dict[str, Any]) -> None:
    """Hera drops fields it does not know in silence, so a loss stops the compilation.

    gpuflow writes none of them itself; a patch may hold fields of a Kubernetes that is newer than Argo's types.
    """
    model = KINDS[manifest["kind"]].model_validate(manifest)
    lost = differences(manifest, model.model_dump(mode="json", by_alias=True, exclude_none=True))
    if lost:
        text = f"argo: the types of Argo lose or change {', '.join(lost[:5])}"
        raise fail("GF301", text, hint="take these fields out of kubernetes.merge")


def differences(given: Any, kept: Any, path: str = "") -> list[str]:
    """Paths at which `kept` holds something else than was given."""
    if given == kept:
        return []
    if isinstance(given, dict) and isinstance(kept, dict):
        return [found for key, value in given.items() for found in differences(value, kept.get(key), f"{path}.{key}")]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [found for i, value in enumerate(given) for found in differences(value, kept[i], f"{path}[{i}]")]
    return [f"{path}: {given!r} became {kept!r}"]


MAX_WORKFLOW_SIZE = 1 << 20
"""The controller's MAX_WORKFLOW_SIZE when nobody has changed it."""
POD_BYTES = 700
"""A node that runs a pod, with a short argument or two."""
GROUP_BYTES = 500
"""A node that stands for others: a retried step, a loop, a DAG."""
COMPRESSION_RATIO = 0.15
"""What is left of the entries after gzip and base64."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes of a run: those that run pods, those that stand for others, and the pods that retries may add."""

    pods: int = 0
    groups: int = 0
    retries: int = 0

    def __add__(self, other: Nodes) -> Nodes:
        return Nodes(self.pods + other.pods, self.groups + other.groups, self.retries + other.retries)

    def times(self, copies: int) -> Nodes:
        return Nodes(self.pods * copies, self.groups * copies, self.retries * copies)

    @property
    def bytes_without_retries(self) -> int:
        """About how many bytes they take in the status when nothing is retried."""
        return self.pods * POD_BYTES + self.groups * GROUP_BYTES

    @property
    def max_bytes(self) -> int:
        """The same when every retry is used."""
        return self.bytes_without_retries + self.retries * POD_BYTES


def nodes_of(plan: Plan, within: str = "") -> Nodes:
    """The nodes of a run, or of a sub-pipeline. A loop over something only the run knows counts once."""
    total = Nodes(groups=1)
    for each in plan.steps_by_parent[within]:
        counted = each.kind == "container" and each.supervision.counts_budgets
        retries = most_retries(each.step.retry, counted=counted) if each.kind == "container" else 0
        one = nodes_of(plan, each.name) if each.kind == "pipeline" else Nodes(1, 1 if retries else 0, retries)
        if each.step.for_each:
            one = Nodes(groups=1) + one.times(each.copies if isinstance(each.copies, int) else 1)
        total += one
    return total


def size_findings(plan: Plan, manifest: Mapping[str, Any]) -> tuple[Finding, ...]:
    """A warning when a run's object could pass what Argo's controller keeps."""
    written = len(json.dumps(manifest, separators=(",", ":"), ensure_ascii=False).encode())
    nodes = nodes_of(plan)
    if written + nodes.max_bytes <= MAX_WORKFLOW_SIZE:
        return ()
    size = _mib(written + nodes.bytes_without_retries)
    text = f"a run of {nodes.pods + nodes.groups:,} nodes takes about {size} of status and templates"
    if nodes.retries:
        text += f", {_mib(written + nodes.max_bytes)} when every retry is used"
    text += f"; Argo stores at most {_mib(MAX_WORKFLOW_SIZE)}"
    packed = written + int(nodes.max_bytes * COMPRESSION_RATIO)
    if packed <= MAX_WORKFLOW_SIZE:
        hint = f"Argo compresses the node status if needed, here to about {_mib(packed)}; you need to do nothing"
    else:
        hint = (
            f"even compressed it would take about {_mib(packed)}: split the pipeline, or let the controller "
            "store node status in a database (persistence.nodeStatusOffLoad)"
        )
    return (Finding("GF311", text, Where(plan.pipeline.source.file), hint, "warning"),)


def _mib(size: int) -> str:
    return f"{size / MAX_WORKFLOW_SIZE:.1f} MiB" if size >= MAX_WORKFLOW_SIZE / 10 else f"{size / 1024:.0f} KiB"


POLICIES = {"allow": "Allow", "forbid": "Forbid", "replace": "Replace"}
TEMPLATES = ("WorkflowTemplate", "ClusterWorkflowTemplate")
"""Kinds whose own labels their runs do not get: each run is another object."""


def compile_request(request: Request) -> Artifact:
    """The manifest as YAML, with what a reader should know above it."""
    manifest = for_version(build(request), request.site)
    waiting = semaphore_remark(request.pipeline, request.site, request.options_as(ArgoOptions).semaphores)
    by_hand = [f"Dates of the run are {MANUAL_RUN_NOTE}." for _ in without_schedule(request)]
    findings = size_findings(request.plan, manifest)
    return Artifact(
        f"{request.pipeline.name}.yaml", comment((*header(request), *by_hand, *waiting)) + emit(manifest), findings
    )


def build(request: Request) -> dict[str, Any]:
    """The manifest as plain data, exactly what Hera's own model of it says."""
    pipeline = request.pipeline
    kind = request.options_as(ArgoOptions).kind or ("CronWorkflow" if pipeline.schedule else "WorkflowTemplate")
    if kind not in KINDS:
        text = f'"{kind}" is not a kind of Argo object'
        raise fail("GF903", text, where=Where(pipeline.source.file), hint=did_you_mean(kind, KINDS))
    labels = {**pipeline.labels, f"{LABEL}pipeline": pipeline.name, **engine_options.object_labels(pipeline)}
    annotations = own = engine_options.object_annotations(pipeline)
    metadata: dict[str, Any] = {"name": pipeline.name, "labels": labels}
    if request.namespace is not None and kind != "ClusterWorkflowTemplate":
        metadata["namespace"] = request.namespace
    if kind == "Workflow":
        metadata["generateName"] = metadata.pop("name") + "-"
    if pipeline.description is not None:
        annotations = {"workflows.argoproj.io/description": pipeline.description, **annotations}
    if annotations:
        metadata["annotations"] = annotations
    spec = _workflow_spec(request)
    # What each run gets of the object's metadata: Argo copies none of it by itself.
    of_runs = {"labels": labels, "annotations": own} if own else {"labels": labels}
    if kind == "CronWorkflow":
        spec = _cron_spec(request, spec, of_runs)
    elif kind in TEMPLATES:
        spec = {"workflowMetadata": of_runs, **spec}
    manifest = {"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
    check_against_hera(manifest)
    return manifest


def _workflow_spec(request: Request) -> dict[str, Any]:
    pipeline = request.pipeline
    templates = Templates(request.plan, request.options_as(ArgoOptions).semaphores, RunFacts(pipeline.schedule))
    templates.dag(None, MAIN)
    has_exit = bool(pipeline.exit or sent_by_agent(pipeline, request.site))
    if has_exit:
        templates.exit()
    spec: dict[str, Any] = {
        "entrypoint": MAIN,
        "onExit": EXIT if has_exit else None,
        "arguments": _arguments(pipeline),
        "parallelism": pipeline.parallel,
        "activeDeadlineSeconds": pipeline.deadline.seconds if pipeline.deadline else None,
        **engine_options.run_defaults(pipeline, request.site),
        **engine_options.workflow_fields(pipeline, run_metrics(pipeline, request.site)),
        "volumeClaimTemplates": [
            {"metadata": {"name": run_claim_volume(name)}, "spec": run_claim_spec(claim)}
            for name, claim in pipeline.claims.items()
        ],
        "volumeClaimGC": {"strategy": "OnWorkflowCompletion"} if pipeline.claims else None,
        "templates": share_templates(templates.found, (MAIN, EXIT)),
    }
    return {key: value for key, value in spec.items() if value not in (None, [], {})}


def _arguments(pipeline: Pipeline) -> dict[str, Any] | None:
    parameters = []
    for name, param in pipeline.params.items():
        entry: dict[str, Any] = {"name": name}
        if not param.required:
            entry["value"] = text_of(param.default)
        if param.enum is not None:
            entry["enum"] = [text_of(value) for value in param.enum]
        if param.description is not None:
            entry["description"] = param.description
        parameters.append(entry)
    return {"parameters": parameters} if parameters else None


def _cron_spec(request: Request, spec: dict[str, Any], of_runs: dict[str, Any]) -> dict[str, Any]:
    pipeline, schedule = request.pipeline, request.pipeline.schedule
    late = request.site.engine(FACTS.name).starting_deadline
    if schedule is None:
        text = "a CronWorkflow needs a schedule"
        raise fail("GF903", text, where=Where(pipeline.source.file), hint="add schedule: to the pipeline")
    cron: dict[str, Any] = {
        "schedules": [go_cron(schedule.cron)],
        "timezone": schedule.timezone,
        "when": f"{{{{=now() >= date('{format_date(schedule.begins, TIMESTAMP)}')}}}}"
        if schedule.begins is not None
        else None,
        "concurrencyPolicy": POLICIES[schedule.concurrency],
        "startingDeadlineSeconds": late.seconds if late is not None else None,
        "suspend": True if schedule.suspended else None,
        **engine_options.schedule_fields(pipeline),
        "workflowMetadata": of_runs,
        "workflowSpec": spec,
    }
    return {key: value for key, value in cron.items() if value is not None}
