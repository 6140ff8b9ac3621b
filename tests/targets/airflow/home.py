"""A whole Airflow of its own: its folder, its database, its DAG files and its runs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


class Home:
    """One AIRFLOW_HOME. `environment`: how Airflow is set up in it; `enter`: what its programs are started through."""

    def __init__(
        self, folder: Path, programs: Path, connection: Mapping[str, Any], enter: Sequence[str] = (), **more: str
    ) -> None:
        self.folder, self.enter = folder, list(enter)
        self.python, self._airflow = str(programs / "python"), str(programs / "airflow")
        self.dags = folder / "dags"
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self.environment = {
            **inherited,
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            # On a busy machine the first import of Airflow and gpuflow takes longer than its 30 seconds.
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
            # Steps without a backoff wait as long as Airflow says; five minutes would be long for a test.
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
            "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": dict(connection)}),
            "PYTHONPATH": str(ROOT),
            **more,
        }

    def migrate(self) -> None:
        """Make the database."""
        self.dags.mkdir(parents=True)
        subprocess.run([self._airflow, "db", "migrate"], env=self.environment, check=True, capture_output=True)

    def compile(self, source: Path, namespace: str = "ml") -> None:
        """Write the DAG file of a pipeline into the DAG folder."""
        words = ["compile", str(source), "--target", "airflow", "--namespace", namespace, "-o", f"{self.dags}/"]
        subprocess.run([self.python, "-m", "gpuflow.cli.main", *words], env=self.environment, check=True)

    def test(self, dag: str, **params: Any) -> subprocess.CompletedProcess[str]:
        """Run a DAG to its end; the return code is not 0 when the run failed."""
        conf = ["--conf", json.dumps(params)] if params else []
        return subprocess.run(
            [*self.enter, self._airflow, "dags", "test", dag, *conf],
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=500,
            check=False,
        )

    def answering(self, answer: str) -> subprocess.Popen[str]:
        """A person who gives this answer to whatever is asked: Approve, Reject, or nothing until the time is over."""
        words = [self.python, "-m", "tests.targets.airflow.answering", answer]
        return subprocess.Popen(words, env=self.environment, cwd=ROOT, text=True)
