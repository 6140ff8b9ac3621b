"""What is played: each case returns what was seen, as data that can be kept, judged and printed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from tests.cluster.waiting import until

from .comparing import compared
from .ground import LONGEST, Ground, forget, pods, running
from .runs import Run

TASKS = ("extract", "upload", "train", "evaluate", "publish", "report")
WAYS = ("stock", "migrated")
GPU_QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "gpus"},
    "spec": {"hard": {"requests.nvidia.com/gpu": "1"}},
}
SHORTEST_HOLD = 20
"""Seconds for which the quota stays full at least."""


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
            "callbacks": sum(f"CALLBACK {task} TaskInstanceState.SUCCESS" in text for task in TASKS),
        }
        forget(kube)
    for task in TASKS:
        left, right = (seen[way].get(task) for way in WAYS)
        found[task] = compared(left, right) if left and right else {"differs": ["no pod on one side"]}
    return found


def killed_pod(ground: Ground) -> dict[str, Any]:
    """The training pod is deleted by force while it runs, and the pod after it once more."""
    found: dict[str, Any] = {}
    for way in WAYS:
        kube = ground.namespace(f"killed-{way}")
        ground.put(f"{way}.py")
        run = ground.start(way, kube.namespace, PROOF_WAIT="45")
        killed: frozenset[str] = frozenset()
        tries: list[int] = []
        for _ in range(2):
            if not (name := running(kube, "train", run, killed)):
                break
            tries.append(run.tries("train"))
            kube("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")
            killed |= {name}
        text = run.ended()
        names = killed | {str(pod["metadata"]["name"]) for pod in pods(kube, "train")}
        found[way] = {
            "run": run.state,
            "kills": len(killed),
            "try of each killed pod": tries,
            "tries of train": run.tries("train"),
            "pods of train": len(names),
            "says": _line(text, ("interrupted: ", "not found", "failed")),
            "tasks": run.states(),
        }
        forget(kube)
    return found


def full_quota(ground: Ground) -> dict[str, Any]:
    """The GPU quota is used up when the training begins, and free again when the stock task has spent its tries."""
    found: dict[str, Any] = {}
    least: float = SHORTEST_HOLD
    for way in WAYS:
        kube = ground.namespace(f"quota-{way}")
        kube.create(GPU_QUOTA)
        until("the quota to count", lambda kube=kube: (kube.get("resourcequota", "gpus") or {}).get("status"))
        kube.create(_holder(ground.cluster.image("busybox")))
        ground.put(f"{way}.py")
        run = ground.start(way, kube.namespace)
        until("the quota to be met", lambda run=run: run.said("exceeded quota") or run.is_over(), timeout=LONGEST)
        held = _hold(run, least)
        least = max(least, held)
        freed = time.time()
        kube("delete", "pod", "holder", "--grace-period=0", "--force", "--wait=false")
        text = run.ended()
        trained = pods(kube, "train")
        found[way] = {
            "run": run.state,
            "quota full for (s)": round(held),
            "tries of train": run.tries("train"),
            "pods of train": len(trained),
            "room to pod (s)": round(_made(trained[0]) - freed) if trained else None,
            "says": _line(text, ("waiting for room: ", "exceeded quota")),
            "tasks": run.states(),
        }
        forget(kube)
    return found


def _hold(run: Run, least: float) -> float:
    """Keep the quota full for `least` seconds, or until a task that does not wait has failed for good; how long."""
    began = time.monotonic()
    while not run.is_over() and run.states().get("train") != "failed" and not _waits(run, began, least):
        time.sleep(1)
    return time.monotonic() - began


def _waits(run: Run, began: float, least: float) -> bool:
    return time.monotonic() - began >= least and run.said("waiting for room: ")


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
            "MIG slices": sum("nvidia.com/mig-1g.10gb" in _limits(pod) for pod in pods(kube, "evaluate")),
            "scores": "scores [0.5,0.5,0.5]" in text,
            "published": "[main] published" in text,
            "held back": "[main] held back" in text,
            "hold": run.states().get("hold"),
            "alerts": len(got()),
        }
        conf = json.dumps({"broken": True})
        run = ground.start("nightly", kube.namespace, "2026-04-16T02:15:00+00:00", "--conf", conf)
        text = run.ended()
        found["bad night"] = {
            "run": run.state,
            "evaluate": sorted({state for task, state in run.states().items() if task.startswith("evaluate")}),
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
        "sensor": run.states().get("arrived"),
        "setup": "PROOF store opened" in text,
        "mapped functions": sum(f"PROOF training with {lr} from store-7" in text for lr in (0.5, 0.25)),
        "XCom to TaskFlow": "PROOF best 0.125" in text,
        "XCom to a step": "PROOF checked 0.125" in text,
        "teardown": "PROOF store-7 closed" in text,
        "asset": sorted(set(run.assets())),
        "tasks": run.states(),
    }


def functions(ground: Ground) -> dict[str, Any]:
    """Functions on GPUs: XCom in and out, type hints, `.expand`, `.override`, a traceback, retries, serializers."""
    kube = ground.namespace("functions")
    ground.put("functions.py")
    run = ground.start("functions", kube.namespace, PROOF_SERIALIZERS=",".join(ground.serializers))
    text = run.ended()
    forget(kube)
    states = run.states()
    return {
        "run": run.state,
        "XCom in and out": run.xcoms("train"),
        "one value": run.xcoms("score"),
        "nothing": run.xcoms("tell"),
        "mapped": {key: value for key, value in run.xcoms("sweep").items() if key.startswith("return_value")},
        "gathered": run.xcoms("gather").get("return_value"),
        "override": run.xcoms("on_a_slice").get("return_value"),
        "serializers": {name: run.xcoms(f"by_{name}").get("return_value") for name in ("pickle", *ground.serializers)},
        "second try": {"state": states.get("flaky"), "tries": run.tries("flaky")},
        "failing": {
            "state": states.get("broken"),
            "tries": run.tries("broken"),
            "traceback": _traceback(text, "broken")[-3:],
        },
        "tasks": states,
    }


CASES: dict[str, Callable[[Ground], dict[str, Any]]] = {
    "equal pods": equal_pods,
    "killed pod": killed_pod,
    "full quota": full_quota,
    "nightly": nightly,
    "handwritten": handwritten,
    "functions": functions,
}


def _holder(image: str) -> dict[str, Any]:
    resources = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": image, "command": ["sleep", "36000"], "resources": resources}
    spec = {"containers": [{**container, "imagePullPolicy": "IfNotPresent"}], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "holder"}, "spec": spec}


def _limits(pod: dict[str, Any]) -> dict[str, str]:
    main = next(each for each in pod["spec"]["containers"] if each["name"] == "main")
    return dict(main["resources"].get("limits", {}))


def _made(pod: dict[str, Any]) -> float:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()


def _line(text: str, words: tuple[str, ...]) -> str:
    """The first line of the log that says what happened, cut short."""
    for word in words:
        for line in text.splitlines():
            if word in line:
                start = max(0, line.find(word) - 120)
                return line[start : start + 300].strip()
    return ""


def _traceback(text: str, function: str) -> list[str]:
    """The lines of the container's log from the first traceback of this function to its message."""
    said = [line.split("[main] ", 1)[1] for line in text.splitlines() if "[main] " in line]
    lines = [re.sub(r"\s*\[[\w.]+\] loc=.*$", "", line) for line in said]
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback ")]
    for start in starts:
        end = next((n for n, line in enumerate(lines) if n > start and line[:1].isalpha()), len(lines) - 1)
        found = lines[start : end + 1]
        if any(f"<gpu_task {function}>" in line for line in found):
            return found
    return []


def _alert(got: list[dict[str, Any]]) -> dict[str, Any]:
    if not got:
        return {}
    kept = {key: got[-1].get(key) for key in ("pipeline", "status", "cause", "date")}
    return kept | {"steps": [step.get("step") for step in got[-1].get("steps", ())]}
