"""Admission, asked of a running API server.

Each case gets a namespace with its LimitRanges and quotas. The quotas' status is written by hand, because the
case says what is used; then the pod is created for real, for a scheduler that does not exist, and read back.
Classes are the cluster's: cases that share them are asked together.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from tests.differential.live.api import Api, Manifest, Reply, patiently, until
from tests.differential.oracle import Answer, Case
from tests.differential.sides import pod_view

PRIORITY = "/apis/scheduling.k8s.io/v1/priorityclasses"
RUNTIME = "/apis/node.k8s.io/v1/runtimeclasses"
NOT_ALLOWED = "disallowed by cluster policy"
WAITS = (0.15, 0.6, 1.5)
"""Seconds for the server's own caches to see what was just written."""


def askable(case: Case) -> bool:
    """A running server always looks at the classes."""
    return case["priorityclasses"] is not None and case["runtimeclasses"] is not None


def agreement(api: Api, cases: Sequence[Case], answers: Sequence[Answer]) -> Iterator[tuple[Case, str | None]]:
    """For each case that can be asked, nothing, or how the running server differs from the oracle."""
    pairs = [(case, answer) for case, answer in zip(cases, answers, strict=True) if askable(case)]
    pairs.sort(key=lambda pair: _classes(pair[0]))
    number = 0
    for _, group in groupby(pairs, key=lambda pair: _classes(pair[0])):
        chosen = list(group)
        _set_classes(api, chosen[0][0])
        for case, answer in chosen:
            number += 1
            yield case, patiently(partial(_ask, api, f"differential-{number}", case, answer), WAITS)


def _classes(case: Case) -> str:
    return json.dumps([case["priorityclasses"], case["runtimeclasses"]], sort_keys=True)


def _set_classes(api: Api, case: Case) -> None:
    """Exactly the classes of the case, besides the system's own."""
    for path, version, kind, wanted in (
        (PRIORITY, "scheduling.k8s.io/v1", "PriorityClass", case["priorityclasses"]),
        (RUNTIME, "node.k8s.io/v1", "RuntimeClass", case["runtimeclasses"]),
    ):
        for existing in api.must("GET", path)["items"]:
            if not existing["metadata"]["name"].startswith("system-"):
                api.remove(f"{path}/{existing['metadata']['name']}")
        for each in wanted:
            api.must("POST", path, {"apiVersion": version, "kind": kind, **each})
    time.sleep(WAITS[1])


def _ask(api: Api, name: str, case: Case, answer: Answer, wait: float) -> str | None:
    # A namespace goes slowly, so each attempt has its own.
    namespace = f"{name}-{wait:g}".replace(".", "")
    home = f"/api/v1/namespaces/{namespace}"
    api.must("POST", "/api/v1/namespaces", {"metadata": {"name": namespace, **case["namespace"]}})
    try:
        _fill(api, home, case)
        time.sleep(wait)
        pod = copy.deepcopy(case["pod"])
        pod["metadata"]["namespace"] = namespace
        # Neither is a matter of admission: nobody shall schedule it, and no token be mounted into it.
        pod["spec"] |= {"schedulerName": "nobody", "automountServiceAccountToken": False}
        reply = api("POST", f"{home}/pods", pod)
        if NOT_ALLOWED in json.dumps(reply.body):
            return None
        return _differs(reply, _used(api, home, case), answer)
    finally:
        api.remove(f"{home}/pods/{case['pod']['metadata']['name']}")
        api.remove(home)


def _fill(api: Api, home: str, case: Case) -> None:
    api("POST", f"{home}/serviceaccounts", {"metadata": {"name": "default"}})
    for limit_range in case["limitranges"]:
        api.must("POST", f"{home}/limitranges", _moved(limit_range))
    for quota in case["quotas"]:
        api.must("POST", f"{home}/resourcequotas", _moved(quota))
    for quota in case["quotas"]:
        # The quota controller writes a status of its own once; ours has to come after it.
        path = f"{home}/resourcequotas/{quota['metadata']['name']}"
        until(partial(_status, api, path), f"the status of {path}")
        api.must("PATCH", f"{path}/status", [{"op": "replace", "path": "/status", "value": quota["status"]}], "json")


def _status(api: Api, path: str) -> Manifest | None:
    found: Manifest | None = api.must("GET", path).get("status") or None
    return found


def _moved(manifest: Manifest) -> Manifest:
    """Without the namespace that the case names, and without a status: the server does not take one here."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
    return {"metadata": metadata, "spec": manifest["spec"]}


def _used(api: Api, home: str, case: Case) -> dict[str, dict[str, str]]:
    return {
        quota["metadata"]["name"]: api.must("GET", f"{home}/resourcequotas/{quota['metadata']['name']}")["status"].get(
            "used", {}
        )
        for quota in case["quotas"]
    }


def _differs(reply: Reply, used: dict[str, dict[str, str]], answer: Answer) -> str | None:
    """Any of the oracle's answers will do."""
    reasons = [_differs_from(reply, used, each) for each in (answer, *answer.get("alternatives", []))]
    return None if None in reasons else reasons[0]


def _differs_from(reply: Reply, used: dict[str, dict[str, str]], answer: Answer) -> str | None:
    if reply.code != answer["status"]:
        said = f"{reply.code} ({reply.body.get('message')})"
        return f"status {said}, the oracle says {answer['status']} ({answer['message']})"
    if not reply.ok:
        said = reply.body["message"]
        same = _same_clauses(said, answer) if "clauses" in answer else said == answer["message"]
        return None if same else f"message {said!r}, the oracle says {answer['message']!r}"
    pod = pod_view(reply.body)
    if pod != answer["pod"]:
        return f"pod {pod}, the oracle says {answer['pod']}"
    if used != answer.get("used", {}):
        return f"used {used}, the oracle says {answer.get('used', {})}"
    return None


def _same_clauses(said: str, answer: Answer) -> bool:
    """The server prints its clauses in random order: take each out, and only punctuation must be left."""
    separator = " is invalid: " if answer["status"] == 422 else " is forbidden: "
    subject, _, rest = said.partition(separator)
    if not answer["message"].startswith(subject + separator):
        return False
    for clause in sorted(answer["clauses"], key=len, reverse=True):
        if clause not in rest:
            return False
        rest = rest.replace(clause, "", 1)
    return not rest.strip("[], ")
