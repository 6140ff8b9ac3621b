"""The list of what a pipeline cannot say, each with the place in the file, the reason and the way out.

A document without the shape that Kubernetes and Argo require is refused, and so is one that it refers to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuflow.core.errors import Finding, Where
from gpuflow.formats.documents import Document

FIELD, TAG, TEMPLATE, KIND, CHANGED, RULE = "GF786", "GF787", "GF788", "GF789", "GF790", "GF791"
NO_FIELD = "a pipeline has no word for it"
MOST_STEPS = 2000
"""Templates that call each other can make a small file stand for any number of steps."""


LISTS = frozenset(
    {
        "artifacts", "containers", "env", "envFrom", "hostAliases", "imagePullSecrets", "initContainers",
        "items", "parameters", "ports", "prometheus", "sidecars", "tasks", "templates", "tolerations",
        "topologySpreadConstraints", "volumeClaimTemplates", "volumeMounts", "volumes",
    }
)  # fmt: skip
"""Lists of maps."""
TEXTS = frozenset(["accessModes", "args", "command", "dependencies", "enum", "hostnames", "schedules", "withItems"])
"""Lists of anything."""
MAPS = frozenset(
    {
        "affinity", "archiveLocation", "arguments", "backoff", "configMapKeyRef", "container", "dag", "hooks",
        "inline", "inputs", "jobTemplate", "lifecycle", "livenessProbe", "metadata", "metrics", "outputs",
        "podGC", "podMetadata", "readinessProbe", "resources", "retryStrategy", "script", "secretKeyRef",
        "securityContext", "spec", "startupProbe", "templateDefaults", "templateRef", "ttlStrategy",
        "valueFrom", "volumeClaimGC", "withSequence", "workflowMetadata", "workflowSpec", "workflowTemplateRef",
        "configMapRef", "secretRef", "counter", "gauge", "histogram", "configMap", "secret", "emptyDir",
        "hostPath", "nfs", "persistentVolumeClaim",
    }
)  # fmt: skip
NUMBERS = frozenset(
    {
        "backoffLimit", "completions", "failedJobsHistoryLimit", "parallelism", "secondsAfterCompletion",
        "secondsAfterFailure", "secondsAfterSuccess", "startingDeadlineSeconds", "successfulJobsHistoryLimit",
        "terminationGracePeriodSeconds", "ttlSecondsAfterFinished",
    }
)  # fmt: skip
FREE_MAPS = frozenset(["labels", "annotations", "nodeSelector", "requests", "limits"])
"""Maps from a name to a text or a number."""
SKIPPED_FIELDS = ("artifacts", "prometheus", "withItems")
"""What is in them has other words of the same names."""


def _shape_problem(key: str, item: Any) -> str | None:
    if item is None:
        return None
    if key == "steps":
        fits = isinstance(item, list) and all(
            isinstance(group, list) and all(isinstance(each, Mapping) for each in group) for group in item
        )
        return None if fits else "a list of lists of steps"
    if key in LISTS:
        fits = isinstance(item, list) and all(isinstance(each, Mapping) for each in item)
        return None if fits else "a list of maps"
    if key in NUMBERS:
        return None if isinstance(item, int) and not isinstance(item, bool) and item >= 0 else "a whole number"
    if key in TEXTS:
        return None if isinstance(item, list) else "a list"
    if key in MAPS:
        return None if isinstance(item, Mapping) else "a map"
    if key in FREE_MAPS:
        scalars = isinstance(item, Mapping) and not any(isinstance(each, Mapping | list) for each in item.values())
        return None if scalars else "a map from names to texts"
    return None


class Unsupported:
    """Collects findings about one document, and about those that it refers to."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: list[Finding] = []
        self.notes: list[Finding] = []
        self.steps = 0
        self._wrong: dict[int, bool] = {}

    def cannot(self, what: str, why: str, where: Where, hint: str | None = None, code: str = FIELD) -> None:
        """Something is lost without it, so there is no pipeline."""
        finding = Finding(code, f"{what}: {why}", where, hint)
        if finding not in self.found:
            self.found.append(finding)

    def has_room(self, what: str, where: Where) -> bool:
        """Count one more step; whether the pipeline has not too many."""
        self.steps += 1
        if self.steps == MOST_STEPS + 1:
            self.cannot(what, f"it becomes more than {MOST_STEPS:,} steps", where, "use a loop", TEMPLATE)
        return self.steps <= MOST_STEPS

    def note(self, text: str, where: Where) -> None:
        """The pipeline says it otherwise."""
        finding = Finding(CHANGED, text, where, None, "note")
        if finding not in self.notes:
            self.notes.append(finding)

    def fields(
        self, owner: object, known: Iterable[str], what: str, place: Place, hints: Mapping[str, str] | None = None
    ) -> None:
        """List every field of a map that nobody has read."""
        for key, value in owner.items() if isinstance(owner, Mapping) else ():
            if key not in known and value not in (None, [], {}):
                hint = (hints or {}).get(key)
                self.cannot(f"{what} {key}" if what else str(key), NO_FIELD, place.of(owner, key), hint)

    def has_wrong_shapes(self, document: Document) -> bool:
        """List what has another shape in a document than its name says; whether there is any."""
        if id(document) not in self._wrong:
            before, place, waiting = len(self.found), Place(document), [document.tree]
            while waiting:
                value: Any = waiting.pop()
                if isinstance(value, list):
                    waiting += value
                for key, item in value.items() if isinstance(value, Mapping) else ():
                    wanted = _shape_problem(str(key), item)
                    if wanted:
                        why = f"it is not {wanted}, so no cluster takes it"
                        self.cannot(str(key), why, place.of(value, key), None, KIND)
                    elif key not in FREE_MAPS and key not in SKIPPED_FIELDS:
                        waiting.append(item)
            self._wrong[id(document)] = len(self.found) > before
        return self._wrong[id(document)]


class Place:
    """Finds lines: a map or list that was read from a file knows where its parts stand."""

    def __init__(self, document: Document, around: Where | None = None) -> None:
        """`around`: where the part stands that this is about, for what has no place of its own."""
        self.document, self.around = document, around

    def of(self, owner: Any, key: Any = None) -> Where:
        """Where `key` of a map stands, or an item of a list, or the map itself."""
        spot = getattr(owner, "key_at", {}).get(key)
        if spot is None and isinstance(key, int) and key < len(getattr(owner, "item_at", ())):
            spot = owner.item_at[key]
        spot = spot or getattr(owner, "spot", None)
        if spot is None:
            return self.around or self.document.where()
        return Where(self.document.file, spot.line, spot.column)
