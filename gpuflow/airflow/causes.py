"""Why a task failed, left in XCom for whoever is told about the run.

The end of a run is told by the DAG processor, which sees that a task failed, and not why. It is written before the
task ends, because nothing can be written after. The next try of a task begins with no XCom.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException

from gpuflow.airflow.references import Context
from gpuflow.runtime import outcomes

KEY = "gpuflow_failure"
FAILURE, INTERRUPTION, QUOTA, DEADLINE, REFUSED = "failure", "interruption", "quota", "deadline", "refused"
OUT_OF_MEMORY, TIMED_OUT = "out of memory", "timed out"
OF_OUTCOMES = {
    outcomes.INTERRUPTED: INTERRUPTION,
    outcomes.NEVER_STARTED: INTERRUPTION,
    outcomes.OUT_OF_MEMORY: OUT_OF_MEMORY,
    outcomes.TIMED_OUT: TIMED_OUT,
}
"""The causes that a pod's end tells; any other end is a failure."""
_LAST_SENTENCES = (
    (OUT_OF_MEMORY, "killed for memory|over its memory limit|ran out of memory"),
    (TIMED_OUT, "it ran longer than "),
    (INTERRUPTION, "told to stop|budget of [0-9]+ interruptions is spent|[0-9]+ interruptions so far"),
)
"""What the supervisor's last sentence holds when no further attempt may run; no program writes in it."""
MOST = 2000
"""How many characters of a message are kept."""


def of_end(outcome: str, last_words: str) -> str:
    """The cause that the end of a pod tells. Of a supervised one that is final, the supervisor says it."""
    if outcome == outcomes.FINAL:
        for cause, words in _LAST_SENTENCES:
            if re.match(rf" \(exit code {outcomes.EXIT_FINAL}\): gpuflow-run: [^\n]*({words})", last_words):
                return cause
    return OF_OUTCOMES.get(outcome, FAILURE)


@contextmanager
def told(operator: Any, context: Context) -> Iterator[None]:
    """Leave the cause behind when a task fails and its DAG sends alerts."""
    operator.cause = FAILURE
    try:
        yield
    except AirflowSkipException:
        raise
    except Exception as failure:
        if _is_asked_for(context):
            try:
                context["ti"].xcom_push(key=KEY, value={"cause": operator.cause, "message": str(failure)[:MOST]})
            except Exception as trouble:
                operator.log.warning("alerts will not say why this task failed: %s", trouble)
        raise


def _is_asked_for(context: Context) -> bool:
    from gpuflow.airflow.alerts import Alert

    callbacks = getattr(context.get("dag"), "on_failure_callback", None) or ()
    return any(isinstance(each, Alert) for each in (callbacks if isinstance(callbacks, list | tuple) else [callbacks]))
