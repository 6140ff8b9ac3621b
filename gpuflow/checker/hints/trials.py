"""Advice that is tried before it is printed: the demand as it would be then is judged by the same checker.

Tried are the largest `parallel` with which the whole pipeline is always admitted, the most memory that a retry may ask
for where a LimitRange refuses what it asks for now, and another GPU, smaller MIG slice or smaller count of this very
cluster that would hold a step which fits on no node. A GPU is held against the nodes first; what a node could hold is
then judged whole, with quotas, LimitRanges and queues.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Final

from gpuflow.catalog import Offer
from gpuflow.checker.contention.concurrency import Concurrency
from gpuflow.checker.nodes.capacity import room
from gpuflow.checker.nodes.filters import read_pending
from gpuflow.checker.nodes.node_pools import NodePools
from gpuflow.checker.report import Outcome, Verdict, cap_text, safe_parallelism
from gpuflow.cluster import Manifest
from gpuflow.core.errors import Finding
from gpuflow.core.work_budget import limited_advice, may_advise
from gpuflow.demands import Demand
from gpuflow.demands.model import DeviceRequest, LaterAttempts, OwnPipeline, Pod
from gpuflow.engines import facts_of
from gpuflow.graph import Dag, Leaf, Loop, Tree
from gpuflow.quantity import Quantity

MANY_STEPS: Final = 500
"""With more steps than that one judgment takes long, and few are made."""
FEW_TRIALS: Final = 3
NO_NODE_CODE: Final = "GF506"
"""That no node takes a step."""
MANY_TRIALS: Final = 24


class Trials:
    """How often a changed demand may still be judged, and what is said to it. What is not tried is not printed. The
    number of trials depends on the sizes of pipeline and cluster only, so that the same input always gets the same
    advice."""

    def __init__(self, judge: Callable[[Demand], Outcome], steps: int, nodes: int) -> None:
        self._judge = judge
        self.left = FEW_TRIALS if max(steps, nodes) > MANY_STEPS else MANY_TRIALS

    def verdict(self, demand: Demand | None) -> Verdict | None:
        """The verdict on a whole demand; None when the trials are used up, or when there is no such demand."""
        outcome = self._outcome(demand)
        return None if outcome is None else outcome.verdict

    def can_run(self, demand: Demand, before: Demand) -> bool:
        """Whether a demand is admitted sooner or later. What is unknown about it may only be what was unknown `before`
        as well, such as a webhook; whether a node takes it must be known."""
        outcome = self._outcome(demand)
        if outcome is None or outcome.verdict != "unknown":
            return outcome is not None and outcome.verdict != "never"
        known = self._outcome(before)
        same = set() if known is None else {each for each in _messages(known) if each[0] != NO_NODE_CODE}
        return known is not None and _messages(outcome) <= same

    def _outcome(self, demand: Demand | None) -> Outcome | None:
        if demand is None or not self.left:
            return None
        self.left -= 1
        with limited_advice():
            return self._judge(demand)


def _messages(outcome: Outcome) -> set[tuple[str, str]]:
    return {(each.code, each.message) for each in outcome.findings if each.severity != "note"}


def step_alone(demand: Demand, name: str, pod: Pod) -> Demand:
    """One step of a demand, and nothing else, with another pod. Its fan-outs and all caps stay."""
    step = demand.by_name[name]
    changed = replace(step, pod_sets=tuple(replace(each, pod=pod) for each in step.pod_sets), part_of=None)
    graph = _graph_of_step(demand.graph, name)
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


def _graph_of_step(node: Tree, name: str) -> Tree | None:
    """What of a graph belongs to one step."""
    match node:
        case Leaf():
            return node if node.name == name else None
        case Loop():
            body = _graph_of_step(node.body, name)
            return None if body is None else replace(node, body=body)
        case Dag():
            parts = {key: _graph_of_step(each, name) for key, each in node.nodes.items()}
            inner = {key: part for key, part in parts.items() if part is not None}
            return replace(node, nodes=inner, edges={}) if inner else None


UNBOUNDED_CODE: Final = "GF514"
"""A fan-out of unknown size: the one reason for *unknown* that a cap removes."""
WAITING_CODES: Final = (
    "GF512", UNBOUNDED_CODE, "GF515", "GF517", "GF520", "GF522", "GF524", "GF525", "GF527", "GF528", "GF553", "GF555",
)  # fmt: skip
"""Findings about pods that wait; the number stands under the first of them."""


def with_parallel(whole: Outcome, demand: Demand, trials: Trials) -> tuple[Finding, ...]:
    """The findings, the first about a wait with the number that ends all of them; unchanged where none does."""
    about = [finding for finding in whole.findings if finding.code in WAITING_CODES and finding.severity != "note"]
    unbounded = whole.verdict == "unknown" and any(finding.code == UNBOUNDED_CODE for finding in whole.findings)
    if not about or not (whole.verdict == "may-queue" or unbounded):
        return whole.findings
    cap = proved_parallel(whole, demand, trials)
    if cap is None:
        return whole.findings
    first = about[0]
    hint = "\n".join(filter(None, (first.hint, f"always admitted with {cap_text(demand, cap)}")))
    return tuple(replace(each, hint=hint) if each is first else each for each in whole.findings)


def proved_parallel(whole: Outcome, demand: Demand, trials: Trials) -> int | None:
    """The largest `parallel` that was found to make the verdict *always*; None where none was. What the lines of the
    report allow is tried first: with more, one of them runs out. No cap is proposed that is smaller than a gang, since
    the gang could not start."""
    if not facts_of(demand.engine).keeps_parallel or not may_advise():
        return None
    concurrency = Concurrency(demand)
    low, candidate = concurrency.largest_gang, safe_parallelism(whole.scopes)
    high = candidate if candidate is not None else concurrency.most_pods()
    if candidate is not None and candidate > low:
        verdict = trials.verdict(demand.with_cap(candidate))
        if verdict == "always":
            return candidate
        if verdict != "may-queue":
            return None  # for want of something that no smaller number gives
    if trials.verdict(demand.with_cap(low)) != "always":
        return None
    while high - low > 1 and trials.left:
        middle = (low + high) // 2
        if trials.verdict(demand.with_cap(middle)) == "always":
            low = middle
        else:
            high = middle
    return low


MOST_BOUNDS: Final = 2
"""So many bounds are tried, the largest first."""


def memory_max(
    first: Outcome, demand: Demand, later: LaterAttempts, limit_ranges: Sequence[Manifest], trials: Trials
) -> str | None:
    """The largest bound of a LimitRange that, as `more_memory.max`, lets the last attempt in as the first one is."""
    if demand.pipeline is None:
        return None
    for most in sorted(set(_memory_bounds(limit_ranges)), reverse=True)[:MOST_BOUNDS]:
        changed = demand.pipeline.with_memory_max(demand, later.steps, most)
        # A bound that is no more than what the step has at first would be a policy that does nothing.
        if changed is None or not any(set(later.steps) <= set(each.steps) for each in changed.later):
            continue
        if trials.verdict(changed) == first.verdict:
            return f"say more_memory.max: {most}: then a later attempt finds what the first one finds"
    return None


def _memory_bounds(limit_ranges: Sequence[Manifest]) -> Iterator[Quantity]:
    for item in limit_ranges:
        for bounds in item.body["spec"].get("limits") or ():
            most = (bounds.get("max") or {}).get("memory")
            if bounds.get("type") in ("Container", "Pod") and most is not None:
                yield Quantity(most)


MOST_SUGGESTIONS: Final = 3
"""So many suggestions of a kind: more are a list to read, not a way out."""


class OtherGpus:
    """The GPUs and slices on the nodes of a cluster, to ask about the steps of one pipeline. Only a document of ours
    says what else its steps could ask for; of any other demand there is nothing to say."""

    def __init__(self, demand: Demand, pipeline: OwnPipeline, node_pools: NodePools, trials: Trials) -> None:
        self.demand, self.pipeline, self.node_pools, self.trials = demand, pipeline, node_pools, trials
        self._told: dict[str, str | None] = {}

    def hint(self, name: str) -> str | None:
        """What the step could ask for instead; None when it asks for no GPU, or when nothing here would hold it."""
        wish = self.pipeline.devices(name)
        if wish is None:
            return None
        if wish.key not in self._told:
            self._told[wish.key] = "\n".join(self._lines(name, wish)) or None
        return self._told[wish.key]

    def _lines(self, name: str, wish: DeviceRequest) -> Iterator[str]:
        # What fits in some number fits in any smaller one.
        held = bisect_left(range(1, wish.count), True, key=lambda n: not self._fits(name, None, n))
        fewer = self._most_admitted(name, held)
        if fewer:
            most = f"one node here holds at most {fewer} of {wish.words} for this step: " if fewer == held else ""
            yield f"{most}ask for {fewer} in each pod"
        need = wish.needs_gib
        # Slices do not talk to each other as whole GPUs do, so several GPUs are not answered with slices.
        offered = [
            each
            for each in self._node_offers
            if (each.profile is None or wish.is_slice or wish.count == 1)
            and _words_of_offer(each) not in wish.words.split(" or ")
        ]
        holding = [each for each in offered if self._fits(name, each, wish.count)]
        if need is None:
            return
        known = [(offer, offer.usable_gib) for offer in holding if offer.usable_gib is not None]
        # Whoever takes any GPU wants the most that is here.
        enough = sorted((size if need else -size, str(offer), offer) for offer, size in known if size >= need)
        smaller = sorted((-size, str(offer), offer) for offer, size in known if size < need)
        as_much = ", with as much GPU memory" if need else ""
        for memory, found in ((as_much, enough), (", with less GPU memory", smaller)):
            admitted = (each[2] for each in found if self._is_admitted(name, each[2], wish.count))
            shown = list(islice(admitted, MOST_SUGGESTIONS))
            if shown:
                yield f"fits here{memory}: " + ", ".join(f"{_words_of_offer(o)} ({o.usable_gib:g} GiB)" for o in shown)

    def _most_admitted(self, name: str, most: int) -> int:
        """The most devices, no more than a node holds, with which the step can run; 0 when there is no such number."""
        if not most or self._is_admitted(name, None, most):
            return most
        if most == 1 or not self._is_admitted(name, None, 1):
            return 0
        low, high = 1, most
        while high - low > 1 and self.trials.left:
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_admitted(name, None, middle) else (low, middle)
        return low

    def _is_admitted(self, name: str, offer: Offer | None, count: int) -> bool:
        """Whether the step alone is admitted sooner or later if it asks for this."""
        pod = self.pipeline.pod_with(name, offer, count)
        before = step_alone(self.demand, name, self.demand.by_name[name].pod)
        return pod is not None and self.trials.can_run(step_alone(self.demand, name, pod), before)

    def _fits(self, name: str, offer: Offer | None, count: int) -> bool:
        """Whether a node could hold the step's pod, or the nodes its gang, if it asked for this."""
        pod = self.pipeline.pod_with(name, offer, count)
        pods = self.demand.by_name[name].pods
        return pod is not None and room(self.node_pools, read_pending(pod), pods).verdict != "never"

    @cached_property
    def _node_offers(self) -> tuple[Offer, ...]:
        """Every GPU and slice that some node has, once."""
        node_list = self.node_pools.node_list
        nodes = (*(host.node for host in node_list.hosts), *(node for node in node_list.templates if node.group_max))
        found: dict[str, Offer] = {}
        for node in nodes:
            for offer in self.pipeline.offers(node.labels, node.allocatable):
                found.setdefault(str(offer), offer)
        return tuple(found.values())


def _words_of_offer(offer: Offer) -> str:
    """The offer as a pipeline asks for it."""
    return f"{offer.profile.name} of {offer.model.id}" if offer.profile else offer.model.id
