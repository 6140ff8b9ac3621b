"""A step's pod as an Argo template: native fields where there are some, a `podSpecPatch` for the rest.

Place: a supervised step finds its checkpoints and budgets by pipeline, run and step. A sub-pipeline that is used twice,
or once per item, has several steps of that name in one run, so each copy is told its own place: the step that it is,
and a digest of its item. Digests need no protection on their way through Argo.

Memoization: two runs of a step are equal when the same containers get the same inputs in the same namespace. What
differs from run to run by itself, the run's id and name, does not count: a cached step gives what the earlier run left,
its locations included. Its dates count: a step that works on one day has no result for another. Argo keeps entries in
a ConfigMap of the controller's namespace, so the namespace of the workflow is part of the key.

Semaphores hold GPU steps back, one for each size: Argo counts holders, not what each of them takes. So a step with four
GPUs holds `gpu-4`, and how many such steps run at once stands in a ConfigMap under that key. The sum over all keys must
stay within what there is; `semaphore_shares` splits it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuflow.core.errors import Where, fail
from gpuflow.plan import Plan, PlannedStep
from gpuflow.pod import Engine
from gpuflow.pod.build import MadePod, made_pod
from gpuflow.pod.later_attempts import falls_back, on_demand_fields
from gpuflow.pod.launcher import launcher_for
from gpuflow.pod.placement import devices_of_step
from gpuflow.pod.volumes import run_claim_volume
from gpuflow.site import Site
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import every_step, reference_type
from gpuflow.spec.step import Step
from gpuflow.spec.step_fields import Approval
from gpuflow.spec.text import ItemRef
from gpuflow.targets.argo import retries
from gpuflow.targets.argo.engine_options import given_by_argo, keeps_token, template_fields
from gpuflow.targets.argo.facts import FACTS
from gpuflow.targets.argo.references import BRACE, BRACE_ENV, PLAIN_TYPES, Inputs, Scope, is_filled_in

PLACE_INPUT = "pipeline--place"
PLACE_TAG = f"{{{{inputs.parameters.{PLACE_INPUT}}}}}"


def place_of(each: PlannedStep, plan: Plan) -> str | None:
    """What a task passes down: its own path to a sub-pipeline, the enclosing path to a step inside one."""
    step, name, nested = each.step, each.own_name, each.parent is not None
    if step.pipeline is None:
        return PLACE_TAG if nested and step.runs_container and each.supervision.keeps_state else None
    if each.name not in plan.with_state:
        return None
    own = name if not step.for_each else f"{name},{_digest(step, nested=nested)}"
    return f"{PLACE_TAG}/{own}" if nested else own


def _digest(step: Step, *, nested: bool) -> str:
    items = step.for_each or {}
    scope = Scope(nested, len(items) == 1)
    texts = (scope.text(ItemRef(key)) for key in items)
    return f"{{{{=sprig.trunc(16, sprig.sha256sum(toJson([{', '.join(texts)}])))}}}}"


def with_place(arguments: dict[str, Any] | None, place: str | None) -> dict[str, Any] | None:
    """A task's arguments with the place added."""
    if place is None:
        return arguments
    given = (arguments or {"parameters": []})["parameters"]
    return {"parameters": [*given, {"name": PLACE_INPUT, "value": place}]}


FIELDS_OF_THE_RESULT = ("container", "initContainers", "sidecars", "volumes", "outputs")
"""What decides about the result. Where it runs, how often it is tried and what it is labeled with does not."""


def memoize(pipeline: str, title: str, template: Mapping[str, Any], inputs: Inputs) -> dict[str, Any]:
    """The template's `memoize`: Argo allows letters, digits and dashes in a key, so values go in as a hash."""
    equal = {**template, "container": retries.without_last_attempt(template["container"])}
    said = json.dumps({field: equal.get(field) for field in FIELDS_OF_THE_RESULT}, sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    values = ", ".join(
        ["workflow.namespace", *(f"inputs.parameters['{name}']" for name in sorted(inputs.used)), *inputs.dates]
    )
    return {
        "key": f"{title}-{digest}-{{{{=sprig.sha256sum(toJson([{values}]))}}}}",
        "cache": {"configMap": {"name": f"gpuflow-cache-{pipeline}"}},
        "maxAge": "",
    }


@dataclass(frozen=True, slots=True)
class Size:
    """So many of one resource, which is what the steps of one semaphore take."""

    resource: str
    count: int

    @property
    def key(self) -> str:
        """`gpu-4` for four of nvidia.com/gpu, `mig-1g.10gb-1` for one slice."""
        return f"{self.resource.rpartition('/')[2]}-{self.count}"


def sizes(step: Step, site: Site) -> list[Size]:
    """What the step takes of each countable device; a gang takes it once for each rank."""
    return [Size(resource, count) for resource, count in sorted(devices_of_step(step, site).items())]


def synchronization(step: Step, site: Site, config_map: str | None) -> dict[str, Any] | None:
    """The template's locks; none without a ConfigMap to count in, and none for a step without GPUs."""
    if config_map is None:
        return None
    held = [{"configMapKeyRef": {"name": config_map, "key": size.key}} for size in sizes(step, site)]
    return {"semaphores": held} if held else None


def semaphore_remark(pipeline: Pipeline, site: Site, config_map: str | None) -> list[str]:
    """For the artifact's header: why its GPU steps wait, and where the numbers stand."""
    keys = [size.key for size in sizes_of([pipeline], site)] if config_map is not None else []
    if not keys:
        return []
    return [
        f"GPU steps wait for a semaphore of their size: ConfigMap {config_map}, keys {', '.join(keys)}.",
        "Argo counts holders and not GPUs, hence one key for each size.",
    ]


def sizes_of(pipelines: Iterable[Pipeline], site: Site) -> list[Size]:
    """Every size that some step of these pipelines has, by resource, large ones first."""
    found = {size for pipeline in pipelines for _, step in every_step(pipeline) for size in sizes(step, site)}
    return sorted(found, key=lambda size: (size.resource, -size.count))


def semaphore_shares(needed: Iterable[Size], available: Mapping[str, int]) -> dict[Size, int]:
    """How many steps of each size may run at once, so that together they never take more than there is.

    Every size gets one holder, then further ones in turn, large sizes first, as long as they fit. A resource that
    `available` does not name keeps one holder for each size.
    """
    limits = dict.fromkeys(needed, 1)
    for resource in dict.fromkeys(size.resource for size in limits):
        own = [size for size in limits if size.resource == resource]
        left = available.get(resource, 0) - sum(size.count for size in own)
        if resource not in available:
            continue
        if left < 0:
            raise fail(
                "GF309",
                f"one step of each size ({', '.join(size.key for size in own)}) takes {available[resource] - left} of "
                f"{resource}, and there are {available[resource]}",
                where=Where("gpuflow argo semaphores"),
                hint="let the steps ask for fewer different sizes, or use Kueue (queue: NAME), which counts GPUs",
            )
        while fitting := [size for size in own if size.count <= left]:
            for size in fitting:
                if size.count <= left:
                    limits[size] += 1
                    left -= size.count
    return limits


def semaphore_config_map(name: str, namespace: str | None, limits: Mapping[Size, int]) -> dict[str, Any]:
    """The ConfigMap that Argo reads the limits from; it stands in the namespace of the workflows."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace is not None else {})
    data = {size.key: str(limit) for size, limit in limits.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


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
    each: PlannedStep, title: str, semaphores: str | None = None, inputs: Inputs | None = None, within: str = ""
) -> tuple[dict[str, Any], Inputs]:
    """The template of a container step, and the inputs its caller must fill. `within`: how it reads its place."""
    inputs = Inputs() if inputs is None else inputs
    step, site, pipeline, keeps_state = each.step, each.site, each.pipeline, each.supervision.keeps_state
    strategy = _retries(each)
    inputs.is_retried = strategy is not None
    engine = replace(ENGINE, within=within)
    if step.gang is None:
        made = made_pod(each, inputs, engine)
        pod, later = made.manifest, later_fields(made)
    else:
        pod, later = launcher_for(each, inputs, engine, is_filled_in, given_by_argo(step, site)), {}
    spec = dict(pod["spec"])
    (main,) = spec.pop("containers")
    init = spec.pop("initContainers", [])
    added = {run_claim_volume(claim) for claim in pipeline.claims}  # by Argo itself, from volumeClaimTemplates
    volumes = [volume for volume in spec.pop("volumes", []) if volume["name"] not in added]
    deadline = spec.pop("activeDeadlineSeconds", None)
    texts = [name for name, ref in inputs.used.items() if reference_type(pipeline, step, ref) not in PLAIN_TYPES]
    received = [*sorted(inputs.used), *([PLACE_INPUT] if within and keeps_state else [])]
    template: dict[str, Any] = {
        "name": title,
        "inputs": {"parameters": [{"name": name} for name in received]} if received else None,
        "outputs": _outputs(step, site),
        "metadata": pod["metadata"],
        "retryStrategy": strategy,
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
    if template["retryStrategy"] is not None and keeps_state and step.gang is None:
        template["container"] = retries.with_last_attempt(template["container"])
    return {key: value for key, value in template.items() if value not in (None, [], {})}, inputs


def _retries(each: PlannedStep) -> dict[str, Any] | None:
    step, known = each.step, each.supervision
    if step.gang is not None:
        return retries.LAUNCHER_RETRIES
    timed = step.timeout is not None and known.is_supervised
    return retries.retry_strategy(step.retry, counted=known.counts_budgets, supervised=known.is_supervised, timed=timed)


def later_fields(made: MadePod) -> dict[str, str]:
    """What the pod of a later attempt has instead, by field of the pod's spec."""
    step, spec = made.planned.step, made.manifest["spec"]
    fields: dict[str, str] = {}
    if falls_back(step):
        assert step.spot is not None and step.spot.fallback_after is not None
        fields |= retries.on_demand(step.spot.fallback_after, spec, on_demand_fields(made))
    return fields | retries.growing_memory(spec["containers"][0].get("resources", {}), step.retry)


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
    return retries.pod_patch({field: value for field, value in rest.items() if field not in SET_BY_ARGO}, later)


def _outputs(step: Step, site: Site) -> dict[str, Any] | None:
    parameters, shown = [], []
    for output_name, output in step.outputs.items():
        # Others read the URI of an artifact; the supervisor writes it beside the file or directory.
        source: dict[str, Any] = {"path": f"{FACTS.outputs_dir}/{output_name}" + (".uri" if output.is_artifact else "")}
        if output.default is not None:
            source["default"] = text_of(output.default)
        parameters.append({"name": output_name, "valueFrom": source})
        if output.is_artifact and site.engine("argo").artifact_repository:
            shown.append(_artifact_record(output_name))
    return {"parameters": parameters, **({"artifacts": shown} if shown else {})} if parameters else None


def _artifact_record(name: str) -> dict[str, Any]:
    """A small file that says where an artifact is, as an artifact of Argo's own, for its user interface.

    The files themselves are kept by the supervisor and not uploaded twice. Where it lies is left to the controller's
    repository, of whatever kind that is, and to its keyFormat; a failed step has no such file.
    """
    from gpuflow.runtime.artifacts.outputs import NOTE  # Ten files, for steps with artifacts alone.

    path = f"{FACTS.outputs_dir}/{name}{NOTE}"
    return {"name": name, "path": path, "archive": {"none": {}}, "optional": True}


def approval_template(approval: Approval, title: str) -> dict[str, Any]:
    """A node that waits until somebody resumes it."""
    return {"name": title, "annotations": {"gpuflow.dev/approval": approval.message}, "suspend": {}}
