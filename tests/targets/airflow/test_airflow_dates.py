"""The dates of a run on Airflow: what each kind of run says, and that the timetable and gpuflow's cron agree.

Tests gpuflow/targets/airflow/references.py, gpuflow/targets/airflow/refusals.py, gpuflow/targets/cron.py and
gpuflow/airflow/references.py.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable
from airflow.timetables.trigger import CronTriggerTimetable
from airflow.utils.types import DagRunType
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jinja2 import Environment
from pendulum import instance

from gpuflow import GpuflowError, Step
from gpuflow.airflow import Pod, attempt, dag_run_id, interval_start, join, logical_date, task, to_dag
from gpuflow.airflow.references import scheduled_time
from gpuflow.core import cron
from gpuflow.core.date_format import DIRECTIVES, format_date
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.airflow import target
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.airflow.python_source import Call
from gpuflow.targets.airflow.references import jinja_fact
from gpuflow.targets.airflow.refusals import clock_change
from gpuflow.targets.cron import airflow_cron
from gpuflow.targets.target import Request, compile_with

from .playing import Stage
from .stand_in import StandIn, ended, running

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i}\n"
BERLIN = ZoneInfo("Europe/Berlin")
SIX = datetime(2026, 11, 14, 6, tzinfo=UTC)
NIGHT = datetime(2026, 11, 14, 3, tzinfo=UTC)


def compiled(body: str, **options: bool) -> str:
    request = Request(loads(HEAD + body), Site.load("nvidia"), "ml", "p.yaml", (), AirflowOptions(**options))
    return compile_with(target, request, allow_lossy=False).artifact.text


def refusal(body: str, **options: bool) -> Any:
    with pytest.raises(GpuflowError) as refused:
        compiled(body, **options)
    (finding,) = refused.value.findings
    return finding


def codes(body: str) -> list[str]:
    request = Request(loads(HEAD + body), Site.load("nvidia"), "ml", "p.yaml", (), AirflowOptions())
    return [note.code for note in target.notes(request)]


# -- what each kind of run says -------------------------------------------------------------------------------------


def run(run_type: str, logical: datetime | None, run_after: datetime) -> Any:
    return {"dag_run": SimpleNamespace(run_id="r", run_type=run_type, logical_date=logical, run_after=run_after)}


@pytest.mark.parametrize(
    ("context", "said"),
    [
        (run("scheduled", NIGHT, NIGHT), NIGHT),
        (run("backfill", NIGHT, NIGHT), NIGHT),
        # A timetable with data intervals: Airflow's own logical date is where the interval begins.
        (run("scheduled", NIGHT - timedelta(days=1), NIGHT), NIGHT),
        (run("manual", NIGHT, SIX), NIGHT),
        (run("manual", None, SIX), SIX),
        (run("operator_triggered", None, SIX), SIX),
        (run("asset_triggered", None, SIX), SIX),
    ],
)
def test_the_logical_date_is_the_scheduled_time_or_what_a_run_was_given_or_when_it_was_made(
    context: Any, said: datetime
) -> None:
    assert logical_date().text(context) == said.isoformat()
    assert logical_date("%Y/%m/%d %H:%M", timezone="Europe/Berlin").text(context) == said.astimezone(BERLIN).strftime(
        "%Y/%m/%d %H:%M"
    )
    before = datetime(2026, 11, 13 if said == NIGHT else 14, 3, tzinfo=UTC)
    assert interval_start("0 3 * * *").text(context) == before.isoformat()


def test_the_values_are_written_as_the_file_has_them() -> None:
    values = [
        dag_run_id(),
        attempt(),
        logical_date(),
        logical_date("%Y", timezone="Asia/Tokyo"),
        interval_start("0 3 * * *"),
        interval_start("0 3 * * *", "Asia/Tokyo", format="%d", timezone="UTC"),
    ]
    assert [eval(repr(value)).serialize() for value in values] == [repr(value) for value in values]


def test_a_schedule_without_any_time_before_is_an_error_and_no_empty_text() -> None:
    with pytest.raises(LookupError, match="has no time before"):
        interval_start("0 0 31 2 *").text(run("manual", None, SIX))


# -- the attempt ----------------------------------------------------------------------------------------------------


def test_every_pod_of_a_task_has_its_own_attempt(server: StandIn, maker: Callable[..., Callable[[], Any]]) -> None:
    """A failure is followed by an Airflow try, an interruption by a pod in the same try: both are one attempt more."""
    failed, lost = [running(), ended(1, "Error")], [running(), None]
    server.tell(lost, failed, lost, [running(), ended(0)])
    pod = Pod({}, spec={"containers": [{"name": "main", "image": "i", "command": ["x", join("n", attempt())]}]})
    assert Stage().play(maker(template=pod, failures=1, interruptions=2)).state == "success"
    assert [made["spec"]["containers"][0]["command"][1] for made in server.made] == ["n1", "n2", "n3", "n4"]


def test_a_rendered_pod_says_attempt_where_the_number_is_not_known_yet(
    server: StandIn, maker: Callable[..., Callable[[], Any]]
) -> None:
    """Airflow renders the pod, for the UI, before the task has looked how many pods there were."""
    pod = Pod({}, spec={"containers": [{"name": "main", "image": "i", "command": [attempt(), dag_run_id()]}]})
    server.tell([running(), ended(0)])

    def make() -> Any:
        operator = maker(template=pod)()
        operator.template = operator.template.resolve(Stage().context(operator))  # as Airflow does
        assert operator.template["spec"]["containers"][0]["command"] == ["(attempt)", Stage.run_id]
        return operator

    assert Stage().play(make).state == "success"
    assert server.made[0]["spec"]["containers"][0]["command"] == ["1", Stage.run_id]


# -- the timetable --------------------------------------------------------------------------------------------------

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo", "America/Santiago")


@st.composite
def crons(draw: st.DrawFn) -> str:
    minute = draw(st.sampled_from(["0", "30", "*/15", "7,37", "59"]))
    hour = draw(st.sampled_from(["*", "3", "0", "2", "1-3", "*/2", "22", "4,16", "*/6"]))
    day = draw(st.sampled_from(["*", "*", "*", "1", "1,15", "*/2"]))
    month = draw(st.sampled_from(["*", "*", "*", "3,10", "*/5"]))
    weekday = draw(st.sampled_from(["*", "*", "0", "1-5", "sun"]))
    return f"{minute} {hour} {day} {month} {weekday}"


def parts(low: int, high: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    """One part of a field, in every form that there is."""
    number = st.integers(low, high)
    pair = st.tuples(number, number).map(sorted)
    step = st.integers(1, high)
    return st.one_of(
        st.just("*"),
        step.map(lambda by: f"*/{by}"),
        number.map(str),
        pair.map(lambda both: f"{both[0]}-{both[1]}"),
        st.tuples(pair, step).map(lambda drawn: f"{drawn[0][0]}-{drawn[0][1]}/{drawn[1]}"),
        st.tuples(number, step).map(lambda drawn: f"{drawn[0]}/{drawn[1]}"),
        *([st.sampled_from(names)] if names else []),
    )


def lists(low: int, high: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    return st.lists(parts(low, high, names), min_size=1, max_size=2).map(",".join)


ANY_CRON = st.tuples(
    lists(0, 59),
    lists(0, 23),
    lists(1, 28),
    lists(1, 12, ("jan", "Mar-OCT")),
    lists(0, 7, ("SUN", "mon-fri", "Tue-tue")),
).map(" ".join)


@settings(max_examples=80, deadline=None)
@given(ANY_CRON, st.datetimes(datetime(2024, 1, 1), datetime(2034, 12, 1)))
@example("0 5-5 * * *", datetime(2026, 1, 1))
@example("50/20 * * * *", datetime(2026, 1, 1))
@example("0 3 1 * 0-6", datetime(2026, 1, 3))
@example("22 * 12 * */1", datetime(2026, 1, 14))
@example("0 3 1-31 * 1", datetime(2026, 1, 14))
@example("0 3 * * 7/2", datetime(2026, 1, 1))
def test_airflow_reads_the_cron_as_everybody_else(written: str, start: datetime) -> None:
    text = f"{HEAD}schedule: {{cron: '{written}'}}\nsteps: {{a: {{command: [x]}}}}"
    request = Request(loads(text, "p.yaml"), Site.load(), None, "p.yaml", (), AirflowOptions())
    tree = ast.parse(compile_with(target, request, allow_lossy=False).text)
    (call,) = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and "Cron" in ast.unparse(each.func)]
    after = instance(start.replace(tzinfo=UTC))
    timetable = CronTriggerTimetable(ast.literal_eval(call.args[0]), timezone="UTC")
    assert timetable._get_next(after) == cron.next_time(written, "UTC", after)


def test_a_cron_in_plain_words_is_written_as_it_is() -> None:
    for written in ("0 3 * * *", "*/15 4,16 1-15 * mon-fri", "0 0 1 jan *", "30 */2 * * 1-5"):
        assert airflow_cron(written) == written
    assert airflow_cron("0 5-5 * * *") == "0 5 * * *"
    assert airflow_cron("50/20 * 1 * 0-6") == "50 * * * *"


@settings(max_examples=60, deadline=None)
@given(crons(), st.sampled_from(ZONES), st.datetimes(datetime(2024, 1, 1), datetime(2034, 12, 1)))
@example("0 * * * *", "Europe/Berlin", datetime(2026, 10, 24, 20))
@example("0 3 * * *", "Europe/Berlin", datetime(2026, 3, 27))
@example("0 3 * * *", "Europe/Berlin", datetime(2026, 10, 23))
@example("0 * * 3,10 *", "America/Santiago", datetime(2024, 5, 1))
@example("*/15 * * * *", "Australia/Lord_Howe", datetime(2026, 4, 4, 10))
def test_airflow_runs_exactly_when_the_clock_shows_the_schedule(expression: str, zone: str, earliest: datetime) -> None:
    """Where the clock does not change at one of its times, which is what `clock_change` says."""
    if clock_change(expression, zone) is not None:
        return
    timetable = CronTriggerTimetable(expression, timezone=zone)
    start = instance(earliest.replace(tzinfo=UTC))
    restriction, last = TimeRestriction(start, None, catchup=True), None
    expected = cron.next_time(expression, zone, start - timedelta(seconds=1))
    for _ in range(30):
        info = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
        if expected is None or info is None or expected.year > 2035:
            break
        # By their seconds: Python calls no two times equal that the clock shows twice.
        assert info.logical_date.timestamp() == info.run_after.timestamp() == expected.timestamp()
        if last is not None:
            before = cron.previous_time(expression, zone, expected)
            assert before is not None
            assert before.timestamp() == last.end.timestamp(), "the intervals leave no gap"
        last = DataInterval(info.data_interval.start, info.data_interval.end)
        expected = cron.next_time(expression, zone, expected)


@pytest.mark.parametrize(
    ("expression", "zone", "changes"),
    [
        ("30 2 * * *", "Europe/Berlin", True),
        ("0 2 * * *", "Europe/Berlin", True),
        ("0 3 * * *", "Europe/Berlin", False),
        ("30 2 * * 1-5", "Europe/Berlin", False),  # it changes on Sundays
        ("30 2 * * *", "UTC", False),
        ("30 2 * * *", "Asia/Tokyo", False),
        ("30 * * * *", "Europe/Berlin", False),  # in every hour there is
        ("30 */2 * * *", "Europe/Berlin", True),
        ("0 * * * *", "Australia/Lord_Howe", True),  # by half an hour
        ("0 * * 6 *", "Europe/Berlin", True),  # from June to June Airflow counts hours
        ("0 * * 6 *", "UTC", False),
        ("30 1 * * *", "America/New_York", True),
        ("0 0 * * *", "America/Santiago", True),
    ],
)
def test_schedules_at_a_change_of_the_clock_are_known(expression: str, zone: str, changes: bool) -> None:
    assert (clock_change(expression, zone) is not None) == changes


DAILY = 'schedule: {cron: "30 2 * * *", timezone: Europe/Berlin}\n'


def test_an_interval_whose_start_airflow_would_not_run_at_is_refused() -> None:
    finding = refusal(DAILY + "steps: {a: {command: [{run: interval_start}]}}")
    assert (finding.code, "02:30" in finding.message, "Europe/Berlin" in finding.message) == ("GF336", True, True)
    assert finding.hint
    # The day and the time of the run itself are true whatever the clock does.
    assert 'logical_date("%Y-%m-%d", timezone="Europe/Berlin")' in compiled(
        DAILY + "steps: {a: {command: [{run: date}]}}"
    )


def test_settings_of_the_server_do_not_change_what_a_date_means(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in ("CREATE_CRON_DATA_INTERVALS", "CREATE_DELTA_DATA_INTERVALS"):
        monkeypatch.setenv(f"AIRFLOW__SCHEDULER__{setting}", "True")
    dag = to_dag(loads(HEAD + 'schedule: {cron: "0 3 * * *", start: 2026-01-31}\nsteps: {a: {command: [x]}}'))
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    first = next(iter(stored.iter_dagrun_infos_between(None, datetime(2026, 2, 2, tzinfo=UTC))))
    assert first.logical_date == first.run_after == datetime(2026, 1, 31, 3, tzinfo=UTC)


# -- start, catch up, new data --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "written", "moment"),
    [
        ("2026-01-31", 'datetime(2026, 1, 31, tzinfo=ZoneInfo("Europe/Berlin"))', "2026-01-30T23:00:00"),
        ("2026-07-01T06:30", 'datetime(2026, 7, 1, 6, 30, tzinfo=ZoneInfo("Europe/Berlin"))', "2026-07-01T04:30:00"),
        ("2026-07-01T06:30+05:30", 'datetime.fromisoformat("2026-07-01T06:30:00+05:30")', "2026-07-01T01:00:00"),
    ],
)
def test_a_start_is_the_dags_start_date_in_the_schedules_zone(start: str, written: str, moment: str) -> None:
    body = (
        f'schedule: {{cron: "0 3 * * *", timezone: Europe/Berlin, start: "{start}", catch_up: true}}\n'
        "steps: {a: {command: [x]}}"
    )
    text = compiled(body)
    assert f"start_date={written}" in text
    assert "catchup=True" in text
    dag = to_dag(loads(HEAD + body))
    assert dag.start_date.isoformat() == f"{moment}+00:00"
    assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).catchup is True


def test_catching_up_needs_a_start() -> None:
    finding = refusal('schedule: {cron: "0 3 * * *", catch_up: true}\nsteps: {a: {command: [x]}}')
    assert "airflow does not support schedule.catch_up" in finding.message
    assert "schedule.start" in finding.hint


def test_without_a_start_there_is_none_and_nothing_is_caught_up() -> None:
    text = compiled('schedule: "0 3 * * *"\nsteps: {a: {command: [x]}}')
    assert "start_date" not in text
    assert "catchup=False" in text


@pytest.mark.parametrize(
    ("data", "written"),
    [
        ("s3://b/x", '[Asset("s3://b/x")]'),
        ("[s3://b/x, s3://b/y]", 'AssetAny(Asset("s3://b/x"), Asset("s3://b/y"))'),
    ],
)
def test_new_data_and_a_schedule_both_start_runs(data: str, written: str) -> None:
    body = f'schedule: "0 3 * * *"\non_data: {data}\nsteps: {{a: {{command: [x]}}}}'
    text = " ".join(compiled(body).split())
    times = 'CronTriggerTimetable("0 3 * * *", timezone="UTC")'
    assert f"AssetOrTimeSchedule( timetable={times}, assets={written}" in text.replace("schedule=", "")
    stored = DagSerialization.from_dict(DagSerialization.to_dict(to_dag(loads(HEAD + body))))
    assert stored.timetable.can_be_scheduled
    assert stored.timetable.asset_condition


def test_of_a_suspended_schedule_only_the_data_is_left() -> None:
    body = 'schedule: {cron: "0 3 * * *", suspended: true}\non_data: s3://b/x\nsteps: {a: {command: [x]}}'
    assert 'schedule=[Asset("s3://b/x")]' in compiled(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("on_data: s3://b/x\nsteps: {a: {command: [{run: date}]}}", ["GF334"]),
        ('on_data: s3://b/x\nschedule: "0 3 * * *"\nsteps: {a: {command: [{run: interval_start}]}}', ["GF334"]),
        ("steps: {a: {command: [{run: logical_date}]}}", ["GF334"]),
        ('schedule: "0 3 * * *"\nsteps: {a: {command: [{run: date}]}}', []),
        ("on_data: s3://b/x\nsteps: {a: {command: [{run: name}, {run: id}]}}", []),
    ],
)
def test_whoever_starts_runs_without_a_scheduled_time_is_told_what_their_dates_are(body: str, said: list[str]) -> None:
    assert codes(body) == said


# -- every place a value may stand in -------------------------------------------------------------------------------

EVERYWHERE = """
schedule: {cron: "0 3 * * *", timezone: Europe/Berlin}
steps:
  a:
    command: [x, {run: date, format: "%Y/%m/%d"}]
    args: [{join: [--run=, {run: name}]}]
    env: {START: {run: interval_start}, END: {run: interval_end, timezone: UTC}, N: {run: attempt}}
    checkpoint: {path: /kept, store: {join: ["s3://m/", {run: date}]}}
  fan:
    for_each: {n: [1, 2]}
    command: [x, {item: n}, {run: date}]
  inner:
    pipeline:
      apiVersion: gpuflow/v1
      kind: Pipeline
      name: inner
      defaults: {image: i}
      steps: {b: {command: [x, {run: logical_date}]}}
exit:
  bye: {command: [x, {run: date}]}
"""


def test_the_facts_of_a_run_stand_wherever_text_may_stand() -> None:
    text = compiled(EVERYWHERE)
    date = 'logical_date("%Y-%m-%d", timezone="Europe/Berlin")'
    assert text.count(date) == 3, "in the store of checkpoints, in the copies of a fan-out, in an exit step"
    for call in (
        'logical_date("%Y/%m/%d", timezone="Europe/Berlin")',
        'join("--run=", dag_run_id())',
        'interval_start("0 3 * * *", "Europe/Berlin")',
        '{"name": "END", "value": logical_date()}',
        "attempt()",
        'logical_date(timezone="Europe/Berlin")',
    ):
        assert call in text, call
    ast.parse(text)
    to_dag(loads(HEAD + EVERYWHERE))


def test_an_interval_without_a_schedule_is_refused() -> None:
    assert "schedule" in refusal("on_data: s3://b/x\nsteps: {a: {command: [{run: interval_start}]}}").message


OWN = (
    "engines: {airflow: {timetable: {path: airflow.timetables.interval.CronDataIntervalTimetable, "
    "arguments: {cron: 0 3 * * *, timezone: UTC}}}}\n"
)


def test_a_timetable_of_ones_own_does_not_change_what_a_date_means() -> None:
    """Airflow's logical date is then what the timetable makes it, here the start of a data interval."""
    restriction = TimeRestriction(instance(NIGHT - timedelta(days=1)), None, catchup=True)
    timetable = CronDataIntervalTimetable("0 3 * * *", timezone="UTC")
    info = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction)
    assert info is not None and info.run_after == NIGHT
    seen = {**run("scheduled", info.logical_date, info.run_after), "ti": SimpleNamespace(try_number=1)}
    body = OWN + "steps: {a: {command: [{run: date}]}}"
    dag = to_dag(loads(HEAD + body))
    assert dag.get_task("a").template.resolve(seen)["spec"]["containers"][0]["command"] == ["2026-11-14"]
    namespace: dict[str, Any] = {}
    exec(compile(compiled(body, standalone=True), "p.py", "exec"), namespace)
    alone = namespace["dag"].get_task("a")
    alone.render_template_fields(seen, namespace["dag"].get_template_env())
    assert alone.pod_template_dict["spec"]["containers"][0]["command"] == ["2026-11-14"]


def test_gpuflow_cannot_count_back_in_a_timetable_of_ones_own() -> None:
    finding = refusal(OWN + "steps: {a: {command: [{run: interval_start}]}}")
    assert (finding.code, "interval_start" in finding.message) == ("GF301", True)


# -- a step in a DAG of one's own -----------------------------------------------------------------------------------


def test_a_step_in_a_hand_written_dag_knows_its_run() -> None:
    date = {"run": "date", "timezone": "Asia/Tokyo"}
    step = Step(image="i", command=["x", date, {"run": "name"}, {"param": "since"}])
    with DAG("own"):
        train = task(step, task_id="train", since=interval_start("0 3 * * *"))
    seen = run("scheduled", NIGHT, NIGHT)
    command = train.template.resolve(seen)["spec"]["containers"][0]["command"]
    assert command == ["x", "2026-11-14", "r", "2026-11-13T03:00:00+00:00"]


def test_a_step_on_its_own_has_no_schedule_and_says_how_to_give_it_an_interval() -> None:
    with DAG("own"), pytest.raises(GpuflowError) as refused:
        task(Step(image="i", command=["x", {"run": "interval_start"}]), task_id="train")
    (finding,) = refused.value.findings
    assert "interval_start(" in finding.hint


# -- without gpuflow ------------------------------------------------------------------------------------------------

WORDS = [*DIRECTIVES, "/", " ", "%%:z", "$(HOME)", '"', "\\", "ä", "{", "}}", ":z"]
FORMS = st.lists(st.sampled_from(WORDS), min_size=1)


@settings(max_examples=80, deadline=None)
@given(
    FORMS.map("".join),
    st.sampled_from(ZONES),
    st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)),
    st.sampled_from(list(DagRunType)),
    st.booleans(),
)
def test_a_template_of_the_stock_operator_gives_the_same_text(
    form: str, zone: str, moment: datetime, kind: DagRunType, is_given: bool
) -> None:
    at = moment.replace(tzinfo=UTC, microsecond=0)
    expression = jinja_fact(Call("logical_date", (form,), {"timezone": zone}))
    context = run(kind, at - timedelta(days=1) if is_given else None, at)
    made = Environment().from_string(f"{{{{ {expression} }}}}").render(context, ZoneInfo=ZoneInfo)
    assert made == format_date(scheduled_time(context).astimezone(ZoneInfo(zone)), form)


def test_a_standalone_dag_knows_its_run_without_gpuflow() -> None:
    body = (
        'schedule: {cron: "0 3 * * *", timezone: Europe/Berlin}\n'
        "steps: {a: {command: [x, {run: date}, {run: logical_date}, {run: name}, {run: attempt}]}}"
    )
    text = compiled(body, standalone=True)
    assert "gpuflow.airflow" not in text
    assert "from zoneinfo import ZoneInfo" in text
    assert 'user_defined_macros={"ZoneInfo": ZoneInfo}' in text
    namespace: dict[str, Any] = {}
    exec(compile(text, "p.py", "exec"), namespace)
    operator = namespace["dag"].get_task("a")
    context = {**run("manual", NIGHT, SIX), "ti": SimpleNamespace(try_number=2)}
    operator.render_template_fields(context, namespace["dag"].get_template_env())
    command = operator.pod_template_dict["spec"]["containers"][0]["command"]
    assert command == ["x", "2026-11-14", "2026-11-14T04:00:00+01:00", "r", "2"]


def test_a_standalone_dag_cannot_know_the_scheduled_time_before() -> None:
    body = 'schedule: "0 3 * * *"\nsteps: {a: {command: [x, {run: interval_start}]}}'
    assert "airflow --standalone does not support run.interval_start" in refusal(body, standalone=True).message
