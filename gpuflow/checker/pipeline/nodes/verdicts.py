"""The pods of a pipeline on the nodes: for each kind and each way a queue may send it, whether there is always room.

Room is counted beside what is bound to the nodes now, and beside pods of others that wait for a node. Nodes that are
cordoned or unwell count for *never* only. What pods ask of each other (affinity, spreading, ports) and volumes that may
be tied to nodes are not weighed: a kind that asks for such things is *unknown* unless it is *never*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuflow.checker.contention.bins import Bin
from gpuflow.checker.contention.competitors import Company, Gathering
from gpuflow.checker.contention.concurrency import Crowd, largest_cap
from gpuflow.checker.contention.proof import Contest, Settled, settle_with
from gpuflow.checker.nodes.capacity import room
from gpuflow.checker.nodes.fit import read_pending
from gpuflow.checker.nodes.stock import Pool, Stock, in_order, offer
from gpuflow.checker.nodes.subjects import Node, WaitingPod
from gpuflow.checker.pipeline.nodes.pending import Waiter, WaitingRoom
from gpuflow.checker.pipeline.pod_groups import Kind
from gpuflow.checker.pipeline.queues.requests import Route
from gpuflow.checker.report import Verdict

PODS: Final = "pods"

Share = Callable[[Kind, Route, Mapping[str, int]], Mapping[str, tuple[str, str, int]]]
"""What a queue gives at most to pods of a kind on one of their ways: by resource, with the queue and the flavor."""
DEFAULT_SCHEDULER: Final = "default-scheduler"


@dataclass(frozen=True, eq=False, slots=True)
class Seat:
    """A kind of pod with what a queue puts on it, and the nodes that are for it."""

    kind: Kind
    route: Route
    pod: WaitingPod
    pool: Pool

    @property
    def company(self) -> Company:
        return Company(self.kind.steps, {**self.pod.requests, PODS: 1}, self.kind.pods)


@dataclass(frozen=True, eq=False, slots=True)
class Sitting:
    """A seat with its verdict and what it rests on."""

    seat: Seat
    verdict: Verdict
    settled: Settled | None = None
    unknown: tuple[str, ...] = ()
    """What the scheduler also looks at and could not be weighed."""


class Seating:
    """All kinds of pods on the nodes of a cluster, judged against each other and what runs there."""

    def __init__(
        self,
        stock: Stock,
        kinds: Iterable[tuple[Kind, tuple[Route, ...]]],
        crowd: Crowd,
        runs: int,
        open_claims: Collection[str] = (),
        share: Share | None = None,
        waiters: Sequence[Waiter] = (),
        avoided: Mapping[str, int] | None = None,
    ) -> None:
        self.stock, self.crowd, self.runs = stock, crowd, runs
        self._share = share
        self._avoided = avoided or {}
        self._open_claims = open_claims
        self.waiting = WaitingRoom(stock, waiters, PODS)
        self.seats = [self._seat(kind, route) for kind, routes in kinds for route in routes if route.labels is not None]
        self._shunning = [seat for seat in self.seats if seat.pod.affinity.apart]
        self._hosts: dict[int, frozenset[int]] = {}
        self._company: dict[int, Gathering] = {}
        self._ceilings: dict[int, dict[str, int]] = {}
        self.sittings = [self._sitting(seat) for seat in self.seats]

    def _seat(self, kind: Kind, route: Route) -> Seat:
        pod = read_pending(_without(_sent(kind.pod, route), self._open_claims))
        return Seat(kind, route, pod, self.stock.pool(pod))

    def _sitting(self, seat: Seat) -> Sitting:
        if room(self.stock, seat.pod, seat.kind.pods).verdict == "never":
            return Sitting(seat, "never")
        unknown = tuple(dict.fromkeys(self._unknown(seat)))
        if unknown:
            return Sitting(seat, "unknown", unknown=unknown)
        settled = self.among(seat, self.crowd)
        return Sitting(seat, settled.verdict, settled)

    def among(self, seat: Seat, crowd: Crowd) -> Settled:
        """How the seat fares when everything that may run beside it lies on the nodes as badly as it can."""
        asked = {**seat.pod.requests, PODS: 1}
        company, ceilings = self.company(seat), self.ceilings(seat)
        avoided = 0 if seat.kind.is_driver else max(self._avoided.get(step, 0) for step in seat.kind.steps)
        contest = Contest(seat.kind.steps, asked, self._bins(seat), company, PODS, ceilings, avoided=avoided)
        settled = settle_with(self.waiting.rivals(self.hosts(seat.pool)), contest, crowd, self.runs)
        shunning = self.waiting.shunning(seat.pod) if settled.verdict == "always" else ()
        return Settled("may-queue", tuple(seat.pod.requests), rivals=shunning) if shunning else settled

    def safe_parallelism(self, sittings: Iterable[Sitting]) -> int | None:
        """The largest cap on live pods with which all of these always find room at once."""
        if self.runs != 1 or any(each.settled is None for each in sittings):
            return None
        seats = [each.seat for each in sittings]
        return largest_cap(self.crowd, lambda crowd: all(self.among(seat, crowd).verdict == "always" for seat in seats))

    def company(self, seat: Seat) -> Gathering:
        """Everything that may lie on a node of the seat's pool, itself included."""
        key = id(seat.pool)
        if key not in self._company:
            self._company[key] = Gathering({id(other.kind): other.company for other in self._near(seat)}.values())
        return self._company[key]

    def _near(self, seat: Seat) -> list[Seat]:
        own = self.hosts(seat.pool)
        return [other for other in self.seats if other.pool is seat.pool or not self.hosts(other.pool).isdisjoint(own)]

    def ceilings(self, seat: Seat) -> dict[str, int]:
        """The most of each resource that queues ever let onto the seat's nodes; none where pods come past them."""
        key = id(seat.pool)
        if self._share is not None and key not in self._ceilings:
            near = [
                (other.pod.requests, self._share(other.kind, other.route, other.pod.requests))
                for other in self._near(seat)
            ]
            given: dict[str, dict[tuple[str, str], int]] = {}
            for _, shares in near:
                for resource, (queue, flavor, left) in shares.items():
                    given.setdefault(resource, {})[queue, flavor] = left
            for requests, shares in near:
                for resource in requests.keys() - shares.keys():
                    given.pop(resource, None)
            self._ceilings[key] = {resource: sum(parts.values()) for resource, parts in given.items()}
        return self._ceilings.get(key, {})

    def peak(self, seat: Seat, resource: str) -> tuple[int | None, tuple[str, ...]]:
        """The most of a resource that is alive at once on the seat's nodes, and the steps that reach it."""
        value, witness = self.worst(self.company(seat), resource)
        most = self.ceilings(seat).get(resource)
        return (value if most is None else most if value is None else min(value, most)), witness

    def hosts(self, pool: Pool) -> frozenset[int]:
        if id(pool) not in self._hosts:
            self._hosts[id(pool)] = frozenset(pool.now)
        return self._hosts[id(pool)]

    def short(self, seat: Seat) -> tuple[str, ...]:
        """The resources of which no node of the pool has enough free now; all when it is not one of them alone."""
        hosts = self.hosts(seat.pool)
        if not hosts:
            return tuple(in_order(seat.pod.requests)[:1])
        free = self.stock.free
        found = [
            name
            for name, amount in seat.pod.requests.items()
            if all(free[index].free.get(name, 0) < amount for index in hosts)
        ]
        return tuple(found or seat.pod.requests)

    def worst(self, company: Gathering, resource: str) -> tuple[int | None, tuple[str, ...]]:
        """The most of a resource that is alive at once, over all runs, and the steps that reach it."""
        value, _, witness = company.worst(resource, self.crowd)
        return None if value is None else value * self.runs, witness

    def _bins(self, seat: Seat) -> list[Bin]:
        names = in_order(seat.pod.requests)
        hosts = self.stock.open_hosts(seat.pod)
        if hosts is seat.pool.now:
            rows = ((row.free, row.slots, row.nodes) for row in seat.pool.table("now", names).rows)
        else:
            free = self.stock.free
            alike = Counter(
                (tuple(free[index].free.get(name, 0) for name in names), free[index].slots) for index in hosts
            )
            rows = ((amounts, slots, nodes) for (amounts, slots), nodes in alike.items())
        return [Bin({**dict(zip(names, amounts, strict=True)), PODS: slots}, nodes) for amounts, slots, nodes in rows]

    def _unknown(self, seat: Seat) -> Iterator[str]:
        pod, fleet = seat.pod, self.stock.fleet
        yield from fleet.unknown(pod)
        if pod.affinity:
            yield "its affinity and anti-affinity to other pods"
        if pod.constraints:
            yield "its topology spread constraints"
        if pod.ports or pod.disks:
            yield "the host ports and disks it claims"
        scheduler = seat.kind.pod["spec"].get("schedulerName") or DEFAULT_SCHEDULER
        if scheduler != DEFAULT_SCHEDULER:
            yield f"how scheduler {scheduler} decides"
        labels = fleet.namespaces.get(pod.namespace, {})
        for other in self._shunning:
            if any(term.matches(pod.namespace, pod.labels, labels) for term in other.pod.affinity.apart):
                yield f"that {other.kind.steps[0]} keeps apart from it"

    def new_nodes(self, seat: Seat) -> tuple[Node, int] | None:
        """The node group that can hold more of these pods, and how many of its nodes the worst moment may need."""
        for node in sorted(seat.pool.templates, key=lambda each: each.name):
            each = offer(node).holds(seat.pod.requests)
            if each and node.group_max:
                alive, _ = self.worst(Gathering([Company(seat.kind.steps, {PODS: 1}, seat.kind.pods)]), PODS)
                alone = len(self.company(seat).members) == 1
                here = self.stock.count_now(seat.pod) if alone else 0
                missing = max((alive if alive is not None else node.group_max * each) - here, 1)
                return node, min(-(-missing // each), node.group_max)
        return None


def _sent(pod: Mapping[str, Any], route: Route) -> Mapping[str, Any]:
    """The pod with the labels and tolerations that Kueue adds when it lets it go."""
    if not route.flavors:
        return pod
    spec = pod["spec"]
    return {
        **pod,
        "spec": {
            **spec,
            "nodeSelector": {**(spec.get("nodeSelector") or {}), **(route.labels or {})},
            "tolerations": [*(spec.get("tolerations") or ()), *route.tolerations],
        },
    }


def _without(pod: Mapping[str, Any], claims: Collection[str]) -> Mapping[str, Any]:
    """The pod without the claims that any node can mount: they do not bear on where it fits."""
    volumes = pod["spec"].get("volumes") or ()
    kept = [each for each in volumes if (each.get("persistentVolumeClaim") or {}).get("claimName") not in claims]
    return pod if len(kept) == len(volumes) else {**pod, "spec": {**pod["spec"], "volumes": kept}}
