"""Labels and what selects them, taints and what tolerates them.

Mirrors k8s.io/apimachinery/pkg/labels.Requirement.Matches and k8s.io/api/core/v1.Toleration.ToleratesTaint, Kubernetes
v1.36.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from gpuflow.kubernetes.admission.field_errors import label_value_faults, qualified_name_faults
from gpuflow.kubernetes.admission.pod import read_text
from gpuflow.kubernetes.resources import BadField, read_map, read_maps, read_texts
from gpuflow.quantity import MAX_INT64

Labels = Mapping[str, str]

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
"""By these Kueue knows the LocalQueue and the WorkloadPriorityClass of a pod."""
DEFAULT_QUEUE: Final = "default"
"""The LocalQueue that takes pods which name none."""
QUEUED_BY: Final = "kueue.x-k8s.io/pod-suspending-parent"
"""An annotation of pods: the integration of Kueue that queues the object which makes them."""
REPLACED_SLICE: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
"""An annotation that names another Workload; that it is there is all a check reads."""
MADE_BY: Final = "gpuflow.dev/made-by"
"""An annotation of pods that a check looks at: the kind of their gang, where its queue is not one of Kueue's."""
CLAIM_PREFIX: Final = "gpuflow.dev/claim-prefix"
"""An annotation of the claims that a controller makes for each of its pods and keeps: how their names begin."""

INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)


def integer(text: str | None) -> int | None:
    """A whole number of 64 bits as Go reads it; `None` when it is not one."""
    if text is None or len(text) > 64 or not INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -MAX_INT64 - 1 <= number <= MAX_INT64 else None


def decimal(text: str) -> int | None:
    """The same of a number in its shortest spelling, without a plus sign and leading zeros."""
    return integer(text) if DECIMAL.fullmatch(text) else None


def _compare_integers(value: str | None, values: tuple[str, ...], holds: Callable[[int, int], bool]) -> bool:
    number, bound = integer(value), integer(values[0])
    return number is not None and bound is not None and holds(number, bound)


MATCHES: Final[Mapping[str, Callable[[str | None, tuple[str, ...]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, values: value is not None,
    "DoesNotExist": lambda value, values: value is None,
    "Gt": lambda value, values: _compare_integers(value, values, int.__gt__),
    "Lt": lambda value, values: _compare_integers(value, values, int.__lt__),
}
"""What each operator asks of the value of a label, `None` where the label is missing."""

POD_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


class Requirement(Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        return MATCHES[self.operator](labels.get(self.key), self.values)

    @property
    def fault(self) -> str | None:
        """Why Kubernetes cannot make sense of it."""
        if self.operator not in MATCHES:
            return f"operator {self.operator!r} is not one of {', '.join(MATCHES)}"
        if self.operator in ("In", "NotIn") and not self.values:
            return f"{self.operator} needs values"
        if self.operator in ("Exists", "DoesNotExist") and self.values:
            return f"{self.operator} takes no values"
        if self.operator in ("Gt", "Lt") and (len(self.values) != 1 or integer(self.values[0]) is None):
            return f"{self.operator} needs one whole number"
        faults = [f"key {self.key!r}: {fault}" for fault in qualified_name_faults(self.key)]
        faults += [f"value {value!r}: {fault}" for value in self.values for fault in label_value_faults(value)]
        return "; ".join(faults) or None


def read_requirements(value: object, where: str) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(
            read_text(item, "key", f"{where}[{index}]") or "",
            read_text(item, "operator", f"{where}[{index}]") or "",
            tuple(read_texts(item.get("values"), f"{where}[{index}].values")),
        )
        for index, item in enumerate(read_maps(value, where))
    )


def read_labels(value: object, where: str) -> dict[str, str]:
    labels = read_map(value, where)
    for key, text in labels.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise BadField(f"{where}[{key}]", f"a label is a string, not {text!r}")
    return labels if type(labels) is dict else dict(labels)


OTHER_VALUE: Final = "any other value"
"""Stands for all values that no requirement names: as a label it is not valid."""


def can_hold(requirements: Iterable[Requirement]) -> bool:
    """Whether some labels meet all of them. Each is of the operators that selectors of pods take."""
    by_key: dict[str, list[Requirement]] = {}
    for each in requirements:
        by_key.setdefault(each.key, []).append(each)
    return all(
        any(
            all(each.matches({} if value is None else {key: value}) for each in own)
            for value in (None, OTHER_VALUE, *(value for each in own for value in each.values))
        )
        for key, own in by_key.items()
    )


class Selector(NamedTuple):
    """All requirements must hold; none at all hold for everything. `None` in its place matches nothing."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Labels) -> bool:
        return all(each.matches(labels) for each in self.requirements)

    def with_label_keys(self, keys: Iterable[str], labels: Labels, operator: str = "In") -> Selector:
        """The selector that also compares these labels with the pod's own, as far as the pod has them."""
        more = (Requirement(key, operator, (labels[key],)) for key in keys if key in labels)
        return Selector((*self.requirements, *more))


def read_selector(value: object, where: str) -> Selector | None:
    if value is None:
        return None
    selector = read_map(value, where)
    labels = read_labels(selector.get("matchLabels"), f"{where}.matchLabels")
    expressions = read_requirements(selector.get("matchExpressions"), f"{where}.matchExpressions")
    for index, each in enumerate(expressions):
        if each.operator not in POD_OPERATORS:
            known = ", ".join(POD_OPERATORS)
            raise BadField(f"{where}.matchExpressions[{index}]", f"operator {each.operator!r} is not one of {known}")
    equal = tuple(Requirement(key, "In", (text,)) for key, text in labels.items())
    for each in (*equal, *expressions):
        if each.fault:
            raise BadField(where, each.fault)
    return Selector(equal + expressions)


WORKERS, LEADER = "worker", "leader"
"""What the replicated jobs of a gang's JobSet are called, and so the pod sets of its Kueue workload."""


EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
BLOCKING_EFFECTS: Final = ("NoSchedule", "NoExecute")
"""The effects of taints that keep pods off; a preference does not."""


class Taint(Struct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class Toleration(NamedTuple):
    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, key: str, value: str, effect: str, *, comparing: bool) -> bool:
        """Whether it covers a taint; `Gt` and `Lt` cover something only where numbers are compared."""
        if self.effect not in ("", effect) or self.key not in ("", key):
            return False
        if self.operator in ("", "Equal"):
            return self.value == value
        if self.operator in ("Gt", "Lt") and comparing:
            bound, number = decimal(self.value), decimal(value)
            if bound is None or number is None:
                return False
            return number > bound if self.operator == "Gt" else number < bound
        return self.operator == "Exists"


def read_tolerations(value: object, where: str) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(*(read_text(each, field, f"{where}[{index}]") or "" for field in Toleration._fields))
        for index, each in enumerate(read_maps(value, where))
    )
