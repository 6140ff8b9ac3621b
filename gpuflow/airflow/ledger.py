"""How often a task has failed and been interrupted, kept over tries, re-created pods and lost workers.

Airflow 3.3 keeps it in its task state; every pod also carries the counts it was started with, which is what an older
Airflow, or a person with kubectl, can read. Clearing a task starts a new count: Airflow then raises `max_tries`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from gpuflow.runtime.later_attempts import Before

PREFIX = "gpuflow.dev/"
KEY = "gpuflow_ledger"
COUNTS = ("epoch", "failures", "interruptions", "out_of_memory", "pods", "judged", "queued_for", "queued_at")
NODES = f"{PREFIX}failed-nodes"
LAST = f"{PREFIX}last-pod"
OVER = f"{PREFIX}over"
LONGEST = 2000
"""Letters of a last word that are kept."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The counts of one task instance since it was last cleared."""

    epoch: int
    """Airflow's `max_tries`, which changes when the task is cleared."""
    failures: int = 0
    interruptions: int = 0
    out_of_memory: int = 0
    pods: int = 0
    """Pods made so far; the number of the next one, which makes its name its own."""
    judged: int = 0
    """The last pod whose end is in the counts: whoever finds it again does not count it twice."""
    queued_for: int = 0
    """Which pod it last began to wait for, and since when: each pod may wait as long as the step allows."""
    queued_at: int = 0
    failed_nodes: tuple[str, ...] = ()
    """Nodes on which it failed, for a step whose next try goes elsewhere."""
    last: Mapping[str, Any] | None = None
    """What was seen of the last pod that was judged, for the supervisor in the next one."""
    over: Mapping[str, Any] | None = None
    """How the task has ended, written before its last pod is marked or deleted: a worker may die before it says so."""

    @property
    def ends(self) -> int:
        """How often a pod has ended, other than well."""
        return self.failures + self.interruptions

    @property
    def is_new(self) -> bool:
        """Whether nothing has happened yet: the task is at its beginning, or was cleared."""
        return not self.ends and self.judged == self.pods

    def before(self) -> Before:
        """What the next attempt may be different by."""
        return Before(self.out_of_memory, self.interruptions, self.failed_nodes)

    def document(self) -> dict[str, Any]:
        """As a trigger carries it."""
        return {**asdict(self), "failed_nodes": list(self.failed_nodes)}

    def annotations(self) -> dict[str, str]:
        """As a pod carries it."""
        counts = {f"{PREFIX}{key.replace('_', '-')}": str(getattr(self, key)) for key in COUNTS}
        if self.failed_nodes:
            counts[NODES] = ",".join(self.failed_nodes)
        if self.last is not None:
            counts[LAST] = json.dumps(self.last, sort_keys=True)
        if self.over is not None and not self.over.get("outputs"):  # which may be larger than annotations may be
            counts[OVER] = json.dumps(self.over, sort_keys=True)
        return counts

    def plus(self, **more: int) -> Ledger:
        """With these counts raised."""
        raised: dict[str, Any] = {key: getattr(self, key) + count for key, count in more.items()}
        return replace(self, **raised)

    def judging(self, last: Mapping[str, Any] | None = None, **more: int) -> Ledger:
        """With the end of the last pod counted, once, and what was seen of it."""
        return self if self.judged == self.pods else replace(self.plus(**more), judged=self.pods, last=last)

    def withdrawing(self) -> Ledger:
        """With the last pod taken back before its turn: its end costs nothing, and the next goes on with its wait."""
        return replace(self.plus(queued_for=1), judged=self.pods)

    def failing(self, context: Mapping[str, Any], words: str) -> Ledger:
        """With the task's end: it failed for good."""
        return replace(self, over={"run": run_start(context), "failed": words[:LONGEST]})

    def succeeding(
        self, context: Mapping[str, Any], outputs: Mapping[str, Any], artifacts: Mapping[str, Any] | None = None
    ) -> Ledger:
        """With the task's end: its last pod succeeded, and this is what it left."""
        left = {"outputs": dict(outputs), **({"artifacts": dict(artifacts)} if artifacts else {})}
        return replace(self, judged=self.pods, over={"run": run_start(context), **left})

    def last_word(self, context: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """How the task ended in an earlier try that could not say so; not in an earlier run of the same id."""
        return self.over if self.over is not None and self.over.get("run") == run_start(context) else None

    def queueing(self, now: float) -> Ledger:
        """With the wait for the next pod begun, if it has not."""
        return self if self.queued_for > self.pods else replace(self, queued_for=self.pods + 1, queued_at=int(now))

    def without(self, node: str | None) -> Ledger:
        """With a node that is not to be used again."""
        return self if node is None else replace(self, failed_nodes=tuple(sorted({*self.failed_nodes, node})))


def load(
    context: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], carried: Mapping[str, Any] | None = None
) -> Ledger:
    """The counts from Airflow's task state, the pods of this task and its trigger, whichever is further."""
    epoch = int(getattr(context["ti"], "max_tries", 0) or 0)
    known = [_from_annotations(pod) for pod in pods]
    store = context.get("task_state_store")
    for kept in (carried, None if store is None else store.get(KEY)):
        if isinstance(kept, Mapping):
            counted = {key: int(kept.get(key, 0)) for key in COUNTS}
            nodes = tuple(kept.get("failed_nodes", ()))
            known.append(Ledger(**counted, failed_nodes=nodes, last=kept.get("last"), over=kept.get("over")))
    same = [ledger for ledger in known if ledger is not None and ledger.epoch == epoch]
    if not same:
        # The task was cleared. Its pods go on being numbered: by that number a supervisor knows which one is meant.
        made = max((ledger.pods for ledger in known if ledger is not None), default=0)
        return Ledger(epoch, pods=made, judged=made)
    counts = {key: max(getattr(ledger, key) for ledger in same) for key in COUNTS}
    nodes = tuple(sorted({node for ledger in same for node in ledger.failed_nodes}))
    newest = max(same, key=lambda ledger: (ledger.judged, ledger.last is not None))
    over = next((ledger.over for ledger in same if ledger.over is not None), None)
    return Ledger(**counts, failed_nodes=nodes, last=newest.last, over=over)


def run_start(context: Mapping[str, Any]) -> str:
    """Tells a run from an earlier one of the same id, which somebody deleted."""
    return str(getattr(context.get("dag_run"), "start_date", None) or "")


def number(pod: Mapping[str, Any]) -> int:
    """The how manieth pod of its task it is; 0 where nobody says."""
    text = str(((pod.get("metadata") or {}).get("annotations") or {}).get(f"{PREFIX}pods", ""))
    return int(text) if text.isdecimal() else 0


def save(context: Mapping[str, Any], ledger: Ledger) -> None:
    """Keep the counts where the next try finds them."""
    store = context.get("task_state_store")
    if store is not None:
        store.set(KEY, ledger.document())


def _from_annotations(pod: Mapping[str, Any]) -> Ledger | None:
    found = (pod.get("metadata") or {}).get("annotations") or {}
    values = {key: found.get(f"{PREFIX}{key.replace('_', '-')}", "") for key in COUNTS}
    if not values["epoch"].isdecimal():
        return None
    nodes = tuple(filter(None, found.get(NODES, "").split(",")))
    counts = {key: int(value) if value.isdecimal() else 0 for key, value in values.items()}
    return Ledger(**counts, failed_nodes=nodes, last=_read(found.get(LAST)), over=_read(found.get(OVER)))


def _read(text: str | None) -> Mapping[str, Any] | None:
    """What a pod's annotation says of the pod before; nothing when somebody spoiled it."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
