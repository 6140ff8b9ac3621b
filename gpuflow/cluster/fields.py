"""Fields of a manifest that its kind does not have.

kubectl refuses them and the API server drops them, so an amount under a misspelled key is an amount that nobody
enforces. Listed are the fields of the kinds whose every word decides; other kinds are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from gpuflow.cluster.places import Path

ANY: Final = "*"
OBJECT: Final = "apiVersion kind metadata spec status"

SELECTOR: Final = {"": "matchLabels matchExpressions"}
QUOTA: Final = {
    "": "coveredResources flavors",
    "flavors.*": "name resources",
    "flavors.*.resources.*": "name nominalQuota borrowingLimit lendingLimit",
}
FIELDS: Final[dict[str, dict[str, str]]] = {
    "ResourceQuota": {
        "": OBJECT,
        "spec": "hard scopes scopeSelector",
        "spec.scopeSelector": "matchExpressions",
        "spec.scopeSelector.matchExpressions.*": "scopeName operator values",
        "status": "hard used",
    },
    "LimitRange": {
        "": OBJECT,
        "spec": "limits",
        "spec.limits.*": "type max min default defaultRequest maxLimitRequestRatio",
    },
    "LocalQueue": {"": OBJECT, "spec": "clusterQueue stopPolicy fairSharing"},
    "ClusterQueue": {
        "": OBJECT,
        "spec": (
            "resourceGroups cohort cohortName queueingStrategy namespaceSelector flavorFungibility preemption "
            "admissionChecks admissionChecksStrategy stopPolicy fairSharing admissionScope concurrentAdmissionPolicy"
        ),
        "spec.flavorFungibility": "whenCanBorrow whenCanPreempt preference",
        "spec.preemption": "reclaimWithinCohort borrowWithinCohort withinClusterQueue",
        "spec.preemption.borrowWithinCohort": "policy maxPriorityThreshold",
        **{f"spec.resourceGroups.*.{path}".rstrip("."): names for path, names in QUOTA.items()},
        **{f"spec.namespaceSelector.{path}".rstrip("."): names for path, names in SELECTOR.items()},
    },
    "Cohort": {
        "": OBJECT,
        "spec": "parent parentName resourceGroups fairSharing",
        **{f"spec.resourceGroups.*.{path}".rstrip("."): names for path, names in QUOTA.items()},
    },
    "ResourceFlavor": {"": OBJECT, "spec": "nodeLabels nodeTaints tolerations topologyName"},
}
"""For each kind, the names that may stand at a path; `*` stands for every item of a list."""

ELSEWHEN: Final[dict[tuple[str, str], str]] = {
    ("ClusterQueue", "v1beta1"): "cohortName concurrentAdmissionPolicy",
    ("ClusterQueue", "v1beta2"): "cohort admissionChecks",
}
"""Fields of `spec` that a kind has in other versions only."""


class Stray(NamedTuple):
    """A field that does not exist: where it stands, and the names that do exist there."""

    path: Path
    known: tuple[str, ...]


def strays(kind: str, body: Mapping[str, Any]) -> Iterator[Stray]:
    """The fields of a manifest that its kind does not have."""
    version = str(body.get("apiVersion")).rpartition("/")[2]
    foreign = ELSEWHEN.get((kind, version), "").split()
    for path, names in FIELDS.get(kind, {}).items():
        known = tuple(name for name in names.split() if path != "spec" or name not in foreign)
        for found, holder in _holders(body, path.split(".") if path else [], ()):
            for key in holder:
                if key not in known:
                    yield Stray((*found, key), known)


def _holders(tree: Any, path: list[str], found: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    if not path:
        if isinstance(tree, Mapping):
            yield found, tree
    elif path[0] == ANY:
        for index, item in enumerate(tree if isinstance(tree, list) else ()):
            yield from _holders(item, path[1:], (*found, index))
    elif isinstance(tree, Mapping) and path[0] in tree:
        yield from _holders(tree[path[0]], path[1:], (*found, path[0]))
