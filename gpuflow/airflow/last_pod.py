"""What the operator saw of a step's last pod, handed to the supervisor in the next one.

The supervisor dies with its container when the kernel kills all of it, and when a node is lost; then it leaves no word,
and only the operator knows the cause. It is told as data. Text that the program wrote is no part of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuflow.kubernetes.expansion import escaped

if TYPE_CHECKING:
    from gpuflow.airflow.ledger import Ledger
    from gpuflow.runtime.evidence import Evidence

LAST = "GPUFLOW_RUN_LAST"
ENGINE_ATTEMPT = "GPUFLOW_RUN_ENGINE_ATTEMPT"
AFTER_FINAL = "GPUFLOW_RUN_AFTER_FINAL"
LONGEST = 500
"""Letters of one text. What Kubernetes says begins with what matters."""
MOST_CONDITIONS = 20


def account(number: int, seen: Evidence, pod: Mapping[str, Any] | None) -> dict[str, Any]:
    """The judged evidence of pod `number`, small enough for a variable and an annotation."""
    # The pod's own message, not all that the evidence has: a container's message is the program's text.
    message = ((pod or {}).get("status") or {}).get("message")
    told = {
        "attempt": number,
        "by": "airflow",
        "phase": seen.phase,
        "reason": seen.reason,
        "message": message,
        "exit_code": seen.exit_code,
        "container_reason": seen.container_reason,
        "conditions": [str(condition)[:LONGEST] for condition in seen.conditions[:MOST_CONDITIONS]],
        "deleted": seen.deleted,
    }
    cut = {key: value[:LONGEST] if isinstance(value, str) else value for key, value in told.items()}
    return {key: value for key, value in cut.items() if value not in (None, [], False)}


def told(spec: Mapping[str, Any], ledger: Ledger) -> dict[str, Any]:
    """A pod's spec whose main container knows its number, and what was seen of the pod before."""
    main = spec["containers"][0]
    variables = {ENGINE_ATTEMPT: str(ledger.pods + 1)}
    if ledger.last is not None:
        variables[LAST] = json.dumps(ledger.last, sort_keys=True)
    if ledger.is_new:
        # The supervisor's own count ended the step for good, and then somebody cleared the task: both begin anew.
        variables[AFTER_FINAL] = "renew"
    own = [one for one in main.get("env") or () if one.get("name") not in variables]
    # Kubernetes expands $(NAME) in variables as well.
    more = [{"name": name, "value": escaped(value)} for name, value in variables.items()]
    return {**spec, "containers": [{**main, "env": [*own, *more]}, *spec["containers"][1:]]}
