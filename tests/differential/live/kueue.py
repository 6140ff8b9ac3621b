"""Kueue, asked of its running manager, one case at a time: the cluster must have no queues of its own.

Workloads that hold quota get their admission written into their status, as Kueue itself would. Who came first
is the order of creation, so the case is asked of the oracle with times in that order too.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from functools import partial

from tests.differential.live.api import Api, Manifest, Refused, patiently, until
from tests.differential.oracle import Answer, Case

GROUP = "/apis/kueue.x-k8s.io/v1beta2"
WAITS = (0.3, 1.0, 3.0)
"""Seconds for Kueue to see what was just written."""
CLUSTER_WIDE = (("flavors", "resourceflavors"), ("cohorts", "cohorts"), ("clusterQueues", "clusterqueues"))


def askable(case: Case) -> bool:
    """A cycle of cohorts with something admitted below it brings Kueue's manager down."""
    parents = {cohort["metadata"]["name"]: cohort["spec"].get("parentName") for cohort in case["cohorts"]}
    return not any(_chases_its_tail(name, parents) for name in parents)


def _chases_its_tail(name: str | None, parents: dict[str, str | None]) -> bool:
    for _ in range(len(parents) + 1):
        name = parents.get(name) if name else None
    return name is not None


def in_order(case: Case) -> Case:
    """The case with the times it will have on the cluster: what holds quota was there before."""
    ordered = copy.deepcopy(case)
    for number, workload in enumerate(ordered["admitted"]):
        workload["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{number:02d}Z"
    ordered["workload"]["metadata"]["creationTimestamp"] = "2026-01-01T01:00:00Z"
    return ordered


def agreement(api: Api, cases: Sequence[Case], answers: Sequence[Answer]) -> Iterator[tuple[Case, str | None]]:
    """For each case that can be asked, nothing, or how the running Kueue differs from the oracle."""
    for case, answer in zip(cases, answers, strict=True):
        if askable(case):
            try:
                difference = patiently(partial(_ask, api, case, answer), WAITS)
            except Refused:
                continue
            yield case, difference


def _ask(api: Api, case: Case, answer: Answer, wait: float) -> str | None:
    namespace = case["workload"]["metadata"]["namespace"]
    home = f"{GROUP}/namespaces/{namespace}"
    labels = case["namespaces"][0]["metadata"]["labels"]
    if not api("POST", "/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}}).ok:
        api.must("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})
    try:
        for field, plural in CLUSTER_WIDE:
            for each in case[field]:
                api.must("POST", f"{GROUP}/{plural}", each)
        for each in case["localQueues"]:
            api.must("POST", f"{home}/localqueues", each)
        time.sleep(wait)
        for each in case["admitted"]:
            _admit(api, home, each)
        time.sleep(wait)
        api.must("POST", f"{home}/workloads", _posted(case["workload"]))
        path = f"{home}/workloads/{case['workload']['metadata']['name']}"
        return _differs(until(lambda: _condition(api, path), "Kueue's word"), answer)
    finally:
        _clean(api, home, case)


def _admit(api: Api, home: str, workload: Manifest) -> None:
    api.must("POST", f"{home}/workloads", _posted(workload))
    path = f"{home}/workloads/{workload['metadata']['name']}"
    api.must("PATCH", f"{path}/status", {"status": workload["status"]})


def _posted(workload: Manifest) -> Manifest:
    metadata = {key: workload["metadata"][key] for key in ("name", "namespace")}
    return {**{key: workload[key] for key in ("apiVersion", "kind", "spec")}, "metadata": metadata}


def _condition(api: Api, path: str) -> Manifest | None:
    conditions = api.must("GET", path).get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "QuotaReserved"), None)


def _differs(condition: Manifest, answer: Answer) -> str | None:
    """A scan of flavors goes on by itself: the message may already be that of a later cycle."""
    said = condition["message"]
    cycles = [answer, *answer.get("laterCycles", [])]
    if any(each["message"] == said for each in cycles):
        return None
    return f"message {said!r}, the oracle says {[each['message'] for each in cycles]}"


def _clean(api: Api, home: str, case: Case) -> None:
    for workload in (case["workload"], *case["admitted"]):
        path = f"{home}/workloads/{workload['metadata']['name']}"
        api("PATCH", path, {"metadata": {"finalizers": None}})
        api.remove(path)
    for each in case["localQueues"]:
        api.remove(f"{home}/localqueues/{each['metadata']['name']}")
    for field, plural in reversed(CLUSTER_WIDE):
        for each in case[field]:
            path = f"{GROUP}/{plural}/{each['metadata']['name']}"
            api.remove(path)
            until(partial(_gone, api, path), f"{path} to go")


def _gone(api: Api, path: str) -> bool | None:
    api("PATCH", path, {"metadata": {"finalizers": None}})
    return api("GET", path).code == 404 or None
