"""Cases repeated on a running control plane: API server, controllers, scheduler, Kueue, and nodes that run nothing.

    python -m tests.cluster --name judge up --control-plane --kueue
    python -m tests.cluster --name judge exec -- .venvs/core/bin/python -m proofs.checker --live 500
    python -m tests.cluster --name judge down

Each case gets namespaces, nodes and queues of its own, so that many go on side by side. The program plays the engine
and the kubelet: it creates pods when their turn has come, and lets them end. What the judge found is walked again:
for *may queue* the way to the end and the way to the first wait, for *never* the way to the wait and then on with
everybody ending at once, for *always* an order of ends drawn at random. The scheduler chooses nodes by its scores, and
those pods first that came first: a way that needs another node or order than it chose is told apart, and is no
difference.
"""

from __future__ import annotations

import copy
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from proofs.checker.case import NAMESPACE, OTHERS, Case, Manifest
from proofs.checker.draw_case import case as drawn_case
from proofs.checker.judge import Judge
from proofs.checker.manifests import QUEUE_NAME
from proofs.checker.worlds import questions, refusals
from tests.differential.live.api import Api, Reply

MARK = "simulator.gpuflow.dev/case"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
SETTLES = 4.0
"""Seconds without a change after which the control plane is taken to be at rest."""
PATIENCE = 60.0
"""Seconds for a step that must come."""
PLURALS = {
    "ResourceFlavor": f"{KUEUE}/resourceflavors",
    "ClusterQueue": f"{KUEUE}/clusterqueues",
    "WorkloadPriorityClass": f"{KUEUE}/workloadpriorityclasses",
}
SAME, ANOTHER_WAY = "same", "another choice"


def askable(case: Case) -> bool:
    """One world; others use no quota of ours and hold no quota of Kueue; nothing that a new cluster cannot be in."""
    if case.is_open or case.worlds or refusals(case):
        return False
    for each in case.shown:
        if each["kind"] == "ResourceQuota" and any(amount != "0" for amount in each["status"]["used"].values()):
            return False
        if each["kind"] == "ResourceQuota" and any("argoproj.io" in key for key in each["spec"].get("hard", {})):
            return False  # a control plane without Argo counts no workflows
        if each["kind"] == "Workload" and "status" in each:
            return False
        if each["kind"] == "Namespace" and each.get("status"):
            return False
        if each["kind"] in ("DaemonSet", "ValidatingAdmissionPolicy", "DeviceClass"):
            return False
    return True


@dataclass
class Stage:
    """The objects of one case on the cluster, under names of their own."""

    api: Api
    name: str
    world: dict[str, Any]
    patience: float = 1.0
    """How many times longer than usual to wait."""
    moved: bool = False
    created: set[str] = field(default_factory=set)

    def home(self, namespace: str) -> str:
        return f"{self.name}-{namespace}"

    def pods(self, namespace: str = NAMESPACE) -> str:
        return f"/api/v1/namespaces/{self.home(namespace)}/pods"

    def build(self) -> None:
        world = self.world
        for namespace in (NAMESPACE, OTHERS):
            home = self.home(namespace)
            self._post("/api/v1/namespaces", {"metadata": {"name": home, "labels": {MARK: self.name}}})
            account = {"metadata": {"name": "default"}}
            self.api("POST", f"/api/v1/namespaces/{home}/serviceaccounts", account)
        for name, value in world["priorities"].items():
            manifest = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass"}
            self.api("POST", PLURALS["WorkloadPriorityClass"], {**manifest, "metadata": {"name": name}, "value": value})
        for each in world["nodes"]:
            self._node(each)
        for each in world["flavors"]:
            self._post(PLURALS["ResourceFlavor"], self._renamed(each))
        for each in world["clusterQueues"]:
            queue = self._renamed(each)
            if "cohortName" in queue["spec"]:
                queue["spec"]["cohortName"] = f"{self.name}-{queue['spec']['cohortName']}"
            for group in queue["spec"]["resourceGroups"]:
                for flavor in group["flavors"]:
                    flavor["name"] = f"{self.name}-{flavor['name']}"
            self._post(PLURALS["ClusterQueue"], queue)
        for each in world["localQueues"]:
            queue = copy.deepcopy(each)
            queue["metadata"]["namespace"] = self.home(each["metadata"]["namespace"])
            queue["spec"]["clusterQueue"] = f"{self.name}-{each['spec']['clusterQueue']}"
            self._post(f"{KUEUE}/namespaces/{queue['metadata']['namespace']}/localqueues", queue)
        for kind, plural in (("quotas", "resourcequotas"), ("limitranges", "limitranges")):
            for each in world[kind]:
                placed = {**each, "metadata": {"name": each["metadata"]["name"]}}
                placed.pop("status", None)
                self._post(f"/api/v1/namespaces/{self.home(NAMESPACE)}/{plural}", placed)
        self._quotas_counted()
        self._others()

    def _node(self, given: Manifest) -> None:
        node = self._renamed(given)
        node["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
        node["metadata"]["labels"] = {**given["metadata"]["labels"], MARK: self.name}
        node["metadata"]["labels"]["kubernetes.io/hostname"] = node["metadata"]["name"]
        node["spec"]["taints"] = [*given["spec"].get("taints", ()), {"key": MARK, "effect": "NoSchedule"}]
        status = node.pop("status")
        self._post("/api/v1/nodes", node)
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        amounts = {key: status[key] for key in ("allocatable", "capacity")}
        self.api.must("PATCH", f"{path}/status", {"status": amounts})

        def ready() -> bool:
            found = self.api.must("GET", path)
            if found["status"].get("allocatable") != amounts["allocatable"]:
                # The simulator of nodes gives a new one amounts of its own, sooner or later.
                self.api.must("PATCH", f"{path}/status", {"status": amounts})
                return False
            return "node.kubernetes.io/not-ready" not in {each["key"] for each in found["spec"].get("taints", ())}

        self._await(ready, f"node {path}")

    def _quotas_counted(self) -> None:
        """Until its controller has seen it, a quota refuses everything."""
        path = f"/api/v1/namespaces/{self.home(NAMESPACE)}/resourcequotas"

        def counted() -> bool:
            found = self.api.must("GET", path)["items"]
            return all(
                set(each.get("status", {}).get("used", {})) == set(each["spec"].get("hard", {})) for each in found
            )

        self._await(counted, "quotas")

    def _others(self) -> None:
        """Others came first: bound pods, and workloads in the order of their creation."""
        others = sorted(
            self.world["others"],
            key=lambda each: (each["workload"] or {"metadata": {}})["metadata"].get("creationTimestamp", ""),
        )
        for each in others:
            pod = each["pod"]
            if pod is None:
                template = each["workload"]["spec"]["podSets"][0]["template"]["spec"]
                pod = {"metadata": {"name": each["workload"]["metadata"]["name"]}, "spec": template}
                pod["metadata"]["labels"] = {QUEUE_NAME: each["workload"]["spec"]["queueName"]}
            spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}
            if "nodeName" in spec:
                spec["nodeName"] = f"{self.name}-{spec['nodeName']}"
            labels = {key: value for key, value in pod["metadata"].get("labels", {}).items() if "managed" not in key}
            made = {"metadata": {"name": pod["metadata"]["name"], "labels": labels}, "spec": spec}
            self._post(self.pods(OTHERS), self._placed(made))
            time.sleep(1.1 if each["workload"] else 0.0)  # creation times have whole seconds

    def _renamed(self, each: Manifest) -> Manifest:
        made = copy.deepcopy(each)
        made["metadata"] = {**made["metadata"], "name": f"{self.name}-{each['metadata']['name']}"}
        made.pop("status", None) if each["kind"] == "ClusterQueue" else None
        return made

    def _placed(self, pod: Manifest) -> Manifest:
        """The pod, kept on the nodes of its own case."""
        made = {"metadata": copy.deepcopy(pod["metadata"]), "spec": copy.deepcopy(pod["spec"])}
        made["metadata"].pop("namespace", None)
        spec = made["spec"]
        if "nodeName" not in spec:
            spec["nodeSelector"] = {**spec.get("nodeSelector", {}), MARK: self.name}
        spec["tolerations"] = [*spec.get("tolerations", ()), {"key": MARK, "operator": "Exists"}]
        spec |= {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0}
        return made

    def _post(self, path: str, body: Manifest) -> None:
        def posted() -> bool:
            reply = self.api("POST", path, body)
            if reply.ok or reply.code == 409:
                return True
            if reply.code in (422, 400):
                raise RuntimeError(reply.body["message"])
            return False  # webhooks and namespaces that are not ready yet

        self._await(posted, f"POST {path}")

    def _await(self, look: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE * self.patience
        while not look():
            if time.monotonic() > deadline:
                raise TimeoutError(what)
            time.sleep(0.3)

    # --- what the engine and the kubelet do ---

    def create(self, unit: Manifest) -> Reply:
        """One attempt of the engine to create the pod of a unit."""
        reply = self.api("POST", self.pods(), self._placed(unit["pod"]))
        if reply.ok:
            self.created.add(unit["name"])
        return reply

    def end(self, name: str, *, delete: bool = False, namespace: str = NAMESPACE) -> None:
        path = f"{self.pods(namespace)}/{name}"
        done = {"status": {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]}}
        self.api("PATCH", f"{path}/status", done)
        if delete:
            self.remove(name, namespace)

    def remove(self, name: str, namespace: str = NAMESPACE) -> None:
        path = f"{self.pods(namespace)}/{name}"
        self.api.remove(path)
        self.api("PATCH", path, {"metadata": {"finalizers": None}})

    def running(self, namespace: str = NAMESPACE) -> dict[str, str]:
        """The pods that have a node and have not ended, with their node."""
        found = self.api.must("GET", self.pods(namespace))["items"]
        return {
            each["metadata"]["name"]: each["spec"]["nodeName"].removeprefix(f"{self.name}-")
            for each in found
            if each["spec"].get("nodeName") and each["status"].get("phase") not in ("Succeeded", "Failed")
        }

    def clear(self) -> None:
        for namespace in (NAMESPACE, OTHERS):
            for each in self.api.must("GET", self.pods(namespace)).get("items", ()):
                self.remove(each["metadata"]["name"], namespace)
        for namespace in (NAMESPACE, OTHERS):
            self.api.remove(f"/api/v1/namespaces/{self.home(namespace)}")
        for kind, plural in (("clusterQueues", "ClusterQueue"), ("flavors", "ResourceFlavor")):
            for each in self.world[kind]:
                path = f"{PLURALS[plural]}/{self.name}-{each['metadata']['name']}"
                self.api.remove(path)
                self.api("PATCH", path, {"metadata": {"finalizers": None}})
        for each in self.world["nodes"]:
            self.api.remove(f"/api/v1/nodes/{self.name}-{each['metadata']['name']}")


class Walk:
    """A way of the judge, walked on the cluster."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.units = {each["name"]: each for each in stage.world["units"]}
        self.deletes = stage.world["keeps"] == "deleted"

    def follow(self, way: list[str]) -> str | None:
        """Take every step; the first that does not come is what is returned."""
        bound: set[str] = set()
        for what in way:
            kind, _, rest = what.partition(" ")
            name = rest.partition(" ")[0]
            if kind == "create" and not self._comes(partial(self._created, name)):
                return what
            if kind == "bind":
                namespace = NAMESPACE if name in self.units else OTHERS
                bound.add(name)
                if not self._comes(partial(self._runs, name)):
                    # Somebody whose turn comes later on this way was taken first.
                    running = {*self.stage.running(), *self.stage.running(OTHERS)}
                    self.stage.moved |= bool(running - bound - self._there_before())
                    return what
                if self.stage.running(namespace)[name] != rest.rpartition(" ")[2]:
                    self.stage.moved = True
            elif kind == "end":
                self.stage.end(name, delete=self.deletes and name in self.units, namespace=self._home(name))
            elif kind == "collect":
                self.stage.remove(name)
            time.sleep(0.05)
        return None

    def _there_before(self) -> set[str]:
        """Pods of others that have a node from the beginning."""
        pods = [each["pod"] for each in self.stage.world["others"] if each["pod"] is not None]
        return {pod["metadata"]["name"] for pod in pods if "nodeName" in pod["spec"]}

    def _created(self, name: str) -> bool:
        return self.stage.create(self.units[name]).ok

    def _runs(self, name: str) -> bool:
        return name in self.stage.running(self._home(name))

    def _home(self, name: str) -> str:
        return NAMESPACE if name in self.units else OTHERS

    def _comes(self, look: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + PATIENCE * self.stage.patience
        while time.monotonic() < deadline:
            if look():
                return True
            time.sleep(0.4)
        return False

    def stays_out(self, names: list[str]) -> str | None:
        """Somebody of these must still not run when everything is at rest."""
        before, since = self.stage.running(), time.monotonic()
        while time.monotonic() - since < SETTLES * self.stage.patience:
            for name in names:
                if name in self.units and name not in self.stage.created:
                    self.stage.create(self.units[name])
            time.sleep(0.5)
            if (now := self.stage.running()) != before:
                before, since = now, time.monotonic()
        waiting = [name for name in names if name not in before]
        return None if waiting else f"nobody waits: {', '.join(names)} run"

    def freely(self, draw: random.Random, *, others_end: bool) -> tuple[bool, list[str]]:
        """The run as an engine does it: true when it ends, and who was ever found waiting at rest."""
        ended: set[str] = set()
        waited: list[str] = []
        while len(ended) < len(self.units):
            self._rest(ended, others_end)
            running = sorted(set(self.stage.running()) - ended)
            waited += [name for name in self._due(ended) if name not in running]
            if not running:
                return False, waited
            name = draw.choice(running)
            self.stage.end(name, delete=self.deletes)
            ended.add(name)
        return True, waited

    def _rest(self, ended: set[str], others_end: bool) -> None:
        last: object = None
        since = time.monotonic()
        while time.monotonic() - since < SETTLES * self.stage.patience:
            for name in self._due(ended):
                if name not in self.stage.created:
                    self.stage.create(self.units[name])
            if others_end:
                for name in self.stage.running(OTHERS):
                    self.stage.end(name, namespace=OTHERS)
            running = set(self.stage.running()) - ended
            if running >= set(self._due(ended)):
                return  # nobody is left to wait for
            now = (frozenset(running), len(self.stage.created))
            if now != last:
                last, since = now, time.monotonic()
            time.sleep(0.4)

    def _due(self, ended: set[str]) -> list[str]:
        """Whose turn it is, or was: created pods that have not ended, and those that the caps let begin."""
        names = list(self.units)
        due = [name for name in names if name in self.stage.created and name not in ended]
        for name in names:
            unit = self.units[name]
            if name in self.stage.created or any(names[number] not in ended for number in unit["after"]):
                continue
            if all(self._has_room(cap, names.index(name), due, names, ended) for cap in self.stage.world["caps"]):
                due.append(name)
        return due

    def _has_room(self, cap: Manifest, number: int, due: list[str], names: list[str], ended: set[str]) -> bool:
        mine = [group for group in cap["groups"] if number in group]
        if not mine:
            return True
        begun = set(due) | ended | self.stage.created
        under_way = [
            group
            for group in cap["groups"]
            if group is not mine[0]
            and any(names[each] in begun for each in group)
            and not all(names[each] in ended for each in group)
        ]
        most: int = cap["max"]
        return len(under_way) < most


def repeated(api: Api, case: Case, name: str, said: Manifest, world: Manifest) -> Iterator[tuple[str, str]]:
    """What the cluster does, once for each way: the same, another way, or how it differs."""
    for part in _parts(said):
        # Who differs is asked again: with more patience, because a busy machine takes long to do what it will do, and
        # with pods that come as late as they may, because the scheduler takes those first that came first.
        for late, patience in enumerate((1.0, 4.0)):
            stage = Stage(api, f"{name}{part[0]}{late}", world, patience)
            try:
                stage.build()
                difference = _walk(stage, part, said, case.seed, late=bool(late))
            except (RuntimeError, TimeoutError) as error:
                difference = f"could not be set up: {error}"
            finally:
                stage.clear()
            if difference is None or stage.moved:
                break
        if difference is None:
            yield part, SAME
        else:
            yield part, ANOTHER_WAY if stage.moved else difference


def _parts(said: Manifest) -> list[str]:
    return {"always": ["freely"], "may-queue": ["ends", "waits"], "never": ["waits", "greedy"]}[said["truth"]]


def _late(way: list[str]) -> list[str]:
    """The same way with every pod created just before something else happens to it, or last of all."""
    creates = {what.split()[1]: what for what in way if what.startswith("create ")}
    found: list[str] = []
    for what in way:
        name = what.partition(" ")[2].partition(" ")[0]
        if what.startswith("create "):
            continue
        if name in creates:
            found.append(creates.pop(name))
        found.append(what)
    return [*found, *creates.values()]


def _walk(stage: Stage, part: str, said: Manifest, seed: str, *, late: bool) -> str | None:
    walk = Walk(stage)
    if part in ("ends", "waits"):
        way = said.get(part) or []
        stuck = walk.follow(_late(way) if late else way)
        if stuck:
            return f"{part}: {stuck!r} does not come"
        return walk.stays_out(said.get("waiting") or []) if part == "waits" and said.get("waiting") else None
    ended, waited = walk.freely(random.Random(seed), others_end=part == "greedy")
    if part == "greedy":
        return "the run ends" if ended else None
    return None if ended and not waited else f"waits at rest: {waited}; ends: {ended}"


def live(kubeconfig: Path, count: int, seed: int, threads: int, only: frozenset[str] = frozenset()) -> int:
    """So many cases on the cluster of a kubeconfig, with what came of each kind of way. `only`: these of them."""
    chosen: list[tuple[Case, Manifest, Manifest]] = []
    number = 0
    with Judge() as judge:
        while len(chosen) < count:
            case = drawn_case(f"{seed}/{number}")
            number += 1
            if askable(case):
                (truth,) = judge.truths([case])
                said = truth.because[0]
                # The program creates pods and no objects of an engine: a run that is refused itself is not played.
                played = "run" not in (said.get("waiting") or ())
                if said.get("truth") and played and "refused" not in said and not re.search("fail|evicts", str(said)):
                    chosen.append((case, said, questions(case)[0]))
    chosen = [each for each in chosen if not only or each[0].seed in only]
    count = len(chosen)
    print(f"== {count} of {number} cases from seed {seed} on {Api(kubeconfig).must('GET', '/version')['gitVersion']}")
    began = time.monotonic()

    def one(index: int) -> list[tuple[str, str, str]]:
        case, said, world = chosen[index]
        found = repeated(Api(kubeconfig), case, f"c{index}", said, world)
        return [(said["truth"], part, what) for part, what in found]

    totals: Counter[tuple[str, str, str]] = Counter()
    differing = 0
    with ThreadPoolExecutor(threads) as pool:
        for index, found in enumerate(pool.map(one, range(count))):
            for word, part, what in found:
                kind = what if what in (SAME, ANOTHER_WAY) else "differs"
                totals[word, part, kind] += 1
                if kind == "differs":
                    differing += 1
                    print(f"{chosen[index][0].seed} ({word}, {part}): {what}", flush=True)
            if (index + 1) % 25 == 0:
                print(f"  {index + 1} of {count} cases, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    for (word, part, kind), times in sorted(totals.items()):
        print(f"{word:<10} {part:<8} {kind:<14} {times:>6}")
    print(f"{count} cases on a running control plane: {differing} differ, {time.monotonic() - began:.0f} s")
    return 1 if differing else 0
