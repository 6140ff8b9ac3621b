"""What is known about Airflow: facts for the checker, options of `gpuflow compile`, and the capability table.

`STANDALONE_CANNOT` is what stock operators alone cannot do, each with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpuflow.engines import EngineFacts
from gpuflow.targets.capabilities import NoSupport, capabilities
from gpuflow.targets.constructs import ENGINE_OPTIONS, POD, RUN
from gpuflow.targets.target import option

_STOCK_TIMEOUT: Final = "the stock KubernetesPodOperator gives up after schedule_timeout_seconds (120 unless set)"
_STOCK_FAILS: Final = "the stock KubernetesPodOperator does not wait: the API server answers 403 and the task fails "

FACTS = EngineFacts(
    name="airflow",
    title="Airflow",
    waits={
        "quota": f"GpuPodOperator, which gpuflow compile writes, waits and asks again; {_STOCK_FAILS}at once.",
        "queue": f"GpuPodOperator waits and logs its place in the queue; {_STOCK_TIMEOUT}.",
        "nodes": f"GpuPodOperator waits until a node has room or is added; {_STOCK_TIMEOUT}.",
        "objects": "Finished pods count until they are deleted; GpuPodOperator deletes those that succeeded and keeps "
        "the others.",
    },
    stock_waits={
        "quota": f"{_STOCK_FAILS}at once, in each of its tries.",
        "queue": f"{_STOCK_TIMEOUT}.",
        "nodes": f"{_STOCK_TIMEOUT}.",
    },
    most_runs=16,  # core.max_active_runs_per_dag, unless it was changed; only forbid sets max_active_runs
    forbids_data_runs=True,
    keeps_pods="failed",
    launches_gangs=False,  # GpuGangOperator does; of a --standalone file the stock operator makes a launcher
    container_settings="gpuflow compile passes the site's limits on; a stock KubernetesPodOperator reads them from "
    "xcom_sidecar_container_resources in the connection's extra",
    supervisor="airflow",
)


@dataclass(frozen=True, slots=True)
class AirflowOptions:
    """What may be asked of a DAG file."""

    pools: bool = option("--pools", "put GPU tasks in pools (gpuflow airflow pools)")
    standalone: bool = option("--standalone", "a DAG file that does not import gpuflow")
    airflow: str | None = option(
        "--airflow", "with --standalone: for an older Airflow, 2.10, 2.11, 3.0 or 3.1", metavar="VERSION"
    )


_CANNOT = {
    "schedule.replace": NoSupport(
        "upstream",
        "Airflow never stops a run when the next one is due",
        "use concurrency: forbid, and a deadline that ends the previous run",
    ),
    "cache": NoSupport(
        "upstream",
        "Airflow keeps no results of earlier runs",
        "let the step check for its own result and exit early, or split the pipeline and start the second half on_data",
    ),
}

_SUPPORTED_CONSTRUCTS = (
    "approval", "approval.timeout", "checkpoint", "checkpoint.scratch", "claims", "deadline", "exit.always",
    "exit.failure", "exit.outputs",
    "exit.success", "for_each.dynamic_matrix", "for_each.list", "for_each.matrix", "for_each.output",
    "for_each.parallel", "for_each.param", "for_each.range", "gang", "if_skipped.run", "inputs", "inputs.size",
    "notify.mail", "notify.pagerduty", "notify.slack", "notify.webhook", "on_data", "on_data.with_schedule",
    "outputs.artifact", "outputs.default", "outputs.size", "outputs.value", "outputs_from", "parallel", "params",
    "params.enum", "params.range",
    "pipeline", "pipeline.deadline", "pipeline.timeout", "queue_timeout", "retry.any", "retry.backoff",
    "retry.failures", "retry.final_exit_codes", "retry.interruptions", "retry.more_memory", "retry.other_node",
    "retry.retryable_exit_codes", "schedule", "schedule.catch_up", "schedule.start", "schedule.suspended",
    "schedule.timezone", "script", "spot.fallback_after", "text.braces", "timeout", "volumes.new_claim",
    "when", "when.item",
)  # fmt: skip

# A task holds the whole pod.
CAPABILITIES = capabilities(carried=(*POD, *RUN, *ENGINE_OPTIONS, *_SUPPORTED_CONSTRUCTS), cannot=_CANNOT)

_NEEDS_OPERATOR = "compile without --standalone, so that the DAG imports gpuflow.airflow"

STANDALONE_CANNOT = {
    construct: NoSupport("never", reason, _NEEDS_OPERATOR)
    for construct, reason in {
        "claims": "no stock operator creates a volume for one run and deletes it afterward",
        "exit.failure": "no trigger rule waits for everything and runs only after a failure",
        "for_each.output": "the stock operator cannot put items known only at run time into a pod",
        "for_each.param": "the stock operator cannot put items known only at run time into a pod",
        "outputs.default": "Jinja has no value for a step that was skipped",
        "parallel": "max_active_tasks does not count tasks that wait in a trigger",
        "pipeline": "a sub-pipeline's parameters and items are filled in by gpuflow's operator",
        "retry.final_exit_codes": "the stock operator retries every exit code",
        "retry.interruptions": "the stock operator has one budget and cannot tell an interruption from a failure",
        "retry.more_memory": "the stock operator starts every try with the same pod",
        "retry.other_node": "the stock operator starts every try with the same pod",
        "retry.retryable_exit_codes": "the stock operator retries every exit code",
        "run.interval_start": "Jinja cannot count back to the scheduled time before",
        "spot.fallback_after": "the stock operator starts every try with the same pod",
        "when": "a condition on values of the run is evaluated by gpuflow's operator",
    }.items()
}
"""What a DAG file that does not import gpuflow loses besides."""
