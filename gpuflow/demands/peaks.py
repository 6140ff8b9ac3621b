"""What a pod asks for and costs, and the worst moment of a graph of steps, per quota key.

The worst moment is exact, an upper bound, or unknown with the reason. Pods that ask for the same share one answer: most
steps of a pipeline are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from gpuflow.core.caching import content_of, data_of
from gpuflow.graph import Peak, Tree, peak, with_weights
from gpuflow.kubernetes.admission.quota import claims_of_pod, compute_usage, usage_of_claim
from gpuflow.kubernetes.objects import PodTemplate, decode
from gpuflow.quantity import Quantity

CONTAINERS = ("initContainers", "containers")
COUNTED_OF_CONTAINER = ("resources", "restartPolicy")
COUNTED_OF_POD = ("overhead", "resources")


class Amounts(NamedTuple):
    """Of one pod."""

    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]
    usage: Mapping[str, Quantity]
    """What it costs, by quota key."""


def amounts_of(pod: Mapping[str, Any]) -> Amounts:
    """What one pod requests, its limits, and what it costs."""
    spec = pod["spec"]
    asked: dict[str, Any] = {key: spec[key] for key in COUNTED_OF_POD if key in spec}
    for field in CONTAINERS:
        if field in spec:
            asked[field] = [{key: each[key] for key in COUNTED_OF_CONTAINER if key in each} for each in spec[field]]
    claims = [usage_of_claim(claim) for _, claim in claims_of_pod(spec)] if "volumes" in spec else []
    if claims:
        own = _compute_amounts(asked)
        return own._replace(usage=_with_claims(own.usage, claims))
    content = content_of(asked)
    return _compute_amounts(asked) if content is None else _amounts_of(content)


@lru_cache(maxsize=4096)
def _amounts_of(asked: bytes) -> Amounts:
    return _compute_amounts(data_of(asked))


def _compute_amounts(asked: Mapping[str, Any]) -> Amounts:
    lists = {field: [_with_default_requests(each) for each in asked[field]] for field in CONTAINERS if field in asked}
    stored = decode(PodTemplate, {**asked, **lists}, "spec")
    requests, limits = stored.requests(), stored.limits()
    return Amounts(requests, limits, compute_usage(requests, limits))


def _with_claims(usage: Mapping[str, Quantity], claims: list[dict[str, Quantity]]) -> Mapping[str, Quantity]:
    """With the claims that Kubernetes makes for the pod's ephemeral volumes."""
    total = dict(usage)
    for claim in claims:
        for key, amount in claim.items():
            if not key.startswith("count/"):
                total[key] = total.get(key, Quantity.zero) + amount
    return total


def _with_default_requests(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """The container with requests filled in from limits, as the API server does before anything is counted."""
    resources = container.get("resources", {})
    limits = resources.get("limits", {})
    if not limits.keys() - resources.get("requests", {}).keys():
        return container
    return {**container, "resources": {**resources, "requests": {**limits, **resources.get("requests", {})}}}


ALIASES = ("cpu", "memory", "ephemeral-storage")
"""Kubernetes also counts these under `requests.`; one name is enough."""

Usage = Mapping[str, Quantity]
"""Amounts by quota key."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A quantity that is exact, at most this, or unknown. The witness is a set of steps that reach it together.

    Where only a bound was worked out, because more takes too long, the witness has what is `reached`; where nothing
    bounds a part, what the rest reaches.
    """

    bound: str
    value: Quantity | None
    because: str | None = None
    witness: tuple[str, ...] = ()
    reached: Quantity | None = None

    def document(self) -> dict[str, Any]:
        """The contract's JSON shape."""
        value = None if self.value is None else str(self.value)
        return {"bound": self.bound, "value": value, "because": self.because, "witness": list(self.witness)}


def peaks_of(
    graph: Tree, usages: Mapping[str, Usage], conditional: Mapping[str, bool] | None = None
) -> dict[str, Bound]:
    """The worst moment per quota key when one copy of each step costs what `usages` says, all its pods together.

    `conditional`: steps that may not run, and whether each item of a fan-out has its own answer.
    """
    forms = {key: quantity for usage in usages.values() for key, quantity in usage.items() if key not in ALIASES}
    if not forms:
        return {}
    tree = tree_of(graph, usages)
    # Most steps limit what they request, so several keys ask the same question of the graph: it is answered once.
    solved: dict[tuple[int, ...], Peak] = {}
    bounds = {}
    for key, form in forms.items():
        weights = tuple(usage[key].milli if key in usage else 0 for usage in usages.values())
        if weights not in solved:
            solved[weights] = peak(tree, key)
        bounds[key] = _bound_of(solved[weights], form, conditional or {})
    return bounds


def tree_of(graph: Tree, usages: Mapping[str, Usage]) -> Tree:
    """The graph with what each step costs; weights are thousandths, so that cpu stays exact."""
    return with_weights(
        graph, {name: {key: each.milli for key, each in usage.items()} for name, usage in usages.items()}
    )


def _bound_of(found: Peak, form: Quantity, conditional: Mapping[str, bool]) -> Bound:
    chains = [[each for each in enclosing_steps(step) if each in conditional] for step in found.witness]
    asked = list(dict.fromkeys(each for chain in chains for each in chain))
    by_item = [step for step in asked if conditional[step]]
    # A step that runs at all passes the conditions around it, one in the other: only a second step may be excluded.
    may_exclude = len(asked) > max(map(len, chains), default=0)
    if found.value is None:
        known = None if may_exclude else Quantity.from_nano(found.reached * 1_000_000, form.format)
        return Bound("unknown", None, found.because, found.witness, known)
    value = Quantity.from_nano(found.value * 1_000_000, form.format)
    if found.bound == "exact" and may_exclude:
        return Bound(
            "at-most", value, f"{' and '.join(asked)} have conditions that may exclude each other", found.witness
        )
    if found.bound == "exact" and by_item:
        return Bound("at-most", value, f"the condition of {by_item[0]} may leave items out", found.witness)
    reached = Quantity.from_nano(found.reached * 1_000_000, form.format) if found.is_cut_short else None
    return Bound(found.bound, value, found.because, found.witness, reached)


def enclosing_steps(step: str) -> Iterator[str]:
    """A step by its full name, and the steps whose sub-pipelines it stands in: `a.b` and `a`; of `a/leader`, `a`."""
    step = step.partition("/")[0]
    while step:
        yield step
        step = step.rpartition(".")[0]
