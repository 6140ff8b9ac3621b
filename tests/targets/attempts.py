"""Later attempts that every engine must agree about: what a step says, and what happens to its attempts.

An engine's own tests run this table through the engine; `tests/targets/test_later_attempts.py` through the checker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuflow.plan import planned_step
from gpuflow.pod import pod_for
from gpuflow.pod.build import made_pod
from gpuflow.pod.later_attempts import changes_of
from gpuflow.runtime.gangs.later_attempts import EarlierAttempts
from gpuflow.site import Site
from gpuflow.spec.canonical import meaning_of
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: registry.example.com/i:1}\n"


@dataclass(frozen=True)
class Growing:
    """A step that runs out of memory again and again, and the memory of its attempts: requests, then limits."""

    memory: str
    factor: str
    max: str
    failures: int
    requests: tuple[str, ...]
    limits: tuple[str, ...]

    @property
    def text(self) -> str:
        more = f"more_memory: {{factor: {self.factor}, max: {self.max}}}"
        return f"command: [x], memory: {self.memory}, retry: {{failures: {self.failures}, {more}}}"


GROWING = {
    "doubles up to the most": Growing(
        "16Gi", "2", "48Gi", 3, ("16Gi", "32Gi", "48Gi", "48Gi"), ("16Gi", "32Gi", "48Gi", "48Gi")
    ),
    "request and limit grow each on its own": Growing(
        "{request: 16Gi, limit: 20Gi}", "2", "64Gi", 2, ("16Gi", "32Gi", "64Gi"), ("20Gi", "40Gi", "64Gi")
    ),
    "whole mebibytes": Growing("1Gi", "1.3", "8Gi", 2, ("1Gi", "1332Mi", "1731Mi"), ("1Gi", "1332Mi", "1731Mi")),
    "a factor is the decimal number that was written": Growing(
        "1000Mi", "1.1", "8Gi", 3, ("1000Mi", "1100Mi", "1210Mi", "1331Mi"), ("1000Mi", "1100Mi", "1210Mi", "1331Mi")
    ),
    "other units": Growing("10G", "1.5", "20G", 2, ("10G", "14306Mi", "20G"), ("10G", "14306Mi", "20G")),
    "the most is what it has": Growing("4Gi", "2", "4Gi", 2, ("4Gi", "4Gi", "4Gi"), ("4Gi", "4Gi", "4Gi")),
    "the most is hardly more": Growing(
        "4Gi", "10", "4097Mi", 2, ("4Gi", "4097Mi", "4097Mi"), ("4Gi", "4097Mi", "4097Mi")
    ),
    "no failure allowed": Growing("4Gi", "2", "64Gi", 0, ("4Gi",), ("4Gi",)),
}


@dataclass(frozen=True)
class Interrupted:
    """A step on spot nodes that loses one after another."""

    gpu: str
    mode: str
    after: int
    interruptions: int
    site: str

    @property
    def text(self) -> str:
        spot = f"spot: {{mode: {self.mode}, fallback_after: {self.after}}}"
        return f"command: [x], {self.gpu}{spot}, retry: {{interruptions: {self.interruptions}}}"


INTERRUPTED = [
    Interrupted(gpu, mode, after, interruptions, site)
    for gpu in ("", "gpu: l4, ", "gpu: {any_of: [l4, a100-40gb]}, ")
    for mode in ("prefer", "require")
    for after, interruptions in ((1, 1), (2, 5), (3, 3), (4, 3))
    for site in ("gke", "eks-karpenter")
]


def pipeline_of(text: str) -> Pipeline:
    return loads(f"{HEAD}steps: {{a: {{{text}}}}}", "p.yaml")


def pod_after(text: str, before: EarlierAttempts, site: str = "nvidia") -> dict[str, Any]:
    """The spec of the pod that the one maker of later attempts gives."""
    # What is compiled is the meaning, in which maps have an order of their own.
    pipeline, where = meaning_of(pipeline_of(text)), meaning_of(Site.load(site))
    changes = changes_of(made_pod(planned_step(pipeline, "a", where)))
    return changes.spec(pod_for(pipeline, "a", where)["spec"], before)


def memory(spec: dict[str, Any]) -> tuple[str, str]:
    """Request and limit of the step's own container."""
    resources = spec["containers"][0]["resources"]
    return resources["requests"]["memory"], resources["limits"]["memory"]


def scheduling(spec: dict[str, Any]) -> dict[str, Any]:
    """Where a pod may run."""
    return {field: spec[field] for field in ("nodeSelector", "affinity", "tolerations") if spec.get(field)}
