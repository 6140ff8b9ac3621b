"""gpuflow.demand and gpuflow.check in Python, on documents of other tools: a path, a document, or several.

Tests gpuflow/api.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import gpuflow
from tests.cli.test_sources import JOB, OURS, QUOTA, TEMPLATE, WORKFLOW

GPU = "requests.nvidia.com/gpu"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 2}}}]},
}


def _value(demand: gpuflow.Demand) -> str:
    return str(demand.peak[GPU].value)


def test_a_path_a_document_and_several_documents(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB.format(name="train", gpus=3))
    found = gpuflow.demand(job)
    assert (found.name, found.kind, found.file, _value(found)) == ("train", "Job", str(job), "3")
    assert _value(gpuflow.demand(POD)) == "2"
    both = tmp_path / "both.yaml"
    both.write_text(f"{WORKFLOW}---\n{TEMPLATE}")
    assert _value(gpuflow.demand(both)) == "3"
    (tmp_path / "quota.yaml").write_text(QUOTA)
    report = gpuflow.check(POD, tmp_path / "quota.yaml", namespace="team")
    assert (report.verdict, report.kind, report.document()["kind"]) == ("always", "Pod", "Pod")


def test_what_is_not_one_workload_is_refused(tmp_path: Path) -> None:
    two = {**POD, "metadata": {"name": "q"}}
    with pytest.raises(gpuflow.GpuflowError, match=r"GF705 2 objects start pods: Pod p, Pod q"):
        gpuflow.demand([POD, two])
    with pytest.raises(gpuflow.GpuflowError, match=r"GF703 ConfigMap c"):
        gpuflow.demand({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
    with pytest.raises(gpuflow.GpuflowError, match=r"GF178 params\['x'\]: Pod p has no such parameter"):
        gpuflow.demand(POD, params={"x": "1"})
    ours = tmp_path / "ours.yaml"
    ours.write_text(OURS)
    assert gpuflow.demand(ours).kind == "Pipeline"
    with pytest.raises(gpuflow.GpuflowError, match=r"GF903 params= is for documents of other tools"):
        gpuflow.demand(ours, params={"lr": "1"})
    with pytest.raises(gpuflow.GpuflowError, match=r"GF702 the document is a pipeline of gpuflow"):
        gpuflow.demand({"apiVersion": "gpuflow/v1", "kind": "Pipeline", "name": "p", "steps": {}})
    with pytest.raises(TypeError, match="pipeline is a int"):
        gpuflow.demand(7)  # type: ignore[arg-type]  # what nobody should pass, or a table of options
