"""On which nodes a pod may count that follows other pods, is spread over domains, or keeps apart by them.

The rules are those of `nodes.pod_affinity`, asked about every state that the pods of a run and of others can come to.
The answer is sets of nodes: in every order all nodes of one set at least are open to the pod, as far as affinity and
spread go. So the pod always has a node where each set always has room. Where no such sets are certain there is no
answer. Pods apart are counted: each that cannot be in a domain with another closes one domain, whichever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from gpuflow.checker.nodes.capacity import NodePools, leading_hosts
from gpuflow.checker.nodes.filters import affinity_state, balances
from gpuflow.checker.nodes.node_info import NodeList, UnboundPod
from gpuflow.checker.nodes.pod_affinity import Affinity, PodAffinityTerm, SpreadBalance, SpreadConstraint
from gpuflow.kubernetes.labels import Selector

Hosts = frozenset[int]


class Openings(NamedTuple):
    """Sets of nodes: in every order all nodes of one of them at least are open to the pod."""

    sets: tuple[Hosts, ...]
    balance: SpreadBalance | None = None
    """The constraint that makes them domains, of which the one with the fewest pods is open."""

    def meet(self, other: Openings | None) -> Openings | None:
        """The sets for a pod that is held to both: each may come with each."""
        if other is None:
            return None
        sets = tuple(dict.fromkeys(one & another for one in self.sets for another in other.sets))
        return Openings(sets, self.balance or other.balance)


class Neighbor(NamedTuple):
    """A pod of the pipeline, or one of others that waits, and the nodes where it may be."""

    pod: UnboundPod
    find_hosts: Callable[[], Collection[int]] = tuple
    is_hidden: bool = False
    """Its labels are not known: queues do not say which ones their pods will have."""


def may_mean(term: PodAffinityTerm, neighbor: Neighbor) -> bool:
    """Whether a term may mean a pod that is not there yet."""
    if neighbor.is_hidden and term.selector is not None:
        term = term._replace(selector=Selector(()))
    return term.may_match(neighbor.pod.namespace, neighbor.pod.labels, {})


def open_to_follower(node_pools: NodePools, pod: UnboundPod, neighbors: Iterable[Neighbor]) -> Openings | None:
    """The sets of nodes for a pod with required affinity; `None` where nothing is certain.

    Where pods stay that its terms mean, it may always go there. Else it must mean itself, and be a neighbor: the first
    of its kind goes anywhere, and all others follow. Then every domain may be the one in which they are.
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
        return Openings((stay,))
    if node_list.templates or not all(
        term.matches(pod.namespace, pod.labels, {}) and term.is_certain_of(pod.labels) for term in terms
    ):
        return None
    domains: dict[tuple[str | None, ...], set[int]] = {}
    for index in now:
        domains.setdefault(_place(node_list, index, keys), set()).add(index)
    found = set[Hosts]()
    for index in (*leading_hosts(node_list, pod), *led_hosts(node_list, pod, neighbors)):
        place = _place(node_list, index, keys)
        if None not in place and place in domains:
            found.add(frozenset(domains[place]))
        elif any(value is not None for value in place):
            return None  # with a pod there it is not the first any longer, and cannot go where the other is
    return Openings(tuple(found)) if found else None


def _place(node_list: NodeList, index: int, keys: Iterable[str]) -> tuple[str | None, ...]:
    return tuple(node_list.hosts[index].node.labels.get(key) for key in keys)


def led_hosts(node_list: NodeList, pod: UnboundPod, neighbors: Iterable[Neighbor]) -> Iterator[int]:
    """The nodes where a pod may come to be that all affinity terms of this one mean."""
    terms = [term.merge_namespaces(node_list.namespaces) for term in pod.affinity.together]
    for neighbor in neighbors if terms else ():
        if all(may_mean(term, neighbor) for term in terms):
            yield from neighbor.find_hosts()


def term_of(constraint: SpreadConstraint, pod: UnboundPod) -> PodAffinityTerm:
    """Which pods a constraint of the pod counts."""
    return PodAffinityTerm(constraint.selector, constraint.topology_key, frozenset({pod.namespace}), None)


def open_to_spread(
    node_pools: NodePools, pod: UnboundPod, most: Callable[[SpreadConstraint], int | None]
) -> Openings | None:
    """The sets of nodes for a pod with spread constraints; `None` where nothing is certain.

    The domain with the fewest pods takes one more, whichever that is. That holds for one constraint; any other must be
    one that never refuses a node. `most` says how many pods that a constraint counts may come to be alive at once.
    """
    node_list, keys = node_pools.node_list, {each.topology_key for each in pod.constraints}
    labels = {index: node_list.hosts[index].node.labels for index in node_pools.pool(pod).now}
    now = [index for index in labels if labels[index].keys() >= keys]
    binding = [each for each in balances(pod, node_list) if not _never_refuses(each, node_list, most(each.constraint))]
    if not binding:
        return Openings((frozenset(now),))
    balance = binding[0]
    key, domains = balance.constraint.topology_key, {domain: set[int]() for domain in balance.tallies}
    for index in now:
        domains.get(labels[index][key], set()).add(index)
    has_all = len(domains) >= max(balance.constraint.min_domains, 1) and all(domains.values())
    if len(binding) > 1 or node_list.templates or balance.constraint.max_skew < 1 or not has_all:
        return None
    return Openings(tuple(map(frozenset, domains.values())), balance)


def _never_refuses(balance: SpreadBalance, node_list: NodeList, most: int | None) -> bool:
    """Whether there is one domain alone, or are so few pods that no domain ever has too many."""
    constraint = balance.constraint
    if most is not None and max(balance.tallies.values(), default=0) + most <= constraint.max_skew:
        return True
    alone = len(balance.tallies) == 1 and constraint.min_domains <= 1 and constraint.max_skew >= 1
    return alone and not node_list.templates


def keys_apart(pod: UnboundPod, other: UnboundPod, node_list: NodeList) -> frozenset[str]:
    """The labels by which two pods cannot have the same value, whichever of them asks for it."""

    def find_keys(by: UnboundPod, of: UnboundPod) -> Iterator[str]:
        labels = node_list.namespaces.get(of.namespace, {})
        return (term.topology_key for term in by.affinity.apart if term.matches(of.namespace, of.labels, labels))

    return frozenset((*find_keys(pod, other), *find_keys(other, pod)))


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
