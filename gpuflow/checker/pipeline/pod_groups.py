"""Pods of a pipeline that are identical to the scheduler and to queues: each group is checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuflow.checker.quota.namespace import NamespacePolicy, StepAdmission, driver_admission
from gpuflow.core.errors import list_names
from gpuflow.demands import Demand
from gpuflow.demands.model import StepDemand
from gpuflow.kubernetes.labels import QUEUE_LABEL, QUEUE_PRIORITY_LABEL, QUEUED_BY

Body = Mapping[str, Any]
KUEUE: Final = "kueue.x-k8s.io/"
CONTAINERS: Final = ("containers", "initContainers")
READ_CONTAINER_FIELDS: Final = ("resources", "ports", "restartPolicy", "restartPolicyRules")
"""What a container says that the scheduler, the kubelet's abilities or Kueue look at."""
UNREAD_POD_FIELDS: Final = (
    "activeDeadlineSeconds", "imagePullSecrets", "restartPolicy", "securityContext", "serviceAccountName",
    "terminationGracePeriodSeconds",
)  # fmt: skip
"""What a pod says that none of them looks at."""
POD_AFFINITIES: Final = frozenset({"podAffinity", "podAntiAffinity"})
NODELESS_VOLUMES: Final = ("emptyDir", "configMap", "secret", "projected", "downwardAPI")
"""Volumes that any node can mount."""


@dataclass(frozen=True, eq=False, slots=True)
class PodGroup:
    """Pods of some steps that nothing outside can tell apart."""

    pod: Body
    """As the API server stores it."""
    steps: tuple[str, ...]
    pods: int
    """How many make one copy of a step: more than one is a gang."""
    is_driver: bool = False
    """It is the engine's own pod that runs before the step's, never at the same time."""
    is_launcher: bool = False
    """It looks after a gang, whose pods come after it."""
    pod_set: str = "main"
    """What Kueue calls these pods in the workload that it makes of them."""

    @property
    def is_one(self) -> bool:
        """Whether a sentence about it speaks of one step, or of the driver."""
        return self.is_driver or len(self.steps) == 1

    @property
    def namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.pod["metadata"].get("labels", {})
        return labels


def pod_groups(
    demand: Demand, policy: NamespacePolicy, admissions: Sequence[StepAdmission], namespace: str, *, by_labels: bool
) -> list[PodGroup]:
    """The kinds among the steps' pods, in the order of the steps, and the engine's driver.

    `by_labels`: labels count too, because an affinity or a spread constraint selects by them.
    """
    found: dict[str, tuple[Body, list[str], StepDemand]] = {}
    for one in admissions:
        pod = _in_namespace(one.ever.pod, namespace)
        key = f"{one.step.pods} {_identity(pod, by_labels)}"
        found.setdefault(key, (pod, [], one.step))[1].append(one.step.name)
    groups = [
        PodGroup(pod, tuple(steps), first.pods, is_launcher=first.is_launcher, pod_set=_pod_set(first))
        for pod, steps, first in found.values()
    ]
    driver = driver_admission(demand, policy)
    if driver is not None:
        groups.append(
            PodGroup(
                _in_namespace(driver.pod, namespace),
                (*(one.step.name for one in admissions), *demand.drivers_beside),
                1,
                is_driver=True,
            )
        )
    return groups


def subject_of(*pod_groups: PodGroup) -> str:
    """What a sentence about these pods calls them."""
    steps = [step for pod_group in pod_groups if not pod_group.is_driver for step in pod_group.steps]
    driver = ["the engine's driver pod"] if any(pod_group.is_driver for pod_group in pod_groups) else []
    return " and ".join([*([list_names(steps)] if steps else []), *driver])


def _pod_set(step: StepDemand) -> str:
    """The name of its pods in a Workload: their own in that of an object, "main" in that of a single pod."""
    return step.pod_sets[0].name if QUEUED_BY in step.pod["metadata"].get("annotations", {}) else "main"


def _in_namespace(pod: Body, namespace: str) -> Body:
    return {**pod, "metadata": {**pod["metadata"], "namespace": namespace}}


def _identity(pod: Body, by_labels: bool) -> str:
    """Everything that decides where the pod goes and what it is charged, as text."""
    spec = {key: value for key, value in pod["spec"].items() if key not in UNREAD_POD_FIELDS}
    for field in CONTAINERS:
        spec[field] = [
            {key: container[key] for key in READ_CONTAINER_FIELDS if key in container}
            for container in spec.get(field) or ()
        ]
    spec["volumes"] = [
        volume for volume in spec.get("volumes") or () if not any(key in volume for key in NODELESS_VOLUMES)
    ]
    metadata = pod["metadata"]
    labels = metadata.get("labels", {})
    pod_affinity = POD_AFFINITIES & spec.get("affinity", {}).keys()
    if not (by_labels or pod_affinity or spec.get("topologySpreadConstraints")):
        labels = {key: labels[key] for key in (QUEUE_LABEL, QUEUE_PRIORITY_LABEL) if key in labels}
    wishes = {key: value for key, value in metadata.get("annotations", {}).items() if key.startswith(KUEUE)}
    return repr((labels, wishes, spec))
