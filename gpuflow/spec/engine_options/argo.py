"""Options of Argo: what a workflow and a template take that is not the pipeline's to decide."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator

from gpuflow.spec.engine_options.base import EngineOptions
from gpuflow.spec.kubernetes_fields import camel_case
from gpuflow.spec.model import Bool, DurationField, Int32, Model, Natural, Number, Str, exactly_one, problem
from gpuflow.spec.names import LabelKey, LabelValue, ObjectName, PodLabelKey

_METRIC = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REALTIME = re.compile(r"\{\{\s*(workflow\.)?duration\s*\}\}")
"""What Argo computes while a workflow runs (realTimeScope in operator.go and steps.go, 4.0.2)."""
OUR_METRICS = "gpuflow_"
"""How the metrics of `notify` begin."""


class PodGC(Model):
    """When Argo deletes finished pods."""

    strategy: Literal["OnPodSuccess", "OnPodCompletion", "OnWorkflowSuccess", "OnWorkflowCompletion"] = "OnPodSuccess"
    """As Argo calls it. The two on success keep failed pods."""
    delay: DurationField | None = None
    """How long a pod stays before it is deleted, so that its logs can be read."""


class Ttl(Model):
    """How long Argo keeps finished runs; what is not given is kept."""

    success: DurationField | None = None
    """After a run has succeeded."""
    failure: DurationField | None = None
    """After a run has failed."""


class PodMetadata(Model):
    """Labels and annotations that Argo puts on every pod of the workflow, its own included."""

    labels: dict[PodLabelKey, LabelValue] = {}
    """Labels. For the pods of steps alone, and for every engine, use the pipeline's own `labels`."""
    annotations: dict[LabelKey, Str] = {}
    """Annotations. For the pods of steps alone, and for every engine, use `defaults: {annotations: …}`."""

    @model_validator(mode="after")
    def _not_of_kueue(self) -> PodMetadata:
        for key in self.labels:
            if key.startswith("kueue.x-k8s.io/"):
                raise problem("GF351", f'"{key}" is the queue of a pod', "write queue: …", at=("labels", key))
        return self


class TemplateRef(Model):
    """A template of a WorkflowTemplate that the cluster has."""

    name: ObjectName
    """The WorkflowTemplate."""
    template: Str
    """The template in it."""
    cluster_scope: Bool = False
    """It is a ClusterWorkflowTemplate."""


class WorkflowHook(Model):
    """What Argo runs beside the workflow when its expression becomes true, once."""

    expression: Str
    """In Argo's own expression language, for example workflow.status == "Running"."""
    template_ref: TemplateRef
    """What runs."""
    arguments: dict[Str, Str] = {}
    """Parameters of that template, in Argo's own words, for example "{{workflow.name}}"."""


class Gauge(Model):
    """A value that goes up and down."""

    value: Str
    """In Argo's own words, for example "{{workflow.duration}}"."""
    realtime: Bool = False
    """Emit it while the workflow runs; only durations can be."""
    operation: Literal["Set", "Add", "Sub"] | None = None
    """What to do with the value; default: Set."""


class Histogram(Model):
    """Observations, counted in buckets."""

    value: Str
    """In Argo's own words, for example "{{workflow.duration}}"."""
    buckets: tuple[Number, ...]
    """Upper bounds."""


class Metric(Model):
    """A Prometheus metric that Argo's controller emits."""

    name: Str
    """Its name; Argo puts argo_workflows_ before it."""
    help: Str
    """What it says."""
    labels: dict[Str, Str] = {}
    """Its labels; values may be Argo's own words."""
    when: Str | None = None
    """Emit it only if this holds, for example "{{status}} == Failed"."""
    counter: Str | None = None
    """By how much a counter grows, for example "1"."""
    gauge: Gauge | None = None
    """A gauge."""
    histogram: Histogram | None = None
    """A histogram."""

    _one_of_them = exactly_one("counter", "gauge", "histogram", what="a metric")

    @model_validator(mode="after")
    def _check_consistency(self) -> Metric:
        if not _METRIC.fullmatch(self.name):
            text = f'"{self.name}" is not the name of a metric'
            raise problem("GF131", text, "use letters, digits and _", at=("name",))
        if self.name.startswith(OUR_METRICS):
            text = f'the metric "{self.name}" would be mixed up with one that gpuflow makes for notify'
            raise problem("GF357", text, f"choose a name without {OUR_METRICS}", at=("name",))
        for label in self.labels:
            if not _METRIC.fullmatch(label):
                text = f'"{label}" is not the label of a metric: Argo would not emit it'
                raise problem("GF357", text, "use letters, digits and _", at=("labels", label))
        self._says_something()
        return self

    def _says_something(self) -> None:
        """What Argo demands of a value. It finds out while the workflow runs, and leaves the metric out."""
        gauge, measured = self.gauge, self.gauge or self.histogram
        value = measured.value if measured else self.counter
        place = ("gauge" if gauge else "histogram", "value") if measured else ("counter",)
        if not value:
            raise problem("GF357", f'the metric "{self.name}" has no value', 'for example "1"', at=place)
        if not self.help:
            raise problem("GF357", f'Argo emits no metric without help, and "{self.name}" has none', at=("help",))
        if gauge is not None and gauge.realtime and not _REALTIME.fullmatch(gauge.value):
            text = f'"{gauge.value[:60]}" is not known while a run goes on, and realtime asks for that'
            hint = 'write "{{workflow.duration}}", "{{duration}}" in a step, or leave realtime out'
            raise problem("GF357", text, hint, at=place)


class History(Model):
    """How many finished runs of a schedule Argo keeps."""

    successful: Natural | None = None
    """Of those that succeeded; Argo's default: 3."""
    failed: Natural | None = None
    """Of those that failed; Argo's default: 1."""


class WorkflowSecurity(Model):
    """The securityContext of pods that gpuflow does not write: the agent of HTTP templates, and what hooks run."""

    run_as_user: Natural | None = None
    """User id."""
    run_as_group: Natural | None = None
    """Group id."""
    fs_group: Natural | None = None
    """Group that owns volumes."""
    run_as_non_root: Bool | None = None
    """Refuse to start as root."""
    seccomp_profile: Literal["RuntimeDefault", "Unconfined"] | None = None
    """The seccomp profile."""


def _both_spellings(hints: Mapping[str, str]) -> dict[str, str]:
    """Words as Hera spells them, and as Argo does: with_items, withItems."""
    return {spelled: hint for word, hint in hints.items() for spelled in (word, camel_case(word))}


_POD = "write kubernetes: {…} in the step or in defaults"
_FIELD_HINTS = {
    "executor": "the site says it: engines.argo.executor",
    "starting_deadline": "the site says it: engines.argo.starting_deadline",
    "startingDeadlineSeconds": "the site says it: engines.argo.starting_deadline",
    "synchronization": "use compile --semaphores, or queue: with Kueue",
    **_both_spellings({"pod_spec_patch": "write kubernetes: {…} in the step, which the checker sees"}),
}
_OF_THE_WORKFLOW = {
    **_FIELD_HINTS,
    **{
        word: f"it is about the whole run: write engines: {{argo: {{{word}: …}}}} in the pipeline"
        for word in ("pod_gc", "ttl", "priority", "instance_id", "title", "pod_metadata", "hooks", "history")
    },
    "podGC": "it is about the whole run: write engines: {argo: {pod_gc: …}} in the pipeline",
    "metadata": "write labels: {…} and annotations: {…} in the step",
}
"""Words of Argo that a step does not take."""
_POD_WORDS = {
    **dict.fromkeys(
        ("node_selector", "nodeSelector", "tolerations", "affinity", "scheduler_name", "schedulerName",
         "security_context", "securityContext", "host_aliases", "hostAliases"),
        "write kubernetes: {…} or security: {…} in the step",
    ),
    "volumes": "write volumes: {…} in the step",
    "env": "write env: {…} in the step",
}  # fmt: skip


class ArgoTemplate(EngineOptions):
    """What Argo takes for the template of a step."""

    TITLE: ClassVar[str] = "Argo"
    OURS: ClassVar[Mapping[str, str]] = {
        **_both_spellings(
            {
                "retry_strategy": "write retry: …",
                "active_deadline_seconds": "write timeout: …",
                "with_items": "write for_each: {…}",
                "with_param": "write for_each: {…}",
                "init_containers": "write init_containers: […] in the step",
            }
        ),
        "timeout": "write timeout: … in the step",
        "container": "write command: […]",
        "script": "write script: … in the step",
        "image": "write image: … in the step",
        "resources": "write cpu, memory and gpu in the step",
        "parallelism": "write parallel: …",
        "memoize": "write cache: true",
        "when": "write when: … in the step",
        "depends": "write needs: […]",
        "dependencies": "write needs: […]",
        "sidecars": "write sidecars: […] in the step",
        "service_account": "write service_account: … in the step",
        "serviceAccountName": "write service_account: … in the step",
        **_POD_WORDS,
    }
    ELSEWHERE: ClassVar[Mapping[str, str]] = _OF_THE_WORKFLOW

    archive_logs: Bool | None = None
    """Keep the step's logs in the artifact repository; default: what the workflow says."""
    metrics: tuple[Metric, ...] = ()
    """Prometheus metrics of the step."""


class ArgoWorkflow(EngineOptions):
    """What Argo takes for the workflow."""

    TITLE: ClassVar[str] = "Argo"
    OURS: ClassVar[Mapping[str, str]] = {
        "parallelism": "write parallel: …",
        **_both_spellings(
            {
                "active_deadline_seconds": "write deadline: …",
                "retry_strategy": "write retry: … in the step or in defaults",
                "on_exit": "write exit: {…}",
                "concurrency_policy": "write schedule: {cron: …, concurrency: …}",
                "volume_claim_templates": "write claims: {…}",
                "node_selector": _POD,
                "scheduler_name": _POD,
                "image_pull_secrets": "write image_pull_secrets: […] in the step or in defaults",
                "pod_priority_class_name": "write priority: … in the step or in defaults",
            }
        ),
        "arguments": "write params: {…}",
        "entrypoint": "write steps: {…}",
        "templates": "write steps: {…}",
        "schedule": "write schedule: …",
        "schedules": "write schedule: …",
        "timezone": "write schedule: {cron: …, timezone: …}",
        "suspend": "write schedule: {cron: …, suspended: true}",
        "volumes": "write volumes: {…} in the step or in defaults",
        "tolerations": _POD,
        "affinity": _POD,
        "service_account": "write service_account: … in the step or in defaults",
        "serviceAccountName": "write service_account: … in the step or in defaults",
        "labels": "write labels: {…} in the pipeline",
    }
    ELSEWHERE: ClassVar[Mapping[str, str]] = _FIELD_HINTS
    OURS_INSIDE: ClassVar[Mapping[str, str]] = ArgoTemplate.OURS
    SPELLED: ClassVar[Mapping[str, str]] = {
        "podGC": "pod_gc",
        "ttlStrategy": "ttl",
        "ttl_strategy": "ttl",
        "archiveLogs": "archive_logs",
        "instanceID": "instance_id",
        "podMetadata": "pod_metadata",
    }

    pod_gc: PodGC | None = None
    """When finished pods are deleted; default: what the site says."""
    ttl: Ttl | None = None
    """How long finished runs are kept; default: what the site says."""
    archive_logs: Bool | None = None
    """Keep the logs of every step in the artifact repository; default: what the controller says."""
    priority: Int32 | None = None
    """Which runs the controller starts first, when it limits how many run; higher first."""
    instance_id: LabelValue | None = None
    """The controller that looks after the runs, where there are several (its instanceID)."""
    title: Str | None = None
    """The title in the user interface."""
    annotations: dict[LabelKey, Str] = {}
    """Annotations on the object and on its runs."""
    pod_metadata: PodMetadata | None = None
    """Labels and annotations on every pod of a run."""
    hooks: dict[Str, WorkflowHook] = {}
    """Templates of the cluster that run beside the workflow, by name."""
    metrics: tuple[Metric, ...] = ()
    """Prometheus metrics of the run."""
    history: History | None = None
    """How many finished runs of a schedule are kept."""
    security_context: WorkflowSecurity | None = None
    """For pods that gpuflow does not write; steps have `security`."""

    @model_validator(mode="after")
    def _runs(self) -> ArgoWorkflow:
        if self.instance_id == "":
            raise problem("GF357", "an empty instance_id names no controller", "leave it out", at=("instance_id",))
        for name, hook in self.hooks.items():
            if not hook.expression.strip():
                text, hint = (
                    f'Argo refuses the hook "{name}": it has no expression',
                    'for example workflow.status == "Running"',
                )
                raise problem("GF357", text, hint, at=("hooks", name, "expression"))
        if "exit" in self.hooks:
            raise problem("GF351", 'the hook "exit" is what runs at the end', "write exit: {…}", at=("hooks", "exit"))
        return self
