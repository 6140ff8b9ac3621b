"""References, text and facts of a run as Argo writes them: inputs, tags and expressions.

Everything a template uses comes in through its inputs. Argo replaces `{{…}}` in several passes and has no escape, so no
`{{` of a user may stand in a manifest: the second brace is written `$(GPUFLOW_BRACE)`, a variable that the kubelet puts
back when the container starts, after Argo is done. Values that are only known at run time are treated the same way,
by an expression in the argument that carries them; it also doubles `$`, which the kubelet halves again. Numbers and
truth values travel as they were given, by an expression that ends the step when they are something else. Text for a
sub-pipeline's parameter passes through Argo once more, so it travels percent-encoded, without braces.

A run that a CronWorkflow starts carries its scheduled time, also when it starts late; `argo submit --scheduled-time`
sets it by hand. A run without one has the time when it was made instead: `workflow.scheduledTime` is not there then,
and a tag that names it would reach the container as it is written. So dates are expressions that look it up with `get`,
and every name in them is known to Argo whatever started the run: an expression that fails then ends the step.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import groupby, pairwise

from gpuflow.core import cron as clock
from gpuflow.core.date_format import TIMESTAMP, pieces
from gpuflow.core.errors import Problem, rule
from gpuflow.kubernetes.expansion import escape
from gpuflow.spec import expression
from gpuflow.spec.params import a
from gpuflow.spec.schedule import Schedule
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref, RunRef
from gpuflow.targets.capabilities import refusal
from gpuflow.targets.refusals import dates_of
from gpuflow.targets.target import Request

RUN_TIME = "get(workflow, 'scheduledTime') ?? workflow.creationTimestamp.RFC3339"
"""The expression for the scheduled time, or the time when the run was made."""
LAYOUTS = {
    "%Y": "2006", "%y": "06", "%m": "01", "%B": "January", "%b": "Jan", "%d": "02", "%j": "002", "%A": "Monday",
    "%a": "Mon", "%H": "15", "%I": "03", "%p": "PM", "%M": "04", "%S": "05", "%z": "-0700", "%:z": "-07:00",
}  # fmt: skip
"""Directives as the reference time of Go writes them."""
ADJACENT_DIRECTIVES = frozenset(LAYOUTS) - {"%z", "%:z"}
"""Directives that Go reads apart wherever they meet, in any order; digits after an offset would become part of it."""
SEPARATORS = frozenset("-/: T")
"""Letters that Go takes for nothing else in between them."""
WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
MANUAL_RUN_NOTE = "its scheduled time; a run by hand has none, and gets the time when it was made"
MOST_STEPS = 3300
"""How many moments an expression looks at for an earlier time: half hours of two months, and some more."""


class RunFacts:
    """The facts of the runs of one pipeline. Its schedule decides about all sub-pipelines too."""

    def __init__(self, schedule: Schedule | None = None) -> None:
        self.schedule = schedule

    def time_expression(self, ref: RunRef) -> str:
        """The expression for a date as a time of Go, in its own zone, the schedule's, or UTC."""
        own = self.schedule.timezone if self.schedule is not None else "UTC"
        if ref.field == "interval_start" and self.schedule is not None:
            found = scheduled_time_before(self.schedule)
            return found if ref.timezone in (None, own) else f"{found}.In(timezone('{ref.timezone}'))"
        return f"date({RUN_TIME}).In(timezone('{ref.timezone or own}'))"

    def date_parts(self, ref: RunRef) -> Iterator[tuple[bool, str]]:
        """A date as expressions (True) and the text between them (False)."""
        moment = self.time_expression(ref)
        return (
            (True, f"{moment}.Format('{word}')") if is_layout else (False, word) for is_layout, word in layouts(ref)
        )


def layouts(ref: RunRef) -> Iterator[tuple[bool, str]]:
    """The format of a date as layouts of Go (True) and the text between them (False)."""
    if ref.layout == TIMESTAMP:
        yield True, "2006-01-02T15:04:05-07:00"
        return
    for together, words in groupby(
        pieces(ref.layout), lambda word: word in ADJACENT_DIRECTIVES or SEPARATORS.issuperset(word)
    ):
        listed = list(words)
        if together and any(word in ADJACENT_DIRECTIVES for word in listed):
            yield True, "".join(LAYOUTS.get(word, word) for word in listed)
        else:
            yield from ((word in LAYOUTS, LAYOUTS.get(word, "%" if word == "%%" else word)) for word in listed)


def scheduled_time_before(schedule: Schedule) -> str:
    """The expression for the last scheduled time before the run's own.

    It goes back minute by minute to the next one that the cron could name, then in steps to one that it does name. The
    zone's own clock is read at each step, so hours that a clock skips or shows twice are as the controller sees them.
    """
    cron = clock.parse(schedule.cron)
    size = step_size(cron)
    grid = [minute for minute in range(60) if (minute - min(cron.minutes)) % size == 0]
    named = _names(cron, "#acc")
    walk = f"{named} ? #acc : #acc - duration('{size}m')"
    if size > 1:
        walk = f"{_one_of('#acc', '04', grid, 60)} ? ({walk}) : #acc - duration('1m')"
    start = f"(date({RUN_TIME}) - duration('1s')).Truncate(duration('1m')).In(timezone('{schedule.timezone}'))"
    return f"filter([reduce(1..{steps_of(cron)}, {walk}, {start})], {_names(cron, '#')})[0]"


def step_size(cron: clock.Cron) -> int:
    """Minutes between moments that the cron could name. Clocks are set by half or whole hours, nothing else."""
    return math.gcd(30, *(later - earlier for earlier, later in pairwise(sorted(cron.minutes))))


def steps_of(cron: clock.Cron) -> int | None:
    """How many steps lead back to an earlier time for certain; None when that is too many, or there is no such time.

    One time may be skipped by the clock, so it is twice the longest way between two days that have times.
    """
    days = [date(2023, 1, 1) + timedelta(days=number) for number in range(366 * 3)]
    found = [day for day in days if cron.is_on(day)]
    if len(found) < 2:
        return None
    longest = max((later - earlier).days for earlier, later in pairwise(found)) * 24 * 60
    if longest == 24 * 60 and len(cron.hours) == 24:
        longest = 60
    steps = 2 * math.ceil(longest / step_size(cron)) + 60
    return steps if steps <= MOST_STEPS else None


def _names(cron: clock.Cron, moment: str) -> str:
    by_date = _one_of(moment, "02", cron.days, 31)
    weekdays = ", ".join(f"'{WEEKDAYS[number]}'" for number in sorted(cron.weekdays))
    by_weekday = "" if len(cron.weekdays) == 7 else f"{moment}.Format('Mon') in [{weekdays}]"
    if cron.either:
        days = [f"({by_date} || {by_weekday})"] if by_date and by_weekday else []
    else:
        days = [by_date, by_weekday]
    month = _one_of(moment, "01", cron.months, 12)
    found = [_one_of(moment, "04", cron.minutes, 60), _one_of(moment, "15", cron.hours, 24), *days, month]
    return " && ".join(filter(None, found)) or "true"


def _one_of(moment: str, layout: str, numbers: Iterable[int], most: int) -> str:
    """Whether a part of a moment is one of these numbers; empty when it always is."""
    listed = sorted(numbers)
    if len(listed) == most:
        return ""
    words = ", ".join(f"'{number:02}'" for number in listed)
    return f"{moment}.Format('{layout}') in [{words}]"


@refusal("GF301")
def sparse_schedules(request: Request) -> Iterator[Problem]:
    """Schedules whose times lie further apart than an expression looks."""
    schedule = request.pipeline.schedule
    if schedule is None or steps_of(clock.parse(schedule.cron)) is not None:
        return
    for _, _, where in dates_of(request.plan, "interval_start"):
        yield Problem(
            f'argo does not support {{run: interval_start}} with the cron "{schedule.cron}": its times lie too far '
            "apart for an expression to find the one before",
            where,
            "compute it in the program from {run: logical_date}",
        )
        return


@rule("GF334", severity="note")
def without_schedule(request: Request) -> Iterator[Problem]:
    """What dates are in a run that no schedule started."""
    found = next(iter(dates_of(request.plan)), None)
    if found is not None:
        hint = "argo submit --scheduled-time 2026-01-31T06:00:00Z sets it, for a missed or repeated time"
        yield Problem(f"dates of the run are {MANUAL_RUN_NOTE}", found[2], hint)


def input_name(ref: Ref) -> str:
    """The template input that carries a reference. No two references share one: steps end with no '-'."""
    if isinstance(ref, ParamRef):
        return ref.name
    if isinstance(ref, OutputRef):
        return f"{ref.step}-{ref.name}"
    assert isinstance(ref, ItemRef)
    return f"item--{ref.name}"


PLAIN_TYPES = {
    "int": "^[-+]?[0-9]+$",
    "float": "(?i)^[-+]?(([0-9]+[.]?[0-9]*|[.][0-9]+)(e[-+]?[0-9]+)?|inf(inity)?|nan)$",
    "bool": "^(true|false)$",
}
"""Types whose text needs no protection once it is known to be one: what each looks like. Argo itself checks no type, so
whoever starts a run could send any text under the name of a number."""
BRACE = "GPUFLOW_BRACE"
BRACE_ENV = {"name": BRACE, "value": "{"}
_TAG = re.compile(r"(\$*)(?:(?<=\{)\{|\{(?=$))")


def without_tags(text: str) -> str:
    """Text in which Argo finds no tag, also when something is glued to its end; the kubelet restores it."""
    return _TAG.sub(_protect_brace, text)


def _protect_brace(match: re.Match[str]) -> str:
    # A lone `$` in front would turn the variable into text, so it is doubled; pairs already stand for one each.
    dollars = match[1] + "$" * (len(match[1]) % 2)
    return f"{dollars}$({BRACE})"


def is_filled_in(text: str) -> bool:
    """Whether Argo, or the kubelet after it, has something to put into the text."""
    return "{{" in text or f"$({BRACE})" in text


def safe_value(value: str) -> str:
    """An expression for a run-time value that survives Argo's later passes and the kubelet's expansion."""
    return f"{{{{=sprig.replace('{{', '$({BRACE})', sprig.replace('$', '$$', {value}))}}}}"


class Inputs:
    """Spells references as template inputs, and remembers which were used."""

    def __init__(self, facts: RunFacts | None = None, name_of: Callable[[Ref], str] = input_name) -> None:
        self.used: dict[str, Ref] = {}
        self.dates: dict[str, None] = {}
        """The expressions of the run's dates, in the order they were used."""
        self.is_retried = False
        """Whether Argo counts the attempts of the template."""
        self._facts, self._name_of = facts or RunFacts(), name_of

    def literal(self, text: str) -> str:
        return without_tags(text)

    def reference(self, ref: Ref) -> str:
        if isinstance(ref, RunRef):
            return self._fact(ref)
        name = self._name_of(ref)
        self.used[name] = ref
        return f"{{{{inputs.parameters.{name}}}}}"

    def _fact(self, ref: RunRef) -> str:
        if ref.field == "attempt":  # the first one is 0 to Argo, and without retries it does not count
            return "{{=asInt(retries) + 1}}" if self.is_retried else "1"
        if not ref.is_date:
            return {"id": "{{workflow.uid}}", "name": "{{workflow.name}}"}[ref.field]
        text = ""
        for is_expression, word in self._facts.date_parts(ref):
            if is_expression:
                self.dates[word] = None
            text += f"{{{{={word}}}}}" if is_expression else self.literal(escape(word, glued=True))
        return text


Defaults = Mapping[OutputRef, str]
"""The texts that stand for outputs of steps that were skipped."""
ITEM = "(type(item) in ['map', 'array'] ? toJson(item) : string(item))"


Reader = Callable[[Ref, str], str]
"""The expression for what a reference stands for, given its type."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a task of a DAG stands, which decides how it reads references."""

    nested: bool = False
    """In a sub-pipeline, whose parameters are inputs of its DAG."""
    single_item: bool = False
    """The loop has one variable, so that its item is no map."""
    written: bool = False
    """The loop's list stands in the manifest, so every item is text."""
    defaults: Defaults = field(default_factory=dict)

    def argument(self, ref: Ref) -> str:
        """A reference to something that was checked or written safely before: an item of a list that stands in the
        manifest, a number that a sub-pipeline was handed, an output that is only passed up."""
        if isinstance(ref, ParamRef):
            assert self.nested, "what a run was started with is checked first"
            return f"{{{{inputs.parameters.{ref.name}}}}}"
        if isinstance(ref, OutputRef):
            return f"{{{{tasks.{ref.step}.outputs.parameters.{ref.name}}}}}"
        assert isinstance(ref, ItemRef)
        return "{{item}}" if self.single_item else f"{{{{item.{ref.name}}}}}"

    def checked_number(self, ref: Ref, kind: str, declared: str = "") -> str:
        """A reference to a number or a truth value, which must look like one. It stays as it was given: `007`, `1e3`.
        `declared`: the type that the reference itself has, where another is asked for."""
        if isinstance(ref, ParamRef) and self.nested and (declared or kind) == kind:
            return self.argument(ref)  # whoever handed it over has checked it
        return f"{{{{={typed_value(self.text(ref), kind, ref)}}}}}"

    def text(self, ref: Ref) -> str:
        """The expression for a reference's text. Arguments of a sub-pipeline are percent-decoded."""
        if isinstance(ref, ParamRef):
            if not self.nested:
                return f"workflow.parameters['{ref.name}']"
            return percent_decoded(f"inputs.parameters['{ref.name}']")
        if isinstance(ref, OutputRef):
            if ref in self.defaults:
                return _or_default(ref, self.defaults[ref])
            return f"tasks['{ref.step}'].outputs.parameters['{ref.name}']"
        assert isinstance(ref, ItemRef)
        return ITEM if self.single_item else f"string({_unquote_item(ref.name)})"

    def read(self, ref: Ref, kind: str) -> str:
        """What a condition asks for. Numbers and truth values travel to a sub-pipeline as they are."""
        if isinstance(ref, ItemRef) and self.single_item and self.written:
            return "item"
        if isinstance(ref, ParamRef) and kind in PLAIN_TYPES:
            return f"{'inputs' if self.nested else 'workflow'}.parameters['{ref.name}']"
        return self.text(ref)


def typed_value(value: str, kind: str, ref: Ref) -> str:
    """The expression for a text that must look like its type. Argo ends the step with these words when it does not."""
    return f"({value} matches '{PLAIN_TYPES[kind]}' ? {value} : sprig.fail('{_reference_name(ref)} is not {a(kind)}'))"


def _reference_name(ref: Ref) -> str:
    if isinstance(ref, OutputRef):
        return f"the output {ref.name} of {ref.step}"
    assert isinstance(ref, ParamRef | ItemRef)
    return f"{'parameter' if isinstance(ref, ParamRef) else 'item'} {ref.name}"


def unquoted_item(name: str) -> str:
    """An item of several variables: Argo gives it as JSON text without the quotes around it, so they are put back."""
    return f"{{{{={_unquote_item(name)}}}}}"


def _unquote_item(name: str) -> str:
    return f"fromJSON('\"' + item['{name}'] + '\"')"


def _or_default(ref: OutputRef, default: str) -> str:
    """An output, or the default when its step was skipped. Argo waits forever for an output that an expression names
    and a task has not got, also behind `?.`; what is looked up with `get` it does not see."""
    return f"(get(tasks['{ref.step}'], 'outputs')?.parameters?.['{ref.name}'] ?? {constant(default)})"


def percent_encoded(value: str) -> str:
    """The expression that percent-encodes the braces of a text."""
    return f"{{{{=sprig.replace('{{', '%7B', sprig.replace('%', '%25', {value}))}}}}"


def typed_list(value: str, kind: str) -> str:
    """What a loop's copies wrote as a list of values: Argo reads JSON lists and maps, and makes texts of all else."""
    if kind in PLAIN_TYPES:
        return f"sprig.replace('\"', '', {value})"
    read = "{type(#) == 'string' ? fromJSON(#) : #}"
    return f"toJson(map(fromJSON({value}), {read}))" if kind == "json" else value


def percent_decoded(value: str) -> str:
    """The expression that decodes what `percent_encoded` wrote."""
    return f"sprig.replace('%25', '%', sprig.replace('%7B', '{{', {value}))"


def percent_encoded_text(text: str) -> str:
    """A literal for a sub-pipeline's parameter, percent-encoded in the same way."""
    return text.replace("%", "%25").replace("{", "%7B")


def hidden_json(value: str) -> str:
    """A list that is only known at run time, for `withParam`: `{{` stands in no JSON but inside text, where it can be
    written as an escape that Argo decodes with the JSON."""
    return f"{{{{=sprig.replace('{{' + '{{', '{{\\\\u007b', {value})}}}}"


def condition(tree: expression.Expression, type_of: dict[str, str], read: Reader) -> str:
    """A condition as an expression. Argo's values are text, so each is read as its declared type."""
    if isinstance(tree, expression.Literal):
        return constant(tree.value)
    if isinstance(tree, expression.Reference):
        kind = type_of[expression.render(tree)]
        text = read(tree.ref, kind)
        typed = {"int": f"asInt({text})", "float": f"asFloat({text})", "bool": f"({text} == 'true')"}
        return typed.get(kind, text)
    if isinstance(tree, expression.Not):
        return f"!({condition(tree.term, type_of, read)})"
    if isinstance(tree, expression.Logic):
        joiner = " && " if tree.operator == "and" else " || "
        return joiner.join(f"({condition(term, type_of, read)})" for term in tree.terms)
    if isinstance(tree, expression.Member):
        options = ", ".join(constant(option.value) for option in tree.options)
        inside = f"{condition(tree.value, type_of, read)} in [{options}]"
        return f"!({inside})" if tree.negated else inside
    return f"{condition(tree.left, type_of, read)} {tree.operator} {condition(tree.right, type_of, read)}"


def constant(value: object) -> str:
    """A literal of the expression language; braces as escapes, because `}}` would end Argo's tag."""
    return json.dumps(value, ensure_ascii=False).replace("{", "\\u007b").replace("}", "\\u007d")
