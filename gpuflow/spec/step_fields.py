"""What stands in a step: `Settings`, which a pipeline's `defaults` may have too, conditions, arguments, approvals."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import PlainValidator, WithJsonSchema

from gpuflow.spec import expression
from gpuflow.spec.container import EnvField, EnvFrom, PullPolicy, Security
from gpuflow.spec.model import EMPTY_MAP, Bool, DurationField, Intern, Model, QuantityField, Str, TimeLimit, problem
from gpuflow.spec.names import EnvName, LabelKey, LabelValue, MountPath, ObjectName, PodLabelKey
from gpuflow.spec.params import plain_json
from gpuflow.spec.policies import Kubernetes, Priority, Retry, Spot, Topology
from gpuflow.spec.resources import Amount
from gpuflow.spec.text import RUN_FIELDS, ItemRef, Literally, OutputRef, ParamRef, RunRef, parse_text
from gpuflow.spec.text import text as literal_text
from gpuflow.spec.volumes import Volume


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
    env: dict[EnvName, EnvField] = EMPTY_MAP
    """Environment variables: text, a reference, {secret, key} or {config_map, key}."""
    env_from: tuple[EnvFrom, ...] = ()
    """Whole Secrets or ConfigMaps as environment variables."""
    volumes: dict[MountPath, Volume] = EMPTY_MAP
    """Files, by the path they are mounted at."""
    shm: QuantityField | None = None
    """Size of /dev/shm; default: 64 MiB, which breaks most data loaders."""
    cpu: Annotated[Amount | None, Intern()] = None
    """CPU: a number for request and limit, or {request, limit}."""
    memory: Annotated[Amount | None, Intern()] = None
    """Memory: a quantity for request and limit, or {request, limit}."""
    ephemeral_storage: Annotated[Amount | None, Intern()] = None
    """Local disk: a quantity for request and limit, or {request, limit}."""
    service_account: ObjectName | None = None
    """The pod's ServiceAccount."""
    security: Annotated[Security | None, Intern()] = None
    """Identity and privileges."""
    labels: dict[PodLabelKey, LabelValue] = EMPTY_MAP
    """Labels on every pod, for example team and cost-center."""
    annotations: dict[LabelKey, Str] = EMPTY_MAP
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
    retry: Annotated[Retry | None, Intern()] = None
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


SHARED_MAPS = ("env", "volumes", "labels", "annotations")
"""Settings that a step shares with the defaults key by key."""


def _condition(value: Any) -> expression.Expression:
    if hasattr(value, "offset"):
        return value  # type: ignore[no-any-return]  # an expression built by code
    if isinstance(value, bool):
        value = str(value).lower()
    if not isinstance(value, str):
        raise problem("GF161", f"{value!r} is not a condition", "write text such as steps.evaluate.accuracy > 0.9")
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
        return TextMap(literal_text(value["text"]))
    if isinstance(value, RunRef) or (isinstance(value, dict) and value.get("run") in RUN_FIELDS):
        text = "a fact of the run is not a parameter"
        raise problem("GF142", text, "a sub-pipeline knows them too: write {run: …} in its steps")
    return plain_json(value)


class TextMap(Literally):
    """`{text: …}` as an argument: literal text, or for a parameter of type json the map that it is."""

    __slots__ = ()


ArgumentField = Annotated[Any, PlainValidator(_argument), WithJsonSchema({})]


class Approval(Model, short="message", form={"type": "string"}):
    """A person approves."""

    message: Str
    """The question."""
    timeout: TimeLimit | None = None
    """How long to wait before it counts as rejected."""
