"""A step: what runs, what it needs, how it survives, and how it depends on other steps. And the pipeline around it:
parameters, defaults, steps, what happens at the end, and when it starts. A step may be a pipeline, so both stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import PrivateAttr, ValidationInfo, model_validator

from gpuflow.core.errors import Where, fail
from gpuflow.quantity import Quantity
from gpuflow.spec import expression
from gpuflow.spec.builder import Draft, Handle, as_plain, caller
from gpuflow.spec.container import Helper, Lifecycle, Probes, Script
from gpuflow.spec.engine_options import PipelineEngines, StepEngines
from gpuflow.spec.engine_options.base import misplaced_hint
from gpuflow.spec.fan_out import SourceField
from gpuflow.spec.model import EMPTY_MAP, Count, Intern, Model, OneOrMore, Str, TimeLimit, WithNulls, problem
from gpuflow.spec.names import (
    ClaimName,
    ItemName,
    LabelValue,
    MountPath,
    OutputName,
    ParamName,
    PipelineName,
    PodLabelKey,
    StepName,
)
from gpuflow.spec.notify import Alert
from gpuflow.spec.params import Output, Param, RunClaim, a
from gpuflow.spec.policies import Checkpoint, Gang, Leader
from gpuflow.spec.problems import SilencedCode, Source
from gpuflow.spec.resources import DeviceClaim, Gpu, Mig, SharedGpu
from gpuflow.spec.schedule import Schedule
from gpuflow.spec.step_fields import SHARED_MAPS, Approval, ArgumentField, ConditionField, Settings, TextMap
from gpuflow.spec.text import ItemRef, Literally, OutputRef, ParamRef, Ref, TextField, refs_of
from gpuflow.spec.volumes import Input

STEP_CONTEXT = "a step on its own"
"""The context in which a step may run nothing: whoever uses it decides whether it must."""
NO_COMMAND = "engines cannot read a command from the image, so it must be written"


def _without_rules(*_: Any) -> NoReturn:
    raise ImportError("Step and Pipeline are made with the rules: import them from gpuflow")


class Checks:
    """How `Step(…)` and `Pipeline(…)` in user code are checked. Rules are written about the models, so they stand above
    them: `gpuflow.spec.pipeline`, from which the front door takes both models, sets these when it is loaded."""

    step: Callable[[type[Step], str | None, dict[str, Any]], Step] = _without_rules
    pipeline: Callable[[type[Pipeline], Any, Source], Pipeline] = _without_rules


class StepMeta(type(Settings)):  # type: ignore[misc]  # pydantic's metaclass has no public name
    """Makes `Step("train", command=[…])` in user code give our errors, with codes, instead of pydantic's."""

    def __call__(cls, name: str | None = None, /, **fields: Any) -> Any:
        return Checks.step(cls, name, fields)


class Step(Settings, WithNulls, metaclass=StepMeta):
    """One node of the pipeline. `Step("train", command=[…])` also works alone, inside hand-written engine code."""

    NULLABLE = Settings.model_fields
    NULLABLE_KEYS = SHARED_MAPS
    __hash__ = None  # type: ignore[assignment]  # else pydantic makes one for a frozen model

    needs: Annotated[tuple[StepName, ...], OneOrMore()] = ()
    """Steps that must finish first. A reference to a step's output is also a need."""
    when: ConditionField | None = None
    """Run only if this is true."""
    if_skipped: Literal["skip", "run"] | None = None
    """What to do when a needed step was skipped: skip (the default) or run. Using an output of a step that may be
    skipped requires a decision: set `if_skipped: skip`, or give that output a default."""
    for_each: dict[ItemName, SourceField] | None = None
    """Run once per item; several variables give every combination."""
    parallel: Count | None = None
    """How many items of the fan-out may run at once."""

    command: tuple[TextField, ...] = ()
    """What runs."""
    args: tuple[TextField, ...] = ()
    """Arguments after the command."""
    script: Script | None = None
    """A program written here, instead of a command."""
    outputs: dict[OutputName, Output] = EMPTY_MAP
    """What the step passes to other steps."""
    inputs: dict[MountPath, Input] = EMPTY_MAP
    """Files and directories that are at these paths before the command starts: {/in/model: {output: train.model}}."""
    init_containers: tuple[Helper, ...] = ()
    """Containers that run, one after another, before the command."""
    sidecars: tuple[Helper, ...] = ()
    """Containers that run next to the command and end with it."""
    probes: Probes | None = None
    """Health checks."""
    lifecycle: Lifecycle | None = None
    """Hooks that the kubelet runs after the container has started and before it stops it."""

    gpu: Annotated[Gpu | None, Intern()] = None
    """Whole GPUs: a number for any GPU of the site, a model and a count (a100-80gb x 2), or {model, form, count, …}."""
    mig: Annotated[Mig | None, Intern()] = None
    """A MIG slice."""
    shared_gpu: Annotated[SharedGpu | None, Intern()] = None
    """A shared GPU."""
    device_claim: DeviceClaim | None = None
    """A DRA claim."""
    gang: Gang | None = None
    """Several workers that must run together."""
    checkpoint: Checkpoint | None = None
    """How the step resumes after an interruption."""

    pipeline: Pipeline | None = None
    """Another pipeline as one step: a file next to this one, or inline."""
    params: dict[ParamName, ArgumentField] = EMPTY_MAP
    """Values for the sub-pipeline's parameters."""
    approval: Approval | None = None
    """Wait for approval instead of running something."""
    on: Literal["always", "failure", "success"] | None = None
    """Exit steps only: when it runs; default: always."""
    description: Str | None = None
    """What the step is for."""
    engines: StepEngines | None = None
    """Settings for one engine alone: {airflow: {…}, argo: {…}, kubeflow: {…}}. The other engines ignore them."""

    _name: str | None = PrivateAttr(default=None)
    _references: tuple[tuple[tuple[str | int, ...], Ref], ...] | None = PrivateAttr(default=None)

    @classmethod
    def unknown(cls, key: str) -> tuple[str, str, str | None] | None:
        hint = misplaced_hint(key, StepEngines)
        return ("GF113", f'unknown key "{key}"', hint) if hint else None

    @property
    def name(self) -> str | None:
        """The name of a step that stands alone; in a pipeline the key is the name."""
        return self._name

    @model_validator(mode="after")
    def _one_thing(self, info: ValidationInfo) -> Step:
        ways = {"command": self.command, "script": self.script, "pipeline": self.pipeline, "approval": self.approval}
        given = [name for name, value in ways.items() if value]
        if len(given) > 1 or (not given and info.context != STEP_CONTEXT):
            have = " and ".join(given) if given else "none of them"
            text = f"a step runs exactly one of command, script, pipeline, approval; this has {have}"
            raise problem("GF164", text, NO_COMMAND if not given else None)
        if self.args and not self.command:
            whose = f"not to {a(given[0])}" if given else "and there is none"
            raise problem("GF164", f"args belong to a command, {whose}", None, at=("args",))
        devices = [name for name in ("gpu", "mig", "shared_gpu", "device_claim") if getattr(self, name)]
        if len(devices) > 1:
            text = f"a step takes at most one of gpu, mig, shared_gpu, device_claim; this has {' and '.join(devices)}"
            raise problem("GF165", text, at=(devices[1],))
        if self.parallel is not None and self.for_each is None:
            text = "parallel belongs to a fan-out, but the step has no for_each"
            raise problem("GF166", text, None, at=("parallel",))
        if self.for_each is not None and not self.for_each:
            raise problem("GF163", "for_each names no variable", "for example for_each: {seed: [1, 2, 3]}")
        if self.params and self.pipeline is None:
            raise problem("GF166", "params belong to a step with a pipeline", None, at=("params",))
        self._settle_text_maps()
        for way in ("pipeline", "approval"):
            if given == [way]:
                self._only_flow(way)
        for helper in self.init_containers:
            if helper.probes is not None:
                text = f'the init container "{helper.name}" has probes'
                raise problem("GF166", text, "only sidecars can have probes")
        names = [helper.name for helper in (*self.init_containers, *self.sidecars)]
        for name in names:
            if names.count(name) > 1:
                raise problem("GF156", f'two containers are named "{name}"', "choose another name")
        return self

    def _settle_text_maps(self) -> None:
        for name, value in self.params.items():
            if isinstance(value, Literally):
                param = None if self.pipeline is None else self.pipeline.params.get(name)
                if param is None or param.type != "json":
                    self.params[name] = Literally(value)
                else:
                    self.params[name] = {"text": str(value)} if isinstance(value, TextMap) else str(value)

    def _only_flow(self, way: str) -> None:
        allowed = {"needs", "when", "if_skipped", "for_each", "parallel", "timeout", "on", "description", way}
        allowed |= {"params"} if way == "pipeline" else {"engines"}
        extra = [
            n for n, f in type(self).model_fields.items() if n not in allowed and getattr(self, n) != f.get_default()
        ]
        if extra:
            text = f"{', '.join(extra)} cannot be used in a step that is {a(way)}: it runs no container of its own"
            raise problem("GF166", text, at=(extra[0],))

    @property
    def runs_nothing(self) -> bool:
        """Whether it only says what another task needs: a step on its own, for code that has the task already."""
        return not (self.command or self.script or self.pipeline or self.approval)

    @property
    def runs_container(self) -> bool:
        return self.pipeline is None and self.approval is None

    def references(self) -> tuple[tuple[tuple[str | int, ...], Ref], ...]:
        """Every reference in the step with the path where it stands; looked up once, since many rules ask."""
        memory = self.__pydantic_private__ or {}  # asked so often that the long way round is felt
        if memory["_references"] is None:
            memory["_references"] = tuple(self._find_references())
        found: tuple[tuple[tuple[str | int, ...], Ref], ...] = memory["_references"]
        return found

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other fields, which may hold other references."""
        copy = super().model_copy(update=update, deep=deep)
        memory = copy.__pydantic_private__ or {}  # as in `references`
        memory["_references"] = None
        return copy

    def _find_references(self) -> Iterator[tuple[tuple[str | int, ...], Ref]]:
        yield from _text_refs(("command",), self.command)
        if self.args:
            yield from _text_refs(("args",), self.args)
        yield from _map_refs(("env",), self.env)
        for mount, given in self.inputs.items():
            if given.output is not None:
                yield ("inputs", mount), given.output
            elif given.uri is not None:
                yield from _text_refs(("inputs", mount), (given.uri,), indexed=False)
        for field in ("init_containers", "sidecars"):
            for index, helper in enumerate(getattr(self, field)):
                yield from _text_refs((field, index, "command"), helper.command)
                yield from _text_refs((field, index, "args"), helper.args)
                yield from _map_refs((field, index, "env"), helper.env)
        for name, output in self.outputs.items():
            if output.uri is not None:
                yield from _text_refs(("outputs", name, "uri"), (output.uri,), indexed=False)
        leader = self.gang.leader if self.gang is not None else None
        if leader is not None:
            yield from _text_refs(("gang", "leader", "command"), leader.command)
            yield from _text_refs(("gang", "leader", "args"), leader.args)
            yield from _map_refs(("gang", "leader", "env"), leader.env)
        if self.checkpoint is not None:
            yield from _text_refs(("checkpoint", "store"), (self.checkpoint.store,), indexed=False)
        for name, source in (self.for_each or {}).items():
            if isinstance(source, ParamRef | OutputRef):
                yield ("for_each", name), source
        for name, value in self.params.items():
            if isinstance(value, ParamRef | OutputRef | ItemRef):
                yield ("params", name), value
        if self.when is not None:
            for reference in expression.references(self.when):
                yield ("when",), reference.ref


def _text_refs(
    path: tuple[str | int, ...], texts: tuple[Any, ...], *, indexed: bool = True
) -> Iterator[tuple[tuple[str | int, ...], Ref]]:
    for index, text in enumerate(texts):
        if isinstance(text, str):
            continue
        for ref in refs_of(text):
            yield (*path, index) if indexed else path, ref


def _map_refs(path: tuple[str | int, ...], values: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Ref]]:
    for name, value in values.items():
        if not isinstance(value, str | Model):  # most are text, in which there is none
            yield from _text_refs((*path, name), (value,), indexed=False)


def effective(step: Step, defaults: Settings | None, labels: Mapping[str, str] | None = None) -> Step:
    """The step with the pipeline's defaults filled in: maps are merged key by key, everything else is replaced. What
    the step sets to null is not taken from the defaults. The pods of a sub-pipeline also carry the labels of the
    pipeline around it; its own say more."""
    if step.pipeline is not None and labels:
        inner = step.pipeline.model_copy(update={"labels": {**labels, **step.pipeline.labels}})
        return step.model_copy(update={"pipeline": inner})
    if defaults is None or not step.runs_container:
        return step
    changes: dict[str, Any] = {}
    unsaid = step.nulls
    for name in defaults.model_fields_set:
        fallback = getattr(defaults, name)
        if fallback is None or (not fallback and isinstance(fallback, tuple | dict)) or (name,) in unsaid:
            continue
        own = getattr(step, name)
        if isinstance(fallback, dict):
            taken = {key: value for key, value in fallback.items() if (name, key) not in unsaid}
            changes[name] = {**taken, **own}
        elif own in (None, ()):
            changes[name] = fallback
    return step.model_copy(update=changes) if changes else step


def leader_step(step: Step) -> Step:
    """The step as the leader of its gang runs it: like a worker, but for what the leader says itself."""
    leader = step.gang.leader if step.gang is not None else None
    if leader is None:
        return step
    unsaid = leader.nulls
    changes: dict[str, Any] = {name: None for (name, *key) in unsaid if not key}
    changes |= {
        name: own for name in Leader.SETTINGS if (own := getattr(leader, name)) is not None and (name,) not in unsaid
    }
    if "gpu" in changes:  # whatever kind of device the workers have
        changes |= dict.fromkeys(("mig", "shared_gpu", "device_claim"))
    kept = {} if ("env",) in unsaid else {key: each for key, each in step.env.items() if ("env", key) not in unsaid}
    changes["env"] = {**kept, **leader.env}
    if leader.command or leader.script is not None:
        changes |= {"command": leader.command, "args": leader.args, "script": leader.script}
    elif leader.args:
        changes["args"] = leader.args
    return step.model_copy(update=changes)


class PipelineMeta(type(Model)):  # type: ignore[misc]  # pydantic's metaclass has no public name
    """Makes `Pipeline("name")` without steps an open pipeline, to be filled inside a `with` block."""

    def __call__(cls, name: str | None = None, /, **fields: Any) -> Any:
        fields, origin = {"name": name, **fields} if name is not None else fields, caller()
        if "steps" in fields:
            return Checks.pipeline(cls, as_plain(fields), Source(origin.file, lambda path, key: origin))
        pipeline = cls.model_construct(**{"name": "unnamed", **fields})
        pipeline._draft = Draft(dict(fields), origin)
        return pipeline


class Pipeline(Model, metaclass=PipelineMeta):
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
        hint = misplaced_hint(key, PipelineEngines)
        return ("GF113", f'unknown key "{key}"', hint) if hint else None

    @property
    def source(self) -> Source:
        """Where the pipeline was written. Not part of what it says, so not part of equality."""
        return self._source

    @property
    def param_texts(self) -> dict[str, tuple[str, ...]]:
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
            known = memory[name] = (step, defaults, labels, self._with_input_sizes(effective(step, defaults, labels)))
        return known[3]

    @property
    def passed_sizes(self) -> dict[str, Quantity]:
        """In a sub-pipeline: the sizes of the artifacts that the pipeline around it passes, by parameter."""
        return self._passed

    def _with_input_sizes(self, step: Step) -> Step:
        """The step, and its sub-pipeline with the sizes of what this pipeline passes into it."""
        if step.pipeline is None:
            return step
        found = {name: self.size_behind(step, value) for name, value in step.params.items()}
        sizes = {name: size for name, size in found.items() if size is not None}
        if not sizes:
            return step
        inner = step.pipeline.model_copy()  # another step may have the same sub-pipeline, and pass something else
        inner._passed, inner._effective = sizes, {}
        return step.model_copy(update={"pipeline": inner})

    def declared_output(self, ref: OutputRef) -> tuple[Output, tuple[Step, ...]] | None:
        """What a reference leads to, through sub-pipelines: the output as its own step declares it, and the fan-outs on
        the way there, outermost first, each of which makes a list of it. None when it leads nowhere."""
        step = self.steps.get(ref.step)
        loops = () if step is None or not step.for_each else (step,)
        if step is None:
            return None
        if step.pipeline is None:
            output = step.outputs.get(ref.name)
            return None if output is None else (output, loops)
        inner = step.pipeline.outputs.get(ref.name)
        found = step.pipeline.declared_output(inner) if isinstance(inner, OutputRef) else None
        return None if found is None else (found[0], (*loops, *found[1]))

    def size_behind(self, step: Step, value: Any) -> Quantity | None:
        """The size of the one artifact whose URI a reference is; None where it is not known, or where it is several."""
        if isinstance(value, ParamRef):
            return self.passed_sizes.get(value.name)
        is_item = isinstance(value, ItemRef)
        ref = (step.for_each or {}).get(value.name) if is_item else value
        found = self.declared_output(ref) if isinstance(ref, OutputRef) else None
        # An item of a fan-out's list is one artifact; the list itself is no URI.
        return found[0].size if found is not None and len(found[1]) == int(is_item) else None

    def where_step(self, name: str, *path: str | int) -> Where:
        """The place of a step of either section, or of a part of it."""
        return self.where("steps" if name in self.steps else "exit", name, *path, key=not path)

    def where(self, *path: str | int, key: bool = False) -> Where:
        """The place of a part of the document, as exactly as the source knows it."""
        where = self._source.locate(path, key)
        step = str(path[1]) if len(path) > 1 and path[0] in ("steps", "exit") else None
        return replace(where, step=step)

    def _open(self, what: str) -> Draft:
        """The draft of an open pipeline; GF191 when it is closed."""
        if self._draft is None:
            text = f'pipeline "{self.name}" is finished; {what} is for an open one'
            raise fail("GF191", text, where=caller(), hint="add steps inside its first `with` block")
        return self._draft

    def __enter__(self) -> Pipeline:
        self._open("with").inside = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        draft, self._draft = self._open("with"), None
        if kind is None:  # everything is checked at once, and the open pipeline becomes the checked one
            source = Source(draft.origin.file, draft.locate)
            checked = Checks.pipeline(type(self), as_plain(draft.fields), source)
            object.__setattr__(self, "__dict__", checked.__dict__)
            object.__setattr__(self, "__pydantic_fields_set__", checked.__pydantic_fields_set__)
            self._source = source

    def param(self, name: str, type: Any = str, **fields: Any) -> ParamRef:
        """Declare a parameter; the result stands for its value in commands."""
        return self._open("param").param(name, type, fields)

    def step(self, name: str, command: Any = None, **fields: Any) -> Handle:
        """Add a step; the result stands for it in `needs` and gives its outputs."""
        return self._open("step").step("steps", name, command, fields)

    def exit_step(self, name: str, command: Any = None, **fields: Any) -> Handle:
        """Add a step that runs when everything else has ended; `on` says when: always, failure or success."""
        return self._open("exit_step").step("exit", name, command, fields)


Step.model_rebuild()
Pipeline.model_rebuild()
