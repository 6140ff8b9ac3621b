"""The front door for Python: `gpuflow.compile`, `gpuflow.demand`, `gpuflow.check`, `gpuflow.submit` and
`gpuflow.gpus`.

Each takes what you have: a path, or the value itself. Bad input raises `gpuflow.GpuflowError` with findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from gpuflow import catalog
from gpuflow.checker.report import Report
from gpuflow.checker.run import check as check_demand
from gpuflow.checker.snapshot.prepared import PreparedCluster
from gpuflow.cluster import Cluster, Manifest, cluster_of, read_cluster
from gpuflow.cluster.kinds import TIMEOUT
from gpuflow.cluster.live import read_live
from gpuflow.core import gc_pause
from gpuflow.core.errors import GpuflowError, Unsound, Where, did_you_mean, fail
from gpuflow.demands import Demand, demand_of
from gpuflow.engines import NO_ENGINE, facts_of
from gpuflow.formats.contents import contents_of, is_ours
from gpuflow.formats.documents import STDIN
from gpuflow.kubernetes.admission.names import dns_label_faults
from gpuflow.quantity import Quantity
from gpuflow.readers import ForeignObject, PassiveObject, documents_of, foreign_in
from gpuflow.readers.interface import objects_brought_by, parameters_of
from gpuflow.site import Site
from gpuflow.spec.loading import load
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import load_target
from gpuflow.targets.target import (
    Compiled,
    Request,
    Target,
    compile_with,
    findings_beside_broken_rules,
    findings_of,
    flags_of,
)

if TYPE_CHECKING:
    from gpuflow.runs.model import RunState

LIVE = "live"
Documents: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A document of another tool as data, or several of them."""
GIB = 2**30


@gc_pause.gc_paused()
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
    _require_type("target", target, str)
    _require_namespace(namespace, "gpuflow.compile")
    engine = load_target(target)
    place = _site(site)
    source = _pipeline(pipeline, place, target)
    shown = Path(source.source.file).name if source.source.file else source.name
    request = Request(
        source, place, namespace or place.namespace, shown, options=_options(engine, options) if options else None
    )
    compiled = compile_with(engine, request, allow_lossy=allow_lossy)
    return replace(compiled, _explain=partial(findings_of, engine, request, compiled))


def demand(
    pipeline: Pipeline | Documents | str | Path,
    *,
    site: Site | str | Path = "nvidia",
    engine: str | None = None,
    params: Mapping[str, str] | None = None,
) -> Demand:
    """What a pipeline asks of a cluster: its pods, and its peak per quota key. With an engine, its own pods too.

    `engine=None` is the document's own engine: argo for a Workflow, kubeflow for a PipelineSpec, and none for a
    pipeline of gpuflow and for Kubernetes' kinds.

    `pipeline` may also be a document of Argo, Kubeflow or Kubernetes: its file, the document itself, or several of
    which one starts pods and the others are what it refers to. `params` are values of such a document's parameters.
    """
    return _demand(pipeline, site, engine, params)[0]


def _demand(
    pipeline: Pipeline | Documents | str | Path,
    site: Site | str | Path,
    engine: str | None,
    params: Mapping[str, str] | None = None,
    namespace: str | None = None,
) -> tuple[Demand, tuple[Manifest, ...]]:
    """The demand, and what the documents bring beside it."""
    _require_type("engine", engine, str, None)
    facts_of(engine or NO_ENGINE)
    place = _site(site)
    foreign = _foreign_objects(pipeline, namespace or place.namespace)
    if foreign:
        found = _foreign_demand(foreign, place, engine, dict(params or {}), namespace)
        return found, objects_brought_by(foreign[0].library.documents)
    if params:
        where, hint = Where("gpuflow.demand"), "a pipeline of gpuflow has its own values: Pipeline.params"
        raise fail("GF903", "params= is for documents of other tools", where=where, hint=hint)
    _require_type("pipeline", pipeline, Pipeline, str, Path)
    assert isinstance(pipeline, Pipeline | str | Path)
    return demand_of(_pipeline(pipeline, place, engine or NO_ENGINE), place, engine or NO_ENGINE), ()


def check(
    pipeline: Pipeline | Demand | Documents | str | Path,
    cluster: Cluster | PreparedCluster | Iterable[Mapping[str, Any]] | str | Path,
    *,
    namespace: str | None = None,
    site: Site | str | Path = "nvidia",
    engine: str | None = None,
    runs: int | None = None,
) -> Report:
    """Whether the cluster admits the pipeline: always, after queueing, never, or unknown; and why.

    `pipeline` is what `gpuflow.demand` takes, or a demand. `cluster` is a folder or file of manifests, the manifests
    themselves, or "live". A demand is checked as it is, whoever made it: `site` and `engine` are then its own. `runs`
    are active at the same time; `None`: as many as the engine lets overlap. A document's own `metadata.namespace` is
    its namespace; `namespace` is for documents that name none. What the documents bring beside (accounts, claims,
    quotas, queues) counts as part of the cluster.
    """
    _require_type("pipeline", pipeline, Pipeline, Demand, str, Path, Mapping, list, tuple)
    _require_type("engine", engine, str, None)
    _require_namespace(namespace, "gpuflow.check")
    if runs is not None:
        _require_type("runs", runs, int)
    if runs is not None and runs < 1:
        raise fail("GF903", f"runs={runs} is below 1", where=Where("gpuflow.check"))
    if isinstance(pipeline, Demand) and engine not in (None, NO_ENGINE, pipeline.engine):
        text = f"engine={engine!r} has no effect: the demand is for {pipeline.engine!r}"
        raise fail("GF903", text, where=Where("gpuflow.check"), hint="make the demand for that engine")
    place = None if isinstance(pipeline, Demand) else _site(site)
    asked, brought = (
        (pipeline, ()) if isinstance(pipeline, Demand) else _demand(pipeline, place or site, engine, None, namespace)
    )
    if asked.namespace is not None and namespace not in (None, asked.namespace):
        text = f'{asked.kind} {asked.name} names the namespace "{asked.namespace}", and namespace= says "{namespace}"'
        raise fail("GF745", text, where=Where(asked.file), hint="leave namespace= out")
    default = namespace or (None if place is None else place.namespace)
    name = asked.namespace or default
    if name is None:
        where = Where("gpuflow.check")
        raise fail("GF904", "no namespace is given", where=where, hint="pass namespace=, or set namespace in the site")
    return check_demand(asked, _cluster(cluster, name, default, brought), name, runs=runs)


def submit(
    pipeline: Pipeline | str | Path,
    engine: str,
    *,
    params: Mapping[str, Any] | None = None,
    site: Site | str | Path = "nvidia",
    namespace: str | None = None,
    name: str | None = None,
    check: bool = True,
    apply: bool = False,
    allow_lossy: bool = False,
    context: str | None = None,
    kubeconfig: str | None = None,
    timeout: float = TIMEOUT,
    url: str | None = None,
) -> RunState:
    """Start one run of a pipeline on an engine: the run right after, with what there is to say in `.findings`.

    It is checked against the live cluster first, and never started where that says never. `name`: the same name twice
    is one run. `apply`: create what the run needs and the engine lacks. The others are as `gpuflow submit` has them.
    """
    from gpuflow.runs import Connection, client_of  # most who check start nothing
    from gpuflow.runs.start import Order, start

    _require_type("engine", engine, str)
    _require_namespace(namespace, "gpuflow.submit")
    place = _site(site)
    connection = Connection(namespace or place.namespace, context, kubeconfig, timeout, url)
    client = client_of(engine, connection)
    order = Order(dict(params or {}), name, check, apply, allow_lossy)
    plan, started, findings = start(client, connection, _pipeline(pipeline, place, engine), place, order)
    return replace(client.state(started.run, plan), findings=(*findings, *started.findings))


def gpus(
    text: str | None = None, *, memory: str | Quantity | None = None, mig: bool | None = None, family: str | None = None
) -> tuple[catalog.Model, ...]:
    """The GPU models of the catalog that match: `gpus("a100")`, `gpus(memory="40Gi", mig=True)`."""
    _require_type("text", text, str, None)
    _require_type("memory", memory, str, Quantity, None)
    _require_type("mig", mig, bool, None)
    _require_type("family", family, str, None)
    try:
        least = None if memory is None else float(Quantity(str(memory)).value) / GIB
    except ValueError as fault:
        raise fail("GF121", f'"{memory}" is not a quantity: {fault}', where=Where("gpuflow.gpus")) from None
    return catalog.find_models(text, memory_gib=least, mig=mig, family=family)


def _require_type(name: str, given: object, *kinds: type | None) -> None:
    """TypeError unless an argument is one of these; without it, the first line that uses it would raise something."""
    if not any(given is None if kind is None else isinstance(given, kind) for kind in kinds):
        wanted = " or ".join("None" if kind is None else kind.__name__ for kind in kinds)
        raise TypeError(f"{name} is a {type(given).__name__}; it must be {wanted}")


def _require_namespace(given: str | None, function: str) -> None:
    _require_type("namespace", given, str, None)
    if given is not None and (faults := dns_label_faults(given)):
        raise fail("GF903", f'"{given}" is not a namespace: it {faults[0]}', where=Where(function))


def _foreign_objects(given: Pipeline | Documents | str | Path, namespace: str | None) -> list[ForeignObject]:
    """The objects of other tools that start pods; empty if it is, or may be, a gpuflow pipeline."""
    if isinstance(given, str | Path):
        documents = contents_of(str(given)).documents if str(given) != STDIN else []
    elif isinstance(given, Mapping | list | tuple):
        documents = documents_of([given] if isinstance(given, Mapping) else given, "<document>")
        if any(is_ours(each) for each in documents):
            hint = "use gpuflow.Pipeline, or gpuflow.loads(text)"
            raise fail("GF702", "the document is a pipeline of gpuflow", where=Where("gpuflow.demand"), hint=hint)
    else:
        return []
    active, passive = foreign_in(documents, namespace)
    if not active and passive:
        raise GpuflowError(each.finding() for each in passive)
    return active


def _foreign_demand(
    found: list[ForeignObject], site: Site, engine: str | None, params: Mapping[str, str], namespace: str | None
) -> Demand:
    """The demand of the one object that starts pods."""
    demands: list[Demand] = []
    passive: list[PassiveObject] = []
    for each in found:
        each.namespace(namespace, "namespace=")
        demand = each.demand_on_site(site, engine, params)
        if isinstance(demand, PassiveObject):
            passive.append(demand)
        else:
            demands.append(demand)
    known = {name for each in found for name in parameters_of(each.document, each.library)}
    unknown = next((name for name in params if name not in known), None)
    if unknown is not None:
        text = f"params[{unknown!r}]: {found[0].document.kind} {found[0].name} has no such parameter"
        raise fail("GF178", text, where=Where(found[0].file), hint=did_you_mean(unknown, known))
    if not demands:
        raise GpuflowError(each.finding() for each in passive)
    if len(demands) > 1:
        names = ", ".join(f"{each.kind} {each.name}" for each in demands[:5])
        hint = "pass one of them as a document, with those that it refers to"
        raise fail("GF705", f"{len(demands)} objects start pods: {names}", where=Where(demands[0].file), hint=hint)
    return demands[0]


def _pipeline(given: Pipeline | str | Path, site: Site, engine: str) -> Pipeline:
    _require_type("pipeline", given, Pipeline, str, Path)
    if isinstance(given, Pipeline):
        return given
    try:
        return load(str(given))
    except Unsound as refusal:
        raise GpuflowError([*refusal.findings, *findings_beside_broken_rules(refusal, site, engine)]) from None


def _site(given: Site | str | Path) -> Site:
    _require_type("site", given, Site, str, Path)
    return given if isinstance(given, Site) else Site.load(str(given))


def _cluster(
    given: Cluster | PreparedCluster | Iterable[Mapping[str, Any]] | str | Path,
    namespace: str,
    default: str | None,
    brought: tuple[Manifest, ...],
) -> PreparedCluster:
    if isinstance(given, PreparedCluster):
        return given.with_files(brought) if brought else given
    _require_type("cluster", given, Cluster, PreparedCluster, str, Path, Iterable)
    if given == LIVE:
        return PreparedCluster(read_live(namespace), namespace, default=default, read=read_live, files=brought)
    if isinstance(given, str | Path):
        given = read_cluster(str(given))
    elif not isinstance(given, Cluster):
        given = cluster_of([given] if isinstance(given, Mapping) else given)
    return PreparedCluster(given, namespace, default=default, files=brought)


def _options(target: Target, given: Mapping[str, Any]) -> Any:
    """The target's options, or one message that names the ones it has."""
    known = [field.name for field in fields(target.options)]
    unknown = sorted(set(given) - set(known))
    if unknown:
        text = f"{target.name} has no option {unknown[0]}"
        known_ones = f"it has {', '.join(known)}" if known else "it has none"
        raise fail("GF903", text, where=Where("gpuflow.compile"), hint=did_you_mean(unknown[0], known) or known_ones)
    for flag in flags_of(target.options):
        if flag.field in given:
            _require_type(flag.field, given[flag.field], *((bool,) if flag.metavar is None else (str, None)))
    return target.options(**given)
