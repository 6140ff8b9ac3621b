"""`gpuflow compile --fit CLUSTER`: pipelines with the cap that makes them fit a namespace's quotas."""

from __future__ import annotations

import argparse

from gpuflow.cli.inputs import namespace_of
from gpuflow.errors import Finding, Where, fail
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline


def fitted(args: argparse.Namespace, site: Site, pipelines: list[Pipeline]) -> list[tuple[Pipeline, dict[str, str]]]:
    """Every pipeline with its cap, and the reason for it as an option of its target; as they are without --fit."""
    if not args.fit:
        return [(pipeline, {}) for pipeline in pipelines]
    if args.target != "argo":
        raise fail(
            "GF903",
            f"--fit is for --target argo: {args.target} has no cap on all the pods of a run",
            where=Where("gpuflow compile"),
            hint="gpuflow check says which parallel is safe; set it where it counts",
        )
    # Imported here, because compiling without --fit needs nothing of the checker.
    from gpuflow.checker.snapshot.prepared import PreparedCluster
    from gpuflow.cluster import read_cluster
    from gpuflow.cluster.live import read_live
    from gpuflow.fit import Misfit, fit

    namespace = namespace_of(args, site)
    manifests = read_live(namespace) if args.fit == "live" else read_cluster(args.fit)
    cluster = PreparedCluster(manifests, namespace)
    found: list[tuple[Pipeline, dict[str, str]]] = []
    misfits: list[Finding] = []
    for pipeline in pipelines:
        try:
            one = fit(pipeline, site, cluster, namespace, args.target)
            found.append((one.pipeline, {"fit": one.reason}))
        except Misfit as refusal:
            misfits += refusal.findings
    if misfits:
        raise Misfit(misfits)
    return found
