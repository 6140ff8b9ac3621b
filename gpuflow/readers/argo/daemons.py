"""Daemons that are still ending when the next step starts.

Argo tells a daemon to end when the template around it has ended, and goes on at once: the pod lives for its grace
period beside whatever comes next, exit handlers and the next copy of a loop included. Argo's own limits do not count
it any more; quotas do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gpuflow.graph import Dag, Leaf, Loop, Tree


def outliving(tree: Tree, daemons: Collection[str]) -> Tree:
    """The graph with each daemon beside everything that follows the template around it. A bound: it may end sooner."""
    match tree:
        case Leaf():
            return tree
        case Loop():
            return _loop(replace(tree, body=outliving(tree.body, daemons)), daemons)
        case Dag():
            return _dag(tree, daemons)


def _loop(tree: Loop, daemons: Collection[str]) -> Tree:
    """A daemon of one copy is still ending when the next copy starts."""
    if tree.parallel is None or _is_daemon(tree.body, daemons):
        return tree
    rest, released = _without(tree, daemons)
    return _beside(rest, released, tree.name)


def _dag(tree: Dag, daemons: Collection[str]) -> Tree:
    nodes: dict[str, Tree] = {}
    released: list[Tree] = []
    for name, node in tree.nodes.items():
        nodes[name] = outliving(node, daemons)
        if tree.edges.get(name) and not _is_daemon(nodes[name], daemons):
            nodes[name], more = _without(nodes[name], daemons)
            released += more
    if nodes == tree.nodes:
        return tree
    return _beside(replace(tree, nodes=nodes), released, "daemons")


def _beside(rest: Tree, released: list[Tree], name: str) -> Tree:
    """Outside of `rest`, so that no limit in it counts them."""
    return Dag({"rest": rest, **{f"{name}-{index}": each for index, each in enumerate(released)}}) if released else rest


def _without(tree: Tree, daemons: Collection[str]) -> tuple[Tree, list[Tree]]:
    """A graph without its daemons, and the daemons."""
    match tree:
        case Leaf():
            return (Leaf(f"{tree.name} ready", {}, 0), [tree]) if _is_daemon(tree, daemons) else (tree, [])
        case Loop():
            body, released = _without(tree.body, daemons)
            return replace(tree, body=body), [replace(tree, body=each, parallel=None) for each in released]
        case Dag():
            parts = {name: _without(node, daemons) for name, node in tree.nodes.items()}
            nodes = {name: part for name, (part, _) in parts.items()}
            return replace(tree, nodes=nodes), [each for _, released in parts.values() for each in released]


def _is_daemon(tree: Tree, daemons: Collection[str]) -> bool:
    return isinstance(tree, Leaf) and tree.name in daemons
