"""How often a task has failed and been interrupted, kept over tries, re-created pods and lost workers.

Airflow 3.3 keeps it in its task state; every pod also carries the counts it was started with, which is what an older
Airflow, or a person with kubectl, can read. Clearing a task starts a new count: Airflow then raises `max_tries`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

PREFIX = "gpuflow.dev/"
KEY = "gpuflow_ledger"


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

    def document(self) -> dict[str, int]:
        """As a trigger carries it."""
        return asdict(self)

    def annotations(self) -> dict[str, str]:
        """As a pod carries it."""
        return {f"{PREFIX}{key.replace('_', '-')}": str(value) for key, value in asdict(self).items()}

    def plus(self, **more: int) -> Ledger:
        """With these counts raised."""
        return replace(self, **{key: getattr(self, key) + count for key, count in more.items()})


def load(
    context: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], carried: Mapping[str, Any] | None = None
) -> Ledger:
    """The counts from Airflow's task state, the pods of this task and its trigger, whichever is further."""
    epoch = int(getattr(context["ti"], "max_tries", 0) or 0)
    known = [_from_annotations(pod) for pod in pods]
    store = context.get("task_state_store")
    for kept in (carried, None if store is None else store.get(KEY)):
        if isinstance(kept, Mapping):
            known.append(Ledger(**{key: int(kept.get(key, 0)) for key in asdict(Ledger(0))}))
    same = [ledger for ledger in known if ledger is not None and ledger.epoch == epoch]
    if not same:
        return Ledger(epoch)
    counts = {key: max(getattr(ledger, key) for ledger in same) for key in asdict(Ledger(0))}
    return Ledger(**counts)


def save(context: Mapping[str, Any], ledger: Ledger) -> None:
    """Keep the counts where the next try finds them."""
    store = context.get("task_state_store")
    if store is not None:
        store.set(KEY, asdict(ledger))


def _from_annotations(pod: Mapping[str, Any]) -> Ledger | None:
    found = (pod.get("metadata") or {}).get("annotations") or {}
    values = {key: found.get(f"{PREFIX}{key.replace('_', '-')}", "") for key in asdict(Ledger(0))}
    if not values["epoch"].isdigit():
        return None
    return Ledger(**{key: int(value) if value.isdigit() else 0 for key, value in values.items()})
