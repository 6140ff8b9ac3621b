"""The objects that a document and its controllers store beside pods: quotas count them, webhooks look at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpuflow.core.errors import Where

PLAIN: Final = ("configmaps", "replicationcontrollers", "resourcequotas", "secrets", "services")
"""Resources of which a quota also counts all under their own name."""
HISTORY: Final = {"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}
"""How many finished runs a CronJob or a CronWorkflow keeps, where it does not say."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """Objects of one kind. The names are those of the API: `jobs` of the group `batch`."""

    resource: str
    """With a dot it is no kind, and the key of a quota: `services.nodeports`."""
    group: str = ""
    at_least: int = 1
    """So many every run has at once when it has started; 0: perhaps there is none."""
    at_most: int | None = 1
    """The most that a run has at once; None: not known."""
    because: str = ""
    """Why there may be more than the least, or why the most is not known."""
    kept: tuple[int, int] = (0, 0)
    """Those of earlier runs that stay: when each of them succeeded, and at most."""
    by_updates: int = 0
    """How many more there are at most after updates, and while one goes on."""
    by_controller: bool = True
    """Whether a controller makes it, and asks again when it is refused; else whoever applies the document does once."""
    per_run: bool = True
    """Whether each run has its own; else one serves all runs."""
    owner: str = ""
    """Whose it is, as sentences say it: `CronJob nightly`."""
    labels: Mapping[str, str] | None = field(default=None, compare=False)
    """None: not known."""
    where: Where = field(default_factory=Where, compare=False)
    namespace: str | None = None
    """Its namespace, where that is not the run's."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of quotas that count it."""
        if "." in self.resource:
            return (self.resource,)
        key = f"count/{self.resource}.{self.group}".rstrip(".")
        return (self.resource, key) if self.resource in PLAIN and not self.group else (key,)


def kept_runs(*limits: int | None) -> tuple[int, int]:
    """How many finished runs of a schedule stay: those that succeeded, and with those that failed.

    Mirrors cleanupFinishedJobs of pkg/controller/cronjob, Kubernetes v1.36.3, and enforceHistoryLimit of workflow/cron,
    Argo v4.0.7.
    """
    good, bad = (
        default if each is None or each < 0 else each for each, default in zip(limits, HISTORY.values(), strict=True)
    )
    return good, good + bad


def kind_of_key(key: str) -> tuple[str, str]:
    """The resource and the group that a key such as `count/jobs.batch` counts."""
    resource, _, group = key.removeprefix("count/").partition(".")
    return resource, group


def resource_of(kind: str) -> str:
    """The resource of a kind.

    Mirrors k8s.io/apimachinery/pkg/api/meta.UnsafeGuessKindToResource, Kubernetes v1.36.3.
    """
    word = kind.lower()
    if word == "endpoints":
        return word
    if word.endswith("s"):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
