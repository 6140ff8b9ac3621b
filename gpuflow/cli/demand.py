"""`gpuflow demand FILE…`."""

from __future__ import annotations

import argparse

from gpuflow.checker.report import amount
from gpuflow.cli.inputs import add_common, add_engine, read_site, show_remarks
from gpuflow.cli.sources import read_sources
from gpuflow.cli.terminal import paint, print_text, progress, show_findings, show_json, table
from gpuflow.core.errors import Finding, join_names
from gpuflow.core.printable import line
from gpuflow.demands import Bound, Demand, StepDemand

EXAMPLE = """gpuflow demand pipeline.yaml
gpuflow demand pipeline.yaml --engine argo --format json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, ("text", "json"), foreign=True)
    add_engine(parser)


def run(args: argparse.Namespace) -> int:
    site = read_site(args)
    sources = read_sources(args, site, args.engine)
    show_remarks(sources.pipelines, site)
    as_json = args.format == "json"
    documents, texts = [], []
    answers = sources.demands(site, args.engine, args.param, namespace=args.namespace)
    demands = [each.demand for each in answers]
    refusals = dict.fromkeys(each for demand in demands if demand.pipeline is None for each in demand.refusals)
    refused = any(each.severity == "error" for each in refusals)
    said = (each for each in refusals if each.severity != "note" or each.code in ("GF746", "GF747"))
    show_findings([*foreign_remarks(demands), *said])
    for demand in demands:
        with progress(f"working out the demand of {demand.name}"):
            if as_json:
                documents.append(demand.document())
            else:
                texts.append(text(demand))
    if as_json:
        show_json(documents[0] if len(documents) == 1 else documents)
    else:
        print_text("\n".join(texts))
    return 0 if sources.is_whole and not refused else 2


def foreign_remarks(demands: list[Demand]) -> list[Finding]:
    """Warnings about documents of other tools; those about gpuflow pipelines are shown when they are read."""
    found: list[Finding] = []
    for each in demands:
        if (source := each.source) is not None and each.pipeline is None:
            said = source.unsilenced_findings(
                dict.fromkeys((*each.refusals, *source.strict_findings(()), *source.warnings()))
            )
            found += [finding for finding in said if finding not in each.refusals]
    return found


def text(demand: Demand) -> str:
    """The demand for a person: the worst moment, then the steps."""
    on = "" if demand.engine == "none" else f" on {demand.engine}"
    there = "" if demand.namespace is None else f" in namespace {demand.namespace}"
    lines = [f"{paint(line(demand.name), 'bold')}{there}{on}, at its peak", ""]
    rows = []
    for key, bound in sorted(demand.peak.items()):
        moment = f"({bound.because})" if bound.value is None else join_names(bound.witness, 6)
        rows.append((key, _amount(key, bound), _amount(key, demand.overhead.get(key)), moment))
    head = ("quota key", "peak", "of it engine", "while these run together")
    if demand.engine == "none":
        rows = [(key, peak, moment) for key, peak, _, moment in rows]  # type: ignore[misc]  # one column less
        head = ("quota key", "peak", "while these run together")  # type: ignore[assignment]  # as above
    lines += [table(rows, head, right=(1,)), ""]
    steps = [(step.name, "?" if step.copies is None else str(step.copies), _each_pod(step)) for step in demand.steps]
    lines.append(table(steps, ("step", "copies", "one pod requests"), right=(1,)))
    return "\n".join(lines) + "\n"


def _each_pod(step: StepDemand) -> str:
    """What one pod requests. The pods of a gang are not all alike: each set by its name."""
    sets = [(each, ", ".join(f"{k} {v}" for k, v in sorted(each.amounts.requests.items()))) for each in step.pod_sets]
    if step.pods == 1:
        return sets[0][1]
    return "; ".join(f"{each.name}{f' × {each.count}' if each.count > 1 else ''}: {asks}" for each, asks in sets)


def _amount(key: str, bound: Bound | None) -> str:
    if bound is None:
        return ""
    if bound.value is None:
        return "unknown"
    return ("≤ " if bound.bound == "at-most" else "") + amount(bound.value, key)
