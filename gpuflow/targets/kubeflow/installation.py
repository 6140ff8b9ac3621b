"""What a KFP installation can be told to do for the pods of all runs, and what pipelines lose where it is not.

KFP's compiled format has no word for a pod's fsGroup. Its API server merges a patch into the workflow of every run
(`COMPILED_PIPELINE_SPEC_PATCH`, a variable with a JSON document, a strategic merge patch of Argo's WorkflowSpec), and
Argo merges `templateDefaults` of a workflow into each of its templates. `securityContext` of the workflow itself does
not do: KFP gives its templates one of their own, and Argo takes that instead. There is one such variable, so all that a
site needs is merged here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.core.emit import emit
from gpuflow.core.errors import Finding, Where, rule
from gpuflow.core.printable import comment
from gpuflow.plan import Plan
from gpuflow.site import Site
from gpuflow.spec.container import Security
from gpuflow.spec.step import Step
from gpuflow.spec.volumes import Volume
from gpuflow.targets.capabilities import Loss, named_steps, refusal
from gpuflow.targets.kubeflow.facts import FACTS
from gpuflow.targets.kubeflow.gangs import own_pods

KEY = "engines.kubeflow.fs_group"
_SET = f"set the group for all runs (gpuflow site kubeflow prints the setting), and {KEY} in the site"


@refusal("GF301", optional=True)
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


@rule("GF396")
def unowned_volumes(plan: Plan) -> Iterator[Finding]:
    """One warning about all claims that a step may not be able to write to, because nobody gives them to its group."""
    found = {each.name: claims for each in own_pods(plan) if (claims := unowned_claims(each.step, plan.site))}
    if found:
        named = tuple(dict.fromkeys(claim for each in found.values() for claim in each))
        yield unowned_warning(tuple(found), named, plan.site, plan.where(next(iter(found))))


def unowned_warning(steps: tuple[str, ...], claims: tuple[str, ...], site: Site, where: Where) -> Finding:
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


VARIABLE = "COMPILED_PIPELINE_SPEC_PATCH"
DEPLOYMENT = "ml-pipeline"
CONTAINER = "ml-pipeline-api-server"
NAMESPACE = "kubeflow"

SITE_HINT = "Then tell gpuflow, in the file of site {name}: engines: {{kubeflow: {{retry: always, fs_group: {group}}}}}"


def spec_patch(site: Site) -> dict[str, Any]:
    """The API server's patch: pods are started again whatever ended them, and volumes belong to the site's group.

    Only pods of steps that ask for it are started again (`retry: always`): Argo merges the defaults into every
    template, the DAGs around a step included. A limit above 0 would repeat those as well, each time all that is in
    them.
    """
    said = site.engine(FACTS.name).fs_group
    group = site.identity.fs_group if said is None else said
    retry = {"limit": "0", "retryPolicy": "Always"}
    return {"templateDefaults": {"retryStrategy": retry, "securityContext": {"fsGroup": group}}}


def patch_text(patch: Mapping[str, Any]) -> str:
    """As it stands in the variable: one line."""
    return json.dumps(patch, separators=(",", ":"), sort_keys=True)


def _deployment(patch: Mapping[str, Any]) -> dict[str, Any]:
    """The Deployment with the variable, as a patch for kustomize."""
    env = [{"name": VARIABLE, "value": patch_text(patch)}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": DEPLOYMENT},
        "spec": {"template": {"spec": {"containers": [{"name": CONTAINER, "env": env}]}}},
    }


def instructions(site: Site, namespace: str) -> str:
    """What to set, where, and how to tell gpuflow that it is set: commands, and comments around them."""
    patch = spec_patch(site)
    now = f"{{.spec.template.spec.containers[*].env[?(@.name=='{VARIABLE}')].value}}"
    engine = site.engine("kubeflow")
    said = engine.retry == "always" and engine.fs_group is not None
    told = "Site {name} says so: engines.kubeflow.retry is always, and fs_group {group}." if said else SITE_HINT
    group = patch["templateDefaults"]["securityContext"]["fsGroup"]
    parts = [
        comment(
            [
                f"A variable of KFP's API server (Deployment {DEPLOYMENT}, container {CONTAINER}):",
                f"{VARIABLE}={patch_text(patch)}",
                "Steps without retry are started as often as before.",
                "",
                "What it holds now; if that is anything, merge the two by hand:",
            ]
        ),
        f'kubectl -n {namespace} get deployment/{DEPLOYMENT} -o jsonpath="{now}"\n',
        comment(["Set it; the API server is started anew, and runs that are made from then on have it:"]),
        f"kubectl -n {namespace} set env deployment/{DEPLOYMENT} -c {CONTAINER} {VARIABLE}='{patch_text(patch)}'\n",
        comment(["The same as a patch for kustomize:", *emit(_deployment(patch)).splitlines()]),
        comment(["", told.format(name=site.name, group=group)]),
    ]
    return "".join(parts)
