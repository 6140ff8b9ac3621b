"""Until when a task may run because of the run or the sub-pipelines around it.

A task group of Airflow has no time limit, and that of a run ends the exit steps too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from gpuflow.airflow.references import Context, Value


class deadline:
    """The time limit of a sub-pipeline, or without a name of the run. `since`: when it began, in seconds since 1970.

    :param group: the sub-pipeline; empty for the run.
    :param limit: how long it may take.
    :param since: when it began, for example `run_began()`.
    """

    def __init__(self, group: str, limit: timedelta, *, since: Value) -> None:
        self.group, self.limit, self.since = group, limit, since

    def moment(self, context: Context) -> float:
        """When it is over."""
        return float(self.since.value(context)) + self.limit.total_seconds()

    def sentence(self) -> str:
        """Why a task had to end."""
        if not self.group:
            return f"the run took longer than its deadline of {self.limit}"
        return (
            f"the sub-pipeline {self.group} took longer than its time limit of {self.limit}; "
            "clear the whole group to restart its time"
        )

    def __repr__(self) -> str:
        return f"deadline({self.group!r}, {self.limit!r}, since={self.since!r})"


def first(deadlines: Sequence[deadline], context: Context) -> tuple[float, deadline] | None:
    """The time limit that is over first, and when."""
    return min(((one.moment(context), one) for one in deadlines), key=lambda found: found[0], default=None)
