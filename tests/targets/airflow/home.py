"""A whole Airflow of its own: its folder, its database, its DAG files and its runs."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .forking import ROOT, Forks, Running

LONGEST = 900
"""Seconds after which something is not slow but wrong, on a machine that does ten other things."""
DATABASES = ROOT / "build" / "airflow-databases"
"""Empty databases, as `airflow db migrate` made them: one for each set of packages."""


class Home:
    """One AIRFLOW_HOME. `environment`: how Airflow is set up in it; `enter`: what its programs are started through."""

    def __init__(
        self, folder: Path, programs: Path, connection: Mapping[str, Any], enter: Sequence[str] = (), **more: str
    ) -> None:
        self.folder, self.enter = folder, list(enter)
        self.python, self._airflow = str(programs / "python"), str(programs / "airflow")
        self.dags = folder / "dags"
        self._forks: Forks | None = None
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
        """Make the database: a copy of the one that the first `airflow db migrate` with these packages made."""
        self.dags.mkdir(parents=True)
        empty = DATABASES / f"{_packages(Path(self.python))}.db"
        DATABASES.mkdir(parents=True, exist_ok=True)
        with open(DATABASES / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
            if not empty.exists():
                made = self.folder / "airflow.db"
                subprocess.run([self._airflow, "db", "migrate"], env=self.environment, check=True, capture_output=True)
                partial = empty.with_suffix(".new")
                shutil.copy(made, partial)
                partial.replace(empty)
                return
        shutil.copy(empty, self.folder / "airflow.db")

    def compile(self, source: Path, namespace: str = "ml") -> None:
        """Write the DAG file of a pipeline into the DAG folder."""
        words = ["compile", str(source), "--target", "airflow", "--namespace", namespace, "-o", f"{self.dags}/"]
        subprocess.run([self.python, "-m", "gpuflow.cli.main", *words], env=self.environment, check=True)

    def forks(self) -> Forks:
        """The process that starts this Airflow's programs, with the environment as it is now."""
        if self._forks is None or self._forks.environment != self.environment:
            if self._forks is not None:
                self._forks.close()
            self._forks = Forks(self.python, self.environment, self.enter)
        return self._forks

    def run(self, module: str, *words: str, timeout: float = LONGEST) -> subprocess.CompletedProcess[str]:
        """`python -m module words…` to its end, `airflow` among them."""
        return self.forks().run(module, *words, timeout=timeout)

    def test(self, dag: str, **params: Any) -> subprocess.CompletedProcess[str]:
        """Run a DAG to its end; the return code is not 0 when the run failed."""
        conf = ["--conf", json.dumps(params)] if params else []
        return self.run("airflow", "dags", "test", dag, *conf)

    def answering(self, answer: str) -> Running:
        """A person who gives this answer to whatever is asked: Approve, Reject, or nothing until the time is over."""
        return self.forks().start("tests.targets.airflow.answering", answer, log=self.folder / "answering.log")


def _packages(python: Path) -> str:
    """What the database depends on: the packages beside a Python, by name and version."""
    names = sorted(path.name for path in python.parents[1].glob("lib/python3*/site-packages/*.dist-info"))
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
