"""Airflow's own words on a real Airflow: the compiled DAG loads, is stored, and has them."""

from __future__ import annotations

import asyncio
import json
import re
import runpy
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import DAG, Asset, timezone
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.interval import CronDataIntervalTimetable
from hypothesis import given
from hypothesis import strategies as st

from gpuflow import Step
from gpuflow.airflow import task, to_dag
from gpuflow.airflow.trigger import GpuPodTrigger
from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.engine_options.airflow import ROLES, AirflowDag, AirflowTask
from gpuflow.spec.loading import loads
from gpuflow.targets.airflow.engine_options import asset_refusals
from gpuflow.targets.target import Request

from .test_airflow_compile import compiled

HERE = Path(__file__).parent
HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nlabels: {team: nlp}\ndefaults: {image: i}\n"
STEP = "steps: {a: {command: [x]}}\n"
pytestmark = pytest.mark.filterwarnings("ignore")  # Airflow warns about email and access_control, which it still takes


def run(text: str, tmp_path: Path) -> Any:
    """The DAG of a file."""
    file = tmp_path / "p.py"
    file.write_text(text)
    return runpy.run_path(str(file))["dag"]


@pytest.fixture(scope="module")
def words() -> Any:
    """The golden DAG that has most words."""
    return runpy.run_path(str(HERE / "golden" / "words.py"))["dag"]


@pytest.fixture(scope="module")
def kept(words: Any) -> Any:
    """The same as the scheduler reads it back from the database."""
    return DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(words))))


def test_the_dag_has_the_pipelines_words(words: Any, kept: Any) -> None:
    for dag in (words, kept):
        assert dag.owner_links == {"nlp": "https://wiki.example.com/nlp"}
        assert set(dag.tags) == {"gpuflow", "nightly"}
        assert dag.doc_md == "# Nightly\n\nRead *this* first.\n"
        assert dag.dag_display_name == "Every night"
        assert dag.end_date == datetime(2035, 1, 31, 17, 0, tzinfo=UTC), "18:00 in Berlin"
        assert (dag.max_active_runs, dag.max_consecutive_failed_dag_runs) == (3, 5)
        assert dag.access_control == {"Viewer": {"DAGs": {"can_read"}}, "Op": {"DAGs": ["can_edit"]}}
        assert (dag.is_paused_upon_creation, dag.disable_bundle_versioning) == (False, True)
        assert dag.has_on_failure_callback and dag.has_on_success_callback
    assert words.on_success_callback == [timezone.coerce_datetime]
    page, mail = words.on_failure_callback
    assert page is timezone.utcnow
    assert isinstance(mail, SmtpNotifier)
    assert (mail.to, mail.subject) == ("nlp@example.com", "{{ dag.dag_id }}")


def test_a_task_has_its_steps_words(words: Any, kept: Any) -> None:
    for made in (words.get_task("utcnow"), kept.get_task("utcnow")):
        assert made.owner == "ops"
        assert made.task_display_name == "The first"
        assert (made.pool, made.pool_slots, made.queue) == ("gpus", 2, "fast")
        assert (made.depends_on_past, made.wait_for_downstream, made.max_active_tis_per_dag) == (True, True, 4)
        assert [asset.uri for asset in made.outlets] == ["s3://models/one", "s3://models/two"]
        assert [asset.uri for asset in made.inlets] == ["s3://data/in"]
        assert made.doc_md == "What this *step* does"
    made = words.get_task("utcnow")
    assert made.priority_weight == 2
    assert (
        made.on_success_callback == made.on_execute_callback == made.on_skipped_callback == [timezone.coerce_datetime]
    )
    assert made.on_retry_callback == [timezone.coerce_datetime], "from default_args"
    assert isinstance(made.on_failure_callback[0], SmtpNotifier)
    assert (made.email, made.email_on_failure, made.email_on_retry) == (["nlp@example.com"], False, False)
    assert (made.startup_timeout_seconds, made.deferrable, made.poll_interval, made.logging_interval) == (
        900,
        False,
        3,
        10,
    )
    assert (made.on_finish_action.value, made.on_kill_action.value) == ("keep_pod", "keep_pod")
    assert made.container_logs == ["main", "proxy"]


def test_words_for_all_tasks_reach_every_task_and_a_steps_own_say_more(words: Any) -> None:
    pods = [words.get_task("utcnow"), words.get_task("each").unmap({"item": {"seed": 1}})]
    claims = [words.get_task("claim-scratch"), words.get_task("delete-claim-scratch")]
    assert {made.kubernetes_conn_id for made in (*pods, *claims)} == {"second"}
    assert [made.log_events_on_failure for made in pods] == [True, True]
    assert {made.owner for made in words.tasks if made.task_id != "utcnow"} == {"nlp"}
    assert words.get_task("outcome").priority_weight == 2
    assert (pods[1].priority_weight, pods[1].on_finish_action.value) == (9, "delete_pod")
    assert (pods[1].doc_md, words.get_task("ask").pool) == ("# Own words", "people")


VALUES: dict[str, Any] = {
    "executor": "LocalExecutor", "in_cluster": True, "cluster_context": "c", "config_file": "/k", "inlets": ["s3://b/i"],
    "on_finish_action": "keep_pod", "on_kill_action": "keep_pod", "weight_rule": "upstream", "container_logs": True,
    "email": ["a@example.com"], "outlets": ["s3://b/o"],
}  # fmt: skip


DAG_VALUES: dict[str, Any] = {
    "owner_links": {"me": "https://example.com"}, "tags": ["more"], "end_date": "2030-01-01",
    "timetable": {
        "path": "airflow.timetables.interval.CronDataIntervalTimetable",
        "arguments": {"cron": "0 1 * * *", "timezone": "UTC"},
    },
    "access_control": {"Viewer": ["can_read"]}, "default_args": {"pool": "words"},
}  # fmt: skip


def _value(name: str, kind: str) -> Any:
    if name in VALUES | DAG_VALUES:
        return (VALUES | DAG_VALUES)[name]
    if name.endswith("_callback"):
        return ["logging.info"]
    return True if "bool" in kind else 3 if "int" in kind else "words"


@pytest.mark.parametrize("place", ["step", "default_args"])
def test_every_word_of_a_task_is_an_argument_of_airflows_operator(place: str, tmp_path: Path) -> None:
    """A word that is in the model and in no file would be dropped in silence."""
    fields = {name: field for name, field in AirflowTask.model_fields.items() if name not in ROLES}  # not arguments
    words = {name: _value(name, str(field.annotation)) for name, field in fields.items()}
    own = f", engines: {json.dumps({'airflow': words})}" if place == "step" else ""
    whole = "" if own else f"engines: {json.dumps({'airflow': {'default_args': words}})}\n"
    made = run(compiled(loads(f"{HEAD}{whole}steps: {{a: {{command: [x]{own}}}}}\n")), tmp_path).get_task("a")
    bare = run(compiled(loads(HEAD + STEP)), tmp_path).get_task("a")
    as_before = sorted(name for name in words if getattr(made, name) == getattr(bare, name))
    assert as_before == ["deferrable", "email_on_failure", "email_on_retry"], "these are Airflow's defaults"


def test_every_word_of_a_dag_changes_the_dag(tmp_path: Path) -> None:
    words = {name: _value(name, str(field.annotation)) for name, field in AirflowDag.model_fields.items()}

    def dag(words: dict[str, Any]) -> Any:
        text = compiled(loads(f"{HEAD}engines: {json.dumps({'airflow': words})}\n{STEP}"))
        return json.loads(json.dumps(DagSerialization.to_dict(run(text, tmp_path))))["dag"]

    whole = dag(words)
    unheard = [name for name in words if dag({key: value for key, value in words.items() if key != name}) == whole]
    assert unheard == []


def test_owner_and_tags_come_from_labels_when_nothing_is_said(tmp_path: Path) -> None:
    dag = run(compiled(loads(HEAD + STEP)), tmp_path)
    assert (dag.owner, dag.tags) == ("nlp", {"gpuflow", "team=nlp"})
    both = run(compiled(loads(HEAD.replace("{team", "{owner: ada, team") + STEP)), tmp_path)
    assert both.owner == "ada"
    said = run(compiled(loads(HEAD + "engines: {airflow: {owner: me, tags: [a]}}\n" + STEP)), tmp_path)
    assert (said.owner, said.tags) == ("me", {"gpuflow", "team=nlp", "a"})
    bare = run(compiled(loads(HEAD.replace("labels: {team: nlp}\n", "") + STEP)), tmp_path)
    assert bare.owner == "airflow", "Airflow's own default"
    inside = HEAD.replace("labels: {team: nlp}\n", "").replace("{image: i}", "{image: i, labels: {team: nlp}}")
    usual = run(compiled(loads(inside + STEP)), tmp_path)
    assert (usual.owner, usual.tags) == ("nlp", {"gpuflow", "team=nlp"})


def test_a_label_that_is_too_long_for_a_tag_does_not_keep_airflow_from_loading_the_dag(tmp_path: Path) -> None:
    label = f"{'a' * 60}.example.com/{'b' * 60}"
    (tag,) = run(compiled(loads(HEAD.replace("team", label) + STEP)), tmp_path).tags - {"gpuflow"}
    assert len(tag) == 100
    assert tag.startswith("aaa")


def test_a_timetable_of_ones_own_starts_the_runs_one_at_a_time(tmp_path: Path) -> None:
    words = (
        "{path: airflow.timetables.interval.CronDataIntervalTimetable, arguments: {cron: '0 1 * * *', timezone: UTC}}"
    )
    dag = run(compiled(loads(f"{HEAD}engines: {{airflow: {{timetable: {words}}}}}\n{STEP}")), tmp_path)
    assert isinstance(dag.timetable, CronDataIntervalTimetable)
    assert dag.max_active_runs == 1
    with pytest.raises(GpuflowError, match='the parameter "n" has no default'):
        compiled(loads(f"{HEAD}params: {{n: {{type: int}}}}\nengines: {{airflow: {{timetable: {words}}}}}\n{STEP}"))


def test_imports_keep_their_names_unless_the_file_has_them_already() -> None:
    text = compiled(
        loads(
            HEAD + "engines: {airflow: {on_failure_callback: [company.alerts.page, other.page, a.DAG, a.b.LABELS]}}\n"
            "steps: {page: {command: [x]}}\n"
        )
    )
    assert "from company.alerts import page as company_alerts_page\n" in text
    assert "from other import page as other_page\n" in text
    assert "from a import DAG as a_dag\n" in text
    assert "on_failure_callback=[company_alerts_page, other_page, a_dag, a_b_labels]" in text
    plain = compiled(loads(f"{HEAD}engines: {{airflow: {{on_failure_callback: company.alerts.page}}}}\n{STEP}"))
    assert "\n\nfrom company.alerts import page\n\n" in plain


def test_a_standalone_dag_has_the_words_too(tmp_path: Path) -> None:
    text = (HERE / "cases" / "words.yaml").read_text()
    for line in ("claims: {scratch: {size: 1Gi}}", "    volumes: {/scratch: {new_claim: scratch}}"):
        text = text.replace(line + "\n", "")
    with pytest.raises(GpuflowError, match=r"does not support engines.airflow.container_logs \(step \"utcnow\"\)"):
        compiled(loads(text), standalone=True)
    dag = run(compiled(loads(text.replace("container_logs: [main, proxy]", "executor: X")), standalone=True), tmp_path)
    made = dag.get_task("utcnow")
    assert type(made).__name__ == "KubernetesPodOperator"
    assert (made.pool, made.startup_timeout_seconds, made.deferrable, made.executor) == ("gpus", 900, False, "X")
    assert (made.on_finish_action.value, made.kubernetes_conn_id) == ("keep_pod", "second")
    assert dag.get_task("ask").pool == "people"
    all_tasks = loads(f"{HEAD}engines: {{airflow: {{default_args: {{on_finish_action: keep_pod}}}}}}\n{STEP}")
    assert run(compiled(all_tasks, standalone=True), tmp_path).get_task("a").on_finish_action.value == "keep_pod"


def test_words_about_pods_are_refused_where_there_is_no_pod_or_no_such_container() -> None:
    asked = HEAD + "steps: {a: {command: [x]}, b: {approval: go, needs: [a], engines: {airflow: {%s}}}}\n"
    compiled(loads(asked % "pool: p"))
    with pytest.raises(GpuflowError, match=r"GF355.*is an approval, and container_logs of Airflow is about pods"):
        compiled(loads(asked % "container_logs: true"))
    with pytest.raises(GpuflowError, match=r'GF355.*has no container "proxy"'):
        compiled(loads(HEAD + "steps: {a: {command: [x], engines: {airflow: {container_logs: proxy}}}}\n"))


def test_volumes_and_limits_of_a_run_are_kept_in_one_cluster() -> None:
    text = HEAD + "parallel: 2\nsteps: {a: {command: [x], engines: {airflow: {kubernetes_conn_id: second}}}}\n"
    with pytest.raises(GpuflowError, match=r"GF355.*another cluster than the pipeline.s, and parallel"):
        compiled(loads(text))
    compiled(loads(f"engines: {{airflow: {{default_args: {{kubernetes_conn_id: second}}}}}}\n{text}"))


def test_to_dag_takes_dag_arguments_through_the_same_model() -> None:
    def page(context: Any) -> None: ...

    path = HERE / "cases" / "words.yaml"
    dag = to_dag(
        path, namespace="ml", owner="me", tags={"x"}, end_date=datetime(2031, 1, 1, tzinfo=UTC), max_active_runs=2,
        on_failure_callback=page, on_success_callback=["logging.info", page],
        default_args={"pool": "mine", "on_retry_callback": page},
    )  # fmt: skip
    assert dag.tags == {"gpuflow", "x"}
    assert (dag.end_date, dag.max_active_runs) == (datetime(2031, 1, 1, tzinfo=UTC), 2)
    assert dag.on_failure_callback == [page]
    assert dag.on_success_callback[1:] == [page]
    assert (dag.default_args["pool"], dag.default_args["owner"]) == ("mine", "me")
    assert dag.default_args["kubernetes_conn_id"] == "second", "what is not overruled stays"
    assert dag.get_task("each").partial_kwargs["on_retry_callback"] == [page]
    by_object = to_dag(loads(HEAD + STEP), timetable=CronDataIntervalTimetable("0 1 * * *", timezone="UTC"))
    assert isinstance(by_object.timetable, CronDataIntervalTimetable)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"catchup": True}, "GF351.*catch_up: true"),
        ({"default_args": {"retries": 3}}, "GF351.*default_args.retries"),
        ({"ownr": "me"}, 'did you mean "owner"'),
        ({"max_active_runs": 2}, "GF353.*concurrency: forbid"),
        ({"timetable": CronDataIntervalTimetable("0 1 * * *", timezone="UTC")}, "GF354"),
    ],
)
def test_to_dag_refuses_what_a_pipeline_may_not_say(arguments: dict[str, Any], words: str) -> None:
    pipeline = loads(HEAD + 'schedule: "0 3 * * *"\n' + STEP)
    with pytest.raises(GpuflowError) as refusal:
        to_dag(pipeline, **arguments)
    assert re.search(words, str(refusal.value), re.DOTALL)
    assert str(refusal.value).startswith(__file__), "it names the line of the DAG file"


def test_a_step_in_a_dag_of_ones_own_has_its_words() -> None:
    step = Step(image="i", command=["x"], engines={"airflow": {"pool": "gpus", "owner": "me"}})
    with DAG(dag_id="d"):
        made = task(step, airflow={"pool": "other"})
    assert (made.owner, made.pool) == ("me", "other")


# -- what the operator does with them ------------------------------------------------------------------------------


class Logs:
    """An API server that only has logs."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def read_namespaced_pod_log(self, name: str, namespace: str, *, container: str, **_: Any) -> Any:
        self.asked.append(container)

        async def read() -> bytes:
            return f"2027-01-01T00:00:0{len(self.asked)}Z words of {container}\n".encode()

        return SimpleNamespace(read=read, status=200)


def test_logs_of_other_containers_are_copied_into_the_tasks_log(
    maker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, lines = maker(container_logs=["main", "proxy"])(), list[str]()
    assert made._other_containers() == ["proxy"]
    trigger = GpuPodTrigger(pod_name="p", pod_namespace="ml", wait_for="end", other_logs={"proxy": ""})
    monkeypatch.setattr(GpuPodTrigger, "log", SimpleNamespace(info=lambda *words: lines.append(words[0] % words[1:])))
    asyncio.run(trigger._copy_logs(Logs()))
    assert lines == ["[main] words of main", "[proxy] words of proxy"]
    _, arguments = trigger.serialize()
    assert arguments["other_logs"] == {"proxy": "2027-01-01T00:00:02Z"}, "another triggerer goes on from there"
    assert trigger._log_position["other_logs"] == arguments["other_logs"]


def test_how_far_the_program_is_stands_on_the_tasks_page_until_the_next_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trigger, shown = GpuPodTrigger(pod_name="p", pod_namespace="ml", wait_for="end"), list[str]()
    monkeypatch.setattr(GpuPodTrigger, "log", SimpleNamespace(info=lambda *words: None))

    async def show(sentence: str) -> None:
        shown.append(sentence)

    monkeypatch.setattr(trigger, "_notes", SimpleNamespace(show=show))
    written = ["gpuflow-run: progress 1 of 9", "loss", "gpuflow-run: progress 2 of 9, loss=0.3", "x" * 5000]

    class Written:
        async def read_namespaced_pod_log(self, *_: Any, **__: Any) -> Any:
            async def read() -> bytes:
                return "".join(f"2027-01-01T00:00:0{at}Z {line}\n" for at, line in enumerate(written)).encode()

            return SimpleNamespace(read=read, status=200)

    async def rounds() -> None:
        await trigger._report("running on gpu-1")
        await trigger._copy_logs(Written())
        await trigger._copy_logs(Written())
        await trigger._report("running on gpu-1")
        written.append(f"gpuflow-run: progress {'9' * 5000}")
        await trigger._copy_logs(Written())
        await trigger._report("ended on gpu-1 with exit code 0")

    asyncio.run(rounds())
    assert shown[:2] == ["running on gpu-1", "running on gpu-1; progress 2 of 9, loss=0.3"]
    assert len(shown) == 4 and len(shown[2]) < 1100 and shown[3] == "ended on gpu-1 with exit code 0"


def test_events_of_a_failed_pod_are_logged_where_that_is_wanted(
    maker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, lines = maker(log_events_on_failure=True)(), list[str]()
    events = [SimpleNamespace(reason="FailedMount", message="no such volume")]
    made.__dict__["client"] = SimpleNamespace(list_namespaced_event=lambda *_, **__: SimpleNamespace(items=events))
    monkeypatch.setattr(type(made), "log", SimpleNamespace(info=lambda *words: lines.append(words[0] % words[1:])))
    made._log_events({"metadata": {"name": "p", "namespace": "ml"}})
    assert lines == ["event of pod p: FailedMount: no such volume"]


SCHEMES = st.sampled_from(["", "s3://", "airflow://", "gs:", "http://[", "AIRFLOW://x"])


@given(st.tuples(SCHEMES, st.text(" a/[]:?#@%é", max_size=8)).map("".join) | st.sampled_from(["x" * 1500, "x" * 1501]))
def test_what_airflow_takes_for_no_asset_is_refused_by_name(uri: str) -> None:
    pipeline = loads(f"{HEAD}on_data: [{json.dumps(uri)}]\n{STEP}", "p.yaml")
    found = list(asset_refusals(Request(pipeline, Site.load("nvidia"), None, "p.yaml")))
    try:
        Asset(uri)
    except ValueError:
        (finding,) = found
        assert (finding.code, finding.where.line) == ("GF355", 6)
        assert finding.message.startswith("on_data: ") and finding.instead
    else:
        assert found == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("engines: {airflow: {default_args: {inlets: [' ']}}}\nsteps: {a: {command: [x]}}", "' ' is not the URI"),
        ("steps: {a: {command: [x], engines: {airflow: {outlets: ['airflow://x']}}}}", 'step "a": Airflow keeps'),
        (
            "steps: {a: {command: [x], outputs: {o: {type: file, uri: 's3://[x/y'}}}}",
            'step "a": the uri of an output: ',
        ),
    ],
)
def test_so_it_is_wherever_a_location_becomes_an_asset(words: str, said: str) -> None:
    with pytest.raises(GpuflowError) as refusal:
        compiled(loads(HEAD + words, "p.yaml"))
    (finding,) = refusal.value.findings
    assert (finding.code, finding.where.line) == ("GF355", 6) and finding.message.startswith(said)
