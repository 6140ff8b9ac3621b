"""The front door for Python: `gpuflow.compile`, `gpuflow.demand`, `gpuflow.check` and `gpuflow.gpus`.

Each takes what you have: a path, or the value itself. Bad input raises `gpuflow.GpuflowError` with findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from gpuflow import catalog
from gpuflow.checker.report import Report
from gpuflow.checker.run import check as check_demand
from gpuflow.checker.snapshot.prepared import PreparedCluster
from gpuflow.cluster import Cluster, cluster_of, read_cluster
from gpuflow.cluster.live import read_live
from gpuflow.demands import Demand, demand_of
from gpuflow.engines import NO_ENGINE, facts_of
from gpuflow.errors import Where, did_you_mean, fail
from gpuflow.quantity import Quantity
from gpuflow.site import Site
from gpuflow.spec.loading import load
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import load_target
from gpuflow.targets.frame import Compiled, Request, Target, compile_with, findings_of

LIVE = "live"
GIB = 2**30


def compile(
    pipeline: Pipeline | str | Path,
    target: str,
    *,
    site: Site | str | Path = "nvidia",
    namespace: str | None = None,
    allow_lossy: bool = False,
    **options: Any,
) -> Compiled:
    """The files of a pipeline for one engine. Nothing is written: `.text` is the pipeline, `.artifacts` all files.

    `options` are the target's own: `kind="CronWorkflow"` for argo, `standalone=True` for airflow.
    """
    engine = load_target(target)
    source, place = _pipeline(pipeline), _site(site)
    shown = Path(source.source.file).name if source.source.file else source.name
    request = Request(
        source, place, namespace or place.namespace, shown, options=_options(engine, options) if options else None
    )
    compiled = compile_with(engine, request, allow_lossy=allow_lossy)
    return replace(compiled, findings=tuple(findings_of(engine, request, compiled)))


def demand(pipeline: Pipeline | str | Path, *, site: Site | str | Path = "nvidia", engine: str = NO_ENGINE) -> Demand:
    """What a pipeline asks of a cluster: its pods, and its peak per quota key. With an engine, its own pods too."""
    facts_of(engine)
    return demand_of(_pipeline(pipeline), _site(site), engine)


def check(
    pipeline: Pipeline | Demand | str | Path,
    cluster: Cluster | PreparedCluster | Iterable[Mapping[str, Any]] | str | Path,
    *,
    namespace: str | None = None,
    site: Site | str | Path = "nvidia",
    engine: str = NO_ENGINE,
    runs: int = 1,
) -> Report:
    """Whether the cluster admits the pipeline: always, after queueing, never, or unknown; and why.

    `cluster` is a folder or file of manifests, the manifests themselves, or "live". A demand is checked as it is,
    whoever made it: `site` and `engine` are then its own.
    """
    if runs < 1:
        raise fail("GF903", f"runs={runs} is below 1", where=Where("gpuflow.check"))
    place = None if isinstance(pipeline, Demand) else _site(site)
    name = namespace or (None if place is None else place.namespace)
    if name is None:
        where = Where("gpuflow.check")
        raise fail("GF904", "no namespace is given", where=where, hint="pass namespace=, or set namespace in the site")
    asked = pipeline if isinstance(pipeline, Demand) else demand(pipeline, site=place or site, engine=engine)
    return check_demand(asked, _cluster(cluster, name), name, runs=runs)


def gpus(
    text: str | None = None,
    *,
    memory: str | Quantity | None = None,
    mig: bool | None = None,
    family: str | None = None,
) -> tuple[catalog.Model, ...]:
    """The GPU models of the catalog that match: `gpus("a100")`, `gpus(memory="40Gi", mig=True)`."""
    least = None if memory is None else float(Quantity(str(memory)).value) / GIB
    return catalog.find_models(text, memory_gib=least, mig=mig, family=family)


def _pipeline(given: Pipeline | str | Path) -> Pipeline:
    return given if isinstance(given, Pipeline) else load(str(given))


def _site(given: Site | str | Path) -> Site:
    return given if isinstance(given, Site) else Site.load(str(given))


def _cluster(
    given: Cluster | PreparedCluster | Iterable[Mapping[str, Any]] | str | Path, namespace: str
) -> Cluster | PreparedCluster:
    if isinstance(given, Cluster | PreparedCluster):
        return given
    if given == LIVE:
        return read_live(namespace)
    return read_cluster(str(given)) if isinstance(given, str | Path) else cluster_of(given)


def _options(target: Target, given: Mapping[str, Any]) -> Any:
    """The target's options, or one message that names the ones it has."""
    known = [field.name for field in fields(target.options)]
    unknown = sorted(set(given) - set(known))
    if unknown:
        text = f"{target.name} has no option {unknown[0]}"
        known_ones = f"it has {', '.join(known)}" if known else "it has none"
        raise fail("GF903", text, where=Where("gpuflow.compile"), hint=did_you_mean(unknown[0], known) or known_ones)
    return target.options(**given)
