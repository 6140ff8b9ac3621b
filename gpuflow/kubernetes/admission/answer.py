"""The API server's answer to the creation of a pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpuflow.kubernetes.admission.clauses import FieldError
from gpuflow.kubernetes.admission.limit_range import BoundViolation, containers_that_break
from gpuflow.kubernetes.admission.pod import Pod
from gpuflow.kubernetes.admission.quota import QuotaRefusal
from gpuflow.kubernetes.admission.stored import render
from gpuflow.kubernetes.admission.usage import pod_usage
from gpuflow.resources import ResourceList

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
        return _texts(pod_usage(self._pod)) if self._prepared else {}

    @cached_property
    def used(self) -> dict[str, dict[str, str]]:
        """All totals of each quota after the creation; empty when the pod is refused."""
        return {name: _texts(totals) for name, totals in self._totals().items()}

    @cached_property
    def alternatives(self) -> tuple[Admission, ...]:
        """The other answers Kubernetes may give, since it reads LimitRanges and quotas in no particular order."""
        return self._others(self)

    def of_twin(self, metadata: Mapping[str, Any]) -> Admission:
        """The same answer to a pod that differs in its name and labels alone, and was let in like this one."""
        _ = self.usage, self.used  # worked out once for all twins
        twin = copy(self)
        stored = self.pod["metadata"]
        twin.__dict__["pod"] = {**self.pod, "metadata": {**stored, **metadata, **_annotated(stored, metadata)}}
        return twin

    def is_same(self, other: Admission) -> bool:
        """Whether both tell the user the same, up to LimitRanger's note of what it filled in."""
        return self._told() == other._told()

    def _told(self) -> tuple[object, ...]:
        pod = render(self._pod._replace(limit_ranger_note=None), created=self.allowed, prepared=self._prepared)
        return self.status, self.message, pod, self.usage, self.used


def _annotated(stored: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What the server wrote on the pod stays on it."""
    both = {**metadata.get("annotations", {}), **stored.get("annotations", {})}
    return {"annotations": both} if both else {}


def _texts(resources: ResourceList) -> dict[str, str]:
    return {name: quantity.text for name, quantity in resources.items()}
