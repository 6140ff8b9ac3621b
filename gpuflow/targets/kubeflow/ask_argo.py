"""How the steps of a run ended, asked of Argo's Workflow; runs as it stands in a container of the run.

Arguments: the Workflow's name, the group of all steps, KFP's final status, and the file for the answer.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from typing import Any

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
GOOD, BAD = ("Succeeded",), ("Failed", "Error")


def own(name: str) -> str:
    with open(os.path.join(ACCOUNT, name), encoding="utf-8") as file:
        return file.read().strip()


def workflow(name: str) -> dict[str, Any]:
    """The Workflow as the API server has it."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    path = f"/apis/argoproj.io/v1alpha1/namespaces/{own('namespace')}/workflows/{name}"
    request = urllib.request.Request(f"https://{host}:{port}{path}")
    request.add_header("Authorization", "Bearer " + own("token"))
    trust = ssl.create_default_context(cafile=os.path.join(ACCOUNT, "ca.crt"))
    with urllib.request.urlopen(request, context=trust, timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def nodes_of(status: dict[str, Any]) -> dict[str, Any]:
    """Large Workflows keep their nodes compressed; the largest keep them in a database, where we cannot look."""
    if status.get("compressedNodes"):
        found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(status["compressedNodes"])))
        return found
    return status.get("nodes") or {}


def is_group(node: dict[str, Any], group: str) -> bool:
    """An installation with a retryStrategy for all templates has a node for the retries above that of the group."""
    return node.get("displayName") == group and node.get("type") in ("DAG", "Retry")


def phase_of(name: str, group: str) -> tuple[str | None, str | None]:
    """How the group of all steps ended, and why it cannot be said where it cannot."""
    trouble = None
    for pause in (0, 1, 3, 9):
        time.sleep(pause)
        try:
            nodes = nodes_of(workflow(name).get("status") or {})
        except urllib.error.HTTPError as refusal:
            trouble = f"the API server answers {refusal.code}"
            if refusal.code in (401, 403, 404):
                break
            continue
        except (OSError, KeyError, ValueError) as failure:
            trouble = str(failure)
            continue
        phases = [node.get("phase") for node in nodes.values() if is_group(node, group)]
        if phases and phases[0] in GOOD + BAD:
            return phases[0], None
        trouble = f"its node {group} is {phases[0] if phases else 'not in the object'}"
    return None, trouble


def main(name: str, group: str, status: str, place: str) -> int:
    state = json.loads(status).get("state")
    phase, trouble = phase_of(name, group)
    if phase is None:
        print(f"workflow {name}: {trouble}; KFP's own state is {state}")
        phase = {"SUCCEEDED": "Succeeded", "COMPLETE": "Succeeded", "FAILED": "Failed"}.get(state)
    if phase is None:
        print("nobody can say how the run ended: let the run's service account get workflows of argoproj.io")
        return 1
    answer = "success" if phase in GOOD else "failure"
    print("the steps ended:", phase)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "w", encoding="utf-8") as file:
        file.write(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
