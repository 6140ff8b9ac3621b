"""The way of a pod through admission, from the posted manifest to the API server's answer.

Decoding and defaulting; then LimitRange defaults, priority and runtime class change the pod; then it is
validated as an object; then LimitRange bounds, Pod Security, overhead and, last, quota check it. The first that
refuses is what the user sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice, permutations
from typing import Any, NamedTuple, TypeVar

from gpuflow.kubernetes.admission.classes import (
    AdmissionRefusal,
    PriorityClass,
    RuntimeClass,
    check_overhead,
    with_priority,
    with_runtime,
)
from gpuflow.kubernetes.admission.field_errors import FieldError, join_clauses, quote_as_go, sentences
from gpuflow.kubernetes.admission.limit_range import (
    BoundViolation,
    LimitRange,
    broken_bounds,
    containers_that_break,
    read_limit_range,
    with_defaults,
)
from gpuflow.kubernetes.admission.pod import Body, Pod, read_object, read_pod, read_text, render, render_list
from gpuflow.kubernetes.admission.pod_security import PRIVILEGED, Policy, read_policy, violation
from gpuflow.kubernetes.admission.quota import Quota, QuotaRefusal, check_request, new_totals, pod_usage, read_quota
from gpuflow.kubernetes.admission.validation import pod_faults
from gpuflow.kubernetes.resources import ResourceList, read_map

Reason = FieldError | BoundViolation | QuotaRefusal


@dataclass(frozen=True, eq=False)
class Admission:
    """What the API server would answer, and what it would have stored and charged.

    `status` is 201, 403 or 422 and `message` its exact text, `None` when the pod is created. `stage` says who
    refused (`priority`, `runtimeclass`, `validation`, `limitrange`, `podsecurity` or `quota`), `created` when
    nobody did. `clauses` are the single complaints of a 422 or of a LimitRange, sorted. `assumed` names the
    quotas whose manifest had no status: they were checked by `spec.hard`, as if nothing was used.
    """

    status: int
    stage: str
    message: str | None
    clauses: tuple[str, ...]
    assumed: tuple[str, ...]
    _pod: Pod = field(repr=False)
    _prepared: bool = field(repr=False)
    _totals: Callable[[], Mapping[str, ResourceList]] = field(repr=False)
    _others: Callable[[Admission], tuple[Admission, ...]] = field(repr=False)
    reason: str | None = None
    """The message without the pod's name: the same for all pods that are refused for the same."""
    reasons: tuple[Reason, ...] = ()
    """The refusal as values: of validation, of one LimitRange, or of one quota."""

    @property
    def allowed(self) -> bool:
        return self.status == 201

    @cached_property
    def pod(self) -> dict[str, Any]:
        """The manifest after defaulting and mutation; what they left alone is shared with the given one."""
        return render(self._pod, created=self.allowed, prepared=self._prepared)

    def containers_behind(self, reason: Reason) -> tuple[str, ...]:
        """The containers that break a LimitRange's bound; none for other reasons."""
        return containers_that_break(self._pod, reason) if isinstance(reason, BoundViolation) else ()

    @cached_property
    def usage(self) -> dict[str, str]:
        """What the pod costs, for every key that Kubernetes' evaluator reports.

        Empty when its priority or runtime class was refused, since that comes before the pod is complete.
        """
        return render_list(pod_usage(self._pod)) if self._prepared else {}

    @cached_property
    def used(self) -> dict[str, dict[str, str]]:
        """All totals of each quota after the creation; empty when the pod is refused."""
        return {name: render_list(totals) for name, totals in self._totals().items()}

    @cached_property
    def alternatives(self) -> tuple[Admission, ...]:
        """The other answers Kubernetes may give, since it reads LimitRanges and quotas in no particular order."""
        return self._others(self)

    def of_twin(self, metadata: Mapping[str, Any]) -> Admission:
        """The same answer to a pod that differs in its name and labels alone, and was let in like this one."""
        _ = self.usage, self.used  # worked out once for all twins
        twin = copy(self)
        stored = self.pod["metadata"]
        twin.__dict__["pod"] = {**self.pod, "metadata": {**stored, **metadata, **_merge_annotations(stored, metadata)}}
        return twin

    def is_same(self, other: Admission) -> bool:
        """Whether both tell the user the same, up to LimitRanger's note of what it filled in."""
        return self._user_view() == other._user_view()

    def _user_view(self) -> tuple[object, ...]:
        pod = render(self._pod._replace(limit_ranger_note=None), created=self.allowed, prepared=self._prepared)
        return self.status, self.message, pod, self.usage, self.used


def _merge_annotations(stored: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What the server wrote on the pod stays on it."""
    both = {**metadata.get("annotations", {}), **stored.get("annotations", {})}
    return {"annotations": both} if both else {}


MOST_ORDERS = 720
"""Orders of LimitRanges tried in search of other answers: all orders of six."""


class AdmissionInputs(NamedTuple):
    """Everything in a namespace, and around it, that has a say in the admission of a pod."""

    quotas: tuple[Quota, ...]
    limit_ranges: tuple[LimitRange, ...]
    priority_classes: tuple[Body | PriorityClass, ...] | None
    runtime_classes: tuple[Body | RuntimeClass, ...] | None
    policy: Policy
    assumed: tuple[str, ...]


def admit(
    pod: Mapping[str, Any],
    *,
    quotas: Iterable[Body | Quota] | None = (),
    limit_ranges: Iterable[Body | LimitRange] | None = (),
    priority_classes: Iterable[Body | PriorityClass] | None = None,
    runtime_classes: Iterable[Body | RuntimeClass] | None = None,
    namespace: Body | str | None = None,
) -> Admission:
    """What the API server answers when this pod is created.

    Arguments are manifests as plain maps; quotas, LimitRanges and classes that were read before are taken as
    they are, which is quicker for many pods. `None` for a kind means unknown: it is not checked, and with
    unknown runtime classes the pod's own overhead is taken as given. Quotas and LimitRanges that belong to
    another namespace than the pod are left out. `namespace` brings the Pod Security labels.

    `ValueError` when the manifest is not a pod that the API server could even decode.
    """
    decoded = read_pod(pod)
    home = decoded.metadata.get("namespace") or _name_of(namespace)
    local_quotas = _of_namespace(map(read_quota, _require_list(quotas, "quotas") or ()), home)
    inputs = AdmissionInputs(
        local_quotas,
        _of_namespace(map(read_limit_range, _require_list(limit_ranges, "limit_ranges") or ()), home),
        _require_list(priority_classes, "priority_classes"),
        _require_list(runtime_classes, "runtime_classes"),
        _policy_of(namespace),
        tuple(each.name for each in local_quotas if each.assumed),
    )
    defaulted = decoded
    for limit_range in inputs.limit_ranges:
        defaulted = with_defaults(defaulted, limit_range)
    return _decide(defaulted, inputs, partial(_other_answers, decoded, inputs))[0]


Item = TypeVar("Item")


def _require_list(items: Iterable[Item] | None, argument: str) -> tuple[Item, ...] | None:
    if items is None:
        return None
    if not isinstance(items, list | tuple) and (isinstance(items, str | Mapping) or not isinstance(items, Iterable)):
        raise ValueError(f"{argument}: must be a list of manifests, not {items!r}")
    return tuple(items)


Ruler = TypeVar("Ruler", Quota, LimitRange)


def _of_namespace(rulers: Iterable[Ruler], home: str | None) -> tuple[Ruler, ...]:
    return tuple(each for each in rulers if not each.namespace or not home or each.namespace == home)


def _name_of(namespace: Body | str | None) -> str | None:
    if namespace is None or isinstance(namespace, str):
        return namespace
    metadata = read_map(read_object(namespace, "Namespace").get("metadata"), "Namespace metadata")
    return read_text(metadata, "name", "Namespace metadata")


def _policy_of(namespace: Body | str | None) -> Policy:
    if namespace is None or isinstance(namespace, str):
        return PRIVILEGED
    metadata = read_map(read_object(namespace, "Namespace").get("metadata"), "Namespace metadata")
    labels = metadata.get("labels", namespace.get("labels"))
    return read_policy(read_map(labels, "Namespace metadata.labels")) if labels else PRIVILEGED


Alternatives = Callable[[Admission], tuple[Admission, ...]]


def _other_answers(decoded: Pod, inputs: AdmissionInputs, answer: Admission) -> tuple[Admission, ...]:
    """Every other answer that some order of LimitRanges and quotas leads to."""
    others = partial(_other_answers, decoded, inputs)
    found = [answer]
    for pod in _pods_with_defaults(decoded, inputs.limit_ranges):
        for other in _decide(pod, inputs, others):
            if not any(other.is_same(known) for known in found):
                found.append(other)
    return tuple(found[1:])


def _pods_with_defaults(decoded: Pod, limit_ranges: Sequence[LimitRange]) -> Iterator[Pod]:
    """The pod with its defaults, once for each outcome that differs in more than the annotation."""
    giving = [each for each in limit_ranges if each.default_requests or each.default_limits]
    seen: list[Spelling] = []
    for order in islice(permutations(giving), MOST_ORDERS):
        pod = decoded
        for limit_range in order:
            pod = with_defaults(pod, limit_range)
        outcome = _spelling(pod) if len(giving) > 1 else []
        if outcome not in seen:
            seen.append(outcome)
            yield pod


Spelling = list[list[tuple[str, str, str]]]


def _spelling(pod: Pod) -> Spelling:
    """All resources of the containers; equal amounts in another notation give other texts further on."""
    return [
        sorted((name, quantity.text, quantity.format.value) for name, quantity in listed.items())
        for each in pod.every_container
        for listed in (each.requests, each.limits)
    ]


def _decide(pod: Pod, inputs: AdmissionInputs, others: Alternatives) -> list[Admission]:
    """The answers for one defaulted pod: one, or as many as there are LimitRanges or quotas that refuse it."""
    quotas, limit_ranges, priority_classes, runtime_classes, policy, assumed = inputs

    def refuse(stage: str, reason: str, reasons: tuple[Reason, ...] = (), *, prepared: bool = True) -> Admission:
        message = f"pods {quote_as_go(pod.name or 'Unknown')} is forbidden: {reason}"
        clauses = sentences(reasons) if stage == "limitrange" else ()
        return Admission(403, stage, message, clauses, assumed, pod, prepared, dict, others, reason, reasons)

    stage = "priority"
    try:
        if priority_classes is not None:
            pod = with_priority(pod, priority_classes)
        stage = "runtimeclass"
        if runtime_classes is not None:
            pod = with_runtime(pod, runtime_classes)
    except AdmissionRefusal as refusal:
        pod = refusal.pod
        return [refuse(stage, str(refusal), prepared=False)]
    faults = pod_faults(pod)
    if faults:
        clauses = sentences(faults)
        reason = join_clauses(clauses)
        message = f"Pod {quote_as_go(pod.name)} is invalid: {reason}"
        return [Admission(422, "validation", message, clauses, assumed, pod, True, dict, others, reason, faults)]
    broken = [violations for each in limit_ranges if (violations := broken_bounds(pod, each))]
    if broken:
        return [refuse("limitrange", join_clauses(sentences(each)), each) for each in broken]
    violated = violation(pod.metadata, pod.spec, policy)
    if violated:
        return [refuse("podsecurity", violated)]
    try:
        if runtime_classes is not None:
            check_overhead(pod, runtime_classes)
    except AdmissionRefusal as refusal:
        return [refuse("runtimeclass", str(refusal))]
    verdict = check_request(pod, quotas)
    if verdict.refusals:
        return [refuse("quota", each.sentence(), (each,)) for each in verdict.refusals]
    return [Admission(201, "created", None, (), assumed, pod, True, partial(new_totals, verdict, quotas), others)]
