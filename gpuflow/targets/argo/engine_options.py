"""What a pipeline says to Argo alone (`engines: {argo: …}`) and what the site says about every run, as fields.

Fields of the workflow, of its schedule, and of the templates of steps. The site says which account runs have, when pods
and runs are deleted, and whether programs get a token. `gpuflow site executor` prints the account of Argo's own
containers as manifests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuflow.pod.launcher import role_and_binding
from gpuflow.site import Site
from gpuflow.site.model import Executor
from gpuflow.spec.engine_options import argo
from gpuflow.spec.kubernetes_fields import camel_case
from gpuflow.spec.model import Model
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.targets.argo.facts import FACTS

INSTANCE = "workflows.argoproj.io/controller-instanceid"
"""The label by which a controller knows its own objects."""
TITLE = "workflows.argoproj.io/title"


_SILENT_WORKFLOW, _SILENT_STEP = argo.ArgoWorkflow(), argo.ArgoTemplate()
"""What a pipeline and a step say that have no words for Argo alone."""


def workflow_options(pipeline: Pipeline) -> argo.ArgoWorkflow:
    """What the pipeline says to Argo alone."""
    return (pipeline.engines and pipeline.engines.argo) or _SILENT_WORKFLOW


def template_options(step: Step) -> argo.ArgoTemplate:
    """What a step says to Argo alone."""
    return (step.engines and step.engines.argo) or _SILENT_STEP


def object_labels(pipeline: Pipeline) -> dict[str, str]:
    """Labels on the object and on its runs. A controller with an instance id looks at nothing without it."""
    instance = workflow_options(pipeline).instance_id
    return {INSTANCE: instance} if instance else {}


def object_annotations(pipeline: Pipeline) -> dict[str, str]:
    """Annotations on the object and on its runs."""
    words = workflow_options(pipeline)
    return {**({TITLE: words.title} if words.title else {}), **words.annotations}


def workflow_fields(pipeline: Pipeline, ours: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Fields of the workflow's spec; None for what is not said. `ours`: metrics that the workflow has anyway."""
    words = workflow_options(pipeline)
    return {
        "archiveLogs": words.archive_logs,
        "priority": words.priority,
        "podMetadata": _fields(words.pod_metadata) if words.pod_metadata else None,
        "securityContext": _security(words.security_context) if words.security_context else None,
        "hooks": {name: _hook(hook) for name, hook in words.hooks.items()},
        "metrics": _metrics(words.metrics, ours),
    }


def schedule_fields(pipeline: Pipeline) -> dict[str, Any]:
    """Fields of a CronWorkflow's spec; None for what is not said."""
    history = workflow_options(pipeline).history
    return {
        "successfulJobsHistoryLimit": history.successful if history else None,
        "failedJobsHistoryLimit": history.failed if history else None,
    }


def template_fields(step: Step) -> dict[str, Any]:
    """Fields of the step's template; None for what is not said."""
    words = template_options(step)
    logs = words.archive_logs
    return {"archiveLocation": {"archiveLogs": logs} if logs is not None else None, "metrics": _metrics(words.metrics)}


def _fields(said: Model, **otherwise: Any) -> dict[str, Any]:
    """What is said, under Argo's names. `otherwise`: what Argo spells in another way, by our names."""
    values = {**dict(said), **otherwise}
    return {camel_case(name): value for name, value in values.items() if value is not None and value != {}}


def _security(given: argo.WorkflowSecurity) -> dict[str, Any]:
    profile = given.seccomp_profile
    return _fields(given, seccomp_profile={"type": profile} if profile else None)


def _hook(hook: argo.WorkflowHook) -> dict[str, Any]:
    handed = [{"name": name, "value": value} for name, value in hook.arguments.items()]
    reference = _fields(hook.template_ref, cluster_scope=hook.template_ref.cluster_scope or None)
    return _fields(hook, template_ref=reference, arguments={"parameters": handed} if handed else None)


def _metrics(metrics: Sequence[argo.Metric], ours: Sequence[dict[str, Any]] = ()) -> dict[str, Any] | None:
    found = [*ours, *map(_metric, metrics)]
    return {"prometheus": found} if found else None


def _metric(metric: argo.Metric) -> dict[str, Any]:
    histogram = metric.histogram
    return _fields(
        metric,
        labels=[{"key": key, "value": value} for key, value in metric.labels.items()] or None,
        counter=None if metric.counter is None else {"value": metric.counter},
        # Argo requires `realtime` (MetricsTypes in workflow_types.go, 4.0.2).
        gauge=None if metric.gauge is None else _fields(metric.gauge),
        histogram=None if histogram is None else _fields(histogram, buckets=list(histogram.buckets)),
    )


def run_defaults(pipeline: Pipeline, site: Site) -> dict[str, Any]:
    """Fields of a workflow's spec; None for those that neither the pipeline nor the site asks for."""
    engine = site.engine(FACTS.name)
    own = workflow_options(pipeline)
    return {
        "serviceAccountName": engine.service_account,
        **_executor(engine.executor),
        "podGC": _pod_gc(own.pod_gc or engine.pod_gc),
        "ttlStrategy": _ttl(own.ttl or engine.ttl),
    }


def keeps_token(step: Step, site: Site) -> bool:
    """A step that names an account of its own asks for what the account may do, so it keeps that account's token."""
    return site.engine(FACTS.name).executor is not None and step.service_account is not None


def given_by_argo(step: Step, site: Site) -> dict[str, Any]:
    """What the workflow gives to its own pods: the account, and whether programs get its token."""
    engine = site.engine(FACTS.name)
    account = {} if engine.service_account is None else {"serviceAccountName": engine.service_account}
    bare = engine.executor is not None and step.service_account is None
    return {**account, **({"automountServiceAccountToken": False} if bare else {})}


def _executor(executor: Executor | None) -> dict[str, Any]:
    """Argo refuses the first without the second (setupServiceAccount in workflowpod.go, 4.0.2)."""
    if executor is None:
        return {}
    return {"automountServiceAccountToken": False, "executor": {"serviceAccountName": executor.service_account}}


def _pod_gc(policy: argo.PodGC | None) -> dict[str, Any] | None:
    if policy is None:
        return None
    delay = {} if policy.delay is None else {"deleteDelayDuration": f"{policy.delay.seconds}s"}
    return {"strategy": policy.strategy, **delay}


def _ttl(ttl: argo.Ttl | None) -> dict[str, Any] | None:
    if ttl is None:
        return None
    times = {"secondsAfterSuccess": ttl.success, "secondsAfterFailure": ttl.failure}
    return {field: time.seconds for field, time in times.items() if time is not None} or None


EXECUTOR_RULES = [{"apiGroups": ["argoproj.io"], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]}]
"""All that Argo's `wait` asks of the API server."""
TOKEN_NAME = "workflows.argoproj.io/service-account-token.name"
"""Where Argo reads which Secret holds an account's token (TokenNameForServiceAccount in util/secrets, 4.0.2)."""


def account_manifests(executor: Executor, namespace: str | None) -> list[dict[str, Any]]:
    """The account, the Secret that Kubernetes fills with its token, and what it may do."""
    name, secret = executor.service_account, executor.token_secret
    place = {} if namespace is None else {"namespace": namespace}
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, **place, "annotations": {TOKEN_NAME: secret}},
            "automountServiceAccountToken": False,
        },
        token_of(name, secret, place),
        *role_and_binding(name, name, namespace, EXECUTOR_RULES),
    ]


def token_of(account: str, secret: str, place: dict[str, str]) -> dict[str, Any]:
    """The Secret that Kubernetes fills with an account's token. `place`: its namespace."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret, **place, "annotations": {"kubernetes.io/service-account.name": account}},
        "type": "kubernetes.io/service-account-token",
    }
