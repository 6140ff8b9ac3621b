"""Finding 8: two Airflows that share a store, or a namespace, give equal ids to their runs and must never meet.

Tests gpuflow/airflow/run_names.py.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, TaskDeferred
from airflow.sdk import Variable
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import supervisor, task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, GetVariable, PutVariable, VariableResult

from gpuflow.airflow import references
from gpuflow.airflow.run_names import deployment, run_name

from .home import Home
from .playing import Stage
from .stand_in import GOOD, StandIn, ended, running

PIPELINE = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: nightly
defaults: {image: i}
steps:
  train: {command: [train, {run: id}], outputs: {}, retry: {failures: 1}}
"""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    references._run_name.cache_clear()
    yield
    references._run_name.cache_clear()


class ApiServer:
    """Airflow's API server as a task sees it, with the Variables of one deployment."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}
        self.out_of_reach = False
        self.written: list[str] = []

    def send(self, message: Any) -> Any:
        if self.out_of_reach and isinstance(message, GetVariable):
            return ErrorResponse(error=ErrorType.API_SERVER_ERROR)
        if isinstance(message, GetVariable):
            if message.key in self.variables:
                return VariableResult(key=message.key, value=self.variables[message.key])
            return ErrorResponse(error=ErrorType.VARIABLE_NOT_FOUND)
        assert isinstance(message, PutVariable)
        assert message.value is not None
        self.written.append(message.value)
        self.variables[message.key] = message.value
        return None


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[ApiServer], None]:
    """`asked(server)`: the tasks from here on run in this server's Airflow, where nothing is configured."""
    monkeypatch.delenv("AIRFLOW__GPUFLOW__DEPLOYMENT", raising=False)
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    def of(server: ApiServer) -> None:
        references._run_name.cache_clear()
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", server, raising=False)

    return of


def test_two_airflows_name_the_same_run_differently_and_each_always_alike(asked: Callable[[ApiServer], None]) -> None:
    staging, production = ApiServer(), ApiServer()
    names = []
    for server in (staging, production, staging, production):
        asked(server)
        names.append(run_name("nightly", "scheduled__2026-11-14T00:00:00+00:00"))
    assert names[0] == names[2] != names[1] == names[3]
    assert len(staging.written) == len(production.written) == 1


def test_an_api_server_out_of_reach_never_gives_an_airflow_a_second_id(asked: Callable[[ApiServer], None]) -> None:
    server = ApiServer()
    asked(server)
    before = deployment()
    server.out_of_reach = True
    with pytest.raises(AirflowException, match="cannot be read now: try again, or set"):
        deployment()
    assert server.written == [before]
    server.out_of_reach = False
    assert deployment() == before


def test_of_two_first_tasks_at_once_the_last_to_write_decides_for_both(
    asked: Callable[[ApiServer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ApiServer()
    asked(server)
    monkeypatch.setattr("time.sleep", lambda seconds: Variable.set("gpuflow_deployment", "the-other-task"))
    assert deployment() == "the-other-task"


def test_the_setting_wins_and_asks_nobody(asked: Callable[[ApiServer], None], monkeypatch: pytest.MonkeyPatch) -> None:
    server = ApiServer()
    asked(server)
    monkeypatch.setenv("AIRFLOW__GPUFLOW__DEPLOYMENT", "production")
    assert deployment() == "production"
    assert not server.variables


def test_two_airflows_in_one_namespace_never_take_over_each_others_pods(
    server: StandIn, maker: Callable[..., Callable[[], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.tell(GOOD, GOOD)
    make = maker()
    monkeypatch.setenv("AIRFLOW__GPUFLOW__DEPLOYMENT", "staging")
    operator = make()
    with pytest.raises(TaskDeferred):
        operator.execute(Stage().context(operator))
    references._run_name.cache_clear()
    monkeypatch.setenv("AIRFLOW__GPUFLOW__DEPLOYMENT", "production")
    assert Stage().play(make).state == "success"
    names = [pod["metadata"]["name"] for pod in server.made]
    assert len(set(names)) == 2
    assert names[0] in server.pods


def test_two_real_airflows_share_a_store_and_a_cleared_run_keeps_its_name(tmp_path: Path) -> None:
    """Two metadata databases, one DAG, one run id: two names; the same run once more in the first: its old name."""
    with StandIn() as server:
        server.stories = itertools.repeat([running(), ended(0)])
        (tmp_path / "nightly.yaml").write_text(PIPELINE)
        homes = []
        for name in ("staging", "production"):
            folder = tmp_path / name
            folder.mkdir()
            connection = {"kube_config_path": str(server.kubeconfig(folder)), "in_cluster": False}
            homes.append(Home(folder, Path(sys.executable).parent, connection))
            if homes[1:]:  # an empty database and a DAG file, as good as those of its own
                homes[-1].dags.mkdir()
                shutil.copy(homes[0].folder / "airflow.db", folder)
                shutil.copy(homes[0].dags / "nightly.py", homes[-1].dags)
            else:
                homes[0].migrate()
                homes[0].compile(tmp_path / "nightly.yaml")
        for home, times in zip(homes, ("2", "1"), strict=True):
            done = home.run("tests.targets.airflow.same_run", str(home.dags / "nightly.py"), times)
            assert done.returncode == 0, done.stdout[-4000:]
        ids = [pod["metadata"]["labels"]["run_id"] for pod in server.made]
        assert len(set(ids)) == 1  # Airflow's own id does not tell them apart
        first, again, other = (pod["spec"]["containers"][0]["command"][-1] for pod in server.made)
        assert first == again != other
        shown = homes[0].run("airflow", "tasks", "render", "nightly", "train", "2026-11-14")
        assert shown.returncode == 0, shown.stdout[-4000:]  # no task runs here: it reads the database


class SecretsManager:
    """A secrets backend that Airflow asks before its own database, and that does not answer today."""

    def get_variable(self, key: str) -> str | None:
        raise ConnectionError("the secrets manager is out of reach")


def test_a_secrets_manager_out_of_reach_never_gives_an_airflow_a_second_id(
    asked: Callable[[ApiServer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Variable stands there and nowhere else: the API server truly does not have it."""
    server = ApiServer()
    asked(server)
    own = supervisor.ensure_secrets_backend_loaded()
    monkeypatch.setattr(supervisor, "ensure_secrets_backend_loaded", lambda: [SecretsManager(), *own])
    with pytest.raises(AirflowException, match="cannot be read now: try again, or set"):
        deployment()
    assert not server.written


def test_a_task_that_may_not_write_variables_says_what_to_do(asked: Callable[[ApiServer], None]) -> None:
    class ReadOnly(ApiServer):
        def send(self, message: Any) -> Any:
            if isinstance(message, PutVariable):
                raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 403}))
            return super().send(message)

    asked(ReadOnly())
    with pytest.raises(AirflowException, match="cannot be kept: create it, or set"):
        deployment()


def test_a_task_that_may_not_read_variables_says_what_to_do(asked: Callable[[ApiServer], None]) -> None:
    class Closed(ApiServer):
        def send(self, message: Any) -> Any:
            return ErrorResponse(error=ErrorType.PERMISSION_DENIED, detail={"status_code": 403})

    asked(Closed())
    with pytest.raises(AirflowException, match="cannot be read now: try again, or set"):
        deployment()
