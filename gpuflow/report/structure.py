"""The structure of a demand, whatever it was made from: for the terminal, Mermaid, Graphviz and programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from gpuflow.demands import Demand
from gpuflow.demands.model import leaves_of
from gpuflow.graph import Dag, Leaf, Loop, Tree, Unknown
from gpuflow.printable import line
from gpuflow.quantity import Quantity
from gpuflow.report.drawing import Paint, columns, html

MOST_EDGES = 20_000
"""Beyond so many lines no drawing helps; Mermaid and Graphviz give up long before."""


class _Node(NamedTuple):
    key: str
    """Where it is: the names of what is around it, and its own."""
    label: str
    words: list[str]
    inner: Tree | None
    """What is inside, unless it is a step."""


def facts(demand: Demand, name: str) -> list[str]:
    """What a reader wants to know of a step at a glance: pods, GPUs, what a pod requests, retries, conditions."""
    step = demand.by_name.get(name)
    hidden = [f"not known: {part.because}" for part in demand.unseen if part.step == name]
    if step is None:
        words = [] if hidden else ["no pods"]
    else:
        words = [f"{step.pods} pods"] if step.pods > 1 else []
        for resource, amount in sorted(step.requests.items(), key=_devices_first):
            words.append(f"{resource} {amount}")
        if step.tries > 1:
            words.append(f"up to {step.tries} attempts")
        if step.is_exit:
            words.append("at the end")
    if name in demand.conditional:
        words.append("conditional")
    return [line(word) for word in (*words, *hidden)]


def terminal(demand: Demand, paint: Paint) -> str:
    """Kind and name, then the graph with what is known of each step at its right, and what is not known below."""
    there = "" if demand.namespace is None else f" in namespace {demand.namespace}"
    lines = [f"{line(demand.kind)} {paint(line(demand.name), 'bold')}{there}{_file(demand)}"]
    if demand.overlap is not None:
        lines.append(line(f"runs may overlap: {demand.overlap.because}"))
    if isinstance(demand.graph, Dag) and demand.graph.parallel is not None:
        lines.append(f"at most {demand.graph.parallel} pods at once")
    lines.append("")
    rows = list(_rows(demand, demand.graph, "", paint))
    width = max((len(art) + len(label) for art, label, _ in rows if label), default=0)
    for art, label, words in rows:
        space = " " * max(0, width - len(art) - len(label))
        said = paint(" · ", "dim").join(words)
        lines.append(f"{paint(art, 'dim')}{paint(label, 'bold')}{space}  {said}".rstrip())
    drawn = {leaf.name for leaf in leaves_of(demand.graph)}
    hidden = [part for part in demand.unseen if part.step not in drawn]
    lines += [""] if hidden else []
    lines += [
        f"{paint('not known', 'yellow')}: {line(part.step)}: {line(part.because)} ({part.where})" for part in hidden
    ]
    return "\n".join(lines) + "\n"


def _file(demand: Demand) -> str:
    return f"  ({line(demand.file)})" if demand.file else ""


def _rows(demand: Demand, tree: Tree, indent: str, paint: Paint) -> Iterator[tuple[str, str, list[str]]]:
    nodes = {each.key: each for each in _nodes(demand, tree, "")}
    edges = _edges(tree)
    for art, name in columns({key: list(edges.get(key, ())) for key in nodes}):
        if name is None:
            yield indent + art, "", []
            continue
        node = nodes[name]
        yield indent + art, node.label, node.words
        if node.inner is not None:
            yield from _rows(demand, node.inner, indent + art.replace("●", "┊"), paint)


def _nodes(demand: Demand, tree: Tree, within: str) -> Iterator[_Node]:
    """The nodes of one level; a tree that is no graph is a level of one."""
    level = tree.nodes if isinstance(tree, Dag) else {getattr(tree, "name", "run"): tree}
    for key, node in level.items():
        words: list[str] = []
        # No level is shown for a loop, or for a graph of one node.
        while isinstance(node, Loop) or (isinstance(node, Dag) and len(node.nodes) == 1):
            words += _limits(node)
            node = node.body if isinstance(node, Loop) else next(iter(node.nodes.values()))
        if isinstance(node, Leaf):
            yield _Node(within + key, line(node.name), [*words, *facts(demand, node.name)], None)
        else:
            yield _Node(within + key, line(key), [*words, *_limits(node)], node)


def _limits(node: Loop | Dag) -> list[str]:
    if isinstance(node, Loop):
        return [_copies(node)] if node.copies != 1 else []
    return [] if node.parallel is None else [f"at most {node.parallel} pods at once"]


def _edges(tree: Tree) -> dict[str, list[str]]:
    return {key: list(after) for key, after in tree.edges.items()} if isinstance(tree, Dag) else {}


def _copies(loop: Loop) -> str:
    if isinstance(loop.copies, Unknown):
        most = "" if loop.copies.at_most is None else f", at most {loop.copies.at_most}"
        words = f"copies not known{most}: {loop.copies.because}"
    else:
        words = f"{loop.copies} copies"
    return line(words if loop.parallel is None else f"{words}, {loop.parallel} at once")


def _devices_first(item: tuple[str, Quantity]) -> tuple[bool, str]:
    return "/" not in item[0], item[0]


def mermaid(demand: Demand) -> str:
    """A Mermaid flowchart, as GitHub and GitLab draw it; a graph inside a graph is a frame."""
    ids: dict[str, str] = {}
    edges: list[str] = []

    def draw(tree: Tree, within: str, indent: str) -> list[str]:
        lines: list[str] = []
        for node in _nodes(demand, tree, within):
            ids[node.key] = f"s{len(ids)}"
            label = "<br/>".join([f"<b>{html(node.label)}</b>", *map(html, node.words)])
            if node.inner is None:
                lines.append(f'{indent}{ids[node.key]}["{label}"]')
            else:
                lines.append(f'{indent}subgraph {ids[node.key]}["{label}"]')
                lines += draw(node.inner, f"{node.key}\0", indent + "  ")
                lines.append(f"{indent}end")
        for key, after in _edges(tree).items():
            edges.extend(f"  {ids[within + key]} --> {ids[within + each]}" for each in after)
        return lines

    lines = draw(demand.graph, "", "  ")
    return "\n".join(["flowchart TD", *lines, *edges[:MOST_EDGES]]) + "\n"


def dot(demand: Demand) -> str:
    """A Graphviz digraph; a graph inside a graph is a cluster, and lines go to and from its first step."""
    ids: dict[str, str] = {}
    clusters: dict[str, str] = {}
    edges: list[str] = []

    def draw(tree: Tree, within: str, indent: str) -> list[str]:
        lines: list[str] = []
        for node in _nodes(demand, tree, within):
            label = json.dumps("\n".join([node.label, *node.words]), ensure_ascii=False)
            if node.inner is None:
                ids[node.key] = f"s{len(ids)}"
                lines.append(f"{indent}{ids[node.key]} [label={label}];")
                continue
            clusters[node.key] = f"cluster_{len(clusters)}"
            lines.append(f"{indent}subgraph {clusters[node.key]} {{")
            lines.append(f"{indent}  label={label};")
            before = len(ids)
            lines += draw(node.inner, f"{node.key}\0", indent + "  ")
            if len(ids) == before:
                lines.append(f'{indent}  s{len(ids)} [label="", shape=point];')
                ids[f"{node.key}\0"] = f"s{len(ids)}"
            ids[node.key] = f"s{before}"
            lines.append(f"{indent}}}")
        for key, after in _edges(tree).items():
            for each in after:
                ends = [f"ltail={clusters[within + key]}"] if within + key in clusters else []
                ends += [f"lhead={clusters[within + each]}"] if within + each in clusters else []
                style = f" [{', '.join(ends)}]" if ends else ""
                edges.append(f"  {ids[within + key]} -> {ids[within + each]}{style};")
        return lines

    lines = draw(demand.graph, "", "  ")
    head = [f"digraph {json.dumps(demand.name)} {{", "  rankdir=TB;", "  compound=true;", "  node [shape=box];"]
    return "\n".join([*head, *lines, *edges[:MOST_EDGES], "}"]) + "\n"


def document(demand: Demand) -> dict[str, Any]:
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
