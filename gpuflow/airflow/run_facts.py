"""What a task knows of its run: its name, its attempt, and the moment it is for.

One meaning, whatever the DAG's timetable and Airflow's settings are: the logical date is the scheduled time. A run that
somebody starts has the date it is given; without one, as with a run that new data starts, it has the time it was made.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from gpuflow.airflow.references import Context, Value, references, written
from gpuflow.cron import previous
from gpuflow.date_format import MOMENT, formatted

ATTEMPT = "gpuflow_attempt"
"""Where the context of a pod that is about to be made holds its number."""
PLANNED = ("scheduled", "backfill")
"""The runs that a timetable has made. Its data intervals may begin long before; the run comes at the scheduled time."""


class dag_run_id(Value):
    """The run's id in Airflow, for example `scheduled__2026-11-14T00:00:00+00:00`."""

    def value(self, context: Context) -> str:
        return str(context["dag_run"].run_id)

    def __repr__(self) -> str:
        return "dag_run_id()"


class attempt(Value):
    """Which pod of the task it is, from 1: after a failure, an interruption or Clear comes one more."""

    def value(self, context: Context) -> str:
        # Airflow shows the pod before it is known which one comes next.
        return str(context.get(ATTEMPT, "(attempt)"))

    def __repr__(self) -> str:
        return "attempt()"


class logical_date(Value):
    """The scheduled time of the run, as text in a time zone.

    :param format: as in `strftime`; ISO 8601 with the offset unless given.
    :param timezone: the time zone it is shown in.
    """

    def __init__(self, format: str = MOMENT, *, timezone: str = "UTC") -> None:
        self.format, self.timezone = format, timezone

    def value(self, context: Context) -> str:
        return formatted(scheduled_time(context).astimezone(ZoneInfo(self.timezone)), self.format)

    def __repr__(self) -> str:
        shown = {} if self.timezone == "UTC" else {"timezone": self.timezone}
        return written("logical_date", *(() if self.format == MOMENT else (self.format,)), **shown)


class interval_start(Value):
    """The scheduled time before the run's own, by a cron expression in its time zone; shown in `timezone`, if given.

    :param cron: the schedule, as a cron expression.
    :param zone: the time zone of the schedule.
    :param format: as in `strftime`; ISO 8601 with the offset unless given.
    :param timezone: the time zone it is shown in; the schedule's unless given.
    """

    def __init__(self, cron: str, zone: str = "UTC", *, format: str = MOMENT, timezone: str | None = None) -> None:
        self.cron, self.zone, self.format, self.timezone = cron, zone, format, timezone or zone

    def value(self, context: Context) -> str:
        before = previous(self.cron, self.zone, scheduled_time(context))
        if before is None:
            raise LookupError(f'the schedule "{self.cron}" has no time before {scheduled_time(context)}')
        return formatted(before.astimezone(ZoneInfo(self.timezone)), self.format)

    def __repr__(self) -> str:
        named = {} if self.format == MOMENT else {"format": self.format}
        shown = {} if self.timezone == self.zone else {"timezone": self.timezone}
        return written("interval_start", self.cron, self.zone, **named, **shown)


def asks_attempt(tree: Any) -> bool:
    """Whether a value, or a pod, holds the attempt."""
    return any(isinstance(one, attempt) for one in references(tree))


def scheduled_time(context: Context) -> datetime:
    """The moment a run is for."""
    run = context["dag_run"]
    planned = getattr(run.run_type, "value", run.run_type) in PLANNED
    moment: datetime = run.run_after if planned else run.logical_date or run.run_after
    return moment
