"""Workflows that stand in a Sensor of Argo Events are read like others, with their places.

Tests `workflows_in` of gpuflow/formats/documents.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.cluster import Cluster
from gpuflow.demands import Demand
from gpuflow.formats.documents import read_documents
from gpuflow.readers import PassiveObject, foreign_in
from gpuflow.site import Site
from tests.assumed import ASSUMED
from tests.checker.test_controllers import quota
from tests.checker.whole_scenes import manifest

SENSOR = """apiVersion: argoproj.io/v1alpha1
kind: Sensor
metadata: {name: reviews, namespace: ml}
spec:
  triggers:
  - template:
      name: train
      argoWorkflow:
        operation: submit
        source:
          resource:
            apiVersion: argoproj.io/v1alpha1
            kind: Workflow
            metadata: {generateName: train-}
            spec:
              entrypoint: main
              arguments: {parameters: [{name: gpus, value: "2"}]}
              templates:
              - name: main
                container: {image: i, command: [x], resources: {limits: {nvidia.com/gpu: 2}}}
  - template: {name: tell, http: {url: "http://x"}}
"""


def report_on(text: str, folder: Path, room: int, runs: int | None = None) -> Report:
    file = folder / "sensor.yaml"
    file.write_text(text)
    (workflow,), _ = foreign_in(read_documents(str(file)))
    demand = workflow.demand_on_site(Site.load("nvidia"), None, {})
    assert isinstance(demand, Demand) and demand.namespace == "ml"
    return check(demand, Cluster("c.yaml", (manifest(quota(room)),), assumed=ASSUMED), "ml", runs=runs)


def said(report: Report, code: str) -> str:
    return " ".join(f"{each.message} {each.hint}" for each in report.findings if each.code == code)


def test_the_workflow_of_a_sensor_is_checked_and_how_often_it_starts_is_not_known(tmp_path: Path) -> None:
    report = report_on(SENSOR, tmp_path, 2)
    assert report.verdict == "may-queue" and [str(line.peak) for line in report.scopes] == ["2"]
    assert "trigger train of Sensor reviews starts one at each event" in said(report, "GF553")
    assert "a mutex in synchronization allows one only" in said(report, "GF553")
    (where,) = {each.where.line for each in report.findings if each.code == "GF551"}
    assert where == 19
    assert report_on(SENSOR, tmp_path, 2, runs=1).verdict == "always"
    assert report_on(SENSOR, tmp_path, 1).verdict == "never"
    alone = SENSOR.replace("entrypoint", "synchronization: {mutexes: [{name: m}]}\n              entrypoint")
    assert report_on(alone, tmp_path, 2).verdict == "may-queue"  # somebody else may hold it
    assert said(report_on(alone, tmp_path, 2), "GF553") == ""


@pytest.mark.parametrize(
    ("place", "destination", "verdict"),
    [
        ("argoWorkflow", "metadata.name", "always"),
        ("argoWorkflow", "spec.arguments.parameters.0.value", "always"),  # nothing that counts uses it
        ("argoWorkflow", "spec.arguments.parameters.1.value", "unknown"),
        ("argoWorkflow", "spec.templates.0.container.resources", "unknown"),
        ("argoWorkflow", "metadata.labels.x", "unknown"),
        ("", "argoWorkflow.source", "unknown"),
    ],
)
def test_what_an_event_writes_is_not_known(place: str, destination: str, verdict: str, tmp_path: Path) -> None:
    tree = yaml.safe_load(SENSOR)
    trigger = tree["spec"]["triggers"][0]
    owner = trigger["template"][place] if place else trigger
    owner["parameters"] = [{"src": {"dependencyName": "d", "dataKey": "k"}, "dest": destination}]
    report = report_on(yaml.safe_dump(tree), tmp_path, 2, runs=1)
    assert report.verdict == verdict
    if verdict == "unknown":
        assert f"trigger train of Sensor reviews writes {destination}" in said(report, "GF701")


def test_an_argument_that_an_event_gives_is_one_that_only_the_run_knows(tmp_path: Path) -> None:
    tree = yaml.safe_load(SENSOR)
    started = tree["spec"]["triggers"][0]["template"]["argoWorkflow"]
    template = started["source"]["resource"]["spec"]["templates"][0]
    template["podSpecPatch"] = '{"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": GPUS}}}]}'
    template["podSpecPatch"] = template["podSpecPatch"].replace("GPUS", '"{{workflow.parameters.gpus}}"')
    assert report_on(yaml.safe_dump(tree), tmp_path, 2, runs=1).verdict == "always"
    started["parameters"] = [{"src": {"dependencyName": "d"}, "dest": "spec.arguments.parameters.0.value"}]
    assert report_on(yaml.safe_dump(tree), tmp_path, 2, runs=1).verdict == "unknown"
    del started["parameters"]
    started["args"] = ["--entrypoint", "x"]
    assert report_on(yaml.safe_dump(tree), tmp_path, 2, runs=1).verdict == "unknown"


@pytest.mark.parametrize(
    ("kind", "operation", "is_read"),
    [
        ("argoWorkflow", "submit", True),
        ("argoWorkflow", None, True),
        ("argoWorkflow", "resubmit", False),
        ("k8s", "create", True),
        ("k8s", "patch", False),
    ],
)
def test_only_what_creates_a_workflow_is_read(kind: str, operation: str | None, is_read: bool, tmp_path: Path) -> None:
    tree = yaml.safe_load(SENSOR)
    template = tree["spec"]["triggers"][0]["template"]
    template[kind] = {"source": template.pop("argoWorkflow")["source"], "operation": operation}
    (tmp_path / "sensor.yaml").write_text(yaml.safe_dump(tree))
    active, passive = foreign_in(read_documents(str(tmp_path / "sensor.yaml")))
    assert [each.name for each in active] == (["train"] if is_read else [])
    (sensor,) = passive
    assert isinstance(sensor, PassiveObject) and not sensor.is_known
    left = '(trigger "tell")' if is_read else "(triggers train, tell)"
    assert sensor.finding().message == f"Sensor reviews {left}: gpuflow does not know which pods this kind starts"


def test_what_is_sent_where_an_event_could_not_be_delivered_is_read_too(tmp_path: Path) -> None:
    tree = yaml.safe_load(SENSOR)
    first, second = tree["spec"]["triggers"]
    tree["spec"]["triggers"] = [{**second, "dlqTrigger": first}]
    (tmp_path / "sensor.yaml").write_text(yaml.safe_dump(tree))
    active, _ = foreign_in(read_documents(str(tmp_path / "sensor.yaml")))
    assert [each.name for each in active] == ["train"]
