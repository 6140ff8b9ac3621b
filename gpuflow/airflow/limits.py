"""Whether a task runs, until when, and beside how many other pods.

A task runs when its condition holds, and an exit step for failures when something failed. A task group of Airflow has
no time limit, and that of a run ends the exit steps too, so tasks keep the deadlines around them themselves. Airflow's
own limits do not count tasks that wait in a trigger, so the operator counts pods: of a run, of a sub-pipeline, or of
each item of a fan-out. It looks before it makes one, and again after: of two that took the last place at once the later
goes again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException

from gpuflow.airflow.references import Context, Value, call_source, run_began, short_run_id


def skip_unless_due(task: Any, context: Context) -> None:
    """Skip a task whose condition is false, or that waits for a failure which did not happen."""
    if task.when is not None:
        due = task.when.value(context) if isinstance(task.when, Value) else bool(task.when)
        if not due:
            raise AirflowSkipException(f"not due: {task.when!r} is false")
    if getattr(task, "only_after_failure", False) and not _anything_failed(task, context):
        raise AirflowSkipException("nothing failed before it")


def _anything_failed(task: Any, context: Context) -> bool:
    ti = context["ti"]
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=sorted(task.upstream_task_ids), run_ids=[ti.run_id])
    return any(state in ("failed", "upstream_failed") for found in states.values() for state in found.values())


class deadline:
    """The time limit of the run, or of a group in it.

        deadline(run=timedelta(hours=8))
        deadline(group="release", limit=timedelta(hours=1), since=output("release.begin", "return_value", "float"))

    :param group: the sub-pipeline; empty for the run.
    :param limit: how long the group may take.
    :param since: when the group began, in seconds since 1970.
    :param run: how long the run may take.
    """

    def __init__(
        self,
        group: str = "",
        limit: timedelta | None = None,
        *,
        since: Value | None = None,
        run: timedelta | None = None,
    ) -> None:
        whole = run if limit is None else limit
        if whole is None or (run is not None and (group or limit is not None)) or (group and since is None):
            raise TypeError("write deadline(run=timedelta(…)), or deadline(group=…, limit=timedelta(…), since=…)")
        self.group, self.limit, self.since = group, whole, run_began() if since is None else since

    def sentence(self) -> str:
        """Why a task had to end."""
        if not self.group:
            return f"the run took longer than its deadline of {self.limit}"
        return (
            f"the sub-pipeline {self.group} took longer than its time limit of {self.limit}; "
            "clear the whole group to restart its time"
        )

    def __repr__(self) -> str:
        if not self.group:
            return call_source("deadline", run=self.limit)
        return call_source("deadline", group=self.group, limit=self.limit, since=self.since)


def first_deadline(deadlines: Sequence[deadline], context: Context) -> tuple[float, deadline] | None:
    """The time limit that is over first, and when."""
    ends = ((float(one.since.value(context)) + one.limit.total_seconds(), one) for one in deadlines)
    return min(ends, key=lambda found: found[0], default=None)


ACTIVE = "status.phase!=Succeeded,status.phase!=Failed"


class at_most:
    """At most so many pods of a run, or of one `group` of it.

    `per`: for each combination of these items. `items`: not pods but items, each with however many pods it has.

    :param most: how many.
    :param group: the sub-pipeline or step it counts in; the whole run unless given.
    :param per: a limit for each combination of these items.
    :param items: count items, each with however many pods it has, instead of pods.
    """

    def __init__(self, most: int, group: str = "", *, per: Sequence[str] = (), items: Sequence[str] = ()) -> None:
        self.most, self.group, self.per, self.items = most, group, per, items

    def labels(self, context: Context) -> dict[str, str]:
        """What a pod carries so that it is counted."""
        labels = {self.label: _digest(short_run_id(context), self.group, _values(context, self.per))}
        if self.items:
            labels[self.item_label] = _digest(_values(context, self.items))
        return labels

    @property
    def label(self) -> str:
        return f"gpuflow.dev/limit-{_digest(self.group, list(self.per), list(self.items))[:8]}"

    @property
    def item_label(self) -> str:
        return f"{self.label}-item"

    def query(self, context: Context) -> dict[str, Any]:
        """What a trigger needs to count."""
        labels = self.labels(context)
        return {
            "selector": f"{self.label}={labels[self.label]}",
            "most": self.most,
            "by": self.item_label if self.items else None,
            "mine": labels.get(self.item_label),
            "words": f"{self.most} {'items' if self.items else 'pods'} of {self.group or 'this run'} at once",
        }

    def __repr__(self) -> str:
        words = [str(self.most), *([repr(self.group)] if self.group else [])]
        words += [f"{key}={list(value)!r}" for key, value in (("per", self.per), ("items", self.items)) if value]
        return f"at_most({', '.join(words)})"


def is_full(question: Mapping[str, Any], pods: Iterable[tuple[str, Mapping[str, str]]]) -> bool:
    """Whether one more would be too many. `pods`: names and labels of those that are there, oldest first."""
    places = _occupied_slots(question, pods)
    return len(places) >= question["most"] and question["mine"] not in places


def is_beyond(question: Mapping[str, Any], name: str, pods: Iterable[tuple[str, Mapping[str, str]]]) -> bool:
    """Whether a pod that is there already has no place."""
    places = _occupied_slots(question, pods)
    return (question["mine"] or name) not in places[: question["most"]]


def _occupied_slots(question: Mapping[str, Any], pods: Iterable[tuple[str, Mapping[str, str]]]) -> list[str]:
    by = question["by"]
    return list(dict.fromkeys(labels.get(by, name) if by else name for name, labels in pods))


def _values(context: Context, keys: Sequence[str]) -> list[Any]:
    item = getattr(context["task"], "item", None) or {}
    return [item.get(key) for key in keys]


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
