"""Volume claims of a pipeline against the nodes: whether its pods always get their volumes, and where they run.

The verdicts on nodes count the nodes that a claim leaves from the start. Here is what only the run decides: a volume
that comes to the first pod's node and keeps later pods there, a disk that one node has at a time, a claim that one pod
has at a time. Where it is not known whether a volume is tied to nodes, both ways are judged: what is the same in both
is the verdict, and only a difference is *unknown*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from gpuflow.checker.contention.concurrency import Competitor, Competitors
from gpuflow.checker.nodes.capacity import most_per_node, offer
from gpuflow.checker.nodes.node_info import NodeInfo
from gpuflow.checker.nodes.volumes import CLAIM_TAKEN, UNBOUND
from gpuflow.checker.pipeline.nodes.mounted_claims import SETTLE, MountedClaim, MountedClaims, Tie
from gpuflow.checker.pipeline.nodes.verdicts import PODS, NodeVerdicts
from gpuflow.checker.report import Outcome, Verdict, merge_outcomes, outcome_of, worst_verdict
from gpuflow.cluster import Cluster
from gpuflow.core.errors import Finding, Severity, list_names
from gpuflow.demands.model import Demand
from gpuflow.graph import Dag, Leaf, reachable
from gpuflow.kubernetes.resources import read_map, read_maps

USES: Final = "uses"
MOST_TRIED: Final = 2000
"""So many pairs of a kind of pod and a kind of place are tried; beyond, nothing is said of all of them."""
MOST_COMPARED: Final = 1_000_000
"""So many pairs of a kind of pod and a node are compared to find out which places are alike."""
MULTI_ATTACH: Final = "Multi-Attach error for volume: Volume is already used by pod(s) on another node"
WAITS: Final = "the pod is there and waits; nothing has to be started again"


class Holder(NamedTuple):
    """A pod of the cluster that mounts a claim."""

    name: str
    node: str
    """Empty while it waits for one."""


def claim_outcome(demand: Demand, claims: MountedClaims, nodes: NodeVerdicts, cluster: Cluster) -> Outcome:
    """What the claims say to the pods, beside the nodes that they leave from the start."""
    parts = [
        part
        for mounted in claims.mounted.values()
        if mounted.never is None and (mounted.not_shown is None or cluster.knows(mounted.not_shown))
        for part in _ClaimCheck(demand, claims, nodes, mounted, _holders(cluster, claims.namespace, mounted)).parts()
    ]
    return merge_outcomes(parts)


class _ClaimCheck:
    """One claim and the pods that mount it."""

    def __init__(
        self,
        demand: Demand,
        claims: MountedClaims,
        nodes: NodeVerdicts,
        mounted: MountedClaim,
        holders: Sequence[Holder],
    ) -> None:
        self.demand, self.claims, self.nodes, self.mounted, self.holders = demand, claims, nodes, mounted, holders
        own = [
            each
            for each in nodes.verdicts
            if mounted.key in claims.keys(each.request.pod_group.pod) and each.verdict != "never"
        ]
        self.members = [each.request for each in own]
        self.free: Verdict = worst_verdict(each.verdict for each in own)
        self.hosts = frozenset[int]().union(*(each.pool.hosts for each in self.members))
        groups = {
            each.pod_group: Competitor(each.pod_group.steps, {USES: 1}, each.pod_group.pods) for each in self.members
        }
        value, _, self.together = Competitors(groups.values()).peak_load(USES, nodes.concurrency)
        runs = 1 if mounted.is_own else nodes.runs
        self.alive = None if value is None else value * runs
        self.gang = self._gang()
        first = _first_users(demand, {step for each in self.members for step in each.pod_group.steps})
        self.only_first = next(iter(first)) if len(first) == 1 else ""
        self.firsts = [each for each in self.members if not first.isdisjoint(each.pod_group.steps)]

    def _gang(self) -> str | None:
        """A step of which several pods mount the claim, and none gets anywhere without the others."""
        counts: Counter[str] = Counter()
        whole = {step.name: step.part_of or step.name for step in self.demand.steps}
        for group in {each.pod_group for each in self.members}:
            for step in group.steps:
                counts[whole[step]] += group.pods
        return next((step for step, pods in counts.items() if pods > 1), None)

    def parts(self) -> Iterator[Outcome]:
        if not self.members:
            return
        mounted = self.mounted
        if mounted.unknown is not None:
            yield self._unknown(mounted.unknown)
            return
        if mounted.is_waiting:
            yield self._waits("has no volume yet, and pods wait until it has one", UNBOUND)
        if mounted.claim is not None and mounted.claim.is_for_one_pod and not mounted.is_each:
            yield from self._one_pod()
        elif mounted.one_node is not False and self._may_part():
            yield from self._one_node()
        yield from self._without_driver()
        if mounted.tie is not None:
            yield from self._tied_outcomes(mounted.tie)
        if mounted.grants:
            text = f"{mounted.words}: taken for granted: {'; '.join(mounted.grants)}"
            yield outcome_of([self._finding("GF559", text, None, "note")])

    def _may_part(self) -> bool:
        """Whether two pods that have the volume may be on different nodes."""
        tie, hosts = self.mounted.tie, self.nodes.node_pools.node_list.hosts
        if tie is None or tie.keys is None:
            return len(self.hosts) > 1
        places = [tuple(hosts[index].node.labels.get(key) for key in tie.keys) for index in self.hosts]
        return len(set(places)) < len(places)

    def _one_pod(self) -> Iterator[Outcome]:
        if self.gang is not None:
            message = f"is for one pod at a time, and every pod of {self.gang} mounts it: the others never start"
            finding = self._finding("GF556", f"{self.mounted.words} {message}", "give it another access mode", "error")
            yield outcome_of([finding], "never")
        elif self.holders:
            yield self._waits(f"is for one pod at a time, and {self.holders[0].name} has it", CLAIM_TAKEN)
        elif self._is_shared:
            yield self._waits(f"is for one pod at a time, and {self._overlap} mount it at once", CLAIM_TAKEN)

    def _one_node(self) -> Iterator[Outcome]:
        """A disk that is attached to one node: the scheduler does not know, and a pod elsewhere waits for it."""
        names = self.nodes.node_pools.node_list.hosts
        elsewhere = [each for each in self.holders if any(names[index].node.name != each.node for index in self.hosts)]
        if elsewhere:
            because = (
                f"one node has it at a time, and {elsewhere[0].name} mounts it on {elsewhere[0].node or 'some node'}"
            )
        elif self._is_shared:
            because = f"one node has it at a time, and {self._overlap} mount it at once, perhaps on two nodes"
        else:
            return
        if self.gang is not None:
            yield self._unknown(f"one node has it at a time, and the pods of {self.gang} wait for each other")
        elif self.mounted.one_node is None:
            if self.free == "always":
                yield self._unknown(f"if it is a disk, {because}")
        else:
            yield self._waits(because, MULTI_ATTACH)

    def _without_driver(self) -> Iterator[Outcome]:
        """Nodes on which nothing can mount the volume, or that have no room for one more."""
        driver, there = self.mounted.driver, self.claims.storage.node_drivers
        if driver is None or there is None or not any(driver in drivers for drivers in there.values()):
            return
        hosts = self.nodes.node_pools.node_list.hosts
        new = self._new_volumes(driver)
        for index in sorted(self.hosts):
            name = hosts[index].node.name
            if driver not in there.get(name, {}):
                yield self._unknown(f"node {name} does not run its driver {driver}")
                return
            most = there[name][driver].most
            if most is not None and (used := self._mounted_on(hosts[index])) + new(index) > most:
                yield self._unknown(f"node {name} takes {most} volumes of {driver}, and its pods mount up to {used}")
                return

    def _new_volumes(self, driver: str) -> Callable[[int], int]:
        """How many volumes of a driver the pods may bring to a node, by its index."""
        mounted = [each for each in self.claims.mounted.values() if each.driver == driver]
        shared, own = sum(not each.is_each for each in mounted) * self.nodes.runs, []
        for key in (each.key for each in mounted if each.is_each):
            users = [each for each in self.nodes.requests if key in self.claims.keys(each.pod_group.pod)]
            groups = {each.pod_group: each.competitor for each in users}
            own.append((users, self.nodes.worst_load(Competitors(groups.values()), PODS)[0]))
        empty = self.nodes.node_pools.empty

        def count(index: int) -> int:
            total = shared
            for users, alive in own:
                here = sum(empty[index].holds(each.pod.requests, most_per_node(each.pod)) for each in users)
                total += here if alive is None else min(alive, here)
            return total

        return count

    def _mounted_on(self, host: NodeInfo) -> int:
        """How many volumes pods have on a node, or more: claims of other namespaces are not told apart by name."""
        own = {claim for pod in host.pods for claim in pod.claims if pod.namespace == self.claims.namespace}
        others = sum(len(pod.claims) for pod in host.pods if pod.namespace != self.claims.namespace)
        return len(own) + others

    def _tied_outcomes(self, tie: Tie) -> Iterator[Outcome]:
        if self.holders:
            tie = tie._replace(follows_pod=False)  # it may come to where another pod is
        if tie.follows_pod and (self.mounted.is_each or self._is_used_once):
            return
        if len(self.members) * len(self.nodes.node_pools.node_list.hosts) > MOST_COMPARED:
            yield self._unknown(
                "its volume may be tied to nodes, and there are too many steps and nodes to try them all"
            )
            return
        if self._always_on_each(tie):
            return
        stuck = self._is_stuck(tie)
        if tie.is_certain and stuck is None:
            if self.free == "always":
                yield self._waits(f"keeps its pods {self._place(tie)}, where others may take the room", None)
        elif self.free == "always" or stuck is not None:
            where = (
                f"a later pod must run {self._place(tie)}"
                if tie.follows_pod
                else f"it may be {self._place(tie, 'any')}"
            )
            fate = f"{stuck} may not fit there" if stuck is not None else "others may take the room there"
            yield self._unknown(f"{'' if tie.is_certain else 'its volume may be tied to nodes: '}{where}, and {fate}")

    def _place(self, tie: Tie, which: str = "the same") -> str:
        return f"on {which} node" if tie.keys is None else f"where nodes have {which} {', '.join(tie.keys)}"

    def _always_on_each(self, tie: Tie) -> bool:
        """Whether all pods always find room, wherever the volume comes to be."""
        first_hosts = frozenset[int]().union(*(each.pool.hosts for each in self.firsts))
        places, is_one = self._segments(tie, first_hosts if tie.follows_pod else self._allowed_hosts(tie))
        if is_one and self.hosts <= places[0]:
            return True
        if len(places) * len(self.members) > MOST_TRIED or self._meets_others(tie):
            return False
        return all(
            each.pool.hosts & place and self.nodes.decide_among(each, self.nodes.concurrency, place).verdict == "always"
            for each in self.members
            for place in places
            if not (
                tie.follows_pod and each.pod_group.steps == (self.only_first,) and self._has_one_pod(self.only_first)
            )
        )

    def _is_stuck(self, tie: Tie) -> str | None:
        """A step that could never run where the volume may come to be, or none."""
        ever = frozenset(index for each in self.firsts for index in each.pool.ever)
        places, is_one = self._segments(tie, ever if tie.follows_pod else self._allowed_hosts(tie))
        if self._meets_others(tie) and not is_one:
            return self.members[0].pod_group.steps[0]
        pools = self.nodes.node_pools
        for each in self.members:
            most, pods, step = most_per_node(each.pod), each.pod_group.pods, each.pod_group.steps[0]
            here = frozenset(each.pool.ever)
            for place in places:
                if sum(pools.empty[index].holds(each.pod.requests, most) for index in here & place) < pods:
                    return step
            for node in {node for other in self.firsts for node in other.pool.templates}:
                if node not in each.pool.templates or offer(node).holds(each.pod.requests, most) < pods:
                    return step
        return None

    def _meets_others(self, tie: Tie) -> bool:
        """Whether a pod mounts another tied claim too that may have come to be elsewhere, or must be spread."""
        if any(each.pod.constraints for each in self.members):
            return True
        users = {each.pod_group for each in self.members}
        for other in self.claims.mounted.values():
            if other.key == self.mounted.key or other.tie is None:
                continue
            theirs = {
                each.pod_group for each in self.nodes.requests if other.key in self.claims.keys(each.pod_group.pod)
            }
            if users & theirs and (users != theirs or not (tie.follows_pod and other.tie.follows_pod)):
                return True
        return False

    def _allowed_hosts(self, tie: Tie) -> frozenset[int]:
        """The nodes beside which a provisioner may put the volume."""
        hosts = self.nodes.node_pools.node_list.hosts
        return frozenset(
            index for index, host in enumerate(hosts) if tie.allowed is None or tie.allowed.allows(host.node.labels)
        )

    def _segments(self, tie: Tie, indexes: Iterable[int]) -> tuple[list[frozenset[int]], bool]:
        """The parts of the cluster to one of which the volume may be tied, and whether there is one.

        Of parts that are alike one is given.
        """
        pools = self.nodes.node_pools
        hosts = pools.node_list.hosts
        parts: dict[object, list[int]] = {}
        for index in sorted(indexes):
            labels = hosts[index].node.labels
            key: object = index if tie.keys is None else tuple(labels.get(each) for each in tie.keys)
            parts.setdefault(key, []).append(index)
        if len(parts) == 1:
            return [frozenset(part) for part in parts.values()], True
        names = sorted({name for each in self.members for name in each.pod.requests})

        def looks(index: int) -> object:
            free, empty = pools.free[index], pools.empty[index]
            eligible = tuple((index in each.pool.hosts, index in each.pool.ever) for each in self.members)
            amounts = ((free.free.get(name, 0), empty.free.get(name, 0)) for name in names)
            return tuple(amounts), free.slots, empty.slots, eligible

        alike: dict[object, list[int]] = {}
        for part in parts.values():
            alike.setdefault(tuple(sorted(map(repr, map(looks, part)))), part)
        return [frozenset(part) for part in alike.values()], False

    @property
    def _is_shared(self) -> bool:
        return self.alive is None or self.alive > 1

    @property
    def _overlap(self) -> str:
        names = list(dict.fromkeys(self.together or [step for each in self.members for step in each.pod_group.steps]))
        return f"copies of {names[0]}" if len(names) == 1 else list_names(names, "step")

    @property
    def _is_used_once(self) -> bool:
        """Whether one pod mounts it and none comes after it."""
        steps = {step for each in self.members for step in each.pod_group.steps}
        return len(steps) == 1 and self._has_one_pod(next(iter(steps)))

    def _has_one_pod(self, name: str) -> bool:
        """Whether a step has one pod, ever: it is then where the volume comes to."""
        step = next(step for step in self.demand.steps if step.name == name)
        runs = 1 if self.mounted.is_own else self.nodes.runs
        return step.copies == step.pods == step.tries == runs == 1

    def _waits(self, because: str, kubernetes: str | None) -> Outcome:
        message = f"{self.claims.users_phrase(self.mounted)} may wait for {self.mounted.words}: {because}"
        if self.mounted.is_waiting and kubernetes == UNBOUND:
            message = f"{self.claims.users_phrase(self.mounted)} must wait for {self.mounted.words}: it {because}"
        return outcome_of([self._finding("GF557", message, WAITS, "warning", kubernetes)], "may-queue")

    def _unknown(self, because: str) -> Outcome:
        who = self.claims.users_phrase(self.mounted)
        message = f"it is unknown whether {who} can always have {self.mounted.words}: {because}"
        return outcome_of([self._finding("GF558", message, SETTLE, "warning")], "unknown")

    def _finding(
        self, code: str, message: str, hint: str | None, severity: Severity, kubernetes: str | None = None
    ) -> Finding:
        return Finding(code, message, self.claims.where(self.mounted), hint, severity=severity, kubernetes=kubernetes)


def _first_users(demand: Demand, users: set[str]) -> set[str]:
    """The steps that may be the first to mount a claim: none of the others has certainly run before them."""
    graph = demand.graph
    if not isinstance(graph, Dag):
        return users
    mounting = {key for key, node in graph.nodes.items() if isinstance(node, Leaf) and node.name in users}
    unsure = {key for key, node in graph.nodes.items() if isinstance(node, Leaf) and node.name in demand.conditional}
    unsure |= {key for key, node in graph.nodes.items() if not isinstance(node, Leaf)}
    unsure |= reachable(graph.edges, unsure)  # what follows a step that is skipped may be skipped too
    later = mounting & reachable(graph.edges, mounting - unsure)
    after_all = {step.name for step in demand.steps if step.is_exit}
    return users - ({node.name for key in later if isinstance(node := graph.nodes[key], Leaf)} - after_all)


def _holders(cluster: Cluster, namespace: str, mounted: MountedClaim) -> list[Holder]:
    """The pods of the cluster that mount a claim, or wait to."""
    found = []
    for item in cluster.of("Pod", namespace) if not mounted.is_own else ():
        spec = read_map(item.body.get("spec"), "spec")
        phase = read_map(item.body.get("status"), "status").get("phase")
        names = [
            read_map(volume.get("persistentVolumeClaim"), "persistentVolumeClaim").get("claimName")
            for volume in read_maps(spec.get("volumes"), "spec.volumes")
        ]
        if mounted.key in names and phase not in ("Succeeded", "Failed"):
            found.append(Holder(f"pod {item.name}", str(spec.get("nodeName") or "")))
    return found
