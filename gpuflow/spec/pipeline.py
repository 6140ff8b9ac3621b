"""The pipeline: parameters, defaults, steps, what happens at the end, and when it starts."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date, datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import PlainValidator, PrivateAttr, WithJsonSchema, model_validator

from gpuflow.core import cron as clock
from gpuflow.core.errors import Where
from gpuflow.quantity import Quantity
from gpuflow.spec.builder import Draft, Handle, draft_of, open_or_checked
from gpuflow.spec.engine_options import PipelineEngines
from gpuflow.spec.engine_options.base import misplaced
from gpuflow.spec.model import Bool, Count, Model, OneOrMore, Str, TimeLimit, problem, spelled
from gpuflow.spec.names import ClaimName, LabelValue, OutputName, ParamName, PipelineName, PodLabelKey, StepName
from gpuflow.spec.notify import Alert
from gpuflow.spec.params import Param, RunClaim
from gpuflow.spec.problems import SilencedCode, Source
from gpuflow.spec.rules.volume_room import passed_sizes
from gpuflow.spec.step import Settings, Step, effective
from gpuflow.spec.text import ParamRef, TextField
from gpuflow.spec.time_zones import YEARS, check_zone, zone_of

_CRON_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}


def check_cron(text: str) -> str:
    """A five-field cron expression that every engine reads the same way."""
    text = _CRON_MACROS.get(text.strip().lower(), text.strip())
    fields = text.split()
    if len(fields) != 5:
        raise problem(
            "GF167",
            f'"{text}" has {len(fields)} fields; cron has five: minute hour day month weekday',
            'for example "0 0 * * *" for midnight',
        )
    names = {"month": clock.MONTHS, "day of week": clock.WEEKDAYS}
    for word, (name, low, high) in zip(fields, clock.FIELDS, strict=True):
        for part in word.split(","):
            match = re.fullmatch(r"(\*|\w{1,3}(?:-\w{1,3})?)(?:/(\d{1,3}))?", part, re.ASCII)
            bounds = re.split("-", match[1]) if match and match[1] != "*" else []
            known = {each: clock.NAMES[each] for each in names.get(name, ())}
            numbers = [known.get(b.lower(), int(b) if b.isdecimal() else -1) for b in bounds]
            wrong = not match or any(not low <= n <= high for n in numbers) or numbers != sorted(numbers)
            if wrong or (match and match[2] is not None and int(match[2]) == 0):
                what = f"{'an' if name == 'hour' else 'a'} {name} ({low} to {high})"
                raise problem("GF167", f'"{part}" is not {what}', 'for example "0 0 * * *" for midnight')
    text = " ".join(fields)
    if not clock.parse(text).ever:
        raise problem("GF346", f'"{text}" names a date that never comes', "name a day that the month has")
    return text


def _start(value: Any) -> str:
    """A day, or a moment with or without an offset, in one spelling each."""
    text = value.isoformat() if isinstance(value, date) else spelled(value)
    found: date | None = None
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            found = date.fromisoformat(text)
        elif re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(Z|[-+]\d\d:\d\d)?", text):
            found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        pass
    if found is None:
        shown = f'"{text}"' if isinstance(text, str) else "this"
        raise problem("GF332", f"{shown} is not a date or a time", "write 2026-01-31, or 2026-01-31T06:00")
    if found.year not in YEARS:
        span = f"{YEARS.start} to {YEARS.stop - 1}"
        raise problem("GF332", f'"{text}" is not in a year that every engine has', f"write a year from {span}")
    return found.isoformat()


Start = Annotated[
    str,
    PlainValidator(_start),
    WithJsonSchema({"type": "string", "examples": ["2026-01-31", "2026-01-31T06:00:00"]}),
]


class Schedule(Model):
    """Start on a schedule."""

    SHORT_FORM: ClassVar[dict[str, Any]] = {"type": "string", "examples": ["0 0 * * *"]}

    cron: Str
    """Five fields: minute hour day month weekday."""
    timezone: Str = "UTC"
    """An IANA time zone, for example Europe/Berlin."""
    start: Start | None = None
    """The first day or time that counts, in the schedule's time zone unless it has an offset. With catch_up, the times
    missed since then are run too."""
    catch_up: Bool = False
    """Also run for missed times."""
    concurrency: Literal["allow", "forbid", "replace"] = "forbid"
    """What to do when the previous run is still active."""
    suspended: Bool = False
    """Deploy the schedule, but do not start runs."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        return {"cron": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _readable(self) -> Schedule:
        cron = check_cron(self.cron)
        check_zone(self.timezone)
        object.__setattr__(self, "__dict__", {**self.__dict__, "cron": cron})
        return self

    @property
    def begins(self) -> datetime | None:
        """The moment of `start`, in the schedule's time zone."""
        if self.start is None:
            return None
        moment, zone = datetime.fromisoformat(self.start), zone_of(self.timezone)
        return moment.replace(tzinfo=zone) if moment.tzinfo is None else moment.astimezone(zone)


class Open(type(Model)):  # type: ignore[misc]  # pydantic's metaclass has no public name
    """Makes `Pipeline("name")` without steps an open pipeline, to be filled inside a `with` block."""

    def __call__(cls, name: str | None = None, /, **fields: Any) -> Any:
        return open_or_checked(cls, {"name": name, **fields} if name is not None else fields)


class Pipeline(Model, metaclass=Open):
    """A checked pipeline. Frozen; equal to any other with the same content, whether it came from YAML or from Python.

    In Python, name it and fill it inside a `with` block; it is checked when the block ends:

        with Pipeline("nightly", defaults={"image": "registry.example.com/train:1"}) as p:
            lr = p.param("lr", float, default=1e-4)
            prepare = p.step("prepare", ["python", "prepare.py"], outputs={"shards": int})
            p.step("train", ["python", "train.py", "--lr", lr, "--shards", prepare.outputs.shards], gpu="a100-80gb")
    """

    apiVersion: Literal["gpuflow/v1"] = "gpuflow/v1"
    """The format's version."""
    kind: Literal["Pipeline"] = "Pipeline"
    """What the document is."""
    name: PipelineName
    """Lower-case letters, digits and '-', at most 52 characters."""
    description: Str | None = None
    """What the pipeline is for."""
    labels: dict[PodLabelKey, LabelValue] = {}
    """Labels on every pod and on the engine's own object."""
    silence: Annotated[tuple[SilencedCode, ...], OneOrMore()] = ()
    """Codes of notes and warnings that are not printed, only counted: [GF307]. Of a pipeline and all its sub-pipelines,
    the outermost file decides; `check --together` leaves out what every file silences. Errors cannot be silenced."""
    params: dict[ParamName, Param] = {}
    """Values set when a run starts."""
    schedule: Schedule | None = None
    """Start on a schedule: a cron expression, or {cron, timezone, …}."""
    on_data: Annotated[tuple[Str, ...], OneOrMore()] = ()
    """Start when one of these object-store locations has new data. Airflow only; for Argo, see its guide."""
    parallel: Count | None = None
    """How many pods of one run may run at once."""
    deadline: TimeLimit | None = None
    """Longest time a run may take."""
    notify: tuple[Alert, ...] | None = None
    """Who is told how a run ended, in addition to those that the site names. An empty list: nobody, not even those."""
    defaults: Settings = Settings()
    """Settings for every step that does not set them itself."""
    engines: PipelineEngines | None = None
    """Settings for one engine alone: {airflow: {…}, argo: {…}, kubeflow: {…}}. The other engines ignore them."""
    claims: dict[ClaimName, RunClaim] = {}
    """Volume claims created for each run."""
    steps: dict[StepName, Step] = {}
    """The steps, by name."""
    exit: dict[StepName, Step] = {}
    """Steps that run when everything else has ended."""
    outputs: dict[OutputName, TextField] = {}
    """What a pipeline that uses this one as a step can refer to: {accuracy: {output: evaluate.accuracy}}."""

    _source: Source = PrivateAttr(default_factory=Source)
    _handed: dict[str, tuple[str, ...]] = PrivateAttr(default_factory=dict)
    _draft: Draft | None = PrivateAttr(default=None)
    _effective: dict[str, tuple[Step, Settings, dict[str, str], Step]] = PrivateAttr(default_factory=dict)
    _passed: dict[str, Quantity] = PrivateAttr(default_factory=dict)

    @classmethod
    def unknown(cls, key: str) -> tuple[str, str, str | None] | None:
        hint = misplaced(key, PipelineEngines)
        return ("GF113", f'unknown key "{key}"', hint) if hint else None

    @property
    def source(self) -> Source:
        """Where the pipeline was written. Not part of what it says, so not part of equality."""
        return self._source

    @property
    def handed(self) -> dict[str, tuple[str, ...]]:
        """Of a sub-pipeline: the values of its parameters that the steps which call it are known to give. Filled in
        when the pipeline around it is judged, and not part of equality."""
        return self._handed

    def effective(self, name: str) -> Step:
        """A step, or an exit step, with the defaults filled in, and this pipeline's labels in a sub-pipeline."""
        step = self.steps[name] if name in self.steps else self.exit[name]
        defaults, labels = self.defaults, self.labels
        memory = (self.__pydantic_private__ or {})["_effective"]  # asked so often that the long way round is felt
        known: tuple[Step, Settings, dict[str, str], Step] | None = memory.get(name)
        # A copy of the pipeline with other steps or defaults shares this memory, so it is asked what it was made from.
        if known is None or known[0] is not step or known[1] is not defaults or known[2] is not labels:
            known = memory[name] = (step, defaults, labels, self._filled(effective(step, defaults, labels)))
        return known[3]

    @property
    def passed(self) -> dict[str, Quantity]:
        """In a sub-pipeline: the sizes of the artifacts that the pipeline around it passes, by parameter."""
        return self._passed

    def _filled(self, step: Step) -> Step:
        """The step, and its sub-pipeline with the sizes of what this pipeline passes into it."""
        sizes = passed_sizes(self, step) if step.pipeline is not None and step.params else {}
        if step.pipeline is None or not sizes:
            return step
        inner = step.pipeline.model_copy()  # another step may have the same sub-pipeline, and pass something else
        inner._passed, inner._effective = sizes, {}
        return step.model_copy(update={"pipeline": inner})

    def section_of(self, name: str) -> Literal["steps", "exit"]:
        """The section that a step stands in."""
        return "steps" if name in self.steps else "exit"

    def where_step(self, name: str, *path: str | int) -> Where:
        """The place of a step of either section, or of a part of it."""
        return self.where(self.section_of(name), name, *path, key=not path)

    def where(self, *path: str | int, key: bool = False) -> Where:
        """The place of a part of the document, as exactly as the source knows it."""
        where = self._source.locate(path, key)
        step = str(path[1]) if len(path) > 1 and path[0] in ("steps", "exit") else None
        return replace(where, step=step)

    def __enter__(self) -> Pipeline:
        return draft_of(self, "with").entered(self)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        draft, self._draft = draft_of(self, "with"), None
        if kind is None:
            draft.finish(self)

    def param(self, name: str, type: Any = str, **fields: Any) -> ParamRef:
        """Declare a parameter; the result stands for its value in commands."""
        return draft_of(self, "param").param(name, type, fields)

    def step(self, name: str, command: Any = None, **fields: Any) -> Handle:
        """Add a step; the result stands for it in `needs` and gives its outputs."""
        return draft_of(self, "step").step("steps", name, command, fields)

    def exit_step(self, name: str, command: Any = None, **fields: Any) -> Handle:
        """Add a step that runs when everything else has ended; `on` says when: always, failure or success."""
        return draft_of(self, "exit_step").step("exit", name, command, fields)


Step.model_rebuild(_types_namespace={"Pipeline": Pipeline})
Pipeline.model_rebuild()
