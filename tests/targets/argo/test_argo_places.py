"""Copies of a sub-pipeline keep their checkpoints and budgets apart, as Argo's own code fills in their identity."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline, check
from gpuflow.spec.problems import Source
from gpuflow.targets.argo.facts import ArgoOptions
from gpuflow.targets.argo.workflow import build
from gpuflow.targets.target import Request
from tests.differential.oracle import Oracle
from tests.targets.argo.manifests import substituted, task

KEPT = {"path": "/kept", "store": "s3://models/kept"}
INNER = {
    "name": "inner",
    "defaults": {"image": "i"},
    "params": {"lr": {"type": "string"}},
    "steps": {"train": {"command": ["train", {"param": "lr"}], "checkpoint": KEPT}},
}
MIDDLE = {
    "name": "middle",
    "steps": {
        "each": {
            "for_each": {"a": ["x", 'q"\n'], "b": [1, 2]},
            "parallel": 2,
            "pipeline": INNER,
            "params": {"lr": {"item": "a"}},
        },
        "once": {"pipeline": INNER, "params": {"lr": "3"}},
    },
}


@pytest.fixture(scope="module")
def argo() -> Iterator[Oracle]:
    with Oracle("argo", "substitution") as oracle:
        yield oracle


def manifest(steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    pipeline = check(Pipeline, {"name": "outer", "defaults": {"image": "i"}, "steps": steps, **fields}, Source())
    return build(Request(pipeline, Site.load("nvidia"), "ns", "p.yaml", (), ArgoOptions("Workflow")))


def identities(oracle: Oracle, whole: dict[str, Any], path: list[str], **case: Any) -> list[str]:
    pods = substituted(oracle, whole, path, **case)
    return [next(word for word in pod["container"]["command"] if word.startswith("--step=")) for pod in pods]


def path_to(whole: dict[str, Any], *names: str) -> list[str]:
    """The tasks on the way to a step; one whose template is the loop around it is named twice."""
    path, dag = [], "main"
    for name in names:
        path.append(name)
        dag = task(whole, name, dag)["template"]
        if dag.endswith("-loop"):
            path.append(name)
            dag = task(whole, name, dag)["template"]
    return path


@pytest.mark.go
def test_a_sub_pipeline_that_is_used_twice_is_two_places(argo: Oracle) -> None:
    whole = manifest({name: {"pipeline": INNER, "params": {"lr": "1"}} for name in ("one", "two")})
    assert identities(argo, whole, ["one", "train"]) == ["--step=one/train"]
    assert identities(argo, whole, ["two", "train"]) == ["--step=two/train"]


@pytest.mark.go
def test_every_item_is_a_place_of_its_own(argo: Oracle) -> None:
    items = {"for_each": {"s": {"param": "suites"}}, "pipeline": INNER, "params": {"lr": {"item": "s"}}}
    given = ["m", "{{workflow.name}}", "$(HOME) $$", {"a": [1]}, "m "]
    whole = manifest({"sweep": items}, params={"suites": {"type": "json", "default": []}})
    parameters = {"suites": json.dumps(given)}
    found = identities(argo, whole, ["sweep", "train"], parameters=parameters)
    assert len(set(found)) == len(given)
    assert all(word.startswith("--step=sweep,") and word.endswith("/train") for word in found)
    assert found == identities(argo, whole, ["sweep", "train"], parameters=parameters)


@pytest.mark.go
def test_places_inside_places_stay_apart(argo: Oracle) -> None:
    steps = {
        "one": {"pipeline": INNER, "params": {"lr": "1"}},
        "sweep": {"for_each": {"s": [1, 2]}, "pipeline": MIDDLE},
    }
    whole = manifest(steps)
    found = identities(argo, whole, path_to(whole, "one", "train"))
    found += identities(argo, whole, path_to(whole, "sweep", "once", "train"))
    found += identities(argo, whole, path_to(whole, "sweep", "each", "train"))
    assert len(found) == len(set(found)) == 1 + 2 + 2 * 4


def test_a_sub_pipeline_that_keeps_nothing_is_told_nothing() -> None:
    plain = {"name": "q", "defaults": {"image": "i"}, "steps": {"b": {"command": ["y"], "outputs": {"k": "int"}}}}
    assert "--place" not in json.dumps(manifest({"a": {"pipeline": plain}}))
