"""What the API server looks at in a namespace, and its answer to each step of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuflow.cluster import Cluster, Manifest
from gpuflow.core.caching import content_of
from gpuflow.core.errors import Finding, GpuflowError, did_you_mean
from gpuflow.demands import Demand, StepDemand
from gpuflow.demands.stored import StoredObject, resource_of
from gpuflow.kubernetes.admission.decision import Admission, admit
from gpuflow.kubernetes.admission.quota import OLD_NAMES, POD_KEYS, Quota, read_quota
from gpuflow.quantity import Quantity

STANDARD: Final = frozenset(
    {*POD_KEYS, *OLD_NAMES, "persistentvolumeclaims", "requests.storage", "services.loadbalancers"}
    | {"services.nodeports"}
)
"""The keys without a slash that there are, huge pages apart."""


def standard_fault(key: str) -> str | None:
    """Why the API server refuses the key of a quota: one without a slash must be among those it knows."""
    if "/" in key or key in STANDARD or key.startswith(("hugepages-", "requests.hugepages-")):
        return None
    return f"is not a key of a quota; {did_you_mean(key, STANDARD) or 'see gpuflow explain GF403'}"


@dataclass(frozen=True, slots=True)
class StepAdmission:
    """One step before the API server: now, and with nothing else in the namespace."""

    step: StepDemand
    now: Admission
    ever: Admission
    shape: bytes
    """Equal for pods that the API server cannot tell apart."""


@dataclass(frozen=True, slots=True)
class NamespacePolicy:
    """What the API server looks at when a pod is created in a namespace."""

    quotas: tuple[tuple[Manifest, Quota], ...]
    limit_ranges: tuple[Mapping[str, Any], ...]
    priority_classes: list[Mapping[str, Any]] | None
    runtime_classes: list[Mapping[str, Any]] | None
    namespace: Mapping[str, Any]
    storage_classes: list[Mapping[str, Any]] | None = None
    brought_claims: tuple[Mapping[str, Any], ...] = ()
    """Those that the checked files create."""

    def admit_steps(self, steps: Iterable[StepDemand]) -> list[StepAdmission]:
        """Ask the API server's rules about every step's pod; of pods that differ in their commands only, about one."""
        known: dict[bytes, StepAdmission] = {}
        found = []
        for step in steps:
            metadata = {"name": step.object_name, **step.pod["metadata"]}
            first = known.get(shape := _shape(step))
            if first is not None and first.now.allowed and first.ever.allowed:
                found.append(StepAdmission(step, first.now.of_twin(metadata), first.ever.of_twin(metadata), shape))
                continue
            pod = {"metadata": metadata, "spec": step.pod["spec"]}
            known[shape] = one = StepAdmission(step, self.admit_now(pod), self.admit_alone(pod), shape)
            found.append(one)
        return found

    def admit_now(self, pod: Mapping[str, Any]) -> Admission:
        """What the API server says to a pod now."""
        return self._admit(pod, [quota for _, quota in self.quotas])

    def admit_alone(self, pod: Mapping[str, Any]) -> Admission:
        """What the API server says to a pod when nothing else runs in the namespace."""
        return self._admit(
            pod, [quota._replace(used=dict.fromkeys(quota.hard, Quantity.zero)) for _, quota in self.quotas]
        )

    def _admit(self, pod: Mapping[str, Any], quotas: Sequence[Quota]) -> Admission:
        return admit(
            pod,
            quotas=quotas,
            limit_ranges=self.limit_ranges,
            priority_classes=self.priority_classes,
            runtime_classes=self.runtime_classes,
            namespace=self.namespace,
        )


def namespace_policy(cluster: Cluster, namespace: str) -> NamespacePolicy:
    """The namespace's own objects and the cluster's classes; a manifest that cannot be read is an error."""
    quotas = tuple((item, _read_quota_item(item)) for item in cluster.of("ResourceQuota", namespace))
    claims = cluster.of("PersistentVolumeClaim", namespace)
    labels = next(
        (item.body for item in cluster.of("Namespace") if item.name == namespace), {"metadata": {"name": namespace}}
    )
    return NamespacePolicy(
        quotas,
        tuple(item.body for item in sorted(cluster.of("LimitRange", namespace), key=lambda each: each.name)),
        cluster.bodies("PriorityClass"),
        cluster.bodies("RuntimeClass"),
        labels,
        cluster.bodies("StorageClass"),
        tuple(item.body for item in claims if item.is_new and cluster.bodies(item.kind, namespace) is not None),
    )


def brought_objects(cluster: Cluster, namespace: str) -> Iterator[StoredObject]:
    """The objects of the files beside the workload, as quotas count them and webhooks look at them: one more at most,
    because one may be there unseen, or be that which a controller would make. Claims are counted with their sizes."""
    for item in cluster.objects:
        if item.is_new and item.namespace == namespace and item.kind != "PersistentVolumeClaim":
            name, labels = f"{item.kind} {item.name}", item.body["metadata"].get("labels")
            yield StoredObject(
                resource_of(item.kind), item.group, 0, 0, f"{name} comes with it", (0, 1), owner=name, where=item.where,
                by_controller=False, per_run=False, labels=labels if isinstance(labels, Mapping) else {},
            )  # fmt: skip


def _shape(step: StepDemand) -> bytes:
    """Everything of a pod that the API server may look at: all but its name, its labels and what its containers run."""
    pod = step.pod
    spec = dict(pod["spec"])
    for field in ("containers", "initContainers"):
        spec[field] = [
            {key: value for key, value in container.items() if key not in ("command", "args")}
            for container in spec.get(field, ())
        ]
    content = content_of((spec, pod["metadata"].get("annotations")))
    return step.object_name.encode() if content is None else content  # what has no bytes is like no other


def _read_quota_item(item: Manifest) -> Quota:
    try:
        return read_quota(item.body)
    except ValueError as refusal:
        raise GpuflowError(Finding("GF403", str(refusal), item.at_fault(refusal), "fix the manifest")) from None


def driver_admission(demand: Demand, policy: NamespacePolicy) -> Admission | None:
    """What the API server says to the pod that the engine runs before every step, when nothing else is there."""
    if demand.driver is None or not demand.steps:
        return None
    pod = demand.driver.pod
    # Several pipelines side by side have no name that an object could have.
    owner = demand.name.replace(" + ", "-")[:200]
    return policy.admit_alone({"metadata": {"name": f"{owner}-driver"}, "spec": pod["spec"]})
