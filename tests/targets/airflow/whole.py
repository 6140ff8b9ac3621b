"""A whole Airflow: scheduler, DAG processor, triggerer and API server, as `airflow standalone` starts them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from .home import Home


class Whole:
    """A running Airflow around a home. It is started in a process session of its own, and ended by that."""

    def __init__(self, home: Home) -> None:
        self.home, self.port = home, _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = home.folder / "standalone.log"
        self.environment = {
            **home.environment,
            # It starts its parts by name.
            "PATH": f"{Path(home.python).parent}{os.pathsep}{home.environment['PATH']}",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__PARALLELISM": "2",
            # A busy machine answers late.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "120",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "900",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
        }
        self._token: str | None = None

    def __enter__(self) -> Whole:
        program = str(Path(self.home.python).parent / "airflow")
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [*self.home.enter, program, "standalone"],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        # Its children are in its session; standalone alone would leave them.
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                break
            time.sleep(3)
        self._process.wait()

    def start(self, dag: str, run: str, seconds: float = 900) -> None:
        """Start a run as soon as Airflow is up and knows the DAG."""
        end = time.monotonic() + seconds
        while True:
            try:
                self.ask(f"/api/v2/dags/{dag}/dagRuns", {"dag_run_id": run, "logical_date": None})
                return
            except OSError as trouble:
                if time.monotonic() > end:
                    raise AssertionError(f"{trouble}\n{self.log.read_text()[-6000:]}") from None
                time.sleep(3)

    def state(self, dag: str, run: str) -> str:
        """How a run is."""
        return str(self.ask(f"/api/v2/dags/{dag}/dagRuns/{run}")["state"])

    def ask(self, path: str, body: Any = None) -> Any:
        """A call of its REST API."""
        if self._token is None:
            self._token = self._call("/auth/token")["access_token"]
        return self._call(path, body)

    def _call(self, path: str, body: Any = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=30) as answer:
            return json.loads(answer.read())


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
