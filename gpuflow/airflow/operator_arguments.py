"""Arguments of Airflow's operators: which a task of gpuflow takes, and what to do instead of the others.

None is dropped in silence. What would change the pod is refused with the step's own word for it, since no check would
see it; so is what has no effect here. Of `default_args`, which are for other tasks too, such arguments are left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

RESERVED = frozenset(
    {
        # what BaseOperator decides: who, when, in which order, and who is told
        "task_id", "owner", "email", "email_on_retry", "email_on_failure", "retries", "retry_delay",
        "retry_exponential_backoff", "max_retry_delay", "start_date", "end_date", "depends_on_past",
        "ignore_first_depends_on_past", "wait_for_past_depends_before_skipping", "wait_for_downstream", "dag", "params",
        "default_args", "priority_weight", "weight_rule", "queue", "pool", "pool_slots", "execution_timeout",
        "on_execute_callback", "on_failure_callback", "on_success_callback", "on_retry_callback", "on_skipped_callback",
        "pre_execute", "post_execute", "trigger_rule", "run_as_user", "map_index_template", "max_active_tis_per_dag",
        "max_active_tis_per_dagrun", "executor", "executor_config", "inlets", "outlets", "task_group", "doc", "doc_md",
        "doc_json", "doc_yaml", "doc_rst", "task_display_name", "logger_name", "allow_nested_operators",
        # where the pod goes, and how it is watched
        "kubernetes_conn_id", "namespace", "in_cluster", "cluster_context", "config_file", "startup_timeout_seconds",
        "container_logs", "log_events_on_failure", "deferrable", "poll_interval", "logging_interval",
        "on_finish_action", "on_kill_action",
        # GpuPodOperator's own that no field of a step says
        "when", "only_after_failure", "limits", "deadlines", "source",
    }
)  # fmt: skip
"""What a task of gpuflow takes and keeps."""
OF_STEPS = {
    "template": "the pod is made from the step",
    "outputs": "write outputs={…} in the step",
    "artifacts": 'write outputs={"model": {"type": "directory", "kind": "model"}} in the step',
    "supervised": "the step decides it: with a checkpoint, or with outputs",
    "failures": 'write retry={"failures": N} in the step',
    "interruptions": 'write retry={"failures": N, "interruptions": M} in the step',
    "interruption_delay": 'write retry={…, "backoff": "30s"} in the step',
    "item": "write for_each={…} in the step, or use .expand(…)",
    "queue_timeout": 'write queue_timeout="6h" in the step',
    "final_exit_codes": 'write retry={…, "final_exit_codes": […]} in the step',
    "retryable_exit_codes": 'write retry={…, "retryable_exit_codes": […]} in the step',
    "more_memory": 'write retry={…, "more_memory": {"factor": 2, "max": "64Gi"}} in the step',
    "other_node": 'write retry={…, "other_node": True} in the step',
    "fallback_after": 'write spot={"mode": "prefer", "fallback_after": N} in the step',
    "on_demand": 'write spot={"mode": "prefer", "fallback_after": N} in the step',
    "links": "set engines.airflow.links in the site",
    "sidecar_resources": "set engines.airflow.output_containers in the site",
}
"""GpuPodOperator's own arguments that are made from the step."""
NO_EFFECT = {
    "base_container_status_polling_interval": "write poll_interval=…",
    "callbacks": "write on_failure_callback, on_success_callback, …: the provider's callbacks for pods are not called",
    "container_name_log_prefix_enabled": "leave it out: lines of other containers carry their name",
    "log_events_on_startup": "leave it out: while a pod waits, the log says why",
    "log_formatter": "leave it out: the log is copied as it is",
    "progress_callback": "leave it out: the log is copied as it is",
    "render_template_as_native_obj": "leave it out: nothing in a step is a template",
    "startup_check_interval_seconds": "write poll_interval=…",
    "termination_message_policy": "leave it out: the supervisor's last words are in the file",
    "trigger_kwargs": "leave it out: the operator has a trigger of its own",
    "xcom_sidecar_container_security_context": "leave it out: the container that passes outputs on has the restricted "
    "one",
}
"""Arguments of Airflow that do nothing here."""
STOCK_DEFAULTS: dict[str, Any] = {
    name: given.default
    for name, given in inspect.signature(KubernetesPodOperator.__init__).parameters.items()
    if name not in RESERVED and given.default is not inspect.Parameter.empty
}
"""What the stock operator is told for the arguments that are not taken, whatever default_args say."""


def argument_hint(name: str) -> str | None:
    """What to do instead of passing an argument; None for a reserved or unknown one."""
    if name in RESERVED:
        return None
    from gpuflow.spec.engine_options.airflow import TASK_FIELD_HINTS, TASK_OTHER_HINTS

    return {**TASK_OTHER_HINTS, **TASK_FIELD_HINTS, **NO_EFFECT, **OF_STEPS}.get(name)


def refuse_arguments(given: Mapping[str, Any], who: str, besides: Iterable[str] = ()) -> None:
    """Raise for every argument that a task of gpuflow does not take. `besides`: more that this one takes."""
    wrong = [
        name for name, value in given.items() if name not in RESERVED and name not in besides and value is not None
    ]
    refused = {name: hint for name in wrong if (hint := argument_hint(name)) is not None}
    if not refused:
        return  # what nobody knows, Airflow refuses by name itself
    from gpuflow.core.errors import Finding, GpuflowError
    from gpuflow.spec.builder import caller

    where = caller()
    raise GpuflowError(
        Finding("GF361", f"{who} does not take {name} of Airflow", where, f"{_references(given[name])}{hint}")
        for name, hint in refused.items()
    )


def neutral_arguments(default_args: Mapping[str, Any], task_id: str) -> dict[str, Any]:
    """What the stock operator is told instead of default_args that would change the step's pod; a note names them."""
    found = {name: STOCK_DEFAULTS[name] for name in default_args if name in STOCK_DEFAULTS}
    if found:
        from gpuflow.core.errors import Finding
        from gpuflow.spec.builder import caller
        from gpuflow.spec.rules.remarks import log_findings

        text = f'task "{task_id}" takes its pod from the step, so default_args have no effect on it: '
        hint = "say it in the step"
        log_findings([Finding("GF361", text + ", ".join(sorted(found)), caller(), hint, "note")], __name__)
    return found


def _references(value: Any) -> str:
    """For text with templates in it: the references that say the same."""
    from gpuflow.spec.template_tags import meaning_of_tag, tags_in

    texts = _texts(value)
    meanings = [meaning_of_tag(tag.text) for text in texts for tag in tags_in(text)]
    known = [f"{{{meaning[0]}: {meaning[1]}}}" for meaning in meanings if meaning is not None and meaning[1]]
    return f"for a template use a reference, here {' and '.join(dict.fromkeys(known))}; " if known else ""


def _texts(value: Any) -> list[str]:
    """Every text in a value of Airflow's, objects of the Kubernetes client included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for part in value.values() for text in _texts(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in _texts(part)]
    return _texts(value.to_dict()) if hasattr(value, "openapi_types") else []
