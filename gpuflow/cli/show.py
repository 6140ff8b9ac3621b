"""`gpuflow show FILE…`."""

from __future__ import annotations

import argparse

from gpuflow.cli.inputs import add_common, read_site, show_remarks
from gpuflow.cli.sources import Sources, read_sources
from gpuflow.cli.terminal import paint, print_text, put, show_json
from gpuflow.core.emit import emit_all
from gpuflow.demands import Demand
from gpuflow.report import graph_drawing
from gpuflow.site import Site
from gpuflow.spec.canonical import to_document, to_yaml
from gpuflow.spec.pipeline import Pipeline

EXAMPLE = """gpuflow show pipeline.yaml
gpuflow show pipeline.py --format yaml > pipeline.yaml
gpuflow show pipeline.yaml --format mermaid
gpuflow show workflow.yaml   # Argo, Kubeflow, Kubernetes: what runs, and what each pod asks for"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, ("text", "yaml", "mermaid", "dot", "json"), foreign=True)


def run(args: argparse.Namespace) -> int:
    site = read_site(args)  # of a pipeline of ours nothing of it is shown, but a misspelled one is not passed over
    sources = read_sources(args, site)
    show_remarks(sources.pipelines, site)
    if args.format == "yaml":
        # The documents themselves, each in one spelling.
        texts = [
            to_yaml(each) if isinstance(each, Pipeline) else emit_all([each.document.tree]) for each in sources.parts
        ]
        put("---\n".join(texts))
    elif args.format == "json":
        documents = [
            to_document(each) if isinstance(each, Pipeline) else graph_drawing.demand_document(each)
            for each in _graphs(sources, site, args)
        ]
        show_json(documents[0] if len(documents) == 1 else documents)
    else:
        print_text("\n".join(_draw(each, args.format) for each in _graphs(sources, site, args)))
    return 0 if sources.is_whole else 2


def _graphs(sources: Sources, site: Site, args: argparse.Namespace) -> list[Pipeline | Demand]:
    """The pipelines as they are written, everything else as a demand. A pipeline needs no site to be shown."""
    if not sources.foreign_objects and sources.pipelines:
        return list(sources.pipelines)
    foreign = Sources(list(sources.foreign_objects), sources.passive, sources.library)
    answers = foreign.demands(site, None, args.param, namespace=args.namespace)
    by_source = {id(each.source): each.demand for each in answers}
    found: list[Pipeline | Demand] = []
    for each in sources.parts:
        if isinstance(each, Pipeline):
            found.append(each)
        elif id(each) in by_source:
            found.append(by_source[id(each)])
    return found


def _draw(source: Pipeline | Demand, form: str) -> str:
    if form != "text":
        return graph_drawing.mermaid(source) if form == "mermaid" else graph_drawing.dot(source)
    if isinstance(source, Pipeline):
        return graph_drawing.pipeline_text(source, paint)
    return graph_drawing.demand_text(source, paint)
