"""What a real Airflow makes of the DAG files, and of pipelines and steps that are handed to it in Python.

Tests gpuflow/airflow/dags.py.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from gpuflow import Step
from gpuflow.airflow import GpuPodOperator, task, to_dag
from gpuflow.airflow.run_names import run_name
from gpuflow.core.emit import emit
from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets import load_target
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.target import Request, compile_with

from .test_airflow_compile import SITES

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CASES = sorted(path.stem for path in (HERE / "cases").glob("*.yaml") if path.stem != "stock")
"""Every golden that imports gpuflow."""


@pytest.fixture(scope="module")
def bag() -> Any:
    """Every golden and every DAG of the repository, as Airflow loads them."""
    dags, errors = {}, {}
    for folder in (HERE / "golden", ROOT / "dags"):
        found = DagBag(str(folder), bundle_path=folder)
        dags |= found.dags
        errors |= found.import_errors
    assert errors == {}
    return dags


def stored(dag: Any) -> Any:
    return json.loads(json.dumps(DagSerialization.to_dict(dag)))


def test_airflow_loads_every_dag_without_an_import_error(bag: Any) -> None:
    names = {path.stem for path in (HERE / "cases").glob("*.yaml")}
    assert names <= set(bag)
    assert {"finetune", "finetune-eval", "nightly", "etl_with_gpu_step", "sweep_on_mig"} <= set(bag)


def test_airflow_stores_every_dag_and_reads_it_back(bag: Any) -> None:
    for dag in bag.values():
        again = DagSerialization.from_dict(stored(dag))
        assert sorted(again.task_ids) == sorted(dag.task_ids)


@pytest.mark.parametrize("case", CASES)
def test_a_pipeline_handed_over_in_python_is_the_compiled_dag(case: str, bag: Any) -> None:
    site = SITES.get(case, "nvidia")
    live = to_dag(HERE / "cases" / f"{case}.yaml", site=site, namespace="ml")
    ours, compiled = stored(live)["dag"], stored(bag[live.dag_id])["dag"]
    for document in (ours, compiled):
        for place in ("fileloc", "relative_fileloc", "_processor_dags_folder", "bundle_name"):
            document.pop(place, None)
    assert ours == compiled


def test_labels_that_steps_share_are_no_other_version_of_a_mapped_task() -> None:
    text = """{apiVersion: gpuflow/v1, kind: Pipeline, name: p, labels: {team: a}, defaults: {image: i}, steps: {
      a: {command: [x], for_each: {n: [1]}}, b: {command: [y], for_each: {n: [1]}}}}"""
    request = Request(loads(text), Site.load(), None, "<text>", options=AirflowOptions())
    names: dict[str, Any] = {}
    exec(compile_with(load_target("airflow"), request, allow_lossy=False).text, names)
    assert stored(names["dag"])["dag"]["tasks"] == stored(to_dag(loads(text)))["dag"]["tasks"]


def test_any_change_of_a_pod_makes_a_new_dag_version() -> None:
    def version(text: str) -> Any:
        return stored(to_dag(loads(text)))

    before = "{apiVersion: gpuflow/v1, kind: Pipeline, name: p, steps: {a: {image: i, command: [x], env: {%s}}}}"
    long = ", ".join(f"V{number}: {'x' * 60}" for number in range(100))
    assert version(before % (long + ", LAST: one")) != version(before % (long + ", LAST: two"))
    led = before.replace("env: {%s}", "gang: {workers: 1, leader: {env: {%s}}}")
    assert version(led % (long + ", LAST: one")) != version(led % (long + ", LAST: two"))


def test_a_step_on_its_own_takes_values_from_tasks_and_depends_on_them(bag: Any) -> None:
    dag = bag["etl_with_gpu_step"]
    embed = dag.get_task("vectors.embed")
    assert isinstance(embed, GpuPodOperator)
    assert embed.upstream_task_ids == {"extract"}
    assert embed.downstream_task_ids == {"load"}


def test_a_step_with_items_becomes_a_mapped_task_with_its_limit(bag: Any) -> None:
    trial = bag["sweep_on_mig"].get_task("trial")
    assert trial.is_mapped
    assert trial.partial_kwargs["max_active_tis_per_dagrun"] == 4
    assert len(trial.expand_input.value["item"]) == 9


def test_a_missing_or_surplus_value_of_a_step_is_named() -> None:
    step = Step(image="i", command=["x", {"param": "path"}])
    with pytest.raises(GpuflowError, match='uses "path", but no value is given'):
        task(step)
    with DAG(dag_id="d"), pytest.raises(GpuflowError, match='"paht" is not used by the step'):
        task(step, path="a", paht="b")


def test_outputs_that_share_a_name_take_an_argument_each() -> None:
    step = Step(image="i", command=["x", {"output": "left.path"}, {"output": "right.path"}])
    with DAG(dag_id="d"):
        made = task(step, left_path="a", right_path="b")
        with pytest.raises(GpuflowError, match='uses "left_path", but no value is given'):
            task(step, path="a")
    assert made.template.spec["containers"][0]["command"] == ["x", "a", "b"]


def test_a_standalone_dag_fills_in_values_and_leaves_other_text_alone(bag: Any) -> None:
    train = bag["stock"].get_task("train")
    pulled = {"plan": {"rows": 7}}
    ti = SimpleNamespace(xcom_pull=lambda task_ids: pulled[task_ids])
    run = SimpleNamespace(dag_id="stock", run_id="r")
    train.render_template_fields({"params": {"lr": 1, "name": "$(HOME)"}, "ti": ti, "dag_run": run})
    assert train.pod_template_dict["spec"]["containers"][0]["command"] == ["train", "--lr={1.0}", "7", "$$(HOME)"]
    plan = bag["stock"].get_task("plan")
    plan.render_template_fields({"params": {"lr": 1, "name": "$(HOME)"}, "ti": ti, "dag_run": run})
    command = plan.pod_template_dict["spec"]["containers"][0]["command"]
    assert command[-2:] == ["{{ kept }}", "$$(HOME)"]
    assert f"--run-id={run_name('stock', 'r')}" in command


def test_what_a_step_wrote_as_a_number_is_not_expanded_by_the_kubelet() -> None:
    """Without gpuflow in Airflow nobody checks the type of what an earlier step wrote."""
    train = runpy.run_path(str(HERE / "golden" / "stock.py"))["dag"].get_task("train")
    ti = SimpleNamespace(xcom_pull=lambda task_ids: {"rows": "$(DB_PASSWORD){{ 7*7 }}"})
    run = SimpleNamespace(dag_id="stock", run_id="r")
    train.render_template_fields({"params": {"lr": 1, "name": "n"}, "ti": ti, "dag_run": run})
    command = train.pod_template_dict["spec"]["containers"][0]["command"]
    assert command[2] == '"$$(DB_PASSWORD){{ 7*7 }}"'


@pytest.mark.parametrize(
    "text",
    ["{😀}", "{👩\u200d💻 \u202e\u3164}", "}😀\\ud83d", "😀\n", '{"😀": "\\u0041"}', "{\x85\u2028}", "a\rb", "\r\n."],
)
def test_text_beside_a_value_is_rendered_by_airflow_as_it_was_written(text: str) -> None:
    """Jinja does not join the two halves that JSON writes an emoji with."""
    step = {"image": "i", "command": ["x", text, {"join": [text, {"param": "name"}, text]}]}
    document = {
        "apiVersion": "gpuflow/v1",
        "kind": "Pipeline",
        "name": "p",
        "params": {"name": "n"},
        "steps": {"a": step},
    }
    request = Request(loads(emit(document)), Site.load(), None, "p.yaml", options=AirflowOptions(standalone=True))
    names: dict[str, Any] = {}
    exec(compile_with(load_target("airflow"), request, allow_lossy=False).text, names)
    made = names["dag"].get_task("a")
    made.render_template_fields({"params": {"name": "n"}, "run_id": "r"})
    assert made.pod_template_dict["spec"]["containers"][0]["command"] == ["x", text, f"{text}n{text}"]


def test_a_failed_pipeline_is_a_failed_run_whatever_its_exit_steps_do(bag: Any) -> None:
    dag = bag["endings"]
    (last,) = (task for task in dag.tasks if not task.downstream_task_ids)
    assert (last.task_id, last.trigger_rule) == ("outcome", "none_failed")
    assert {"both", "anyway", "notify", "page", "tidy"} <= last.upstream_task_ids
    # `both` is marked skipped as soon as `maybe` is, so nothing but the outcome itself would see `slow` fail.
    assert "slow" in last.upstream_task_ids
