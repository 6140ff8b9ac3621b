"""`gpuflow compile --fit CLUSTER`: pipelines with the cap that makes them fit a namespace's quotas."""

from __future__ import annotations

import argparse

from gpuflow.cli.inputs import namespace_of
from gpuflow.engines import facts_of
from gpuflow.errors import Finding, Where, fail
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import TARGETS
from gpuflow.targets.frame import Target


def add_fit(parser: argparse.ArgumentParser) -> None:
    """--fit."""
    parser.add_argument(
        "--fit",
        metavar="CLUSTER",
        help=f"{', '.join(_caps())}: limit the parallelism of the run so that it always fits the namespace's quotas "
        "(DIR|FILE|live)",
    )


def _caps() -> list[str]:
    """The targets whose `parallel` bounds all the pods of a run."""
    return [name for name in TARGETS if facts_of(name).caps_pods]


def fitted(
    args: argparse.Namespace, target: Target, site: Site, pipelines: list[Pipeline]
) -> list[tuple[Pipeline, tuple[str, ...]]]:
    """Every pipeline with its cap, and the reason for it as a line of the header; as they are without --fit."""
    if not args.fit:
        return [(pipeline, ()) for pipeline in pipelines]
    if not target.facts.caps_pods:
        raise fail(
            "GF903",
            f"--fit is for --target {' and '.join(_caps())}: {args.target} cannot limit all pods of a run",
            where=Where("gpuflow compile"),
            hint="gpuflow check prints a safe value for parallel; set it on the fan-outs",
        )
    # Imported here, because compiling without --fit needs nothing of the checker.
    from gpuflow.checker.snapshot.prepared import PreparedCluster
    from gpuflow.cluster import read_cluster
    from gpuflow.cluster.live import read_live
    from gpuflow.fit import Misfit, fit

    namespace = namespace_of(args, site)
    manifests = read_live(namespace) if args.fit == "live" else read_cluster(args.fit)
    cluster = PreparedCluster(manifests, namespace)
    found: list[tuple[Pipeline, tuple[str, ...]]] = []
    misfits: list[Finding] = []
    for pipeline in pipelines:
        try:
            one = fit(pipeline, site, cluster, namespace, args.target)
            found.append((one.pipeline, (one.reason,)))
        except Misfit as refusal:
            misfits += refusal.findings
    if misfits:
        raise Misfit(misfits)
    return found
