"""The two retry budgets in a `retryStrategy`, and what later attempts are and know: `podSpecPatch` and variables.

Argo's expression sees the number of retries so far and the last attempt, never a count per class. A step whose budgets
the supervisor counts says when it is over by the final exit code, so Argo retries everything else. A plain number of
retries needs no expression, unless a supervisor may say that no further attempt can help. For any other step one flat
expression stands in: interruptions eat into what is left for failures, never the other way round.

`lastRetry.message` is the pod's own message if it has one, which only the kubelet writes. Otherwise Argo begins it with
`main: <reason> (exit code N)`, and the program's termination message follows (inferFailedReason in operator.go, 4.0.2).
So a cause is looked for at the start of the message, where no program can write.

The `podSpecPatch` of a template says what a template has no field for, and what later attempts get instead. Argo
evaluates it anew for every attempt, with the number of retries so far and the end of the last attempt in reach. So one
text says both: a plain value for every attempt, or an expression that gives the value of this one. The template's own
fields describe the first attempt.

The supervisor of the next attempt gets what Argo knows of the attempt before. Argo puts `retries` and `lastRetry.*`
into the whole template of an attempt (executeTemplate in operator.go, 4.0.2), so a variable of the container can hold
them. The message may be any text, the program's own included: it travels as JSON, in which `{{` and `$` are written as
escapes, for Argo replaces tags again afterwards and the kubelet expands `$(NAME)`. While a new attempt waits for quota,
Argo's `lastRetry` speaks of that attempt itself, which is `Pending`. Then nothing is handed over, as on the first
attempt, and the supervisor goes by what it finds in its store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuflow.core.errors import fail
from gpuflow.pod.later_attempts import memory_by_attempt
from gpuflow.quantity import Quantity
from gpuflow.runtime.base.outcomes import EXIT_FINAL as FINAL
from gpuflow.runtime.base.outcomes import EXIT_TIMED_OUT
from gpuflow.spec.policies import Backoff, Retry

CODE = "asInt(lastRetry.exitCode)"

OUT_OF_MEMORY = "lastRetry.message startsWith 'main: OOMKilled '"
"""The kernel ended the program, or with it the whole container."""
_OWN_FAULT_MESSAGES = (
    "main: OOMKilled ",
    "Pod was active on the node longer",
    "Usage of EmptyDir volume",
    "Pod ephemeral local storage usage",
    "Container [^ ]+ exceeded its local",
    "wait: Error .exit code 64",
)
"""Memory, deadline, disk limits, a missing output: failures, whatever exit code the program gave on SIGTERM."""
NODE_LOSS_MESSAGES = (
    "The node (was low|had condition)",
    "Pod was (terminated in response to imminent node shutdown|rejected as the node is shutting down)",
    "Preempted in order to admit critical pod",
    "main: ContainerStatusUnknown ",
    "pod failed: neither main nor wait",
)
"""The node's pressure, shutdown or loss: interruptions, whatever the exit code."""


def _begins(*words: str) -> str:
    return f"lastRetry.message matches '^({'|'.join(words)})'"


IS_OWN_FAULT = _begins(*_OWN_FAULT_MESSAGES)
IS_STOPPED = f"(lastRetry.status == 'Error' || {CODE} in [75, 143] || {_begins(*NODE_LOSS_MESSAGES)})"
"""A deleted pod is an Error without an exit code, or ends with 143; 75 is the supervisor's own word for it."""
IS_INTERRUPTED = f"!({IS_OWN_FAULT}) && {IS_STOPPED}"

LAUNCHER_RETRIES: dict[str, Any] = {"limit": "100", "retryPolicy": "Always", "expression": IS_INTERRUPTED}
"""Of the pod that looks after a gang: one that was taken away finds its gang again. The budgets are its own matter."""


def retry_strategy(
    retry: Retry | None, *, counted: bool, supervised: bool = False, timed: bool = False
) -> dict[str, Any] | None:
    """The template's retryStrategy.

    `supervised`: there is a supervisor; `counted`: it keeps the budgets; `timed`: it keeps a timeout.
    """
    if retry is None or not retry.attempts:
        return None
    strategy: dict[str, Any] = {"limit": str(most_retries(retry, counted=counted)), "retryPolicy": "Always"}
    expression = f"{CODE} != {FINAL}" if counted else _flat(_with_timeout(retry) if timed else retry, supervised)
    if expression is not None:
        strategy["expression"] = expression
    if retry.backoff is not None:
        strategy["backoff"] = _backoff(retry.backoff)
    if retry.other_node:
        strategy["affinity"] = {"nodeAntiAffinity": {}}
    return strategy


def most_retries(retry: Retry | None, *, counted: bool) -> int:
    """Argo's `limit`. Where the supervisor counts, one more than both budgets: for a last look.

    The pod of the last attempt may go after its program has ended well, before Argo has seen that. The next one finds
    the success marker and ends with 0, or finds the budgets spent and ends with 79; its program never starts. None for
    `other_node`: Argo would want one node more, and the pod might wait for it for ever.
    """
    if retry is None or not retry.attempts:
        return 0
    return retry.attempts + (1 if counted and not retry.other_node else 0)


def _with_timeout(retry: Retry) -> Retry:
    """The same policy where the supervisor's own exit code for a timeout is a failure like any other."""
    listed = retry.retryable_exit_codes
    return retry.model_copy(
        update={
            "final_exit_codes": tuple(code for code in retry.final_exit_codes if code != EXIT_TIMED_OUT),
            "retryable_exit_codes": None if listed is None else (*listed, EXIT_TIMED_OUT),
        }
    )


def _flat(retry: Retry, supervised: bool) -> str | None:
    """When to try again; None: always."""
    if retry.any is not None:
        return _single_budget(retry, supervised)
    may_fail = _may_fail(retry)
    if not retry.interruptions:
        return f"({IS_OWN_FAULT} || !{IS_STOPPED}) && {may_fail}"
    if not retry.failures:
        return IS_INTERRUPTED
    return f"({IS_INTERRUPTED}) || ({may_fail} && asInt(retries) < {retry.failures})"


def _single_budget(retry: Retry, supervised: bool) -> str | None:
    """One count for everything: only exit codes that the program chose itself, or its supervisor, can be final."""
    not_its_own = _begins(*_OWN_FAULT_MESSAGES, *NODE_LOSS_MESSAGES)
    if retry.retryable_exit_codes is not None:
        codes = _code_list(75, 143, *retry.retryable_exit_codes)
        return f"lastRetry.status == 'Error' || {CODE} in {codes} || {not_its_own}"
    if retry.final_exit_codes:
        final = _code_list(*retry.final_exit_codes, *([FINAL] if supervised else []))
        return f"!({CODE} in {final}) || {not_its_own}"
    return f"{CODE} != {FINAL}" if supervised else None


def _may_fail(retry: Retry) -> str:
    """Whether a failure allows another try: a step's own lists say nothing about what Kubernetes ended."""
    allowed = f"{CODE} != {FINAL}"
    if retry.retryable_exit_codes is not None:
        return f"{allowed} && ({CODE} in {_code_list(*retry.retryable_exit_codes)} || {IS_OWN_FAULT})"
    if retry.final_exit_codes:
        return f"{allowed} && (!({CODE} in {_code_list(*retry.final_exit_codes)}) || {IS_OWN_FAULT})"
    return allowed


def _code_list(*codes: int) -> str:
    return f"[{', '.join(map(str, dict.fromkeys(codes)))}]"


def _backoff(backoff: Backoff) -> dict[str, Any]:
    """No maxDuration: it counts from the first attempt's start and would end long trainings."""
    result: dict[str, Any] = {"duration": f"{backoff.start.seconds}s", "factor": str(backoff.factor)}
    if backoff.max is not None:
        result["cap"] = f"{backoff.max.seconds}s"
    return result


def pod_patch(always: Mapping[str, Any], later: Mapping[str, str]) -> str | None:
    """The patch as JSON text; `later` has texts that Argo turns into JSON, by field."""
    if not later:
        return _json(always) if always else None
    pieces = {field: _json(value) for field, value in always.items()} | dict(later)
    return "{\n" + ",\n".join(f'  "{field}": {pieces[field]}' for field in sorted(pieces)) + "\n}"


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def on_demand(after: int, spot: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, str]:
    """For each scheduling field that differs, as `plain` has it: what it is at first, then what leads off spot."""
    found = {}
    for field, value in plain.items():
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
        message = f"Argo cannot express {text[:60]!r} in a pod that changes with the attempts"
        raise fail("GF306", message, hint="write labels and tolerations without {{ and }}, or drop spot.fallback_after")
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def growing_memory(resources: Mapping[str, Any], retry: Retry | None) -> dict[str, str]:
    """The main container's memory by attempt: as written, or after an OOM by the number of attempts so far."""
    if retry is None or (policy := retry.more_memory) is None:
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


LAST = "GPUFLOW_RUN_LAST"
ATTEMPT = "GPUFLOW_RUN_ENGINE_ATTEMPT"
_FACTS = (
    "{'attempt': asInt(retries) - 1, 'by': 'argo', 'phase': lastRetry.status, 'exit_code': lastRetry.exitCode, "
    "'message': lastRetry.message}"
)
_ESCAPED_FACTS = f"sprig.replace('$', '\\\\u0024', sprig.replace('{{' + '{{', '{{\\\\u007b', toJson({_FACTS})))"
_ENV = (
    {"name": ATTEMPT, "value": "{{retries}}"},
    {"name": LAST, "value": f"{{{{=lastRetry.status in ['Failed', 'Error'] ? {_ESCAPED_FACTS} : ''}}}}"},
)


def with_last_attempt(container: dict[str, Any]) -> dict[str, Any]:
    """The main container of a step that Argo may start again, with variables that say how the last attempt ended."""
    return {**container, "env": [*container.get("env", []), *map(dict, _ENV)]}


def without_last_attempt(container: dict[str, Any]) -> dict[str, Any]:
    """The same container without them: for comparing what a step does, not how often it was tried."""
    env = [entry for entry in container.get("env", []) if entry["name"] not in (ATTEMPT, LAST)]
    return {key: value for key, value in {**container, "env": env}.items() if value != []}
