"""On which nodes a pod may count that follows other pods, is spread over domains, or keeps apart by them.

The rules are those of `nodes.pod_affinity`, asked about every state that the pods of a run and of others can come to.
The answer is sets of nodes: in every order all nodes of one set at least are open to the pod, as far as affinity and
spread go. So the pod always has a node where each set always has room. Where no such sets are certain there is no
answer. Pods apart are counted: each that cannot be in a domain with another closes one domain, whichever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gpuflow.checker.nodes.filters import affinity_state, balances
from gpuflow.checker.nodes.node_info import NodeList, UnboundPod
from gpuflow.checker.nodes.node_pools import NodePools
from gpuflow.checker.nodes.pod_affinity import Affinity, PodAffinityTerm, SpreadBalance, SpreadConstraint
from gpuflow.kubernetes.labels import Selector

Hosts = frozenset[int]


class Neighbor(NamedTuple):
    """A pod of the pipeline, or one of others that waits, and the nodes where it may be."""

    pod: UnboundPod
    hosts: Collection[int]
    is_hidden: bool = False
    """Its labels are not known: queues do not say which ones their pods will have."""


def may_mean(term: PodAffinityTerm, neighbor: Neighbor) -> bool:
    """Whether a term may mean a pod that is not there yet."""
    if neighbor.is_hidden and term.selector is not None:
        term = term._replace(selector=Selector(()))
    return term.may_match(neighbor.pod.namespace, neighbor.pod.labels, {})


def open_to_follower(node_pools: NodePools, pod: UnboundPod, neighbors: Iterable[Neighbor]) -> tuple[Hosts, ...] | None:
    """The sets of nodes for a pod with required affinity; `None` where nothing is certain.

    Where pods stay that its terms mean, it may always go there. Else it must mean itself: the first of its kind goes
    anywhere, and all others follow. Then every domain may be the one in which they are.
    """
    node_list, keys = node_pools.node_list, tuple(dict.fromkeys(term.topology_key for term in pod.affinity.together))
    terms = [term.merge_namespaces(node_list.namespaces) for term in pod.affinity.together]
    now = node_pools.pool(pod).now
    if any(term.is_open for term in terms):
        return None
    state = affinity_state(pod._replace(affinity=Affinity(pod.affinity.together, ())), node_pools.only_fixtures)
    matching = state.matching if state is not None else frozenset()
    labels = {index: node_list.hosts[index].node.labels for index in now}
    stay = frozenset(index for index in now if all((key, labels[index].get(key)) in matching for key in keys))
    if stay:
        return (stay,)
    if node_list.templates or not all(
        term.matches(pod.namespace, pod.labels, {}) and term.is_certain_of(pod.labels) for term in terms
    ):
        return None
    domains: dict[tuple[str | None, ...], set[int]] = {}
    for index in now:
        domains.setdefault(_place(node_list, index, keys), set()).add(index)
    open_domains = {place: hosts for place, hosts in domains.items() if None not in place}
    for index in _leaders(node_list, terms, neighbors):
        place = _place(node_list, index, keys)
        if place not in open_domains and any(value is not None for value in place):
            return None  # a pod there is no longer alone, and cannot go where the others are
    return tuple(map(frozenset, open_domains.values())) or None


def _place(node_list: NodeList, index: int, keys: Iterable[str]) -> tuple[str | None, ...]:
    return tuple(node_list.hosts[index].node.labels.get(key) for key in keys)


def _leaders(node_list: NodeList, terms: Sequence[PodAffinityTerm], neighbors: Iterable[Neighbor]) -> Iterator[int]:
    """The nodes where a pod is, or may come to be, that all terms mean."""
    for index, host in enumerate(node_list.hosts):
        if any(all(term.matches(there.namespace, there.labels, {}) for term in terms) for there in host.pods):
            yield index
    for neighbor in neighbors:
        if all(may_mean(term, neighbor) for term in terms):
            yield from neighbor.hosts


def may_count(constraint: SpreadConstraint, pod: UnboundPod, neighbor: Neighbor) -> bool:
    """Whether a constraint of the pod may count a pod that is not there yet."""
    term = PodAffinityTerm(constraint.selector, constraint.topology_key, frozenset({pod.namespace}), None)
    return may_mean(term, neighbor)


def open_to_spread(
    node_pools: NodePools, pod: UnboundPod, most: Callable[[SpreadConstraint], int | None]
) -> tuple[Hosts, ...] | None:
    """The sets of nodes for a pod with spread constraints; `None` where nothing is certain.

    The domain with the fewest pods takes one more, whichever that is. That holds for one constraint; any other must be
    one that never refuses a node. `most` says how many pods that a constraint counts may come to be alive at once.
    """
    node_list, keys = node_pools.node_list, {each.topology_key for each in pod.constraints}
    labels = {index: node_list.hosts[index].node.labels for index in node_pools.pool(pod).now}
    now = [index for index in labels if labels[index].keys() >= keys]
    binding = [each for each in balances(pod, node_list) if not _never_refuses(each, node_list, most(each.constraint))]
    if not binding:
        return (frozenset(now),)
    balance = binding[0]
    key, domains = balance.constraint.topology_key, {domain: set[int]() for domain in balance.tallies}
    for index in now:
        domains.get(labels[index][key], set()).add(index)
    if len(binding) > 1 or node_list.templates or balance.constraint.max_skew < 1 or not all(domains.values()):
        return None
    return tuple(map(frozenset, domains.values())) if len(domains) >= max(balance.constraint.min_domains, 1) else None


def _never_refuses(balance: SpreadBalance, node_list: NodeList, most: int | None) -> bool:
    """Whether there is one domain alone, or are so few pods that no domain ever has too many."""
    constraint = balance.constraint
    if most is not None and max(balance.tallies.values(), default=0) + most <= constraint.max_skew:
        return True
    alone = len(balance.tallies) == 1 and constraint.min_domains <= 1 and constraint.max_skew >= 1
    return alone and not node_list.templates


def meet(first: Sequence[Hosts] | None, second: Sequence[Hosts] | None) -> tuple[Hosts, ...] | None:
    """The sets for a pod of which two things are asked: in every order both leave one, whichever it is."""
    if first is None or second is None:
        return None
    return tuple(dict.fromkeys(one & other for one in first for other in second))


def keys_apart(pod: UnboundPod, other: UnboundPod, node_list: NodeList) -> frozenset[str]:
    """The labels by which two pods cannot have the same value, whichever of them asks for it."""

    def asked(by: UnboundPod, of: UnboundPod) -> Iterator[str]:
        labels = node_list.namespaces.get(of.namespace, {})
        return (term.topology_key for term in by.affinity.apart if term.matches(of.namespace, of.labels, labels))

    return frozenset((*asked(pod, other), *asked(other, pod)))


def closed_nodes(
    node_pools: NodePools, pod: UnboundPod, hosts: Iterable[int], closing: Mapping[str, int | None]
) -> int:
    """How many of these nodes may be closed at most, when for each label so many domains are; `None`: any number."""
    free, nodes = node_pools.free, node_pools.node_list.hosts
    roomy = [nodes[index].node.labels for index in hosts if free[index].holds(pod.requests)]
    total = 0
    for key, domains in closing.items():
        sizes = Counter(labels[key] for labels in roomy if key in labels)
        total += sum(count for _, count in sizes.most_common(domains))
    return total
