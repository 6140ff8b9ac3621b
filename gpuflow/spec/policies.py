"""How a step survives and where it may run: retry budgets, checkpoints, spot, priority, topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import model_validator

from gpuflow.quantity import Quantity
from gpuflow.spec.container import EnvField, Script
from gpuflow.spec.duration import Duration
from gpuflow.spec.kubernetes_fields import DnsConfig, IpAddress, TopologySpread, affinity, check_merge
from gpuflow.spec.model import (
    EMPTY_MAP,
    Bool,
    Count,
    DurationField,
    Integer,
    Intern,
    Model,
    Natural,
    Number,
    Port,
    QuantityField,
    Str,
    WithNulls,
    problem,
)
from gpuflow.spec.names import EnvName, LabelKey, LabelValue, MountPath, ObjectName
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


class Leader(WithNulls, form={"type": "boolean"}):
    """What is different in the pod of a gang's leader; `true` is a pod like the workers'. Null takes away what the step
    has."""

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
        hint = "write true for a pod like the workers', or a map of what is different: {gpu: null, memory: 8Gi}"
        raise problem("GF124", f"{value!r} is not true or false", hint)

    @model_validator(mode="after")
    def _one_program(self) -> Leader:
        if self.command and self.script is not None:
            raise problem("GF164", "a leader runs a command or a script; this has both", None, at=("script",))
        if self.args and self.script is not None:
            raise problem("GF164", "args belong to a command, not to a script", None, at=("args",))
        return self


class Gang(Model, form={"type": "integer", "minimum": 1}):
    """Several identical workers, or a leader and workers, that must run together."""

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


class Backoff(Model, short="start", types=(str, Duration), form={"type": "string", "examples": ["30s"]}):
    """Waiting between attempts: start, then multiplied by factor each time, up to max."""

    start: DurationField = Duration("30s")
    """The first wait."""
    factor: Count = 2
    """Each wait is this many times the previous one. Whole numbers only, because Argo accepts no others."""
    max: DurationField | None = None
    """No wait is longer than this."""

    @model_validator(mode="after")
    def _check_order(self) -> Backoff:
        if self.max is not None and self.max < self.start:
            text = f"the longest wait {self.max} is shorter than the first {self.start}"
            raise problem("GF157", text, None, at=("max",))
        return self


class MoreMemory(Model):
    """After running out of memory, retry with more."""

    factor: Number = 2.0
    """Each attempt after an OOM gets this many times the memory."""
    max: QuantityField
    """Never more than this."""

    @model_validator(mode="after")
    def _check_factor(self) -> MoreMemory:
        if not 1 < self.factor <= 10:
            raise problem("GF157", f"factor {self.factor:g} must be above 1 and at most 10", None, at=("factor",))
        return self


class Retry(Model, short="any", types=(int,), form={"type": "integer", "minimum": 0}):
    """How often a step is started again: one count for everything, or two budgets.

    A failure is the program's fault, an interruption (spot, preemption, eviction, node loss) is not. `retry: 2` is
    short for `any: 2`: what Argo, Airflow and Kubeflow mean by a number of retries.
    """

    any: Natural | None = None
    """How often the step is started again, whatever ended it. Instead of failures and interruptions."""
    failures: Natural = 0
    """How often a failed step is retried."""
    interruptions: Natural = 0
    """How often an interrupted step is restarted; never counts against failures."""
    backoff: Backoff | None = None
    """How long to wait between attempts."""
    final_exit_codes: tuple[Natural, ...] = ()
    """Exit codes that end the step at once, even if its budgets have retries left."""
    retryable_exit_codes: tuple[Natural, ...] | None = None
    """If set, only these exit codes are retried."""
    more_memory: MoreMemory | None = None
    """Retry with more memory after OOM."""
    other_node: Bool = False
    """Retry on another node, because the one that failed may be broken. When every node has failed once, the step waits
    for a new one."""

    @property
    def after_failures(self) -> int:
        """How often the step may be started again after it failed, if nothing else ends it."""
        return self.failures if self.any is None else self.any

    @property
    def after_interruptions(self) -> int:
        """How often the step may be started again after it was interrupted, if nothing else ends it."""
        return self.interruptions if self.any is None else self.any

    @property
    def attempts(self) -> int:
        """How often the step may be started again at most."""
        return self.failures + self.interruptions if self.any is None else self.any

    @model_validator(mode="after")
    def _check_consistency(self) -> Retry:
        if self.any is not None and (self.failures or self.interruptions):
            text = "retry takes either any, or failures and interruptions"
            hint = "any counts both together; failures and interruptions count each apart"
            raise problem("GF128", text, hint, at=("any",))
        for name in ("final_exit_codes", "retryable_exit_codes"):
            for index, code in enumerate(getattr(self, name) or ()):
                at = (name, index)
                if not 1 <= code <= 255:
                    raise problem("GF158", f"{code} is not an exit code of a failure", "use 1 to 255", at=at)
                if code in (75, 78, 79):
                    text = f"the exit code {code} belongs to gpuflow's supervisor"
                    raise problem("GF158", text, "use another", at=at)
        both = set(self.final_exit_codes) & set(self.retryable_exit_codes or ())
        if both:
            raise problem("GF158", f"the exit code {min(both)} is both final and retryable", "keep it in one list")
        return self


class Checkpoint(Model):
    """Where the program writes its checkpoints and where they are kept, so that an interrupted step can resume."""

    path: MountPath
    """The directory in the container the program saves to and resumes from."""
    store: TextField
    """Where they are kept: s3://…, gs://…, az://…, or an absolute path on a mounted claim."""
    every: Any = "auto"
    """How often to keep a checkpoint: a duration, or auto (computed from save time and interruption rate)."""
    keep: Count = 2
    """How many to keep."""
    grace: DurationField | None = None
    """Time the program needs to save after SIGTERM."""
    resume_env: EnvName | None = None
    """An extra environment variable with the checkpoint to resume from, for programs that expect their own."""
    scratch: QuantityField | None = None
    """The most that `path` may hold on the node's disk, if no volume is mounted there. It is requested as ephemeral
    storage."""
    sharded: Bool = False
    """In a gang: every rank writes a part of each checkpoint (FSDP), and all parts are kept as one."""

    @model_validator(mode="after")
    def _interval(self) -> Checkpoint:
        if self.every != "auto":
            try:
                every = str(Duration(self.every))
            except ValueError as refusal:
                raise problem("GF123", str(refusal), "or write auto", at=("every",)) from None
            object.__setattr__(self, "__dict__", {**self.__dict__, "every": every})
        return self


class Spot(Model, short="mode", form={"enum": ["never", "allow", "prefer", "require"]}):
    """Whether a step may run on spot nodes, which can be reclaimed."""

    mode: Literal["never", "allow", "prefer", "require"] = "never"
    """never, allow, prefer or require."""
    fallback_after: Count | None = None
    """After this many interruptions, run on on-demand nodes."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Spot:
        if self.fallback_after is not None and self.mode not in ("prefer", "require"):
            text = f"fallback_after has no meaning with spot: {self.mode}"
            raise problem("GF159", text, "use prefer or require", at=("fallback_after",))
        return self


class Priority(Model, short="pod", form={"type": "string"}):
    """Priority: which pods and workloads go first."""

    pod: ObjectName | None = None
    """A PriorityClass: the scheduler's order and preemption."""
    queue: ObjectName | None = None
    """A Kueue WorkloadPriorityClass: the order in the queue only."""


class Topology(Model):
    """How the pods of a gang or a fan-out are placed relative to each other. The site defines the labels."""

    same: Literal["node", "rack", "block", "zone"] | None = None
    """All on one of these."""
    spread: Literal["node", "rack", "block", "zone"] | None = None
    """Evenly over these."""

    @model_validator(mode="after")
    def _one_way(self) -> Topology:
        if (self.same is None) == (self.spread is None):
            raise problem("GF128", "topology takes exactly one of same, spread", "write same: … or spread: …")
        return self


class Toleration(Model):
    """A Kubernetes toleration."""

    key: Str | None = None
    """The taint's key; empty with operator Exists tolerates everything."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Exists ignores the value."""
    value: Str | None = None
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; default: all."""
    toleration_seconds: Integer | None = None
    """How long NoExecute is tolerated."""

    def manifest(self) -> dict[str, Any]:
        """As Kubernetes spells it."""
        named = {
            "key": self.key,
            "operator": self.operator,
            "value": self.value,
            "effect": self.effect,
            "tolerationSeconds": self.toleration_seconds,
        }
        return {key: value for key, value in named.items() if value is not None}


def check_resources(resources: Mapping[str, Quantity]) -> None:
    """Extended resources are those with a domain, and whole numbers."""
    for name, amount in resources.items():
        if "/" not in name or name.startswith("kubernetes.io/"):
            text = f'"{name}" is not an extended resource'
            raise problem("GF160", text, "use cpu, memory and ephemeral_storage of the step", at=("resources", name))
        if amount.nano % 10**9:
            text = f'{name} "{amount}" is not a whole number'
            raise problem("GF160", text, "Kubernetes counts these", at=("resources", name))


class Kubernetes(Model):
    """The escape hatch: Kubernetes fields for this cluster only. They may not work on another cluster."""

    resources: dict[LabelKey, QuantityField] = {}
    """Other extended resources, for example {rdma/hca: 1}."""
    node_selector: dict[LabelKey, LabelValue] = {}
    """Node labels the pod needs."""
    tolerations: tuple[Toleration, ...] = ()
    """The pod's tolerations."""
    affinity: dict[str, Any] | None = None
    """A Kubernetes affinity object, used unchanged."""
    scheduler: Str | None = None
    """schedulerName, for example volcano."""
    runtime_class: ObjectName | None = None
    """runtimeClassName."""
    host_ipc: Bool = False
    """hostIPC; violates the baseline Pod Security Standard."""
    host_network: Bool = False
    """hostNetwork; violates the baseline Pod Security Standard."""
    host_aliases: dict[IpAddress, tuple[Str, ...]] = {}
    """Lines of /etc/hosts: {10.0.0.7: [models.internal]}."""
    dns_policy: Literal["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"] | None = None
    """How names are looked up; default: ClusterFirst."""
    dns_config: DnsConfig | None = None
    """Name servers, search domains and options beside or instead of the cluster's."""
    topology_spread: tuple[TopologySpread, ...] = ()
    """topologySpreadConstraints, by node labels; `topology` does the same in the words of the site."""
    merge: dict[str, Any] | None = None
    """A strategic merge patch of the pod, in Kubernetes' own words: {metadata: {labels, annotations}, spec: {…}}."""

    @model_validator(mode="after")
    def _check_resources(self) -> Kubernetes:
        check_resources(self.resources)
        merge = None if self.merge is None else check_merge(self.merge)
        nodes = None if self.affinity is None else affinity(self.affinity)
        object.__setattr__(self, "__dict__", {**self.__dict__, "merge": merge, "affinity": nodes})
        return self
