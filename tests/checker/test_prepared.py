"""A cluster that is prepared once for many pipelines, and no state that hides elsewhere."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from gpuflow.checker.nodes import node_info
from gpuflow.checker.run import check
from gpuflow.checker.snapshot import validation as module
from gpuflow.checker.snapshot.validation import PreparedCluster
from gpuflow.cluster import Cluster, fields
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.checker.whole_scenes import HEAD, HOME, NAMESPACE, manifest, node
from tests.conftest import ROOT

STEP = "steps: {a: {command: [x], gpu: a100-80gb}}"


def cluster() -> Cluster:
    return Cluster("cluster.yaml", (manifest(HOME), manifest(node("n", 8))))


def test_a_prepared_cluster_is_validated_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    validate, read = module.validate, module.read_node_list
    monkeypatch.setattr(module, "validate", lambda given: (calls.append("validate"), validate(given))[1])
    monkeypatch.setattr(module, "read_node_list", lambda *given: (calls.append("nodes"), read(*given))[1])
    ready = PreparedCluster(cluster(), NAMESPACE)
    demand = demand_of(loads(HEAD + STEP, "p.yaml"), Site.load("nvidia"))
    first, second = (check(demand, ready, NAMESPACE) for _ in range(2))
    assert first == second == check(demand, cluster(), NAMESPACE)
    assert calls == ["validate", "nodes"] * 2


def test_what_rules_look_for_in_a_whole_cluster_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    unknown_fields, pending = fields.unknown_fields, node_info.read_unbound_pod
    monkeypatch.setattr(
        fields, "unknown_fields", lambda kind, body: (calls.append(kind), unknown_fields(kind, body))[1]
    )
    monkeypatch.setattr(node_info, "read_unbound_pod", lambda *given: (calls.append("Pod"), pending(*given))[1])
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": NAMESPACE},
        "spec": {"hard": {"pods": "9"}, "hrad": {}},
    }
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    waiting = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "w", "namespace": "others"},
        "spec": {"containers": [container]},
    }
    whole = Cluster("cluster.yaml", tuple(map(manifest, (HOME, node("n", 4), quota, waiting))), frozenset({"Pod"}))
    demand = demand_of(loads(HEAD + STEP, "p.yaml"), Site.load("nvidia"))
    ready = PreparedCluster(whole, NAMESPACE)
    first, second = (check(demand, ready, NAMESPACE) for _ in range(2))
    assert first == second
    assert {"GF407"} <= {each.code for each in first.findings}
    assert any("others/w" in f"{each.message} {each.hint}" for each in first.findings)
    assert (calls.count("ResourceQuota"), calls.count("Pod")) == (1, 1)
    # Another cluster has what it has, not what was found in this one.
    without = replace(whole, objects=tuple(item for item in whole.objects if item.kind != "ResourceQuota"))
    assert "GF407" not in {each.code for each in check(demand, without, NAMESPACE).findings}


def test_a_cluster_that_was_prepared_for_another_namespace_answers_for_the_one_that_is_asked() -> None:
    demand = demand_of(loads(HEAD + STEP, "p.yaml"), Site.load("nvidia"))
    ready = PreparedCluster(cluster(), "elsewhere", default=NAMESPACE)
    assert check(demand, ready, NAMESPACE) == check(demand, cluster(), NAMESPACE)


def test_nothing_in_the_checker_is_kept_by_the_id_of_an_object() -> None:
    """An id is given again when its object is gone; a dictionary keeps its keys."""
    found = [
        f"{path.relative_to(ROOT)}:{each.lineno}"
        for path in (ROOT / "gpuflow" / "checker").rglob("*.py")
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "id"
    ]
    assert found == []
