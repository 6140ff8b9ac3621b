"""What a KFP installation can be told to do for the pods of all runs, and what pipelines lose where it is not.

KFP's compiled format has no word for a pod's fsGroup. Its API server merges a patch into the workflow of every run
(`COMPILED_PIPELINE_SPEC_PATCH`), and Argo merges `templateDefaults` of a workflow into each of its templates.
`securityContext` of the workflow itself does not do: KFP gives its templates one of their own, and Argo takes that
instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuflow.errors import Finding, Where
from gpuflow.plan import Plan
from gpuflow.site import Site
from gpuflow.spec.container import Security
from gpuflow.spec.step import Step
from gpuflow.spec.volumes import Volume
from gpuflow.targets.kubeflow.facts import FACTS
from gpuflow.targets.kubeflow.gangs import own_pods
from gpuflow.targets.losses import Loss, named_steps

KEY = "engines.kubeflow.fs_group"
_SET = f"set the group for all runs (gpuflow site kubeflow prints the setting), and {KEY} in the site"


def fs_group_patch(site: Site) -> dict[str, Any]:
    """The part of the API server's patch that gives the volumes of every pod to a group: the site's."""
    said = site.engine(FACTS.name).fs_group
    return {"templateDefaults": {"securityContext": {"fsGroup": site.identity.fs_group if said is None else said}}}


def fs_group_losses(plan: Plan) -> Iterator[Loss]:
    """Steps that name a group other than the installation's."""
    given = plan.site.engine(FACTS.name).fs_group
    for each in own_pods(plan):
        wanted = each.step.security.fs_group if each.step.security is not None else None
        if wanted is not None and wanted != given:
            has = "gives none" if given is None else f"gives {given} to all pods"
            yield Loss(
                f'kubeflow: step "{each.name}": KFP sets user and group of the container, but no fs_group, and '
                f"the installation {has}",
                each.where("security", "fs_group"),
                f"{_SET}: {wanted}; or let the volume's owner make it writable for the step's group",
            )


def unowned_volumes(plan: Plan) -> Iterator[Finding]:
    """One warning about all claims that a step may not be able to write to, because nobody gives them to its group."""
    found = {each.name: claims for each in own_pods(plan) if (claims := unowned_claims(each.step, plan.site))}
    if found:
        named = tuple(dict.fromkeys(claim for each in found.values() for claim in each))
        yield unowned(tuple(found), named, plan.site, plan.where(next(iter(found))))


def unowned(steps: tuple[str, ...], claims: tuple[str, ...], site: Site, where: Where) -> Finding:
    """The warning about some steps and their claims."""
    more = f" and {len(claims) - 4} more" if len(claims) > 4 else ""
    shown = ", ".join(f'"{claim}"' for claim in claims[:4]) + more
    return Finding(
        "GF396",
        f"{named_steps(steps)} {'mounts' if len(steps) == 1 else 'mount'} {shown} without being root, and KFP sets no "
        "fsGroup: a new volume, which belongs to root, cannot be written to",
        where,
        f"{_SET}: {site.identity.fs_group}; or prepare the volumes, and silence: [GF396]",
        "warning",
    )


def unowned_claims(step: Step, site: Site) -> list[str]:
    """The claims that a step writes to as a user who is not root, where the installation does not set its group."""
    security = step.security or Security()
    wanted = site.identity.fs_group if security.fs_group is None else security.fs_group
    if security.run_as_root or security.fs_group is not None or wanted == site.engine(FACTS.name).fs_group:
        return []  # a group that the step names is refused where it is not given
    return [name for path, volume in step.volumes.items() if (name := _claim(path, volume))]


def _claim(path: str, volume: Volume) -> str | None:
    if volume.read_only:
        return None
    return volume.claim or volume.new_claim or (path if volume.ephemeral is not None else None)
