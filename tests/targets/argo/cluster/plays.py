"""Playing sequences: their workflows run side by side, and each attempt gets the fault its script says."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.faults import Faults

from .contract import FAILED, SUCCEEDED, End, Sequence
from .stage import CLAIM, MOUNT, Stage

PUPPET = Path(__file__).with_name("puppet.py").read_text()
SPOT = {"gpuflow.test/spot": "true"}
SITE = f"""\
apiVersion: gpuflow/v1
kind: Site
name: stage
extends: nvidia
spot: {{labels: {json.dumps(SPOT)}}}
"""
SITE_WITH_STATE = SITE + f"runtime: {{state: {MOUNT}/store}}\n"
STEP = "work"
AT_ONCE = 12
"""Workflows at the same time: two cores start about one pod a second."""
PATIENCE = 1500.0
FAULTS: dict[str, Callable[[Faults, str], None]] = {
    "delete": Faults.delete,
    "early": Faults.delete,
    "force": Faults.force_delete,
    "evict": Faults.evict,
}
COSTS = {
    "failed (retryable)": "failure",
    "failed (final)": "failure",
    "out of memory": "failure",
    "interrupted": "interruption",
    "": "interruption",
    "never started": None,
}
"""What an attempt costs by the word the supervisor's book has for its end; "" when it has none."""


@dataclass
class Seen:
    """What was seen of a sequence when its workflow had ended."""

    end: End
    overlaps: list[str]
    done: bool
    """Whether the program itself succeeded."""
    attempts: int
    """How many pods Argo knows of."""
    messages: list[str]
    outcomes: list[str]
    """What the supervisor's book says of each attempt that did not succeed."""
    pods: list[dict[str, Any]]
    """The specs of its pods as far as they were seen, the oldest first."""


@dataclass
class Play:
    """A sequence under way."""

    sequence: Sequence
    folder: Path
    hurt: set[int] = field(default_factory=set)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Its pods by uid; a deleted one is remembered."""

    def ready(self) -> tuple[int, str] | None:
        """The start that waits for its fault, and its pod's name."""
        for number in range(len(self.sequence.acts), 0, -1):
            path = self.folder / str(number) / "ready"
            if number not in self.hurt and path.exists():
                return number, path.read_text()
        return None


def pipeline(sequence: Sequence, image: str) -> str:
    """The pipeline of a sequence: one step."""
    retry: dict[str, Any] = {"failures": sequence.failures, "interruptions": sequence.interruptions}
    if sequence.final:
        retry["final_exit_codes"] = list(sequence.final)
    if sequence.retryable is not None:
        retry["retryable_exit_codes"] = list(sequence.retryable)
    if sequence.more_memory:
        retry["more_memory"] = dict(sequence.more_memory)
    step: dict[str, Any] = {
        "command": ["python3", "-c", PUPPET, f"{MOUNT}/plays/{sequence.name}", *sequence.acts],
        "cpu": {"request": "20m"},
        "memory": {"request": "24Mi", "limit": "128Mi"},
        "volumes": {MOUNT: {"claim": CLAIM}},
        "termination_grace": "6s",
        "retry": retry,
    }
    if sequence.spot:
        step["spot"] = dict(sequence.spot)
    if sequence.care == "checkpoint":
        step["checkpoint"] = {"path": "/checkpoints", "store": f"{MOUNT}/store", "grace": "6s"}
    document = {
        "apiVersion": "gpuflow/v1",
        "kind": "Pipeline",
        "name": sequence.name,
        "defaults": {"image": image, "image_pull_policy": "IfNotPresent"},
        "steps": {STEP: step},
    }
    return yaml.safe_dump(document, sort_keys=False)


def play(stage: Stage, sequences: Iterable[Sequence]) -> dict[str, Seen]:
    """Play all sequences to their end, several at a time."""
    given = list(sequences)
    image = stage.cluster.image("gpuflow")
    manifests: dict[str, Any] = {}
    for site, cares in ((SITE, ("checkpoint", "none")), (SITE_WITH_STATE, ("state",))):
        texts = {item.name: pipeline(item, image) for item in given if item.care in cares}
        manifests |= stage.compile(texts, site) if texts else {}
    for path in (stage.shared / "plays", stage.shared / "store"):
        path.mkdir()
        path.chmod(0o777)
    waiting, playing, seen = list(reversed(given)), list[Play](), dict[str, Seen]()
    deadline = time.monotonic() + PATIENCE
    faults = Faults(stage.cluster, stage.kube)
    while waiting or playing:
        while waiting and len(playing) < AT_ONCE:
            sequence = waiting.pop()
            folder = stage.shared / "plays" / sequence.name
            folder.mkdir()
            folder.chmod(0o777)
            stage.start(manifests[sequence.name])
            playing.append(Play(sequence, folder))
        workflows = stage.workflows()
        for one in list(playing):
            workflow = workflows[one.sequence.name]
            if workflow.get("status", {}).get("finishedAt"):
                seen[one.sequence.name] = _seen(stage, one, workflow)
                playing.remove(one)
            elif found := one.ready():
                number, pod = found
                act = one.sequence.act(number)
                if act.startswith("early:") or _runs(workflow, pod):
                    one.hurt.add(number)
                    _remember(stage, one)
                    FAULTS[act.partition(":")[0]](faults, pod)
        assert time.monotonic() < deadline, f"still playing: {[one.sequence.name for one in playing]}"
        time.sleep(0.5)
    return seen


def _remember(stage: Stage, one: Play) -> None:
    """Keep the pods of a sequence that is about them: soon one will be gone."""
    if one.sequence.spot or one.sequence.more_memory:
        for item in stage.kube.list("pod", f"workflows.argoproj.io/workflow={one.sequence.name}"):
            one.pods.setdefault(item["metadata"]["uid"], item)


def _runs(workflow: dict[str, Any], pod: str) -> bool:
    """Whether Argo itself has seen the pod run: a pod that goes before is made again, as if it had never been."""
    return any(node["phase"] == "Running" and _pod_name(workflow, node) == pod for node in _pods(workflow))


def _pods(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    nodes = workflow.get("status", {}).get("nodes", {}).values()
    return sorted((node for node in nodes if node["type"] == "Pod"), key=lambda node: str(node.get("startedAt")))


def _pod_name(workflow: dict[str, Any], node: dict[str, Any]) -> str:
    """Argo names a pod after its workflow, its template and the hash at the end of its node's id."""
    return f"{workflow['metadata']['name']}-{node['templateName']}-{node['id'].rpartition('-')[2]}"


def _seen(stage: Stage, one: Play, workflow: dict[str, Any]) -> Seen:
    _remember(stage, one)
    names = sorted(path.name for path in one.folder.iterdir())
    book = stage.shared / "store" / one.sequence.name / workflow["metadata"]["uid"] / STEP / "attempts"
    outcomes = _outcomes(book)
    return Seen(
        end=End(
            # Argo says Error instead of Failed when the last pod went out of its sight.
            phase=SUCCEEDED if workflow["status"]["phase"] == SUCCEEDED else FAILED,
            starts=sum(name.isdigit() for name in names),
            failures=sum(COSTS[outcome] == "failure" for outcome in outcomes),
            interruptions=sum(COSTS[outcome] == "interruption" for outcome in outcomes),
        ),
        overlaps=[name for name in names if name.startswith("overlap-")],
        done="done" in names,
        attempts=len(_pods(workflow)),
        messages=[str(node.get("message", "")) for node in _pods(workflow)],
        outcomes=outcomes,
        pods=[
            pod["spec"] for pod in sorted(one.pods.values(), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        ],
    )


def _outcomes(book: Path) -> list[str]:
    """What the book says of each attempt that did not succeed; "" for one that left no word."""
    success = book.parent / "success.json"
    won = json.loads(success.read_text())["attempt"] if success.exists() else 0
    found = []
    for path in sorted(book.glob("??????.json")):
        record = json.loads(path.read_text())
        end = book / f"{path.stem}-{record['id']}.end.json"
        if record["attempt"] != won:
            found.append(json.loads(end.read_text())["outcome"] if end.exists() else "")
    return found
