"""Whole pipelines on small clusters, with nodes and queues written in a line or two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuflow.checker.report import LimitLine, Report
from gpuflow.checker.run import check
from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.fields import SHAPES, keep_checked_fields
from gpuflow.cluster.tenants import without_tenants
from gpuflow.core.errors import Where
from gpuflow.demands import Demand, demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.assumed import ASSUMED
from tests.checker.kueue import scenes as kueue

Body = dict[str, Any]
HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i, cpu: 1, memory: 1Gi}\n"
NAMESPACE = kueue.NAMESPACE
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
HOME = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def manifest(body: Body) -> Manifest:
    metadata = body.get("metadata", {})
    group = body["apiVersion"].rpartition("/")[0]
    where = Where("cluster.yaml", 1, 1)
    return Manifest(body["kind"], group, metadata.get("name", ""), metadata.get("namespace"), body, where)


def checked(
    text: str, *objects: Body, site: str | Site = "nvidia", engine: str = "none", runs: int | None = 1
) -> Report:
    """The report on a pipeline of one run, of several, or (None) of as many as overlap, in the scenes' namespace."""
    cluster = Cluster("cluster.yaml", tuple(map(manifest, (HOME, *objects))), assumed=ASSUMED)
    pipeline = loads(HEAD + text, "p.yaml")
    demand = demand_of(pipeline, site if isinstance(site, Site) else Site.load(site), engine)
    report = check(demand, cluster, NAMESPACE, runs=runs)
    assert_a_snapshot_says_the_same(report, demand, cluster, runs)
    return report


def assert_a_snapshot_says_the_same(report: Report, demand: Demand, cluster: Cluster, runs: int | None = 1) -> None:
    """What a snapshot leaves out decides nothing: the same verdict, the same numbers, the same codes."""
    tidy = replace(cluster, namespaces=(NAMESPACE,), objects=tuple(map(as_listed, cluster.objects)))
    again = check(demand, replace(without_tenants(tidy), namespaces=cluster.namespaces), NAMESPACE, runs=runs)
    assert (again.verdict, again.scopes) == (report.verdict, report.scopes)
    # Steps that wait for the same pods share a finding, and in which order those are named is up to their names.
    assert {finding.code for finding in again.findings} == {finding.code for finding in report.findings}


def as_listed(item: Manifest) -> Manifest:
    """The object as a live cluster is read."""
    return (
        replace(item, body=keep_checked_fields(item.kind, item.body)) if item.is_known and item.kind in SHAPES else item
    )


def node(name: str, gpu: int = 0, *, cpu: str = "64", memory: str = "512Gi", pods: int = 110, **more: Any) -> Body:
    """A node; with GPUs it is an A100 one. `more`: labels, taints, unschedulable, group (its maximum)."""
    labels = {**(A100 if gpu else {}), **more.get("labels", {})}
    annotations = {"gpuflow.dev/node-group-max": str(more["group"])} if "group" in more else {}
    amounts = {"cpu": cpu, "memory": memory, "pods": str(pods), **({"nvidia.com/gpu": str(gpu)} if gpu else {})}
    spec = {key: more[key] for key in ("taints", "unschedulable") if key in more}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": spec,
        "status": {"allocatable": {**amounts, **more.get("offers", {})}},
    }


def running(name: str, on: str, gpu: int = 0, **more: Any) -> Body:
    """A pod of somebody else that is bound to a node."""
    requests = {**({"nvidia.com/gpu": str(gpu)} if gpu else {}), **more.get("requests", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "others", "labels": more.get("labels", {})},
        "spec": {
            "nodeName": on,
            "containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}],
            **more.get("spec", {}),
        },
        "status": {"phase": "Running"},
    }


def queues(*quotas: kueue.Quotas, flavors: list[Body] | None = None, **spec: Any) -> list[Body]:
    """LocalQueue lq, its ClusterQueue cq, and the flavors it names."""
    names = dict.fromkeys(name for quota in quotas for name in quota)
    return [
        *([kueue.flavor(name) for name in names] if flavors is None else flavors),
        kueue.cluster_queue(*quotas, **spec),
        kueue.local_queue(),
    ]


def quota(gpu: int, cpu: str = "999", memory: str = "999Gi") -> dict[str, str]:
    return {"nvidia.com/gpu": str(gpu), "cpu": cpu, "memory": memory}


def codes(report: Report) -> list[str]:
    """The codes of the findings, without notes."""
    return [finding.code for finding in report.findings if finding.severity != "note"]


def line(report: Report, kind: str, resource: str) -> LimitLine:
    return next(scope for scope in report.scopes if scope.kind == kind and scope.resource == resource)


def text_of(report: Report, code: str) -> str:
    """All that the findings of a code say: message, hint and Kubernetes' own words."""
    return "\n".join(
        "\n".join(filter(None, (each.message, each.hint, each.kubernetes)))
        for each in report.findings
        if each.code == code
    )
