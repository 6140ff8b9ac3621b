"""What the page of a task shows: its rendered fields, its links, and why it waits.

Tests gpuflow/airflow/links.py, gpuflow/airflow/pod_status.py and gpuflow/airflow/trigger.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk import DAG
from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields
from airflow.serialization.serialized_objects import DagSerialization

from gpuflow import Step
from gpuflow.airflow import GpuPodOperator, Pod, param, task, to_dag
from gpuflow.airflow.links import PatternLink, fill_pattern
from gpuflow.airflow.trigger import NOTE_PREFIX, TaskNotes, api_address
from gpuflow.site import Site

from .playing import Stage
from .stand_in import StandIn, quota_words

QUEUE = "kueue.x-k8s.io/queue-name"
MAIN = {
    "name": "main",
    "image": "registry.example.com/train:1",
    "command": ["train", "{{ ds }}", param("lr")],
    "args": ["--x"],
    "env": [{"name": "A", "value": "{% raw %}"}, {"name": "DB_PASSWORD", "value": "hunter2-hunter2"}],
    "resources": {"limits": {"nvidia.com/gpu": "1"}},
}
POD = Pod({"labels": {QUEUE: "research"}}, spec={"nodeSelector": {"gpu": "a"}, "containers": [MAIN]})
LINKS = {
    "Pod": "https://k8s.example.com/{namespace}/{pod}",
    "Queue": "https://kueue.example.com/{namespace}/{queue}",
}


def operator(**arguments: Any) -> Any:
    with DAG(dag_id="d"):
        return GpuPodOperator(**{"task_id": "t", "namespace": "ml", "template": POD, **arguments})


def shown(made: Any) -> dict[str, Any]:
    made.render_template_fields(Stage(params={"lr": 0.1}).context(made))
    fields: dict[str, Any] = _serialize_rendered_fields(made)
    return fields


def test_rendered_fields_have_the_names_and_values_of_the_stock_operator() -> None:
    fields = shown(operator())
    assert fields["image"] == "registry.example.com/train:1"
    assert fields["cmds"] == ["train", "{{ ds }}", "0.1"], "text is shown as it is, and references with their value"
    assert fields["arguments"] == ["--x"]
    assert fields["env_vars"] == [{"name": "A", "value": "{% raw %}"}, {"name": "DB_PASSWORD", "value": "***"}]
    assert fields["namespace"] == "ml"
    assert fields["container_resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    assert fields["node_selector"] == {"gpu": "a"}
    assert fields["labels"] == {QUEUE: "research"}
    assert "volumes" not in fields, "what the pod does not have is left out"
    assert list(fields)[-1] == "template", "the whole pod is long, and comes after what people look for"


def test_a_mapped_task_shows_its_fields_too() -> None:
    with DAG(dag_id="d") as dag:
        GpuPodOperator.partial(task_id="t", namespace="ml", template=POD).expand(item=[{"n": 1}])
    made = dag.get_task("t").unmap({"item": {"n": 1}})
    assert shown(made)["image"] == "registry.example.com/train:1"


def test_what_is_shown_is_not_added_to_the_pod_a_second_time(server: StandIn, maker: Callable[..., Any]) -> None:
    made = maker(template=POD)()
    before = {name: getattr(made, name) for name in ("image", "cmds", "env_vars", "labels", "template_fields")}
    stage = Stage(params={"lr": 0.1})
    context = stage.context(made)
    made.render_template_fields(context)
    assert made.image == "registry.example.com/train:1"
    with pytest.raises(TaskDeferred):
        made.execute(context)
    assert {name: getattr(made, name) for name in before} == before
    (pod,) = server.made
    env = pod["spec"]["containers"][0]["env"]
    assert [each["name"] for each in env] == ["A", "DB_PASSWORD"]
    assert env[1]["value"] == "hunter2-hunter2"


def test_the_stored_dag_is_not_longer_for_it() -> None:
    with DAG(dag_id="d") as dag:
        GpuPodOperator(task_id="t", namespace="ml", template=POD)
    (stored,) = DagSerialization.to_dict(dag)["dag"]["tasks"]
    assert stored["__var"]["template_fields"] == ["template"]


def test_links_lead_to_the_pod_from_when_it_is_made(maker: Callable[..., Any]) -> None:
    made = maker(template=POD, links=LINKS)()
    context = Stage(params={"lr": 0.1}).context(made)
    made.render_template_fields(context)
    source, pod, queue = made.operator_extra_links
    assert (source.name, pod.name, queue.name) == ("Pipeline source", "Pod", "Queue")
    assert pod.get_link(made, ti_key=context["ti"]) == "", "there is no pod yet"
    assert queue.get_link(made, ti_key=context["ti"]) == "https://kueue.example.com/ml/research"
    with pytest.raises(TaskDeferred):
        made.execute(context)
    assert pod.get_link(made, ti_key=context["ti"]).startswith("https://k8s.example.com/ml/finetune-train-")


def test_a_task_that_waits_for_quota_has_no_link_to_a_pod_that_is_not_there(
    server: StandIn, maker: Callable[..., Any]
) -> None:
    server.refuse("POST .*/pods", 403, quota_words("1", "8", "8"))
    made = maker(template=POD, links=LINKS)()
    context = Stage(params={"lr": 0.1}).context(made)
    with pytest.raises(TaskDeferred):
        made.execute(context)
    assert made.operator_extra_links[1].get_link(made, ti_key=context["ti"]) == ""


def test_links_are_stored_by_name_also_of_a_mapped_task() -> None:
    with DAG(dag_id="d") as dag:
        GpuPodOperator(task_id="one", namespace="ml", template=POD, links=LINKS)
        GpuPodOperator.partial(task_id="many", namespace="ml", template=POD, links=LINKS).expand(item=[{"n": 1}])
    for stored in DagSerialization.to_dict(dag)["dag"]["tasks"]:
        assert set(stored["__var"]["_operator_extra_links"]) == {"Pipeline source", "Pod", "Queue"}
    assert len({PatternLink(name, "").xcom_key for name in LINKS}) == 2


def test_values_in_a_link_are_quoted() -> None:
    values = {"run_id": "manual__2026-11-14T10:00:00+00:00/x", "pod": "p", "map_index": 0}
    assert fill_pattern("https://x.example.com/?r={run_id}&p={pod}&i={map_index}", values) == (
        "https://x.example.com/?r=manual__2026-11-14T10%3A00%3A00%2B00%3A00%2Fx&p=p&i=0"
    )


def site(tmp_path: Path) -> Site:
    path = tmp_path / "site.yaml"
    links = "".join(f'      {name}: "{pattern}"\n' for name, pattern in LINKS.items())
    head = "apiVersion: gpuflow/v1\nkind: Site\nextends: nvidia\nname: here\nnamespace: ml\n"
    path.write_text(f"{head}engines:\n  airflow:\n    links:\n{links}")
    return Site.load(str(path))


def test_links_of_the_site_reach_every_task_of_a_dag(tmp_path: Path) -> None:
    text = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps: {a: {image: i, command: [x]}}\n"
    (tmp_path / "p.yaml").write_text(text)
    dag = to_dag(tmp_path / "p.yaml", site(tmp_path))
    assert dag.get_task("a").links == LINKS
    with DAG(dag_id="d"):
        alone = task(Step(image="i", command=["x"]), site(tmp_path), task_id="t")
    assert alone.links == LINKS


class Api:
    """Airflow's public API as far as a note needs it, on a port of its own."""

    def __init__(self) -> None:
        self.note: str | None = None
        self.asked: list[tuple[str, str]] = []
        self.tokens = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self, status: int, body: Any) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def _body(self) -> Any:
                return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")

            def do_POST(self) -> None:
                good = self._body() == {"username": "ann", "password": "pw"}
                outer.tokens += 1
                self._answer(201 if good else 401, {"access_token": f"t{outer.tokens}"})

            def do_GET(self) -> None:
                outer.asked.append(("GET", self.path))
                good = self.headers["Authorization"] == f"Bearer t{outer.tokens}"
                self._answer(200 if good else 401, {"note": outer.note})

            def do_PATCH(self) -> None:
                outer.asked.append(("PATCH", self.path))
                outer.note = self._body()["note"]
                self._answer(200, {})

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    found = Api()
    uri = f"http://ann:pw@127.0.0.1:{found.server.server_port}"
    monkeypatch.setenv("AIRFLOW_CONN_AIRFLOW_API", uri)
    monkeypatch.setenv("AIRFLOW__GPUFLOW__NOTES_CONNECTION", "airflow_api")
    yield found
    found.server.shutdown()
    found.server.server_close()


TASK = {"dag_id": "d", "task_id": "train", "run_id": "manual__1+2", "map_index": -1}


def test_with_a_connection_the_note_says_why_a_task_waits(api: Api) -> None:
    notes = TaskNotes(TASK, logging.getLogger("test"))

    async def both() -> None:
        await notes.show("waiting in queue research")
        api.tokens += 1  # the token is too old now
        await notes.show("number 2 in it")

    asyncio.run(both())
    assert api.note == "gpuflow: number 2 in it"
    assert api.asked[1] == ("PATCH", "/api/v2/dags/d/dagRuns/manual__1%2B2/taskInstances/train?update_mask=note")


def test_a_note_that_somebody_wrote_stays(api: Api) -> None:
    api.note = "Ann looks at it"
    asyncio.run(TaskNotes(TASK, logging.getLogger("test")).show("waiting"))
    assert api.note == "Ann looks at it"


def test_a_mapped_task_has_a_note_of_its_own_and_a_long_one_is_cut(api: Api) -> None:
    asyncio.run(TaskNotes({**TASK, "map_index": 3}, logging.getLogger("test")).show("w" * 5000))
    assert "/taskInstances/train/3?" in api.asked[-1][1]
    assert api.note is not None
    assert len(api.note) == 1000
    assert api.note.startswith(NOTE_PREFIX)


def test_an_api_that_refuses_costs_a_line_and_is_not_asked_again(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_AIRFLOW_API", f"http://bob:pw@127.0.0.1:{api.server.server_port}")
    notes = TaskNotes(TASK, logging.getLogger("test"))

    async def twice() -> None:
        await notes.show("waiting")
        await notes.show("still waiting")

    with caplog.at_level(logging.WARNING, "test"):
        asyncio.run(twice())
    (line,) = (record.getMessage() for record in caplog.records if "note" in record.getMessage())
    assert "Airflow's API gives bob no token: 401" in line
    assert api.tokens == 1


@pytest.mark.parametrize(
    ("host", "schema", "port", "url"),
    [
        ("airflow.example.com", None, None, "http://airflow.example.com"),
        ("airflow.example.com", "https", 8443, "https://airflow.example.com:8443"),
        ("https://airflow.example.com/team/", None, None, "https://airflow.example.com/team"),
    ],
)
def test_an_address_is_read_from_any_http_connection(host: str, schema: str | None, port: int | None, url: str) -> None:
    assert api_address(SimpleNamespace(host=host, schema=schema, port=port)) == url
