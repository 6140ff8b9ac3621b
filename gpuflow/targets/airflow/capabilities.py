"""What Airflow carries of a pipeline, and for the rest why not and what to do instead."""

from __future__ import annotations

from gpuflow.targets.capabilities import Cannot, capabilities
from gpuflow.targets.constructs import ENGINE_WORDS, POD, RUN

_CANNOT = {
    "schedule.replace": Cannot(
        "upstream",
        "Airflow never stops a run when the next one is due",
        "use concurrency: forbid, and a deadline that ends the previous run",
    ),
    "cache": Cannot(
        "upstream",
        "Airflow keeps no results of earlier runs",
        "let the step check for its own result and exit early, or split the pipeline and start the second half on_data",
    ),
}

_CARRIED = (
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
CAPABILITIES = capabilities(carried=(*POD, *RUN, *ENGINE_WORDS, *_CARRIED), cannot=_CANNOT)

_NEEDS_OPERATOR = "compile without --standalone, so that the DAG imports gpuflow.airflow"

STANDALONE_CANNOT = {
    construct: Cannot("never", reason, _NEEDS_OPERATOR)
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
