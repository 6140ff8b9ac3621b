"""The way out of a peak that is too high: how many pods at once are always safe."""

from collections.abc import Iterator
from dataclasses import replace

from gpuflow.graph.live import count_pods, weigh
from gpuflow.graph.peak import worst
from gpuflow.graph.tree import Dag, Leaf, Loop, Tree, Unknown
from gpuflow.graph.work import Work


def safe_parallel(tree: Tree, key: str, budget: int) -> int | None:
    """The largest cap on the live pods of the whole tree with which `key` provably never exceeds `budget`.

    `None` where no cap does: a step alone is too heavy, its weight is unknown, or it counts no pod. A cap below the
    largest gang is not proposed, since the gang could not start. Where no cap is needed the answer is the tree's
    own, or the number of all its pods with every unknown loop counted by its cap, or once.
    """
    own = tree.parallel if isinstance(tree, Dag) else None
    uncapped = replace(tree, parallel=None) if isinstance(tree, Dag) else tree
    pods = list(_pods(tree, 1))
    work = Work()  # for all caps together: when it is used up, caps are judged by bounds that are quick to find
    every = own or max(1, sum(gang * copies for gang, copies in pods))

    def most(cap: int) -> int | None:
        best, missing = worst(Dag({"all": uncapped}, parallel=cap), key, work)
        return None if missing else int(best.weight)

    best, missing = worst(tree, key, work)
    if not missing and best.weight <= budget:
        return every
    low = max([1, *(gang for gang, _ in pods)])
    at_low = most(low)
    if at_low is None or at_low > budget:
        return None
    high, at_high = every, int(best.weight)
    if weigh(best.live) > budget:
        high = min(high, count_pods(best.live))
    while missing and (at_high := most(high := 2 * high) or 0) <= budget:
        low, at_low = high, at_high
    # The bound is concave in the cap: the straight line between two caps leads close to the budget from above.
    # Every other guess halves the range, which keeps the search short whatever the curve.
    halve = False
    while high - low > 1:
        straight = low + (budget - at_low) * (high - low) // max(1, at_high - at_low)
        guess = (low + high) // 2 if halve else min(max(straight, low + 1), high - 1)
        at_guess = most(guess) or 0
        if at_guess <= budget:
            low, at_low = guess, at_guess
        else:
            high, at_high = guess, at_guess
        halve = not halve
    return low


def _pods(node: Tree, copies: int) -> Iterator[tuple[int, int]]:
    """The gang size of every step and how often it runs."""
    match node:
        case Leaf():
            yield node.pods, copies
        case Dag():
            for child in node.nodes.values():
                yield from _pods(child, copies)
        case Loop():
            # Of a loop of unknown size no more than its cap can be alive, which is all that matters here.
            times = (node.copies.at_most or node.parallel or 1) if isinstance(node.copies, Unknown) else node.copies
            if times:
                yield from _pods(node.body, copies * times)
