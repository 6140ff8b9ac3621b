"""The attempts of a task: how each ended, how many failed or were interrupted, and how many more there may be.

The counts outlive tries, re-created pods and lost workers. Airflow 3.3 keeps them in its task state; every pod also
carries the counts it was started with, which is what an older Airflow, or a person with kubectl, can read. Clearing a
task starts a new count: Airflow then raises `max_tries`. A task has Airflow's own `retries` for everything, or one
budget for each cause.

The supervisor in the next pod gets what the operator saw of the last one. A supervisor dies with its container when the
kernel kills all of it, and when a node is lost; then it leaves no word, and only the operator knows the cause. It is
told as data. Text that the program wrote is no part of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from gpuflow.kubernetes.expansion import escape
from gpuflow.runtime.gangs.later_attempts import EarlierAttempts

if TYPE_CHECKING:
    from gpuflow.runtime.supervise.evidence import Evidence


@dataclass(frozen=True, slots=True)
class End:
    """The end of one pod, or of one gang."""

    what: str
    """`pod train-3f9c`, as a sentence calls it."""
    outcome: str
    because: str
    interrupted: bool = False
    """Whether it costs an interruption, and no failure."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The outputs of one that succeeded."""
    last_words: str = ""
    """What its program said in the end, as the end of a sentence."""
    told: Mapping[str, Any] | None = None
    """What was seen of it, for the supervisor of the next one."""
    node: str | None = None


PREFIX = "gpuflow.dev/"
KEY = "gpuflow_ledger"
COUNTS = ("epoch", "failures", "interruptions", "out_of_memory", "pods", "judged", "queued_for", "queued_at")
NODES_ANNOTATION = f"{PREFIX}failed-nodes"
LAST_ANNOTATION = f"{PREFIX}last-pod"
OVER_ANNOTATION = f"{PREFIX}over"
LONGEST_MESSAGE = 2000
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

    def before(self) -> EarlierAttempts:
        """The facts by which the next attempt may differ."""
        return EarlierAttempts(self.out_of_memory, self.interruptions, self.failed_nodes)

    @classmethod
    def from_document(cls, kept: Mapping[str, Any]) -> Self:
        counts, nodes = {key: int(kept.get(key, 0)) for key in COUNTS}, tuple(kept.get("failed_nodes", ()))
        return cls(**counts, failed_nodes=nodes, last=kept.get("last"), over=kept.get("over"))

    def document(self) -> dict[str, Any]:
        """As a trigger carries it."""
        return {**asdict(self), "failed_nodes": list(self.failed_nodes)}

    def annotations(self) -> dict[str, str]:
        """As a pod carries it."""
        counts = {f"{PREFIX}{key.replace('_', '-')}": str(getattr(self, key)) for key in COUNTS}
        if self.failed_nodes:
            counts[NODES_ANNOTATION] = ",".join(self.failed_nodes)
        if self.last is not None:
            counts[LAST_ANNOTATION] = json.dumps(self.last, sort_keys=True)
        if self.over is not None and not self.over.get("outputs"):  # which may be larger than annotations may be
            counts[OVER_ANNOTATION] = json.dumps(self.over, sort_keys=True)
        return counts

    def plus(self, **more: int) -> Ledger:
        """With these counts raised."""
        raised: dict[str, Any] = {key: getattr(self, key) + count for key, count in more.items()}
        return replace(self, **raised)

    def with_pod_end(self, last: Mapping[str, Any] | None = None, **more: int) -> Ledger:
        """The ledger with the end of the last pod counted once, and with what was observed of it."""
        return self if self.judged == self.pods else replace(self.plus(**more), judged=self.pods, last=last)

    def with_withdrawn_pod(self) -> Ledger:
        """The ledger after the last pod was withdrawn before its start: its end is not counted, the wait continues."""
        return replace(self.plus(queued_for=1), judged=self.pods)

    def with_failure(self, context: Mapping[str, Any], words: str) -> Ledger:
        """The ledger of a task that failed for good."""
        return replace(self, over={"run": run_start(context), "failed": words[:LONGEST_MESSAGE]})

    def with_success(
        self, context: Mapping[str, Any], outputs: Mapping[str, Any], artifacts: Mapping[str, Any] | None = None
    ) -> Ledger:
        """The ledger of a task whose last pod succeeded, with its outputs."""
        left = {"outputs": dict(outputs), **({"artifacts": dict(artifacts)} if artifacts else {})}
        return replace(self, judged=self.pods, over={"run": run_start(context), **left})

    def recorded_end(self, context: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """How the task ended in an earlier try that could not report it. Earlier runs with the same id do not count."""
        return self.over if self.over is not None and self.over.get("run") == run_start(context) else None

    def with_queue_start(self, now: float) -> Ledger:
        """The ledger with the start of the wait for the next pod, unless it is recorded already."""
        return self if self.queued_for > self.pods else replace(self, queued_for=self.pods + 1, queued_at=int(now))

    def without_node(self, node: str | None) -> Ledger:
        """The ledger with a node that must not be used again."""
        return self if node is None else replace(self, failed_nodes=tuple(sorted({*self.failed_nodes, node})))


def load_ledger(
    context: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], carried: Mapping[str, Any] | None = None
) -> Ledger:
    """The counts from Airflow's task state, the pods of this task and its trigger, whichever is further."""
    epoch = int(getattr(context["ti"], "max_tries", 0) or 0)
    store = context.get("task_state_store")
    kept = [*map(_document_on, pods), carried, None if store is None else store.get(KEY)]
    known = [Ledger.from_document(each) for each in kept if isinstance(each, Mapping)]
    same = [ledger for ledger in known if ledger.epoch == epoch]
    if not same:
        # The task was cleared. Its pods go on being numbered: by that number a supervisor knows which one is meant.
        made = max((ledger.pods for ledger in known), default=0)
        return Ledger(epoch, pods=made, judged=made)
    counts = {key: max(getattr(ledger, key) for ledger in same) for key in COUNTS}
    nodes = tuple(sorted({node for ledger in same for node in ledger.failed_nodes}))
    newest = max(same, key=lambda ledger: (ledger.judged, ledger.last is not None))
    over = next((ledger.over for ledger in same if ledger.over is not None), None)
    return Ledger(**counts, failed_nodes=nodes, last=newest.last, over=over)


def run_start(context: Mapping[str, Any]) -> str:
    """Distinguishes a run from a deleted earlier run with the same id."""
    return str(getattr(context.get("dag_run"), "start_date", None) or "")


def pod_number(pod: Mapping[str, Any]) -> int:
    """The ordinal number of the pod within its task; 0 if it is not recorded."""
    text = str(((pod.get("metadata") or {}).get("annotations") or {}).get(f"{PREFIX}pods", ""))
    return int(text) if text.isdecimal() else 0


def save_ledger(context: Mapping[str, Any], ledger: Ledger) -> None:
    """Keep the counts where the next try finds them."""
    if (store := context.get("task_state_store")) is not None:
        store.set(KEY, ledger.document())


def _document_on(pod: Mapping[str, Any]) -> dict[str, Any] | None:
    """The ledger that a pod carries; None where it carries none."""
    found = (pod.get("metadata") or {}).get("annotations") or {}
    texts = {key: found.get(f"{PREFIX}{key.replace('_', '-')}", "") for key in COUNTS}
    if not texts["epoch"].isdecimal():
        return None
    nodes = list(filter(None, found.get(NODES_ANNOTATION, "").split(",")))
    told = {"failed_nodes": nodes, "last": _read(found.get(LAST_ANNOTATION)), "over": _read(found.get(OVER_ANNOTATION))}
    return {**{key: text for key, text in texts.items() if text.isdecimal()}, **told}


def _read(text: str | None) -> Mapping[str, Any] | None:
    """What a pod's annotation records about the previous pod; nothing if the annotation is invalid."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


LOST_WORKERS = 2
"""Airflow tries kept in reserve for workers that die. They are nobody's failure, so they cost none of the budget."""

_RETRIES = "there is no retry", "the only retry is", "all {} retries are"
_INTERRUPTIONS = (
    "there is no budget for interruptions",
    "the only interruption of the budget is",
    "all {} interruptions of the budget are",
)


@dataclass(frozen=True, slots=True)
class Budgets:
    """What a task may spend, and how many tries Airflow is asked for."""

    tries: int
    """Airflow's own `retries`."""
    failures: int
    interruptions: int
    any: int | None = None
    """Failures and interruptions together, instead of each apart. Then each of them costs an Airflow try."""

    @classmethod
    def from_arguments(cls, failures: int | None, interruptions: int | None, retries: int | None) -> Self:
        """The budgets that these arguments of an operator ask for.

        `retries` alone means what it means in Airflow: so many more tries, whatever ended the one before. With
        `failures` it cannot cut the step's own budget short: `default_args` of a DAG may bring fewer.
        """
        if retries is not None and failures is None:
            if interruptions is None:
                return cls(retries, retries, retries, any=retries)
            return cls(retries, retries, interruptions)
        failures = failures or 0
        return cls(max(retries or 0, failures + LOST_WORKERS), failures, interruptions or 0)

    def exhausted_text(self, ledger: Ledger, *, interrupted: bool) -> str | None:
        """The end of a sentence when there is nothing left for another pod."""
        if self.any is not None:
            return _used_up(self.any, _RETRIES) if ledger.ends > self.any else None
        if interrupted:
            if ledger.interruptions > self.interruptions:
                return _used_up(self.interruptions, _INTERRUPTIONS)
        elif ledger.failures > self.failures:
            return _used_up(self.failures, _RETRIES)
        return None

    def progress_text(self, ledger: Ledger, *, interrupted: bool) -> str:
        """How much of the budget is used, for the message of a try that is followed by another."""
        if self.any is not None:
            return f"retry {ledger.ends} of {self.any} follows"
        if interrupted:
            return f"interruption {ledger.interruptions} of {self.interruptions}"
        return f"failure {ledger.failures} of {self.failures} that are retried"

    def usage_text(self, ledger: Ledger) -> str:
        """What is used so far, as the end of a sentence."""
        if self.any is not None:
            return f": retry {ledger.ends} of {self.any}" if ledger.ends else ""
        counts = []
        if ledger.failures:
            counts.append(f"{ledger.failures} of {self.failures} failures")
        if ledger.interruptions:
            counts.append(f"{ledger.interruptions} of {self.interruptions} interruptions")
        return f" after {' and '.join(counts)}" if counts else ""


def _used_up(number: int, words: tuple[str, str, str]) -> str:
    none, one, many = words
    return none if number == 0 else f"{one if number == 1 else many.format(number)} used up"


LAST = "GPUFLOW_RUN_LAST"
ENGINE_ATTEMPT = "GPUFLOW_RUN_ENGINE_ATTEMPT"
AFTER_FINAL = "GPUFLOW_RUN_AFTER_FINAL"
LONGEST_TEXT = 500
"""Letters of one text. What Kubernetes says begins with what matters."""
MOST_CONDITIONS = 20


def account_of_pod(number: int, seen: Evidence, pod: Mapping[str, Any] | None) -> dict[str, Any]:
    """The judged evidence of pod `number`, small enough for a variable and an annotation."""
    # The pod's own message, not all that the evidence has: a container's message is the program's text.
    message = ((pod or {}).get("status") or {}).get("message")
    told = {
        "attempt": number,
        "by": "airflow",
        "phase": seen.phase,
        "reason": seen.reason,
        "message": message,
        "exit_code": seen.exit_code,
        "container_reason": seen.container_reason,
        "conditions": [str(condition)[:LONGEST_TEXT] for condition in seen.conditions[:MOST_CONDITIONS]],
        "deleted": seen.deleted,
    }
    cut = {key: value[:LONGEST_TEXT] if isinstance(value, str) else value for key, value in told.items()}
    return {key: value for key, value in cut.items() if value not in (None, [], False)}


def spec_with_last_pod(spec: Mapping[str, Any], ledger: Ledger) -> dict[str, Any]:
    """A pod's spec whose main container knows its number, and what was seen of the pod before."""
    main = spec["containers"][0]
    variables = {ENGINE_ATTEMPT: str(ledger.pods + 1)}
    if ledger.last is not None:
        variables[LAST] = json.dumps(ledger.last, sort_keys=True)
    if ledger.is_new:
        # The supervisor's own count ended the step for good, and then somebody cleared the task: both begin anew.
        variables[AFTER_FINAL] = "renew"
    own = [one for one in main.get("env") or () if one.get("name") not in variables]
    # Kubernetes expands $(NAME) in variables as well.
    more = [{"name": name, "value": escape(value)} for name, value in variables.items()]
    return {**spec, "containers": [{**main, "env": [*own, *more]}, *spec["containers"][1:]]}
