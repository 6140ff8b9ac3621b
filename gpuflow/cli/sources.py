"""What `demand`, `check` and `show` take: pipelines of ours, and documents of other tools, told apart by content."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from gpuflow.cli.folders import given_files
from gpuflow.cli.inputs import load_pipeline, params_given, python_is_allowed, with_params
from gpuflow.cli.terminal import print_text, progress, show_findings
from gpuflow.core.errors import Finding, GpuflowError, Where, did_you_mean, fail, join_names
from gpuflow.core.printable import line
from gpuflow.demands import Demand
from gpuflow.demands.of_pipeline import demand_of_plan
from gpuflow.engines import NO_ENGINE
from gpuflow.formats.contents import Contents
from gpuflow.formats.documents import OWN_GROUP
from gpuflow.plan import plan_of
from gpuflow.readers import ForeignObject, Library, PassiveObject, foreign_in
from gpuflow.readers.interface import parameters_of
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.target import engine_findings, findings_beside_broken_rules

MAX_SHOWN = 3
"""So many objects that start nothing are named."""


class SourceDemand(NamedTuple):
    """A demand, and what it was made from."""

    demand: Demand
    source: Pipeline | ForeignObject


@dataclass(frozen=True)
class Sources:
    """What the files of a command say, in the order given."""

    parts: list[Pipeline | ForeignObject]
    passive: list[PassiveObject]
    library: Library
    is_whole: bool = True
    """Whether every workload of the folders could be read; what is wrong with the others has been said."""

    @property
    def pipelines(self) -> list[Pipeline]:
        return [each for each in self.parts if isinstance(each, Pipeline)]

    @property
    def foreign_objects(self) -> list[ForeignObject]:
        return [each for each in self.parts if isinstance(each, ForeignObject)]

    def demands(
        self,
        site: Site,
        engine: str | None,
        params: list[str],
        *,
        namespace: str | None = None,
        allow_lossy: bool = False,
        with_cluster: bool = False,
    ) -> list[SourceDemand]:
        """The demand of each, in the order given; objects that start no pods are reported and skipped. `engine`: None
        where nobody names one; `namespace`: what --namespace says; `with_cluster`: what else the files bring counts."""
        given = params_given(params)
        passive = list(self.passive)
        found: list[SourceDemand] = []
        findings: list[Finding] = []
        for each in self.parts:
            try:
                if isinstance(each, Pipeline):
                    found.append(SourceDemand(own_demand(each, site, engine, allow_lossy=allow_lossy), each))
                    continue
                demand = each.demand_on_site(site, engine, given, namespace)
            except GpuflowError as refusal:
                findings += refusal.findings
                continue
            if isinstance(demand, PassiveObject):
                passive.append(demand)
            else:
                found.append(SourceDemand(demand, each))
        if findings:
            raise GpuflowError(dict.fromkeys(findings))
        if not found:
            raise GpuflowError([each.finding() for each in passive] or [Finding("GF702", "nothing is named")])
        for is_known, why in ((True, "they start nothing by themselves"), (False, "gpuflow does not know their pods")):
            left = [each for each in passive if each.is_known == is_known]
            if left and with_cluster:
                from gpuflow.cluster.overlay import is_counted  # most checks bring nothing

                left = [each for each in left if not is_counted(each.document.kind, each.document.group)]
            if left:
                names = join_names([line(each.title) for each in left], MAX_SHOWN)
                print_text(f"not counted, because {why}: {names}\n", sys.stderr)
        return found

    def passive_findings(self, answers: list[SourceDemand], definitions: list[Mapping[str, Any]]) -> list[Finding]:
        """What the API server says of the fields of objects that are not counted. `definitions`: the cluster's CRDs."""
        counted = {id(each.source.document) for each in answers if isinstance(each.source, ForeignObject)}
        left = [each for each in self.library.documents if id(each) not in counted and each.group != OWN_GROUP]
        if not left:
            return []
        from gpuflow.readers.findings.strictness import strict_findings  # schemas are for documents that are not ours

        own = [*definitions, *(each.tree for each in self.library.documents if each.kind == "CustomResourceDefinition")]
        return [finding for each in left for finding in strict_findings(each, own)]


def read_sources(args: argparse.Namespace, site: Site, engine: str | None = None) -> Sources:
    """Every file, as what it says it is; all errors of all files in one go. `args.files` then has every file."""
    given = given_files(args.files, getattr(args, "cluster", None))
    given.files = [_run_if_python(each, args) for each in given.files]
    args.files = [each.file for each in given.files]
    documents = [document for each in given.files for document in each.documents]
    active, passive = foreign_in([*documents, *given.beside], args.namespace or site.namespace)
    library = active[0].library if active else Library((*documents, *given.beside))
    known = {name for each in active for name in parameters_of(each.document, each.library)}
    by_document = {id(each.document): each for each in active}
    parts: list[Pipeline | ForeignObject] = []
    findings: list[Finding] = []
    for each in given.files:
        if each.documents:
            parts += [by_document[id(document)] for document in each.documents if id(document) in by_document]
            continue
        try:
            pipeline = load_pipeline(each.file, args, each.raw)
            # A value that only documents of other tools take is theirs alone.
            params = [word for word in args.param if not active or word.partition("=")[0] in pipeline.params]
            parts.append(with_params(pipeline, params))
        except GpuflowError as refusal:
            further = findings_beside_broken_rules(refusal, site, engine or NO_ENGINE)
            findings += [finding.in_file(each.file) for finding in (*refusal.findings, *further)]
    if findings:
        raise GpuflowError(findings)
    if active:
        _refuse_unknown(args.param, known, [each for each in parts if isinstance(each, Pipeline)], active)
    beside = {id(document) for document in given.beside}
    show_findings(given.broken)
    left = [each for each in passive if id(each.document) not in beside]
    return Sources(parts, left, library, is_whole=not given.broken)


def own_demand(pipeline: Pipeline, site: Site, engine: str | None, *, allow_lossy: bool) -> Demand:
    """The demand of a gpuflow pipeline, or of what `compile --allow-lossy` writes."""
    engine, plan = engine or NO_ENGINE, plan_of(pipeline, site)
    demand = demand_of_plan(plan, engine)
    return replace(demand, refusals=engine_findings(engine, plan, allow_lossy=True)) if allow_lossy else demand


def _run_if_python(contents: Contents, args: argparse.Namespace) -> Contents:
    """A DAG or a Hera workflow is read by running it, which somebody must have allowed; a pipeline of ours is not."""
    if not contents.file.endswith(".py") or not Path(contents.file).is_file():
        return contents
    from gpuflow.readers.python import Pythons, program_of, read_program

    if (program := program_of(contents.file)) == "pipeline" or (program == "other" and not python_is_allowed(args)):
        return contents  # refused, as any Python file is
    with progress(f"reading {contents.file}"):
        pythons = Pythons(args.airflow_python, args.hera_python)
        allowed, params = args.allow_python is True, params_given(args.param)
        return Contents(contents.file, read_program(contents.file, pythons, allowed=allowed, params=params))


def _refuse_unknown(
    given: list[str], known: Collection[str], pipelines: list[Pipeline], active: list[ForeignObject]
) -> None:
    """GF178 for a parameter that no document has; pipelines of ours have refused theirs already."""
    ours = {name for each in pipelines for name in each.params}
    for name in params_given(given):
        if name not in known and name not in ours:
            what = f"{active[0].document.kind} {active[0].name} has" if len(active) == 1 else "no document has"
            text = f"--param {name}: {what} {'no ' if len(active) == 1 else ''}such parameter"
            raise fail("GF178", text, where=Where(active[0].file), hint=did_you_mean(name, {*known, *ours}))
