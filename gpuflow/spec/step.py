"""A step: what runs, what it needs, how it survives, and how it depends on other steps.

`Settings` is what a step says of its pod; a pipeline's `defaults` may say the same for all steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    ModelWrapValidatorHandler,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from gpuflow.spec import expression
from gpuflow.spec.container import EnvField, EnvFrom, Helper, Lifecycle, Probes, PullPolicy, Script, Security
from gpuflow.spec.engine_options import StepEngines
from gpuflow.spec.engine_options.base import misplaced
from gpuflow.spec.fan_out import SourceField
from gpuflow.spec.gang import Gang, Leader
from gpuflow.spec.model import (
    NOTHING,
    Bool,
    Count,
    DurationField,
    Model,
    Nulls,
    Once,
    OneOrMore,
    QuantityField,
    Str,
    TimeLimit,
    nulls_in,
    problem,
    without_nulls,
)
from gpuflow.spec.names import (
    EnvName,
    ItemName,
    LabelKey,
    LabelValue,
    MountPath,
    ObjectName,
    OutputName,
    ParamName,
    PodLabelKey,
    StepName,
)
from gpuflow.spec.params import Output, a, plain_json
from gpuflow.spec.policies import Checkpoint, Kubernetes, Priority, Retry, Spot, Topology
from gpuflow.spec.resources import Amount, DeviceClaim, Gpu, Mig, SharedGpu
from gpuflow.spec.text import (
    RUN_FIELDS,
    ItemRef,
    Literally,
    OutputRef,
    ParamRef,
    Ref,
    RunRef,
    TextField,
    parse_text,
    refs_of,
)
from gpuflow.spec.text import text as literal_text
from gpuflow.spec.volumes import Input, Volume

if TYPE_CHECKING:
    from gpuflow.spec.pipeline import Pipeline


class Settings(Model):
    """Fields that a pipeline's `defaults` may have too. None or empty means that a field is not set here."""

    @classmethod
    def unknown(cls, key: str) -> tuple[str, str, str | None] | None:
        hint = "engines stands in the pipeline and in steps; Airflow's default_args there are for all tasks"
        return ("GF113", f'unknown key "{key}"', hint) if key == "engines" else None

    image: Str | None = None
    """The container image."""
    image_pull_policy: PullPolicy | None = None
    """Always, IfNotPresent or Never."""
    image_pull_secrets: tuple[ObjectName, ...] = ()
    """Secrets with registry credentials."""
    working_dir: MountPath | None = None
    """The working directory of the command."""
    env: dict[EnvName, EnvField] = NOTHING
    """Environment variables: text, a reference, {secret, key} or {config_map, key}."""
    env_from: tuple[EnvFrom, ...] = ()
    """Whole Secrets or ConfigMaps as environment variables."""
    volumes: dict[MountPath, Volume] = NOTHING
    """Files, by the path they are mounted at."""
    shm: QuantityField | None = None
    """Size of /dev/shm; default: 64 MiB, which breaks most data loaders."""
    cpu: Annotated[Amount | None, Once()] = None
    """CPU: a number for request and limit, or {request, limit}."""
    memory: Annotated[Amount | None, Once()] = None
    """Memory: a quantity for request and limit, or {request, limit}."""
    ephemeral_storage: Annotated[Amount | None, Once()] = None
    """Local disk: a quantity for request and limit, or {request, limit}."""
    service_account: ObjectName | None = None
    """The pod's ServiceAccount."""
    security: Annotated[Security | None, Once()] = None
    """Identity and privileges."""
    labels: dict[PodLabelKey, LabelValue] = NOTHING
    """Labels on every pod, for example team and cost-center."""
    annotations: dict[LabelKey, Str] = NOTHING
    """Annotations on every pod."""
    termination_grace: DurationField | None = None
    """Time between SIGTERM and SIGKILL."""
    queue: LabelValue | None = None
    """The Kueue LocalQueue the pod waits in."""
    queue_timeout: TimeLimit | None = None
    """Longest time a pod may wait for quota, queue or a node; default: no limit."""
    priority: Priority | None = None
    """A PriorityClass, or {pod, queue}."""
    spot: Spot | None = None
    """never, allow, prefer or require; or {mode, fallback_after}."""
    topology: Topology | None = None
    """How pods are placed relative to each other."""
    retry: Annotated[Retry | None, Once()] = None
    """How often to retry: a number, whatever ended the step, or {failures, interruptions, …}. A step's own replaces the
    one of `defaults` as a whole, its number too."""
    timeout: TimeLimit | None = None
    """Longest time one attempt may run."""
    outputs_from: Literal["xcom"] | None = None
    """How the program hands over its outputs, where that is not one file for each: `xcom` is the map of all of them
    in /airflow/xcom/return.json, as images made for Airflow's KubernetesPodOperator write it. Needs no gpuflow-run in
    the image. For Airflow alone."""
    cache: Bool | None = None
    """Reuse the outputs of an earlier equal run if the engine can; default: off."""
    kubernetes: Kubernetes | None = None
    """Kubernetes fields, for this cluster only."""


def _condition(value: Any) -> expression.Expression:
    if not isinstance(value, str):
        if isinstance(value, bool):
            value = str(value).lower()
        elif not hasattr(value, "offset"):
            raise problem("GF161", f"{value!r} is not a condition", "write text such as steps.evaluate.accuracy > 0.9")
        else:
            return value  # type: ignore[no-any-return]  # an expression built by code
    try:
        return expression.parse(value)
    except expression.ExpressionError as refusal:
        pointer = f"{value}\n{' ' * refusal.offset}^"
        hint = f"{pointer}\n{refusal.hint}" if refusal.hint else pointer
        raise problem(refusal.code, refusal.message, hint) from None


ConditionField = Annotated[
    Any,
    PlainValidator(_condition),
    WithJsonSchema({"type": "string", "examples": ["steps.evaluate.accuracy > 0.9 and params.deploy"]}),
]


def _argument(value: Any) -> Any:
    """A sub-pipeline's parameter: a reference, or a plain value of the parameter's type."""
    if isinstance(value, ParamRef | OutputRef | ItemRef):
        return value
    if isinstance(value, dict) and len(value) == 1 and set(value) <= {"param", "output", "item"}:
        return parse_text(value)
    if isinstance(value, dict) and set(value) == {"text"} and isinstance(value["text"], str):
        return _TextMap(literal_text(value["text"]))
    if isinstance(value, RunRef) or (isinstance(value, dict) and value.get("run") in RUN_FIELDS):
        raise problem(
            "GF142",
            "a fact of the run is not a parameter",
            "a sub-pipeline knows them too: write {run: …} in its steps",
        )
    return plain_json(value)


class _TextMap(Literally):
    """`{text: …}` as an argument: literal text, or for a parameter of type json the map that it is."""

    __slots__ = ()


ArgumentField = Annotated[Any, PlainValidator(_argument), WithJsonSchema({})]


class Approval(Model):
    """A person approves."""

    SHORT_FORM: ClassVar[dict[str, Any]] = {"type": "string"}

    message: Str
    """The question."""
    timeout: TimeLimit | None = None
    """How long to wait before it counts as rejected."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        return {"message": value} if isinstance(value, str) else value


ON_ITS_OWN = "a step on its own"
"""The context in which a step may run nothing: whoever uses it decides whether it must."""
NO_COMMAND = "engines cannot read a command from the image, so it must be written"


class Alone(type(Settings)):  # type: ignore[misc]  # pydantic's metaclass has no public name
    """Makes `Step("train", command=[…])` in user code give our errors, with codes, instead of pydantic's."""

    def __call__(cls, name: str | None = None, /, **fields: Any) -> Any:
        from gpuflow.spec.builder import checked_step  # building checks whole pipelines, which hold steps

        return checked_step(cls, name, fields)


class Step(Settings, metaclass=Alone):
    """One node of the pipeline. `Step("train", command=[…])` also works alone, inside hand-written engine code."""

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
    outputs: dict[OutputName, Output] = NOTHING
    """What the step passes to other steps."""
    inputs: dict[MountPath, Input] = NOTHING
    """Files and directories that are at these paths before the command starts: {/in/model: {output: train.model}}."""
    init_containers: tuple[Helper, ...] = ()
    """Containers that run, one after another, before the command."""
    sidecars: tuple[Helper, ...] = ()
    """Containers that run next to the command and end with it."""
    probes: Probes | None = None
    """Health checks."""
    lifecycle: Lifecycle | None = None
    """Hooks that the kubelet runs after the container has started and before it stops it."""

    gpu: Annotated[Gpu | None, Once()] = None
    """Whole GPUs: a number for any GPU of the site, a model and a count (a100-80gb x 2), or {model, form, count, …}."""
    mig: Annotated[Mig | None, Once()] = None
    """A MIG slice."""
    shared_gpu: Annotated[SharedGpu | None, Once()] = None
    """A shared GPU."""
    device_claim: DeviceClaim | None = None
    """A DRA claim."""
    gang: Gang | None = None
    """Several workers that must run together."""
    checkpoint: Checkpoint | None = None
    """How the step resumes after an interruption."""

    pipeline: Pipeline | None = None
    """Another pipeline as one step: a file next to this one, or inline."""
    params: dict[ParamName, ArgumentField] = NOTHING
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
    _unsaid: Nulls = PrivateAttr(default=frozenset())
    _references: tuple[tuple[tuple[str | int, ...], Ref], ...] | None = PrivateAttr(default=None)

    @classmethod
    def unknown(cls, key: str) -> tuple[str, str, str | None] | None:
        hint = misplaced(key, StepEngines)
        return ("GF113", f'unknown key "{key}"', hint) if hint else None

    @property
    def name(self) -> str | None:
        """The name of a step that stands alone; in a pipeline the key is the name."""
        return self._name

    @property
    def unsaid(self) -> Nulls:
        """The defaults that do not count for this step, which wrote null there: a field, or a field and a key of it."""
        memory = self.__pydantic_private__ or {}  # as in `references`
        said: Nulls = memory["_unsaid"]
        return said

    @model_validator(mode="wrap")
    @classmethod
    def _nulls(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, dict):
            return handler(value)
        unsaid = nulls_in(value, Settings.model_fields, SHARED_MAPS)
        step = handler(without_nulls(value, unsaid) if unsaid else value)
        if unsaid:
            step._unsaid = frozenset(unsaid)
        return step

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, Step) and self._unsaid == other._unsaid

    __hash__ = None  # type: ignore[assignment]  # as for every model

    @model_validator(mode="after")
    def _one_thing(self, info: ValidationInfo) -> Step:
        ways = {"command": self.command, "script": self.script, "pipeline": self.pipeline, "approval": self.approval}
        given = [name for name, value in ways.items() if value]
        if len(given) > 1 or (not given and info.context != ON_ITS_OWN):
            have = " and ".join(given) if given else "none of them"
            raise problem(
                "GF164",
                f"a step runs exactly one of command, script, pipeline, approval; this has {have}",
                NO_COMMAND if not given else None,
            )
        if self.args and not self.command:
            whose = f"not to {a(given[0])}" if given else "and there is none"
            raise problem("GF164", f"args belong to a command, {whose}", None, at=("args",))
        devices = [name for name in ("gpu", "mig", "shared_gpu", "device_claim") if getattr(self, name)]
        if len(devices) > 1:
            raise problem(
                "GF165",
                f"a step takes at most one of gpu, mig, shared_gpu, device_claim; this has {' and '.join(devices)}",
                at=(devices[1],),
            )
        if self.parallel is not None and self.for_each is None:
            raise problem(
                "GF166", "parallel belongs to a fan-out, but the step has no for_each", None, at=("parallel",)
            )
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
                raise problem(
                    "GF166", f'the init container "{helper.name}" has probes', "only sidecars can have probes"
                )
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
                    self.params[name] = {"text": str(value)} if isinstance(value, _TextMap) else str(value)

    def _only_flow(self, way: str) -> None:
        allowed = {"needs", "when", "if_skipped", "for_each", "parallel", "timeout", "on", "description", way}
        allowed |= {"params"} if way == "pipeline" else {"engines"}
        extra = [
            n for n, f in type(self).model_fields.items() if n not in allowed and getattr(self, n) != f.get_default()
        ]
        if extra:
            raise problem(
                "GF166",
                f"{', '.join(extra)} cannot be used in a step that is {a(way)}: it runs no container of its own",
                at=(extra[0],),
            )

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


SHARED_MAPS = ("env", "volumes", "labels", "annotations")
"""Settings that a step shares with the defaults key by key."""


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
    """The step with the pipeline's defaults filled in: maps are merged key by key, everything else is replaced.

    What the step sets to null is not taken from the defaults.

    The pods of a sub-pipeline also carry the labels of the pipeline around it; its own say more.
    """
    if step.pipeline is not None and labels:
        inner = step.pipeline.model_copy(update={"labels": {**labels, **step.pipeline.labels}})
        return step.model_copy(update={"pipeline": inner})
    if defaults is None or not step.runs_container:
        return step
    changes: dict[str, Any] = {}
    unsaid = step.unsaid
    for name, fallback in defaults.__dict__.items():
        if fallback is None or (not fallback and isinstance(fallback, tuple | dict)) or (name,) in unsaid:
            continue
        own = getattr(step, name)
        if isinstance(fallback, dict):
            taken = {key: value for key, value in fallback.items() if (name, key) not in unsaid}
            changes[name] = {**taken, **own}
        elif own in (None, ()):
            changes[name] = fallback
    return step.model_copy(update=changes) if changes else step


def leading(step: Step) -> Step:
    """The step as the leader of its gang runs it: like a worker, but for what the leader says itself."""
    leader = step.gang.leader if step.gang is not None else None
    if leader is None:
        return step
    unsaid = leader.unsaid
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
