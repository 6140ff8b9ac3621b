"""How each act that the program does not do itself is caused."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from tests.cluster import nodes
from tests.cluster.faults import HIGH_PRIORITY
from tests.cluster.layout import IMAGES, REAL_NODE
from tests.cluster.pods import pod as small_pod
from tests.cluster.queues import VERSION
from tests.cluster.sandbox import ProgramError
from tests.cluster.waiting import until

from . import node
from .contract import BY_CLUSTER, BY_NODE, HELD, INIT, WRITTEN, Case, kind_of, starts_program
from .ground import Ground
from .pipelines import EVERYTHING, LATE_IMAGE, PLACE, taint_of

MIG = "nvidia.com/mig-1g.10gb"
NEXT_NODE = "next"
"""Where the next pod goes when no node runs pods: what it does there is written too."""
TAINT_SECONDS = 20
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."


@dataclass
class Play:
    """A case under way."""

    case: Case
    begun: float = field(default_factory=time.monotonic)
    struck: set[str] = field(default_factory=set)
    sights: list[dict[str, Any]] = field(default_factory=list)
    """Pods as they were seen when something was done about them."""
    heard: list[dict[str, Any]] = field(default_factory=list)
    """What Argo recorded of its pods at any time; it forgets some of it."""
    striking: Future[None] | None = None
    nth: int = 0
    """How many acts before the program have been played."""

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def programs(self) -> list[str]:
        return [act for act in self.case.acts if starts_program(act)]


Seen = Callable[[str], bool]
"""Whether the engine itself has seen a pod run, by the pod's name."""


def strike(ground: Ground, play: Play, seen: Seen) -> None:
    """Cause what is due for a case, if anything is."""
    folder = ground.plays / play.name
    for number, act in enumerate(play.programs, start=1):
        ready = folder / str(number) / "ready"
        if kind_of(act) in (*BY_CLUSTER, *BY_NODE) and f"main-{number}" not in play.struck and ready.exists():
            pod = _pod(ground, ready.read_text())
            if pod is not None and seen(pod["metadata"]["name"]):
                play.struck.add(f"main-{number}")
                play.sights.append(pod)
                FAULTS[kind_of(act)](ground, play, pod, number)
            return
    for number, act in enumerate(play.case.acts, start=1):
        ready = folder / f"init-{number}" / "ready"
        if kind_of(act) in INIT and f"init-{number}" not in play.struck and ready.exists():
            pod = _pod(ground, ready.read_text())
            if pod is not None:
                play.struck.add(f"init-{number}")
                play.sights.append(pod)
                FAULTS[kind_of(act).removeprefix("init-")](ground, play, pod, number)
            return
    waiting = [act for act in play.case.acts if kind_of(act) in (*HELD, *WRITTEN)]
    if play.nth < len(waiting):
        act = kind_of(waiting[play.nth])
        pods = [pod for pod in ground.pods_of(play.name) if pod["metadata"]["uid"] not in play.struck]
        pod = pods[-1] if pods else None
        if SIGNS[act](ground, play, pod):
            if pod is not None:
                play.struck.add(pod["metadata"]["uid"])
                play.sights.append(pod)
            play.nth += 1
            CURES[act](ground, play, pod)
    elif waiting and not ground.has_node:
        _succeed(ground, play)


def _succeed(ground: Ground, play: Play) -> None:
    """Where no node runs pods, the pod after the fault ends well because it is written so."""
    pods = [pod for pod in ground.pods_of(play.name) if pod["metadata"]["uid"] not in play.struck]
    if not pods or pods[-1]["status"].get("phase") != "Running" or pods[-1]["spec"].get("nodeName") != NEXT_NODE:
        return
    pod, folder = pods[-1], ground.plays / play.name
    play.struck.add(pod["metadata"]["uid"])
    (folder / "1").mkdir()
    (folder / "done").touch()
    ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    rows = [{**row, "ready": False, "state": ended} for row in pod["status"].get("containerStatuses", ())]
    ground.kube.patch_status("pod", pod["metadata"]["name"], {"phase": "Succeeded", "containerStatuses": rows})


def prepare(ground: Ground, case: Case) -> None:
    """Put the obstacles of a case in its way."""
    if case.has("quota"):
        # Somebody else has what the quota allows.
        holder = small_pod(
            f"holder-{case.name}",
            IMAGES["busybox"],
            ["sleep", "600"],
            resources={MIG: "1"},
            tolerations=[EVERYTHING],
        )
        ground.kube.apply(_quota(case, {f"requests.{MIG}": "1"}))
        ground.kube.create(holder)
        used = f"requests.{MIG}"
        until(
            "the quota to be used up",
            lambda: (
                ((ground.kube.get("resourcequota", case.name) or {}).get("status") or {}).get("used", {}).get(used)
                == "1"
            ),
        )
    if case.has("image"):
        _remove_image(ground, case)
    if case.has("limits"):
        # A quota that only looks at pods of one priority, so that the other cases pass it by.
        only = {"operator": "In", "scopeName": "PriorityClass", "values": [case.name]}
        quota = _quota(case, {"limits.cpu": "8"})
        quota["spec"]["scopeSelector"] = {"matchExpressions": [only]}
        ground.kube.apply(_priority(ground, case.name, 1), quota)
        time.sleep(1)
    if case.has(*WRITTEN):
        name = simulated_node(case)
        labels = {**ground.stage.labels, f"{PLACE}-{case.name}": "here"}
        ground.cluster.kube.apply(nodes.simulated(name, labels=labels, taints=[nodes.FENCE]))
        nodes.await_ready(ground.cluster.kube, name)
        if not ground.has_node:
            ground.cluster.kube.apply(nodes.simulated(NEXT_NODE, labels=ground.stage.labels, taints=[nodes.FENCE]))
            nodes.await_ready(ground.cluster.kube, NEXT_NODE)


def clear(ground: Ground, case: Case) -> None:
    """Take away what `prepare` and the cures left."""
    if case.has("quota", "limits"):
        ground.kube("delete", "resourcequota", case.name, "--ignore-not-found")
    if case.has("quota"):
        ground.kube("delete", "pod", f"holder-{case.name}", "--ignore-not-found", "--grace-period=0", "--force")
    if case.has(*WRITTEN, "full"):
        _label(ground, _next_node(ground), None, case.name)
    if case.has(*WRITTEN):
        ground.cluster.kube("delete", "node", simulated_node(case), "--ignore-not-found", "--wait=false")
    if case.has("image"):
        _remove_image(ground, case)


def _remove_image(ground: Ground, case: Case) -> None:
    with contextlib.suppress(ProgramError):
        ground.cluster.ctr("images", "rm", LATE_IMAGE.format(name=case.name))


def _next_node(ground: Ground) -> str:
    return REAL_NODE if ground.has_node else NEXT_NODE


def simulated_node(case: Case) -> str:
    return f"simulated-{case.name}"


def _quota(case: Case, hard: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": case.name}, "spec": {"hard": hard}}


def _priority(ground: Ground, name: str, value: int) -> dict[str, Any]:
    meta = {"name": name, "labels": ground.stage.labels}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": value}


def _label(ground: Ground, name: str, value: str | None, old: str = "") -> None:
    key = f"{PLACE}-{value or old}"
    ground.cluster.kube("label", "node", name, f"{key}=here" if value else f"{key}-", "--overwrite")


def _pod(ground: Ground, name: str) -> dict[str, Any] | None:
    """The pod whose hostname a program wrote down; Argo's names may be longer than a hostname."""
    name = name.strip()
    return next((pod for pod in ground.living if pod["metadata"]["name"].startswith(name)), None)


def _delete(ground: Ground, play: Play, pod: dict[str, Any], number: int) -> None:
    ground.faults.delete(pod["metadata"]["name"])


def _force(ground: Ground, play: Play, pod: dict[str, Any], number: int) -> None:
    ground.faults.force_delete(pod["metadata"]["name"])


def _evict(ground: Ground, play: Play, pod: dict[str, Any], number: int) -> None:
    ground.faults.evict(pod["metadata"]["name"])


def _taint(ground: Ground, play: Play, pod: dict[str, Any], number: int) -> None:
    """A NoExecute taint comes over the node and goes when the pod is going."""
    taint = taint_of(play.case)
    ground.cluster.kube("taint", "node", REAL_NODE, f"{taint}=now:NoExecute", "--overwrite")
    try:
        for _ in range(TAINT_SECONDS * 2):
            shown = ground.fresh(pod["metadata"]["name"])
            if shown is None or shown["metadata"].get("deletionTimestamp"):
                return
            time.sleep(0.5)
    finally:
        ground.cluster.kube("taint", "node", REAL_NODE, f"{taint}:NoExecute-")


def _preempt(ground: Ground, play: Play, pod: dict[str, Any], number: int) -> None:
    """A pod of higher priority needs the devices that the step holds; it leaves when it has them."""
    name = f"intruder-{ground.kube.namespace[-6:]}-{play.name}-{number}"
    priority = _priority(ground, name, HIGH_PRIORITY)
    intruder = small_pod(
        name,
        IMAGES["busybox"],
        ["sleep", "3"],
        resources={"nvidia.com/gpu": "4"},
        priorityClassName=name,
        terminationGracePeriodSeconds=0,
        tolerations=[{"operator": "Exists"}],
        nodeSelector={"kubernetes.io/hostname": REAL_NODE},
    )
    ground.kube.create(priority, intruder)


def _kueue(ground: Ground, play: Play, pod: dict[str, Any], number: int) -> None:
    """Kueue takes the quota back, and gives it again."""
    for item in ground.kube.list("workload"):
        owners = {owner["name"] for owner in item["metadata"].get("ownerReferences", ())}
        if pod["metadata"]["name"] in owners:
            name = item["metadata"]["name"]
            ground.kube("patch", "workload", name, "--type=merge", '--patch={"spec":{"active":false}}')
            return
    raise AssertionError(f"pod {pod['metadata']['name']} has no workload")


def _oomgroup(ground: Ground, play: Play, pod: dict[str, Any], number: int) -> None:
    node.out_of_memory_as_a_group(ground.cluster, pod, ground.plays / play.name / str(number) / "go")


def _crash(ground: Ground, play: Play, pod: dict[str, Any], number: int) -> None:
    node.kill_everything(ground.cluster, pod)


def _supervisor(ground: Ground, play: Play, pod: dict[str, Any], number: int) -> None:
    node.kill_supervisor(ground.cluster, pod)


def _wait(ground: Ground, play: Play, pod: dict[str, Any], number: int) -> None:
    """Argo's own container dies; then the program goes on to its end."""
    node.kill_everything(ground.cluster, pod, "wait")
    time.sleep(1)
    (ground.plays / play.name / str(number) / "go").touch()


Fault = Callable[[Ground, Play, dict[str, Any], int], None]
FAULTS: dict[str, Fault] = {
    "delete": _delete,
    "force": _force,
    "evict": _evict,
    "taint": _taint,
    "preempt": _preempt,
    "kueue": _kueue,
    "oomgroup": _oomgroup,
    "crash": _crash,
    "supervisor": _supervisor,
    "wait": _wait,
}


def _waits_for(*reasons: str) -> Callable[[Ground, Play, dict[str, Any] | None], bool]:
    def sign(ground: Ground, play: Play, pod: dict[str, Any] | None) -> bool:
        statuses = (pod or {}).get("status", {}).get("containerStatuses", ())
        return any(item["state"].get("waiting", {}).get("reason") in reasons for item in statuses)

    return sign


def _after_a_while(ground: Ground, play: Play, pod: dict[str, Any] | None) -> bool:
    """Nothing is there to be seen: the engine was refused, and waits."""
    return time.monotonic() - play.begun > 12


def _unschedulable(ground: Ground, play: Play, pod: dict[str, Any] | None) -> bool:
    conditions = (pod or {}).get("status", {}).get("conditions", ())
    return any(item["type"] == "PodScheduled" and item.get("reason") == "Unschedulable" for item in conditions)


def _gated(ground: Ground, play: Play, pod: dict[str, Any] | None) -> bool:
    return bool((pod or {}).get("spec", {}).get("schedulingGates")) and time.monotonic() - play.begun > 6


def _runs(ground: Ground, play: Play, pod: dict[str, Any] | None) -> bool:
    return (pod or {}).get("status", {}).get("phase") == "Running" and time.monotonic() - play.begun > 5


SIGNS: dict[str, Callable[[Ground, Play, dict[str, Any] | None], bool]] = {
    "image": _waits_for("ImagePullBackOff", "ErrImagePull"),
    "secret": _waits_for("CreateContainerConfigError"),
    "quota": _after_a_while,
    "full": _unschedulable,
    "gated": _gated,
    **dict.fromkeys(WRITTEN, _runs),
}


def _bring_image(ground: Ground, play: Play, pod: dict[str, Any] | None) -> None:
    ground.cluster.ctr("images", "tag", "--force", IMAGES["gpuflow"], LATE_IMAGE.format(name=play.name))


def _bring_secret(ground: Ground, play: Play, pod: dict[str, Any] | None) -> None:
    meta = {"name": play.name}
    ground.kube.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"key": "value"}})


def _raise_quota(ground: Ground, play: Play, pod: dict[str, Any] | None) -> None:
    ground.kube.apply(_quota(play.case, {f"requests.{MIG}": "4"}))


def _make_room(ground: Ground, play: Play, pod: dict[str, Any] | None) -> None:
    _label(ground, REAL_NODE, play.name)


def _open_queue(ground: Ground, play: Play, pod: dict[str, Any] | None) -> None:
    name = ground.kube.namespace
    meta = {"name": f"closed-{play.name}"}
    spec = {"clusterQueue": name}
    ground.kube.apply({"apiVersion": VERSION, "kind": "LocalQueue", "metadata": meta, "spec": spec})


def _written(
    phase: str, reason: str | None, message: str | None, condition: str | None = None, *, ran: bool = True
) -> Callable[[Ground, Play, dict[str, Any] | None], None]:
    """Write a pod's status as a kubelet writes it, and send the next pod to the real node."""

    def cure(ground: Ground, play: Play, pod: dict[str, Any] | None) -> None:
        assert pod is not None
        _label(ground, simulated_node(play.case), None, play.name)
        _label(ground, _next_node(ground), play.name)
        shown = ground.kube.get("pod", pod["metadata"]["name"])
        assert shown is not None
        status: dict[str, Any] = {"phase": phase, "reason": reason, "message": message}
        if condition:
            disrupted = {"type": "DisruptionTarget", "status": "True", "reason": condition, "message": message or ""}
            status["conditions"] = [*shown["status"].get("conditions", ()), disrupted]
        if phase == "Failed":
            killed = {"terminated": {"exitCode": 137, "reason": "Error"}}
            rows = shown["status"].get("containerStatuses", ()) if ran else ()
            status["containerStatuses"] = [{**row, "ready": False, "state": killed} for row in rows]
            if not ran:
                status["initContainerStatuses"] = []
        ground.kube.patch_status("pod", pod["metadata"]["name"], status)
        last = ground.kube.get("pod", pod["metadata"]["name"])
        if last is not None:
            play.sights.append(last)

    return cure


def _vanish(ground: Ground, play: Play, pod: dict[str, Any] | None) -> None:
    """The node is removed for good: the collector of lost pods deletes what was on it."""
    _label(ground, _next_node(ground), play.name)
    ground.cluster.kube("delete", "node", simulated_node(play.case), "--wait=false")


LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. "
CURES: dict[str, Callable[[Ground, Play, dict[str, Any] | None], None]] = {
    "image": _bring_image,
    "secret": _bring_secret,
    "quota": _raise_quota,
    "full": _make_room,
    "gated": _open_queue,
    "shutdown": _written("Failed", "Terminated", SHUTDOWN, "TerminationByKubelet"),
    "rejected": _written("Failed", "NodeShutdown", "Pod was rejected as the node is shutting down.", ran=False),
    "pressure": _written("Failed", "Evicted", LOW, "TerminationByKubelet"),
    "critical": _written("Failed", "Preempting", "Preempted in order to admit critical pod"),
    "unknown": _written("Unknown", "NodeLost", "Node real which was running pod is unresponsive"),
    "vanished": _vanish,
}
