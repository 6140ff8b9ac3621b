"""Pods that work together: how many, how they find each other, and what is different in the one that leads."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import model_validator

from gpuflow.spec.container import EnvField, Script
from gpuflow.spec.model import EMPTY_MAP, Count, Intern, Model, Port, QuantityField, WithNulls, problem
from gpuflow.spec.names import EnvName
from gpuflow.spec.policies import Kubernetes
from gpuflow.spec.resources import Amount, Gpu
from gpuflow.spec.text import TextField


class Rendezvous(Model):
    """How the workers of a gang find each other."""

    framework: Literal["torchrun", "mpi", "env"] = "env"
    """torchrun; mpi: rank 0 alone runs the command, `mpirun …`, which starts processes in all pods; or env: only the
    variables GPUFLOW_WORLD_SIZE, GPUFLOW_RANK, GPUFLOW_LEADER."""
    port: Port = 29500
    """The leader's port."""
    processes_per_worker: Count | None = None
    """Processes in each worker; default: the number of GPUs."""


class Leader(WithNulls):
    """What is different in the pod of a gang's leader; `true` is a pod like the workers'. Null takes away what the step
    has."""

    SHORT_FORM: ClassVar[dict[str, Any]] = {"type": "boolean"}
    SETTINGS: ClassVar[tuple[str, ...]] = ("cpu", "memory", "ephemeral_storage", "gpu", "shm", "kubernetes")
    """What takes the place of the step's own as a whole."""
    NULLABLE = (*SETTINGS, "env")
    NULLABLE_KEYS = ("env",)
    __hash__ = None  # type: ignore[assignment]  # else pydantic makes one for a frozen model

    command: tuple[TextField, ...] = ()
    """What the leader runs, instead of the step's command, args or script."""
    args: tuple[TextField, ...] = ()
    """Arguments after the leader's command; after the step's, where the leader has no program of its own."""
    script: Script | None = None
    """A program written here, instead of a command."""
    env: dict[EnvName, EnvField] = EMPTY_MAP
    """Environment variables beside or instead of the step's; null takes one away."""
    cpu: Annotated[Amount | None, Intern()] = None
    """CPU: a number for request and limit, or {request, limit}."""
    memory: Annotated[Amount | None, Intern()] = None
    """Memory: a quantity for request and limit, or {request, limit}."""
    ephemeral_storage: Annotated[Amount | None, Intern()] = None
    """Local disk: a quantity for request and limit, or {request, limit}."""
    gpu: Annotated[Gpu | None, Intern()] = None
    """Other GPUs than the workers'; null: none, also where the step has a MIG slice, a share or a claim."""
    shm: QuantityField | None = None
    """Size of /dev/shm."""
    kubernetes: Kubernetes | None = None
    """Kubernetes fields, for this cluster only. They replace the step's as a whole; null: none of them."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        if value is True:
            return {}
        if isinstance(value, dict | Leader):
            return value
        raise problem(
            "GF124",
            f"{value!r} is not true or false",
            "write true for a pod like the workers', or a map of what is different: {gpu: null, memory: 8Gi}",
        )

    @model_validator(mode="after")
    def _one_program(self) -> Leader:
        if self.command and self.script is not None:
            raise problem("GF164", "a leader runs a command or a script; this has both", None, at=("script",))
        if self.args and self.script is not None:
            raise problem("GF164", "args belong to a command, not to a script", None, at=("args",))
        return self


class Gang(Model):
    """Several identical workers, or a leader and workers, that must run together."""

    SHORT_FORM: ClassVar[dict[str, Any]] = {"type": "integer", "minimum": 1}

    workers: Count
    """How many identical workers."""
    leader: Leader | None = None
    """One more pod, rank 0, that is not counted as a worker: true, or what is different in it."""
    rendezvous: Rendezvous = Rendezvous()
    """How they find each other."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("leader") is False:
            return {name: each for name, each in value.items() if name != "leader"}
        return {"workers": value} if isinstance(value, int) and not isinstance(value, bool) else value

    @property
    def pods(self) -> int:
        return self.workers + (1 if self.leader is not None else 0)
