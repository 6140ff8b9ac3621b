"""A cluster read live, and only read. The one place that imports the Kubernetes client."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuflow.cluster.model import Cluster, Manifest
from gpuflow.errors import Finding, SurroundingsError, Where

PAGE = 500


@dataclass(frozen=True, slots=True)
class Source:
    """A list of objects the checker can use. Secrets are not among them, and never will be."""

    kind: str
    group: str
    """API group with version, as in `apiVersion`."""
    plural: str
    namespaced: bool
    needed: bool
    """Without it no verdict is possible; the others only make it sharper."""

    def path(self, namespace: str) -> str:
        root = f"/apis/{self.group}" if "/" in self.group else f"/api/{self.group}"
        inside = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{root}{inside}/{self.plural}"


SOURCES = (
    Source("ResourceQuota", "v1", "resourcequotas", True, True),
    Source("LimitRange", "v1", "limitranges", True, True),
    Source("Namespace", "v1", "namespaces", False, False),
    Source("Pod", "v1", "pods", False, False),
    Source("Node", "v1", "nodes", False, False),
    Source("PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", False, False),
    Source("RuntimeClass", "node.k8s.io/v1", "runtimeclasses", False, False),
    Source("StorageClass", "storage.k8s.io/v1", "storageclasses", False, False),
    Source("ClusterQueue", "kueue.x-k8s.io/v1beta2", "clusterqueues", False, False),
    Source("LocalQueue", "kueue.x-k8s.io/v1beta2", "localqueues", True, False),
    Source("Cohort", "kueue.x-k8s.io/v1beta2", "cohorts", False, False),
    Source("ResourceFlavor", "kueue.x-k8s.io/v1beta2", "resourceflavors", False, False),
    Source("WorkloadPriorityClass", "kueue.x-k8s.io/v1beta2", "workloadpriorityclasses", False, False),
    Source("Workload", "kueue.x-k8s.io/v1beta2", "workloads", False, False),
    Source("Topology", "kueue.x-k8s.io/v1beta2", "topologies", False, False),
    Source("AdmissionCheck", "kueue.x-k8s.io/v1beta2", "admissionchecks", False, False),
)


def rbac(namespace: str, name: str = "gpuflow-reader") -> list[dict[str, Any]]:
    """The least permissions a snapshot needs: list, on these kinds, nothing else."""
    roles = []
    for kind, namespaced in (("Role", True), ("ClusterRole", False)):
        rules: dict[str, list[str]] = {}
        for source in SOURCES:
            if source.namespaced == namespaced:
                group = source.group.rpartition("/")[0]
                rules.setdefault(group, []).append(source.plural)
        metadata = {"name": name, **({"namespace": namespace} if namespaced else {})}
        roles.append(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": kind,
                "metadata": metadata,
                "rules": [
                    {"apiGroups": [group], "resources": plurals, "verbs": ["list"]} for group, plurals in rules.items()
                ],
            }
        )
    return roles


class Reader:
    """Lists objects through the Kubernetes client."""

    def __init__(self, context: str | None = None) -> None:
        try:
            from kubernetes import client, config
        except ModuleNotFoundError:
            raise SurroundingsError(
                Finding(
                    "GF901",
                    "reading a live cluster needs the package kubernetes",
                    Where("live"),
                    'python -m pip install "gpuflow[cluster]"',
                )
            ) from None
        try:
            if context is None and "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config()
            else:
                config.load_kube_config(context=context)
        except Exception as refusal:  # the client raises many kinds of errors for a missing or broken kubeconfig
            words = str(refusal).strip().splitlines()
            raise SurroundingsError(
                Finding(
                    "GF411",
                    f"the kubeconfig cannot be used: {words[0] if words else type(refusal).__name__}",
                    Where("live"),
                    "set KUBECONFIG, or name a context with --context",
                )
            ) from None
        self._client: Any = client.ApiClient()
        self._refused: type[Exception] = client.exceptions.ApiException

    def list(self, source: Source, namespace: str) -> tuple[list[Mapping[str, Any]] | None, str | None]:
        """The objects, or None and why they cannot be listed."""
        items: list[Mapping[str, Any]] = []
        token: str | None = None
        while True:
            query = [("limit", PAGE)] + ([("continue", token)] if token else [])
            try:
                page = self._get(source.path(namespace), query)
            except self._refused as refusal:
                status = getattr(refusal, "status", None)
                if status == 404:
                    return None, None  # this cluster does not have the kind
                return None, f"{status} {getattr(refusal, 'reason', '')}".strip()
            except Exception as refusal:  # no route, a bad certificate, a time-out: all of them mean "not reachable"
                words = str(refusal).strip().splitlines()
                raise SurroundingsError(
                    Finding(
                        "GF412",
                        f"the cluster does not answer: {words[0] if words else type(refusal).__name__}",
                        Where("live"),
                        "check the network and the context",
                    )
                ) from None
            items += page.get("items", [])
            token = page.get("metadata", {}).get("continue")
            if not token:
                return items, None

    def _get(self, path: str, query: Any) -> dict[str, Any]:
        response = self._client.call_api(
            path,
            "GET",
            query_params=query,
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
            response_type="object",
            _preload_content=False,
            _request_timeout=(10, 60),
            _return_http_data_only=True,
        )
        page: dict[str, Any] = json.loads(response.data)
        return page


def read_live(
    namespace: str, context: str | None = None, reader: Reader | None = None
) -> tuple[Cluster, list[Finding]]:
    """The cluster as it is now, and a finding for each kind that may not be listed."""
    source = reader or Reader(context)
    objects: list[Manifest] = []
    findings: list[Finding] = []
    for wanted in SOURCES:
        items, reason = source.list(wanted, namespace)
        if reason is not None:
            findings.append(_unreadable(wanted, reason))
        objects += _manifests(items or [], wanted)
    refused = [finding for finding in findings if finding.severity == "error"]
    if refused:
        raise SurroundingsError(refused)
    return Cluster(f"live {context or 'cluster'}", tuple(objects)), findings


def _unreadable(source: Source, reason: str) -> Finding:
    return Finding(
        "GF413",
        f"{source.plural} cannot be listed: {reason}",
        Where("live"),
        "gpuflow snapshot --rbac prints the permissions that are needed",
        severity="error" if source.needed else "warning",
    )


def _manifests(items: list[Mapping[str, Any]], source: Source) -> Iterator[Manifest]:
    for item in items:
        metadata = item.get("metadata", {})
        body = {"apiVersion": source.group, "kind": source.kind, **item}
        group = source.group.rpartition("/")[0]
        yield Manifest(source.kind, group, metadata.get("name", ""), metadata.get("namespace"), body, Where("live"))
