"""References of a pipeline as Airflow has them, sub-pipelines and facts of the run included.

A scope is one pipeline where it stands: the root, or a sub-pipeline inside a task group with its parameters bound.
Whatever a reference means, it ends as a literal or as one of the small calls of `gpuflow.airflow`; facts of the run are
also written as Jinja, for stock operators.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpuflow.core.date_format import TIMESTAMP, pieces
from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.graph.order import order
from gpuflow.kubernetes.expansion import escape
from gpuflow.plan import Plan, PlannedStep
from gpuflow.spec import expression, references
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.schedule import Schedule
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref, RunRef, Text, parts_of
from gpuflow.targets.airflow.python_source import Call, Infix, Invert, Method, with_parts

ZONE = "ZoneInfo"
"""The one name that a template needs and Airflow does not have."""
SCHEDULED_TIME = (
    'dag_run.run_after if dag_run.run_type in ("scheduled", "backfill") else dag_run.logical_date or dag_run.run_after'
)
"""As `gpuflow.airflow.references.scheduled_time`: the logical date of a data interval is its start."""


def run_fact(ref: RunRef, schedule: Schedule | None) -> Call:
    """The call that gives a fact of the run. The time zone of a date is the schedule's unless the reference has one."""
    if not ref.is_date:
        return Call({"id": "run_id", "name": "dag_run_id", "attempt": "attempt"}[ref.field])
    zone = ref.timezone or (schedule.timezone if schedule is not None else "UTC")
    if ref.field != "interval_start":
        # The end of the interval is the logical date.
        shown = {} if zone == "UTC" else {"timezone": zone}
        return Call("logical_date", () if ref.layout == TIMESTAMP else (ref.layout,), shown)
    assert schedule is not None  # refused before
    named = {} if ref.layout == TIMESTAMP else {"format": ref.layout}
    named |= {} if zone == schedule.timezone else {"timezone": zone}
    return Call("interval_start", (schedule.cron, schedule.timezone), named)


def jinja_fact(call: Call) -> str | None:
    """The expression of a fact of the run in a template of Airflow; None: the call is none."""
    if call.name == "dag_run_id":
        return "dag_run.run_id"
    if call.name == "attempt":
        return "ti.try_number | string"  # the stock operator makes one pod in each try
    if call.name != "logical_date":
        return None
    zone = json.dumps(call.named.get("timezone", "UTC"))
    moment = f"({SCHEDULED_TIME}).astimezone({ZONE}({zone}))"
    return " ~ ".join(_jinja_parts(moment, call.args[0] if call.args else TIMESTAMP))


def _jinja_parts(moment: str, form: str) -> list[str]:
    if form == TIMESTAMP:
        return [f'{moment}.isoformat(timespec="seconds")']
    parts, text = [], ""
    for piece in [*pieces(form), "%:z"]:
        if piece != "%:z":
            text += piece
            continue
        if text:
            parts.append(f"{moment}.strftime({json.dumps(text, ensure_ascii=False)})")
        # Python's strftime knows this one from 3.12 on.
        parts.append(f"{moment}.isoformat()[-6:]")
        text = ""
    return parts[:-1]


MARK = "\0"
"""Brackets a reference's number inside a pod's text. No text of a pipeline can hold it."""


@dataclass(frozen=True)
class Scope:
    """A pipeline, the task group it stands in, and the values its parameters have there.

    A sub-pipeline that is run once per item is flattened: each of its steps is mapped over the items around it and
    its own. `keys` names the items around it, `lister` the task that lists them.
    """

    plan: Plan
    parent: PlannedStep | None = None
    """The step whose sub-pipeline it is; None for the whole pipeline."""
    bound: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    lister: str | None = None
    outer: Scope | None = None
    """The scope around it, when this is a sub-pipeline."""
    refused: list[Finding] | None = field(default=None, compare=False)
    """Gets what references cannot be, instead of an error at the first; shared with the scopes inside."""

    @cached_property
    def pipeline(self) -> Pipeline:
        inner = self.plan.pipeline if self.parent is None else self.parent.step.pipeline
        assert inner is not None
        return inner

    @cached_property
    def group(self) -> tuple[str, ...]:
        """The task groups around its steps, the outermost first."""
        return () if self.parent is None else tuple(self.parent.name.split("."))

    @cached_property
    def steps(self) -> Mapping[str, PlannedStep]:
        """Its own steps by the names that they have in it, exit steps too."""
        own = self.plan.steps_by_parent.get("" if self.parent is None else self.parent.name, ())
        return {each.own_name: each for each in own}

    @property
    def root(self) -> Pipeline:
        """The whole pipeline."""
        return self.plan.pipeline

    @property
    def within(self) -> str:
        """Where the pipeline stands in the one around it, which keeps the state of its steps apart."""
        return "/".join(self.group)

    @property
    def asset_home(self) -> str:
        """What the assets of its steps begin with: the whole pipeline, and where this one stands in it."""
        return "/".join((self.root.name, *self.group))

    def copies(self) -> list[tuple[str, Any]]:
        """What else keeps the state of a step apart, by name: the items that the pipeline is run for."""
        return [(key, Call("item", (key,))) for key in self.keys]

    def task_id(self, step: str) -> str:
        """A step's full task id."""
        return ".".join((*self.group, step))

    def scope_of(self, name: str) -> Scope:
        """The scope of the sub-pipeline that step `name` is."""
        planned = self.steps[name]
        step = planned.step
        assert step.pipeline is not None
        bound = {
            key: self.node(value, name) if isinstance(value, ParamRef | OutputRef | ItemRef) else value
            for key, value in step.params.items()
        }
        for key, param in step.pipeline.params.items():
            bound.setdefault(key, param.default)
        keys = (*self.keys, *(self.item_key(name, key) for key in step.for_each or ()))
        lister = self.list_id(name) if self.opens_list(name) else self.lister
        return Scope(self.plan, planned, bound, keys, lister, self, self.refused)

    def opens_list(self, name: str) -> bool:
        """Whether the sub-pipeline that step `name` is runs for items of its own, or for some of those around it."""
        return self.pipeline.steps[name].pipeline is not None and self.has_own_list(name)

    def item_key(self, name: str, key: str) -> str:
        """What an item is called in the task's list; items of a sub-pipeline carry its name, so that none collide."""
        return f"{self.task_id(name)}.{key}" if self.pipeline.steps[name].pipeline is not None else key

    def list_id(self, name: str) -> str:
        """The task that lists the items of a step."""
        if not self.has_own_list(name) and self.lister is not None:
            return self.lister
        used = {*self.pipeline.steps, *self.pipeline.exit}
        wishes = (f"{name}-items", f"{name}-item-list", f"list-{name}", f"list-{name}-items")
        return self.task_id(next(wish for wish in wishes if wish not in used))

    def has_own_list(self, name: str) -> bool:
        """Whether a step's items must be listed in the run, by a task of their own."""
        step = self.pipeline.steps[name]
        if not self.keys:
            return bool(step.for_each) and (step.pipeline is not None or step.when is not None or is_dynamic(step))
        return bool(step.for_each) or self.may_drop_items(name)

    @cached_property
    def followers(self) -> Mapping[str, Sequence[str]]:
        """For each step but exit steps, the steps that wait for it."""
        return references.edges(
            self.pipeline, {name: each.own_needs for name, each in self.steps.items() if each.section == "steps"}
        )

    def may_drop_items(self, name: str) -> bool:
        """Whether a step inside a flattened sub-pipeline may leave out some of the items around it."""
        return name in self._steps_that_drop

    @cached_property
    def _steps_that_drop(self) -> frozenset[str]:
        found: set[str] = set()
        for name in order(self.followers):
            step = self.steps[name].step
            drops = step.if_skipped != "run" and not found.isdisjoint(self.steps[name].own_needs)
            if step.when is not None or is_dynamic(step) or drops:
                found.add(name)
        return frozenset(found)

    def node(self, ref: Ref, name: str | None = None, *, reader: tuple[str, ...] | None = None) -> Any:
        """What a reference is: a call, or a plain value where a sub-pipeline's parameter was given one.

        `name` is the step whose items it may be; `reader` the items that whoever reads it has.
        """
        if isinstance(ref, ParamRef):
            if ref.name in self.bound:
                return self.bound[ref.name]
            kind = self.pipeline.params[ref.name].type
            return Call("param", (ref.name, kind) if kind == "float" else (ref.name,))
        if isinstance(ref, OutputRef):
            return self._output(ref, self.keys if reader is None else reader)
        if isinstance(ref, ItemRef):
            return Call("item", (ref.name if name is None else self.item_key(name, ref.name),))
        return run_fact(ref, self.root.schedule)

    def _output(self, ref: OutputRef, reader: tuple[str, ...]) -> Any:
        step = self.pipeline.steps[ref.step]
        if step.pipeline is not None:
            return self.scope_of(ref.step).node(step.pipeline.outputs[ref.name], reader=reader)
        declared, outside = step.outputs[ref.name], len(self.keys) > len(reader)
        several = bool(step.for_each) or outside
        where = self.pipeline.where("steps", ref.step, "outputs", ref.name)
        if step.for_each and outside:
            text = f'airflow does not support a list of lists: "{ref.step}.{ref.name}" is one per item of a fan-out'
            hint = "let an inner step collect them, or pass the folder that contains them all"
            finding = Finding("GF301", text, where, hint)
            if self.refused is None:
                raise GpuflowError(finding)
            self.refused.append(finding)
        # An artifact's value is where the attempt that succeeded has kept it.
        kind = () if declared.type == "string" or declared.is_artifact else (declared.type,)
        named: dict[str, Any] = {} if declared.default is None else {"default": declared.default}
        if several:
            named["each"] = True
        if reader:
            named |= {"items": self.list_id(ref.step), "same": list(reader)}
        return Call("output", (self.task_id(ref.step), ref.name, *kind), named)

    def text(self, text: Text) -> Any:
        """A text outside a pod: a literal, one call, or a join."""
        return join_parts([part if isinstance(part, str) else self.node(part) for part in parts_of(text)])

    def condition(self, tree: expression.Expression, name: str | None = None) -> Any:
        """A condition with Python's operators; `&`, `|` and `~` because it is only known when the task runs.

        What is known already, such as a sub-pipeline's parameter that was given a value, is worked out here.
        """
        if isinstance(tree, expression.Literal):
            return tree.value
        if isinstance(tree, expression.Reference):
            return self.node(tree.ref, name)
        if isinstance(tree, expression.Not):
            term = self.condition(tree.term, name)
            return not term if is_known(term) else Invert(term)
        if isinstance(tree, expression.Member):
            return self._member(tree, name)
        if isinstance(tree, expression.Compare):
            left, right = self.condition(tree.left, name), self.condition(tree.right, name)
            if not is_known(left) or not is_known(right):
                return Infix(tree.operator, left, right)
            known = expression.Compare(tree.operator, expression.Literal(left), expression.Literal(right))
            return expression.evaluate(known, lambda ref: None)
        return joined_conditions(tree.operator, [self.condition(term, name) for term in tree.terms])

    def _member(self, tree: expression.Member, name: str | None) -> Any:
        value, options = self.condition(tree.value, name), [option.value for option in tree.options]
        if is_known(value):
            return (value in options) != tree.negated
        found = Method(value, "is_in", (options,))
        return Invert(found) if tree.negated else found


def is_dynamic(step: Step) -> bool:
    """Whether the items of a fan-out are only known in the run."""
    return any(isinstance(source, ParamRef | OutputRef) for source in (step.for_each or {}).values())


def is_known(node: Any) -> bool:
    """Whether a value is plain data; anything else is only known when the task runs."""
    return node is None or isinstance(node, str | int | float | list | dict)


def joined_conditions(operator: str, terms: list[Any]) -> Any:
    """Conditions joined by `and` or `or`; the known ones decide or drop out."""
    decisive = operator == "or"
    left_open = [term for term in terms if not is_known(term)]
    if any(term is decisive for term in terms if is_known(term)):
        return decisive
    if not left_open:
        return not decisive
    whole = left_open[0]
    for term in left_open[1:]:
        whole = Infix("|" if decisive else "&", whole, term)
    return whole


class Marks:
    """The spelling of references inside a pod: numbered marks, replaced by calls when the pod is done."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._nodes: list[Any] = []

    def literal(self, text: str) -> str:
        return text

    def reference(self, ref: Ref) -> str:
        node = self._scope.node(ref)
        if is_known(node):
            return escape(text_of(node), glued=True)
        self._nodes.append(node)
        return f"{MARK}{len(self._nodes) - 1}{MARK}"

    def replace(self, tree: Any) -> Any:
        """A pod with calls where the marks are."""
        if isinstance(tree, str) and MARK in tree:
            pieces = tree.split(MARK)
            return join_parts([self._nodes[int(piece)] if index % 2 else piece for index, piece in enumerate(pieces)])
        return with_parts(tree, self.replace)


def join_parts(parts: list[Any]) -> Any:
    """Parts as one value: neighboring literals merged, a single part as it is, else a join."""
    merged: list[Any] = []
    for part in parts:
        flat = part.args if isinstance(part, Call) and part.name == "join" else (part,)
        for piece in flat:
            piece = text_of(piece) if is_known(piece) else piece
            if isinstance(piece, str) and merged and isinstance(merged[-1], str):
                merged[-1] += piece
            elif not isinstance(piece, str) or piece:
                merged.append(piece)
    if len(merged) == 1:
        return merged[0]
    return Call("join", tuple(merged)) if merged else ""
