"""Values that are only known when a task runs: parameters, outputs of earlier tasks, the fan-out item, the run.

They stand in a `Pod` where the text belongs, and in `when=` as conditions. Nothing in them is a template: text around
them reaches the container as it is.

    Pod(spec={"containers": [{"command": ["train", "--lr", param("lr"), join("--out=s3://models/", run_id())], …}]})
    when=(output("evaluate", "accuracy", "float") > 0.9) & param("deploy")

A task knows of its run: its name, its attempt, and the moment it is for. The logical date is the scheduled time,
whatever the DAG's timetable and Airflow's settings are. A run that somebody starts has the date it is given; without
one, as with a run that new data starts, it has the time it was made.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from gpuflow.airflow.run_names import run_name
from gpuflow.core.cron import previous_time
from gpuflow.core.date_format import TIMESTAMP, format_date

Context = Mapping[str, Any]
MISSING: Any = object()


def _comparison(sign: str) -> Callable[[Value, Any], Condition]:
    return lambda left, right: Condition(sign, left, right)


class Value:
    """Something a task looks up when it runs. Comparing it makes a condition."""

    __hash__ = object.__hash__

    def value(self, context: Context) -> Any:
        """What it is in this run."""
        raise NotImplementedError

    def text(self, context: Context) -> str:
        """The value as a container receives it: text as it is, everything else as compact JSON."""
        return as_text(self.value(context))

    def serialize(self) -> str:
        """How Airflow stores it: exactly as it is written."""
        return repr(self)

    def __repr__(self) -> str:
        return call_source(type(self).__name__, *vars(self).values())

    __gt__, __ge__ = _comparison(">"), _comparison(">=")
    __lt__, __le__ = _comparison("<"), _comparison("<=")
    __eq__, __ne__ = _comparison("=="), _comparison("!=")  # type: ignore[assignment]  # conditions, no comparisons
    __and__, __or__ = _comparison("&"), _comparison("|")

    def __invert__(self) -> Condition:
        return Condition("~", self)

    def is_in(self, options: list[Any]) -> Condition:
        """True when the value is one of these."""
        return Condition("in", self, options)

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} is only known when a task runs; use &, | and ~ instead of and, or and not")


class Condition(Value):
    """A comparison, or several joined by `&`, `|` and `~`."""

    def __init__(self, sign: str, *terms: Any) -> None:
        self.sign, self.terms = sign, terms

    def value(self, context: Context) -> bool:
        first = _value_of(self.terms[0], context)
        if self.sign == "~":
            return not first
        if self.sign == "&":
            return bool(first and _value_of(self.terms[1], context))
        if self.sign == "|":
            return bool(first or _value_of(self.terms[1], context))
        return bool(COMPARISONS[self.sign](first, _value_of(self.terms[1], context)))

    def __repr__(self) -> str:
        if self.sign == "~":
            return f"~{_parenthesized_repr(self.terms[0])}"
        if self.sign == "in":
            return f"{_parenthesized_repr(self.terms[0])}.is_in({self.terms[1]!r})"
        return f"{_parenthesized_repr(self.terms[0])} {self.sign} {_parenthesized_repr(self.terms[1])}"


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    "in": lambda value, options: value in options,
}


def _value_of(term: Any, context: Context) -> Any:
    return term.value(context) if isinstance(term, Value) else term


def _parenthesized_repr(term: Any) -> str:
    return f"({term!r})" if isinstance(term, Condition) and term.sign not in ("~", "in") else repr(term)


@dataclass(eq=False, repr=False)
class param(Value):
    """The value of a DAG parameter.

    :param name: the parameter.
    :param kind: its type: string, int, float, bool or json; as it is, unless given.
    """

    name: str
    kind: str | None = None

    def value(self, context: Context) -> Any:
        return as_type(context["params"][self.name], self.kind)


@dataclass(eq=False, repr=False)
class output(Value):
    """An output of an earlier task; with `each`, the list of a mapped task's outputs.

    In a flattened sub-pipeline only those count whose items are the `same` as the reader's; `items` is the task that
    listed them.

    :param task_id: the task that wrote it.
    :param name: the output.
    :param kind: its type, as for `param`.
    :param default: the value where the task wrote none, for example because it was skipped; without it the reader
        fails.
    :param each: the list of the outputs of a mapped task's copies.
    :param items: the task that listed the items, in a flattened sub-pipeline.
    :param same: the items that writer and reader must share there.
    """

    task_id: str
    name: str
    kind: str | None = None
    _: KW_ONLY
    default: Any = MISSING
    each: bool = False
    items: str | None = None
    same: Sequence[str] = ()

    def value(self, context: Context) -> Any:
        found = [one for one in self._pulled_values(context) if one is not None]
        if self.each:
            return [as_type(one, self.kind) for one in found]
        if not found:
            if self.default is MISSING:
                raise LookupError(f'task "{self.task_id}" wrote no output "{self.name}"')
            return self.default
        return as_type(found[0], self.kind)

    def _pulled_values(self, context: Context) -> list[Any]:
        # A list of task ids always gives a list back; a single id gives a bare value when there is one.
        pull = context["ti"].xcom_pull
        if not self.same:
            return list(pull(task_ids=[self.task_id], key=self.name) or ())
        mine = context["task"].item
        listed = pull(task_ids=[self.items], key="return_value")[0] or ()
        places = [index for index, one in enumerate(listed) if all(one[key] == mine[key] for key in self.same)]
        return list(pull(task_ids=[self.task_id], key=self.name, map_indexes=places) or ()) if places else []

    def __repr__(self) -> str:
        named: dict[str, Any] = {} if self.default is MISSING else {"default": self.default}
        if self.each:
            named["each"] = True
        if self.same:
            named |= {"items": self.items, "same": list(self.same)}
        return call_source("output", self.task_id, self.name, self.kind, **named)


@dataclass(eq=False, repr=False)
class item(Value):
    """The current item of a mapped task.

    :param name: which part of the item: the key of `for_each`.
    """

    name: str

    def value(self, context: Context) -> Any:
        return context["task"].item[self.name]


class run_id(Value):
    """A short name of the DAG run, the same for all its tasks and tries; safe in paths and in Kubernetes names."""

    def value(self, context: Context) -> str:
        return short_run_id(context)


@dataclass(eq=False, repr=False)
class began(Value):
    """Whether a sub-pipeline runs at all: whether the task that begins it, or lists its items, was not skipped.

    :param task_id: the task that begins the sub-pipeline, or lists its items.
    """

    task_id: str

    def value(self, context: Context) -> bool:
        found = context["ti"].xcom_pull(task_ids=[self.task_id], key="return_value") or ()
        return any(one is not None for one in found)


class run_began(Value):
    """When the run began, in seconds since 1970."""

    def value(self, context: Context) -> float:
        return float(context["dag_run"].start_date.timestamp())


@dataclass(eq=False, repr=False)
class given(Value):
    """An expression of Airflow's own, such as the value that another task returns."""

    expression: Any

    def value(self, context: Context) -> Any:
        return self.expression.resolve(context)

    def iter_references(self) -> Iterator[tuple[Any, str]]:
        """The tasks it comes from."""
        yield from self.expression.iter_references()

    def __repr__(self) -> str:
        return repr(self.expression)


class copy(Value):
    """Which copy of a mapped task or task group this is: its number, and a digest of the values it was given."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def value(self, context: Context) -> str:
        known = [_value_of(value, context) for value in self.values]
        digest = hashlib.sha256(json.dumps(known, sort_keys=True, default=repr).encode()).hexdigest()
        return f"{context['ti'].map_index}-{digest[:16]}" if known else str(context["ti"].map_index)

    def iter_references(self) -> Iterator[tuple[Any, str]]:
        """The tasks its values come from."""
        for value in self.values:
            if isinstance(value, given):
                yield from value.iter_references()

    def __repr__(self) -> str:
        return call_source("copy", *self.values)


@dataclass(eq=False, repr=False)
class claim(Value):
    """The name of a volume claim that is made anew for each run.

    :param name: the claim's name in the pipeline.
    """

    name: str

    def value(self, context: Context) -> str:
        return f"{self.name}-{short_run_id(context)}"


class join(Value):
    """Texts and values, concatenated.

    :param parts: texts and values, in order.
    """

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def value(self, context: Context) -> str:
        return "".join(part if isinstance(part, str) else text_of(part, context) for part in self.parts)

    def __repr__(self) -> str:
        return call_source("join", *self.parts)


def short_run_id(context: Context) -> str:
    """The run's name, which no run of another Airflow has."""
    dag_run = context["dag_run"]
    return _run_name(dag_run.dag_id, dag_run.run_id)


@lru_cache(maxsize=16)
def _run_name(dag_id: str, run_id: str) -> str:
    # One question to the API server per task, not one per reference.
    return run_name(dag_id, run_id)


def as_type(value: Any, kind: str | None) -> Any:
    """A value from a trigger form or an XCom as the declared type; JSON arrives as what it stands for."""
    if kind in ("int", "float", "bool") and isinstance(value, str):
        value = json.loads(value)
    return float(value) if kind == "float" else value


def as_text(value: Any) -> str:
    """A value as a container receives it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def text_of(part: Any, context: Context) -> str:
    """A reference's text; Airflow's own expressions (an XComArg) resolve themselves."""
    return part.text(context) if isinstance(part, Value) else as_text(part.resolve(context))


def resolve_references(tree: Any, context: Context, escape: Callable[[str], str], *, expanded: bool = False) -> Any:
    """A pod with every reference filled in. `expanded`: Kubernetes expands `$(NAME)` here, so values are made safe."""
    if isinstance(tree, dict):
        return {
            key: resolve_references(part, context, escape, expanded=expanded or key in ("command", "args", "env"))
            for key, part in tree.items()
        }
    if isinstance(tree, list | tuple):
        return [resolve_references(part, context, escape, expanded=expanded) for part in tree]
    if isinstance(tree, join):
        parts = [part if isinstance(part, str) else text_of(part, context) for part in tree.parts]
        safe = [
            escape(text) if expanded and not isinstance(part, str) else text
            for part, text in zip(tree.parts, parts, strict=True)
        ]
        return "".join(safe)
    if isinstance(tree, Value) or hasattr(tree, "resolve"):
        text = text_of(tree, context)
        return escape(text) if expanded else text
    return tree


def references(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        for part in tree.values():
            yield from references(part)
    elif isinstance(tree, list | tuple):
        for part in tree:
            yield from references(part)
    elif isinstance(tree, join):
        yield from (part for part in tree.parts if not isinstance(part, str))
    elif isinstance(tree, Value) or hasattr(tree, "resolve"):
        yield tree


def combinations(sources: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of the items of several lists, the last one changing fastest.

    :param sources: a list of items by name.
    """
    rows: list[dict[str, Any]] = [{}]
    for name, source in sources.items():
        rows = [{**row, name: one} for row in rows for one in source]
    return rows


def call_source(name: str, *values: Any, **named: Any) -> str:
    """A call as a DAG file has it."""
    words = [repr(value) for value in values if value is not None]
    return f"{name}({', '.join([*words, *(f'{key}={value!r}' for key, value in named.items())])})"


ATTEMPT = "gpuflow_attempt"
"""Where the context of a pod that is about to be made holds its number."""
SCHEDULED_RUN_TYPES = ("scheduled", "backfill")
"""The runs that a timetable has made. Its data intervals may begin long before; the run comes at the scheduled time."""


class dag_run_id(Value):
    """The run's id in Airflow, for example `scheduled__2026-11-14T00:00:00+00:00`."""

    def value(self, context: Context) -> str:
        return str(context["dag_run"].run_id)


class attempt(Value):
    """Which pod of the task it is, from 1: after a failure, an interruption or Clear comes one more."""

    def value(self, context: Context) -> str:
        # Airflow shows the pod before it is known which one comes next.
        return str(context.get(ATTEMPT, "(attempt)"))


class logical_date(Value):
    """The scheduled time of the run, as text in a time zone.

    :param format: as in `strftime`; ISO 8601 with the offset unless given.
    :param timezone: the time zone it is shown in.
    """

    def __init__(self, format: str = TIMESTAMP, *, timezone: str = "UTC") -> None:
        self.format, self.timezone = format, timezone

    def value(self, context: Context) -> str:
        return format_date(scheduled_time(context).astimezone(ZoneInfo(self.timezone)), self.format)

    def __repr__(self) -> str:
        shown = {} if self.timezone == "UTC" else {"timezone": self.timezone}
        return call_source("logical_date", *(() if self.format == TIMESTAMP else (self.format,)), **shown)


class interval_start(Value):
    """The scheduled time before the run's own, by a cron expression in its time zone; shown in `timezone`, if given.

    :param cron: the schedule, as a cron expression.
    :param zone: the time zone of the schedule.
    :param format: as in `strftime`; ISO 8601 with the offset unless given.
    :param timezone: the time zone it is shown in; the schedule's unless given.
    """

    def __init__(self, cron: str, zone: str = "UTC", *, format: str = TIMESTAMP, timezone: str | None = None) -> None:
        self.cron, self.zone, self.format, self.timezone = cron, zone, format, timezone or zone

    def value(self, context: Context) -> str:
        if (before := previous_time(self.cron, self.zone, scheduled_time(context))) is None:
            raise LookupError(f'the schedule "{self.cron}" has no time before {scheduled_time(context)}')
        return format_date(before.astimezone(ZoneInfo(self.timezone)), self.format)

    def __repr__(self) -> str:
        named = {} if self.format == TIMESTAMP else {"format": self.format}
        shown = {} if self.timezone == self.zone else {"timezone": self.timezone}
        return call_source("interval_start", self.cron, self.zone, **named, **shown)


def asks_attempt(tree: Any) -> bool:
    """Whether a value, or a pod, holds the attempt."""
    return any(isinstance(one, attempt) for one in references(tree))


def scheduled_time(context: Context) -> datetime:
    """The moment a run is for."""
    run = context["dag_run"]
    planned = getattr(run.run_type, "value", run.run_type) in SCHEDULED_RUN_TYPES
    moment: datetime = run.run_after if planned else run.logical_date or run.run_after
    return moment
