"""What to do about a refusal, by who refuses: the API server, a queue of Kueue, or the nodes.

A hint is made from the refuser's own words: whose containers and where they are set up, the queue's own numbers, or
the reasons that the scheduler gives.

Advice that is tried before it is printed: the demand as it would be then is judged by the same checker.

Tried are the largest `parallel` with which the whole pipeline is always admitted, the most memory that a retry may ask
for where a LimitRange refuses what it asks for now, and another GPU, smaller MIG slice or smaller count of this very
cluster that would hold a step which fits on no node. A GPU is held against the nodes first; what a node could hold is
then judged whole, with quotas, LimitRanges and queues.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Final

from gpuflow.catalog import Offer
from gpuflow.catalog.kubernetes_names import PRODUCT_KEY
from gpuflow.checker.contention.concurrency import Concurrency
from gpuflow.checker.kueue import Assignment, Kueue
from gpuflow.checker.kueue.reasons import (
    AboveCapacity,
    AffinityMismatch,
    InadmissibleReason,
    NoPlace,
    TopologyLevelMissing,
    TopologyMismatch,
    UncoveredResource,
    UntoleratedTaint,
)
from gpuflow.checker.kueue.workloads import ClusterQueue
from gpuflow.checker.nodes.capacity import NodePools, capacity_hint, gang_has_no_domain, is_kept_out_for_good, room
from gpuflow.checker.nodes.filters import (
    NO_DEVICES,
    OTHER_NAME,
    PORTS_TAKEN,
    REASON_CORDONED,
    REASON_NOT_SELECTED,
    REASON_TAINTED,
    NodeFit,
    read_pending,
)
from gpuflow.checker.nodes.node_info import NO_FEATURES, TOO_MANY_PODS, UnboundPod, as_quantity, insufficient_reason
from gpuflow.checker.nodes.pod_affinity import NO_AFFINITY, NO_ANTI_AFFINITY, NO_EXISTING, UNEVEN
from gpuflow.checker.nodes.volumes import NO_DISK
from gpuflow.checker.report import Outcome, Verdict, amount, cap_text, safe_parallelism
from gpuflow.cluster import Manifest
from gpuflow.core.errors import Finding, did_you_mean
from gpuflow.core.work_budget import limited_advice, may_advise
from gpuflow.demands import Demand
from gpuflow.demands.model import DeviceRequest, LaterAttempts, OwnPipeline, Pod
from gpuflow.engines import facts_of
from gpuflow.graph import Dag, Leaf, Loop, Tree
from gpuflow.kubernetes.admission.decision import Admission, Reason
from gpuflow.kubernetes.admission.field_errors import LimitRequired, RequestAboveLimit
from gpuflow.kubernetes.admission.limit_range import BoundViolation
from gpuflow.kubernetes.admission.quota import UnspecifiedResources
from gpuflow.quantity import Quantity

OWN_CONTAINERS: Final = {
    "Pipeline": ("main", "in the step or in defaults; a single number sets request and limit"),
    "DAG": ("base", "in container_resources of the task"),
}
"""By the kind of a document: the container of a step's own command, and where it is said what that may use."""


def refusal_hint(answer: Admission, demand: Demand) -> str | None:
    """What to change, and where; None when the sentence says it all."""
    for reason in answer.reasons:
        if isinstance(reason, UnspecifiedResources):
            return "\n".join(_must_specify(reason, demand))
        if isinstance(reason, LimitRequired) and demand.pipeline is None:
            hint = "write the limit too, equal to the request; where the document asks for none, drop the key from the "
            return f"{hint}LimitRange that gives it"
    owners = {name for reason in answer.reasons for name in answer.containers_behind(reason)}
    engines = owners & demand.engine_settings.keys()
    ours = demand.pipeline is not None
    known = [found for reason in answer.reasons if (found := _admission_hint(reason, ours=ours)) is not None]
    own = min(known, key=lambda each: each[0])[1] if known else None
    if not engines:
        return own
    facts = facts_of(demand.engine)
    added = f"{', '.join(sorted(engines))}: added by {facts.title}; {facts.container_settings}"
    lines = [added, "else have the namespace's LimitRange changed"]
    if own is not None and owners > engines:
        lines.insert(0, f"{', '.join(sorted(owners - engines))}: {own}")
    return "\n".join(lines)


def _admission_hint(reason: Reason, *, ours: bool) -> tuple[int, str] | None:
    """What to change, and its place among the hints: the first of several is given."""
    match reason:
        case BoundViolation(bound="maximum", kind="Pod", side="limit", given=None, resource=key) if "/" in key:
            text = f"a LimitRange of type Pod with max for {key} refuses every pod that asks for none; "
            return 0, f"{text}drop it there and bound it with a quota on requests.{key}"
        case BoundViolation(bound="ratio"):
            set_both = ": a single number for cpu or memory sets both" if ours else ""
            return 1, f"bring request and limit closer together{set_both}"
        case LimitRequired():
            text = "a LimitRange with min for a GPU gives containers a request without a limit; "
            return 2, f"{text}drop the key from the LimitRange"
        case RequestAboveLimit(resource=key) if not ours:
            text = f"set limits.{key} to the request or more; where the document has no such limit, "
            return 3, f"{text}a LimitRange's default stands in for it"
        case RequestAboveLimit(resource="cpu" | "memory" as key):
            text = "the LimitRange's default limit is below what the step requests: set the limit too, "
            return 3, f"{text}{key}: {{request: …, limit: …}}"
    return None


def _must_specify(reason: UnspecifiedResources, demand: Demand) -> Iterator[str]:
    """One line for the step's own command, one for its other containers, one for those of the engine."""
    wanted: dict[str, set[str]] = {}
    for key, names in reason.missing.items():
        for name in names:
            wanted.setdefault(name, set()).add(key)
    paths, facts = demand.engine_settings, facts_of(demand.engine)
    own, place = OWN_CONTAINERS.get(demand.kind, ("", ""))
    helpers = [name for name in wanted if name not in (own, *paths)]
    if own in wanted:
        yield f"{own}: {_set_fields(wanted[own])} {place}"
    if helpers:
        keys, kind = set().union(*(wanted[name] for name in helpers)), "init container or sidecar"
        yield f"{', '.join(sorted(helpers))}: {_set_fields(keys)} on that {kind if own else 'container'}"
    injected = sorted(name for name in wanted if name in paths)
    if injected:
        keys_text = ", ".join(sorted(set().union(*(wanted[name] for name in injected))))
        yield f"{', '.join(injected)}: added by {facts.title}; {facts.container_settings}"
        yield f"then set the same {keys_text} in the site: {', '.join(paths[name] for name in injected)}"
    yield "or add defaults to the namespace's LimitRange"


def _set_fields(keys: set[str]) -> str:
    names = sorted({key.rpartition(".")[2] for key in keys})
    return f"set {' and '.join(names)}"


ANOTHER_QUEUE: Final = "use another queue"
"""What a step can do; the engine's driver cannot."""
DRIVER_QUEUE: Final = (
    "have its owner change it, or run in a namespace without a LocalQueue default: the driver's pods name no queue"
)


def other_queue(*, is_driver: bool) -> str:
    """Where else pods can go than to the queue that they go to."""
    return DRIVER_QUEUE if is_driver else ANOTHER_QUEUE


def queue_hint(
    found: Assignment,
    kueue: Kueue,
    namespace: str,
    local_queue: str,
    asked: Collection[str] = (),
    *,
    is_driver: bool = False,
) -> str | None:
    """What to change so that the queue can take the step; None when Kueue's sentence says it all. `asked` are the
    resources of the step's pod: Kueue names only the first that its queue does not cover. `is_driver`: it is the
    engine's own pod, and nobody can name another queue for it, or have it ask for something else."""
    queue = kueue.queues.get(found.cluster_queue or "")
    if queue is None:
        return _missing_queue(kueue, namespace, local_queue)
    if found.verdict == "blocked":
        return _blocked_queue(found, queue, is_driver)
    lines = [
        *_uncovered_resources(found, queue, kueue, asked),
        *_unfit_flavors(found, queue, kueue, is_driver),
        *_topology_hints(found, queue, kueue),
    ]
    return "\n".join(lines) or None


def _missing_queue(kueue: Kueue, namespace: str, local_queue: str) -> str:
    here = sorted(name for home, name in kueue.local_queues if home == namespace)
    if local_queue in here:
        owner = kueue.local_queues[namespace, local_queue].cluster_queue
        return f"LocalQueue {local_queue} points to ClusterQueue {owner}, which is not in the snapshot"
    if not here:
        return f"namespace {namespace} has no LocalQueue in the snapshot: create one, or remove queue from the step"
    return did_you_mean(local_queue, here) or f"namespace {namespace} has the queues {', '.join(here)}"


def _blocked_queue(found: Assignment, queue: ClusterQueue, is_driver: bool) -> str | None:
    other = other_queue(is_driver=is_driver)
    if found.blocked is InadmissibleReason.LOCAL_QUEUE_STOPPED or queue.is_stopped:
        return f"it is stopped (stopPolicy) and admits nothing until its owner resumes it; {other}"
    if found.blocked is InadmissibleReason.NAMESPACE:
        selected = "label the namespace as its namespaceSelector asks"
        return f"ClusterQueue {queue.name} is not for this namespace: {selected}, or {other}"
    return found.because


def _uncovered_resources(found: Assignment, queue: ClusterQueue, kueue: Kueue, asked: Collection[str]) -> Iterator[str]:
    named = {each.resource for each in found.reasons if isinstance(each, UncoveredResource)}
    if not named:
        return
    covered: set[str] = set().union(*(group.covered for group in queue.groups))
    # What is excluded or transformed is not looked for under its own name.
    known = (*kueue.configuration.excluded, *kueue.configuration.transformations)
    missing = sorted(named | {name for name in asked if name not in covered and not name.startswith(known)})
    names, has = ", ".join(missing), ", ".join(sorted(covered)) or "nothing"
    yield f"ClusterQueue {queue.name} covers {has}; the step also asks for {names}"
    if any("/" in name for name in missing):
        yield f"ask for a GPU or slice that it covers, or have its owner add {names} to coveredResources"
    else:
        yield f"have its owner add {names} to coveredResources, or to excludeResourcePrefixes in Kueue's configuration"


def _unfit_flavors(found: Assignment, queue: ClusterQueue, kueue: Kueue, is_driver: bool) -> Iterator[str]:
    hint = DRIVER_QUEUE if is_driver else f"ask for less, or {ANOTHER_QUEUE}"
    most: dict[str, dict[str, str]] = {}
    taints: set[tuple[str, str]] = set()
    for each in found.reasons:
        if isinstance(each, AboveCapacity):
            most.setdefault(each.resource, {})[each.flavor] = each.capacity
        elif isinstance(each, UntoleratedTaint):
            taints.add((each.flavor, each.key))
    for resource, amounts in sorted(most.items()):
        largest = ", ".join(f"{amount} in flavor {flavor}" for flavor, amount in sorted(amounts.items()))
        yield f"{resource}: the queue can give at most {largest}; {hint}"
    for flavor, taint in sorted(taints):
        yield f"flavor {flavor}: tolerate {taint} (gpu.tolerations of the site, or kubernetes.tolerations of the step)"
    if any(isinstance(each, AffinityMismatch) for each in found.reasons):
        flavors = [kueue.flavors[name] for name in dict.fromkeys(queue.flavors) if name in kueue.flavors]
        yield f"the queue's flavors are for {'; '.join(f'{each.name}: {_nodes_for(each.labels)}' for each in flavors)}"


def _topology_hints(found: Assignment, queue: ClusterQueue, kueue: Kueue) -> Iterator[str]:
    """What a topology has against the pods: the queue knows none, or not this level, or its nodes are too few."""
    flavors = [kueue.flavors[name] for name in dict.fromkeys(queue.flavors) if name in kueue.flavors]
    aware = [each for each in flavors if each.topology is not None]
    if any(isinstance(each, TopologyMismatch) and not each.is_topology_aware for each in found.reasons) and not aware:
        yield f"no flavor of ClusterQueue {queue.name} has a Topology: take it out of topology.queues in the site, and"
        yield "the scheduler keeps the pods together, by affinity; or have a flavor with topologyName added"
    if any(isinstance(each, TopologyMismatch) and each.is_topology_aware for each in found.reasons):
        yield f"flavors with a Topology take only pods that ask for one: {', '.join(each.name for each in aware)}"
    if any(isinstance(each, TopologyLevelMissing) for each in found.reasons):
        levels = kueue.levels or {}
        named = "; ".join(f"{each.name}: {', '.join(levels.get(each.topology or '', ()))}" for each in aware)
        yield f"the levels of its flavors are {named}: correct topology in the site"
    if any(isinstance(each, NoPlace) for each in found.reasons):
        yield "ask for fewer pods, for a wider level (topology.same), or for less in each pod; or have nodes added"


def _nodes_for(labels: Mapping[str, str]) -> str:
    """The label that names the GPU, else all of them."""
    shown = {PRODUCT_KEY: labels[PRODUCT_KEY]} if PRODUCT_KEY in labels else labels
    return ", ".join(f"{key}={value}" for key, value in sorted(shown.items())) or "any node"


NODE_PHRASES: Final = {
    TOO_MANY_PODS: "has no pod slot free",
    PORTS_TAKEN: "has a pod on a host port that it asks for",
    NO_DISK: "has a pod with a disk that it asks for",
    NO_EXISTING: "runs a pod that keeps apart from it (anti-affinity)",
    NO_ANTI_AFFINITY: "runs a pod that it keeps apart from (anti-affinity)",
    NO_AFFINITY: "runs no pod that it must be with (affinity)",
    UNEVEN: "is left out by its topology spread constraints",
    NO_DEVICES: "has too few devices left for its claims",
    NO_FEATURES: "lacks a feature that it asks for",
    REASON_TAINTED: "has a taint that it does not tolerate",
    REASON_NOT_SELECTED: "lacks the labels that it asks for",
    OTHER_NAME: "is not the node that it names",
    REASON_CORDONED: "is cordoned",
}
"""What a node does or is, for each of the scheduler's reasons but room."""


def reason_not_now(pod: UnboundPod, nodes: str, names: Collection[str], fitted: NodeFit) -> str:
    """Why none of the nodes that are for a pod takes it as they are. `nodes` is what a sentence calls them."""
    short = {insufficient_reason(name): name for name in pod.requests}
    reasons = [reason for name in names for reason in fitted.reasons.get(name, ())]
    if set(reasons) == {NO_DEVICES}:
        return f"none of {nodes} has the devices of its claims free"
    lacking = [short[reason] for reason in dict.fromkeys(reasons) if reason in short]
    if len(lacking) == len(set(reasons)):
        wanted = lacking or list(pod.requests)
        wanted = [each for each in wanted if "/" in each] or wanted
        asks = ", ".join(f"{amount(as_quantity(each, pod.requests[each]), each)} {each}" for each in sorted(wanted))
        return f"none of {nodes} has {asks or 'a place'} free"
    return _each_node(nodes, len(names), Counter(reasons), short)


def _each_node(nodes: str, count: int, reasons: Mapping[str, int], short: Mapping[str, str]) -> str:
    """`each of 2 nodes (a100) has no pod slot free`, or what each part of them does."""
    said = {each: NODE_PHRASES.get(each) or f"has too little {short.get(each, 'room')} free" for each in reasons}
    if len(said) == 1:
        (text,) = said.values()
        return f"{nodes} {text}" if count == 1 else f"each of {nodes} {text}"
    parts = ", ".join(f"{number} {said[reason]}" for reason, number in sorted(reasons.items()))
    return f"none of {nodes} takes it: {parts}"


def reason_nowhere(node_pools: NodePools, pod: UnboundPod, pods: int) -> str:
    """Why no node ever takes a pod, or the pods of a gang together."""
    found = capacity_hint(node_pools, pod)
    if found.shortfalls:
        return ", ".join(
            f"{name}: asked {amount(offer.asked, name)}, the largest eligible node has {amount(offer.largest, name)}"
            for name, offer in found.shortfalls.items()
        )
    pool = node_pools.pool(pod)
    if not pool.ever and not pool.templates:
        named = [NODE_PHRASES[reason] for reason in found.refusals if reason in NODE_PHRASES]
        return f"every node {' or '.join(named)}" if named else "no node has the labels and taints the step asks for"
    if all(node_pools.empty[index].slots < 1 for index in pool.ever):
        return "every eligible node has no pod slot (allocatable pods) left beside the pods that belong to it"
    if pod.affinity.follows_nobody:
        return "no pod can be what its pod affinity asks for: all terms must mean the same pod, and they exclude that"
    if is_kept_out_for_good(node_pools, pod):
        text = "every eligible node has a pod that belongs to it and keeps the step out (host port, anti-affinity), or "
        return f"{text}lacks a label that the step is spread over or follows other pods by"
    if gang_has_no_domain(node_pools, pod, pods):
        if not pod.affinity.together:
            return f"there are fewer domains than the {pods} pods of the gang, which keep apart"
        return f"no domain that the gang must be in together holds all {pods} pods"
    if pods > 1:
        return f"the nodes cannot hold all {pods} pods of the gang together"
    return "no eligible node has room, pod slots and ports for it at the same time"


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
