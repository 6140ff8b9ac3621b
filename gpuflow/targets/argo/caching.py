"""Outputs of earlier equal runs, by Argo's memoization.

Two runs of a step are equal when the same containers get the same inputs in the same namespace. What differs from run
to run by itself, the run's id and name, does not count: a cached step gives what the earlier run left, its locations
included. Its dates count: a step that works on one day has no result for another.
Argo keeps entries in a ConfigMap of the controller's namespace, so the namespace of the workflow is part of the key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from gpuflow.targets.argo.last_attempt import without_last_attempt
from gpuflow.targets.argo.spelling import Inputs

FIELDS = ("container", "initContainers", "sidecars", "volumes", "outputs")
"""What decides about the result. Where it runs, how often it is tried and what it is labeled with does not."""


def memoize(pipeline: str, title: str, template: Mapping[str, Any], inputs: Inputs) -> dict[str, Any]:
    """The template's `memoize`: Argo allows letters, digits and dashes in a key, so values go in as a hash."""
    equal = {**template, "container": without_last_attempt(template["container"])}
    said = json.dumps({field: equal.get(field) for field in FIELDS}, sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    values = ", ".join(
        ["workflow.namespace", *(f"inputs.parameters['{name}']" for name in sorted(inputs.used)), *inputs.dates]
    )
    return {
        "key": f"{title}-{digest}-{{{{=sprig.sha256sum(toJson([{values}]))}}}}",
        "cache": {"configMap": {"name": f"gpuflow-cache-{pipeline}"}},
        "maxAge": "",
    }
