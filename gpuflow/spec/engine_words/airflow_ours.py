"""Words of Airflow that are refused: the spec has its own for them, or a compiled DAG has no use for them."""

from __future__ import annotations

from collections.abc import Iterable


def _all(names: Iterable[str], way_out: str) -> dict[str, str]:
    return dict.fromkeys(names, way_out)


_NO_TEMPLATES = "leave it out: nothing in a compiled DAG is a template; write {param: …}, {output: …} or {run: …}"
_POD = "say it in the step; what has no field of its own goes under kubernetes:"

TASK_OURS = {
    "task_id": "the step's name is the task's id",
    "doc": "write description: … in the step",
    **_all(("doc_json", "doc_yaml", "doc_rst"), "write description: … in the step, or doc_md: … here"),
    "retries": "write retry: N in the step or in defaults",
    "retry_delay": "write retry: {any: N, backoff: 5m} in the step or in defaults",
    "retry_exponential_backoff": "write retry: {any: N, backoff: {start: 1m, factor: 2}} in the step or in defaults",
    "max_retry_delay": "write retry: {any: N, backoff: {start: 1m, max: 1h}} in the step or in defaults",
    "retry_policy": "write retry: {failures: N, interruptions: M, final_exit_codes: […]} in the step or in defaults",
    "skip_on_exit_code": "write retry: {failures: N, final_exit_codes: […]} in the step; a step is skipped with when:",
    "execution_timeout": "write timeout: 2h in the step or in defaults",
    "active_deadline_seconds": "write timeout: 2h in the step or in defaults",
    "schedule_timeout_seconds": "write queue_timeout: 6h in the step or in defaults",
    "startup_timeout": "write queue_timeout: 6h in the step for the wait for quota, queue and node, or "
    "startup_timeout_seconds: 600 here for a pod on its node that does not start",
    "trigger_rule": "write needs, if_skipped: run or when in the step; what runs at the end goes under exit: with on:",
    "max_active_tis_per_dagrun": "write parallel: N in a step with for_each",
    "map_index_template": "leave it out: copies are named by their items",
    "do_xcom_push": "write outputs: {name: int} in the step",
    "multiple_outputs": "write outputs: {name: int} in the step",
    "params": "write params: {…} in the pipeline",
    "start_date": "write schedule: {cron: …, start: 2027-01-31} in the pipeline",
    "task_group": "write the step with pipeline: {…}, which becomes a task group",
    "namespace": "write namespace: … in the site, or compile with --namespace",
    "image": "write image: … in the step or in defaults",
    "cmds": "write command: […] in the step",
    "arguments": "write args: […] in the step",
    "env_vars": "write env: {NAME: value} in the step or in defaults",
    "env_from": "write env_from: [{secret: …}] in the step or in defaults",
    "secrets": "write env: {NAME: {secret: …, key: …}} or volumes: {/path: {secret: …}} in the step",
    "configmaps": "write env_from: [{config_map: …}] in the step",
    "volumes": "write volumes: {/path: {claim: …}} in the step",
    "volume_mounts": "write volumes: {/path: {claim: …}} in the step",
    "container_resources": "write cpu, memory and gpu in the step or in defaults",
    "resources": "write cpu, memory and gpu in the step or in defaults",
    "image_pull_policy": "write image_pull_policy: … in the step or in defaults",
    "image_pull_secrets": "write image_pull_secrets: […] in the step or in defaults",
    "labels": "write labels: {…} in the step or in defaults",
    "annotations": "write annotations: {…} in the step or in defaults",
    "service_account_name": "write service_account: … in the step or in defaults",
    "priority_class_name": "write priority: … in the step or in defaults",
    "termination_grace_period": "write termination_grace: 90s in the step or in defaults",
    "init_containers": "write init_containers: […] in the step",
    "node_selector": "write kubernetes: {node_selector: {…}} in the step, or ask for a GPU by its model",
    "affinity": "write kubernetes: {affinity: {…}} in the step",
    "tolerations": "write kubernetes: {tolerations: […]} in the step; those of GPUs and spot nodes come from the site",
    "schedulername": "write kubernetes: {scheduler: …} in the step",
    "runtime_class_name": "write kubernetes: {runtime_class: …} in the step",
    "hostnetwork": "write kubernetes: {host_network: true} in the step",
    "security_context": "write security: {user: …, group: …} in the step or in defaults",
    "container_security_context": "write security: {…} in the step or in defaults",
    **_all(
        ("pod_template_file", "pod_template_dict", "full_pod_spec", "host_aliases", "dnspolicy", "dns_config",
         "hostname", "subdomain", "ports", "automount_service_account_token", "pod_runtime_info_envs"), _POD
    ),
}  # fmt: skip
"""What a task takes in Airflow and a step says itself."""

TASK_ELSEWHERE = {
    **_all(("name", "random_name_suffix"), "leave it out: pods are named so that a lost worker's pod is found again"),
    **_all(("reattach_on_restart", "durable"), "leave it out: the operator always finds its pod again"),
    "base_container_name": "leave it out: the step's container is called main",
    "is_delete_operator_pod": "write on_finish_action: delete_pod or keep_pod",
    "get_logs": "leave it out: the log of main is always copied; container_logs adds others",
    "init_container_logs": "write container_logs: […], which takes init containers and sidecars too",
    "log_pod_spec_on_failure": "leave it out: the rendered template shows the pod",
    "executor_config": "set it where Airflow is installed: it is about Airflow's workers, and the step runs in its own "
    "pod",
    "run_as_user": "leave it out: the step runs in its own pod; security: {user: …} is the program's user",
    "sla": "write timeout: 2h in the step, or deadline: 8h in the pipeline; Airflow 3 has no SLAs",
    **_all(("pre_execute", "post_execute"), "write on_execute_callback or on_success_callback"),
    "dag": "leave it out: the pipeline is the DAG",
    "end_date": "write it beside default_args, for the whole DAG",
    "ignore_first_depends_on_past": "leave it out: Airflow's default is true",
    "callbacks": "write on_failure_callback, on_success_callback, …",
}
"""Other real words of Airflow's task that are not taken."""

DAG_OURS = {
    "dag_id": "the pipeline's name is the DAG's id",
    "description": "write description: … in the pipeline",
    "schedule": 'write schedule: "0 3 * * *" in the pipeline, or on_data: […]; timetable: … here for one of your own',
    "schedule_interval": 'write schedule: "0 3 * * *" in the pipeline',
    "start_date": "write schedule: {cron: …, start: 2027-01-31} in the pipeline",
    "catchup": "write schedule: {cron: …, catch_up: true} in the pipeline",
    "timezone": "write schedule: {cron: …, timezone: Europe/Berlin} in the pipeline",
    "params": "write params: {…} in the pipeline",
    "max_active_tasks": "write parallel: N in the pipeline",
    "concurrency": "write parallel: N in the pipeline, or schedule: {concurrency: allow} for runs that overlap",
    "dagrun_timeout": "write deadline: 8h in the pipeline",
    "deadline": "write deadline: 8h in the pipeline",
}
"""What a DAG takes in Airflow and a pipeline says itself."""

DAG_ELSEWHERE = {
    **_all(
        ("template_searchpath", "template_undefined", "user_defined_macros", "user_defined_filters",
         "jinja_environment_kwargs", "render_template_as_native_obj"), _NO_TEMPLATES
    ),
    "fail_fast": "leave it out: Airflow takes it only where no task has a trigger rule, and exit steps have one; "
    "steps that need a failed one do not run anyway",
    "auto_register": "leave it out: a compiled DAG is always loaded",
    "sla_miss_callback": "write deadline: 8h in the pipeline; Airflow 3 has no SLAs",
    "allowed_run_types": "leave it out: is_paused_upon_creation and access_control say who may start runs",
    "rerun_with_latest_version": "leave it out, or set disable_bundle_versioning: true",
    "default_view": "leave it out: Airflow 3 has one view",
    "orientation": "leave it out: Airflow 3 has one view",
}  # fmt: skip
"""Other real words of Airflow's DAG that are not taken."""
