"""The graph of a pipeline or of a demand: for the terminal, for Mermaid, for Graphviz, and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gpuflow.core.printable import line
from gpuflow.demands import Demand
from gpuflow.demands.model import leaves_of
from gpuflow.graph import Dag, Leaf, Loop, Tree, Unknown, order
from gpuflow.spec import expression
from gpuflow.spec.fan_out import Range
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import edges, upstream
from gpuflow.spec.step import Step
from gpuflow.spec.text import OutputRef, ParamRef

Paint = Callable[..., str]


def step_facts(step: Step) -> list[str]:
    """What a reader wants to know of a step at a glance: devices, fan-out, budgets, queue, conditions."""
    words: list[str] = []
    if step.gpu is not None:
        words.append(f"{step.gpu.count}× {step.gpu.description}")
    if step.mig is not None:
        words.append(f"{step.mig.count}× {step.mig.profile} of {step.mig.model}")
    if step.shared_gpu is not None:
        words.append(f"shared {step.shared_gpu.model or 'GPU'} ({step.shared_gpu.by})")
    if step.device_claim is not None:
        words.append(f"claim {step.device_claim.claim or step.device_claim.template}")
    if step.gang is not None:
        led = ", one of them leads" if step.gang.leader is not None else ""
        words.append(f"gang of {step.gang.pods}{led}")
    amounts = {"cpu": step.cpu, "mem": step.memory}
    words += [f"{name} {amount.request or amount.limit}" for name, amount in amounts.items() if amount]
    for name, source in (step.for_each or {}).items():
        words.append(f"for each {name} {_fan_out_source(source)}")
    if step.parallel is not None:
        words.append(f"{step.parallel} at once")
    if step.retry is not None and step.retry.any:
        words.append(f"retry {step.retry.any}")
    elif step.retry is not None and step.retry.attempts:
        words.append(f"retry {step.retry.failures} failures, {step.retry.interruptions} interruptions")
    if step.checkpoint is not None:
        words.append(f"checkpoint every {step.checkpoint.every}")
    if step.spot is not None:
        words.append(f"spot {step.spot.mode}")
    if step.queue is not None:
        words.append(f"queue {step.queue}")
    if step.pipeline is not None:
        count = len(step.pipeline.steps)
        words.append(f"pipeline {step.pipeline.name}, {count} step{'' if count == 1 else 's'}")
    if step.approval is not None:
        words.append(f"waits for a person: {step.approval.message}")
    if step.when is not None:
        words.append(f"when {expression.render(step.when)}")
    return [line(word) for word in words]


def _fan_out_source(source: object) -> str:
    if isinstance(source, ParamRef):
        return f"of params.{source.name}"
    if isinstance(source, OutputRef):
        return f"of {source.step}.{source.name}"
    items = source.items if isinstance(source, Range) else source
    assert isinstance(items, tuple | range)
    return f"in {len(items)}"


def pipeline_text(pipeline: Pipeline, paint: Paint) -> str:
    """Parameters, then the graph with what is known of each step at its right."""
    about = line(" ".join((pipeline.description or "").strip().split("\n")))
    lines = [paint(pipeline.name, "bold") + (f"  {about}" if about else "")]
    if (schedule := pipeline.schedule) is not None:
        lines.append(f"starts at {schedule.cron} {schedule.timezone}, overlap: {schedule.concurrency}")
    if pipeline.on_data:
        lines.append(f"starts on new data in {line(', '.join(pipeline.on_data))}")
    for key, param in pipeline.params.items():
        value = "required" if param.required else f"= {line(json.dumps(param.default, ensure_ascii=False))}"
        lines.append(f"param {key}: {param.type} {value}")
    rows = columns(edges(pipeline))
    facts = {name: step_facts(pipeline.effective(name)) for name in pipeline.steps}
    lines += ["", *_graph_lines([(art, name or "", facts[name] if name else []) for art, name in rows], paint)]
    for end in pipeline.exit:
        step = pipeline.effective(end)
        words = paint(" · ", "dim").join(step_facts(step))
        lines.append(f"{paint('at the end', 'dim')} {paint(end, 'bold')} ({step.on or 'always'})  {words}".rstrip())
    return "\n".join(lines) + "\n"


def _graph_lines(rows: list[tuple[str, str, list[str]]], paint: Paint) -> list[str]:
    """The lines of a drawing: the picture, the name of a step, and what is known of it in a column of its own."""
    width = max((len(art) + len(label) for art, label, _ in rows if label), default=0)
    lines = []
    for art, label, words in rows:
        space = " " * max(0, width - len(art) - len(label))
        said = paint(" · ", "dim").join(words)
        lines.append(f"{paint(art, 'dim')}{paint(label, 'bold')}{space}  {said}".rstrip())
    return lines


MOST_LANES = 24


def columns(after: dict[str, list[str]]) -> list[tuple[str, str | None]]:
    """The graph as rows of text: a step per row, a column per open edge, rows between where edges split or meet. A
    graph with more open edges than a terminal is wide is listed by depth instead."""
    rows: list[tuple[str, str | None]] = []
    open_to: list[str | None] = []
    for name in order(after):
        own = [column for column, target in enumerate(open_to) if target == name]
        column = own[0] if own else _free_lane(open_to)
        if len(own) > 1:
            rows.append((_joint_row(open_to, column, dict.fromkeys(own[1:], "╯")), None))
            for other in own:
                open_to[other] = None
        if column == len(open_to):
            open_to.append(None)
        open_to[column] = None
        cells = ["● " if index == column else ("│ " if target else "  ") for index, target in enumerate(open_to)]
        rows.append(("".join(cells).rstrip() + " ", name))
        shared = {index: "┤" for index, target in enumerate(open_to) if target in after[name]}
        fresh = [target for target in after[name] if target not in open_to]
        for position, target in enumerate(fresh):
            place = column if position == 0 else _free_lane(open_to)
            if place == len(open_to):
                open_to.append(None)
            open_to[place] = target
            if position:
                shared[place] = "╮"
        if shared:
            rows.append((_joint_row(open_to, column, shared), None))
        while open_to and open_to[-1] is None:
            open_to.pop()
        if len(open_to) > MOST_LANES:
            return _by_depth(after)
    return rows


def _free_lane(open_to: list[str | None]) -> int:
    return next((index for index, target in enumerate(open_to) if target is None), len(open_to))


_LEFT_ENDS = {"┤": "├", "╮": "╭", "╯": "╰"}
_CROSSINGS = {"┤": "┼", "╮": "┬", "╯": "┴"}
"""An end of a horizontal line, drawn from the right; as it looks at the left end, and where the line goes on."""


def _joint_row(open_to: list[str | None], column: int, ends: dict[int, str]) -> str:
    """The row in which one column is connected with others."""
    low, high = min(column, *ends), max(column, *ends)
    cells = []
    for index, target in enumerate(open_to):
        inside = low < index < high
        if index == column:
            goes_on = open_to[column] or "╯" in ends.values()
            mark = ("├" if goes_on else "╰") if high > column else ("┤" if goes_on else "╯")
        elif index in ends:
            mark = (_CROSSINGS if inside else _LEFT_ENDS if index < column else {}).get(ends[index], ends[index])
        elif inside:
            mark = "┼" if target else "─"
        else:
            mark = "│" if target else " "
        cells.append(mark + ("─" if low <= index < high else " "))
    return "".join(cells).rstrip()


def _by_depth(after: dict[str, list[str]]) -> list[tuple[str, str | None]]:
    depth = dict.fromkeys(after, 0)
    for name in order(after):
        for target in after[name]:
            depth[target] = max(depth[target], depth[name] + 1)
    return [("  " * min(depth[name], 20), name) for name in order(after)]


MOST_EDGES = 20_000
"""Beyond so many lines no drawing helps; Mermaid and Graphviz give up long before."""


class _Node(NamedTuple):
    key: str
    """Where it is: the names of what is around it, and its own."""
    label: str
    words: list[str]
    inner: _Level | None = None
    """What is inside, unless it is a step."""
    at_end: bool = False
    """It runs when all others have ended."""


class _Level(NamedTuple):
    """A graph as it is drawn."""

    nodes: list[_Node]
    arrows: list[tuple[str, str]]
    """What comes before what, by the keys."""


def _level_of_pipeline(pipeline: Pipeline) -> _Level:
    nodes = [_Node(name, name, step_facts(pipeline.effective(name))) for name in pipeline.steps]
    nodes += [_Node(name, name, step_facts(pipeline.effective(name)), at_end=True) for name in pipeline.exit]
    arrows = [(need, name) for name, needs in upstream(pipeline).items() for need in needs]
    ends = [name for name, targets in edges(pipeline).items() if not targets]
    return _Level(nodes, [*arrows, *((end, name) for name in pipeline.exit for end in ends)])


def _level_of(source: Pipeline | Demand) -> _Level:
    return _level_of_pipeline(source) if isinstance(source, Pipeline) else _level_of_tree(source, source.graph, "")


def mermaid(source: Pipeline | Demand) -> str:
    """A Mermaid flowchart, as GitHub and GitLab draw it; a graph inside a graph is a frame."""
    ids: dict[str, str] = {}
    edges: list[str] = []

    def draw(level: _Level, indent: str) -> list[str]:
        lines: list[str] = []
        for node in level.nodes:
            ids[node.key] = f"s{len(ids)}"
            label = "<br/>".join([f"<b>{html(node.label)}</b>", *map(html, node.words)])
            if node.inner is None:
                lines.append(f'{indent}{ids[node.key]}["{label}"]')
            else:
                lines.append(f'{indent}subgraph {ids[node.key]}["{label}"]')
                lines += draw(node.inner, indent + "  ")
                lines.append(f"{indent}end")
        ends = {node.key for node in level.nodes if node.at_end}
        edges.extend(f"  {ids[a]} {'-.->' if b in ends else '-->'} {ids[b]}" for a, b in level.arrows)
        return lines

    lines = draw(_level_of(source), "  ")
    return "\n".join(["flowchart TD", *lines, *edges[:MOST_EDGES]]) + "\n"


def html(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def dot(source: Pipeline | Demand) -> str:
    """A Graphviz digraph; a graph inside a graph is a cluster, and lines go to and from its first step."""
    is_flat = isinstance(source, Pipeline)  # its steps have names of their own
    ids: dict[str, str] = {}
    clusters: dict[str, str] = {}
    edges: list[str] = []

    def draw(level: _Level, indent: str) -> list[str]:
        lines: list[str] = []
        for node in level.nodes:
            label = json.dumps("\n".join([node.label, *node.words]), ensure_ascii=False)
            if node.inner is None:
                ids[node.key] = json.dumps(node.key) if is_flat else f"s{len(ids)}"
                lines.append(f"{indent}{ids[node.key]} [label={label}{', style=dashed' if node.at_end else ''}];")
                continue
            clusters[node.key] = f"cluster_{len(clusters)}"
            lines.append(f"{indent}subgraph {clusters[node.key]} {{")
            lines.append(f"{indent}  label={label};")
            before = len(ids)
            lines += draw(node.inner, indent + "  ")
            if len(ids) == before:
                lines.append(f'{indent}  s{len(ids)} [label="", shape=point];')
                ids[f"{node.key}\0"] = f"s{len(ids)}"
            ids[node.key] = f"s{before}"
            lines.append(f"{indent}}}")
        ends = {node.key for node in level.nodes if node.at_end}
        for first, later in level.arrows:
            words = [f"ltail={clusters[first]}"] if first in clusters else []
            words += [f"lhead={clusters[later]}"] if later in clusters else []
            words += ["style=dashed"] if later in ends else []
            style = f" [{', '.join(words)}]" if words else ""
            edges.append(f"  {ids[first]} -> {ids[later]}{style};")
        return lines

    lines = draw(_level_of(source), "  ")
    head = [f"digraph {json.dumps(source.name)} {{", "  rankdir=TB;", *([] if is_flat else ["  compound=true;"])]
    return "\n".join([*head, "  node [shape=box];", *lines, *edges[:MOST_EDGES], "}"]) + "\n"


def demand_facts(demand: Demand, name: str) -> list[str]:
    """What a reader wants to know of a step at a glance: pods, GPUs, what a pod requests, retries, conditions."""
    step = demand.by_name.get(name)
    hidden = [f"not known: {part.because}" for part in demand.unseen if part.step == name]
    if step is None:
        words = [] if hidden else ["no pods"]
    else:
        words = [f"{step.pods} pods"] if step.pods > 1 else []
        for resource, amount in sorted(step.requests.items(), key=lambda item: ("/" not in item[0], item[0])):
            words.append(f"{resource} {amount}")
        if step.tries > 1:
            words.append(f"up to {step.tries} attempts")
        if step.is_exit:
            words.append("at the end")
    if name in demand.conditional:
        words.append("conditional")
    return [line(word) for word in (*words, *hidden)]


def demand_text(demand: Demand, paint: Paint) -> str:
    """Kind and name, then the graph with what is known of each step at its right, and what is not known below."""
    there = "" if demand.namespace is None else f" in namespace {demand.namespace}"
    file = f"  ({line(demand.file)})" if demand.file else ""
    lines = [f"{line(demand.kind)} {paint(line(demand.name), 'bold')}{there}{file}"]
    if demand.overlap is not None:
        lines.append(line(f"runs may overlap: {demand.overlap.because}"))
    if isinstance(demand.graph, Dag) and demand.graph.parallel is not None:
        lines.append(f"at most {demand.graph.parallel} pods at once")
    lines += ["", *_graph_lines(list(_rows(_level_of(demand), "")), paint)]
    drawn = {leaf.name for leaf in leaves_of(demand.graph)}
    hidden = [part for part in demand.unseen if part.step not in drawn]
    lines += [""] if hidden else []
    unknown = paint("not known", "yellow")
    lines += [f"{unknown}: {line(part.step)}: {line(part.because)} ({part.where})" for part in hidden]
    return "\n".join(lines) + "\n"


def _rows(level: _Level, indent: str) -> Iterator[tuple[str, str, list[str]]]:
    nodes = {each.key: each for each in level.nodes}
    after: dict[str, list[str]] = {key: [] for key in nodes}
    for first, later in level.arrows:
        after[first].append(later)
    for art, key in columns(after):
        if key is None:
            yield indent + art, "", []
            continue
        yield indent + art, nodes[key].label, nodes[key].words
        if (inner := nodes[key].inner) is not None:
            yield from _rows(inner, indent + art.replace("●", "┊"))


def _level_of_tree(demand: Demand, tree: Tree, within: str) -> _Level:
    """A tree that is no graph is a level of one."""
    found = []
    for key, node in (tree.nodes if isinstance(tree, Dag) else {getattr(tree, "name", "run"): tree}).items():
        words: list[str] = []
        # No level is shown for a loop, or for a graph of one node.
        while isinstance(node, Loop) or (isinstance(node, Dag) and len(node.nodes) == 1):
            words += _limits(node)
            node = node.body if isinstance(node, Loop) else next(iter(node.nodes.values()))
        if isinstance(node, Leaf):
            found.append(_Node(within + key, line(node.name), [*words, *demand_facts(demand, node.name)]))
        else:
            inner = _level_of_tree(demand, node, f"{within}{key}\0")
            found.append(_Node(within + key, line(key), [*words, *_limits(node)], inner))
    edges = tree.edges if isinstance(tree, Dag) else {}
    return _Level(found, [(within + key, within + each) for key, after in edges.items() for each in after])


def _limits(node: Loop | Dag) -> list[str]:
    if isinstance(node, Loop):
        return [_copies(node)] if node.copies != 1 else []
    return [] if node.parallel is None else [f"at most {node.parallel} pods at once"]


def _copies(loop: Loop) -> str:
    if isinstance(loop.copies, Unknown):
        most = "" if loop.copies.at_most is None else f", at most {loop.copies.at_most}"
        words = f"copies not known{most}: {loop.copies.because}"
    else:
        words = f"{loop.copies} copies"
    return line(words if loop.parallel is None else f"{words}, {loop.parallel} at once")


def demand_document(demand: Demand) -> dict[str, Any]:
    """The structure for programs: what runs, what waits for what, what repeats, and what is not known."""
    return {
        "file": demand.file,
        "kind": demand.kind,
        "name": demand.name,
        **({} if demand.namespace is None else {"namespace": demand.namespace}),
        "engine": demand.engine,
        "graph": _tree(demand.graph),
        "steps": [
            {
                "name": step.name,
                "copies": step.copies,
                "conditional": step.name in demand.conditional,
                "attempts": step.tries,
                "at_the_end": step.is_exit,
                "pod_sets": [
                    {
                        "name": each.name,
                        "count": each.count,
                        "requests": {key: str(value) for key, value in sorted(each.amounts.requests.items())},
                        "limits": {key: str(value) for key, value in sorted(each.amounts.limits.items())},
                    }
                    for each in step.pod_sets
                ],
            }
            for step in demand.steps
        ],
        "unknown": [
            {
                "step": part.step,
                "because": part.because,
                "resource": part.resource,
                "where": {"file": part.where.file, "line": part.where.line, "column": part.where.column},
                "hint": part.hint,
            }
            for part in demand.unseen
        ],
    }


def _tree(tree: Tree) -> dict[str, Any]:
    match tree:
        case Leaf():
            return {"step": tree.name, "pods": tree.pods}
        case Loop():
            copies = tree.copies
            known: dict[str, Any] = {"copies": copies}
            if isinstance(copies, Unknown):
                known = {"copies": None, "at_most": copies.at_most, "because": copies.because}
            return {"loop": tree.name, **known, "parallel": tree.parallel, "body": _tree(tree.body)}
        case Dag():
            return {
                "nodes": {key: _tree(each) for key, each in tree.nodes.items()},
                "edges": {key: sorted(after) for key, after in tree.edges.items() if after},
                "parallel": tree.parallel,
            }
