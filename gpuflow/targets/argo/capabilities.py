"""What Argo Workflows can say of a pipeline."""

from __future__ import annotations

from gpuflow.targets.capabilities import Cannot, Weaker, capabilities
from gpuflow.targets.constructs import ENGINE_WORDS, POD, RUN

_CANNOT = {
    "on_data.with_schedule": Cannot(
        "never",
        "Argo Workflows starts runs by a schedule alone",
        "keep the schedule, and let an Argo Events sensor submit the template when there is new data",
    ),
    "on_data": Cannot(
        "not yet",
        "Argo Workflows cannot start on new data; Argo Events can, with an endpoint and credentials that neither "
        "pipeline nor site names",
        "leave on_data out, and write an EventSource and a Sensor that submits the template: "
        'guide for Argo, "Start on new data"',
    ),
    "schedule.catch_up": Cannot(
        "never",
        "a CronWorkflow runs one missed time at most",
        "start each missed run with `argo submit --from cronwf/NAME --scheduled-time …`, which sets its dates too",
    ),
    "pipeline.timeout": Cannot(
        "never", "Argo limits the time of pods and of whole runs, not of a sub-pipeline", "give timeouts to its steps"
    ),
    "pipeline.deadline": Cannot(
        "never",
        "Argo limits the time of pods and of whole runs, not of a sub-pipeline",
        "give timeouts to its steps, or a deadline to the pipeline that uses it",
    ),
    "approval.timeout": Cannot(
        "never",
        "a suspend node with a duration resumes when the time is up, which is the opposite",
        "approve without a timeout",
    ),
    "queue_timeout": Cannot(
        "upstream",
        "Argo can limit the time a pod runs, or its waiting and running together, but not the waiting alone",
        "limit the whole run with deadline, or let Kueue end workloads that wait too long",
    ),
    "notify.mail": Cannot(
        "never",
        "Argo's HTTP template speaks HTTP only, and no pod of a run knows a mail server",
        "notify a webhook that sends mail, or let Alertmanager send it: gpuflow compile --alert-rules writes the rules",
    ),
    "notify.pagerduty": Cannot(
        "upstream",
        "PagerDuty reads its integration key from the body, and Argo's HTTP template takes Secrets in headers only",
        "let Alertmanager page: gpuflow compile --alert-rules writes the rules; or notify a webhook",
    ),
    "outputs_from": Cannot(
        "not yet",
        "the program writes its outputs to /airflow/xcom/return.json, and Argo reads one file for each of them",
        "write each output to $GPUFLOW_OUTPUTS/<name>, and remove outputs_from",
    ),
}

_SENT_BY_AGENT = Weaker(
    "Argo sends it from a pod of its own, the agent, so it needs room for one small pod in the namespace, and a Role "
    "(gpuflow argo agent prints it); what no pod can tell is in the metric gpuflow_runs (--alert-rules writes rules)"
)

_WEAKER = {
    "notify.slack": _SENT_BY_AGENT,
    "notify.webhook": _SENT_BY_AGENT,
    "for_each.dynamic_matrix": Weaker(
        "Argo reads numbers in combined lists as floating point: whole numbers above 2^53 lose digits"
    ),
    "params.range": Weaker(
        "Argo's parameters are text: min and max are checked when compiling, not when a run is started by hand"
    ),
    "retry.more_memory": Weaker(
        "Argo sees only the last attempt: after an OOM the memory grows by the number of attempts so far, and after "
        "any other end the next attempt starts with what is written"
    ),
}

_CARRIED = (
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
CAPABILITIES = capabilities(carried=(*POD, *RUN, *ENGINE_WORDS, *_CARRIED), weaker=_WEAKER, cannot=_CANNOT)
