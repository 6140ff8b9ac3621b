"""A slow, independent answer to the same questions: expand the tree, try every set of live steps."""

from dataclasses import dataclass, field
from itertools import count, permutations

from hypothesis import strategies as st

from gpuflow.graph import Dag, Leaf, Loop, Tree, Unknown, find_either, reachable


@dataclass
class Expanded:
    """Every step of every copy; which pairs may not meet; and the caps over sets of them."""

    names: list[str] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    pods: list[int] = field(default_factory=list)
    apart: set[tuple[int, int]] = field(default_factory=set)
    pod_caps: list[tuple[frozenset[int], int]] = field(default_factory=list)
    copy_caps: list[tuple[list[frozenset[int]], int]] = field(default_factory=list)


def expand(tree: Tree, key: str) -> Expanded:
    expanded = Expanded()
    _expand(tree, key, expanded, [])
    return expanded


def _expand(node: Tree, key: str, out: Expanded, caps: list[int]) -> frozenset[int]:
    match node:
        case Leaf(name, weights, pods):
            weight = weights.get(key, 0)
            assert isinstance(weight, int)
            out.names.append(name)
            out.weights.append(weight)
            out.pods.append(min([pods, *caps]))
            return frozenset([len(out.names) - 1])
        case Dag(nodes, edges, parallel):
            inner = caps if parallel is None else [*caps, parallel]
            members = {name: _expand(child, key, out, inner) for name, child in nodes.items()}
            for name in nodes:
                for later in reachable(edges, [name]):
                    out.apart |= {(a, b) for a in members[name] for b in members[later]}
            for group in node.either:
                out.apart |= {
                    (a, b) for one, other in permutations(group, 2) for a in members[one] for b in members[other]
                }
            everything = frozenset().union(*members.values())
            if parallel is not None:
                out.pod_caps.append((everything, parallel))
            return everything
        case Loop(_, body, copies, parallel):
            assert isinstance(copies, int)
            runs = [_expand(body, key, out, caps) for _ in range(copies)]
            if parallel is not None:
                out.copy_caps.append((runs, parallel))
            return frozenset().union(*runs)


def feasible(expanded: Expanded, live: frozenset[int]) -> bool:
    return (
        all(not (a in live and b in live) for a, b in expanded.apart)
        and all(sum(expanded.pods[i] for i in live & over) <= cap for over, cap in expanded.pod_caps)
        and all(sum(bool(live & run) for run in runs) <= cap for runs, cap in expanded.copy_caps)
    )


def maximum(expanded: Expanded) -> int:
    """The heaviest feasible set, by trying them all; a superset of an infeasible set is never feasible."""
    best = 0
    stack = [(frozenset[int](), 0, 0)]
    while stack:
        live, weight, first = stack.pop()
        best = max(best, weight)
        for index in range(first, len(expanded.weights)):
            if expanded.weights[index] and feasible(expanded, more := live | {index}):
                stack.append((more, weight + expanded.weights[index], index + 1))
    return best


def can_live(expanded: Expanded, wanted: dict[str, int]) -> bool:
    """Whether some feasible set has exactly these copies of each step."""
    stack = [(frozenset[int](), 0)]
    while stack:
        live, first = stack.pop()
        have = [expanded.names[index] for index in live]
        if all(have.count(name) == copies for name, copies in wanted.items()):
            return True
        for index in range(first, len(expanded.names)):
            name = expanded.names[index]
            if have.count(name) < wanted.get(name, 0) and feasible(expanded, more := live | {index}):
                stack.append((more, index + 1))
    return False


WEIGHTS = st.sampled_from([0, 1, 1, 2, 3, 5, 8])
CAPS = st.none() | st.integers(1, 5)


@st.composite
def edges(draw: st.DrawFn, names: list[str]) -> dict[str, list[str]]:
    """Edges that follow a random order of the names."""
    ranked = draw(st.permutations(names))
    pairs = [(a, b) for i, a in enumerate(ranked) for b in ranked[i + 1 :]]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return {a: [b for x, b in chosen if x == a] for a, _ in chosen}


@st.composite
def dags(draw: st.DrawFn, nodes: dict[str, Tree], parallel: int | None) -> Dag:
    """A graph of these, some of which exclude each other."""
    after = {name: [] for name in nodes} | draw(edges(list(nodes)))
    kinds = {name: draw(st.integers(0, 3)) for name in nodes}
    either = find_either(after, list(nodes), lambda one, other: 0 < kinds[one] != kinds[other] > 0)
    return Dag(nodes, after, parallel, either)


@st.composite
def flat_dags(draw: st.DrawFn, *, max_size: int = 8, parallel: st.SearchStrategy[int | None] = CAPS) -> Dag:
    """Steps of one pod and one level."""
    names = [f"s{i}" for i in range(draw(st.integers(0, max_size)))]
    return draw(dags({name: Leaf(name, {"gpu": draw(WEIGHTS)}) for name in names}, draw(parallel)))


@st.composite
def trees(draw: st.DrawFn, *, caps: bool = True, unknown: bool = False) -> Tree:
    """Nested modules of at most about a dozen steps once expanded."""
    numbers = count()
    parallel = CAPS if caps else st.none()

    def node(room: int, depth: int) -> tuple[Tree, int]:
        kind = draw(st.sampled_from(["leaf", "dag", "loop"])) if depth and room > 1 else "leaf"
        name = f"s{next(numbers)}"
        if kind == "leaf":
            return Leaf(name, {"gpu": draw(WEIGHTS)}, draw(st.sampled_from([1, 1, 1, 2, 3]) if caps else st.just(1))), 1
        if kind == "loop":
            copies = draw(st.integers(0, min(4, room)))
            body, size = node(room // max(1, copies), depth - 1)
            told = Unknown("told at run time") if unknown and draw(st.booleans()) else copies
            return Loop(name, body, told, draw(parallel)), size * copies
        nodes: dict[str, Tree] = {}
        used = 0
        for _ in range(draw(st.integers(1, 4))):
            if used < room:
                child, size = node(room - used, depth - 1)
                nodes[f"n{len(nodes)}"] = child
                used += size
        return draw(dags(nodes, draw(parallel))), used

    return node(11, 3)[0]
