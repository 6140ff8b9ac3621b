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
from gpuflow.pod.later_attempts import memory_by_attempt, more_memory_of, on_demand_fields
from gpuflow.quantity import Quantity
from gpuflow.spec.policies import Retry
from gpuflow.targets.argo.retries import OUT_OF_MEMORY


def pod_patch(always: Mapping[str, Any], later: Mapping[str, str]) -> str | None:
    """The patch as JSON text; `later` has texts that Argo turns into JSON, by field."""
    if not later:
        return _json(always) if always else None
    pieces = {field: _json(value) for field, value in always.items()} | dict(later)
    return "{\n" + ",\n".join(f'  "{field}": {pieces[field]}' for field in sorted(pieces)) + "\n}"


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def on_demand(after: int, spot: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, str]:
    """For each scheduling field that differs: as it is for the first attempts, then what leads off spot nodes."""
    found = {}
    for field, value in on_demand_fields(spot, plain).items():
        # A list is replaced as a whole, so it is repeated; in a map nothing changes by an empty patch.
        same = spot[field] if isinstance(spot.get(field), list) else {}
        first, then = _constant(same), _constant(_difference(spot.get(field), value))
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
            f"Argo cannot express {text[:60]!r} in a pod that changes with the attempts",
            hint="write labels and tolerations without {{ and }}, or drop spot.fallback_after",
        )
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def growing_memory(resources: Mapping[str, Any], retry: Retry | None) -> dict[str, str]:
    """The main container's memory by attempt: as written, or after an OOM by the number of attempts so far."""
    policy = more_memory_of(retry)
    if retry is None or policy is None:
        return {}
    grown = {}
    for part in ("limits", "requests"):
        if "memory" in resources.get(part, {}):
            amounts = memory_by_attempt(Quantity(resources[part]["memory"]), policy, retry.after_failures)
            if len(amounts) > 1:
                grown[part] = {"memory": _by_attempt(amounts)}
    return {"containers": _json([{"name": "main", "resources": grown}])} if grown else {}


def _by_attempt(amounts: list[Quantity]) -> str:
    table = ", ".join(f"'{amount}'" for amount in amounts)
    index = f"min(asInt(retries), {len(amounts) - 1})"
    return f"{{{{={OUT_OF_MEMORY} ? [{table}][{index}] : '{amounts[0]}'}}}}"
