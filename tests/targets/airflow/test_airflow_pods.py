"""The pod that reaches the API server is the pod of the spec, up to the additions that the guide lists."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from kubernetes.client import ApiClient

from gpuflow import Step
from gpuflow.airflow import GpuPodOperator, to_dag
from gpuflow.airflow.run_names import run_name
from gpuflow.pod import Engine, pod_for
from gpuflow.site import Site
from gpuflow.spec.canonical import meaning_of
from gpuflow.spec.loading import load
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, RunRef

from .playing import Stage
from .stand_in import StandIn, ended, running

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
ADDED_LABELS = {
    "dag_id", "task_id", "run_id", "try_number", "kubernetes_pod_operator", "airflow_version", "airflow_kpo_in_cluster",
    "gpuflow.dev/run",
}  # fmt: skip
"""What the guide lists as Airflow's own labels."""
REFERENCES = (ParamRef, OutputRef, ItemRef)
VALUE = "…"
"""Stands for every value that only a run knows."""


class Dots:
    """References as dots. What a sub-pipeline was given is known before."""

    def __init__(self, pipeline: Pipeline, around: Dots | None = None, given: Mapping[str, Any] | None = None) -> None:
        self.pipeline, self.around, self.given = pipeline, around or self, given or {}

    def literal(self, text: str) -> str:
        return text

    def reference(self, ref: Any) -> str:
        given = self.given.get(ref.name) if isinstance(ref, ParamRef) else None
        if given is not None:
            return self.around.reference(given) if isinstance(given, REFERENCES) else text_of(given)
        return VALUE


def steps_of(
    pipeline: Pipeline, group: tuple[str, ...] = (), dots: Dots | None = None
) -> list[tuple[str, Pipeline, str, Dots]]:
    """Every step that runs a container: its task, its pipeline, its name, and how its references are written."""
    found: list[tuple[str, Pipeline, str, Dots]] = []
    dots = dots or Dots(pipeline)
    for name in (*pipeline.steps, *pipeline.exit):
        step = pipeline.effective(name)
        if step.pipeline is not None:
            defaults = {key: param.default for key, param in step.pipeline.params.items()}
            found += steps_of(step.pipeline, (*group, name), Dots(step.pipeline, dots, {**defaults, **step.params}))
        elif step.runs_container:
            found.append((".".join((*group, name)), pipeline, name, dots))
    return found


@pytest.mark.parametrize("example", ["nightly", "finetune", "finetune-eval"])
def test_the_pod_of_every_step_of_every_example(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuflow.airflow.references.text_of", lambda part, context: VALUE)
    # Volumes and variables stand in the one order that every spelling of a pipeline has.
    pipeline, site = meaning_of(load(ROOT / "docs" / "examples" / f"{example}.yaml")), Site.load("nvidia")
    live = to_dag(pipeline, site, namespace="ml", allow_lossy=True)
    compared = 0
    with StandIn() as server:
        kubeconfig = str(server.kubeconfig(tmp_path))
        for task, inner, name, dots in steps_of(pipeline):
            expected = pod_for(inner, name, site, dots, Engine("airflow"))
            for volume in expected["spec"].get("volumes", ()):
                if volume.get("persistentVolumeClaim", {}).get("claimName") in pipeline.claims:
                    volume["persistentVolumeClaim"]["claimName"] = VALUE
            assert_same(made(live.get_task(task), server, kubeconfig), expected, live.get_task(task))
            compared += 1
    assert compared == len([one for one in live.tasks if one.task_type == "GpuPodOperator"])


@pytest.mark.parametrize(
    ("dag", "task", "constant"), [("etl_with_gpu_step", "vectors.embed", "EMBED"), ("sweep_on_mig", "trial", "TRIAL")]
)
def test_the_pod_of_a_step_in_a_hand_written_dag(
    dag: str, task: str, constant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuflow.airflow.references.text_of", lambda part, context: VALUE)
    file = ROOT / "dags" / f"{dag}.py"
    step: Step = runpy.run_path(str(file))[constant]
    name = task.rpartition(".")[2]
    alone = Pipeline.model_construct(name="airflow", steps={name: step})
    expected = pod_for(alone, name, Site.load("nvidia"), Dots(alone), Engine("airflow"))
    operator = DagBag(str(file), bundle_path=file.parent).dags[dag].get_task(task)
    with StandIn() as server:
        assert_same(made(operator, server, str(server.kubeconfig(tmp_path))), expected, operator)


def made(operator: Any, server: StandIn, kubeconfig: str) -> dict[str, Any]:
    """The pod an operator asks the API server for."""
    if operator.is_mapped:
        operator = operator.unmap({"item": Items()})
    assert isinstance(operator, GpuPodOperator)
    operator.config_file, operator.kubernetes_conn_id, operator.in_cluster = kubeconfig, None, False
    operator.poll_interval, operator.deferrable = 0.01, False
    operator.when, operator.only_after_failure, operator.limits = None, False, ()
    operator._read_outputs = lambda pod: (dict.fromkeys(operator.outputs, 0), None)
    server.made.clear()
    server.tell([running(), ended(0)])
    operator.execute(Stage().context(operator))
    (pod,) = server.made
    return pod


class Items(dict[str, Any]):
    """An item of any fan-out."""

    def __missing__(self, key: str) -> str:
        return VALUE


def assert_same(pod: dict[str, Any], expected: dict[str, Any], operator: Any) -> None:
    spec, main = pod["spec"], pod["spec"]["containers"][0]
    if any(container["name"] == "airflow-xcom-sidecar" for container in spec["containers"]):
        assert spec["containers"].pop()["name"] == "airflow-xcom-sidecar"
        assert spec["volumes"].pop(0) == {"name": "xcom", "emptyDir": {}}
        assert main["volumeMounts"].pop(0) == {"name": "xcom", "mountPath": "/airflow/xcom"}
    assert main.pop("terminationMessagePolicy") == "File"
    of_it = operator.partial_kwargs if operator.is_mapped else vars(operator)
    if of_it.get("supervised"):  # the stock operator tells nothing
        told = {variable["name"]: variable["value"] for variable in main["env"][-2:]}
        assert told == {"GPUFLOW_RUN_ENGINE_ATTEMPT": "1", "GPUFLOW_RUN_AFTER_FINAL": "renew"}
        main["env"] = main["env"][:-2]
        if not main["env"]:
            del main["env"]
    assert _plain(spec) == _plain(expected["spec"])
    labels, own = pod["metadata"]["labels"], expected["metadata"]["labels"]
    assert {key: value for key, value in labels.items() if key in own} == own
    assert set(labels) - set(own) <= ADDED_LABELS
    notes = pod["metadata"].get("annotations") or {}
    mine = expected["metadata"].get("annotations", {})
    assert {key: text for key, text in notes.items() if not key.startswith("gpuflow.dev/") or key in mine} == mine


def _plain(spec: dict[str, Any]) -> dict[str, Any]:
    """Without the item that a flattened sub-pipeline names more fully: the names of the items around it stand in it."""
    main = dict(spec["containers"][0])
    main["command"] = [word for word in main["command"] if not str(word).startswith("--item=")]
    return {
        **{key: value for key, value in spec.items() if value or key in ("volumes",)},
        "volumes": spec.get("volumes") or [],
        "containers": [{**main, "volumeMounts": main.get("volumeMounts") or []}, *spec["containers"][1:]],
    }


class Known:
    """References as the values that the run of the stand-alone DAG below has."""

    values: Mapping[str, str] = {"lr": "1.0", "name": "$$(HOME)", "rows": "7", "loss": "[0.5]"}

    def __init__(self, item: Mapping[str, Any]) -> None:
        self.item = item

    def literal(self, text: str) -> str:
        return text

    def reference(self, ref: Any) -> str:
        if isinstance(ref, RunRef):
            return run_name("finetune", Stage.run_id)
        return text_of(self.item[ref.name]) if isinstance(ref, ItemRef) else self.values[ref.name]


def test_the_pod_of_every_step_of_a_standalone_dag(tmp_path: Path) -> None:
    with StandIn() as server:
        kubeconfig = str(server.kubeconfig(tmp_path))
    pipeline, site = load(HERE / "cases" / "stock.yaml"), Site.load("nvidia")
    dag = DagBag(str(HERE / "golden" / "stock.py"), bundle_path=HERE / "golden").dags["stock"]
    pulled = {"plan": {"rows": 7}, "fan": {"loss": 0.5}}
    names = []
    for task, _, name, _ in steps_of(pipeline):
        operator, item = dag.get_task(task), {}
        if operator.is_mapped:
            template = operator.expand_input.value["pod_template_dict"][3]
            operator, item = operator.unmap({"pod_template_dict": template}), {"lr": 0.2, "seed": 1}
        assert type(operator) is KubernetesPodOperator
        context = Stage(params={"lr": 1, "name": "$(HOME)"}).context(operator)
        context["ti"].xcom_pull = lambda task_ids: (
            pulled[task_ids] if isinstance(task_ids, str) else [pulled[task_ids[0]]]
        )
        operator.render_template_fields(context)
        operator.config_file, operator.kubernetes_conn_id, operator.in_cluster = kubeconfig, None, False
        pod = ApiClient().sanitize_for_serialization(operator.build_pod_request_obj(context))
        expected = pod_for(pipeline, name, site, Known(item), Engine("airflow"))
        _drop_blanks(pod, expected)
        assert_same(pod, expected, operator)
        names.append(name)
    assert names == ["plan", "train", "fan", "gather", "tidy"]


def _drop_blanks(pod: dict[str, Any], expected: Mapping[str, Any]) -> None:
    """The stock operator writes an empty value for every argument it was not given."""
    parts = (
        (pod["spec"], expected["spec"]),
        (pod["spec"]["containers"][0], expected["spec"]["containers"][0]),
    )
    for part, asked in parts:
        for key in [key for key, value in part.items() if not value and key not in asked]:
            del part[key]
