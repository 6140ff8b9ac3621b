"""What Argo knows of the attempt before, handed to the supervisor of the next one as data.

Argo puts `retries` and `lastRetry.*` into the whole template of an attempt (executeTemplate in operator.go, 4.0.2), so
a variable of the container can hold them. The message may be any text, the program's own included: it travels as JSON,
in which `{{` and `$` are written as escapes, for Argo replaces tags again afterwards and the kubelet expands `$(NAME)`.

While a new attempt waits for quota, Argo's `lastRetry` speaks of that attempt itself, which is `Pending`. Then nothing
is handed over, as on the first attempt, and the supervisor goes by what it finds in its store.
"""

from __future__ import annotations

from typing import Any

LAST = "GPUFLOW_RUN_LAST"
ATTEMPT = "GPUFLOW_RUN_ENGINE_ATTEMPT"
_FACTS = (
    "{'attempt': asInt(retries) - 1, 'by': 'argo', 'phase': lastRetry.status, 'exit_code': lastRetry.exitCode, "
    "'message': lastRetry.message}"
)
_ESCAPED = f"sprig.replace('$', '\\\\u0024', sprig.replace('{{' + '{{', '{{\\\\u007b', toJson({_FACTS})))"
_ENV = (
    {"name": ATTEMPT, "value": "{{retries}}"},
    {"name": LAST, "value": f"{{{{=lastRetry.status in ['Failed', 'Error'] ? {_ESCAPED} : ''}}}}"},
)


def with_last_attempt(container: dict[str, Any]) -> dict[str, Any]:
    """The main container of a step that Argo may start again, with variables that say how the last attempt ended."""
    return {**container, "env": [*container.get("env", []), *map(dict, _ENV)]}


def without_last_attempt(container: dict[str, Any]) -> dict[str, Any]:
    """The same container without them: for comparing what a step does, not how often it was tried."""
    env = [entry for entry in container.get("env", []) if entry["name"] not in (ATTEMPT, LAST)]
    return {key: value for key, value in {**container, "env": env}.items() if value != []}
