"""Small scenes for the advice: a pipeline and a cluster as YAML text, and what is said about them."""

from __future__ import annotations

import yaml

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.cluster import Cluster, Manifest
from gpuflow.core.errors import Finding, Where
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.assumed import ASSUMED

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
SIZED = "defaults: {image: i, cpu: 1, memory: 1Gi}\n"
BARE = "defaults: {image: i}\n"


def told(
    pipeline: str,
    cluster: str = "",
    *,
    defaults: str = SIZED,
    site: str | Site = "nvidia",
    engine: str = "none",
    runs: int = 1,
) -> Report:
    """The report about steps in namespace `ns`; `---` stands between manifests."""
    home = site if isinstance(site, Site) else Site.load(site)
    demand = demand_of(loads(HEAD + defaults + pipeline, "p.yaml"), home, engine)
    return check(demand, Cluster("cluster.yaml", tuple(manifests(cluster)), assumed=ASSUMED), "ns", runs=runs)


def manifests(text: str) -> list[Manifest]:
    """Objects of a cluster, each in the place of the file it was read from."""
    return [
        Manifest(
            body["kind"],
            body["apiVersion"].rpartition("/")[0],
            body["metadata"]["name"],
            body["metadata"].get("namespace"),
            body,
            Where("cluster.yaml", 1, 1),
        )
        for body in yaml.safe_load_all(text)
        if body
    ]


def of(report: Report, code: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.code == code]


def only(report: Report, code: str) -> Finding:
    """The one finding of a code."""
    (finding,) = of(report, code)
    return finding


def quota(hard: dict[str, str], used: dict[str, str] | None = None, name: str = "q") -> str:
    status = {"hard": hard, "used": {**dict.fromkeys(hard, "0"), **(used or {})}}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard}}
    return "---\n" + yaml.safe_dump({**body, "status": status})


def limit_range(**item: object) -> str:
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [item]}}
    return "---\n" + yaml.safe_dump(body)


def node(name: str, product: str | None = None, **more: str) -> str:
    """A node of 8 cpu and 64Gi; keywords are other resources, `mig_` and `gpu` of NVIDIA."""
    labels = {} if product is None else {"nvidia.com/gpu.product": product}
    devices = {f"nvidia.com/{key.replace('mig_', 'mig-').replace('_', '.')}": value for key, value in more.items()}
    status = {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110", **devices}}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
    return "---\n" + yaml.safe_dump(body)


def queue(
    resources: dict[str, str],
    *,
    flavor_labels: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    selector: dict[str, object] | None = None,
    local: dict[str, object] | None = None,
    **spec: object,
) -> str:
    """LocalQueue `research` of a ClusterQueue `cq` with one flavor `f`."""
    kueue = "kueue.x-k8s.io/v1beta2"
    flavor = {"nodeLabels": flavor_labels or {}, "nodeTaints": taints or []}
    group = {
        "coveredResources": list(resources),
        "flavors": [
            {"name": "f", "resources": [{"name": key, "nominalQuota": value} for key, value in resources.items()]}
        ],
    }
    bodies = [
        {"apiVersion": kueue, "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": flavor},
        {
            "apiVersion": kueue,
            "kind": "LocalQueue",
            "metadata": {"name": "research", "namespace": "ns"},
            "spec": {"clusterQueue": "cq", **(local or {})},
        },
        {
            "apiVersion": kueue,
            "kind": "ClusterQueue",
            "metadata": {"name": "cq"},
            "spec": {"namespaceSelector": selector or {}, "resourceGroups": [group], **spec},
        },
    ]
    return "---\n" + yaml.safe_dump_all(bodies)
