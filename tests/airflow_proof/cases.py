"""What is played: each case returns what was seen, as data that can be kept and printed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from ..cluster.waiting import until
from .comparing import difference, labels_left, shape
from .ground import Ground, forget, pods, running

TASKS = ("extract", "upload", "train", "evaluate", "publish", "report")
WAYS = ("stock", "migrated")
GPU_QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "gpus"},
    "spec": {"hard": {"requests.nvidia.com/gpu": "1"}},
}


def equal_pods(ground: Ground) -> dict[str, Any]:
    """Both DAGs to their end; their pods side by side."""
    seen: dict[str, dict[str, Any]] = {}
    found: dict[str, Any] = {}
    for way in WAYS:
        kube = ground.namespace(f"equal-{way}")
        ground.put(f"{way}.py")
        run = ground.start(way, kube.namespace)
        text = run.ended()
        seen[way] = {pod["metadata"]["labels"]["task_id"]: pod for pod in pods(kube)}
        found[way] = {
            "run": run.state,
            "pods": len(pods(kube)),
            "callbacks": sum(f"CALLBACK {task} success" in text for task in TASKS),
        }
        forget(kube)
    for task in TASKS:
        if task not in seen["stock"] or task not in seen["migrated"]:
            found[task] = "no pod on one side"
            continue
        left, right = (seen[way][task] for way in WAYS)
        lines = difference(shape(left), shape(right))
        lines += difference(labels_left(left), labels_left(right), "labels")
        found[task] = lines or "equal"
    return found


def killed_pod(ground: Ground) -> dict[str, Any]:
    """The training pod is deleted while it runs, once."""
    found: dict[str, Any] = {}
    for way in WAYS:
        kube = ground.namespace(f"killed-{way}")
        ground.put(f"{way}.py")
        run = ground.start(way, kube.namespace, PROOF_WAIT="15")
        kube("delete", "pod", running(kube, "train"), "--grace-period=0", "--force", "--wait=false")
        run.ended()
        trained = pods(kube, "train")
        found[way] = {
            "run": run.state,
            "airflow tries of train": max(int(pod["metadata"]["labels"]["try_number"]) for pod in trained),
            "pods of train": len(trained) + 1,
            "says": _line(run.text, ("interrupted", "interruption", "not found", "failed")),
        }
        forget(kube)
    return found


def full_quota(ground: Ground) -> dict[str, Any]:
    """The quota is used up when the training begins, and free again some seconds later."""
    found: dict[str, Any] = {}
    for way in WAYS:
        kube = ground.namespace(f"quota-{way}")
        kube.create(GPU_QUOTA)
        until("the quota to count", lambda kube=kube: (kube.get("resourcequota", "gpus") or {}).get("status"))
        kube.create(_holder(ground.cluster.image("busybox")))
        ground.put(f"{way}.py")
        run = ground.start(way, kube.namespace)
        until("upload to end", lambda kube=kube: _ended(pods(kube, "upload")), timeout=3600)
        until("the quota to be met", lambda run=run: run.said("exceeded quota") or run.process.poll() is not None, 3600)
        time.sleep(20)  # longer than the stock DAG's retry and its delay
        kube("delete", "pod", "holder", "--grace-period=0", "--force", "--wait=false")
        run.ended()
        trained = pods(kube, "train")
        found[way] = {
            "run": run.state,
            "airflow tries of train": max((int(p["metadata"]["labels"]["try_number"]) for p in trained), default=2),
            "pods of train": len(trained),
            "says": _line(run.text, ("exceeded quota",)),
        }
        forget(kube)
    return found


def nightly(ground: Ground) -> dict[str, Any]:
    """A compiled pipeline for one night: its date, mapped MIG slices, a condition; then a night that fails."""
    kube = ground.namespace("nightly")
    found: dict[str, Any] = {}
    with ground.receiver() as (url, got):
        image = ground.cluster.image("gpuflow")
        ground.put("nightly.yaml", IMAGE=image, HOOK=f"{url}/hook", NAMESPACE=kube.namespace)
        run = ground.start("nightly", kube.namespace, "2026-04-15T02:15:00+00:00")
        text = run.ended()
        suites = ("mmlu", "gsm8k", "arc")
        found["good night"] = {
            "run": run.state,
            "date": "loading 2026-04-15 since 2026-04-14T04:15:00+02:00" in text,
            "suites of the date": sum(f"evaluating {suite} of 2026-04-15" in text for suite in suites),
            "scores": "scores [0.5,0.5,0.5]" in text,
            "published": "[main] published" in text,
            "held back": "[main] held back" in text,
            "alerts": len(got()),
        }
        conf = json.dumps({"broken": True})
        run = ground.start("nightly", kube.namespace, "2026-04-16T02:15:00+00:00", "--conf", conf)
        text = run.ended()
        found["bad night"] = {
            "run": run.state,
            "exit step": "[main] the night failed" in text,
            "alerts": len(got()),
            "alert says": _alert(got()),
        }
    forget(kube)
    return found


def handwritten(ground: Ground) -> dict[str, Any]:
    """A hand-written DAG with a decorated function, an asset, a sensor, a task group, setup and teardown."""
    kube = ground.namespace("handwritten")
    ground.put("handwritten.py")
    run = ground.start("handwritten", kube.namespace)
    text = run.ended()
    forget(kube)
    return {
        "run": run.state,
        "setup": "PROOF store opened" in text,
        "mapped functions": sum(f"PROOF training with {lr} from store-7" in text for lr in (0.5, 0.25)),
        "XCom to TaskFlow": "PROOF best 0.125" in text,
        "XCom to a step": "PROOF checked 0.125" in text,
        "teardown": "PROOF store-7 closed" in text,
    }


CASES: dict[str, Callable[[Ground], dict[str, Any]]] = {
    "equal pods": equal_pods,
    "killed pod": killed_pod,
    "full quota": full_quota,
    "nightly": nightly,
    "handwritten": handwritten,
}


def _holder(image: str) -> dict[str, Any]:
    resources = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": image, "command": ["sleep", "3600"], "resources": resources}
    spec = {"containers": [{**container, "imagePullPolicy": "IfNotPresent"}], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "holder"}, "spec": spec}


def _ended(found: list[dict[str, Any]]) -> bool:
    return any(pod["status"].get("phase") == "Succeeded" for pod in found)


def _line(text: str, words: tuple[str, ...]) -> str:
    """The first line of the log that says what happened, cut short."""
    for word in words:
        for line in text.splitlines():
            if word in line:
                start = max(0, line.find(word) - 120)
                return line[start : start + 240].strip()
    return ""


def _alert(got: list[dict[str, Any]]) -> dict[str, Any]:
    if not got:
        return {}
    kept = {key: got[-1].get(key) for key in ("pipeline", "status", "cause", "date")}
    return kept | {"steps": [step.get("step") for step in got[-1].get("steps", ())]}
