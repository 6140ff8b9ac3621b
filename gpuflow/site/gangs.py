"""Gangs in one cluster: the kind of object they are, who looks after them, and the network between their pods."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, model_validator

from gpuflow.runtime.gangs.kinds import WORDS, word_of
from gpuflow.spec.container import EnvField
from gpuflow.spec.model import Model, QuantityField, Str, problem
from gpuflow.spec.names import EnvName, LabelKey, ObjectName
from gpuflow.spec.policies import check_resources

GangWord = Literal["jobset", "trainjob", "pytorchjob", "mpijob", "volcano"]
SchedulerWord = Literal["volcano"]


def _kind(word: Any) -> Any:
    """A kind that gangs can be. Others are refused by name."""
    if not isinstance(word, str) or word in get_args(GangWord):
        return word
    hint = f"write one of {', '.join(get_args(GangWord))}"
    raise problem("GF408", f"a gang cannot be a {word[:60]!r}: gpuflow does not know it", hint)


def _scheduler(word: Any) -> Any:
    """A scheduler that knows gangs. Others are refused by name."""
    if not isinstance(word, str) or word in get_args(SchedulerWord):
        return word
    raise problem("GF416", *scheduler_problem("jobset", word))


def scheduler_problem(kind: str, scheduler: str) -> tuple[str, str]:
    """Why gangs of a kind cannot have a scheduler, and the way out."""
    if scheduler not in get_args(SchedulerWord):
        text = f"how {scheduler[:60]!r} schedules a gang, gpuflow does not know"
        return text, f"write {' or '.join(get_args(SchedulerWord))}, or name it in the step: kubernetes.scheduler"
    if kind == scheduler:
        text = f"{scheduler} schedules its own Jobs anyway: nothing is left for gangs.scheduler to say"
        return text, "remove gangs.scheduler, or write kind: jobset to have JobSets whose pods Volcano places"
    text = f"{scheduler} is for gangs that are a jobset; of a {kind} gpuflow makes no PodGroup"
    return text, "write kind: jobset, or remove gangs.scheduler"


class GangNetwork(Model):
    """What pods with GPUs get for the fast network between them, when they are ranks of a gang."""

    resources: dict[LabelKey, QuantityField] = {}
    """Devices of the network, for each pod: {rdma/hca: 8}, {vpc.amazonaws.com/efa: 32}. A step's own
    kubernetes.resources win."""
    capabilities: tuple[Str, ...] = ()
    """What the program may do beyond the restricted standard: [IPC_LOCK], to pin memory for RDMA."""
    env: dict[EnvName, EnvField] = {}
    """Variables such as NCCL_IB_HCA. The step's own win."""
    annotations: dict[LabelKey, Str] = {}
    """Annotations of the pod, such as k8s.v1.cni.cncf.io/networks. The step's own win."""
    shm: QuantityField | None = None
    """Size of /dev/shm where the step says none."""

    @model_validator(mode="after")
    def _check_resources(self) -> GangNetwork:
        check_resources(self.resources)
        return self


class Gangs(Model):
    """What gangs are in this cluster, and the small pods that look after them."""

    image: Str | None = None
    """An image with Python, and with gpuflow-run unless that is mounted; default: the image of the step."""
    service_account: ObjectName | None = None
    """The account that may create JobSets and read their pods; gpuflow site gang prints its Role."""
    kind: Annotated[GangWord, BeforeValidator(_kind)] = "jobset"
    """The kind of object that each attempt of a gang is: a JobSet, a TrainJob of Kubeflow Trainer, a PyTorchJob of
    Kubeflow's training operator, an MPIJob of its MPI operator, or a Job of Volcano."""
    scheduler: Annotated[SchedulerWord | None, BeforeValidator(_scheduler)] = None
    """Who places the pods of a JobSet, all of them or none, in queues of its own: volcano. Each attempt then has a
    PodGroup of Volcano's. Default: the cluster's scheduler, and queues of Kueue."""
    network: GangNetwork | None = None
    """The fast network between the ranks of a gang, said once for all of them."""

    @property
    def made_as(self) -> str:
        """The word for the kind with its scheduler, by which `gang_kinds` knows it."""
        return word_of(self.kind, self.scheduler)

    @model_validator(mode="after")
    def _check_scheduler(self) -> Gangs:
        if self.scheduler is not None and self.made_as not in WORDS:
            raise problem("GF416", *scheduler_problem(self.kind, self.scheduler), at=("scheduler",))
        return self
