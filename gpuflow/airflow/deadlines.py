"""Until when a task may run because of the run or the sub-pipelines around it.

A task group of Airflow has no time limit, and that of a run ends the exit steps too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from gpuflow.airflow.references import Context, Value, run_began, written


class deadline:
    """The time limit of the run, or of a group in it.

        deadline(run=timedelta(hours=8))
        deadline(group="release", limit=timedelta(hours=1), since=output("release.begin", "return_value", "float"))

    :param group: the sub-pipeline; empty for the run.
    :param limit: how long the group may take.
    :param since: when the group began, in seconds since 1970.
    :param run: how long the run may take.
    """

    def __init__(
        self,
        group: str = "",
        limit: timedelta | None = None,
        *,
        since: Value | None = None,
        run: timedelta | None = None,
    ) -> None:
        whole = run if limit is None else limit
        if whole is None or (run is not None and (group or limit is not None)) or (group and since is None):
            raise TypeError("write deadline(run=timedelta(…)), or deadline(group=…, limit=timedelta(…), since=…)")
        self.group, self.limit, self.since = group, whole, run_began() if since is None else since

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
        if not self.group:
            return written("deadline", run=self.limit)
        return written("deadline", group=self.group, limit=self.limit, since=self.since)


def first(deadlines: Sequence[deadline], context: Context) -> tuple[float, deadline] | None:
    """The time limit that is over first, and when."""
    return min(((one.moment(context), one) for one in deadlines), key=lambda found: found[0], default=None)
