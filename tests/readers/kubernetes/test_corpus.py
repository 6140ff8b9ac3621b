"""The workloads among Kueue's own examples, counted by hand from their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuflow.demands import Demand
from gpuflow.formats.documents import KUBERNETES_READER, READERS
from gpuflow.readers import Options, PassiveObject, foreign_in, read_documents
from gpuflow.site import Site

PODS = {
    "jobs/ray-cluster-sample.yaml": "2",
    "jobs/ray-job-sample.yaml": "3",
    "jobs/ray-job-autoscaling-sample.yaml": "≤ 7",
    "jobs/ray-service-sample.yaml": "2",
    "jobs/sample-cronjob.yaml": "3",
    "jobs/sample-jaxjob.yaml": "2",
    "jobs/sample-job-partial-admission.yaml": "≤ 20",
    "jobs/sample-job.yaml": "3",
    "jobs/sample-jobset-tas-required.yaml": "4",
    "jobs/sample-jobset-tas-sliced.yaml": "8",
    "jobs/sample-jobset.yaml": "2",
    "jobs/sample-mpijob.yaml": "3",
    "jobs/sample-paddlejob.yaml": "2",
    "jobs/sample-pytorchjob.yaml": "2",
    "jobs/sample-scalable-job.yaml": "3",
    "jobs/sample-tfjob.yaml": "3",
    "jobs/sample-xgboostjob.yaml": "3",
    "serving-workloads/sample-deployment.yaml": "3",
    "serving-workloads/sample-leaderworkerset.yaml": "6",
    "serving-workloads/sample-statefulset.yaml": "3",
    "tas/sample-job-preferred.yaml": "40",
    "tas/sample-job-required.yaml": "10",
}


@pytest.fixture
def examples(corpora: Path) -> Path:
    return corpora / "kueue" / "examples"


@pytest.mark.parametrize("file", PODS)
def test_an_example_of_kueue_has_as_many_pods_as_its_file_says(examples: Path, file: str) -> None:
    (found,) = foreign_in(read_documents(str(examples / file)))[0]
    demand = found.demand(Options(Site.load("nvidia")))
    assert isinstance(demand, Demand)
    bound = demand.peak["pods"]
    assert f"{'≤ ' if bound.bound == 'at-most' else ''}{bound.value}" == PODS[file]


def test_every_example_is_read_and_what_is_said_of_it_has_a_place(examples: Path) -> None:
    read = 0
    for file in sorted(examples.rglob("*.yaml")):
        for each in foreign_in(read_documents(str(file)))[0]:
            if READERS[each.document.kind, each.document.group] is KUBERNETES_READER:
                demand = each.demand(Options(Site.load("nvidia")))
                if isinstance(demand, PassiveObject) and "pod group" in demand.because:
                    continue  # counted with the first pod of its group
                assert isinstance(demand, Demand) and demand.source is not None, file
                assert all(finding.where.line for finding in demand.source.warnings()), file
                read += 1
    assert read > 30
