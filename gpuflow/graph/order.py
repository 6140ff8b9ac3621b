"""Order, loops and reachability of a directed graph given as `{name: its successors}`.

Insertion order is the only tie-breaker, so the same input always gives the same answer. A successor that is
not a key of the mapping counts as a node without successors.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from graphlib import CycleError
from heapq import heapify, heappop, heappush

Successors = Mapping[str, Collection[str]]


def order(successors: Successors) -> list[str]:
    """Every node after all its predecessors; among free nodes the one named first comes first. Raises
    `graphlib.CycleError` whose second argument is the loop that `find_cycle` names."""
    names = _names(successors)
    rank = {name: index for index, name in enumerate(names)}
    waiting = dict.fromkeys(names, 0)
    for targets in successors.values():
        for target in dict.fromkeys(targets):
            waiting[target] += 1
    ready = [rank[name] for name in names if not waiting[name]]
    heapify(ready)
    ordered: list[str] = []
    while ready:
        name = names[heappop(ready)]
        ordered.append(name)
        for target in dict.fromkeys(successors.get(name, ())):
            waiting[target] -= 1
            if not waiting[target]:
                heappush(ready, rank[target])
    if len(ordered) < len(names):
        cycle = find_cycle(successors) or []
        raise CycleError(f"steps wait for each other: {' -> '.join(cycle)}; remove one of these dependencies", cycle)
    return ordered


def find_cycle(successors: Successors) -> list[str] | None:
    """One loop as `[a, b, a]`, beginning with its earliest-named node, or `None` where there is none."""
    before: set[str] = set()
    for source, after in successors.items():
        before.add(source)
        if not before.isdisjoint(after):
            break
    else:
        return None  # no arrow leads back: most documents name a step after those that it waits for
    names = _names(successors)
    finished: set[str] = set()
    for root in names:
        if root in finished:
            continue
        path = {root: iter(successors.get(root, ()))}
        while path:
            name, targets = next(reversed(path.items()))
            target = next(targets, None)
            if target is None:
                path.popitem()
                finished.add(name)
            elif target in path:
                cycle = list(path)[list(path).index(target) :]
                members = set(cycle)
                start = cycle.index(next(name for name in names if name in members))
                return [*cycle[start:], *cycle[: start + 1]]
            elif target not in finished:
                path[target] = iter(successors.get(target, ()))
    return None


def _names(successors: Successors) -> list[str]:
    names = dict.fromkeys(successors)
    for targets in successors.values():
        names.update(dict.fromkeys(targets))
    return list(names)


def reachable(successors: Successors, starts: Iterable[str]) -> set[str]:
    """Every node that a path from one of these reaches."""
    seen: set[str] = set()
    stack = list(starts)
    while stack:
        for target in successors.get(stack.pop(), ()):
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return seen


MOST_COMPARED = 50


def find_either(
    successors: Successors, among: Collection[str], excludes: Callable[[str, str], bool]
) -> tuple[tuple[str, ...], ...]:
    """Groups of some nodes of which each excludes each other one. All of a group have the same neighbors, so that
    putting one after the other orders nothing else."""
    if len(among) < 2:
        return ()
    before: dict[str, set[str]] = {name: set() for name in among}
    for name, targets in successors.items():
        for target in targets:
            if target in before:
                before[target].add(name)
    groups: dict[tuple[frozenset[str], frozenset[str]], list[list[str]]] = {}
    for name in among:
        beside = groups.setdefault((frozenset(before[name]), frozenset(successors.get(name, ()))), [])
        group = next((each for each in beside[:MOST_COMPARED] if all(excludes(name, other) for other in each)), None)
        if group is None:
            beside.append([name])
        else:
            group.append(name)
    return tuple(tuple(group) for beside in groups.values() for group in beside if len(group) > 1)
