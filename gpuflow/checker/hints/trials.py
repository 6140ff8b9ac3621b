"""Advice is tried before it is printed: the demand as it would be then is judged by the same checker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from gpuflow.checker.outcome import Outcome
from gpuflow.checker.report import Verdict
from gpuflow.demands import Demand
from gpuflow.demands.model import Pod
from gpuflow.graph import Dag, Leaf, Loop, Tree
from gpuflow.work import limited_advice

MANY_STEPS: Final = 500
"""With more steps than that one judgment takes long, and few are made."""
FEW: Final = 3
NOWHERE: Final = "GF506"
"""That no node takes a step."""
MANY: Final = 24


class Trials:
    """How often a changed demand may still be judged, and what is said to it.

    What is not tried is not printed. The number of trials depends on the sizes of pipeline and cluster only, so that
    the same input always gets the same advice.
    """

    def __init__(self, judge: Callable[[Demand], Outcome], steps: int, nodes: int) -> None:
        self._judge = judge
        self.left = FEW if max(steps, nodes) > MANY_STEPS else MANY

    def verdict(self, demand: Demand | None) -> Verdict | None:
        """The verdict on a whole demand; None when nothing may be tried any more, or when nobody can ask for this."""
        outcome = self._outcome(demand)
        return None if outcome is None else outcome.verdict

    def can_run(self, demand: Demand, before: Demand) -> bool:
        """Whether a demand is admitted sooner or later. What is unknown about it may only be what was unknown `before`
        as well, such as a webhook; whether a node takes it must be known."""
        outcome = self._outcome(demand)
        if outcome is None or outcome.verdict != "unknown":
            return outcome is not None and outcome.verdict != "never"
        known = self._outcome(before)
        return known is not None and _said(outcome) <= {each for each in _said(known) if each[0] != NOWHERE}

    def _outcome(self, demand: Demand | None) -> Outcome | None:
        if demand is None or not self.left:
            return None
        self.left -= 1
        with limited_advice():
            return self._judge(demand)


def _said(outcome: Outcome) -> set[tuple[str, str]]:
    return {(each.code, each.message) for each in outcome.findings if each.severity != "note"}


def alone(demand: Demand, name: str, pod: Pod) -> Demand:
    """One step of a demand, and nothing else, with another pod. Its fan-outs and all caps stay."""
    step = demand.by_name[name]
    changed = replace(step, pod_sets=tuple(replace(each, pod=pod) for each in step.pod_sets), part_of=None)
    graph = _only(demand.graph, name)
    assert graph is not None
    return replace(
        demand,
        steps=(changed,),
        graph=graph,
        conditional={},
        later=(),
        overlap=None,
        driver_pods=None,
        refusals=(),
        source=None,
        pipeline=None,
    )


def _only(node: Tree, name: str) -> Tree | None:
    """What of a graph belongs to one step."""
    match node:
        case Leaf():
            return node if node.name == name else None
        case Loop():
            body = _only(node.body, name)
            return None if body is None else replace(node, body=body)
        case Dag():
            inner = {key: found for key, each in node.nodes.items() if (found := _only(each, name)) is not None}
            return replace(node, nodes=inner, edges={}) if inner else None
