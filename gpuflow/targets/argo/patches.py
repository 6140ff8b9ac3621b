"""The `podSpecPatch` of a template: what a template has no field for, and what later attempts get instead.

Argo evaluates the patch anew for every attempt, with the number of retries so far and the end of the last attempt in
reach. So one text says both: a plain value for every attempt, or an expression that gives the value of this one. The
template's own fields describe the first attempt, and a reader who stops there has read no untruth.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuflow.errors import fail
from gpuflow.quantity import Quantity
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.policies import MoreMemory, Retry, Spot
from gpuflow.spec.step import Step
from gpuflow.targets.argo.retries import OUT_OF_MEMORY

SCHEDULING = ("nodeSelector", "affinity", "tolerations")
"""What decides between spot and on-demand."""


def pod_patch(always: Mapping[str, Any], later: Mapping[str, str]) -> str | None:
    """The patch as JSON text; `later` has texts that Argo turns into JSON, by field."""
    if not later:
        return _json(always) if always else None
    pieces = {field: _json(value) for field, value in always.items()} | dict(later)
    return "{\n" + ",\n".join(f'  "{field}": {pieces[field]}' for field in sorted(pieces)) + "\n}"


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def without_spot(pipeline: Pipeline, name: str) -> Pipeline:
    """The same pipeline with one step kept off spot nodes."""
    section = "steps" if name in pipeline.steps else "exit"
    steps = dict(getattr(pipeline, section))
    steps[name] = steps[name].model_copy(update={"spot": Spot(mode="never")})
    return pipeline.model_copy(update={section: steps})


def falls_back(step: Step) -> bool:
    """Whether the step's budgets allow so many attempts that it leaves spot nodes."""
    return bool(step.spot and step.spot.fallback_after and attempts(step.retry) >= step.spot.fallback_after)


def attempts(retry: Retry | None) -> int:
    """How often a step may be tried again."""
    return retry.failures + retry.interruptions if retry is not None else 0


def on_demand(after: int, spot: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, str]:
    """For each scheduling field that differs: as it is for the first attempts, then what leads off spot nodes."""
    found = {}
    for field in SCHEDULING:
        if spot.get(field) != plain.get(field):
            # A list is replaced as a whole, so it is repeated; in a map nothing changes by an empty patch.
            same = spot[field] if isinstance(spot.get(field), list) else {}
            first, then = _constant(same), _constant(_difference(spot.get(field), plain.get(field)))
            found[field] = f"{{{{=asInt(retries) < {after} ? {first} : {then}}}}}"
    return found


def _difference(old: Any, new: Any) -> Any:
    """What to merge into `old` to get `new`; None takes away. Lists are replaced: none of these is merged by a key."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [] if new is None and isinstance(old, list) else new
    changed = {key: _difference(old.get(key), value) for key, value in new.items() if old.get(key) != value}
    return changed | {key: None for key in old if key not in new}


def _constant(value: Any) -> str:
    """JSON as a text of Argo's expression language; `}}` would end the tag, so a space stands between."""
    text = _json(value).replace("}}", "} }").replace("}}", "} }")
    if json.loads(text) != value or "{{" in text:
        raise fail(
            "GF306",
            f"Argo cannot carry {text[:60]!r} in a pod that changes with the attempts",
            hint="write labels and tolerations without {{ and }}, or drop spot.fallback_after",
        )
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def growing_memory(resources: Mapping[str, Any], retry: Retry | None) -> dict[str, str]:
    """The main container's memory by attempt: as written, or after an OOM by the number of attempts so far."""
    if retry is None or retry.more_memory is None:
        return {}
    grown = {}
    for part in ("limits", "requests"):
        if "memory" in resources.get(part, {}):
            amounts = memory_amounts(Quantity(resources[part]["memory"]), retry.more_memory, retry.failures)
            if len(amounts) > 1:
                grown[part] = {"memory": _by_attempt(amounts)}
    return {"containers": _json([{"name": "main", "resources": grown}])} if grown else {}


def memory_amounts(base: Quantity, policy: MoreMemory, failures: int) -> list[Quantity]:
    """What each attempt after running out of memory may ask for: every OOM is a failure, so there are no more steps."""
    most, mebi = max(base, policy.max), 2**20
    amounts = [base]
    while len(amounts) <= failures and amounts[-1] < most:
        grown = base.value * policy.factor ** len(amounts)
        amounts.append(min(Quantity(f"{-int(-grown // mebi)}Mi"), most))
    return amounts


def _by_attempt(amounts: list[Quantity]) -> str:
    table = ", ".join(f"'{amount}'" for amount in amounts)
    index = f"min(asInt(retries), {len(amounts) - 1})"
    return f"{{{{={OUT_OF_MEMORY} ? [{table}][{index}] : '{amounts[0]}'}}}}"
