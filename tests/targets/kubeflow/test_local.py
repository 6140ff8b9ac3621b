"""Components under kfp's local runner: kfp's DockerRunner, with plain processes in the place of containers."""

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl, local
from kfp.components import load_component_from_file, load_component_from_text
from kfp.local import task_dispatcher

import gpuflow
from gpuflow import kubeflow
from tests.targets.kubeflow.compiling import compiled
from tests.targets.kubeflow.docker_stub import Client, docker_module

FOLDER = Path(__file__).resolve().parents[3] / "kfp_components"
pytestmark = pytest.mark.filterwarnings("ignore:Task '")  # locally, kfp says that resources have no effect


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """kfp set up to run containers, which the stub runs as processes."""
    scratch = tmp_path / "containers"
    scratch.mkdir()
    made = Client(scratch)
    monkeypatch.setitem(sys.modules, "docker", docker_module(made))
    monkeypatch.delitem(sys.modules, "kfp.local.docker_task_handler", raising=False)
    handler = importlib.import_module("kfp.local.docker_task_handler")
    monkeypatch.setattr(task_dispatcher, "docker_task_handler", handler)
    monkeypatch.setattr(task_dispatcher, "_DOCKER_AVAILABLE", True)
    local.init(
        runner=local.DockerRunner(), pipeline_root=str(tmp_path / "root"), workspace_root=str(tmp_path / "workspace")
    )
    yield made
    sys.modules.pop("kfp.local.docker_task_handler", None)


def dataset(folder: Path) -> Path:
    (folder / "deep").mkdir(parents=True)
    (folder / "a.bin").write_bytes(b"12345")
    (folder / "deep" / "b.bin").write_bytes(b"123")
    return folder


def test_dataset_staging_copies_a_folder_and_gives_its_counts(client: Client, tmp_path: Path) -> None:
    stage = load_component_from_file(str(FOLDER / "dataset-staging.yaml"))
    source, aim = dataset(tmp_path / "source"), tmp_path / "target"
    task = stage(source=str(source), target=str(aim))
    assert task.outputs == {"files": 2, "bytes": 8}
    assert (aim / "deep" / "b.bin").read_bytes() == b"123"
    assert client.pulled == ["registry.example.com/gpuflow/tools:1"]


def test_a_component_loaded_with_its_settings_runs_locally_too(client: Client, tmp_path: Path) -> None:
    stage = kubeflow.load_component(FOLDER / "dataset-staging.yaml")
    task = stage(source=str(dataset(tmp_path / "source")), target=str(tmp_path / "target"))
    assert task.outputs == {"files": 2, "bytes": 8}


def test_dataset_staging_of_an_empty_folder_fails(client: Client, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    stage = load_component_from_file(str(FOLDER / "dataset-staging.yaml"))
    with pytest.raises(RuntimeError, match="FAILURE"):
        stage(source=str(tmp_path / "empty"), target=str(tmp_path / "target"))


QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "gpus", "namespace": "nlp"},
    "spec": {"hard": {"requests.nvidia.com/gpu": "4"}},
    "status": {"hard": {"requests.nvidia.com/gpu": "4"}, "used": {"requests.nvidia.com/gpu": "0"}},
}
RECORD = {"apiVersion": "gpuflow/v1", "kind": "Snapshot", "assumed": ["Node", "Namespace", "ServiceAccount"]}
TRAINING = """apiVersion: gpuflow/v1
kind: Pipeline
name: training
steps:
  train: {image: "i:1", command: [train], gpu: l4 x %d, cpu: 1, memory: 1Gi}
"""


def gate_inputs(folder: Path, gpus: int) -> dict[str, str]:
    cluster, pipeline = folder / "cluster", folder / "training.yaml"
    cluster.mkdir()
    (cluster / "quota.json").write_text(json.dumps(QUOTA))
    (cluster / "record.json").write_text(json.dumps(RECORD))
    pipeline.write_text(TRAINING % gpus)
    return {"pipeline": str(pipeline), "cluster": str(cluster), "namespace": "nlp"}


def test_the_quota_gate_opens_for_what_the_cluster_admits(client: Client, tmp_path: Path, capsys: Any) -> None:
    gate = load_component_from_file(str(FOLDER / "quota-gate.yaml"))
    gate(**gate_inputs(tmp_path, 4))
    assert "training in namespace nlp: ALWAYS" in capsys.readouterr().out


def test_the_quota_gate_stays_shut_for_what_it_never_admits(client: Client, tmp_path: Path, capsys: Any) -> None:
    gate = load_component_from_file(str(FOLDER / "quota-gate.yaml"))
    with pytest.raises(RuntimeError, match="FAILURE"):
        gate(**gate_inputs(tmp_path, 8))
    assert 'GF501 step "train" can never be admitted' in capsys.readouterr().out


def test_nothing_is_staged_behind_a_gate_that_stays_shut(client: Client, tmp_path: Path) -> None:
    gate = load_component_from_file(str(FOLDER / "quota-gate.yaml"))
    stage = load_component_from_file(str(FOLDER / "dataset-staging.yaml"))
    asked, source, aim = gate_inputs(tmp_path, 8), dataset(tmp_path / "source"), tmp_path / "target"

    @dsl.pipeline(name="gated")
    def gated() -> None:
        stage(source=str(source), target=str(aim)).after(gate(**asked))

    with pytest.raises(RuntimeError, match="FAILURE"):
        gated()
    assert not aim.exists()


FLOW = """
name: flow
params: {words: {type: json, default: [a, bb]}, loud: true}
defaults: {image: "i:1"}
steps:
  measure:
    for_each: {word: {param: words}}
    command: [sh, -c, 'printf %s "$0" | wc -c > "$GPUFLOW_OUTPUTS/length"', {item: word}]
    outputs: {length: int}
  total:
    command:
      - python3
      - -c
      - |
        import json, os
        with open(os.environ["GPUFLOW_OUTPUTS"] + "/sum", "w") as out:
            print(int(sum(json.loads(os.environ["LENGTHS"]))), file=out)  # kfp.local writes whole numbers as 1.0
    env: {LENGTHS: {output: measure.length}}
    outputs: {sum: int}
  tell:
    when: params.loud
    command: [echo, told, {output: total.sum}]
outputs: {sum: {output: total.sum}}
"""


def test_a_loop_its_sum_and_a_condition_run_as_compiled(client: Client, capsys: Any) -> None:
    flow = load_component_from_text(compiled(FLOW))
    assert flow(words=["x", "yyy"]).outputs == {"sum": 4}
    assert "told 4" in capsys.readouterr().out
    assert flow(words=["x"], loud=False).outputs == {"sum": 1}
    assert "told" not in capsys.readouterr().out


def test_each_item_is_told_the_whole_list_too(client: Client, capsys: Any) -> None:
    source = """
name: rank
params: {names: {type: json, default: [a]}}
defaults: {image: "i:1"}
steps:
  rank: {for_each: {one: {param: names}}, command: [echo, rank, {item: one}, among, {param: names}]}
"""
    load_component_from_text(compiled(source))(names=["x", "y"])
    assert set(re.findall("rank . among .*", capsys.readouterr().out)) == {
        f'rank {one} among ["x", "y"]' for one in "xy"
    }


def test_a_step_as_a_component_runs_and_hands_its_output_on(client: Client) -> None:
    double = gpuflow.Step(
        image="i:1",
        command=["sh", "-c", 'expr 2 "*" "$0" > "$GPUFLOW_OUTPUTS/twice"', {"param": "number"}],
        outputs={"twice": int},
        gpu="l4",
    )

    @dsl.pipeline(name="four-times")
    def four_times(number: int = 3) -> int:
        twice = kubeflow.component(double, name="twice")
        return twice(number=twice(number=number).outputs["twice"]).outputs["twice"]  # type: ignore[no-any-return]  # kfp has no types

    assert four_times(number=5).output == 20
