"""Small clusters and pods for property tests, made so that pods often just fit or just do not."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from tests.checker.nodes.scenes import GPU, ZONE, bound, node, pod, with_port

UNHURRIED = settings(deadline=None)
"""How long one example takes says nothing on a busy machine."""

TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
TOLERATION = {"key": GPU, "operator": "Exists"}


@st.composite
def nodes(draw: st.DrawFn, least: int = 1, most: int = 3) -> list[dict[str, Any]]:
    made = []
    for index in range(draw(st.integers(least, most))):
        spec: dict[str, Any] = {"taints": [TAINT]} if draw(st.booleans()) else {}
        if draw(st.integers(0, 5)) == 0:
            spec["unschedulable"] = True
        made.append(
            node(
                f"n{index}",
                {ZONE: draw(st.sampled_from("ab"))},
                spec,
                cpu=str(draw(st.integers(1, 6))),
                pods=str(draw(st.integers(1, 5))),
                gpu=str(draw(st.integers(0, 4))),
            )
        )
    return made


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """A pod that asks for little, sometimes for a zone, a toleration or a port of its node."""
    spec: dict[str, Any] = {}
    if draw(st.booleans()):
        spec["tolerations"] = [TOLERATION]
    if draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = {ZONE: draw(st.sampled_from("ab"))}
    made = pod(draw(requests()), **spec)
    if draw(st.integers(0, 4)) == 0:
        with_port(made, hostPort=draw(st.sampled_from((80, 81))))
    return made


def requests() -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries(
        {},
        optional={"cpu": st.sampled_from(("500m", "1", "2", "7")), "gpu": st.sampled_from(("1", "2"))},
    )


@st.composite
def running(draw: st.DrawFn, hosts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pods bound to the nodes, some with a port of it."""
    made = []
    for _ in range(draw(st.integers(0, 4))):
        name = draw(st.sampled_from(hosts))["metadata"]["name"]
        other = bound(name, draw(requests()))
        made.append(with_port(other, hostPort=80) if draw(st.booleans()) else other)
    return made


def placed(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """The pod as it stands once it is bound to a node."""
    return {**manifest, "spec": {**manifest["spec"], "nodeName": name}}
