"""What a site asks of its Kubeflow installation, as one setting of KFP's API server.

`COMPILED_PIPELINE_SPEC_PATCH` is a variable of the API server with a JSON document that is merged into the spec of
every run (a strategic merge patch of Argo's WorkflowSpec). There is one such variable, so all that a site needs is
merged here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuflow.emit import emit
from gpuflow.printable import comment
from gpuflow.site import Site
from gpuflow.targets.kubeflow.installation import fs_group_patch

VARIABLE = "COMPILED_PIPELINE_SPEC_PATCH"
DEPLOYMENT = "ml-pipeline"
CONTAINER = "ml-pipeline-api-server"
NAMESPACE = "kubeflow"

UNSAID = "Then tell gpuflow, in the file of site {name}: engines: {{kubeflow: {{retry: always, fs_group: {group}}}}}"

Part = Callable[[Site], Mapping[str, Any]]


def retry_part(site: Site) -> Mapping[str, Any]:
    """Pods are started again whatever ended them, and only those of steps that ask for it: `retry: always`.

    Argo merges the defaults into every template, the DAGs around a step included. A limit above 0 would repeat those as
    well, each time all that is in them.
    """
    return {"templateDefaults": {"retryStrategy": {"limit": "0", "retryPolicy": "Always"}}}


PARTS: tuple[Part, ...] = (retry_part, fs_group_patch)
"""What gpuflow may need of an installation, one function each."""


def spec_patch(site: Site, parts: Iterable[Part] = PARTS) -> dict[str, Any]:
    """The patch for all of it."""
    patch: dict[str, Any] = {}
    for part in parts:
        patch = merged(patch, part(site))
    return patch


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Both documents in one. Two that say different things about one field are a fault of ours."""
    result = dict(one)
    for key, value in other.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            result[key] = merged(before, value)
        else:
            assert before is None or before == value, f"two parts of the patch set {key}"
            result[key] = value
    return result


def patch_text(patch: Mapping[str, Any]) -> str:
    """As it stands in the variable: one line."""
    return json.dumps(patch, separators=(",", ":"), sort_keys=True)


def kubectl_line(patch: Mapping[str, Any], namespace: str) -> str:
    """The command that sets it; the API server is started anew by it."""
    return f"kubectl -n {namespace} set env deployment/{DEPLOYMENT} -c {CONTAINER} {VARIABLE}='{patch_text(patch)}'"


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
    told = "Site {name} says so: engines.kubeflow.retry is always, and fs_group {group}." if said else UNSAID
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
        kubectl_line(patch, namespace) + "\n",
        comment(["The same as a patch for kustomize:", *emit(_deployment(patch)).splitlines()]),
        comment(["", told.format(name=site.name, group=group)]),
    ]
    return "".join(parts)
