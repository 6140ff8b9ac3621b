"""What is read of a live cluster, and the permissions that this needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuflow.cluster.kinds import KUEUE, RESOURCE

KUEUE_NAMESPACE = "kueue-system"
KUEUE_SETTINGS = "kueue-manager-config"
KUEUE_SETTINGS_KEY = "controller_manager_config.yaml"


@dataclass(frozen=True, slots=True)
class Source:
    """A list of objects the checker can use. Secrets are not among them, and never will be."""

    kind: str
    group: str
    versions: tuple[str, ...]
    """The newest first; the first that the cluster serves is taken."""
    plural: str
    namespaced: bool = False
    """Whether only the objects of one namespace are listed."""
    needed: bool = False
    """Without it no verdict is possible; the others only make it sharper."""
    fields: str = ""
    """A field selector: what it leaves out is of no use to a check."""

    def path(self, version: str, namespace: str) -> str:
        """The address of the list at the API server."""
        root = f"/apis/{self.group}/{version}" if self.group else f"/api/{version}"
        return f"{root}/namespaces/{namespace}/{self.plural}" if self.namespaced else f"{root}/{self.plural}"


_BETA = ("v1beta2", "v1beta1")
_ALPHA = (*_BETA, "v1alpha1")
_DRA = ("v1", "v1beta2", "v1beta1")
_ADMISSION = "admissionregistration.k8s.io"
SOURCES = (
    Source("ResourceQuota", "", ("v1",), "resourcequotas", namespaced=True, needed=True),
    Source("LimitRange", "", ("v1",), "limitranges", namespaced=True, needed=True),
    Source("PersistentVolumeClaim", "", ("v1",), "persistentvolumeclaims", namespaced=True),
    Source("ServiceAccount", "", ("v1",), "serviceaccounts", namespaced=True),
    Source("PodDisruptionBudget", "policy", ("v1",), "poddisruptionbudgets", namespaced=True),
    Source("ResourceClaimTemplate", RESOURCE, _DRA, "resourceclaimtemplates", namespaced=True),
    Source("Namespace", "", ("v1",), "namespaces"),
    Source("Node", "", ("v1",), "nodes"),
    Source("PersistentVolume", "", ("v1",), "persistentvolumes"),
    # Finished pods hold nothing; what still counts them, a quota says itself.
    Source("Pod", "", ("v1",), "pods", fields="status.phase!=Succeeded,status.phase!=Failed"),
    Source("PriorityClass", "scheduling.k8s.io", ("v1",), "priorityclasses"),
    Source("RuntimeClass", "node.k8s.io", ("v1",), "runtimeclasses"),
    # What every new node carries before a pipeline's pods come.
    Source("DaemonSet", "apps", ("v1",), "daemonsets"),
    Source("StorageClass", "storage.k8s.io", ("v1",), "storageclasses"),
    Source("CSIDriver", "storage.k8s.io", ("v1",), "csidrivers"),
    Source("CSINode", "storage.k8s.io", ("v1",), "csinodes"),
    Source("CSIStorageCapacity", "storage.k8s.io", ("v1",), "csistoragecapacities"),
    Source("DeviceClass", RESOURCE, _DRA, "deviceclasses"),
    Source("DeviceTaintRule", RESOURCE, ("v1beta2",), "devicetaintrules"),
    Source("ResourceSlice", RESOURCE, _DRA, "resourceslices"),
    # Of all namespaces: a device that another claim holds is taken.
    Source("ResourceClaim", RESOURCE, _DRA, "resourceclaims"),
    # Of all namespaces: they say in which ClusterQueue the Workloads of others wait.
    Source("LocalQueue", KUEUE, _BETA, "localqueues"),
    Source("AdmissionCheck", KUEUE, _BETA, "admissionchecks"),
    Source("ClusterQueue", KUEUE, _BETA, "clusterqueues"),
    Source("Cohort", KUEUE, _ALPHA, "cohorts"),
    Source("ResourceFlavor", KUEUE, _BETA, "resourceflavors"),
    Source("Topology", KUEUE, _ALPHA, "topologies"),
    Source("Workload", KUEUE, _BETA, "workloads"),
    Source("WorkloadPriorityClass", KUEUE, _BETA, "workloadpriorityclasses"),
    # Not modeled, and looked for so that they are not passed over in silence.
    Source("MutatingAdmissionPolicy", _ADMISSION, ("v1", "v1beta1"), "mutatingadmissionpolicies"),
    Source("MutatingAdmissionPolicyBinding", _ADMISSION, ("v1", "v1beta1"), "mutatingadmissionpolicybindings"),
    Source("MutatingWebhookConfiguration", _ADMISSION, ("v1",), "mutatingwebhookconfigurations"),
    Source("ValidatingAdmissionPolicy", _ADMISSION, ("v1",), "validatingadmissionpolicies"),
    Source("ValidatingAdmissionPolicyBinding", _ADMISSION, ("v1",), "validatingadmissionpolicybindings"),
    Source("ValidatingWebhookConfiguration", _ADMISSION, ("v1",), "validatingwebhookconfigurations"),
    Source("HierarchicalResourceQuota", "hnc.x-k8s.io", ("v1alpha2",), "hierarchicalresourcequotas"),
    Source("Queue", "scheduling.volcano.sh", ("v1beta1",), "queues"),
    Source("NodePool", "karpenter.sh", ("v1", "v1beta1"), "nodepools"),
)


def rbac(namespace: str, account: str | None = None, name: str = "gpuflow-reader") -> list[dict[str, Any]]:
    """The least permissions a snapshot needs: list, on these kinds, and Kueue's configuration by its name.

    With an account, also the account and what binds the permissions to it.
    """
    roles = [_role("Role", name, namespace), _role("ClusterRole", name, namespace)]
    roles[1]["rules"].append(
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [KUEUE_SETTINGS], "verbs": ["get"]}
    )
    if account is None:
        return roles
    metadata = {"name": account, "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        *roles,
        _binding("RoleBinding", {"name": name, "namespace": namespace}, "Role", name, metadata),
        # Several namespaces may have their reader, and bindings of a cluster share one name space.
        _binding("ClusterRoleBinding", {"name": f"{name}-{namespace}"}, "ClusterRole", name, metadata),
    ]


def _role(kind: str, name: str, namespace: str) -> dict[str, Any]:
    namespaced = kind == "Role"
    groups: dict[str, list[str]] = {}
    for source in SOURCES:
        if source.namespaced == namespaced:
            groups.setdefault(source.group, []).append(source.plural)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **({"namespace": namespace} if namespaced else {})},
        "rules": [
            {"apiGroups": [group], "resources": sorted(plurals), "verbs": ["list"]} for group, plurals in groups.items()
        ],
    }


def _binding(kind: str, metadata: dict[str, str], role: str, name: str, account: dict[str, str]) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": role, "name": name},
        "subjects": [{"kind": "ServiceAccount", **account}],
    }
