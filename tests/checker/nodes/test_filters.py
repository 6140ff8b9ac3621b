"""`fit_nodes` says what kube-scheduler says.

Tests gpuflow/checker/nodes/node_info.py, gpuflow/checker/nodes/filters.py, gpuflow/checker/nodes/pod_affinity.py and
gpuflow/checker/nodes/volumes.py.
"""

import gzip
import json
from pathlib import Path

import pytest

from gpuflow.checker.nodes import fit_nodes
from tests.checker.nodes.scenes import GPU, REQUIRED, SCENES, Scene, bound, group, node, pod

RECORDED = (
    Path(__file__).resolve().parents[3] / ".." / "shared" / "corpora" / "oracles" / "recorded" / "nodefit.jsonl.gz"
)


@pytest.mark.parametrize("scene", SCENES, ids=[scene.about for scene in SCENES])
def test_verdict_and_words(scene: Scene) -> None:
    fit = fit_nodes(scene.pod, scene.nodes, scene.pods, scene.namespaces)
    assert (fit.feasible, fit.reasons, fit.message) == (scene.feasible, scene.reasons, scene.message)
    assert fit.unknown == []


@pytest.mark.skipif(not RECORDED.exists(), reason="the corpora folder is not beside the checkout")
def test_every_recorded_answer_of_the_scheduler_is_given() -> None:
    with gzip.open(RECORDED, "rt") as lines:
        cases = [json.loads(line) for line in lines]
    assert cases
    for number, case in enumerate(cases):
        asked, told = case["input"], case["output"]
        fit = fit_nodes(
            asked["pod"], asked["nodes"], asked["pods"], asked["namespaces"], gates=asked.get("gates") or ()
        )
        reasons = {name: verdict["reasons"] for name, verdict in told["nodes"].items() if not verdict["fits"]}
        assert fit.feasible == told["feasible"], f"case {number}"
        assert fit.reasons == reasons, f"case {number}"
        assert fit.message == told.get("message"), f"case {number}"


def test_comparing_tolerations_need_their_feature_gate() -> None:
    tainted = node("a", spec={"taints": [{"key": "sla", "value": "950", "effect": "NoSchedule"}]})
    asking = pod(tolerations=[{"key": "sla", "operator": "Gt", "value": "900"}])
    assert fit_nodes(asking, [tainted]).feasible == []
    assert fit_nodes(asking, [tainted], gates=["TaintTolerationComparisonOperators"]).feasible == ["a"]


def test_a_cluster_without_nodes() -> None:
    assert fit_nodes(pod(), []).message == "no nodes available to schedule pods"


def test_the_template_of_a_node_group_is_no_node() -> None:
    fit = fit_nodes(pod({"gpu": "1"}), [node("a"), group("new", 4, gpu="8")])
    assert fit.feasible == []
    assert fit.message == f"0/1 nodes are available: 1 Insufficient {GPU}."


def test_label_keys_are_compared_with_the_new_pod_as_the_api_server_stores_it() -> None:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "x"}},
        "matchLabelKeys": ["run"],
    }
    asking = pod(labels={"app": "x", "run": "2"}, affinity={"podAntiAffinity": {REQUIRED: [term]}})
    others = [bound("a", labels={"app": "x", "run": "1"}), bound("b", labels={"app": "x", "run": "2"})]
    assert fit_nodes(asking, [node("a"), node("b")], others).feasible == ["a"]


def test_what_cannot_be_judged_is_named() -> None:
    asking = pod(
        volumes=[
            {"name": "data", "persistentVolumeClaim": {"claimName": "models"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "tmp", "emptyDir": {}},
        ],
        resourceClaims=[{"name": "gpu", "resourceClaimName": "one"}],
        schedulingGates=[{"name": "kueue.x-k8s.io/admission"}],
    )
    fit = fit_nodes(asking, [node("a")])
    assert fit.feasible == ["a"]
    assert fit.unknown == [
        'when scheduling gate "kueue.x-k8s.io/admission" is lifted',
        'which nodes have devices for resource claim "gpu"',
        'which nodes can mount claim "models" (volume "data")',
        'which nodes can mount the claim made for volume "scratch"',
    ]


def test_namespaces_that_are_not_known_are_said_to_be() -> None:
    selector = {"matchLabels": {"team": "ml"}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": selector}
    asking = pod(affinity={"podAffinity": {REQUIRED: [term]}})
    shy = bound("a", affinity={"podAntiAffinity": {REQUIRED: [term]}})
    unknown = ["which namespaces the namespaceSelector of an affinity means"]
    assert fit_nodes(asking, [node("a")]).unknown == unknown
    assert fit_nodes(pod(), [node("a")], [shy]).unknown == unknown
    assert fit_nodes(pod(), [node("a")], [shy], namespaces=[]).unknown == []


def test_a_namespace_manifest_carries_its_name_as_a_label() -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "ns"}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": selector}
    asking = pod(affinity={"podAffinity": {REQUIRED: [term]}})
    fit = fit_nodes(asking, [node("a"), node("b")], [bound("a")], [{"kind": "Namespace", "metadata": {"name": "ns"}}])
    assert fit.feasible == ["a"]
