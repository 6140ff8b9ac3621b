"""The facts of a run, for pipelines that are written in Python.

    from gpuflow import join, run

    p.step("train", ["train.py", "--day", run.date()], env={"OUT": join("s3://lake/", run.date("%Y/%m/%d"))})

Dates take a format and a time zone. Each is what `{run: …}` says in a document.
"""

from __future__ import annotations

from pydantic_core import PydanticCustomError

from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.spec.builder import caller
from gpuflow.spec.text import RunRef, Text, parse_text

__all__ = ["attempt", "date", "id", "interval_end", "interval_start", "logical_date", "name"]


def id() -> Text:
    """Unique for each run, and the same for all its steps and attempts."""
    return RunRef("id")


def name() -> Text:
    """What the engine calls the run."""
    return RunRef("name")


def attempt() -> Text:
    """Which attempt of the step this is, from 1."""
    return RunRef("attempt")


def logical_date(format: str | None = None, *, timezone: str | None = None) -> Text:
    """The scheduled time; for a run by hand the time when it was made."""
    return _date("logical_date", format, timezone)


def date(format: str | None = None, *, timezone: str | None = None) -> Text:
    """The day of the logical date."""
    return _date("date", format, timezone)


def interval_start(format: str | None = None, *, timezone: str | None = None) -> Text:
    """The scheduled time before the logical date."""
    return _date("interval_start", format, timezone)


def interval_end(format: str | None = None, *, timezone: str | None = None) -> Text:
    """The same as the logical date."""
    return _date("interval_end", format, timezone)


def _date(field: str, format: str | None, timezone: str | None) -> Text:
    said = {"run": field, "format": format, "timezone": timezone}
    try:
        return parse_text({key: value for key, value in said.items() if value is not None})
    except PydanticCustomError as refusal:
        context = refusal.context or {}
        raise GpuflowError([Finding(refusal.type, context["message"], caller(), context["hint"])]) from None
