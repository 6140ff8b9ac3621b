"""`gpuflow snapshot -o DIR`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuflow.cli.inputs import namespace_of
from gpuflow.cli.output import write_files
from gpuflow.cli.terminal import show_findings
from gpuflow.cluster.live import rbac, read_live
from gpuflow.cluster.model import Cluster
from gpuflow.emit import emit_all
from gpuflow.errors import Where, fail
from gpuflow.site import Site

EXAMPLE = """gpuflow snapshot -o cluster/ --namespace team-a
gpuflow snapshot --rbac --namespace team-a | kubectl apply -f -   # the least permissions it needs"""
NOISE = ("managedFields", "resourceVersion", "uid", "generation", "selfLink")
"""Metadata that changes without anything having changed; a committed snapshot should diff well."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="DIR", help="where to write the manifests")
    parser.add_argument("--namespace", metavar="NS", help="namespace; the site's when not given")
    parser.add_argument("--site", default="nvidia", metavar="FILE|PRESET", help="site that names the namespace")
    parser.add_argument("--context", help="context of the kubeconfig; the current one when not given")
    parser.add_argument(
        "--rbac", action="store_true", help="print the permissions that are needed, and do nothing else"
    )


def run(args: argparse.Namespace) -> int:
    namespace = namespace_of(args, Site.load(args.site))
    if args.rbac:
        sys.stdout.write(emit_all(rbac(namespace)))
        return 0
    if args.output is None:
        raise fail("GF903", "snapshot needs -o, the folder to write to", where=Where("gpuflow snapshot"))
    cluster, findings = read_live(namespace, args.context)
    files = snapshot_files(cluster)
    write_files({Path(args.output) / name: text for name, text in files.items()})
    show_findings(findings)
    sys.stdout.write(f"{len(cluster.objects)} objects of {len(files)} kinds written to {args.output}\n")
    return 0


def snapshot_files(cluster: Cluster) -> dict[str, str]:
    """One file per kind, objects by namespace and name: two snapshots of an unchanged cluster are equal."""
    kinds: dict[str, list[Any]] = {}
    for item in sorted(cluster.objects, key=lambda entry: (entry.kind, entry.namespace or "", entry.name)):
        kinds.setdefault(item.kind, []).append(_tidied(item.body))
    return {f"{kind.lower()}.yaml": emit_all(bodies) for kind, bodies in kinds.items()}


def _tidied(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in body.get("metadata", {}).items() if key not in NOISE}
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key != "kubectl.kubernetes.io/last-applied-configuration"
    }
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    tidy: dict[str, Any] = {**body, "metadata": metadata}
    if body.get("kind") == "Pod":
        return _without_values(tidy)
    if body.get("kind") == "Node":
        tidy["status"] = {
            key: value for key, value in body.get("status", {}).items() if key in ("allocatable", "capacity")
        }
    return tidy


def _without_values(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod without commands and environment: they may hold secrets, and admission does not look at them."""
    spec = dict(pod.get("spec", {}))
    for field in ("containers", "initContainers", "ephemeralContainers"):
        if field in spec:
            spec[field] = [
                {key: value for key, value in container.items() if key not in ("command", "args", "env", "envFrom")}
                for container in spec[field]
            ]
    status = {key: value for key, value in pod.get("status", {}).items() if key in ("phase", "conditions", "reason")}
    return {**pod, "spec": spec, "status": status}
