"""`gpuflow snapshot -o DIR`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuflow.cli.inputs import add_live, namespace_of, namespace_text
from gpuflow.cli.output import write_files
from gpuflow.cli.terminal import print_text, put, show_findings
from gpuflow.cluster import live
from gpuflow.cluster.kinds import ALL, SOURCES, rbac
from gpuflow.cluster.manifests import RECORD
from gpuflow.cluster.model import Cluster
from gpuflow.cluster.tenants import without_tenants
from gpuflow.core.emit import emit, emit_all
from gpuflow.core.errors import Finding, Where, fail
from gpuflow.core.printable import json_text, line
from gpuflow.site import Site

EXAMPLE = """gpuflow snapshot -o cluster/ --namespace team-a
gpuflow snapshot -o cluster/ --namespace team-a,team-b
gpuflow snapshot -o cluster/ --all-namespaces
gpuflow snapshot --rbac --service-account gpuflow --namespace team-a | kubectl apply -f -   # the least it needs"""
RECORD_FILE = "snapshot.yaml"
MANY = 2_000
"""From so many objects on a kind is written as JSON, which is read forty times faster than YAML."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="DIR", help="where to write the manifests")
    where = parser.add_mutually_exclusive_group()
    help = "namespace, or several with commas between them; default: the site's"
    where.add_argument("--namespace", metavar="NS[,NS]", type=_namespaces, help=help)
    help = "every namespace, with the names of everybody's pods and workloads; the credentials must allow that"
    where.add_argument("-A", "--all-namespaces", action="store_true", help=help)
    parser.add_argument("--site", default="nvidia", metavar="FILE|PRESET", help="site that names the namespace")
    add_live(parser)
    parser.add_argument("--rbac", action="store_true", help="only print the permissions that a snapshot needs")
    help = "with --rbac: also print the service account and its bindings, ready to apply; it lives in the first of "
    help += "the namespaces, or as NAMESPACE/NAME says"
    parser.add_argument("--service-account", metavar="[NS/]NAME", help=help)


def run(args: argparse.Namespace) -> int:
    homes = [ALL] if args.all_namespaces else args.namespace or [namespace_of(args, Site.load(args.site))]
    if args.rbac:
        home, _, account = (args.service_account or "").rpartition("/")
        if account and not home and args.all_namespaces:
            text = f"--service-account {account}: with --all-namespaces, it is not said where it lives"
            raise fail("GF903", text, where=Where("gpuflow snapshot"), hint="write it as NAMESPACE/NAME")
        put(emit_all(rbac(homes, account or None, home or homes[0])))
        return 0
    if args.output is None:
        raise fail("GF903", "snapshot needs -o, the folder to write to", where=Where("gpuflow snapshot"))
    cluster = without_tenants(live.read_live(homes, args.context, kubeconfig=args.kubeconfig, timeout=args.timeout))
    folder, files = Path(args.output), snapshot_files(cluster)
    stale = _stale_files(folder, files)
    write_files({folder / name: text for name, text in files.items()}, folder=folder)
    for path in stale:
        path.unlink()
    show_findings(_unreadable_kinds(cluster))
    print_text(f"{len(cluster.objects)} objects of {len(files) - 1} kinds written to {line(args.output)}\n")
    return 0


def _namespaces(text: str) -> list[str]:
    return [namespace_text(each) for each in dict.fromkeys(text.split(","))]


def _unreadable_kinds(cluster: Cluster) -> list[Finding]:
    hint = "what depends on them is unknown to a check; gpuflow snapshot --rbac prints the permissions it needs"
    return [
        Finding("GF413", f"{', '.join(kinds)} cannot be listed: {reason}", Where("live"), hint, severity="warning")
        for reason, kinds in cluster.unread_by_reason().items()
    ]


def snapshot_files(cluster: Cluster) -> dict[str, str]:
    """One file per kind, objects by namespace and name: two snapshots of an unchanged cluster are equal."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for item in sorted(cluster.objects, key=lambda entry: (entry.kind, entry.namespace or "", entry.name)):
        kinds.setdefault(item.kind, []).append(item.body)
    files = {RECORD_FILE: emit(_record(cluster))}
    for kind, bodies in kinds.items():
        name = kind.lower()
        if len(bodies) < MANY:
            files[f"{name}.yaml"] = emit_all(bodies)
        else:
            whole = {"apiVersion": "v1", "kind": "List", "items": bodies}
            files[f"{name}.json"] = json_text(whole, indent=0, sort_keys=True)
    return files


def _record(cluster: Cluster) -> dict[str, Any]:
    """What was listed, so that an empty kind is known to be empty and an unreadable one is recorded."""
    homes = list(cluster.namespaces or ())
    one = len(homes) == 1 and homes != [ALL]
    return {
        "apiVersion": "gpuflow/v1",
        "kind": RECORD,
        **({"namespace": homes[0]} if one else {"namespaces": homes}),
        "listed": sorted(cluster.listed),
        "labels": sorted(cluster.labels or ()),
        "unread": dict(sorted(cluster.unread.items())),
    }


def _stale_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Files of an earlier snapshot in the same folder that this one does not write."""
    if not (folder / RECORD_FILE).exists():
        return []
    kinds = [source.kind for source in SOURCES] + ["Configuration"]
    names = {f"{kind.lower()}{suffix}" for kind in kinds for suffix in (".yaml", ".json")} - files.keys()
    return sorted(folder / name for name in names if (folder / name).exists())
