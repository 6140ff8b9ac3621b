"""Manifests that lost a part: refused at their line, and never taken for something that asks for nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow.checker.run import check as judge
from gpuflow.cluster import read_cluster
from gpuflow.cluster.kinds import NATIVE
from gpuflow.core.codes import CODES
from gpuflow.core.errors import GpuflowError
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads

CORPUS = Path(__file__).resolve().parents[2] / ".." / "shared" / "corpora" / "kueue"
PIPELINE = """apiVersion: gpuflow/v1
kind: Pipeline
name: p
defaults: {image: i, cpu: 1, memory: 1Gi, queue: user-queue}
steps:
  a: {command: [x], for_each: {i: [1, 2]}}
"""
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ns}\n"
WORKLOAD = """apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: w, namespace: ns}
spec: {queueName: q, podSets: [{name: main, count: 1, template: {spec: {containers: [{name: c}]}}}]}
"""
HALVES = {
    "a pod without a spec": (POD, "spec.containers: a pod needs at least one container"),
    "a pod without containers": (POD + "spec: {nodeName: n}", "spec.containers: a pod needs at least one container"),
    "a container without a name": (POD + "spec: {containers: [{}]}", "spec.containers[0].name: a container needs one"),
    "a pod that asks for less than nothing": (
        POD + "spec: {containers: [{name: c, resources: {requests: {nvidia.com/gpu: -1}}}]}",
        "spec.containers[0].resources.requests[nvidia.com/gpu]: -1 is negative",
    ),
    "an affinity to nowhere": (
        POD
        + "spec: {containers: [{name: c}], affinity: {podAntiAffinity: "
        + "{requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {}}]}}}",
        "topologyKey: an affinity term needs one",
    ),
    "a taint without a key": (
        "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nspec: {taints: [{effect: NoSchedule}]}",
        "spec.taints[0].key: a taint needs one",
    ),
    "a taint with an effect that there is not": (
        "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nspec: {taints: [{key: k, effect: noSchedule}]}",
        "spec.taints[0].effect: 'noSchedule' is not one of NoSchedule",
    ),
    "a flavor's taint without an effect": (
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: f}\nspec: {nodeTaints: [{key: k}]}",
        "spec.nodeTaints[0].effect: None is not one of NoSchedule",
    ),
    "a workload without containers": (
        WORKLOAD.replace("containers: [{name: c}]", ""),
        "spec.podSets[0].template.spec.containers: a pod needs at least one container",
    ),
    "a condition that is true and not the text": (
        WORKLOAD + "status: {conditions: [{type: QuotaReserved, status: true}]}",
        "status.conditions[0].status",
    ),
    "an admission of other pod sets": (
        WORKLOAD + "status: {admission: {clusterQueue: q, podSetAssignments: [{name: other}]}}",
        "status.admission.podSetAssignments: is of other, and the pod sets are main",
    ),
    "a runtime class whose selector is no text": (
        "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: r}\nhandler: h\n"
        "scheduling: {nodeSelector: {a: 1}}",
        "scheduling.nodeSelector[a]: a label is a string, not 1",
    ),
    "a setting of Kueue that is neither true nor false": (
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueName: 'yes'",
        "manageJobsWithoutQueueName: must be true or false, not 'yes'",
    ),
}


@pytest.mark.parametrize("name", HALVES)
def test_half_a_manifest_is_refused_and_told_what_is_missing(name: str, tmp_path: Path) -> None:
    text, words = HALVES[name]
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(GpuflowError) as refusal:
        checked(tmp_path / "c.yaml", "ns")
    (finding,) = refusal.value.findings
    assert finding.code == "GF403"
    assert words in finding.message


def test_a_rule_of_a_webhook_that_cannot_be_understood_may_concern_pods(tmp_path: Path) -> None:
    hook = {"name": "h", "rules": [{"operations": ["CREATE"], "apiGroups": [[]], "resources": ["pods"]}]}
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "w"},
        "webhooks": [hook],
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(body))
    assert checked(tmp_path / "c.yaml", "ns") == "unknown"


def checked(path: Path, namespace: str) -> str:
    demand = demand_of(loads(PIPELINE, "p.yaml"), Site.load("nvidia"), "argo")
    return judge(demand, read_cluster(str(path)), namespace).verdict


def documents() -> Iterator[tuple[list[Any], int]]:
    """Every object of Kueue's examples that a check reads, once: the file it stands in, and its place there."""
    seen = set()
    for path in sorted(CORPUS.rglob("*.yaml")):
        bodies = [body for body in yaml.safe_load_all(path.read_text()) if body]
        for index, body in enumerate(bodies):
            group = body["apiVersion"].rpartition("/")[0]
            known = (body["kind"], group) in NATIVE or group == "admissionregistration.k8s.io"
            if known and repr(body) not in seen:
                seen.add(repr(body))
                yield bodies, index


def places(tree: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield above
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in parts:
        yield from places(value, (*above, key))


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(tree[path[0]], path[1:], value)
    return copy


@pytest.mark.slow
@pytest.mark.skipif(not CORPUS.is_dir(), reason="needs the examples of Kueue in ../shared/corpora/kueue")
def test_whatever_a_part_of_an_example_of_kueue_is_replaced_by_only_findings_come_of_it(tmp_path: Path) -> None:
    demand = demand_of(loads(PIPELINE, "p.yaml"), Site.load("nvidia"), "argo")
    file, asked, codes = tmp_path / "c.yaml", 0, set[str]()
    values = itertools.cycle((None, [], "", -1, {}))
    for bodies, index in documents():
        for path in places(bodies[index]):
            # Two of the five at each place, and each at two of five places that are alike.
            for value in itertools.islice(values, 2):
                broken = [*bodies[:index], replaced(bodies[index], path, value), *bodies[index + 1 :]]
                file.write_text(yaml.dump_all(broken, Dumper=yaml.CSafeDumper))
                asked += 1
                try:
                    judge(demand, read_cluster(str(file)), "default")
                except GpuflowError as refusal:
                    codes |= {finding.code for finding in refusal.findings}
    assert asked > 1000
    assert codes <= CODES.keys()
