"""Which API group each kind belongs to, and which kinds can never hold a pod back.

A kind is only itself in its own group: Volcano's `Queue` is not Kueue's, and a `Node` of `foo/v1` is no node. What is
not listed here is foreign: it is carried by name, and never checked.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from gpuflow.cluster.spelling import nearest
from gpuflow.errors import did_you_mean

KUEUE: Final = "kueue.x-k8s.io"
KUEUE_CONFIG: Final = "config.kueue.x-k8s.io"
RESOURCE: Final = "resource.k8s.io"
"""Dynamic resource allocation."""

MODELED: Final[dict[str, str]] = {
    "": "Namespace Node PersistentVolume PersistentVolumeClaim Pod ResourceQuota LimitRange ServiceAccount",
    "apps": "DaemonSet",
    "scheduling.k8s.io": "PriorityClass",
    "node.k8s.io": "RuntimeClass",
    "policy": "PodDisruptionBudget",
    RESOURCE: "DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice",
    "storage.k8s.io": "CSIDriver CSINode CSIStorageCapacity StorageClass",
    KUEUE: "AdmissionCheck ClusterQueue Cohort LocalQueue ResourceFlavor Topology Workload WorkloadPriorityClass",
    KUEUE_CONFIG: "Configuration",
}
"""The kinds that a check reads, by API group."""

HARMLESS_BY_GROUP: Final[dict[str, str]] = {
    "": "Binding ComponentStatus ConfigMap Endpoints Event PodTemplate ReplicationController Secret Service",
    "apps": "ControllerRevision Deployment ReplicaSet StatefulSet",
    "batch": "CronJob Job",
    "apiextensions.k8s.io": "CustomResourceDefinition",
    "apiregistration.k8s.io": "APIService",
    "autoscaling": "HorizontalPodAutoscaler Scale",
    "certificates.k8s.io": "CertificateSigningRequest",
    "coordination.k8s.io": "Lease",
    "discovery.k8s.io": "EndpointSlice",
    "events.k8s.io": "Event",
    "flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
    "networking.k8s.io": "Ingress IngressClass IPAddress NetworkPolicy ServiceCIDR",
    "policy": "Eviction",
    "storage.k8s.io": "VolumeAttachment",
    "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding Role RoleBinding",
    # They say how an AdmissionCheck works, and are nothing without one.
    KUEUE: "MultiKueueCluster MultiKueueConfig ProvisioningRequestConfig",
    # What starts pods of its own. It may grow, which no verdict speaks of; it does not hold others back.
    "argoproj.io": (
        "AppProject Application ApplicationSet ClusterWorkflowTemplate CronWorkflow EventBus EventSource Sensor "
        "Workflow WorkflowTemplate"
    ),
    "jobset.x-k8s.io": "JobSet",
    "kubeflow.org": "JAXJob MPIJob PaddleJob PyTorchJob TFJob XGBoostJob",
    "leaderworkerset.x-k8s.io": "LeaderWorkerSet",
    "ray.io": "RayCluster RayJob RayService",
    "sparkoperator.k8s.io": "ScheduledSparkApplication SparkApplication",
    "tekton.dev": "Pipeline PipelineRun Task TaskRun",
    "trainer.kubeflow.org": "ClusterTrainingRuntime TrainJob TrainingRuntime",
    "workload.codeflare.dev": "AppWrapper",
    # What a cluster is kept with: deployment, certificates, secrets, monitoring, networks, storage, drivers of GPUs.
    "bitnami.com": "SealedSecret",
    "cert-manager.io": "Certificate CertificateRequest ClusterIssuer Issuer",
    "external-secrets.io": "ClusterExternalSecret ClusterSecretStore ExternalSecret SecretStore",
    "gateway.networking.k8s.io": "GRPCRoute Gateway GatewayClass HTTPRoute ReferenceGrant",
    "helm.toolkit.fluxcd.io": "HelmRelease",
    "keda.sh": "ScaledJob ScaledObject TriggerAuthentication",
    "kustomize.toolkit.fluxcd.io": "Kustomization",
    "metrics.k8s.io": "NodeMetrics PodMetrics",
    "monitoring.coreos.com": "Alertmanager PodMonitor Probe Prometheus PrometheusRule ServiceMonitor",
    "networking.istio.io": "DestinationRule Gateway ServiceEntry VirtualService",
    "nfd.k8s-sigs.io": "NodeFeature NodeFeatureRule",
    "nvidia.com": "ClusterPolicy NVIDIADriver",
    "security.istio.io": "AuthorizationPolicy PeerAuthentication RequestAuthentication",
    "snapshot.storage.k8s.io": "VolumeSnapshot VolumeSnapshotClass VolumeSnapshotContent",
    "source.toolkit.fluxcd.io": "Bucket GitRepository HelmRepository OCIRepository",
}
"""Kinds that a check need not read, because none of them can keep a pod from being admitted, by API group."""

VERSIONS: Final[dict[str, tuple[str, ...]]] = {
    "": ("v1",),
    "apps": ("v1",),
    "scheduling.k8s.io": ("v1",),
    "node.k8s.io": ("v1",),
    "policy": ("v1",),
    RESOURCE: ("v1", "v1beta2", "v1beta1"),
    "storage.k8s.io": ("v1",),
    KUEUE: ("v1beta2", "v1beta1", "v1alpha1"),
    KUEUE_CONFIG: ("v1beta2", "v1beta1"),
}
"""The versions in which modeled kinds are understood, the newest first."""

ALPHA: Final = ("Cohort", "Topology")
"""The kinds of Kueue that are read the same in v1alpha1."""

NATIVE: Final = frozenset((kind, group) for group, kinds in MODELED.items() for kind in kinds.split())
HARMLESS: Final = frozenset((kind, group) for group, kinds in HARMLESS_BY_GROUP.items() for kind in kinds.split())
HOME: Final[dict[str, str]] = dict(sorted(HARMLESS) + sorted(NATIVE))
"""The group that is meant when only the kind is given."""

NAMESPACED: Final = (
    "CSIStorageCapacity", "DaemonSet", "LimitRange", "LocalQueue", "PersistentVolumeClaim", "Pod",
    "PodDisruptionBudget", "ResourceClaim", "ResourceClaimTemplate", "ResourceQuota", "ServiceAccount", "Workload",
)  # fmt: skip
"""Modeled kinds whose objects live in a namespace."""

CLOSED: Final = (*MODELED, "apps", "batch")
"""Groups in which a kind that is not known, yet spelled like one that is, is a slip of the pen."""

NEWCOMERS: Final = {("Workload", "scheduling.k8s.io")}
"""Kinds of these groups that share their name with another."""


class Slip(NamedTuple):
    """Why an apiVersion and kind cannot belong together, and what was probably meant."""

    message: str
    hint: str | None


@lru_cache(maxsize=4096)
def is_at_home(kind: str, api_version: str) -> bool:
    """Whether the kind, in this group and version, is the one that gpuflow knows by that name."""
    group, _, version = api_version.rpartition("/")
    if (kind, group) not in NATIVE:
        return (kind, group) in HARMLESS
    return version in VERSIONS[group] and (version != "v1alpha1" or kind in ALPHA)


@lru_cache(maxsize=4096)
def title(kind: str, api_version: str) -> str:
    """What to call a kind: its bare name where that says enough, else with the apiVersion it came with."""
    return kind if is_at_home(kind, api_version) else f"{kind} ({api_version})"


def slip(kind: str, api_version: str) -> Slip | None:
    """A kind that its API group does not have, as far as that can be known: misspelled, or in the wrong group."""
    group = api_version.rpartition("/")[0]
    if group not in CLOSED or (kind, group) in NATIVE | HARMLESS | NEWCOMERS:
        return None
    message, home = f"{api_version} has no kind {kind}", HOME.get(kind)
    if home is not None:
        best = "v1" if home == "" else f"{home}/{VERSIONS[home][0]}" if home in VERSIONS else None
        return Slip(message, f"write apiVersion: {best}" if best else f"{kind} is of the group {home}")
    here = [name for name, place in NATIVE | HARMLESS if place == group]
    near = nearest(kind, here)
    if near is not None or group == "":
        return Slip(message, f'did you mean "{near}"?' if near else did_you_mean(kind, here))
    return None
