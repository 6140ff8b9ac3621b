"""The facts of a run on Argo: asked of Argo's own substitution, for runs by schedule, by hand and in later attempts.

Tests gpuflow/targets/argo/references.py and gpuflow/targets/cron.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuflow.core.cron import next_time, previous_time
from gpuflow.core.date_format import DIRECTIVES, TIMESTAMP, format_date
from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.spec.step import Step
from gpuflow.targets import load_target
from gpuflow.targets.argo.single_step import standalone_template
from gpuflow.targets.cron import go_cron
from gpuflow.targets.target import Request, compile_with, findings_of
from tests.conftest import CORPORA
from tests.differential.oracle import Oracle
from tests.targets.argo.manifests import HEAD, artifact, compiled, schema_errors, substituted, template
from tests.targets.argo.test_argo_text import kubelet

SCHEDULED = "2026-03-29T04:15:00+02:00"
CREATED = "2026-03-29T09:58:07Z"
BY_HAND = {"workflow.creationTimestamp.RFC3339": CREATED}
BY_SCHEDULE = {**BY_HAND, "workflow.scheduledTime": SCHEDULED}
SCHEDULE = 'schedule: {cron: "15 4 * * *", timezone: Europe/Berlin}\n'


@pytest.fixture(scope="module")
def argo() -> Iterator[Oracle]:
    with Oracle("argo", "substitution") as oracle:
        yield oracle


def values(oracle: Oracle, text: str, scope: dict[str, str], **case: Any) -> dict[str, str]:
    """The variables of a step's container after Argo and the kubelet."""
    manifest = compiled(text, kind="Workflow")
    (pod,) = substituted(oracle, manifest, ["a"], scope=scope, **case)
    found = {entry["name"]: entry.get("value", "") for entry in pod["container"].get("env", [])}
    return {name: kubelet(value, found) for name, value in found.items()}


ALL = """steps:
  a:
    command: [x]
    env:
      NAME: {run: name}
      MOMENT: {run: logical_date}
      UTC: {run: logical_date, timezone: UTC}
      DAY: {run: date}
      PATH_OF_DAY: {join: [s3://lake/, {run: date, format: "%Y/%m/%d"}, /in]}
      FROM: {run: interval_start}
      TO: {run: interval_end, timezone: Asia/Tokyo}
      ATTEMPT: {run: attempt}
"""


@pytest.mark.go
def test_a_run_by_schedule_has_its_scheduled_time(argo: Oracle) -> None:
    assert values(argo, SCHEDULE + ALL, BY_SCHEDULE) == {
        "NAME": "wf",
        "MOMENT": "2026-03-29T04:15:00+02:00",
        "UTC": "2026-03-29T02:15:00+00:00",
        "DAY": "2026-03-29",
        "PATH_OF_DAY": "s3://lake/2026/03/29/in",
        "FROM": "2026-03-28T04:15:00+01:00",  # 23 hours earlier: the clock was set in between
        "TO": "2026-03-29T11:15:00+09:00",
        "ATTEMPT": "1",
    }


@pytest.mark.go
def test_a_run_by_hand_has_the_time_when_it_was_made(argo: Oracle) -> None:
    found = values(argo, SCHEDULE + ALL, BY_HAND)
    assert found["MOMENT"] == "2026-03-29T11:58:07+02:00"
    assert found["FROM"] == "2026-03-29T04:15:00+02:00"
    unscheduled = values(argo, "steps: {a: {command: [x], env: {A: {run: logical_date}}}}", BY_HAND)
    assert unscheduled == {"A": "2026-03-29T09:58:07+00:00"}


@pytest.mark.go
def test_a_time_that_is_none_ends_the_step(argo: Oracle) -> None:
    manifest = compiled("steps: {a: {command: [x, {run: date}]}}", kind="Workflow")
    workflow = {**manifest, "metadata": {"name": "wf", "namespace": "ns", "uid": "0-1"}}
    scope = {**BY_HAND, "workflow.scheduledTime": "{{workflow.name}}"}
    (answer,) = argo.ask([{"workflow": workflow, "parameters": {}, "path": ["a"], "scope": scope}])
    assert "invalid date" in answer["failure"]


@pytest.mark.go
def test_exit_steps_loops_and_sub_pipelines_know_the_run_too(argo: Oracle) -> None:
    inner = "{name: q, steps: {s: {image: i, command: [x], env: {A: {run: date}}, for_each: {i: [1, 2]}}}}"
    text = SCHEDULE + f"steps: {{a: {{pipeline: {inner}}}}}\nexit: {{z: {{command: [z], env: {{A: {{run: date}}}}}}}}"
    manifest = compiled(text, kind="Workflow")
    pods = substituted(argo, manifest, ["a", "s"], scope=BY_SCHEDULE)
    assert [pod["container"]["env"][-1]["value"] for pod in pods] == ["2026-03-29"] * 2
    ending = {**manifest, "spec": {**manifest["spec"], "entrypoint": "exit"}}
    (pod,) = substituted(argo, ending, ["z"], scope=BY_SCHEDULE)
    assert pod["container"]["env"][-1]["value"] == "2026-03-29"


@pytest.mark.go
def test_attempts_count_from_one(argo: Oracle) -> None:
    text = "steps: {a: {command: [x], retry: 3, env: {A: {join: [n, {run: attempt}]}}}}"
    assert values(argo, text, BY_HAND)["A"] == "n1"
    later = {"retries": "2", "exitCode": "1", "status": "Failed", "message": ""}
    assert values(argo, text, BY_HAND, attempt=later)["A"] == "n3"


WORDS = [
    *DIRECTIVES,
    "/",
    "-",
    ".",
    "0",
    "2006",
    "Jan",
    "{{workflow.name}}",
    "{{",
    "$(HOME)",
    "$",
    "$$",
    "'",
    '"',
    "\\",
]


@pytest.mark.go
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=7).map("".join),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),
    st.sampled_from(["(HOME)", "{{x}}", "z", ""]),
)
def test_every_format_gives_what_it_says(argo: Oracle, form: str, moment: datetime, after: str) -> None:
    moment = moment.replace(microsecond=0)
    try:
        expected = format_date(moment.astimezone(ZoneInfo("Asia/Kathmandu")), form)
    except ValueError:
        return  # glued words that make another directive
    reference = {"run": "date", "format": form, "timezone": "Asia/Kathmandu"}
    text = f"steps: {{a: {{command: [x], env: {{A: {json.dumps({'join': [reference, after]})}}}}}}}"
    scope = {**BY_HAND, "workflow.scheduledTime": format_date(moment, TIMESTAMP)}
    assert values(argo, text, scope)["A"] == expected + after


CRONS = ["15 4 * * *", "30 2 * * *", "*/15 * * * *", "0 * * * *", "0 6,18 * * 1-5", "30 2 * * 0", "0 0 1 * *",
         "5 1 13 * fri", "7,11 3 * * *", "0 0 1,15 * *", "45 23 28-31 * *"]  # fmt: skip
CHANGES = [datetime(2026, 3, 29), datetime(2026, 10, 25), datetime(2026, 3, 8), datetime(2026, 11, 1)]
CHANGES += [datetime(2026, 4, 5), datetime(2026, 10, 4)]


@pytest.mark.go
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(CRONS),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
    st.sampled_from(CHANGES),
    st.integers(-3 * 86400, 3 * 86400),
)
def test_the_interval_begins_at_the_scheduled_time_before(
    argo: Oracle, cron: str, zone: str, day: datetime, seconds: int
) -> None:
    moment = day.replace(tzinfo=UTC) + timedelta(seconds=seconds)
    before = previous_time(cron, zone, moment)
    assert before is not None
    text = f'schedule: {{cron: "{cron}", timezone: {zone}}}\n'
    text += "steps: {a: {command: [x], env: {A: {run: interval_start}}}}"
    scope = {**BY_HAND, "workflow.scheduledTime": format_date(moment, TIMESTAMP)}
    assert values(argo, text, scope)["A"] == format_date(before, TIMESTAMP)


def test_a_cached_step_has_no_result_of_another_day() -> None:
    made = compiled("steps: {a: {command: [x, {run: date}, {run: id}], cache: true, outputs: {o: int}}}")
    key = template(made, "a")["memoize"]["key"]
    assert "scheduledTime" in key and "uid" not in key


def refused(text: str) -> list[str]:
    with pytest.raises(GpuflowError) as refusal:
        artifact(text)
    return [f"{finding.where.line}: {finding.code} {finding.message}" for finding in refusal.value.findings]


def test_an_interval_needs_times_that_lie_near_enough() -> None:
    asks = "steps: {a: {command: [x, {run: interval_start}]}}"
    (only,) = refused(asks)
    assert only.startswith("5: GF301 argo does not support {run: interval_start}") and "without a schedule" in only
    for cron in ("0 0 1 1 *", "0 0 29 2 *", "1,2 3 1 * *", "1,2 3 * * 1", "*/15 3 1 * *"):
        (only,) = refused(f'schedule: "{cron}"\n{asks}')
        assert only.startswith("6: GF301") and "too far apart" in only, cron
    for cron in ("1,2 3 * * *", "*/5 3 * * 1,4", "*/10 3 * * 1", "*/15 3 1,16 * *", "0,30 3 1 * *"):
        artifact(f'schedule: "{cron}"\n{asks}')
    inside = "steps: {a: {pipeline: {name: q, steps: {s: {image: i, command: [x, {run: interval_start}]}}}}}"
    assert len(refused(inside)) == 1
    artifact('schedule: "0 0 1 * *"\n' + inside)


def test_a_start_holds_the_schedule_back() -> None:
    text = 'schedule: {cron: "0 3 * * *", timezone: Europe/Berlin, start: 2026-07-01}\nsteps: {a: {command: [x]}}'
    assert compiled(text)["spec"]["when"] == "{{=now() >= date('2026-07-01T00:00:00+02:00')}}"


def test_a_note_and_the_file_say_what_a_run_by_hand_gets() -> None:
    target, site = load_target("argo"), Site.load("nvidia")
    request = Request(loads(HEAD + SCHEDULE + ALL, "p.yaml"), site, "team-a", "p.yaml")
    done = compile_with(target, request, allow_lossy=False)
    (note,) = [finding for finding in findings_of(target, request, done) if finding.code == "GF334"]
    assert note.severity == "note" and "--scheduled-time" in str(note.hint)
    assert note.message.removeprefix("d") in done.text.splitlines()[2]
    assert schema_errors(compiled(SCHEDULE + ALL), CORPORA) == []


def test_a_step_alone_knows_its_run_but_no_schedule() -> None:
    step = Step("a", image="i", command=["x", {"run": "date"}, {"run": "attempt"}])
    command = standalone_template(step, Site.load("nvidia"), "a")["container"]["command"]
    assert command[1].endswith(".In(timezone('UTC')).Format('2006-01-02')}}") and command[2] == "1"
    with pytest.raises(GpuflowError, match="has no schedule"):
        standalone_template(Step("a", image="i", command=["x", {"run": "interval_start"}]), Site.load("nvidia"), "a")


SCHEDULES = st.builds(
    lambda minute, hour, day, month, weekday: f"{minute} {hour} {day} {month} {weekday}",
    st.sampled_from(["*", "0", "30", "*/20", "7,59", "5/20", "10-20"]),
    st.sampled_from(["*", "2", "1-3", "*/6", "0,12", "23"]),
    st.sampled_from(["*", "1", "13,27", "*/2", "25-31"]),
    st.sampled_from(["*", "3", "10-11"]),
    st.sampled_from(["*", "0", "1-5", "7", "sun"]),
)


@pytest.mark.go
def test_a_cron_names_the_times_at_which_argo_starts_runs() -> None:
    """In zones that set their clocks at midnight Argo's own clock passes over days; they are left out."""
    with Oracle("argo", "cron") as oracle:

        @settings(max_examples=150)
        @given(
            SCHEDULES,
            st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Sydney"]),
            st.sampled_from(CHANGES),
            st.integers(-86400, 86400),
        )
        def compare(cron: str, zone: str, day: datetime, seconds: int) -> None:
            moment = day.replace(tzinfo=UTC) + timedelta(seconds=seconds)
            case = {"schedule": go_cron(cron), "timezone": zone, "after": format_date(moment, TIMESTAMP), "count": 5}
            (answer,) = oracle.ask([case])
            found = []
            for _ in answer["times"]:
                following_one = next_time(cron, zone, moment)
                assert following_one is not None
                moment = following_one
                found.append(moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            assert found == answer["times"]

        compare()
