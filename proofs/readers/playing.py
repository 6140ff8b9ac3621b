"""One run of a workflow: the program plays the kubelet, and decides which pod ends when.

To reach a peak, every pod is held until nothing more starts. Then those end that are no part of the set of steps that
the reader names for it, and so on.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field

from proofs.readers.case import NAME, Case, Manifest, leaf_of, leaf_read
from proofs.readers.judging import most
from proofs.readers.watching import ENDED, WORKFLOWS, Place, Watch, template_of
from tests.differential.live.api import Api, Refused

QUIET = 2.0
"""Seconds without a change after which nothing more is taken to start."""
LONGEST = 150.0
STUCK = 12.0
PLURALS = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "WorkflowTemplate": WORKFLOWS + "/namespaces/{}/workflowtemplates",
    "ClusterWorkflowTemplate": WORKFLOWS + "/clusterworkflowtemplates",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
}
MARK = "readers.gpuflow.dev/live"
RESULTS = ("heads", "tails")


@dataclass
class Plan:
    """How pods end: held for a witness of one key, or, without one, at random, and some fail."""

    engine: str = ""
    key: str = ""
    witness: tuple[str, ...] = ()
    seed: int = 0
    result: str = RESULTS[0]
    """What every step prints."""
    patience: float = 1.0

    @property
    def is_random(self) -> bool:
        return not self.key


@dataclass
class Run:
    """What was seen of one run."""

    place: Place
    phase: str = ""
    notes: list[str] = field(default_factory=list)


class Player:
    """Plays one run in a namespace of its own."""

    def __init__(self, api: Api, watch: Watch, case: Case, plan: Plan) -> None:
        self.api, self.case, self.plan = api, case, plan
        self.home = f"gf-{uuid.uuid4().hex[:10]}"
        self.place = watch.places[self.home]
        self.draw = random.Random(f"{case.name} {plan.seed} {plan.key}")
        self.ended: set[str] = set()
        self.failed: set[str] = set()
        self.notes: list[str] = []
        self.in_hurry = False
        self.waited = False
        self.judged = 0
        """How many changes were there when the worst moment was last looked for."""

    def play(self) -> Run:
        try:
            self._create()
        except Refused as refusal:
            return Run(self.place, "Refused", [str(refusal)])
        begun = time.monotonic()
        while time.monotonic() - begun < LONGEST:
            time.sleep(0.15)
            self._end_told()
            if self.place.phase in (*ENDED, "Error") and not self.place.live:
                break
            if self._quiet() > STUCK and self.place.nodes and not self.place.live:
                self.notes.append(f"stood still: {self._message()}")
                break
            self._move()
        else:
            self.notes.append(f"not over after {LONGEST:.0f} s")
        run = Run(self.place, self.place.phase, self.notes)
        if run.phase == "Error" or (run.phase == "Failed" and not self.failed):
            run.notes.append(self._message())
        self.api.remove(f"/api/v1/namespaces/{self.home}")
        return run

    def _create(self) -> None:
        self.api.must("POST", "/api/v1/namespaces", {"metadata": {"name": self.home, "labels": {MARK: "true"}}})
        names = {"default"}
        spec = self.case.workflow["spec"]
        names |= {each for each in (spec.get("serviceAccountName"),) if each}
        for name in names:
            self.api("POST", PLURALS["ServiceAccount"].format(self.home), {"metadata": {"name": name}})
        for each in self.case.others:
            metadata = {key: value for key, value in each["metadata"].items() if key in ("name", "labels")}
            path = PLURALS[each["kind"]].format(self.home)
            reply = self.api("POST", path, {**each, "metadata": metadata})
            if not reply.ok and reply.code != 409:
                raise Refused(reply.body.get("message", ""))
        self.api.must("POST", f"{WORKFLOWS}/namespaces/{self.home}/workflows", self.case.workflow)

    # What is there

    def _quiet(self) -> float:
        return time.monotonic() - self.place.changed

    def _message(self) -> str:
        status = self.place.workflow.get("status", {})
        words = [
            each.get("message", "") for each in self.place.nodes.values() if each.get("phase") in ("Error", "Pending")
        ]
        return str(status.get("message") or next(filter(None, words), "") or "the workflow waits for something else")

    def _is_daemon(self, pod: Manifest) -> bool:
        return template_of(pod).get("daemon") is True or _is_agent(pod)

    def _is_told(self, pod: Manifest) -> bool:
        node = self.place.nodes.get(_annotation(pod, "node-id"), {})
        return node.get("phase") in ("Succeeded", "Failed", "Error", "Skipped")

    def _settled(self) -> bool:
        """Argo has seen the end of every pod that was ended, and nothing has changed for a while."""
        nodes = self.place.nodes
        waiting = [each for each in self.ended if nodes.get(each, {}).get("phase") in ("Pending", "Running")]
        quiet = self._quiet()
        if waiting and quiet < 10.0 * self.plan.patience:
            return False
        if not nodes and quiet < 20.0:
            return False
        starting = [pod for pod in self.place.live if self._is_daemon(pod) and pod["status"].get("phase") == "Pending"]
        wanted = QUIET * self.plan.patience * (2 if starting else 1)
        return quiet >= wanted

    # What is done

    def _move(self) -> None:
        live = [pod for pod in self.place.live if not self._is_daemon(pod) and pod["metadata"]["uid"] not in self.ended]
        live = [pod for pod in live if _node_key(pod) not in self.ended]
        if self.plan.is_random:
            chosen = [pod for pod in live if self.draw.random() < 0.25]
            for pod in chosen:
                self._end(pod, fails=self.draw.random() < 0.15)
            if self._quiet() > 1.0:
                self._resume()
            return
        if self.in_hurry:
            for pod in live:
                self._end(pod)
            self._resume()
            return
        if self._reached():
            self.in_hurry = True
            return
        if not self._settled():
            return
        others = [pod for pod in live if not self._wanted(pod)]
        if others:
            self.waited = False
            for pod in others:
                retries = "(" in _annotation(pod, "node-name").rpartition(".")[2] and "retryStrategy" in template_of(
                    pod
                )
                self._end(pod, fails=retries and self._first(pod) and self.draw.random() < 0.5)
            return
        if self._resume():
            return
        if not self.waited:
            self.waited = True
            self.place.changed = time.monotonic()
            return
        self.in_hurry = True

    def _reached(self) -> bool:
        if len(self.place.log) == self.judged:
            return False
        self.judged = len(self.place.log)
        bound = self.case.bounds(self.plan.engine)[self.plan.key]
        seen = most(self.place, self.plan.engine).get(self.plan.key)
        return seen is not None and bound.value is not None and seen >= bound.value

    def _wanted(self, pod: Manifest) -> bool:
        return is_wanted(_annotation(pod, "node-name"), self.plan.witness, self.case.steps(self.plan.engine))

    def _first(self, pod: Manifest) -> bool:
        return _annotation(pod, "node-name").endswith("(0)")

    def _end(self, pod: Manifest, *, fails: bool = False) -> None:
        """What the pod's containers and the kubelet would report."""
        metadata = pod["metadata"]
        code = 1 if fails else 0
        node = _annotation(pod, "node-id")
        if node:
            self._report(node, pod)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ended = {"exitCode": code, "reason": "Error" if fails else "Completed", "startedAt": now, "finishedAt": now}
        statuses = [
            {
                "name": each["name"],
                "image": each["image"],
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": {**ended, "exitCode": 0 if each["name"] == "wait" else code}},
            }
            for each in pod["spec"]["containers"]
        ]
        status = {"phase": "Failed" if fails else "Succeeded", "containerStatuses": statuses}
        reply = self.api("PATCH", f"/api/v1/namespaces/{self.home}/pods/{metadata['name']}/status", {"status": status})
        if reply.ok:
            self.ended.add(_node_key(pod))
            if fails:
                self.failed.add(_node_key(pod))

    def _report(self, node: str, pod: Manifest) -> None:
        """What Argo's own container would report of a step that prints something and writes all its outputs."""
        written = template_of(pod).get("outputs", {})
        # What a step prints is only kept where another one asks for it.
        outputs: Manifest = {"result": self.plan.result} if _prints(pod) else {}
        parameters = [
            {**each, "value": (each.get("valueFrom") or {}).get("default") or self.plan.result}
            for each in written.get("parameters", ())
        ]
        artifacts = [{**each, "s3": {"key": f"{self.home}/{node}"}} for each in written.get("artifacts", ())]
        outputs |= {"parameters": parameters} if parameters else {}
        outputs |= {"artifacts": artifacts} if artifacts else {}
        labels = {
            "workflows.argoproj.io/workflow": NAME,
            "workflows.argoproj.io/report-outputs-completed": "true",
        }
        head = {"apiVersion": "argoproj.io/v1alpha1", "kind": "WorkflowTaskResult"}
        body = {**head, "metadata": {"name": node, "labels": labels}, "outputs": outputs}
        self.api("POST", f"{WORKFLOWS}/namespaces/{self.home}/workflowtaskresults", body)

    def _end_told(self) -> None:
        """Daemons that Argo has told to end; all pods of a workflow that is over."""
        over = self.place.phase in (*ENDED, "Error")
        for pod in self.place.live:
            told = self._is_daemon(pod) and (self._is_told(pod) or (over and _is_agent(pod)))
            if (told or over) and _node_key(pod) not in self.ended:
                self._end(pod, fails=self._is_daemon(pod))

    def _resume(self) -> bool:
        """Let steps go on that wait for a person."""
        waiting = [
            key for key, each in self.place.nodes.items() if each["type"] == "Suspend" and each["phase"] == "Running"
        ]
        for key in waiting:
            outputs = self.place.nodes[key].get("outputs") or {}
            given = [{"name": each["name"], "value": "yes"} for each in outputs.get("parameters", ())]
            node: Manifest = {"phase": "Succeeded", "finishedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
            if given:
                node["outputs"] = {**outputs, "parameters": given}
            path = f"{WORKFLOWS}/namespaces/{self.home}/workflows/{NAME}"
            self.api("PATCH", path, {"status": {"nodes": {key: node}}})
        return bool(waiting)


def is_wanted(node: str, witness: Collection[str], steps: Collection[str]) -> bool:
    """Whether the pod of this node is of a step of a witness. Items that are equal share the step of the first."""
    name, item = leaf_of(node)
    known = [number for each, number in map(leaf_read, witness) if each == name]
    firsts = [number for each, number in map(leaf_read, steps) if each == name]
    return bool(known) and (item is None or None in known or item in known or item not in firsts)


def _node_key(pod: Manifest) -> str:
    return _annotation(pod, "node-id") or str(pod["metadata"]["uid"])


def _annotation(pod: Manifest, name: str) -> str:
    return str(pod["metadata"].get("annotations", {}).get(f"workflows.argoproj.io/{name}", ""))


def _prints(pod: Manifest) -> bool:
    variables = (each for container in pod["spec"]["containers"] for each in container.get("env", ()))
    return any(each["name"] == "ARGO_INCLUDE_SCRIPT_OUTPUT" and each.get("value") == "true" for each in variables)


def _is_agent(pod: Manifest) -> bool:
    return pod["metadata"].get("labels", {}).get("workflows.argoproj.io/component") == "agent"
