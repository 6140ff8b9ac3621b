"""Which construct answers for each field of the spec, so that no field is carried, or dropped, by accident.

A field whose name is a construct (`Retry.backoff` is `retry.backoff`) needs no entry here. Any other field is part of
another construct, or has a reason why every target carries it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from gpuflow.spec.container import ConfigMapKey, SecretKey
from gpuflow.spec.engine_options import PipelineEngines, StepEngines, argo
from gpuflow.spec.engine_options.airflow import AirflowDag, AirflowTask, Teardown
from gpuflow.spec.engine_options.base import Imported
from gpuflow.spec.engine_options.kubeflow import KubeflowPipeline, KubeflowTask
from gpuflow.spec.fan_out import Range
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.constructs import PIPELINE_FIELDS, STEP_FIELDS, VOCABULARY

PREFIXES = {
    "Pipeline": "", "Step": "", "Settings": "", "Schedule": "schedule.", "Param": "params.", "Retry": "retry.",
    "Spot": "spot.", "Priority": "priority.", "Topology": "topology.", "Security": "security.",
    "Kubernetes": "kubernetes.", "Volume": "volumes.", "Input": "inputs.",
    "Output": "outputs.", "Approval": "approval.", "Gpu": "gpu.",
    "Alert": "notify.",
}  # fmt: skip
"""What the names of constructs that are fields of a model begin with."""
_NOT_HERE: dict[str, frozenset[str]] = {
    "Pipeline": STEP_FIELDS - set(PIPELINE_FIELDS),
    "Step": frozenset(PIPELINE_FIELDS),
    "Settings": frozenset(PIPELINE_FIELDS),
}
"""Constructs of another model: a field of the same name here would be asked about by nobody."""


def _fields(*models: type[BaseModel]) -> tuple[str, ...]:
    return tuple(f"{model.__name__}.{name}" for model in models for name in model.model_fields)


PART_OF: dict[str, tuple[str, ...]] = {
    "params": ("Param.type", "Param.default", "Param.required", "Step.params"),
    "params.range": ("Param.min", "Param.max"),
    "schedule": ("Schedule.cron",),
    "schedule.replace": ("Schedule.concurrency",),
    "claims": ("RunClaim.size", "RunClaim.storage_class", "RunClaim.access"),
    "exit.always": ("Pipeline.exit", "Step.on"),
    "for_each.list": ("Step.for_each",),
    "for_each.parallel": ("Step.parallel",),
    "if_skipped.run": ("Step.if_skipped",),
    "pipeline": ("Pipeline.outputs",),
    "notify.slack": (
        "Pipeline.notify", "Alert.on", "Slack.channel", "Slack.authorization", "Slack.url", "Slack.connection",
        "SecretValue.secret", "SecretValue.key",
    ),
    "notify.webhook": ("Webhook.url", "Webhook.headers", "Webhook.connection"),
    "notify.pagerduty": ("PagerDuty.routing_key", "PagerDuty.connection", "PagerDuty.severity"),
    "notify.mail": ("Mail.to", "Mail.connection"),
    "outputs.value": ("Step.outputs", "Output.type", "Output.path"),
    "outputs.artifact": ("Output.uri", "Output.kind"),
    "inputs": ("Input.output", "Input.uri", "Input.type", "Input.digest", "Input.claim", "Input.path"),
    "script": ("Script.run", "Script.interpreter"),
    "approval": ("Approval.message",),
    "env.secret": ("Settings.env", "Step.env", "SecretKey.secret", "SecretKey.key", "SecretKey.optional"),
    "env.config_map": ("ConfigMapKey.config_map", "ConfigMapKey.key", "ConfigMapKey.optional"),
    "for_each.range": ("Range.start", "Range.stop", "Range.step"),
    "env_from": ("EnvFrom.secret", "EnvFrom.config_map", "EnvFrom.prefix", "EnvFrom.optional"),
    "volumes.claim": ("Settings.volumes", "Step.volumes", "Volume.read_only"),
    "volumes.config_map": ("Volume.optional",),
    "volumes.items": ("FileItem.path", "FileItem.mode"),
    "volumes.host_path": ("HostPath.path", "HostPath.type"),
    "volumes.nfs": ("Nfs.server", "Nfs.path"),
    "volumes.csi": ("Csi.driver", "Csi.attributes", "Csi.fs_type", "Csi.secret"),
    "volumes.ephemeral": (
        "Ephemeral.size", "Ephemeral.storage_class", "Ephemeral.access", "Ephemeral.labels", "Ephemeral.annotations",
    ),
    "volumes.projected": (
        "Projection.token", "Projection.secret", "Projection.config_map", "Projection.downward_api",
        "Projection.items", "Projection.optional", "ServiceAccountToken.path", "ServiceAccountToken.audience",
        "ServiceAccountToken.expires",
    ),
    "lifecycle": ("Lifecycle.post_start", "Lifecycle.pre_stop", "Hook.command", "Hook.http", "Hook.sleep"),
    "kubernetes.dns_config": ("DnsConfig.nameservers", "DnsConfig.searches", "DnsConfig.options"),
    "kubernetes.topology_spread": (
        "TopologySpread.topology_key", "TopologySpread.max_skew", "TopologySpread.when_unsatisfiable",
        "TopologySpread.match_labels", "TopologySpread.min_domains", "TopologySpread.node_affinity_policy",
        "TopologySpread.node_taints_policy", "TopologySpread.match_label_keys",
    ),
    "security.identity": ("Settings.security", "Step.security", "Security.user", "Security.group", "Security.fs_group"),
    "priority.pod": ("Settings.priority", "Step.priority"),
    "spot": ("Spot.mode",),
    "topology.same": ("Settings.topology", "Step.topology"),
    "retry.any": ("Settings.retry", "Step.retry"),
    "retry.backoff": ("Backoff.start", "Backoff.factor", "Backoff.max"),
    "retry.more_memory": ("MoreMemory.factor", "MoreMemory.max"),
    "kubernetes.resources": ("Settings.kubernetes", "Step.kubernetes"),
    "kubernetes.tolerations": (
        "Toleration.key", "Toleration.operator", "Toleration.value", "Toleration.effect",
        "Toleration.toleration_seconds",
    ),
    "sidecars": (
        "Helper.name", "Helper.image", "Helper.command", "Helper.args", "Helper.env", "Helper.env_from",
        "Helper.volumes", "Helper.cpu", "Helper.memory", "Helper.ports", "Helper.probes", "Helper.lifecycle",
    ),
    "probes": (
        "Probes.liveness", "Probes.readiness", "Probes.startup", "Probe.command", "Probe.http", "Probe.tcp",
        "Probe.delay", "Probe.period", "Probe.timeout", "Probe.failures", "HttpProbe.path", "HttpProbe.port",
    ),
    "gpu": ("Gpu.model", "Gpu.memory", "Gpu.count"),
    "mig": ("Mig.profile", "Mig.model", "Mig.count"),
    "shared_gpu": ("SharedGpu.model", "SharedGpu.by", "SharedGpu.count"),
    "device_claim": ("DeviceClaim.claim", "DeviceClaim.template", "DeviceClaim.request"),
    "gang": (
        "Gang.workers", "Gang.leader", "Gang.rendezvous", "Rendezvous.framework", "Rendezvous.port",
        "Rendezvous.processes_per_worker", "Leader.command", "Leader.args", "Leader.script", "Leader.env",
        "Leader.cpu", "Leader.memory", "Leader.ephemeral_storage", "Leader.gpu", "Leader.shm", "Leader.kubernetes",
    ),
    "checkpoint": (
        "Checkpoint.path", "Checkpoint.store", "Checkpoint.every", "Checkpoint.keep", "Checkpoint.grace",
        "Checkpoint.resume_env", "Checkpoint.sharded",
    ),
    "checkpoint.scratch": ("Checkpoint.scratch",),
    # An engine takes each of its own words: its tests compile all of them.
    "engines.airflow": (
        "Pipeline.engines", "Step.engines", *_fields(PipelineEngines, AirflowDag, AirflowTask, Teardown, Imported),
    ),
    "engines.argo": _fields(
        StepEngines, argo.ArgoWorkflow, argo.ArgoTemplate, argo.PodGC, argo.Ttl, argo.PodMetadata, argo.TemplateRef,
        argo.WorkflowHook, argo.Metric, argo.Gauge, argo.Histogram, argo.History, argo.WorkflowSecurity,
    ),
    "engines.kubeflow": _fields(KubeflowPipeline, KubeflowTask),
}  # fmt: skip
"""Fields that are parts of a construct: whoever carries it carries them, or refuses the part by name."""

NEEDS_NONE: dict[str, tuple[str, ...]] = {
    "it says which document this is": ("Pipeline.apiVersion", "Pipeline.kind", "Pipeline.name"),
    "a text for readers, which every target has a place for": (
        "Pipeline.description", "Param.description", "Step.description",
    ),
    "it decides what is printed, and nothing of what is compiled": ("Pipeline.silence",),
    "every target labels its objects and pods": ("Pipeline.labels", "Settings.labels", "Step.labels"),
    "its fields are asked for in the steps that take them": ("Pipeline.defaults",),
    "a pipeline without steps, order, image or command is none": (
        "Pipeline.steps", "Step.needs", "Settings.image", "Step.image", "Step.command", "Step.args",
    ),
    "every engine runs pods that ask for cpu and memory": (
        "Settings.cpu", "Step.cpu", "Settings.memory", "Step.memory", "Amount.request", "Amount.limit",
    ),
}  # fmt: skip
"""Fields that no target may fail to carry, by the reason."""


SPEC = (Pipeline, SecretKey, ConfigMapKey, Range)
"""Where the models of a document begin; the last three stand behind fields that also take other things."""


def unanswered(models: Iterable[type[BaseModel]] = SPEC, vocabulary: Iterable[str] = VOCABULARY) -> list[str]:
    """The fields of models, and of the models inside them, that neither a construct nor a reason answers for."""
    constructs = set(vocabulary)
    known = {field for fields in (*PART_OF.values(), *NEEDS_NONE.values()) for field in fields}
    found = []
    for each in models_in(models):
        prefix = PREFIXES.get(each.__name__)
        for name in each.model_fields:
            elsewhere = name in _NOT_HERE.get(each.__name__, ())
            by_name = prefix is not None and f"{prefix}{name}" in constructs and not elsewhere
            if not by_name and f"{each.__name__}.{name}" not in known:
                found.append(f"{each.__name__}.{name}")
    return found


def models_in(models: Iterable[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    """Models and every model that their fields hold, each once."""
    seen: dict[type[BaseModel], None] = {}
    waiting = list(models)
    while waiting:
        each = waiting.pop()
        if each not in seen:
            seen[each] = None
            waiting += [inner for field in each.model_fields.values() for inner in _inside(field.annotation)]
    return iter(seen)


def _inside(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _inside(argument)
