"""What pods ask of each other: required affinity and anti-affinity, and spread constraints that must hold.

Mirrors InterPodAffinity.Filter in k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity and
PodTopologySpread.Filter in k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from gpuflow.kubernetes import objects
from gpuflow.kubernetes.admission.pod import read_integer, read_text
from gpuflow.kubernetes.labels import Labels, Selector, can_hold, read_selector
from gpuflow.kubernetes.resources import read_maps, read_texts

Namespaces = Mapping[str, Labels]
Domain = tuple[str, str]
"""The key and value of a topology label."""

NO_AFFINITY: Final = "node(s) didn't match pod affinity rules"
NO_ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
NO_EXISTING: Final = "node(s) didn't satisfy existing pods anti-affinity rules"


CONTROLLER_LABELS: Final = (
    "airflow_kpo_in_cluster", "airflow_version", "already_checked", "controller-revision-hash", "controller-uid",
    "dag_id", "domain", "execution-id", "group-name", "interruptible", "job-name", "job-role",
    "kubernetes_pod_operator", "map_index", "node-id", "parent_dag_id", "pod-template-generation", "pod-template-hash",
    "project", "replica-index", "replica-type", "run_id", "shard-key", "spark-app-name", "spark-app-selector",
    "spark-exec-id", "spark-role", "spark-version", "task-name", "task_id", "try_number", "workflow-name",
)  # fmt: skip
"""Those without a prefix, of Kubernetes, Airflow, Flyte, Spark and the operators for training."""


def is_of_controller(key: str) -> bool:
    """Whether a label may be one that controllers write, and no template has."""
    return key in CONTROLLER_LABELS or "/" in key


class PodAffinityTerm(NamedTuple):
    selector: Selector | None
    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Selector | None
    is_open: bool = False
    """Labels that only a controller writes narrow it further."""

    @property
    def is_plain(self) -> bool:
        """Whether labels that are not known cannot make it mean fewer pods."""
        operators = set() if self.selector is None else {each.operator for each in self.selector.requirements}
        return operators <= {"In", "Exists"} and not (self.is_open or self.asks_for_namespaces)

    def is_certain_of(self, labels: Labels) -> bool:
        """Whether labels that a controller adds to these change nothing."""
        requirements = () if self.selector is None else self.selector.requirements
        return all(each.key in labels or not is_of_controller(each.key) for each in requirements)

    def may_match(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        """Whether it may mean a pod that gets more labels from its controller."""
        if self.selector is None:
            return False
        sure = (each for each in self.selector.requirements if each.key in labels or not is_of_controller(each.key))
        return self._replace(selector=Selector(tuple(sure))).matches(namespace, labels, namespace_labels)

    def matches(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        """Whether it means a pod with these labels, in a namespace of this name and with those labels."""
        if self.selector is None:
            return False
        chosen = self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)
        return (chosen or namespace in self.namespaces) and self.selector.matches(labels)

    @property
    def asks_for_namespaces(self) -> bool:
        """Whether the labels of namespaces decide; an empty selector takes all of them unseen."""
        return self.namespace_selector is not None and bool(self.namespace_selector.requirements)

    def merge_namespaces(self, namespaces: Namespaces) -> PodAffinityTerm:
        """The term with the namespaces it selects named, as the scheduler has it for the pod in hand. The selector
        stays, and is asked with no labels: one such as `DoesNotExist` then means every namespace."""
        if not self.asks_for_namespaces or self.namespace_selector is None:
            return self
        chosen = {name for name, labels in namespaces.items() if self.namespace_selector.matches(labels)}
        return self._replace(namespaces=self.namespaces | chosen)


class Affinity(NamedTuple):
    """The required terms of a pod."""

    together: tuple[PodAffinityTerm, ...]
    apart: tuple[PodAffinityTerm, ...]

    @property
    def follows_nobody(self) -> bool:
        """Whether no pod can be what the affinity asks for: all terms must mean one and the same."""
        named = [term.namespaces for term in self.together if term.namespace_selector is None]
        if any(term.selector is None for term in self.together) or (named and not frozenset.intersection(*named)):
            return True
        selectors = (term.selector for term in self.together if term.selector is not None)
        return not can_hold(each for selector in selectors for each in selector.requirements)

    def __bool__(self) -> bool:
        return bool(self.together or self.apart)


NO_TERMS: Final = Affinity((), ())


def affinity_of(affinity: objects.Affinity, namespace: str, labels: Labels | None = None) -> Affinity:
    """The terms of a pod. With its `labels`, as they stand once the API server has stored it.

    The server writes what `matchLabelKeys` and `mismatchLabelKeys` mean into the selectors of a new pod.
    """
    together, apart = affinity.pod_affinity.required, affinity.pod_anti_affinity.required
    if not together and not apart:
        return NO_TERMS

    def read(terms: Iterable[objects.PodAffinityTerm], field: str) -> tuple[PodAffinityTerm, ...]:
        where = f"spec.affinity.{field}.{objects.REQUIRED}"
        return tuple(_read_term(item, f"{where}[{index}]", namespace, labels) for index, item in enumerate(terms))

    return Affinity(read(together, "podAffinity"), read(apart, "podAntiAffinity"))


def _read_term(item: objects.PodAffinityTerm, where: str, namespace: str, labels: Labels | None) -> PodAffinityTerm:
    selector, is_open = read_selector(item.label_selector, f"{where}.labelSelector"), False
    if selector is not None and labels is not None:
        keys = read_texts(item.match_label_keys, f"{where}.matchLabelKeys")
        others = read_texts(item.mismatch_label_keys, f"{where}.mismatchLabelKeys")
        is_open = not labels.keys() >= {*keys, *others}
        selector = selector.with_label_keys(keys, labels).with_label_keys(others, labels, "NotIn")
    namespaces = frozenset(read_texts(item.namespaces, f"{where}.namespaces"))
    namespace_selector = read_selector(item.namespace_selector, f"{where}.namespaceSelector")
    if not namespaces and namespace_selector is None:
        namespaces = frozenset({namespace})
    return PodAffinityTerm(selector, item.topology_key, namespaces, namespace_selector, is_open)


class AffinityState(NamedTuple):
    """What the pods already bound mean for one pod, by topology domain."""

    affinity: Affinity
    matching: frozenset[Domain]
    """Where pods run that every affinity term means."""
    unwanted: frozenset[Domain]
    """Where pods run that an anti-affinity term means."""
    refusing: frozenset[Domain]
    """Where pods run that want to be apart from this one."""
    is_first: bool
    """No pod matches the affinity, and the pod matches it itself: the first of its kind may go anywhere."""

    def refusal(self, labels: Labels) -> str | None:
        """Why a node with these labels will not do."""
        if self.affinity.together:
            domains = {(term.topology_key, labels.get(term.topology_key)) for term in self.affinity.together}
            if any(value is None for _, value in domains):
                return NO_AFFINITY
            if not domains <= self.matching and not self.is_first:
                return NO_AFFINITY
        for term in self.affinity.apart:
            if (term.topology_key, labels.get(term.topology_key)) in self.unwanted:
                return NO_ANTI_AFFINITY
        if self.refusing and not self.refusing.isdisjoint(labels.items()):
            return NO_EXISTING
        return None


UNEVEN: Final = "node(s) didn't match pod topology spread constraints"
UNLABELED: Final = f"{UNEVEN} (missing required label)"


class SpreadConstraint(NamedTuple):
    topology_key: str
    max_skew: int
    selector: Selector | None
    min_domains: int
    honors_affinity: bool
    honors_taints: bool

    def counts(self, labels: Labels) -> bool:
        """Whether a pod with these labels is one to spread."""
        return self.selector is not None and self.selector.matches(labels)

    def tally(self, pods: Iterable[Labels]) -> int:
        # An empty selector counts no pod that is there, though it does count the pod to be placed.
        if self.selector is None or not self.selector.requirements:
            return 0
        return sum(map(self.selector.matches, pods))


def read_spread_constraints(spec: Mapping[str, Any], labels: Labels) -> tuple[SpreadConstraint, ...]:
    where = "spec.topologySpreadConstraints"
    return tuple(
        _read_spread_constraint(item, labels, f"{where}[{index}]")
        for index, item in enumerate(read_maps(spec.get("topologySpreadConstraints"), where))
        if read_text(item, "whenUnsatisfiable", f"{where}[{index}]") == "DoNotSchedule"
    )


def _read_spread_constraint(item: Mapping[str, Any], labels: Labels, where: str) -> SpreadConstraint:
    selector = read_selector(item.get("labelSelector"), f"{where}.labelSelector")
    if selector is not None:
        selector = selector.with_label_keys(read_texts(item.get("matchLabelKeys"), f"{where}.matchLabelKeys"), labels)
    min_domains = read_integer(item, "minDomains", where)
    return SpreadConstraint(
        read_text(item, "topologyKey", where) or "",
        read_integer(item, "maxSkew", where) or 0,
        selector,
        1 if min_domains is None else min_domains,
        (read_text(item, "nodeAffinityPolicy", where) or "Honor") == "Honor",
        (read_text(item, "nodeTaintsPolicy", where) or "Ignore") == "Honor",
    )


class SpreadBalance(NamedTuple):
    """How the pods that one constraint counts lie over its domains, and what one more may make of it."""

    constraint: SpreadConstraint
    tallies: Mapping[str, int]
    own: int
    """1 when the pod to be placed counts itself."""

    def refusal(self, labels: Labels) -> str | None:
        domain = labels.get(self.constraint.topology_key)
        if domain is None:
            return UNLABELED
        fewest = min(self.tallies.values()) if len(self.tallies) >= max(self.constraint.min_domains, 1) else 0
        if self.tallies.get(domain, 0) + self.own - fewest > self.constraint.max_skew:
            return UNEVEN
        return None
