"""The drivers that a demand counts are those that KFP runs for the compiled pipeline."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.kubeflow.document import documents
from gpuflow.targets.kubeflow.facts import KubeflowOptions
from gpuflow.targets.target import Request
from tests.checker.findings.test_a_always import RUNS
from tests.checker.whole_scenes import HEAD


def drivers(spec: dict[str, Any]) -> int:
    """As `argocompiler/dag.go` makes them: of the run, of every task and group, of every loop and each of its items."""

    def dag(tasks: dict[str, Any]) -> int:
        return sum(map(task, tasks.values()))

    def task(each: dict[str, Any]) -> int:
        component = spec["components"][each["componentRef"]["name"]]
        own = 1 if "executorLabel" in component else 1 + dag(component["dag"]["tasks"])
        if "parameterIterator" not in each:
            return own
        return 1 + len(json.loads(each["parameterIterator"]["items"]["raw"])) * own

    return 1 + dag(spec["root"]["dag"]["tasks"])


@pytest.mark.parametrize("name", RUNS)
def test_a_demand_counts_the_drivers_of_the_compiled_pipeline(name: str) -> None:
    pipeline, site = loads(HEAD + RUNS[name][0], "p.yaml"), Site.load("nvidia")
    spec, _, _ = documents(Request(pipeline, site, "team-a", "p.yaml", (), KubeflowOptions()))
    counted = demand_of(pipeline, site, "kubeflow").driver_pods
    assert counted is not None and counted.at_most == drivers(spec)
