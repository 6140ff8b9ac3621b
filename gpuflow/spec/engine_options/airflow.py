"""Options of Airflow: what a DAG and a task take that is not the pipeline's to decide.

Options that the spec has its own field for, or that a compiled DAG has no use for, are refused with what to write
instead.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import PlainValidator, WithJsonSchema, model_validator

from gpuflow.spec.engine_options.base import EngineOptions, Imported, Imports, Json
from gpuflow.spec.model import Bool, Count, Int32, Model, Natural, OneOrMore, Str, check_receivable, problem
from gpuflow.spec.names import StepName
from gpuflow.spec.schedule import YEARS

_NO_TEMPLATES = "leave it out: nothing in a compiled DAG is a template; write {param: …}, {output: …} or {run: …}"
_POD = "say it in the step; what has no field of its own goes under kubernetes:"

TASK_FIELD_HINTS = {
    "task_id": "the step's name is the task's id",
    "doc": "write description: … in the step",
    **dict.fromkeys(("doc_json", "doc_yaml", "doc_rst"), "write description: … in the step, or doc_md: … here"),
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
    **dict.fromkeys(
        ("pod_template_file", "pod_template_dict", "full_pod_spec", "host_aliases", "dnspolicy", "dns_config",
         "hostname", "subdomain", "ports", "automount_service_account_token", "pod_runtime_info_envs"), _POD
    ),
}  # fmt: skip
"""What a task takes in Airflow and a step says itself."""

TASK_OTHER_HINTS = {
    **dict.fromkeys(
        ("name", "random_name_suffix"), "leave it out: pods are named so that a lost worker's pod is found again"
    ),
    **dict.fromkeys(("reattach_on_restart", "durable"), "leave it out: the operator always finds its pod again"),
    "base_container_name": "leave it out: the step's container is called main",
    "is_delete_operator_pod": "write on_finish_action: delete_pod or keep_pod",
    "get_logs": "leave it out: the log of main is always copied; container_logs adds others",
    "init_container_logs": "write container_logs: […], which takes init containers and sidecars too",
    "log_pod_spec_on_failure": "leave it out: the rendered template shows the pod",
    "executor_config": "set it where Airflow is installed: it is about Airflow's workers, and the step runs in its own "
    "pod",
    "run_as_user": "leave it out: the step runs in its own pod; security: {user: …} is the program's user",
    "sla": "write timeout: 2h in the step, or deadline: 8h in the pipeline; Airflow 3 has no SLAs",
    **dict.fromkeys(("pre_execute", "post_execute"), "write on_execute_callback or on_success_callback"),
    "dag": "leave it out: the pipeline is the DAG",
    "end_date": "write it beside default_args, for the whole DAG",
    "ignore_first_depends_on_past": "leave it out: Airflow's default is true",
    "callbacks": "write on_failure_callback, on_success_callback, …",
}
"""Other real words of Airflow's task that are not taken."""

DAG_FIELD_HINTS = {
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

DAG_OTHER_HINTS = {
    **dict.fromkeys(
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


TAG_LENGTH = 100
"""Airflow loads no DAG with a longer tag."""
ROLES = ("setup", "teardown")
"""Words that say what a step is to others; they are no arguments of its task."""
ASSET_LENGTH = 1500
"""Airflow takes no asset with a longer name or URI."""


def _date(value: Any) -> str:
    hint = "write 2027-01-31, 2027-01-31T18:00 or 2027-01-31T18:00+01:00"
    text = value.isoformat() if isinstance(value, date) else value
    if not isinstance(text, str):
        raise problem("GF356", f"{text!r} is not a date", hint)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise problem("GF356", f'"{text}" is not a date', hint) from None
    if moment.year not in YEARS or moment.microsecond:
        span = f"a year from {YEARS.start} to {YEARS.stop - 1}, and no parts of a second"
        raise problem("GF356", f'"{text}" is not a date that a DAG can end at', f"write {span}")
    return moment.isoformat()


def _logs(value: Any) -> bool | tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if value is True:
        return True
    if isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names):
        return tuple(check_receivable(name) for name in names)
    raise problem("GF355", f"{value!r} names no containers", "write true for all of them, or [main, proxy]")


def _tag(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise problem("GF126", f"{value!r} is not text", "give it a value")
    if len(value) > TAG_LENGTH:
        text = f'the tag "{value[:20]}…" has {len(value)} characters'
        raise problem("GF355", text, f"Airflow takes at most {TAG_LENGTH}")
    return check_receivable(value)


def _asset(value: Any) -> str:
    """Airflow's own rules (airflow.sdk.definitions.asset)."""
    hint = "write a URI such as s3://bucket/table, or a name"
    if not isinstance(value, str) or not value.strip() or len(value) > ASSET_LENGTH:
        raise problem("GF355", f"{value!r:.60} is not the URI or the name of an asset", hint)
    if value in ("self", "context") or value.lower().startswith("airflow:"):
        raise problem("GF355", f'Airflow keeps "{value[:60]}" for itself', hint)
    return check_receivable(value)


def _check_name(value: Any) -> str:
    """A name that Airflow looks up: it has no rule for an empty one, and finds nothing by it."""
    if not isinstance(value, str) or not value.strip():
        raise problem("GF355", f"{value!r:.60} names nothing", "leave it out, or give it a value")
    return check_receivable(value)


Date = Annotated[str, PlainValidator(_date), WithJsonSchema({"type": "string", "examples": ["2027-01-31"]})]
_ONE_OR_MORE = [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
Logs = Annotated[Any, PlainValidator(_logs), WithJsonSchema({"anyOf": [{"const": True}, *_ONE_OR_MORE]})]
Tag = Annotated[str, PlainValidator(_tag), WithJsonSchema({"type": "string", "maxLength": TAG_LENGTH})]
NonEmptyName = Annotated[str, PlainValidator(_check_name), WithJsonSchema({"type": "string", "minLength": 1})]
Asset = Annotated[
    str, PlainValidator(_asset), WithJsonSchema({"type": "string", "minLength": 1, "maxLength": ASSET_LENGTH})
]
Assets = Annotated[tuple[Asset, ...], OneOrMore()]
Texts = Annotated[tuple[Str, ...], OneOrMore()]


class Teardown(Model, short="setups", types=(str, list, tuple), form={"anyOf": _ONE_OR_MORE}):
    """A step that cleans up what its setups have made, also after a failure in between."""

    setups: Annotated[tuple[StepName, ...], OneOrMore()]
    """The steps that it belongs to: it runs when they have succeeded, whatever happened after them."""
    on_failure_fail_dagrun: Bool = False
    """Whether its own failure fails the run; default: no, as in Airflow."""

    @model_validator(mode="after")
    def _names_some(self) -> Teardown:
        if not self.setups:
            raise problem("GF365", "teardown names no setup", "write teardown: STEP", at=("setups",))
        return self


class AirflowTask(EngineOptions):
    """What Airflow takes for a task: of a step, or in `default_args` for all of them."""

    TITLE: ClassVar[str] = "Airflow"
    OURS = TASK_FIELD_HINTS
    ELSEWHERE = TASK_OTHER_HINTS
    OF_PODS: ClassVar[tuple[str, ...]] = (
        "kubernetes_conn_id", "in_cluster", "cluster_context", "config_file", "startup_timeout_seconds", "deferrable",
        "poll_interval", "logging_interval", "on_finish_action", "on_kill_action", "container_logs",
        "log_events_on_failure",
    )  # fmt: skip
    """Words that only a task with a pod takes."""

    owner: NonEmptyName | None = None
    """Whose task it is."""
    doc_md: Str | None = None
    """What the task's page shows, as Markdown; default: the step's description."""
    task_display_name: NonEmptyName | None = None
    """The task's name in the user interface."""
    pool: NonEmptyName | None = None
    """The pool that the task takes slots of."""
    pool_slots: Count | None = None
    """How many slots it takes."""
    priority_weight: Int32 | None = None
    """Which tasks Airflow starts first when not all can."""
    weight_rule: Literal["downstream", "upstream", "absolute"] | None = None
    """How the weights of other tasks are added to it."""
    depends_on_past: Bool | None = None
    """Wait until the same task of the previous run has succeeded."""
    wait_for_downstream: Bool | None = None
    """Also wait for the tasks right after it in the previous run."""
    max_active_tis_per_dag: Count | None = None
    """How many copies of the task may run at once, over all runs."""
    queue: NonEmptyName | None = None
    """The queue of Airflow's workers (Celery). The step's own `queue` is another thing: the pod's queue in Kueue."""
    executor: NonEmptyName | None = None
    """Which of Airflow's executors runs the task's own code; the step's program runs in its pod."""
    inlets: Assets = ()
    """Assets that the task reads, by URI or name."""
    outlets: Assets = ()
    """Assets that the task changes, besides artifacts with a fixed uri."""
    on_execute_callback: Imports = ()
    """Called before the task starts: an import path, {path, arguments}, or a list of them."""
    on_success_callback: Imports = ()
    """Called after it succeeded."""
    on_failure_callback: Imports = ()
    """Called when it failed for good."""
    on_retry_callback: Imports = ()
    """Called when it failed and will be tried again."""
    on_skipped_callback: Imports = ()
    """Called when it was skipped."""
    email: Texts = ()
    """Who gets a mail; needs SMTP in Airflow's own settings."""
    email_on_failure: Bool | None = None
    """Whether a failure sends one; Airflow's default: yes."""
    email_on_retry: Bool | None = None
    """Whether a retry sends one; Airflow's default: yes."""
    kubernetes_conn_id: NonEmptyName | None = None
    """The connection that names the cluster; default: kubernetes_default."""
    in_cluster: Bool | None = None
    """Use the service account of Airflow's own pod."""
    cluster_context: NonEmptyName | None = None
    """A context of the kubeconfig."""
    config_file: NonEmptyName | None = None
    """A kubeconfig on the workers."""
    startup_timeout_seconds: Count | None = None
    """How long a pod on its node may fail to start, for example because of its image; default: 600. How long it may
    wait for quota, queue and node is the step's `queue_timeout`."""
    deferrable: Bool | None = None
    """Wait in the triggerer, not in a worker; default: true."""
    poll_interval: Count | None = None
    """Seconds between two looks at the pod."""
    logging_interval: Count | None = None
    """Seconds between two copies of its log."""
    on_finish_action: Literal["keep_pod", "delete_pod", "delete_succeeded_pod"] | None = None
    """What becomes of a pod that has ended; default: delete_succeeded_pod."""
    on_kill_action: Literal["delete_pod", "keep_pod"] | None = None
    """What becomes of the pod of a task that is cleared or marked by hand; default: delete_pod."""
    container_logs: Logs | None = None
    """Containers whose logs are copied into the task's log: true for all, or their names; default: main."""
    log_events_on_failure: Bool | None = None
    """Copy the pod's events into the log when it failed."""
    setup: Bool | None = None
    """The step makes something that a teardown removes; clearing a step after it runs it again."""
    teardown: Teardown | None = None
    """The step removes what its setups have made, also after a failure: the name of the setup, a list of names, or
    {setups, on_failure_fail_dagrun}."""

    def keeps_pods(self) -> bool:
        return self.on_finish_action == "keep_pod"


class AirflowDag(EngineOptions):
    """What Airflow takes for the DAG."""

    TITLE: ClassVar[str] = "Airflow"
    OURS = DAG_FIELD_HINTS
    OURS_INSIDE = TASK_FIELD_HINTS
    ELSEWHERE = (
        DAG_OTHER_HINTS
        | {
            name: f"write default_args: {{{name}: …}} for all tasks, or {name} in a step's engines.airflow"
            for name in AirflowTask.model_fields
        }
        | {name: f"write {name} in engines.airflow of a step" for name in ROLES}
    )

    owner: NonEmptyName | None = None
    """Whose DAG it is, in the list of DAGs; default: the label `owner` or `team`."""
    owner_links: dict[Str, Str] = {}
    """What the name of an owner links to: an address, or mailto:…"""
    tags: tuple[Tag, ...] = ()
    """More tags in the list of DAGs, beside those that come from labels."""
    doc_md: Str | None = None
    """What the DAG's page shows, as Markdown. Text that ends in .md is the name of a file on the DAG processor."""
    dag_display_name: NonEmptyName | None = None
    """The DAG's name in the user interface."""
    default_args: AirflowTask | None = None
    """Settings for every task that does not set them itself."""
    end_date: Date | None = None
    """No run for a later time; in the time zone of the schedule."""
    timetable: Imported | None = None
    """A timetable of your own instead of `schedule`: an import path, or {path, arguments}."""
    max_active_runs: Count | None = None
    """How many runs may be active at once. With a `schedule`, above 1 only with its `concurrency: allow`."""
    max_consecutive_failed_dag_runs: Natural | None = None
    """Pause the DAG after so many failed runs in a row."""
    on_success_callback: Imports = ()
    """Called when a run has succeeded: an import path, {path, arguments}, or a list of them."""
    on_failure_callback: Imports = ()
    """Called when a run has failed."""
    access_control: dict[Str, Json] = {}
    """What each role may do: {Viewer: [can_read]}, or by resource {Viewer: {DAGs: [can_read]}}. Airflow 3.3 takes it
    and warns that Airflow 4 will not."""
    is_paused_upon_creation: Bool | None = None
    """Whether the DAG starts paused when Airflow sees it for the first time."""
    disable_bundle_versioning: Bool | None = None
    """Always run the newest code of the bundle."""

    def most_runs(self) -> int | None:
        return self.max_active_runs

    def keeps_pods(self) -> bool:
        return self.default_args is not None and self.default_args.keeps_pods()

    @model_validator(mode="after")
    def _fits(self) -> AirflowDag:
        if self.owner and self.default_args is not None and self.default_args.owner:
            raise problem("GF128", "owner stands twice, here and in default_args", "keep one", at=("owner",))
        for word in ROLES:
            if self.default_args is not None and getattr(self.default_args, word) is not None:
                text = f"{word} is said of one step, and default_args are for all of them"
                raise problem("GF365", text, f"write {word} in engines.airflow of the step", at=("default_args", word))
        for owner, link in self.owner_links.items():
            if not _is_link(link):
                text, hint = f'"{link}" is not a link', "write https://… or mailto:…"
                raise problem("GF355", text, hint, at=("owner_links", owner))
        for role, rights in self.access_control.items():
            by_resource = rights.values() if isinstance(rights, dict) and rights else [rights]
            if not all(_is_list_of_text(each) for each in by_resource):
                hint = "write {Viewer: [can_read]} or {Viewer: {DAGs: [can_read]}}"
                raise problem("GF355", f'the rights of role "{role}" are not a list', hint, at=("access_control", role))
        return self


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(each, str) for each in value)


def _is_link(text: str) -> bool:
    """Airflow's own rule."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.path if parts.scheme == "mailto" else parts.scheme and parts.netloc)
