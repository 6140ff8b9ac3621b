"""Small clusters where pods follow, avoid and spread, and every state they can come to, by a small scheduler.

The scheduler is written from Kubernetes' own filters (NodeResourcesFit, InterPodAffinity, PodTopologySpread), in other
terms than gpuflow's: of kinds of pods and how many of each are on each node. The search goes through all orders in
which pods come, are bound to any node that the filters leave, and end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from gpuflow.checker.nodes import fit_nodes
from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.cluster import Cluster
from gpuflow.demands import Demand, PodSet, StepDemand, graph_of
from tests.assumed import ASSUMED
from tests.checker.whole_scenes import HOME, NAMESPACE, Body, manifest, node

HOST, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/rack"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MOST_STATES = 4000

State = tuple[tuple[int, ...], ...]
"""For each kind of pods, how many are on each node."""


class Place(NamedTuple):
    """A node."""

    zone: str | None
    cpu: int
    is_cordoned: bool = False


class Term(NamedTuple):
    key: str
    app: str | None
    """The label that a pod must have; empty: any pod; `None`: no selector, which means nobody."""


class Spread(NamedTuple):
    key: str
    skew: int
    app: str
    least: int | None
    """minDomains."""


class Kind(NamedTuple):
    """Pods that are alike: of a step, or one of others."""

    app: str
    cpu: int
    together: tuple[Term, ...] = ()
    apart: tuple[Term, ...] = ()
    spread: tuple[Spread, ...] = ()
    zone: str | None = None
    """The only zone that it may be in."""
    most: int = 1
    """How many are alive at once."""
    gang: int = 1
    at: int | None = None
    """Where a pod of others is already."""
    stays: bool = False
    """A pod of a DaemonSet."""
    is_elsewhere: bool = False
    """In another namespace."""

    @property
    def is_own(self) -> bool:
        return self.most > 0

    def means(self, term: Term, other: Kind) -> bool:
        return other.is_elsewhere == self.is_elsewhere and (term.app == "" or term.app == other.app)


class Scene(NamedTuple):
    places: tuple[Place, ...]
    own: tuple[Kind, ...]
    others: tuple[Kind, ...]
    waiting: tuple[Kind, ...]
    """Pods of others that no node has yet."""
    in_a_row: bool
    """Whether the second step waits for the first."""
    runs: int

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return (*self.own, *self.others, *self.waiting)

    def labels(self, at: int) -> dict[str, str]:
        zone = self.places[at].zone
        return {HOST: f"n{at}", **({} if zone is None else {ZONE: zone})}


# The small scheduler.


class Scheduler:
    """On which nodes a pod of a kind can be, in a state. `helpers` are kinds that nobody asked for yet."""

    def __init__(self, scene: Scene, helpers: tuple[Kind, ...] = (), *, cordons: bool = True) -> None:
        self.scene, self.cordons = scene, cordons
        self.kinds = (*scene.kinds, *helpers)
        self.labels = [scene.labels(at) for at in range(len(scene.places))]

    def open_to(self, kind: Kind, state: State) -> list[int]:
        there = [(other, at, n) for other, row in zip(self.kinds, state, strict=True) for at, n in enumerate(row) if n]
        refusals = self._apart(kind, there) | {("", "")}
        follows = self._follows(kind, there)
        balances = [self._balance(kind, each, there) for each in kind.spread]
        found = []
        for at, place in enumerate(self.scene.places):
            labels = self.labels[at]
            used = sum(other.cpu * count for other, where, count in there if where == at)
            if used + kind.cpu > place.cpu or (kind.zone not in (None, place.zone)):
                continue
            if place.is_cordoned and self.cordons:
                continue
            if refusals.isdisjoint(labels.items()) and follows(labels) and all(each(labels) for each in balances):
                found.append(at)
        return found

    def _apart(self, kind: Kind, there: list[tuple[Kind, int, int]]) -> set[tuple[str, str]]:
        """The domains where a pod is that one of the two keeps apart from."""
        return {
            (term.key, self.labels[at][term.key])
            for other, at, _ in there
            for by, of in ((kind, other), (other, kind))
            for term in by.apart
            if by.means(term, of) and term.key in self.labels[at]
        }

    def _follows(self, kind: Kind, there: list[tuple[Kind, int, int]]) -> Callable[[dict[str, str]], bool]:
        leaders = [at for other, at, _ in there if all(kind.means(term, other) for term in kind.together)]
        pairs = {
            (term.key, self.labels[at][term.key])
            for at in leaders
            for term in kind.together
            if term.key in self.labels[at]
        }
        is_first = not pairs and all(kind.means(term, kind) for term in kind.together)

        def holds(labels: dict[str, str]) -> bool:
            if any(term.key not in labels for term in kind.together):
                return False
            return is_first or all((term.key, labels[term.key]) in pairs for term in kind.together)

        return holds

    def _balance(
        self, kind: Kind, spread: Spread, there: list[tuple[Kind, int, int]]
    ) -> Callable[[dict[str, str]], bool]:
        tally: Counter[str] = Counter()
        for at, labels in enumerate(self.labels):
            if all(each.key in labels for each in kind.spread) and kind.zone in (None, labels.get(ZONE)):
                tally[labels[spread.key]] += sum(
                    count
                    for other, where, count in there
                    if where == at and spread.app and kind.means(Term(spread.key, spread.app), other)
                )
        own = int(spread.app in ("", kind.app))
        fewest = min(tally.values(), default=0) if len(tally) >= (spread.least or 1) else 0

        def holds(labels: dict[str, str]) -> bool:
            return spread.key in labels and tally[labels[spread.key]] + own - fewest <= spread.skew

        return holds


class TooMany(Exception):
    """There are more states than are looked at."""


def states(scheduler: Scheduler, scene: Scene, helpers: int = 0) -> Iterator[State]:
    """All states that can come to be."""
    width, first_waiting = len(scene.places), len(scene.own) + len(scene.others)
    rows = [tuple(int(kind.at == at) for at in range(width)) for kind in scheduler.kinds]
    start = tuple(rows)
    seen, queue = {start}, [start]
    while queue:
        state = queue.pop()
        yield state
        for index, kind in enumerate(scheduler.kinds):
            is_other = len(scene.own) <= index < first_waiting
            after = []
            if not kind.stays:
                after += [(at, -1) for at, count in enumerate(state[index]) if count]
            if not is_other and may_come(scene, index, state):
                after += [(at, 1) for at in scheduler.open_to(kind, state)]
            for at, change in after:
                row = state[index]
                row = (*row[:at], row[at] + change, *row[at + 1 :])
                new = (*state[:index], row, *state[index + 1 :])
                if new not in seen:
                    seen.add(new)
                    queue.append(new)
        if len(seen) > MOST_STATES:
            raise TooMany


def may_come(scene: Scene, index: int, state: State) -> bool:
    """Whether one more pod of a kind may ask for a node."""
    alive = [sum(row) for row in state]
    if index >= len(scene.own):
        return alive[index] < 1
    alive[index] += 1
    counts = [-(-alive[each] // kind.most) for each, kind in enumerate(scene.own)]
    return sum(counts) <= scene.runs if scene.in_a_row else max(counts) <= scene.runs


def can_wait(scene: Scene) -> bool:
    """Whether a pod of the run may find no node when it comes."""
    scheduler = Scheduler(scene)
    return any(
        may_come(scene, index, state) and not scheduler.open_to(kind, state)
        for state in states(scheduler, scene)
        for index, kind in enumerate(scene.own)
    )


def all_can_run(scene: Scene, helpers: tuple[Kind, ...] = ()) -> bool:
    """Whether each step has a state in which all pods of one copy are on nodes, when nodes are uncordoned."""
    left = set(range(len(scene.own)))
    for state in states(Scheduler(scene, helpers, cordons=False), scene, len(helpers)):
        left -= {index for index in left if sum(state[index]) >= scene.own[index].gang}
        if not left:
            return True
    return False


def helpers_of(scene: Scene) -> tuple[Kind, ...]:
    """Pods that other people may create some day. That nobody creates one to divide a gang is the model's own word."""
    is_tied = any(kind.gang > 1 and kind.together for kind in scene.own)
    return () if is_tied else (Kind("a", 0), Kind("b", 0))


# What gpuflow is asked.


def term_of(term: Term) -> Body:
    selector = {} if term.app is None else {"labelSelector": {"matchLabels": {"app": term.app} if term.app else {}}}
    return {**selector, "topologyKey": term.key}


def body_of(kind: Kind, name: str) -> Body:
    affinity = {
        field: {REQUIRED: [term_of(each) for each in terms]}
        for field, terms in (("podAffinity", kind.together), ("podAntiAffinity", kind.apart))
        if terms
    }
    spread = [
        {
            "maxSkew": each.skew,
            "topologyKey": each.key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": each.app} if each.app else {}},
            **({} if each.least is None else {"minDomains": each.least}),
        }
        for each in kind.spread
    ]
    amounts = {"cpu": str(kind.cpu)} if kind.cpu else {}
    spec: Body = {"containers": [{"name": "main", "image": "i", "resources": {"requests": amounts}}]}
    spec |= {"affinity": affinity} if affinity else {}
    spec |= {"topologySpreadConstraints": spread} if spread else {}
    spec |= {} if kind.zone is None else {"nodeSelector": {ZONE: kind.zone}}
    labels = {"app": kind.app} if kind.app else {}
    namespace = "others" if kind.is_elsewhere else NAMESPACE
    metadata: Body = {"name": name, "namespace": namespace, "labels": labels}
    if kind.stays:
        metadata["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def nodes_of(scene: Scene) -> list[Body]:
    return [
        node(f"n{at}", cpu=str(place.cpu), labels=scene.labels(at), unschedulable=place.is_cordoned)
        for at, place in enumerate(scene.places)
    ]


def on_node(body: Body, at: int) -> Body:
    return {**body, "spec": {**body["spec"], "nodeName": f"n{at}"}, "status": {"phase": "Running"}}


def judged(scene: Scene) -> Report:
    """What the checker says of the scene."""
    steps = []
    for number, kind in enumerate(scene.own):
        pod = body_of(kind, "x")
        pod = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
        steps.append(StepDemand(f"s{number}", (PodSet("main", kind.gang, pod),), kind.most // kind.gang))
    edges = {"s0": ["s1"]} if scene.in_a_row else None
    demand = Demand("p", tuple(steps), graph_of(steps, edges))
    objects = [HOME, *nodes_of(scene)]
    objects += [on_node(body_of(kind, f"o{at}"), kind.at or 0) for at, kind in enumerate(scene.others)]
    objects += [{**body_of(kind, f"w{at}"), "status": {"phase": "Pending"}} for at, kind in enumerate(scene.waiting)]
    cluster = Cluster("cluster.yaml", tuple(map(manifest, objects)), assumed=ASSUMED)
    return check(demand, cluster, NAMESPACE, runs=scene.runs)


def nodes_by_gpuflow(scene: Scene, kind: Kind, state: State) -> list[int]:
    """Where `fit_nodes`, which is held against kube-scheduler's own code, lets a pod of a kind go in a state."""
    pods = [
        on_node(body_of(other, f"p{number}-{at}-{copy}"), at)
        for number, (other, row) in enumerate(zip(scene.kinds, state, strict=True))
        for at, count in enumerate(row)
        for copy in range(count)
    ]
    found = fit_nodes(body_of(kind, "x"), nodes_of(scene), pods, {NAMESPACE: {}, "others": {}})
    assert not found.unknown
    return sorted(int(name[1:]) for name in found.feasible)


# Drawing scenes.


def draw(random: Random) -> Scene:
    """One scene. Most are such that domains decide, not room alone."""
    zones = [None, "x", "y", "z"][: random.randint(2, 4)]
    weights = [0.3, *[3.0] * (len(zones) - 1)]
    places = tuple(
        Place(random.choices(zones, weights)[0], random.randint(2, 6), random.random() < 0.06)
        for _ in range(random.randint(2, 5))
    )
    first = draw_step(random, random.randint(1, 4))
    own = (first,)
    if random.random() < 0.4 and first.most < 4:
        own = (first, draw_step(random, random.randint(1, 4 - first.most)))
    others = tuple(draw_other(random, len(places)) for _ in range(random.choice([0, 0, 1, 1, 2])))
    if random.random() < 0.2:
        others += draw_daemons(random, places)
    waiting = tuple(draw_other(random, None) for _ in range(random.choice([0, 0, 0, 0, 0, 1])))
    in_a_row = len(own) > 1 and random.random() < 0.5
    runs = 2 if sum(each.most for each in own) <= 2 and random.random() < 0.4 else 1
    return Scene(places, own, others, waiting, in_a_row, runs)


def draw_term(random: Random, app: str, *, likely: bool = True) -> Term:
    whom = app if random.random() < (0.75 if likely else 0.4) else random.choice(["a", "b", "b", ""])
    if random.random() < 0.02:
        return Term(random.choice([HOST, ZONE]), None)
    return Term(random.choice([HOST, ZONE, ZONE, ZONE, ZONE] + [RACK] * (random.random() < 0.15)), whom)


def draw_spread(random: Random, app: str) -> Spread:
    least = random.choice([1, 2, 3]) if random.random() < 0.15 else None
    whom = app if random.random() < 0.85 else random.choice(["b", ""])
    return Spread(random.choice([HOST, ZONE]), random.choice([1, 1, 2, 3]), whom, least)


def draw_step(random: Random, most: int) -> Kind:
    app = random.choice(["a", "a", "a", "b"])
    rules = random.choices(["together", "apart", "spread", "spreads", "mixed", "none", "two"], [5, 5, 2, 3, 2, 1, 0.7])[
        0
    ]
    together: tuple[Term, ...] = ()
    if rules in ("together", "two") or (rules == "mixed" and random.random() < 0.7):
        together = (draw_term(random, app),)
        together += (draw_term(random, app),) if rules == "two" else ()
    apart: tuple[Term, ...] = ()
    if rules == "apart" or (rules == "mixed" and random.random() < 0.6):
        apart = (draw_term(random, app), *((draw_term(random, app),) if random.random() < 0.2 else ()))
    spread: tuple[Spread, ...] = ()
    if rules in ("spread", "spreads") or (rules == "mixed" and random.random() < 0.4):
        spread = tuple(draw_spread(random, app) for _ in range(2 if rules == "spreads" else 1))
        spread = spread[:1] if len({each.key for each in spread}) < len(spread) else spread
    gang = most if most > 1 and random.random() < 0.2 else 1
    zone = random.choice(["x", "y"]) if random.random() < 0.12 else None
    return Kind(app, random.choice([1, 1, 2]), together, apart, spread, zone, most, gang)


def draw_other(random: Random, width: int | None) -> Kind:
    app = random.choice(["a", "b", "b", "", ""])
    apart = (draw_term(random, "a", likely=False),) if random.random() < 0.25 else ()
    apart = tuple(term for term in apart if term.app is not None)
    at = None if width is None else random.randrange(width)
    stays = width is not None and random.random() < 0.35
    return Kind(app, random.choice([0, 0, 1]), (), apart, (), None, 0, 1, at, stays, random.random() < 0.15)


def draw_daemons(random: Random, places: tuple[Place, ...]) -> tuple[Kind, ...]:
    """The pods of a DaemonSet: one on every node of a zone, or on every node."""
    zone = random.choice([None, "x", "y"])
    daemon = draw_other(random, len(places))._replace(app=random.choice(["a", "b"]), stays=True, cpu=0)
    return tuple(daemon._replace(at=at) for at, place in enumerate(places) if zone in (None, place.zone))


class Tally(NamedTuple):
    """How the answers to many scenes compare with the truth."""

    said: Counter[str]
    careful: Counter[str]
    """*may-queue* and *unknown* where a pod in truth never waits."""


def compare(seeds: range, *, with_careful: bool = False) -> Tally:
    """Judge a scene for each seed. An *always*, a *never* or a wait that is not true fails."""
    said: Counter[str] = Counter()
    careful: Counter[str] = Counter()
    for seed in seeds:
        scene = draw(Random(seed))
        verdict = judged(scene).verdict
        try:
            if verdict == "always":
                assert not can_wait(scene), f"always, scene {seed}: {scene}"
            elif verdict == "never":
                assert not all_can_run(scene, helpers_of(scene)), f"never, scene {seed}: {scene}"
            elif verdict == "may-queue":
                assert all_can_run(scene), f"may-queue, scene {seed}: {scene}"
            if with_careful and verdict in ("may-queue", "unknown") and not can_wait(scene):
                careful[verdict] += 1
        except TooMany:
            verdict = "too many states"
        said[verdict] += 1
    return Tally(said, careful)
