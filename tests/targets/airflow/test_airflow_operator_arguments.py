"""No argument of Airflow's is dropped in silence: each is taken, or refused with what to say instead.

Tests gpuflow/airflow/operator_arguments.py.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG, BaseOperator
from kubernetes.client import models as k8s

from gpuflow import Step
from gpuflow.airflow import GpuPodOperator, gpu_step, gpu_task
from gpuflow.airflow.operator_arguments import NO_EFFECT, OF_STEPS, RESERVED, STOCK_DEFAULTS, argument_hint
from gpuflow.core.errors import GpuflowError
from gpuflow.spec.engine_options.airflow import TASK_FIELD_HINTS, TASK_OTHER_HINTS

from .playing import POD, Stage
from .stand_in import GOOD, StandIn

STEP = Step(image="i", command=["x"])
NAMES = [
    name
    for kind in (KubernetesPodOperator, BaseOperator, GpuPodOperator)
    for name in inspect.signature(kind.__init__).parameters
    if name not in ("self", "kwargs")
]
"""Every parameter that the installed Airflow and provider, and our own operator, have."""


@pytest.mark.parametrize("name", sorted(set(NAMES)))
def test_every_parameter_has_an_answer(name: str) -> None:
    assert (name in RESERVED) != (argument_hint(name) is not None), f"{name} is neither taken nor refused"


def test_the_table_names_nothing_that_does_not_exist() -> None:
    assert set(NAMES) >= {*RESERVED, *OF_STEPS, *NO_EFFECT}
    assert not set(RESERVED) & {*OF_STEPS, *NO_EFFECT}
    assert set(STOCK_DEFAULTS) >= {"image", "cmds", "env_vars", "volumes", "full_pod_spec", "pod_template_file", "name"}


VALUES: dict[str, Any] = {"random_name_suffix": False, "get_logs": False, "hostnetwork": True}
REFUSED = sorted(set(NAMES) - RESERVED)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_taken_is_refused_with_a_way_out(name: str) -> None:
    with DAG(dag_id="d"), pytest.raises(GpuflowError) as refused:
        gpu_step(STEP, task_id="a", airflow={name: VALUES.get(name, "x")})
    (finding,) = refused.value.findings
    assert (finding.code, finding.where.file) == ("GF361", __file__)
    assert f"task does not take {name} of Airflow" in finding.message
    assert finding.hint


def test_all_refused_arguments_are_named_at_once() -> None:
    given = {"volumes": [], "full_pod_spec": k8s.V1Pod(), "name": "x", "trigger_rule": "none_failed"}
    with DAG(dag_id="d"), pytest.raises(GpuflowError) as refused:
        gpu_step(STEP, task_id="a", airflow=given)
    assert [finding.message.split()[4] for finding in refused.value.findings] == ["volumes", "full_pod_spec", "name"]


@pytest.mark.parametrize(
    "value",
    [{"DAY": "{{ ds }}", "LR": "{{ params.lr }}"}, [k8s.V1EnvVar(name="DAY", value="{{ ds }} {{ params.lr }}")]],
)
def test_a_template_in_an_argument_is_answered_with_the_reference(value: Any) -> None:
    with DAG(dag_id="d"), pytest.raises(GpuflowError) as refused:
        gpu_step(STEP, task_id="a", airflow={"env_vars": value})
    hint = refused.value.findings[0].hint or ""
    assert "{run: date} and {param: lr}" in hint and "write env: {NAME: value} in the step" in hint


def test_the_operator_itself_refuses_them_too() -> None:
    with DAG(dag_id="d"), pytest.raises(GpuflowError, match="GpuPodOperator does not take image of Airflow") as refused:
        GpuPodOperator(task_id="a", template=POD, image="other")
    assert f"{__file__}:" in str(refused.value)


def test_default_args_for_other_tasks_do_not_change_the_pod_of_a_step(
    server: StandIn, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    defaults = {
        "image": "other", "cmds": ["other"], "env_vars": {"A": "1"}, "labels": {"a": "b"}, "get_logs": False,
        "namespace": "ml", "owner": "nlp", "node_selector": {"a": "b"}, "full_pod_spec": k8s.V1Pod(),
        "config_file": str(server.kubeconfig(tmp_path)), "in_cluster": False, "kubernetes_conn_id": None,
        "poll_interval": 0.01,
    }  # fmt: skip
    server.tell(GOOD, GOOD)

    def make(defaults: dict[str, Any]) -> Any:
        with DAG(dag_id="d", default_args=defaults):
            return gpu_step(Step(image="i", command=["x"]), task_id="a")

    plain = {name: defaults[name] for name in ("namespace", "config_file", "in_cluster", "kubernetes_conn_id")}
    for each in (plain, defaults):
        assert Stage().play(lambda each=each: make({"poll_interval": 0.01, **each})).state == "success"
        server.pods.clear()
    first, second = server.made
    assert first["spec"] == second["spec"] and first["metadata"]["labels"] == second["metadata"]["labels"]
    assert make(defaults).owner == "nlp"
    said = [record.getMessage() for record in caplog.records if "GF361" in record.getMessage()]
    assert "cmds, env_vars, full_pod_spec, get_logs, image, labels, node_selector" in said[-1]


def test_what_is_taken_reaches_the_operator() -> None:
    given: dict[str, Any] = {
        "trigger_rule": "none_failed", "pool": "gpus", "pool_slots": 2, "owner": "nlp", "priority_weight": 3,
        "kubernetes_conn_id": "second", "startup_timeout_seconds": 60, "deferrable": False, "retries": 4,
        "queue": "celery", "doc_md": "x", "container_logs": True, "on_finish_action": "keep_pod", "poll_interval": 2,
    }  # fmt: skip
    with DAG(dag_id="d"):
        made = gpu_step(STEP, task_id="a", airflow=given)
        function = gpu_task(image="i", airflow=given)(_nothing)().operator
    for each in (made, function):
        kept = {name: getattr(each, name) for name in given if name != "on_finish_action"}
        assert kept == {name: value for name, value in given.items() if name != "on_finish_action"}
        assert each.on_finish_action.value == "keep_pod"


def _nothing() -> None: ...


def test_two_meanings_of_queue_stand_side_by_side() -> None:
    with DAG(dag_id="d"):
        made = gpu_task(image="i", queue="research", airflow={"queue": "celery"})(_nothing)().operator
    assert made.queue == "celery"
    assert made.template.metadata["labels"]["kueue.x-k8s.io/queue-name"] == "research"


def test_retries_beside_the_retry_of_the_step_are_refused() -> None:
    step = Step(image="i", command=["x"], retry=2)
    with DAG(dag_id="d"), pytest.raises(GpuflowError, match="retries of Airflow stands beside the retry of the step"):
        gpu_step(step, task_id="a", airflow={"retries": 3})


def test_every_way_out_is_a_sentence_for_people() -> None:
    for name, hint in {**TASK_OTHER_HINTS, **TASK_FIELD_HINTS, **NO_EFFECT, **OF_STEPS}.items():
        assert hint and not hint.endswith("."), name
