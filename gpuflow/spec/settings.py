"""What a step says of its pod, and a pipeline's `defaults` may say for all steps."""

from __future__ import annotations

from typing import Annotated, Literal

from gpuflow.spec.container import EnvField, EnvFrom, PullPolicy, Security
from gpuflow.spec.model import NOTHING, Bool, DurationField, Model, Once, QuantityField, Str, TimeLimit
from gpuflow.spec.names import EnvName, LabelKey, LabelValue, MountPath, ObjectName, PodLabelKey
from gpuflow.spec.policies import Kubernetes, Priority, Retry, Spot, Topology
from gpuflow.spec.resources import Amount
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
