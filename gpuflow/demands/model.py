"""What is asked of a cluster, as a value of its own: steps with their pod sets, and how they depend on each other.

A demand names no document. That of a pipeline comes from `demand_of`; one of anything else that makes pods can be
built by hand:

    workers = PodSet("workers", 4, {"metadata": {}, "spec": {"containers": [{"name": "main", "resources": …}]}})
    train, report = StepDemand("train", (workers,)), StepDemand("report", (PodSet("main", 1, small),))
    Demand("nightly", (train, report), graph_of((train, report), {"train": ["report"]}))
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, Protocol

from gpuflow.catalog import Offer
from gpuflow.core.cron import least_gap
from gpuflow.core.errors import Finding, Where
from gpuflow.demands.peaks import ALIASES, Amounts, Bound, Usage, amounts_of, peaks_of
from gpuflow.demands.stored import StoredObject
from gpuflow.graph import Dag, Leaf, Loop, Tree, Unknown, first_leaf, with_unchosen
from gpuflow.kubernetes.admission.quota import usage_of_claim
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.quantity import Quantity

PROGRAM = ("command", "args", "env")
"""What a container runs."""
PART = "/"
"""Stands between the name of a step and that of its pod set."""


def split_mixed_steps(demand: Demand) -> Demand:
    """The demand with every step whose pods differ taken apart; most demands have none, and stay as they are."""
    mixed = {step.name: step for step in demand.steps if _differ(step)}
    if not mixed:
        return demand
    steps = [part for step in demand.steps for part in (parts_of(step) if step.name in mixed else (step,))]
    return replace(demand, steps=tuple(steps), graph=_split_tree(demand.graph, mixed, None))


def _differ(step: StepDemand) -> bool:
    """Whether its pods differ; in a queue, whether it has several pod sets: each may get another flavor."""
    if len(step.pod_sets) > 1 and step.pod["metadata"].get("labels", {}).get(QUEUE_LABEL):
        return True
    return any(
        each.pod is not step.pod and _without_program(each.pod) != _without_program(step.pod)
        for each in step.pod_sets[1:]
    )


def _without_program(pod: Pod) -> Pod:
    """The pod without what nobody looks at who places or counts it: a leader may have only another command."""
    spec = dict(pod["spec"])
    for name in ("containers", "initContainers"):
        containers = spec.get(name) or ()
        spec[name] = [{key: each[key] for key in each if key not in PROGRAM} for each in containers]
    return {**pod, "spec": spec}


def parts_of(step: StepDemand) -> tuple[StepDemand, ...]:
    """One step for each pod set."""
    return tuple(
        replace(step, name=f"{step.name}{PART}{each.name}", pod_sets=(each,), part_of=step.name)
        for each in step.pod_sets
    )


def _split_tree(node: Tree, mixed: dict[str, StepDemand], cap: int | None) -> Tree:
    match node:
        case Leaf():
            return _leaves(mixed[node.name], cap) if node.name in mixed else node
        case Loop():
            return replace(node, body=_split_tree(node.body, mixed, cap))
        case Dag():
            caps = [each for each in (cap, node.parallel) if each is not None]
            inner = {name: _split_tree(each, mixed, min(caps, default=None)) for name, each in node.nodes.items()}
            return replace(node, nodes=inner)


def _leaves(step: StepDemand, cap: int | None) -> Tree:
    counts = [each.count for each in step.pod_sets]
    if cap is not None and step.pods > cap:
        # A gang larger than the cap counts as the whole cap, and may live: so one part of it takes it all.
        counts = [cap, *[0] * (len(counts) - 1)]
    parts = zip(parts_of(step), counts, strict=True)
    return Dag({part.name: Leaf(part.name, {}, count) for part, count in parts})


MOST_NAME = 253
"""Characters of a pod's name."""
KeptPods = Literal["all", "failed", "unknown"]
Pod = Mapping[str, Any]
"""A pod's `metadata` and `spec`, as a manifest says them."""


@dataclass(frozen=True)
class PodSet:
    """Identical pods of a step: all of them, or its leader, or its workers."""

    name: str
    count: int
    pod: Pod
    """As the engine creates it."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"pod set {self.name!r} has {self.count} pods; it has at least 1")
        if not isinstance(self.pod, Mapping) or not all(
            isinstance(self.pod.get(part), Mapping) for part in ("metadata", "spec")
        ):
            raise ValueError(f"pod set {self.name!r}: a pod is a mapping with metadata and spec")

    @cached_property
    def amounts(self) -> Amounts:
        """What one pod requests, its limits, and what it costs by quota key."""
        return amounts_of(self.pod)


ON_EXIT: Final = "workflows.argoproj.io/on-exit"
LAUNCHER: Final = "launcher"
"""The pod set of the one pod that looks after a gang."""


class PodsOfJob(NamedTuple):
    """The pods of a Job, which stay until it is deleted: all that it makes, and those of earlier runs."""

    at_least: int
    """Of one run that succeeds."""
    at_most: int | None
    """Of one run, with those that failed; None: nothing bounds them."""
    copies: int = 1
    """Of the step, of which there may be more: then there are more Jobs."""
    kept: tuple[int, int] = (0, 0)
    """Of earlier runs: when each of them succeeded, and at most."""

    def times(self, copies: int | None) -> PodsOfJob:
        """Those of so many copies."""
        jobs = (copies or 0) // self.copies
        most = None if self.at_most is None or copies is None else self.at_most * jobs
        return PodsOfJob(self.at_least * jobs, most, copies or 0, (self.kept[0] * jobs, self.kept[1] * jobs))


@dataclass(frozen=True)
class StepDemand:
    """One step: the pods of one copy of it, which live together, and how many copies there are."""

    name: str
    pod_sets: tuple[PodSet, ...]
    copies: int | None = 1
    """None when only the run will tell."""
    where: Where = field(default_factory=Where)
    """Where it is written, unless the demand as a whole knows."""
    overhead: Usage = field(default_factory=dict)
    """How much of what one copy costs is the engine's."""
    tries: int = 1
    """How many attempts one copy may take, the first included."""
    nodes_avoided: int = 0
    """How many nodes the last attempt keeps away from, because attempts before it ran there."""
    is_exit: bool = False
    """It runs when everything else has ended, and no deadline of the run counts for it."""
    part_of: str | None = None
    """The step that this is one pod set of; all of them run together."""
    is_sure: bool = False
    """Every run that succeeds has started it."""
    waits_at_most: str | None = None
    """How long a pod may wait before it runs, as it was written; then the step fails. None: no limit of its own."""
    put_into_claims: Mapping[str, Quantity] = field(default_factory=dict)
    """How much one copy puts into existing claims, by their names, as far as the sizes of files are said."""
    namespace: str | None = None
    """The namespace of its pods, where they do not go to that of the run."""
    of_job: PodsOfJob | None = None
    """What the controller of a Job makes in all; `tries` is then what one pod may take at most."""
    fails_when_refused: bool = False
    """Whether a try fails when the API server refuses its pod, and nothing asks again."""

    def __post_init__(self) -> None:
        if not self.pod_sets:
            raise ValueError(f"step {self.name!r} has no pod set; a step without pods is no part of a demand")

    @property
    def object_name(self) -> str:
        """A name that an object of Kubernetes can have; steps of other tools may have names that none can."""
        return re.sub(r"[^a-z0-9-]+", "-", self.name.lower()).strip("-")[:MOST_NAME].rstrip("-") or "step"

    @cached_property
    def pods(self) -> int:
        """The pods of one copy: more than one for a gang."""
        return sum(each.count for each in self.pod_sets)

    @property
    def is_launcher(self) -> bool:
        """Whether it is the pod that looks after a gang, taken apart from it."""
        return self.part_of is not None and self.pod_sets[0].name == LAUNCHER

    @property
    def pod(self) -> Pod:
        """The pod of its first pod set; of most steps the only one."""
        return self.pod_sets[0].pod

    @cached_property
    def usage(self) -> Usage:
        """What one copy costs, all its pods together, by quota key."""
        return sum_usages((each.amounts.usage, each.count) for each in self.pod_sets)

    @property
    def requests(self) -> Usage:
        """What one pod requests; of pods that differ, the most of each."""
        return largest_usage(each.amounts.requests for each in self.pod_sets)

    @property
    def limits(self) -> Usage:
        """The limits of one pod; of pods that differ, the most of each."""
        return largest_usage(each.amounts.limits for each in self.pod_sets)


@dataclass(frozen=True, slots=True)
class ClaimDemand:
    """A volume that is claimed anew for each run."""

    name: str
    manifest: Mapping[str, Any]
    volume: str
    """The name of the volume by which pods mount it."""
    where: Where = field(default_factory=Where)
    size_where: Where = field(default_factory=Where)
    class_where: Where = field(default_factory=Where)
    namespace: str | None = None
    """Its namespace, where that is not the run's."""

    @property
    def storage_class(self) -> str | None:
        named: str | None = self.manifest["spec"].get("storageClassName")
        return named


@dataclass(frozen=True, slots=True)
class DriverPods:
    """The engine's own pods in a run, or in a part of it: the most there can be, and as many as there are at least."""

    at_most: int | None = 0
    """None when only the run will tell."""
    at_least: int = 0
    because: str | None = None
    """Why the most is not known."""

    def __add__(self, other: DriverPods) -> DriverPods:
        most = None if self.at_most is None or other.at_most is None else self.at_most + other.at_most
        return DriverPods(most, self.at_least + other.at_least, self.because or other.because)

    def times(self, copies: int | None) -> DriverPods:
        """Those of so many copies; None: only the run will tell how many."""
        most = 0 if self.at_most == 0 else None if self.at_most is None or copies is None else self.at_most * copies
        return DriverPods(most, self.at_least * (copies or 0), self.because)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The longest time that a run may take."""

    text: str
    """As it was written."""
    seconds: int
    where: Where = field(default_factory=Where)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Runs may overlap: why, where that is written, and how many at most."""

    because: str
    where: Where = field(default_factory=Where)
    at_most: int | None = None
    """The most runs that the engine has active at once; None: as many as are started."""


@dataclass(frozen=True, slots=True)
class QueueRefusal:
    """What Kueue's webhook refuses of the object, where Kueue runs and is configured for its kind."""

    finding: Finding
    integration: str
    only_queued: bool
    """Only if Kueue puts it into a queue: it names none itself."""


@dataclass(frozen=True)
class LaterAttempts:
    """Steps whose last attempt has other pods than the first."""

    when: str
    """What must have happened before, as the beginning of a sentence."""
    pod_sets: Mapping[str, tuple[PodSet, ...]]
    """The pods of the last attempt, by the name of the step."""

    @property
    def steps(self) -> tuple[str, ...]:
        return tuple(self.pod_sets)


@dataclass(frozen=True, slots=True)
class SizeRange:
    """A controller decides how many pods the one step of a demand has."""

    least: int
    most: int
    because: str
    """The beginning of a sentence, up to the numbers."""
    where: Where = field(default_factory=Where)
    may_grow: bool = False
    """Whether it may be more than the demand says, and not only fewer."""


def sizes_of(autoscaler: Mapping[str, Any], title: str, where: Where) -> SizeRange | None:
    """The sizes between which a HorizontalPodAutoscaler keeps `Kind name`; None where it is about another object."""
    spec = autoscaler.get("spec")
    target = spec.get("scaleTargetRef") if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(target, Mapping):
        return None
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas")
    is_other = f"{target.get('kind')} {target.get('name')}" != title
    if is_other or not isinstance(least, int) or not isinstance(most, int) or not 0 <= least <= most or not most:
        return None
    return SizeRange(int(least), int(most), f"a HorizontalPodAutoscaler keeps {title} at", where, may_grow=True)


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """The GPUs or MIG slices that a step of a pipeline asks for."""

    words: str
    count: int
    is_slice: bool
    needs_gib: float | None
    """The GPU memory that the wish promises the step; None when nobody knows."""
    key: str
    """Equal for steps that would get the same answer."""


@dataclass(frozen=True, slots=True)
class UnseenPart:
    """A part of what runs that nobody can know before it runs, or that stands in a file that was not given."""

    step: str
    because: str
    """One sentence without a full stop; it names the field."""
    where: Where = field(default_factory=Where)
    resource: str | None = None
    """The resource whose amount is not known, such as `memory`; None: which pods there are is not known."""
    hint: str | None = None
    """What would settle it."""
    is_placement: bool = False
    """What it asks for is known; on which nodes, or in which queue, is not."""

    def hides(self, key: str) -> bool:
        """Whether it leaves a quota key open."""
        if self.is_placement:
            return False
        return self.resource is None or key.removeprefix("requests.").removeprefix("limits.") == self.resource


HIDDEN_KEYS = ("pods", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "requests.nvidia.com/gpu")
"""What pods that nobody knows may ask for; so that no key that is not there is read as nothing."""


class Source(Protocol):
    """The document behind a demand, ours or somebody else's."""

    def warnings(self) -> Iterator[Finding]:
        """What is certain from the document and the site alone: policies that cannot work as written."""

    def strict_findings(self, definitions: Iterable[Mapping[str, Any]]) -> Iterable[Finding]:
        """What its schema says of its fields. `definitions`: the cluster's CRDs."""

    def unsilenced_findings(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings that the document does not silence, and one that counts the others."""


class OwnPipeline(Source, Protocol):
    """A pipeline of ours, for hints that only such a document allows. The checker knows no more of it."""

    def devices(self, step: str) -> DeviceRequest | None:
        """What a step asks for; None when it asks for no GPU."""

    def offers(self, labels: Mapping[str, str], allocatable: Mapping[str, int]) -> Iterator[Offer]:
        """The GPUs and slices of a node, in the site's words."""

    def pod_with(self, step: str, offer: Offer | None, count: int) -> Pod | None:
        """The step's pod if it asked for so many of these, or of what it asks for now; None when there is no such."""

    def with_cap(self, demand: Demand, parallel: int) -> Demand | None:
        """Its demand if the document said `parallel`; None where no one document can."""

    def with_memory_max(self, demand: Demand, steps: Collection[str], most: Quantity) -> Demand | None:
        """Its demand if later attempts of these steps got at most so much memory; None where that cannot be said."""


@dataclass(frozen=True)
class Demand:
    """What is asked of a cluster. Everything that a check needs, whatever it was made from."""

    name: str
    steps: tuple[StepDemand, ...]
    graph: Tree
    """How the steps depend on each other and repeat; its leaves are the steps by name."""
    engine: str = "none"
    file: str | None = None
    run_count: int = 1
    """How many runs this is the demand of."""
    runs_on: Mapping[str, int] = field(default_factory=dict)
    """Of several pipelines, how many of these runs each engine has; empty: all are its own engine's."""
    claims: tuple[ClaimDemand, ...] = ()
    deadline: Deadline | None = None
    overlap: Overlap | None = None
    driver: PodSet | None = None
    """The pod that the engine runs before each step."""
    driver_pods: DriverPods | None = None
    """How many of them a run has; None: one for each step, and one for the run."""
    keeps_pods: KeptPods = "unknown"
    """Which finished pods stay until the run is deleted; the others go when they end. Unknown: maybe all stay."""
    conditional: Mapping[str, bool] = field(default_factory=dict)
    """Steps that may not run though the run gets to them, and whether each item of a fan-out has its own answer."""
    later: tuple[LaterAttempts, ...] = ()
    refusals: tuple[Finding, ...] = ()
    """What the engine does not support of it. An error: it never runs there as it is written; else it was accepted."""
    queue_refusals: tuple[QueueRefusal, ...] = ()
    engine_settings: Mapping[str, str] = field(default_factory=dict)
    """Of the engine's own containers, where it is written what they use: `engines.argo.init.init`."""
    pods_collected: bool = False
    """Whether the engine deletes the pods of steps that succeeded while the run goes on. Failed ones may stay."""
    places: Callable[[str], Where] | None = field(default=None, compare=False)
    """Where a step is written; asked only for what is said of it."""
    kind: str = "Pipeline"
    """What the document calls itself: a Pipeline of ours, or a Workflow, a Job…"""
    by_itself: bool = False
    """No engine runs it: the controller of its kind makes all of its pods."""
    unseen: tuple[UnseenPart, ...] = ()
    """What of it is not known. Peaks that it can change are unknown, and so is the verdict, unless it is never."""
    only_at_most: str | None = None
    """Why peaks may never be reached though no step says so: locks, or a limit that is only bounded here."""
    waits: tuple[Finding, ...] = ()
    """What may keep it waiting though there is room: locks that others hold. An error: it may wait for itself."""
    unsettled: tuple[Finding, ...] = ()
    """What decides whether it starts, and is not known."""
    beside: tuple[tuple[str, ...], ...] = ()
    """Steps that run until after another has ended, and that one, the last: they must find room together."""
    size: SizeRange | None = None
    """That a controller may run it with fewer or more pods than it asks for."""
    keeps_cap: bool = True
    """Whether a cap on live pods holds back all of its pods, and never what they wait for."""
    cap_text: str | None = None
    """How its document says that cap, with {} for the number, where its kind does not tell."""
    namespace: str | None = None
    """The namespace that the document names; None: whoever runs it says so."""
    stored: tuple[StoredObject, ...] = ()
    """What the document and its controllers store beside pods and claims, where the engine's facts do not say it."""
    source: Source | None = field(default=None, compare=False)
    pipeline: OwnPipeline | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        twice = sorted(name for name, count in Counter(step.name for step in self.steps).items() if count > 1)
        if twice:
            raise ValueError(f"demand {self.name!r}: two steps are called {', '.join(twice[:5])}")
        whole = [step for step in self.steps if step.part_of is None]
        parts = {step.name for step in self.steps if step.part_of is not None}
        pods = {step.name: step.pods for step in whole}
        leaves = {leaf.name: leaf.pods for leaf in leaves_of(self.graph) if leaf.pods and leaf.name not in parts}
        if pods != leaves:
            wrong = sorted(name for name in pods.keys() | leaves.keys() if pods.get(name) != leaves.get(name))
            raise ValueError(
                f"demand {self.name!r}: steps and graph do not agree about {', '.join(wrong[:5])}; "
                "each step is one leaf of the graph with as many pods"
            )

    def where(self, step: str) -> Where:
        """Where a step, or the sub-pipeline it belongs to, is written."""
        found = self.by_name.get(step)
        if self.places is not None:
            return self.places(step if found is None else found.part_of or step)
        return Where(self.file) if found is None else found.where

    @cached_property
    def by_name(self) -> Mapping[str, StepDemand]:
        return {step.name: step for step in self.steps}

    def without_overlap(self, schedules: Sequence[str], zone: str | None, late: int) -> Demand:
        """The demand, without overlapping runs where Argo's deadline ends each run before the next one can start.

        `late`: so many seconds after its time Argo may still start a run. Its `activeDeadlineSeconds` counts from the
        start of the Workflow, waiting included. When it has passed, Argo deletes pods that wait, in Kueue's queue too,
        ends those that run, and makes no others (applyExecutionControl of workflow/controller/exec_control.go, v4.0.7).
        """
        if self.overlap is None or self.deadline is None or self._outlives_deadline:
            return self
        pods = [each.pod["spec"] for step in self.steps for each in step.pod_sets]
        grace = max((pod.get("terminationGracePeriodSeconds", 30) for pod in pods), default=0)
        least = least_gap(schedules, zone)
        return self if least is None or late + self.deadline.seconds + grace >= least else replace(self, overlap=None)

    @property
    def _outlives_deadline(self) -> bool:
        """Whether something of a run may be there when its deadline has passed.

        Exit steps run then. Daemons, the agent and what a step creates are ended with the Workflow, or never. Claims
        of a run that failed stay. A gang is an object of its own, which its launcher has to delete.
        """
        pod_sets = [each for step in self.steps for each in step.pod_sets]
        on_exit = any(step.is_exit for step in self.steps)
        on_exit = on_exit or any(ON_EXIT in each.pod["metadata"].get("labels", {}) for each in pod_sets)
        gangs = any(each.name == LAUNCHER for each in pod_sets)
        return on_exit or gangs or not self.keeps_cap or bool(self.claims or self.unseen)

    @cached_property
    def drivers_beside(self) -> Mapping[str, StepDemand]:
        """What a moment may hold beside steps: the drivers of alternatives that are not chosen, each with a step of
        them."""
        found: dict[str, StepDemand] = {}
        if self.driver is not None:
            with_unchosen(self.graph, lambda group: self._drivers_beside(group, found))
        return found

    @cached_property
    def moments(self) -> Tree:
        """The graph with these drivers."""
        return (
            with_unchosen(self.graph, lambda group: self._drivers_beside(group, {}))
            if self.drivers_beside
            else self.graph
        )

    def _drivers_beside(self, group: list[Tree], found: dict[str, StepDemand]) -> list[str]:
        """Their names for a group of alternatives, which are put into `found`."""
        steps = [name for name in map(first_leaf, group) if name is not None]
        some, more = " or ".join(steps[:3]), " …" * (len(steps) > 3)
        names = [
            f"the driver of {some}{more}",
            *(f"driver {number} of {some}{more}" for number in range(2, len(steps))),
        ]
        found |= dict.fromkeys(names, self.by_name[steps[0]])
        return names

    @cached_property
    def gangs(self) -> Mapping[str, tuple[StepDemand, ...]]:
        """The steps of which one copy is several pods, by name; pod sets that were taken apart stand together."""
        found: dict[str, list[StepDemand]] = {}
        for step in self.steps:
            found.setdefault(step.part_of or step.name, []).append(step)
        return {name: tuple(parts) for name, parts in found.items() if sum(part.pods for part in parts) > 1}

    @cached_property
    def peak(self) -> Mapping[str, Bound]:
        """The worst moment per quota key."""
        peaks = peaks_of(self.moments, self._usages, self.conditional)
        for key, amount in self._claim_usage.items():
            known = peaks.get(key, Bound("exact", Quantity.zero))
            peaks[key] = known if known.value is None else replace(known, value=known.value + amount)
        return {key: self._visible_bound(key, bound) for key, bound in self._with_hidden(peaks)}

    @cached_property
    def _usages(self) -> dict[str, Usage]:
        """What one copy of each step costs. The driver ends before its own pods start: the larger of the two counts."""
        before = {} if self.driver is None else self.driver.amounts.usage
        found = {step.name: largest_usage((step.usage, before)) if before else step.usage for step in self.steps}
        return found | dict.fromkeys(self.drivers_beside, before)

    def _with_hidden(self, peaks: Mapping[str, Bound]) -> Iterator[tuple[str, Bound]]:
        """The peaks, and the keys of which nothing is known."""
        nothing = Bound("exact", Quantity.zero)
        for part in self.unseen:
            if part.is_placement:
                continue
            keys = HIDDEN_KEYS if part.resource is None else _keys_of(part.resource)
            peaks = {**dict.fromkeys(keys, nothing), **peaks}
        yield from peaks.items()

    def _visible_bound(self, key: str, bound: Bound) -> Bound:
        """A peak without what is not known of it."""
        hidden = next((part for part in self.unseen if part.hides(key)), None)
        if hidden is not None:
            return Bound("unknown", None, hidden.because, bound.witness)
        if self.only_at_most is not None and bound.bound == "exact" and bound.value:
            return replace(bound, bound="at-most", because=self.only_at_most)
        return bound

    @cached_property
    def overhead(self) -> Mapping[str, Bound]:
        """How much of each peak is the engine's own containers and pods."""
        bare = {step.name: usage_beyond(step.usage, step.overhead) for step in self.steps}
        parts = {name: usage_beyond(usage, bare.get(name, {})) for name, usage in self._usages.items()}
        copies = {name: step.copies or 10**6 for name, step in (*self.by_name.items(), *self.drivers_beside.items())}
        most = 1 + sum(each.milli * copies[name] for name, part in parts.items() for each in part.values())
        # Which moment it is, all of them together decide; among equal ones, the engine's part.
        mixed = {
            name: {key: each * most + parts[name].get(key, Quantity.zero) for key, each in usage.items()}
            for name, usage in self._usages.items()
        }
        keys, found = {key for part in parts.values() for key in part}, {}
        for key, bound in peaks_of(self.moments, mixed, self.conditional).items() if keys else ():
            value, whole = bound.value, self.peak[key]
            is_part = value is not None and whole.value is not None and value.milli // most == whole.value.milli
            rest = Quantity.from_nano(value.milli % most * 1_000_000, value.format) if value and is_part else None
            if key in keys and (rest is None or rest):
                found[key] = replace(whole, value=rest)
        return found

    @property
    def _claim_usage(self) -> dict[str, Quantity]:
        """What the claims of a run ask for; they live as long as the run."""
        total = sum_usages((usage_of_claim(claim.manifest), 1) for claim in self.claims)
        return {key: amount for key, amount in total.items() if not key.startswith("count/")}

    def namespaces(self, home: str) -> tuple[str, ...]:
        """Where its pods go when the run is in `home`, that first."""
        found = dict.fromkeys(step.namespace or home for step in self.steps)
        return tuple(sorted(found, key=lambda name: name != home)) or (home,)

    def only_in(self, namespace: str, home: str) -> Demand:
        """What it asks of one of them. The engine, and what it makes beside the steps, is in `home`."""
        steps = tuple(step for step in self.steps if (step.namespace or home) == namespace)
        names = frozenset(step.name for step in steps)
        claims = tuple(claim for claim in self.claims if (claim.namespace or home) == namespace)
        later = tuple(
            replace(each, pod_sets={name: sets for name, sets in each.pod_sets.items() if name in names})
            for each in self.later
        )
        part = replace(
            self,
            steps=steps,
            graph=_with_pods_of(self.graph, names),
            claims=claims,
            stored=tuple(each for each in self.stored if (each.namespace or home) == namespace),
            later=tuple(each for each in later if each.pod_sets),
        )
        return part if namespace == home else replace(part, engine="none", runs_on={}, driver=None, driver_pods=None)

    def with_pods(self, change: Callable[[Pod], Pod], *, but_exit: bool = False) -> Demand:
        """The demand with every pod changed, that of the driver too; `but_exit`: those of exit steps stay."""
        steps = tuple(
            step
            if step.is_exit and but_exit
            else replace(step, pod_sets=tuple(replace(each, pod=change(each.pod)) for each in step.pod_sets))
            for step in self.steps
        )
        driver = None if self.driver is None else replace(self.driver, pod=change(self.driver.pod))
        return replace(self, steps=steps, driver=driver)

    def at_later(self, attempts: LaterAttempts) -> Demand:
        """The demand when all these steps are at their last attempt."""
        steps = (
            replace(step, pod_sets=attempts.pod_sets[step.name]) if step.name in attempts.pod_sets else step
            for step in self.steps
        )
        return replace(self, steps=tuple(steps), later=())

    def with_cap(self, parallel: int) -> Demand | None:
        """The demand if its pipeline said `parallel`; None where nobody can say that."""
        if self.pipeline is not None:
            return self.pipeline.with_cap(self, parallel)
        if self.by_itself or not self.keeps_cap:
            return None
        return replace(self, graph=replace(self.graph, parallel=parallel)) if isinstance(self.graph, Dag) else None

    def with_size(self, pods: int) -> Demand:
        """The demand if its one step had so many pods, all of which live together."""
        step = self.steps[0]
        sized = replace(step, pod_sets=(replace(step.pod_sets[0], count=pods),), copies=1)
        return replace(self, steps=(sized,), graph=Dag({step.name: Leaf(step.name, {}, pods)}), size=None)

    def document(self) -> dict[str, Any]:
        """The contract's JSON shape."""
        return {
            "file": self.file,
            "pipeline": self.name,
            **({} if self.kind == "Pipeline" else {"kind": self.kind}),
            **({} if self.namespace is None else {"namespace": self.namespace}),
            "engine": self.engine,
            "peak": {key: bound.document() for key, bound in sorted(self.peak.items())},
            "overhead": {key: bound.document() for key, bound in sorted(self.overhead.items())},
            "steps": [
                {
                    "name": step.name,
                    "copies": step.copies,
                    "pod_sets": [{"name": each.name, "count": each.count} for each in step.pod_sets],
                    "requests": _strings(step.requests),
                    "limits": _strings(step.limits),
                }
                for step in self.steps
            ],
        }


def graph_of(
    steps: Iterable[StepDemand], edges: Mapping[str, Collection[str]] | None = None, parallel: int | None = None
) -> Tree:
    """The graph of steps by hand: for each name, those that wait for it; at most `parallel` pods live at once."""
    nodes: dict[str, Tree] = {}
    for step in steps:
        leaf = Leaf(step.name, {}, step.pods)
        nodes[step.name] = leaf if step.copies == 1 else Loop(step.name, leaf, _copies(step))
    return Dag(nodes, edges or {}, parallel)


def _keys_of(resource: str) -> tuple[str, ...]:
    """The quota keys that count a resource."""
    if resource in ("pods", "persistentvolumeclaims"):
        return (resource,)
    limited = (f"limits.{resource}",) if resource in ALIASES else ()
    return (f"requests.{resource}", *limited)


def _copies(step: StepDemand) -> int | Unknown:
    return Unknown(f"how many copies {step.name} has is only known in the run") if step.copies is None else step.copies


def leaves_of(node: Tree) -> Iterator[Leaf]:
    match node:
        case Leaf():
            yield node
        case Loop():
            yield from leaves_of(node.body)
        case Dag():
            for each in node.nodes.values():
                yield from leaves_of(each)


def _with_pods_of(node: Tree, steps: Collection[str]) -> Tree:
    """The graph in which only these steps have pods."""
    match node:
        case Leaf():
            return node if node.name in steps else replace(node, pods=0)
        case Loop():
            return replace(node, body=_with_pods_of(node.body, steps))
        case Dag():
            return replace(node, nodes={name: _with_pods_of(each, steps) for name, each in node.nodes.items()})


def sum_usages(parts: Iterable[tuple[Usage, int]]) -> Usage:
    """So many times each of these, together."""
    taken = [(usage, count) for usage, count in parts if usage]
    if len(taken) == 1 and taken[0][1] == 1:
        return taken[0][0]
    total: dict[str, Quantity] = {}
    for usage, count in taken:
        for key, amount in usage.items():
            total[key] = total.get(key, Quantity.zero) + amount * count
    return total


def largest_usage(parts: Iterable[Usage]) -> Usage:
    """The most of each key."""
    first, *others = parts
    for other in others:
        both = {**first, **other}
        first = {key: max(first.get(key, Quantity.zero), other.get(key, Quantity.zero)) for key in both}
    return first


def usage_beyond(usage: Usage, known: Usage) -> Usage:
    """How much more of each key it is than what is known already."""
    added = {key: amount - known.get(key, Quantity.zero) for key, amount in usage.items()}
    return {key: amount for key, amount in added.items() if amount > Quantity.zero}


def _strings(amounts: Usage) -> dict[str, str]:
    return {key: str(value) for key, value in sorted(amounts.items())}
