"""Node fit, asked of a running scheduler, one case at a time: the cluster must have no nodes of its own.

Nodes are objects only. Pods that are bound tolerate everything, so that nobody evicts them. A pod that fits
is bound to one of the feasible nodes; one that does not says why in its condition.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from functools import partial

from tests.differential.live.api import Api, Manifest, Refused, patiently, until
from tests.differential.oracle import Answer, Case

NODES = "/api/v1/nodes"
RUNTIME = "/apis/node.k8s.io/v1/runtimeclasses"
OVERHEAD = {"cpu": "250m", "memory": "120Mi"}
"""The only overhead that cases have; the server wants a RuntimeClass for it."""
WAITS = (0.3, 1.0, 3.0)
"""Seconds for the scheduler to see what was just written."""


def askable(case: Case) -> bool:
    """No alpha gates on a running scheduler, and no pod that says itself where it runs."""
    return "gates" not in case and "nodeName" not in case["pod"]["spec"]


def agreement(api: Api, cases: Sequence[Case], answers: Sequence[Answer]) -> Iterator[tuple[Case, str | None]]:
    """For each case that can be asked, nothing, or how the running scheduler differs from the oracle."""
    if api.must("GET", NODES)["items"]:
        raise RuntimeError("node fit needs a cluster without nodes of its own")
    names = cases[0]["namespaces"] if cases else {}
    for name, labels in names.items():
        api("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        api("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "x", "metadata": {"name": "heavy"}}
    api("POST", RUNTIME, {**runtime, "overhead": {"podFixed": OVERHEAD}})
    for case, answer in zip(cases, answers, strict=True):
        if askable(case):
            try:
                difference = patiently(partial(_ask, api, case, answer), WAITS)
            except Refused:
                continue
            yield case, difference


def _ask(api: Api, case: Case, answer: Answer, wait: float) -> str | None:
    # Finished pods came first: the scheduler frees the host ports of a pod when it ends, whoever else holds them.
    bound = sorted(case["pods"], key=lambda pod: pod["status"]["phase"] not in ("Succeeded", "Failed"))
    pods = [f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods" for pod in bound]
    waiting = f"/api/v1/namespaces/{case['pod']['metadata']['namespace']}/pods"
    name = case["pod"]["metadata"]["name"]
    try:
        for node in case["nodes"]:
            _add_node(api, node)
        _untaint(api, case["nodes"])
        for path, pod in zip(pods, bound, strict=True):
            _bind(api, path, pod)
        time.sleep(wait)
        _untaint(api, case["nodes"])
        api.must("POST", waiting, _posted(case["pod"]))
        return _differs(until(lambda: _verdict(api, f"{waiting}/{name}"), "the scheduler's word"), answer)
    finally:
        api.remove(f"{waiting}/{name}")
        for path, pod in zip(pods, bound, strict=True):
            api.remove(f"{path}/{pod['metadata']['name']}")
        for node in case["nodes"]:
            api.remove(f"{NODES}/{node['metadata']['name']}")
        until(lambda: _gone(api, [waiting, *pods]), "the pods to go")


def _add_node(api: Api, node: Manifest) -> None:
    api.must("POST", NODES, {"metadata": node["metadata"], "spec": node["spec"]})
    path = f"{NODES}/{node['metadata']['name']}"
    # A heartbeat that is old, or that of the last node of this name, would make the node count as lost.
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = {"type": "Ready", "status": "True", "reason": "Given", "message": "", "lastHeartbeatTime": now}
    status = {"capacity": {}, **node["status"], "conditions": [ready]}
    status["capacity"] = status["capacity"] or status["allocatable"]
    api.must("PATCH", f"{path}/status", {"status": status})


def _untaint(api: Api, nodes: list[Manifest]) -> None:
    """The server taints every new node as not ready, and a controller may do so once more."""
    for node in nodes:
        path = f"{NODES}/{node['metadata']['name']}"
        wanted = node["spec"].get("taints")
        if api.must("GET", path)["spec"].get("taints") != wanted:
            api.must("PATCH", path, {"spec": {"taints": wanted}})


def _bind(api: Api, path: str, pod: Manifest) -> None:
    posted = _posted(pod)
    posted["spec"]["tolerations"] = [{"operator": "Exists"}]
    api.must("POST", path, posted)
    api.must("PATCH", f"{path}/{pod['metadata']['name']}/status", {"status": pod["status"]})


def _posted(pod: Manifest) -> Manifest:
    posted = {"metadata": pod["metadata"], "spec": copy.deepcopy(pod["spec"])}
    posted["spec"] |= {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0}
    if "overhead" in posted["spec"]:
        posted["spec"]["runtimeClassName"] = "heavy"
    return posted


def _verdict(api: Api, path: str) -> Manifest | None:
    pod = api.must("GET", path)
    if pod["spec"].get("nodeName"):
        return {"node": pod["spec"]["nodeName"]}
    conditions = pod["status"].get("conditions", [])
    return next(
        ({"message": each["message"]} for each in conditions if each["type"] == "PodScheduled" and "message" in each),
        None,
    )


def _gone(api: Api, paths: list[str]) -> bool | None:
    return all(not api.must("GET", path)["items"] for path in set(paths)) or None


def _differs(seen: Manifest, answer: Answer) -> str | None:
    if "node" in seen:
        return None if seen["node"] in answer["feasible"] else f"bound to {seen['node']}, the oracle says {answer}"
    said, expected = seen["message"], answer.get("message", "")
    # The running scheduler goes on to say what preemption could not do about it.
    if expected and (said == expected or said.startswith(f"{expected} ")):
        return None
    return f"message {said!r}, the oracle says {answer}"
