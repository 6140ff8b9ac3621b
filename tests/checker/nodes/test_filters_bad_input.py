"""Manifests that cannot be read give a ValueError that names the place."""

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.checker.nodes import NodeFit, fit_nodes
from tests.checker.nodes.scenes import REQUIRED, SCENES, Scene, bound, node, pod
from tests.checker.nodes.strategies import UNHURRIED

GROUP = "gpuflow.dev/node-group-max"


def annotated(**annotations: Any) -> dict[str, Any]:
    manifest = node("g")
    manifest["metadata"]["annotations"] = {f"gpuflow.dev/node-group-{key}": value for key, value in annotations.items()}
    return manifest


def selecting(selector: Any) -> dict[str, Any]:
    return pod(affinity={"podAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": selector}]}})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("x", []), "pod: a Pod must be a map"),
        ((pod(), {"n": 1}), "nodes: must be a list of manifests, not dict"),
        ((pod(), ["n"]), "nodes[0]: a Node must be a map"),
        ((pod(), [pod() | {"kind": "Pod"}]), "nodes[0] (p): a Node is needed, not a Pod"),
        ((pod(), [{"metadata": {}}]), "nodes[0]: metadata.name: a node needs a name"),
        ((pod(), [node("a"), node("a")]), 'nodes[1]: there is already a node "a"'),
        ((pod(), [node("a", cpu="lots")]), "nodes[0] (a): status.allocatable[cpu]: 'lots': "),
        ((pod(), [node("a", {"zone": 1})]), "nodes[0] (a): metadata.labels[zone]: a label is a string, not 1"),
        ((pod(), [node("a", spec={"unschedulable": "false"})]), "spec.unschedulable: must be true or false"),
        ((pod(), [node("a", spec={"taints": {"key": "x"}})]), "nodes[0] (a): spec.taints: must be a list"),
        ((pod({"cpu": "1x"}), [node("a")]), "pod: spec.containers[0].resources.requests[cpu]: '1x': "),
        ((pod(), [node("a")], [bound("a", {"cpu": []})]), "pods[0] (on-a): spec.containers[0].resources.requests[cpu]"),
        ((pod(), [node("a")], [{"spec": {"nodeName": 3}}]), "pods[0]: spec.nodeName: must be a string, not 3"),
        ((pod(), [node("a")], (), [{"kind": "Pod"}]), "namespaces[0]: a Namespace is needed, not a Pod"),
        ((pod(), [node("a")], (), {"ns": {"team": 1}}), "namespaces[ns][team]: a label is a string, not 1"),
        ((selecting({"matchExpressions": [{"key": "a", "operator": "Gt"}]}), [node("a")]), "operator 'Gt' is not one"),
        ((selecting({"matchExpressions": [{"key": "a", "operator": "In"}]}), [node("a")]), "In needs values"),
        ((selecting({"matchLabels": {"a b": "c"}}), [node("a")]), "key 'a b': "),
        ((pod(), [annotated(max="many")]), f'[{GROUP}]: must be a number of nodes such as "8", not \'many\''),
        ((pod(), [annotated(max=3)]), f'[{GROUP}]: must be a number of nodes such as "8", not 3'),
        ((pod(), [annotated(max="1", min="2")]), "2 is above gpuflow.dev/node-group-max, 1"),
    ],
)  # fmt: skip
def test_the_place_is_named(arguments: tuple[Any, ...], told: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011  # the words are compared below
        fit_nodes(*arguments)
    assert told in str(refusal.value)


JUNK: list[Any] = [
    None,
    0,
    -1,
    2.5,
    math.nan,
    True,
    "",
    "x",
    "9" * 70,
    10**30,
    [],
    {},
    [1],
    [None],
    [{}],
    {"x": None},
    {1: 2},
]


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(spot for key, item in items for spot in spots(item, (*path, key)))]


def answered(manifests: Any, namespaces: Any) -> NodeFit | str:
    try:
        return fit_nodes(manifests["pod"], manifests["nodes"], manifests["pods"], namespaces)
    except ValueError as refusal:
        return str(refusal)


@UNHURRIED
@given(st.sampled_from(SCENES), st.data())
def test_junk_anywhere_is_an_answer_or_a_value_error(scene: Scene, data: st.DataObject) -> None:
    manifests = copy.deepcopy({"pod": scene.pod, "nodes": scene.nodes, "pods": scene.pods})
    *path, last = data.draw(st.sampled_from(spots(manifests)[1:]))
    holder: Any = manifests
    for key in path:
        holder = holder[key]
    holder[last] = data.draw(st.sampled_from(JUNK))
    answer = answered(manifests, scene.namespaces)
    assert isinstance(answer, NodeFit) or answer.startswith(("pod", "nodes"))
