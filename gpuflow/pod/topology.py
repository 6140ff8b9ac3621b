"""Pods that must be near each other: which label that is on a site, and who is asked, Kueue or the scheduler."""

from __future__ import annotations

from gpuflow.errors import fail
from gpuflow.runtime.gang_kinds import WORDS
from gpuflow.site import Site
from gpuflow.spec.step import Step

REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"
GROUP_NAME = "kueue.x-k8s.io/podset-group-name"
GROUP = "gang"
"""The leader of a gang and its workers are two pod sets of one workload, and go to one place by this name."""


def asks_kueue(step: Step, site: Site) -> bool:
    """Whether Kueue places the step's pods together: only those of a gang are one workload, and not in every queue."""
    if not WORDS[site.gangs.made_as].in_kueue:
        return False
    together = step.gang is not None and step.topology is not None and step.topology.same is not None
    return together and (step.queue or site.queue) in site.topology.queues


def topology_label(level: str, site: Site) -> str:
    """The label of nodes that says in which rack, block or zone they are."""
    key: str | None = getattr(site.topology, level)
    if key is None:
        raise fail(
            "GF228",
            f'site "{site.name}" does not say which label is a {level}',
            hint=f"set topology.{level} in the site",
        )
    return key


def topology_annotations(step: Step, site: Site) -> dict[str, str]:
    """What the pods say to Kueue; nothing where the scheduler is asked."""
    if not asks_kueue(step, site):
        return {}
    assert step.topology is not None and step.topology.same is not None and step.gang is not None
    asked = {REQUIRED_TOPOLOGY: topology_label(step.topology.same, site)}
    return {**asked, GROUP_NAME: GROUP} if step.gang.leader is not None else asked
