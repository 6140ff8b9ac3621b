"""How many pods may be there at once: of a run, of a sub-pipeline, or of each item of a fan-out.

Airflow's own limits do not count tasks that wait in a trigger, so the operator counts pods. It looks before it makes
one, and again after: of two that took the last place at once the later goes again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuflow.airflow.references import Context, short_run_id

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

    def question(self, context: Context) -> dict[str, Any]:
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
    return len(_places(question, pods)) >= question["most"] and question["mine"] not in _places(question, pods)


def is_beyond(question: Mapping[str, Any], name: str, pods: Iterable[tuple[str, Mapping[str, str]]]) -> bool:
    """Whether a pod that is there already has no place."""
    places = _places(question, pods)
    return (question["mine"] or name) not in places[: question["most"]]


def _places(question: Mapping[str, Any], pods: Iterable[tuple[str, Mapping[str, str]]]) -> list[str]:
    by = question["by"]
    return list(dict.fromkeys(labels.get(by, name) if by else name for name, labels in pods))


def _values(context: Context, keys: Sequence[str]) -> list[Any]:
    item = getattr(context["task"], "item", None) or {}
    return [item.get(key) for key in keys]


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
