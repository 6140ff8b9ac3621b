"""What `demand` and `check` take: pipelines of ours, and documents of other tools, told apart by content."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from gpuflow.cli.inputs import read_pipelines
from gpuflow.cli.terminal import say
from gpuflow.demands import Demand, demand_of
from gpuflow.engines import NO_ENGINE
from gpuflow.errors import Finding, GpuflowError, Where, fail
from gpuflow.printable import line
from gpuflow.readers import Document, Foreign, Options, Passive, foreign_in, read_documents
from gpuflow.readers.documents import OURS, STDIN
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.frame import engine_findings

SHOWN = 3
"""So many objects that start nothing are named."""


@dataclass(frozen=True)
class Sources:
    """What the files of a command say."""

    pipelines: list[Pipeline]
    foreign: list[Foreign]
    passive: list[Passive]

    def demands(self, site: Site, engine: str, params: list[str], *, allow_lossy: bool = False) -> list[Demand]:
        """The demand of each, in the order given; objects that start nothing by themselves are said and left out."""
        found = [own_demand(pipeline, site, engine, allow_lossy=allow_lossy) for pipeline in self.pipelines]
        options = Options(site, engine, dict(word.split("=", 1) for word in params if "=" in word))
        passive = list(self.passive)
        findings: list[Finding] = []
        for each in self.foreign:
            try:
                demand = each.demand(options)
            except GpuflowError as refusal:
                findings += refusal.findings
                continue
            if isinstance(demand, Passive):
                passive.append(demand)
            else:
                found.append(replace(demand, file=each.file, kind=each.document.kind))
        if findings:
            raise GpuflowError(findings)
        if not found:
            raise GpuflowError([_nothing(each) for each in passive] or [Finding("GF702", "nothing is named")])
        if passive:
            say(f"not counted, because they start nothing by themselves: {_named(passive)}\n", sys.stderr)
        return found


def read_sources(args: argparse.Namespace, site: Site, engine: str = NO_ENGINE) -> Sources:
    """Every file, as what it says it is."""
    documents: list[Document] = []
    own: list[str] = []
    for file in args.files:
        found = [] if Path(file).is_dir() or file.endswith(".py") else _foreign_documents(file)
        documents += found
        if not found:
            own.append(file)
    foreign, passive = foreign_in(documents)
    if own:
        theirs = [file for file in args.files if file not in own]
        args.files = own
        pipelines = read_pipelines(args, site, engine)
        args.files = [*args.files, *theirs]
    else:
        pipelines = []
    return Sources(pipelines, foreign, passive)


def own_demand(pipeline: Pipeline, site: Site, engine: str, *, allow_lossy: bool) -> Demand:
    """The demand of a pipeline of ours, or of what `compile --allow-lossy` writes."""
    demand = demand_of(pipeline, site, engine)
    if allow_lossy:
        return replace(demand, refusals=engine_findings(engine, pipeline, site, allow_lossy=True))
    return demand


def _foreign_documents(file: str) -> list[Document]:
    """The documents of a file that is not ours; none where it may be ours, so that loading it says what is wrong."""
    if file != STDIN and not Path(file).exists():
        return []
    try:
        documents = read_documents(file)
    except GpuflowError:
        if file == STDIN:
            raise
        return []
    theirs = [each for each in documents if each.kind and each.group.partition("/")[0] != OURS]
    if not theirs and file == STDIN:
        raise fail("GF702", "standard input holds no document that gpuflow reads", where=Where("<stdin>"))
    return theirs


def _nothing(passive: Passive) -> Finding:
    document = passive.document
    return Finding("GF703", f"{document.kind} {document.name}: {passive.because}", passive.where)


def _named(passive: list[Passive]) -> str:
    names = ", ".join(line(f"{each.document.kind} {each.document.name}") for each in passive[:SHOWN])
    return names + (f" and {len(passive) - SHOWN} more" if len(passive) > SHOWN else "")
