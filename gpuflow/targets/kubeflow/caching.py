"""Results of earlier equal runs, by KFP's cache.

KFP's key holds the image, the command, the values of inputs, the names and types of outputs and the names of claims
(`cacheutils.GenerateCacheKey`). It does not hold variables, Secrets, ConfigMaps and mounts: a step whose `env` was
changed would get its old result. So a cached step has one more input, a hash of them. What differs from run to run by
itself must not be an input: the supervisor reads the run's id from the pod.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from gpuflow.errors import Finding
from gpuflow.plan import Plan, PlannedStep
from gpuflow.pod.supervision import RUN_ID, TASK
from gpuflow.spec.step import Step
from gpuflow.spec.text import RunRef
from gpuflow.targets.kubeflow.command import PLACEHOLDER
from gpuflow.targets.kubeflow.own_words import task_words
from gpuflow.targets.losses import named_steps

_OF_THE_RUN = (RUN_ID, TASK)


def cached_settings(step: Step, pod: dict[str, Any]) -> str | None:
    """A hash of what decides about the result and is not in KFP's key; None where there is nothing, or no cache."""
    if not step.cache or task_words(step).cache_key:
        return None
    spec, main = pod["spec"], pod["spec"]["containers"][0]
    said = {
        "env": sorted((entry for entry in main.get("env", []) if _counts(entry)), key=lambda entry: str(entry["name"])),
        "volumeMounts": main.get("volumeMounts", []),
        "volumes": spec.get("volumes", []),
        "initContainers": spec.get("initContainers", []),
    }
    if not any(said.values()):
        return None
    return hashlib.sha256(json.dumps(said, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


def _counts(entry: dict[str, Any]) -> bool:
    """Whether a variable is part of the hash: those with references stand in the command, and are in the key."""
    return entry["name"] not in _OF_THE_RUN and PLACEHOLDER not in entry.get("value", "")


def never_cached(plan: Plan) -> Iterator[Finding]:
    """One note about all steps that ask for a cached result and can never get one."""
    found = {each.name: why for each in plan.containers for why in (_never(each),) if why}
    if found:
        whys = "; ".join(dict.fromkeys(found.values()))
        yield Finding(
            "GF395",
            f"{named_steps(tuple(found))}: cache: true, and no run finds the result of another, because {whys}",
            plan.where(next(iter(found))),
            "leave it out of the step, or drop cache: true; or name the results that count as equal: "
            "engines: {kubeflow: {cache_key: …}}",
            "note",
        )


def _never(each: PlannedStep) -> str | None:
    step = each.step
    if not step.cache or task_words(step).cache_key:
        return None
    for _, ref in step.references():
        if isinstance(ref, RunRef):
            return f"{{run: {ref.field}}} differs from run to run and is part of KFP's key"
    for volume in step.volumes.values():
        if volume.new_claim is not None:
            return f'the claim "{volume.new_claim}" is made anew for each run, and its name is part of KFP\'s key'
    return None
