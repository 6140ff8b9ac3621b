"""What is known about Argo Workflows: facts for the checker, options of compile, versions, the capability table.

3.7 and 4.x read the same fields of nearly everything that is written here: `schedules`, lists of `semaphores`,
expressions with `lastRetry.message` and closures, memoization without outputs. What 4.0 took away (`schedule`, `mutex`,
`semaphore`, `podPriority`) is never written. One field differs: the ConfigMap of a cache has a `key` in 3.7, which its
full schema asks for although nothing reads it, and none in 4.x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gpuflow.engines import EngineFacts, RunObject
from gpuflow.site import Site
from gpuflow.targets.capabilities import NoSupport, PartialSupport, capabilities
from gpuflow.targets.constructs import ENGINE_OPTIONS, POD, RUN
from gpuflow.targets.refusals import Version, version_at
from gpuflow.targets.target import option

EXECUTOR: Final = "executor.resources in the ConfigMap workflow-controller-configmap"
"""Where Argo's controller reads what its own containers ask for."""
LAUNCHER_MEMORY: Final = "128Mi"
"""What `argoexec`, 108 MB, needs to start a container: with 80Mi it hangs, with 96Mi it takes seconds (4.0.2)."""
OBJECTS: Final = (
    # In these Argo's pods report how they ended.
    RunObject("count/workflowtaskresults.argoproj.io", "WorkflowTaskResult", "pod"),
    RunObject("count/workflows.argoproj.io", "Workflow", "run"),
)

FACTS = EngineFacts(
    name="argo",
    title="Argo",
    waits={
        "quota": "Argo keeps the step pending and asks again every 10 s, without using up a retry, until there is room "
        "or the pipeline's deadline passes.",
        "queue": "Kueue holds the pod; Argo shows the step pending, and only the pipeline's deadline ends the wait.",
        "nodes": "The pod stays Pending until a node has room or is added; only the pipeline's deadline ends the wait.",
        "objects": "Finished pods count until they are deleted: set engines.argo.pod_gc in the site, or podGC in a "
        "workflow of your own, or delete old workflows.",
    },
    caps_pods=True,
    writes_active_deadline=True,
    drops_late_runs=True,
    objects_per_run=OBJECTS,
    artifacts=("count/workflowtemplates.argoproj.io", "count/cronworkflows.argoproj.io", OBJECTS[1].quota_key),
    avoids_nodes_of="attempts",
    container_settings=f"set {EXECUTOR}",
    launcher_memory=LAUNCHER_MEMORY,
    supervisor="argo",
)


@dataclass(frozen=True, slots=True)
class ArgoOptions:
    """What may be asked of an Argo artifact."""

    kind: str | None = option(
        "--as", "WorkflowTemplate, Workflow, CronWorkflow, ClusterWorkflowTemplate", metavar="KIND"
    )
    kustomization: bool = option("--kustomization", "also write kustomization.yaml, which lists the compiled files")
    alert_rules: bool = option(
        "--alert-rules", "also write PIPELINE-alerts.yaml, a PrometheusRule, for pipelines with notify"
    )
    semaphores: str | None = option(
        "--semaphores",
        "make GPU steps hold a semaphore of their size (gpuflow argo semaphores prints the ConfigMap)",
        metavar="CONFIGMAP",
    )


OLDEST = (3, 7)
NEWEST = (4, 0)
"""What is written for when the site does not say."""


def version(site: Site) -> Version:
    return version_at(site, "argo") or NEWEST


def for_version(manifest: dict[str, Any], site: Site) -> dict[str, Any]:
    """The manifest for the site's version of Argo; the given one is for 4.x."""
    if version(site) >= NEWEST:
        return manifest
    if "workflowSpec" in manifest["spec"]:
        return {**manifest, "spec": {**manifest["spec"], "workflowSpec": _for_3(manifest["spec"]["workflowSpec"])}}
    return {**manifest, "spec": _for_3(manifest["spec"])}


def _for_3(spec: dict[str, Any]) -> dict[str, Any]:
    return {**spec, "templates": [_with_cache_key(template) for template in spec["templates"]]}


def _with_cache_key(template: dict[str, Any]) -> dict[str, Any]:
    if "memoize" not in template:
        return template
    named = {"configMap": {**template["memoize"]["cache"]["configMap"], "key": ""}}
    return {**template, "memoize": {**template["memoize"], "cache": named}}


_CANNOT = {
    "on_data.with_schedule": NoSupport(
        "never",
        "Argo Workflows starts runs by a schedule alone",
        "keep the schedule, and let an Argo Events sensor submit the template when there is new data",
    ),
    "on_data": NoSupport(
        "not yet",
        "Argo Workflows cannot start on new data; Argo Events can, with an endpoint and credentials that neither "
        "pipeline nor site names",
        "leave on_data out, and write an EventSource and a Sensor that submits the template: "
        'guide for Argo, "Start on new data"',
    ),
    "schedule.catch_up": NoSupport(
        "never",
        "a CronWorkflow runs one missed time at most",
        "start each missed run with `argo submit --from cronwf/NAME --scheduled-time …`, which sets its dates too",
    ),
    "pipeline.timeout": NoSupport(
        "never", "Argo limits the time of pods and of whole runs, not of a sub-pipeline", "give timeouts to its steps"
    ),
    "pipeline.deadline": NoSupport(
        "never",
        "Argo limits the time of pods and of whole runs, not of a sub-pipeline",
        "give timeouts to its steps, or a deadline to the pipeline that uses it",
    ),
    "approval.timeout": NoSupport(
        "never",
        "a suspend node with a duration resumes when the time is up, which is the opposite",
        "approve without a timeout",
    ),
    "queue_timeout": NoSupport(
        "upstream",
        "Argo can limit the time a pod runs, or its waiting and running together, but not the waiting alone",
        "limit the whole run with deadline, or let Kueue end workloads that wait too long",
    ),
    "notify.mail": NoSupport(
        "never",
        "Argo's HTTP template speaks HTTP only, and no pod of a run knows a mail server",
        "notify a webhook that sends mail, or let Alertmanager send it: gpuflow compile --alert-rules writes the rules",
    ),
    "notify.pagerduty": NoSupport(
        "upstream",
        "PagerDuty reads its integration key from the body, and Argo's HTTP template takes Secrets in headers only",
        "let Alertmanager page: gpuflow compile --alert-rules writes the rules; or notify a webhook",
    ),
    "outputs_from": NoSupport(
        "not yet",
        "the program writes its outputs to /airflow/xcom/return.json, and Argo reads one file for each of them",
        "write each output to $GPUFLOW_OUTPUTS/<name>, and remove outputs_from",
    ),
}

_SENT_BY_AGENT = PartialSupport(
    "Argo sends it from a pod of its own, the agent, so it needs room for one small pod in the namespace, and a Role "
    "(gpuflow argo agent prints it); what no pod can tell is in the metric gpuflow_runs (--alert-rules writes rules)"
)

_PARTIAL_SUPPORT = {
    "notify.slack": _SENT_BY_AGENT,
    "notify.webhook": _SENT_BY_AGENT,
    "for_each.dynamic_matrix": PartialSupport(
        "Argo reads numbers in combined lists as floating point: whole numbers above 2^53 lose digits"
    ),
    "params.range": PartialSupport(
        "Argo's parameters are text: min and max are checked when compiling, not when a run is started by hand"
    ),
    "retry.more_memory": PartialSupport(
        "Argo sees only the last attempt: after an OOM the memory grows by the number of attempts so far, and after "
        "any other end the next attempt starts with what is written"
    ),
}

_SUPPORTED_CONSTRUCTS = (
    "approval", "cache", "checkpoint", "checkpoint.scratch", "claims", "deadline", "exit.always", "exit.failure",
    "exit.outputs", "exit.success", "gang", "for_each.list", "for_each.matrix", "for_each.output", "for_each.parallel",
    "for_each.param", "for_each.range", "if_skipped.run", "inputs", "inputs.size", "outputs.artifact",
    "outputs.default", "outputs.size", "outputs.value",
    "parallel", "params", "params.enum", "pipeline", "retry.any", "retry.backoff", "retry.failures",
    "retry.final_exit_codes", "retry.interruptions", "retry.other_node", "retry.retryable_exit_codes", "schedule",
    "schedule.replace", "schedule.start", "schedule.suspended", "schedule.timezone", "script", "spot.fallback_after",
    "text.braces", "timeout", "volumes.new_claim", "when", "when.item",
)  # fmt: skip

# A template has most fields of a pod, and podSpecPatch takes the others.
CAPABILITIES = capabilities(
    carried=(*POD, *RUN, *ENGINE_OPTIONS, *_SUPPORTED_CONSTRUCTS), weaker=_PARTIAL_SUPPORT, cannot=_CANNOT
)
