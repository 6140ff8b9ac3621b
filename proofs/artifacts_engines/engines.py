"""The pipeline on each engine to its end: whether it ended well, and what the engine itself says of its artifacts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from proofs.airflow.ground import Ground as Airflow
from tests.cluster import kubeflow
from tests.cluster.kfp import Kfp
from tests.cluster.test_argo import ended
from tests.cluster.waiting import until

from .ground import Ground

Told = dict[str, Any]


def on_argo(ground: Ground) -> Told:
    kube = ground.namespace("artifacts-argo")
    made = ground.folder / "argo.yaml"
    ground.compile("argo", kube.namespace, made)
    kube.apply(*yaml.safe_load_all(made.read_text()))
    run = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "run"}}
    until("the template", lambda: kube.get("workflowtemplate", ground.name))
    kube.create({**run, "spec": {"workflowTemplateRef": {"name": ground.name}}})
    done = ended(kube, "run", 1200)
    nodes = [node for node in done["status"].get("nodes", {}).values() if node["type"] == "Pod"]
    return {
        "state": done["status"]["phase"],
        "why": [node.get("message") for node in nodes if node["phase"] != "Succeeded"],
        "shown": sorted(
            f"{node['displayName']}: {parameter['name']} = {parameter['value']}"
            for node in nodes
            for parameter in node.get("outputs", {}).get("parameters", ())
            if str(parameter.get("value", "")).startswith("s3://")
        ),
    }


def on_airflow(ground: Ground) -> Told:
    kube = ground.namespace("artifacts-airflow")
    with Airflow(ground.cluster, Path("/tmp") / "gpuflow-artifact-proof" / ground.cluster.layout.name) as airflow:
        for file in airflow.home.dags.iterdir():
            if file.is_file():
                file.unlink()
        ground.compile("airflow", kube.namespace, airflow.home.dags / f"{ground.name.replace('-', '_')}.py")
        run = airflow.start(ground.name, kube.namespace)
        text = run.ended()
        shown = {task: run.xcoms(task) for task in ground.steps}
        return {
            "state": run.state,
            "why": [] if run.state == "success" else [text[-3000:]],
            "shown": shown,
            "assets": run.assets(),
        }


def on_kubeflow(ground: Ground) -> Told:
    ground.namespace(kubeflow.NAMESPACE)
    made = ground.folder / "kubeflow.yaml"
    ground.compile("kubeflow", kubeflow.NAMESPACE, made)
    with Kfp(ground.cluster) as kfp:
        run = kfp.run(made, name=ground.name, enable_caching=False)
        state = kfp.wait([run], timeout=1500)[run]
        tasks = [(task.name, task.state) for task in kfp.tasks(run)]
        return {"state": state, "why": [] if state == "SUCCEEDED" else tasks, "shown": _lineage(kfp, run)}


def _lineage(kfp: Kfp, run: str) -> list[str]:
    """What ML Metadata says each step took and made, in one line each."""
    lines = []
    for each in kfp.lineage(run):
        if each["type"] == "system.ContainerExecution":
            took, made = (
                ", ".join(f"{one['type']} {one['name']} {one['id']}" for one in each[side] if "logs" not in one["name"])
                for side in ("inputs", "outputs")
            )
            lines.append(f"{each['task']}: took {took or 'nothing'}; made {made or 'nothing'}")
    return lines


ENGINES: dict[str, Callable[[Ground], Told]] = {"argo": on_argo, "airflow": on_airflow, "kubeflow": on_kubeflow}
GOOD = {"argo": "Succeeded", "airflow": "success", "kubeflow": "SUCCEEDED"}
