"""Updates that need more room than the first start."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.errors import Finding
from gpuflow.readers.findings.subject import Subject
from gpuflow.readers.kubernetes.parts import Part
from gpuflow.readers.kubernetes.serving import share, surge_of


def surges(subject: Subject) -> Iterator[Finding]:
    """GF773: what runs while an update replaces pods."""
    root = Part(subject.document, (), subject.document.tree)
    if subject.document.group == "apps" and subject.kind == "Deployment":
        spec = root.need("spec")
        count = spec.count("replicas", 1)
        yield from _said(subject, count, surge_of(spec, count), "pods", spec.at("strategy") or spec)
    elif subject.kind == "LeaderWorkerSet":
        spec = root.need("spec")
        count = spec.count("replicas", 1)
        surge = spec.at("rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")
        if surge is not None:
            yield from _said(subject, count, share(surge, count, "0%"), "groups", surge)
    elif subject.kind == "RayService":
        upgrade = root.at("spec", "upgradeStrategy")
        if upgrade is None or upgrade.text("type") != "None":
            yield from _said(subject, 1, 1, "Ray clusters", upgrade or root.need("spec"))


def _said(subject: Subject, count: int, more: int, what: str, at: Part) -> Iterator[Finding]:
    if more:
        yield Finding(
            "GF773",
            f"{subject.title}: the peak is that of the first start, with {count} of its {what}; an update runs up to "
            f"{count + more} at the same time",
            at.key_where,
            "leave room for them"
            + (", or set strategy: {rollingUpdate: {maxSurge: 0}}" if subject.kind == "Deployment" else ""),
            severity="note",
        )
