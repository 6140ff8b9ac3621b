"""A step's pod as an Argo template: native fields where there are some, a `podSpecPatch` for the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuflow.pod import Engine, pod_for
from gpuflow.pod.later_attempts import falls_back, off_spot
from gpuflow.pod.launcher import launcher_for
from gpuflow.pod.restarts import counts_budgets
from gpuflow.pod.supervision import is_supervised, keeps_state
from gpuflow.pod.volumes import run_claim_volume
from gpuflow.runtime.outputs import NOTE
from gpuflow.site import Site
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.types import reference_type
from gpuflow.targets.argo.caching import memoize
from gpuflow.targets.argo.defaults import given_by_argo, keeps_token
from gpuflow.targets.argo.facts import FACTS
from gpuflow.targets.argo.last_attempt import with_last_attempt
from gpuflow.targets.argo.own_words import template_fields
from gpuflow.targets.argo.patches import growing_memory, on_demand, pod_patch
from gpuflow.targets.argo.places import PLACE
from gpuflow.targets.argo.retries import LAUNCHER_RETRIES, retry_strategy
from gpuflow.targets.argo.semaphores import synchronization
from gpuflow.targets.argo.spelling import BRACE, BRACE_ENV, PLAIN_TYPES, Inputs, is_filled_in

ENGINE = Engine(FACTS.supervisor, FACTS.outputs_dir)
NATIVE = (
    "affinity",
    "nodeSelector",
    "priorityClassName",
    "schedulerName",
    "securityContext",
    "serviceAccountName",
    "tolerations",
)
"""Fields that stand in a template as they stand in a pod."""
TOKEN = "automountServiceAccountToken"
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
SET_BY_ARGO = ("restartPolicy",)
"""All other fields of a pod stand in `podSpecPatch`, which Argo merges into the pod."""


def step_template(
    pipeline: Pipeline,
    name: str,
    title: str,
    site: Site,
    semaphores: str | None = None,
    inputs: Inputs | None = None,
    within: str = "",
) -> tuple[dict[str, Any], Inputs]:
    """The template of a container step, and the inputs its caller must fill. `within`: how it reads its place."""
    inputs = Inputs() if inputs is None else inputs
    step = pipeline.effective(name)
    retries = _retries(step, site)
    inputs.is_retried = retries is not None
    engine = replace(ENGINE, within=within)
    if step.gang is None:
        pod = pod_for(pipeline, name, site, inputs, engine)
        later = later_fields(pipeline, name, site, pod["spec"])
    else:
        pod, later = launcher_for(pipeline, name, site, inputs, engine, is_filled_in, given_by_argo(step, site)), {}
    spec = dict(pod["spec"])
    (main,) = spec.pop("containers")
    init = spec.pop("initContainers", [])
    volumes = [volume for volume in spec.pop("volumes", []) if not _is_run_claim(volume, pipeline)]
    deadline = spec.pop("activeDeadlineSeconds", None)
    texts = [name for name, ref in inputs.used.items() if reference_type(pipeline, step, ref) not in PLAIN_TYPES]
    received = [*sorted(inputs.used), *([PLACE] if within and keeps_state(step, site) else [])]
    template: dict[str, Any] = {
        "name": title,
        "inputs": {"parameters": [{"name": name} for name in received]} if received else None,
        "outputs": _outputs(step, site),
        "metadata": pod["metadata"],
        "retryStrategy": retries,
        "activeDeadlineSeconds": deadline,
        **{field: spec.pop(field) for field in NATIVE if field in spec},
        "automountServiceAccountToken": spec.pop(TOKEN, True if keeps_token(step, site) else None),
        "initContainers": [_with_brace(container, texts) for container in init if not _runs_beside(container)],
        "sidecars": [
            _with_brace({key: value for key, value in container.items() if key != "restartPolicy"}, texts)
            for container in init
            if _runs_beside(container)
        ],
        "container": _with_brace({key: value for key, value in main.items() if key != "name"}, texts),
        "volumes": volumes,
        "podSpecPatch": _patch(spec, later),
        "synchronization": synchronization(step, site, semaphores),
        **template_fields(step),
    }
    if step.cache:
        template["memoize"] = memoize(pipeline.name, title, template, inputs)
    if template["retryStrategy"] is not None and keeps_state(step, site) and step.gang is None:
        template["container"] = with_last_attempt(template["container"])
    return {key: value for key, value in template.items() if value not in (None, [], {})}, inputs


def _retries(step: Step, site: Site) -> dict[str, Any] | None:
    if step.gang is not None:
        return LAUNCHER_RETRIES
    return retry_strategy(
        step.retry,
        counted=counts_budgets(step, site),
        supervised=is_supervised(step, site),
        timed=step.timeout is not None and is_supervised(step, site),
    )


def later_fields(pipeline: Pipeline, name: str, site: Site, spec: dict[str, Any]) -> dict[str, str]:
    """What the pod of a later attempt has instead, by field of the pod's spec."""
    step = pipeline.effective(name)
    fields: dict[str, str] = {}
    if falls_back(step):
        assert step.spot is not None and step.spot.fallback_after is not None
        plain = pod_for(off_spot(pipeline, name), name, site, Inputs(), ENGINE)["spec"]
        fields |= on_demand(step.spot.fallback_after, spec, plain)
    return fields | growing_memory(spec["containers"][0].get("resources", {}), step.retry)


def _runs_beside(container: dict[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


def _with_brace(container: dict[str, Any], texts: list[str]) -> dict[str, Any]:
    """The container with the variable that hidden braces are made of, where its text may need it."""
    words = [*container.get("command", []), *container.get("args", [])]
    words += [entry.get("value", "") for entry in container.get("env", [])]
    for handler in (*map(container.get, PROBES), *container.get("lifecycle", {}).values()):
        if isinstance(handler, dict):
            words += handler.get("exec", {}).get("command", [])
    needles = [f"$({BRACE})", *(f"{{{{inputs.parameters.{name}}}}}" for name in texts)]
    if not any(needle in word for word in words for needle in needles):
        return container
    return {**container, "env": [BRACE_ENV, *container.get("env", [])]}


def _patch(rest: dict[str, Any], later: dict[str, str]) -> str | None:
    return pod_patch({field: value for field, value in rest.items() if field not in SET_BY_ARGO}, later)


def _is_run_claim(volume: dict[str, Any], pipeline: Pipeline) -> bool:
    """Argo adds the volumes of volumeClaimTemplates by itself."""
    return any(volume["name"] == run_claim_volume(claim) for claim in pipeline.claims)


def _outputs(step: Step, site: Site) -> dict[str, Any] | None:
    parameters, shown = [], []
    for output_name, output in step.outputs.items():
        # Others read the URI of an artifact; the supervisor writes it beside the file or directory.
        source: dict[str, Any] = {"path": f"{FACTS.outputs_dir}/{output_name}" + (".uri" if output.is_artifact else "")}
        if output.default is not None:
            source["default"] = text_of(output.default)
        parameters.append({"name": output_name, "valueFrom": source})
        if output.is_artifact and site.engine("argo").artifact_repository:
            shown.append(_shown(output_name))
    return {"parameters": parameters, **({"artifacts": shown} if shown else {})} if parameters else None


def _shown(name: str) -> dict[str, Any]:
    """A small file that says where an artifact is, as an artifact of Argo's own, for its user interface.

    The files themselves are kept by the supervisor and not uploaded twice. Where it lies is left to the controller's
    repository, of whatever kind that is, and to its keyFormat; a failed step has no such file.
    """
    path = f"{FACTS.outputs_dir}/{name}{NOTE}"
    return {"name": name, "path": path, "archive": {"none": {}}, "optional": True}


def approval_template(pipeline: Pipeline, name: str, title: str) -> dict[str, Any]:
    """A node that waits until somebody resumes it."""
    step = pipeline.effective(name)
    assert step.approval is not None
    return {"name": title, "annotations": {"gpuflow.dev/approval": step.approval.message}, "suspend": {}}
