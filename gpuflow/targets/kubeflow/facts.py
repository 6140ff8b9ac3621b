"""What is known about Kubeflow Pipelines: facts for the checker, options of compile, versions, the capability table.

KFP runs its pods through Argo Workflows. The table is for KFP 2.17. What is written for 2.17 is read by later ones too.
One thing is new after 2.17: containers beside the step's own (`initContainers` of the executor config, also as native
sidecars). An older backend drops them without a word, so they are written only where the site says that its KFP is
newer.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuflow.engines import EngineFacts
from gpuflow.site import Site
from gpuflow.targets.argo.facts import EXECUTOR, LAUNCHER_MEMORY, OBJECTS
from gpuflow.targets.capabilities import Capabilities, Gap, NoSupport, PartialSupport, capabilities
from gpuflow.targets.constructs import ENGINE_OPTIONS
from gpuflow.targets.refusals import Version, version_at
from gpuflow.targets.target import option

FACTS = EngineFacts(
    name="kubeflow",
    title="Kubeflow",
    waits={
        "quota": "Kubeflow runs on Argo: the step stays pending, without using up a retry, until there is room or the "
        "run's deadline passes.",
        "queue": "Kueue holds the pod; the task shows as pending, and only the run's deadline ends the wait.",
        "nodes": "The pod stays Pending until a node has room or is added; only the run's deadline ends the wait.",
        "objects": "Finished pods count until they are deleted, with the run or by podGC in Argo's workflowDefaults.",
    },
    keeps_parallel=False,
    most_runs=10,  # the largest max_concurrency that KFP accepts
    writes_active_deadline=True,
    objects_per_run=OBJECTS,
    runs_drivers=True,
    launcher="kfp-launcher",
    requests_disk=False,
    container_settings=f"for Argo's own, set {EXECUTOR} of the kubeflow namespace; kfp-launcher and the drivers say "
    "theirs, which nobody can change",
    # The supervisor writes there and then delivers to the path that KFP chose.
    outputs_dir="/tmp/gpuflow/outputs",
    launcher_memory=LAUNCHER_MEMORY,
    supervisor="kubeflow",
)


COMPONENT = "component"


@dataclass(frozen=True, slots=True)
class KubeflowOptions:
    """What may be asked of a KFP artifact."""

    form: str | None = option("--as", "crd, or component (a pipeline of one step)", metavar="KIND")


OLDEST = (2, 17)
"""What is written for when the site does not say."""
WITH_CONTAINERS = (2, 18)
"""The first with containers beside the step's own: the release that follows 2.17."""


def version(site: Site) -> Version:
    return version_at(site, FACTS.name) or OLDEST


def adds_containers(site: Site) -> bool:
    """Whether the site's KFP adds containers to a step's pod."""
    return version(site) >= WITH_CONTAINERS


_PATCH = "let an administrator set it for all runs (COMPILED_PIPELINE_SPEC_PATCH of the KFP API server)"
_CODES = (
    "gpuflow-run keeps them: inside the pod, or where the site says retry: always and it has a place to count in. In a "
    "plain step every exit code counts alike"
)
_CLAIM = "create a PersistentVolume and a claim for it, and mount that: volumes: {…: {claim: …}}"
_FROM_TIME = (
    "pass {run: logical_date}, and let the program take the date from it; in a pipeline with a schedule, start the "
    "runs from a program of yours that passes the time as a parameter"
)
_NO_TIME = "its recurring runs do not know their scheduled time"
_CREATION_TIME = (
    "it is the time when the run was made, in UTC: 2026-01-31T06:00:00Z. Recurring runs do not know their scheduled "
    "time, so a pipeline with a schedule is refused"
)
_AS_PARAMETER = "start the runs from a program of yours that passes the time as a parameter (client.run_pipeline)"
_WEBHOOK = "a mutating webhook that adds it to pods with the step's labels"

_LATER_VERSION = "a later KFP does: engines.kubeflow.version in the site"

_GAPS: dict[str, Gap] = {
    "outputs_from": "not yet",
    **dict.fromkeys(("notify.mail", "on_data", "security.privileged"), "never"),
}
"""Where it is not KFP alone that lacks something."""
_CANNOT = {
    "approval": ("it has no step that waits for a person", "split the pipeline in two at this point"),
    "approval.timeout": ("it has no step that waits for a person", "split the pipeline in two"),
    "device_claim": (
        "2.17 has no resource claims",
        "ask for the GPU as gpu: or mig: where the device plugin still serves it",
    ),
    "env_from": ("it takes single keys only", "list each key under env: {NAME: {secret: …, key: …}}"),
    "ephemeral_storage": (
        "it has no request for local disk",
        "volumes: {/scratch: {empty_dir: 50Gi}}, or a LimitRange default",
    ),
    "if_skipped.run": (
        "a task runs when all upstream tasks succeeded, or whatever their result, with nothing in between",
        "repeat the step under both conditions",
    ),
    "init_containers": (
        "2.17 adds no containers to a pod",
        f"make it a separate step that shares a volume; {_LATER_VERSION}",
    ),
    "outputs_from": (
        "the program writes its outputs to /airflow/xcom/return.json, and KFP reads one file for each of them",
        "write each output to $GPUFLOW_OUTPUTS/<name>, and remove outputs_from",
    ),
    "kubernetes.dns_config": ("it has no dnsConfig", _WEBHOOK),
    "kubernetes.dns_policy": ("it has no dnsPolicy", _WEBHOOK),
    "kubernetes.host_aliases": ("it has no hostAliases", _WEBHOOK),
    "kubernetes.host_ipc": ("it has no hostIPC", "give the step shm:, which needs no hostIPC"),
    "kubernetes.host_network": ("it has no hostNetwork", _WEBHOOK),
    "kubernetes.resources": ("a task asks for one kind of device only", _WEBHOOK),
    "kubernetes.runtime_class": ("it has no runtimeClassName", _WEBHOOK),
    "kubernetes.scheduler": ("it has no schedulerName per task", _PATCH),
    "notify.mail": ("no pod of a run knows a mail server", "notify a webhook that sends mail"),
    "kubernetes.topology_spread": ("it has no topology spread", "spread by queue: one Kueue flavor per zone"),
    "lifecycle": ("it has no hooks", "let the program itself do it when it starts and on SIGTERM"),
    "on_data.with_schedule": (
        "it starts runs on a schedule or by hand",
        "keep the schedule, and start a run from the program that sees the data: client.run_pipeline",
    ),
    "on_data": (
        "it starts runs on a schedule or by hand",
        "start a run from the program that sees the data: client.run_pipeline",
    ),
    "parallel": (
        "it limits the items of one fan-out, not the pods of a run",
        "set parallel on the fan-outs, or use a Kueue queue",
    ),
    "priority.pod": ("it has no priorityClassName per task", f"priority: {{queue: …}} with Kueue, or {_PATCH}"),
    "probes": ("it has no probes", "exit the process when it is unhealthy: a failed step is retried"),
    "pipeline.deadline": ("it has no deadline for a sub-pipeline", "move it to the pipeline that uses it"),
    "pipeline.timeout": ("a sub-pipeline has no timeout", "give timeouts to its steps"),
    "queue_timeout": ("a pod waits as long as it must", "limit the whole run with deadline"),
    "retry.more_memory": ("every attempt gets the same pod", "ask for the larger amount at once"),
    "retry.other_node": ("every attempt gets the same pod", "keep bad nodes away with a taint"),
    "run.attempt": (
        "nothing tells a container which attempt it is",
        "read $GPUFLOW_ATTEMPT in a step with a checkpoint",
    ),
    "run.date": ("it formats no dates", _FROM_TIME),
    "run.format": ("it formats no dates", _FROM_TIME),
    "run.interval_start": (_NO_TIME, _AS_PARAMETER),
    "run.timezone": ("it gives times in UTC", _FROM_TIME),
    "schedule.replace": ("a recurring run never ends the previous run", "concurrency: forbid"),
    "schedule.timezone": (
        "its clock has one time zone for the whole installation",
        "write the cron in UTC, or let an administrator set CRON_SCHEDULE_TIMEZONE",
    ),
    "security.add_capabilities": ("its backend drops all capabilities", "run the step on another engine"),
    "security.privileged": ("its backend refuses privileged containers", "run the step on another engine"),
    "security.read_only_root": ("it has no readOnlyRootFilesystem", _WEBHOOK),
    "sidecars": ("2.17 adds no containers to a pod", f"start it inside the step's own container; {_LATER_VERSION}"),
    "spot.fallback_after": ("every attempt gets the same pod", "add a second step with spot: never for the rest"),
    "termination_grace": ("pods always get 30 s", "save within 30 s of SIGTERM"),
    "topology.same": ("its backend never reads pod affinity", "kubernetes.node_selector with one zone or rack"),
    "topology.spread": ("it has no topology spread", "spread by queue: one Kueue flavor per zone"),
    "volumes.csi": ("it has no inline CSI volumes", _CLAIM),
    "volumes.default_mode": (
        "it mounts every file with the default mode",
        "let the program copy the file and change its mode",
    ),
    "volumes.host_path": ("it mounts no folders of nodes", _CLAIM),
    "volumes.items": ("it mounts all keys, each under its own name", "use the keys as file names"),
    "volumes.nfs": ("it has no NFS volumes", _CLAIM),
    "volumes.projected": ("it has no projected volumes", "mount each Secret and ConfigMap at a path of its own"),
}
"""What KFP has not, and the way out."""

_SENT_BY_POD = PartialSupport(
    "Kubeflow sends it from an exit task, a small pod of the run: where no pod can start, nobody is told. KFP "
    "tells that task how the run ended, so it names no step and no cause, and its date is that of the end"
)

_NO_DISK = PartialSupport("Kubeflow has no request for local disk: the scheduler does not count it")

_PARTIAL_SUPPORT = {
    "notify.pagerduty": _SENT_BY_POD,
    "notify.slack": _SENT_BY_POD,
    "notify.webhook": _SENT_BY_POD,
    "exit.outputs": PartialSupport(
        "a step that did not end well has the default of its output. A small container (images.alerts of the site) "
        "writes the defaults before the first step starts; where that container fails, no step and no exit step starts"
    ),
    "gang": PartialSupport(
        "the task's pod looks after the ranks, which are no pods of KFP's and are named in its log. A pod that is lost "
        "takes its gang with it: the step has failed, or, where the installation starts it again, begins anew with "
        "whole budgets, from its last checkpoint"
    ),
    "checkpoint.scratch": PartialSupport(
        "Kubeflow limits the scratch space, but has no request for local disk: the scheduler does not count it"
    ),
    "inputs.size": _NO_DISK,
    "outputs.size": _NO_DISK,
    "retry.any": PartialSupport(
        "KFP's retry has no policy, so the installation decides which ends of a pod it repeats. Where the site does "
        "not say retry: always, gpuflow-run starts a failed command again inside the pod; a plain step has what KFP "
        "does by itself",
        by_step=True,
    ),
    "retry.failures": PartialSupport(
        "as retry.any. Where the site says retry: always, gpuflow-run keeps this budget if it has a place to count in; "
        "else failures and interruptions share one",
        by_step=True,
    ),
    "retry.final_exit_codes": PartialSupport(_CODES, by_step=True),
    "retry.interruptions": PartialSupport(
        "where the site says retry: always, gpuflow-run keeps this budget if it has a place to count in; else failures "
        "and interruptions share one. Elsewhere the installation decides what becomes of a deleted pod",
        by_step=True,
    ),
    "retry.retryable_exit_codes": PartialSupport(_CODES, by_step=True),
    "run.interval_end": PartialSupport(_CREATION_TIME),
    "run.logical_date": PartialSupport(_CREATION_TIME),
    "schedule.start": PartialSupport(
        "start_time of the recurring run. When it has passed already and catch_up is off, KFP starts one run at once, "
        "for the last time that was missed"
    ),
    "params.range": PartialSupport(
        "KFP checks a parameter's type and enum; min and max are checked when compiling, not when a run starts"
    ),
}

_RETRIES_ALWAYS: Capabilities = {"retry.any": True}
"""What the site's key `engines.kubeflow.retry: always` makes true."""

_OWN_USER = "KFP gives added containers no user: each runs as the user of its image, also where the step has another"
_WITH_CONTAINERS_SUPPORT: Capabilities = {
    "init_containers": PartialSupport(_OWN_USER),
    "sidecars": PartialSupport(_OWN_USER),
}
"""What a KFP that adds containers to pods carries."""

_SUPPORTED_CONSTRUCTS = (
    "annotations", "cache", "checkpoint", "claims", "deadline", "env.config_map", "env.secret", "exit.always",
    "exit.failure", "exit.success", "for_each.dynamic_matrix", "for_each.list", "for_each.matrix", "for_each.output",
    "for_each.parallel", "for_each.param", "for_each.range", "gpu", "gpu.any", "gpu.any_of", "gpu.form",
    "image_pull_policy", "image_pull_secrets", "inputs", "kubernetes.affinity", "kubernetes.merge",
    "kubernetes.node_selector",
    "kubernetes.tolerations", "mig", "outputs.artifact", "outputs.default", "outputs.value", "params", "params.enum",
    "pipeline", "priority.queue", "queue", "retry.backoff", "run.name", "schedule", "schedule.catch_up",
    "schedule.suspended",
    "script",
    "security.identity", "security.run_as_root", "service_account", "shared_gpu", "shm", "spot", "text.braces",
    "timeout", "volumes.claim", "volumes.config_map", "volumes.empty_dir", "volumes.ephemeral", "volumes.memory",
    "volumes.new_claim", "volumes.secret", "volumes.sub_path", "when", "when.item", "working_dir",
)  # fmt: skip

_NO_SUPPORT = {name: NoSupport(_GAPS.get(name, "upstream"), *words) for name, words in _CANNOT.items()}
CAPABILITIES = capabilities(
    carried=(*ENGINE_OPTIONS, *_SUPPORTED_CONSTRUCTS), weaker=_PARTIAL_SUPPORT, cannot=_NO_SUPPORT
)


def capabilities_at(site: Site) -> Capabilities:
    """The table for what is installed at a site."""
    retries = _RETRIES_ALWAYS if site.engine("kubeflow").retry == "always" else {}
    added = _WITH_CONTAINERS_SUPPORT if adds_containers(site) else {}
    return {**CAPABILITIES, **retries, **added}
