"""What runs in a step's pod: environment, files, probes, helpers beside it, and under which identity."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import PlainValidator, WithJsonSchema, model_validator

from gpuflow.spec.model import Bool, Count, DurationField, Model, Natural, Port, Str, exactly_one, problem
from gpuflow.spec.names import ContainerName, EnvName, MountPath, ObjectName
from gpuflow.spec.problems import validate_nested
from gpuflow.spec.resources import Amount
from gpuflow.spec.text import TEXT_SCHEMA, TextField, parse_text
from gpuflow.spec.volumes import Volume


class SecretKey(Model):
    """One key of a Secret as an environment variable."""

    secret: ObjectName
    """The Secret."""
    key: Str
    """Its key."""
    optional: Bool = False
    """Start even if it is missing."""


class ConfigMapKey(Model):
    """One key of a ConfigMap as an environment variable."""

    config_map: ObjectName
    """The ConfigMap."""
    key: Str
    """Its key."""
    optional: Bool = False
    """Start even if it is missing."""


def _env_value(value: Any) -> Any:
    if isinstance(value, SecretKey | ConfigMapKey):
        return value
    if isinstance(value, dict):
        if "secret" in value:
            return validate_nested(SecretKey, value)
        if "config_map" in value:
            return validate_nested(ConfigMapKey, value)
    return parse_text(value)


_KEY_SCHEMAS = [
    {
        "type": "object",
        "additionalProperties": False,
        "required": [source, "key"],
        "properties": {source: {"type": "string"}, "key": {"type": "string"}, "optional": {"type": "boolean"}},
    }
    for source in ("secret", "config_map")
]
_ENV_SCHEMA = {"anyOf": [*TEXT_SCHEMA["anyOf"], *_KEY_SCHEMAS]}
EnvField = Annotated[Any, PlainValidator(_env_value), WithJsonSchema(_ENV_SCHEMA)]


class EnvFrom(Model):
    """All keys of a Secret or ConfigMap as environment variables."""

    secret: ObjectName | None = None
    """A whole Secret."""
    config_map: ObjectName | None = None
    """A whole ConfigMap."""
    prefix: Str | None = None
    """Put before every name."""
    optional: Bool = False
    """Start even if it is missing."""

    _one_source = exactly_one("secret", "config_map", what="env_from")


class HttpProbe(Model):
    """Healthy when a GET answers with 200 to 399."""

    path: Str = "/"
    """The path."""
    port: Port
    """The container's port."""


class Probe(Model):
    """How Kubernetes checks whether a container is healthy."""

    command: tuple[Str, ...] | None = None
    """Healthy when this command exits with 0."""
    http: HttpProbe | None = None
    """Healthy when this URL answers."""
    tcp: Port | None = None
    """Healthy when this port accepts a connection."""
    delay: DurationField | None = None
    """Wait this long before the first try."""
    period: DurationField | None = None
    """Time between tries."""
    timeout: DurationField | None = None
    """Time for one try."""
    failures: Count | None = None
    """Unhealthy after this many failed tries in a row."""

    _one_way = exactly_one("command", "http", "tcp", what="a probe")


class Probes(Model):
    """The three probes of Kubernetes."""

    liveness: Probe | None = None
    """Restart the container when this fails."""
    readiness: Probe | None = None
    """Ready when this succeeds."""
    startup: Probe | None = None
    """Delay the other two until this succeeds."""


class Hook(Model):
    """What the kubelet does at one moment of a container's life: exactly one of these."""

    command: tuple[Str, ...] | None = None
    """A command in the container."""
    http: HttpProbe | None = None
    """A GET to the container."""
    sleep: DurationField | None = None
    """Wait this long."""

    _one_way = exactly_one("command", "http", "sleep", what="a hook")


class Lifecycle(Model):
    """Hooks of a container. Both run beside its program, not in place of it."""

    post_start: Hook | None = None
    """Right after the container has started; the program may be running already. A hook that fails ends the
    container."""
    pre_stop: Hook | None = None
    """Before SIGTERM, when a running pod is deleted or preempted. Its time is part of termination_grace: the program,
    and the supervisor around it, get what is left."""

    @model_validator(mode="after")
    def _require_a_hook(self) -> Lifecycle:
        if self.post_start is None and self.pre_stop is None:
            raise problem("GF128", "lifecycle takes post_start, pre_stop or both", "give one, or remove lifecycle")
        return self


class Script(Model, short="run", form={"type": "string"}):
    """A program written in the document itself."""

    run: Str
    """The program's text. It is data: nothing in it is expanded."""
    interpreter: tuple[Str, ...] = ("sh",)
    """What runs it, for example [python3] or [bash, -eu]; it gets the script's path as its last argument."""


class Security(Model):
    """Identity and privileges. The default is Kubernetes' restricted standard with the site's user id."""

    run_as_root: Bool = False
    """The image must run as root: the step no longer meets the restricted standard."""
    user: Natural | None = None
    """User id; default: the site's."""
    group: Natural | None = None
    """Group id; default: the site's."""
    fs_group: Natural | None = None
    """Group that owns mounted volumes; default: the site's."""
    read_only_root: Bool = False
    """Mount the image read-only."""
    add_capabilities: tuple[Str, ...] = ()
    """For example [IPC_LOCK] for RDMA; anything except NET_BIND_SERVICE violates the restricted standard."""
    privileged: Bool = False
    """All privileges of the node. Rarely needed."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Security:
        if self.run_as_root and self.user not in (None, 0):
            text = f"run_as_root and user {self.user} contradict each other"
            raise problem("GF154", text, "remove one of the two", at=("user",))
        if not self.run_as_root and self.user == 0:
            raise problem("GF154", "user 0 is root", "say run_as_root: true if the image needs it", at=("user",))
        return self


class Helper(Model):
    """An extra container in the step's pod: before the step's own (init_containers) or with it (sidecars)."""

    name: ContainerName
    """Unique in the pod."""
    image: Str
    """Its image."""
    command: tuple[TextField, ...] = ()
    """What it runs; required, because without it engines look up the command in a registry."""
    args: tuple[TextField, ...] = ()
    """Arguments after the command."""
    env: dict[EnvName, EnvField] = {}
    """Environment variables."""
    env_from: tuple[EnvFrom, ...] = ()
    """Whole Secrets or ConfigMaps as environment variables."""
    volumes: dict[MountPath, Volume] = {}
    """Files, by path."""
    cpu: Amount | None = None
    """CPU."""
    memory: Amount | None = None
    """Memory."""
    ports: tuple[Port, ...] = ()
    """Ports it listens on."""
    probes: Probes | None = None
    """Health checks; for sidecars only."""
    lifecycle: Lifecycle | None = None
    """Hooks; for sidecars only."""

    @model_validator(mode="after")
    def _has_command(self) -> Helper:
        if not self.command:
            text = f'the container "{self.name}" has no command'
            raise problem("GF155", text, "give it one; engines cannot read it from the image")
        if self.name in ("main", "wait", "init", "base"):
            text = f'the container name "{self.name}" is taken by an engine'
            raise problem("GF156", text, "choose another", at=("name",))
        return self


PullPolicy = Literal["Always", "IfNotPresent", "Never"]
