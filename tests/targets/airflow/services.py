"""A whole Airflow at work: API server, scheduler, triggerer and DAG processor, for as long as a test needs them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from .forking import Running
from .home import LONGEST, Home


class Services:
    """The programs of one Airflow. `with Services(home) as airflow:` ends those that were started in between."""

    def __init__(self, home: Home) -> None:
        self.home = home
        ports = _free_ports(3)
        self.url = f"http://127.0.0.1:{ports[0]}"
        home.environment |= {
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(ports[0]),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "120",
            "AIRFLOW__API_AUTH__JWT_SECRET": "only-for-this-test-only-for-this-test-only-for-this-test-only-here",
            "AIRFLOW__API__SECRET_KEY": "only-for-this-test",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": str(LONGEST),
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": str(LONGEST),
            # One database file for all: who finds it locked waits.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home.folder}/airflow.db?timeout={LONGEST}",
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(ports[1]),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(ports[2]),
            "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            # Nobody is dead because the machine is slow.
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": str(LONGEST),
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": str(LONGEST),
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": str(LONGEST),
        }
        self._running: list[Running] = []
        self._token: str | None = None

    def __enter__(self) -> Self:
        self.cli("dags", "reserialize")  # what the DAG processor does, once
        return self

    def start(self, *programs: str) -> None:
        """Start some of them, and wait until the API server answers."""
        for program in programs:
            # A session of its own, so that the workers end with the program.
            self._running.append(self.home.forks().start("airflow", program, log=self._log(program), session=True))
        self.until(lambda: self._asked("GET", "/api/v2/version") is not None, "the API server to answer")

    def __exit__(self, *_: object) -> None:
        for running in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGTERM)
        for running in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """An answer of Airflow's public API."""
        found = self._asked(method, f"/api/v2{path}", body)
        assert found is not None, self.logs()
        return found

    def cli(self, *words: str) -> str:
        """The `airflow` command."""
        done = self.home.run("airflow", *words, timeout=LONGEST)
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    def ended(self, dag: str, count: int) -> dict[str, dict[str, Any]]:
        """The runs of a DAG by their ids, once there are so many and all have ended; each must be good."""

        def over() -> bool:
            states = [run["state"] for run in self.runs(dag)]
            return len(states) >= count and all(state in ("success", "failed") for state in states)

        self.until(over, f"{count} runs of {dag} to end")
        runs = {str(run["dag_run_id"]): run for run in self.runs(dag)}
        assert [name for name, run in runs.items() if run["state"] == "failed"] == [], self.logs()
        return runs

    def runs(self, dag: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("GET", f"/dags/{dag}/dagRuns?limit=100")["dag_runs"]
        return found

    def until(self, happened: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + LONGEST
        while not happened():
            dead = [process.args for process in self._running if process.poll() is not None]
            assert not dead, f"{dead} has ended\n{self.logs()}"
            assert time.monotonic() < end, f"waited in vain for {what}\n{self.logs()}"
            time.sleep(1)

    def logs(self) -> str:
        """The ends of all logs."""
        files = sorted(self.home.folder.glob("*.log"))
        return "\n".join(f"== {file.stem}\n{file.read_text(errors='replace')[-3000:]}" for file in files)

    def _log(self, program: str) -> Path:
        return self.home.folder / f"{program}.log"

    def _asked(self, method: str, path: str, body: Any = None) -> Any:
        if self._token is None:
            # All users are administrators here, and nobody needs a password.
            found = _http("GET", f"{self.url}/auth/token", None, {})
            self._token = None if found is None else str(found["access_token"])
        if self._token is None:
            return None
        return _http(method, self.url + path, body, {"Authorization": f"Bearer {self._token}"})


def _http(method: str, url: str, body: Any, headers: dict[str, str]) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=LONGEST) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as refusal:
        if refusal.code == 404:
            return None
        raise AssertionError(f"{method} {url}: {refusal.code} {refusal.read().decode()[:2000]}") from None
    except (urllib.error.URLError, OSError):
        return None  # not up yet


def _free_ports(count: int) -> list[int]:
    """All are held until each is known: none is given twice."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
