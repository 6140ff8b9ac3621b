"""The facts of a run and the start of a schedule: how they are written, and what is refused.

Tests gpuflow/run.py, gpuflow/spec/schedule.py and gpuflow/spec/schedule.py.
"""

from __future__ import annotations

import sys
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, date, datetime

import pytest

from gpuflow import GpuflowError, Pipeline, join, loads, run
from gpuflow.plan import plan_of
from gpuflow.pod.spelling import ReadableSpelling
from gpuflow.site import Site
from gpuflow.spec.canonical import to_yaml
from gpuflow.spec.text import RUN_FIELDS, RunRef
from gpuflow.targets.airflow.refusals import clock_change
from gpuflow.targets.target import engine_findings

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i}\n"


def found(text: str) -> list[str]:
    with pytest.raises(GpuflowError) as refusal:
        loads(HEAD + text, "p.yaml")
    return [f"{each.where.line}:{each.where.column} {each.code} {each.message}" for each in refusal.value.findings]


def test_python_says_what_yaml_says() -> None:
    with Pipeline("p", defaults={"image": "i"}, schedule={"cron": "0 3 * * *", "start": date(2026, 1, 31)}) as written:
        words = [run.id(), run.name(), run.attempt(), run.logical_date(), run.interval_start(), run.interval_end()]
        where = join("s3://lake/", run.date("%Y/%m/%d", timezone="Europe/Berlin"), "/in")
        written.step("a", ["x", *words], env={"WHERE": where, "DAY": run.date()})
    text = """schedule: {cron: "0 3 * * *", start: 2026-01-31}
steps:
  a:
    command: [x, {run: id}, {run: name}, {run: attempt}, {run: logical_date}, {run: interval_start},
              {run: interval_end}]
    env:
      WHERE: {join: [s3://lake/, {run: date, format: "%Y/%m/%d", timezone: Europe/Berlin}, /in]}
      DAY: {run: date}
"""
    assert written == loads(HEAD + text)
    assert loads(to_yaml(written)) == written


def test_python_refuses_a_format_on_its_own_line() -> None:
    with pytest.raises(GpuflowError) as refusal:
        run.date("%V")
    (finding,) = refusal.value.findings
    assert (finding.code, finding.where.file) == ("GF331", __file__)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("{run: dat}", 'GF142 step "a": the run has no field "dat"'),
        ("{run: date, format: '%F'}", 'GF331 step "a": format "%F": "%F" is not a directive that every engine has; '),
        ("{run: attempt, format: '%Y'}", 'GF331 step "a": {run: attempt} is no date and takes no format'),
        ("{run: date, timezone: Berlin}", 'GF168 step "a": "Berlin" is not a known time zone'),
        ("{run: date, zone: UTC}", 'GF142 step "a": {run: …} takes a format and a timezone, and no "zone"'),
        ("{format: '%Y'}", 'GF142 step "a": "format" is not a kind of reference'),
        ("{run: [date]}", "GF142 step \"a\": {run: ['date']} must give a fact of the run"),
        ("{run: date, format: 5}", 'GF142 step "a": {format: 5} must give a format'),
    ],
)
def test_a_wrong_fact_is_one_message_with_its_place(reference: str, message: str) -> None:
    (only,) = found(f"steps:\n  a:\n    command: [x, {reference}]\n")
    assert only.split(" ", 1)[1].startswith(message)
    assert only.startswith("7:")


def test_the_hints_lead_on() -> None:
    with pytest.raises(GpuflowError) as refusal:
        loads(HEAD + "steps: {a: {command: [x, {run: datum}]}}")
    assert '"date"' in str(refusal.value.findings[0].hint)
    with pytest.raises(GpuflowError) as refusal:
        loads(HEAD + "steps: {a: {command: [x, {run: color}]}}")
    assert all(name in str(refusal.value.findings[0].hint) for name in RUN_FIELDS)


def test_the_attempt_is_no_part_of_a_place_that_other_attempts_must_find() -> None:
    text = "steps:\n  a: {command: [x], checkpoint: {path: /c, store: {join: [s3://b/, {run: attempt}]}}}\n"
    assert found(text) == ['6:51 GF333 step "a": a later attempt would not find its checkpoint under {run: attempt}']
    text = "steps:\n  a: {command: [x], outputs: {o: {type: file, uri: {join: [s3://b/, {run: attempt}]}}}}\n"
    assert [line.split()[1] for line in found(text)] == ["GF333"]
    loads(HEAD + "steps: {a: {command: [x], checkpoint: {path: /c, store: {join: [s3://b/, {run: date}]}}}}")


def test_a_condition_and_a_parameter_take_no_fact_of_the_run() -> None:
    (only,) = found("steps: {a: {command: [x], when: run.date == '2026-01-31'}}")
    assert "GF161" in only and "a condition cannot ask for facts of the run" in only
    inner = "{name: q, params: {d: {type: json}}, steps: {s: {image: i, command: [x]}}}"
    (only,) = found(f"steps: {{a: {{pipeline: {inner}, params: {{d: {{run: date, format: '%Y'}}}}}}}}")
    assert "GF142" in only and "a fact of the run is not a parameter" in only
    loads(HEAD + f"steps: {{a: {{pipeline: {inner}, params: {{d: {{run: fast}}}}}}}}")


@pytest.mark.parametrize(
    ("start", "zone", "begins"),
    [
        ("2026-01-31", "UTC", "2026-01-31T00:00:00+00:00"),
        ("2026-07-01", "Europe/Berlin", "2026-06-30T22:00:00+00:00"),
        ("2026-07-01T06:30", "Europe/Berlin", "2026-07-01T04:30:00+00:00"),
        ("2026-07-01 06:30:15Z", "Europe/Berlin", "2026-07-01T06:30:15+00:00"),
        ("2026-07-01T06:30:15-05:00", "UTC", "2026-07-01T11:30:15+00:00"),
    ],
)
def test_a_schedule_begins_at_its_start(start: str, zone: str, begins: str) -> None:
    text = f'schedule: {{cron: "0 3 * * *", timezone: {zone}, start: "{start}"}}\nsteps: {{a: {{command: [x]}}}}'
    schedule = loads(HEAD + text).schedule
    assert schedule is not None and schedule.begins is not None
    assert schedule.begins.astimezone(UTC).isoformat() == begins
    assert datetime.fromisoformat(str(schedule.start))


@pytest.mark.parametrize("start", ["tomorrow", "2026-02-30", "2026-01-31T25:00", "20260131", "5", "[2026]", "2026-W03"])
def test_a_start_that_is_no_time_is_refused(start: str) -> None:
    (only,) = found(f'schedule: {{cron: "0 3 * * *", start: {start}}}\nsteps: {{a: {{command: [x]}}}}')
    assert only.startswith("5:") and "GF332" in only


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("mon 3 * * *", 'GF167 "mon" is not a minute (0 to 59)'),
        ("0 3 * mon *", 'GF167 "mon" is not a month (1 to 12)'),
        ("0 3 * * jan", 'GF167 "jan" is not a day of week (0 to 7)'),
        ("\u0663 3 * * *", 'GF167 "\u0663" is not a minute (0 to 59)'),
        ("*/99999 * * * *", 'GF167 "*/99999" is not a minute (0 to 59)'),
        ("0 3 31 2 *", 'GF346 "0 3 31 2 *" names a date that never comes'),
        ("0 3 30 2 1", 'GF346 "0 3 30 2 1" names a date that never comes'),
        ("0 3 31 4,6 *", 'GF346 "0 3 31 4,6 *" names a date that never comes'),
    ],
)
def test_a_schedule_that_an_engine_would_refuse_or_never_run_is_refused(cron: str, message: str) -> None:
    (only,) = found(f"schedule: {{cron: '{cron}'}}\nsteps: {{a: {{command: [x]}}}}")
    assert only.split(" ", 1)[1] == message
    loads(HEAD + "schedule: {cron: '0 3 29 2 *'}\nsteps: {a: {command: [x]}}")


@pytest.mark.parametrize("start", ["0001-01-01", "0001-01-01T00:00+14:00", "1969-12-31", "9999-12-31T23:59-12:00"])
def test_a_start_that_no_clock_shows_is_refused(start: str) -> None:
    (only,) = found(f'schedule: {{cron: "0 3 * * *", start: "{start}"}}\nsteps: {{a: {{command: [x]}}}}')
    assert only.endswith(f'GF332 "{start}" is not in a year that every engine has')


@pytest.fixture
def no_zones() -> Iterator[None]:
    """A machine without a database of time zones."""
    paths = zoneinfo.TZPATH
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "tzdata", None)
        zoneinfo.reset_tzpath(())
        zoneinfo.ZoneInfo.clear_cache()
        clock_change.cache_clear()
        yield
    zoneinfo.reset_tzpath(paths)
    zoneinfo.ZoneInfo.clear_cache()


@pytest.mark.usefixtures("no_zones")
def test_a_machine_without_time_zones_says_so_where_it_needs_one() -> None:
    steps = "\nsteps: {a: {command: [x, {run: interval_start}]}}"
    (only,) = found(f'schedule: {{cron: "0 3 * * *", timezone: Europe/Berlin, start: 2026-01-31}}{steps}')
    assert only == (
        "5:63 GF345 this machine has no time zone database, so the clock of Europe/Berlin is not known: "
        "schedule.start cannot be placed"
    )
    utc = loads(HEAD + f'schedule: {{cron: "0 3 * * *", start: 2026-01-31}}{steps}')
    assert utc.schedule is not None and utc.schedule.begins == datetime(2026, 1, 31, tzinfo=UTC)
    assert engine_findings("airflow", plan_of(utc, Site.load())) == ()
    zoned = loads(HEAD + f'schedule: {{cron: "0 3 * * *", timezone: Europe/Berlin}}{steps}')
    assert [each.code for each in engine_findings("airflow", plan_of(zoned, Site.load()))] == ["GF345"]


def test_facts_are_shown_readably() -> None:
    shown = ReadableSpelling().reference
    assert shown(RunRef("date")) == "<run date>"
    assert shown(RunRef("date", "%Y/%m", "Europe/Berlin")) == "<run date %Y/%m Europe/Berlin>"
