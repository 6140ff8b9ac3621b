"""Artifacts in Airflow: assets with a stable name, events that say what a run has kept, and links to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.serialization.serialized_objects import DagSerialization

from gpuflow import Step
from gpuflow.airflow import GpuPodOperator, Pod, gpu_step, links, to_dag
from gpuflow.airflow.links import describe_assets, link_parts, reported_artifacts
from gpuflow.runtime.artifacts.outputs import ARTIFACTS_ENTRY, deliver
from gpuflow.runtime.base.records import File, KeptOutput
from gpuflow.site import Site
from gpuflow.site.model import ARTIFACT_LINK_VALUES
from gpuflow.spec.loading import loads
from gpuflow.targets.airflow import target
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.target import Request, compile_with

SITE = """\
apiVersion: gpuflow/v1
kind: Site
extends: nvidia
name: here
namespace: ml
runtime: {artifacts: "s3://lake/artifacts/"}
engines:
  airflow:
    links:
      Artifact: "https://console.example.com/{bucket}/{key}"
      Pod: "https://k8s.example.com/{namespace}/{pod}"
"""
PIPELINE = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: nightly
defaults: {image: i}
steps:
  train:
    for_each: {lr: [1, 2]}
    command: [t]
    outputs: {model: {type: directory, kind: model}, score: float}
  fixed:
    command: [t]
    outputs: {report: {type: file, uri: s3://lake/report}}
  sub:
    pipeline: {name: inner, steps: {fit: {image: i, command: [x], outputs: {weights: {type: file}}}}}
"""
ROOT = "s3://lake/artifacts/nightly"
POD = Pod({}, spec={"containers": [{"name": "main", "image": "i"}]})
KEPT = KeptOutput(
    type="directory",
    uri="s3://lake/a b/000001-0123abcd/files",
    sha256="ab" * 32,
    bytes=5,
    files=[File(path="d", directory=True), File(path="d/x", size=5, sha256="ab" * 32, mode=0o644)],
)
NOTE = {"uri": KEPT.uri, "type": "directory", "sha256": KEPT.sha256, "bytes": 5, "files": 1}


def site(folder: Path) -> Site:
    (folder / "site.yaml").write_text(SITE)
    return Site.load(str(folder / "site.yaml"))


def dag_of(folder: Path) -> Any:
    (folder / "p.yaml").write_text(PIPELINE)
    return to_dag(folder / "p.yaml", site(folder))


def outlets(made: Any) -> list[str]:
    return [asset.uri for asset in made.outlets]


def test_what_the_site_keeps_is_an_asset_named_by_pipeline_step_and_output(tmp_path: Path) -> None:
    dag = dag_of(tmp_path)
    assert outlets(dag.get_task("train")) == [f"{ROOT}/train/model"], "one for all copies of a fan-out"
    assert outlets(dag.get_task("sub.fit")) == [f"{ROOT}/sub/fit/weights"]
    assert outlets(dag.get_task("fixed")) == ["s3://lake/report"], "a place of its own is its own name"


def test_a_step_in_a_dag_of_ones_own_has_assets_of_that_dag(tmp_path: Path) -> None:
    step = Step(image="i", command=["x"], outputs={"model": {"type": "directory"}})
    with DAG(dag_id="mine"):
        made = gpu_step(step, site(tmp_path), task_id="fit")
    assert outlets(made) == ["s3://lake/artifacts/mine/fit/model"]


def test_return_json_says_of_an_artifact_what_its_event_carries(tmp_path: Path) -> None:
    deliver({"model": KEPT}, "airflow", str(tmp_path), {}, xcom=str(tmp_path / "return.json"))
    written = json.loads((tmp_path / "return.json").read_text())
    assert written == {"model": KEPT.uri, ARTIFACTS_ENTRY: {"model": NOTE}}
    assert json.loads((tmp_path / "model.artifact.json").read_text()) == NOTE
    declared = {"model": {"kind": "model", "asset": f"{ROOT}/train/model"}}
    events = OutletEventAccessors()
    describe_assets({"outlet_events": events}, declared, reported_artifacts(written, declared))
    assert events[Asset(f"{ROOT}/train/model")].extra == {"output": "model", **NOTE, "kind": "model"}


@pytest.mark.parametrize(
    "found", [None, [], {}, {ARTIFACTS_ENTRY: 1}, {ARTIFACTS_ENTRY: {"model": "x"}}, {ARTIFACTS_ENTRY: {"other": NOTE}}]
)
def test_what_a_program_writes_of_artifacts_itself_is_not_believed(found: Any) -> None:
    assert reported_artifacts(found, {"model": {}}) == {}
    assert reported_artifacts({ARTIFACTS_ENTRY: {"model": {"uri": 3, "bytes": True, "x": 1}}}, {"model": {}}) == {
        "model": {}
    }


def test_a_link_leads_to_each_artifact_of_a_task_once_it_is_kept(tmp_path: Path) -> None:
    with DAG(dag_id="d") as dag:
        made = GpuPodOperator(
            task_id="t",
            namespace="ml",
            template=POD,
            artifacts={"model": {}},
            links=site(tmp_path).engine("airflow").links,
        )
        GpuPodOperator.partial(
            task_id="m", namespace="ml", template=POD, artifacts={"a": {}, "b": {}}, links=made.links
        ).expand(item=[{"n": 1}])
        GpuPodOperator(task_id="bare", namespace="ml", template=POD, links=made.links)
    stored = {each["__var"]["task_id"]: each["__var"] for each in DagSerialization.to_dict(dag)["dag"]["tasks"]}
    assert set(stored["m"]["_operator_extra_links"]) == {"Pipeline source", "Artifact: a", "Artifact: b", "Pod"}
    assert set(stored["bare"]["_operator_extra_links"]) == {"Pipeline source", "Pod"}
    (link,) = (each for each in made.operator_extra_links if each.name == "Artifact: model")
    key = type("Key", (), {"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": -1, "try_number": 1})
    assert link.get_link(made, ti_key=key) == ""
    made.kept = {"model": NOTE}
    assert link.get_link(made, ti_key=key) == "https://console.example.com/lake/a%20b/000001-0123abcd/files"
    assert link_parts("model", {"uri": "/mnt/x"})["bucket"] is None
    assert links.OF_ARTIFACTS == ARTIFACT_LINK_VALUES


def test_stock_operators_have_the_assets(tmp_path: Path) -> None:
    steps = PIPELINE.partition("  sub:")[0]
    request = Request(loads(steps), site(tmp_path), "ml", "p.yaml", (), AirflowOptions(standalone=True))
    text = compile_with(target, request, allow_lossy=False).text
    assert f'outlets=[Asset("{ROOT}/train/model")]' in text
    assert "    artifacts={" not in text
