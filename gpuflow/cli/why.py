"""`gpuflow why KIND/NAME`."""

from __future__ import annotations

import argparse

from gpuflow.checker.snapshot.validation import PreparedCluster
from gpuflow.cli.inputs import add_live, add_namespace, cluster_at, namespace_of, read_site
from gpuflow.cli.terminal import paint, print_text, show_json
from gpuflow.cluster import Cluster
from gpuflow.cluster.api_server import Reader
from gpuflow.cluster.kinds import Source
from gpuflow.cluster.live import read_live
from gpuflow.core.printable import line
from gpuflow.why import Answer, why
from gpuflow.why.answer import find_in, not_found, read_subject, with_live

EXAMPLE = """gpuflow why pod/train-0 --namespace team-a
gpuflow why workflow/nightly-x7k2p --namespace team-a
gpuflow why workload/job-train-3f1c2 --namespace team-a --cluster cluster/   # a dump, or a snapshot"""
COLORS = {"never": "red", "unknown": "yellow", "waits": "yellow", "starts": "green", "runs": "green", "ended": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("object", metavar="KIND/NAME", help="pod/NAME, workload/NAME, workflow/NAME or job/NAME")
    help = "manifests of the cluster with their status; default: live"
    parser.add_argument("--cluster", default="live", metavar="DIR|FILE|live", help=help)
    parser.add_argument(
        "--site", default="nvidia", metavar="FILE|PRESET", help="site that names the namespace; default: nvidia"
    )
    add_namespace(parser)
    add_live(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    kind, name = read_subject(args.object)
    site = read_site(args)
    namespace = namespace_of(args, site)
    cluster = _cluster(args, kind, name, namespace)
    ready = PreparedCluster(cluster, namespace)
    if (body := find_in(ready.cluster, kind, name, namespace)) is None:
        raise not_found(cluster, kind, name, namespace)
    answer = why(kind, body, ready, site)
    if args.format == "json":
        show_json({**answer.document(), "as_of": cluster.source})
    else:
        print_text("\n".join(text(answer)) + "\n")
    return 1 if answer.state == "never" else 0


def _cluster(args: argparse.Namespace, kind: Source, name: str, namespace: str) -> Cluster:
    if args.cluster != "live":
        return cluster_at(args, namespace)
    reader = Reader(args.context, args.kubeconfig, args.timeout)
    cluster = read_live(namespace, args.context, reader)
    return with_live(cluster, reader, kind, name, namespace)


def text(answer: Answer, depth: int = 0) -> list[str]:
    """The answer for a person: what it is, what keeps it, what would let it start."""
    pad = "  " * depth
    state = paint(answer.state, COLORS[answer.state])
    lines = [f"{pad}{paint(line(answer.subject), 'bold')}: {state}: {line(answer.summary)}"]
    for cause in answer.causes:
        if cause.message != answer.summary:
            lines.append(f"{pad}  {line(cause.message)}")
        lines += [f"{pad}    starts when {line(each)}" for each in cause.starts_when]
        if cause.kubernetes:
            lines.append(f"{pad}    {paint(line(cause.kubernetes), 'dim')}")
    for part in answer.parts:
        lines += text(part, depth + 1)
    return lines
