"""On a real Kubeflow Pipelines: what ML Metadata holds of artifacts, and artifacts to and from kfp's own components."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from proofs.artifacts_engines.ground import Ground

from . import kubeflow as addon
from .cluster import Cluster
from .kfp import PYTHON, ROOT, Kfp, is_step

pytestmark = pytest.mark.cluster

BY_HAND = Path(__file__).with_name("by_hand.py")
"""A hand-written pipeline, compiled by kfp."""
FROM_GPUFLOW = ("gpuflow_pipeline", "gpuflow_step", "gpuflow_run", "gpuflow_uri", "sha256", "bytes", "files")


@pytest.fixture(scope="module")
def ground(kubeflow: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """The guide's example, its bucket and its credentials."""
    made = Ground(kubeflow, tmp_path_factory.mktemp("artifacts"))
    made.namespace(addon.NAMESPACE)
    made.artifacts()  # makes the bucket
    return made


def executions(kfp: Kfp, run: str) -> dict[str, list[dict[str, Any]]]:
    """The containers of a run in ML Metadata by their tasks."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in kfp.lineage(run):
        if each["type"] == "system.ContainerExecution":
            found.setdefault(each["task"], []).append(each)
    return found


def artifacts(execution: dict[str, Any], side: str) -> list[dict[str, Any]]:
    """Those of one side. Where KFP publishes logs, these are no output of the step."""
    return [each for each in execution[side] if each["name"] != "executor-logs"]


def logs(kfp: Kfp, run: str) -> dict[str, str]:
    """What each step printed, by the task's name in Argo."""
    names = {
        pod["metadata"]["name"]: pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"]
        for pod in kfp.pods(run)
        if is_step(pod)
    }
    return {node: kfp.log(pod) for pod, node in names.items()}


def test_ml_metadata_has_the_artifacts_of_the_guides_example_and_who_took_them(ground: Ground) -> None:
    made = ground.folder / "kubeflow.yaml"
    ground.compile("kubeflow", addon.NAMESPACE, made)
    with Kfp(ground.cluster) as kfp:
        run = kfp.run(made, name="best-model")
        assert kfp.wait([run], timeout=1500) == {run: "SUCCEEDED"}
        found = executions(kfp, run)
        told = "".join(logs(kfp, run).values())
    assert {task: len(each) for task, each in found.items()} == {"data": 1, "train": 3, "best": 1, "evaluate": 1}
    (data,) = artifacts(found["data"][0], "outputs")
    assert (data["name"], data["type"]) == ("set", "system.Dataset")
    about = data["properties"]
    assert set(FROM_GPUFLOW) <= set(about) and about["display_name"] == "set"
    assert about["gpuflow_uri"].startswith("s3://ml-artifacts/gpuflow/") and about["gpuflow_uri"].endswith("/files")
    assert (about["gpuflow_run"], about["bytes"], about["files"]) == (run, 1_000_000, 21)
    models = []
    for train in found["train"]:
        assert [each["id"] for each in artifacts(train, "inputs")] == [data["id"]]
        models += [each for each in artifacts(train, "outputs") if each["type"] == "system.Model"]
    (best,) = found["best"]
    assert {each["id"] for each in artifacts(best, "inputs")} == {each["id"] for each in models}
    assert len({each["properties"]["sha256"] for each in models}) == 3
    (chosen,) = artifacts(best, "outputs")
    assert chosen["properties"]["sha256"] in {each["properties"]["sha256"] for each in models}
    (evaluate,) = found["evaluate"]
    assert {each["id"] for each in artifacts(evaluate, "inputs")} == {chosen["id"], data["id"]}
    shown = {each["name"]: each for each in artifacts(evaluate, "outputs")}
    assert {name: each["type"] for name, each in shown.items()} == {
        "metrics": "system.Metrics",
        "report": "system.Markdown",
    }
    numbers = dict(shown["metrics"]["properties"])
    assert numbers.pop("display_name") == "metrics" and numbers.pop("store_session_info")
    assert set(numbers) == {"lr", "accuracy", "bytes"} and numbers["lr"] in (0.1, 0.01, 0.001)
    # Of a dataset or a model the launcher uploads one small file, and of none their own.
    assert "weights.bin" not in told and ".bin" not in told


def test_artifacts_go_to_and_from_components_of_kfp(ground: Ground) -> None:
    made = ground.folder / "hand.yaml"
    words = [str(PYTHON), "-P", str(BY_HAND), ground.image, str(ground.site), str(made)]
    subprocess.run(words, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=600)
    with Kfp(ground.cluster) as kfp:
        run = kfp.run(made, name="hand", enable_caching=False)
        assert kfp.wait([run], timeout=1500) == {run: "SUCCEEDED"}
        found, printed = executions(kfp, run), "".join(logs(kfp, run).values())
    said = {line for line in printed.splitlines() if ": " in line}
    assert {
        "train reads: rows of kfp",
        "evaluate reads: learned from rows of kfp",
        "from files: learned from rows of kfp",
        "from uri: learned from rows of kfp",
        "from pointer: learned from rows of kfp",
    } <= said
    (data,) = artifacts(found["prepare"][0], "outputs")
    (train,) = found["train"]
    assert [each["id"] for each in artifacts(train, "inputs")] == [data["id"]]
    (model,) = artifacts(train, "outputs")
    assert [each["id"] for each in artifacts(found["evaluate"][0], "inputs")] == [model["id"]]
