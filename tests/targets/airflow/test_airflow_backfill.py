"""Which date a run is for, told by the pods of a whole Airflow at work: scheduler, triggerer, API server.

A backfill of three days, a run by hand, and a run that new data starts. The pods are those of the stand-in for the
Kubernetes API server, where every pod ends well at once.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from .home import Home
from .services import Services
from .stand_in import StandIn, ended, running

PIPELINE = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: nightly
defaults: {image: i}
schedule: {cron: "0 3 14-16 10 *", timezone: Europe/Berlin, start: 2025-10-14}
on_data: [s3://lake/reviews]
steps:
  load:
    command:
    - load
    - {run: date}
    - {run: logical_date, timezone: UTC}
    - {run: interval_start, format: "%Y/%m/%d"}
    - {run: name}
    - {run: attempt}
"""


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn() as server:
        server.stories = itertools.repeat([running(), ended(0)])
        yield server


@pytest.fixture
def airflow(server: StandIn, tmp_path: Path) -> Iterator[Services]:
    connection = {"kube_config_path": str(server.kubeconfig(tmp_path)), "in_cluster": False}
    home = Home(tmp_path, Path(sys.executable).parent, connection)
    # What a date means must not depend on these.
    home.environment |= {
        "AIRFLOW__SCHEDULER__CREATE_CRON_DATA_INTERVALS": "True",
        "AIRFLOW__CORE__DEFAULT_TIMEZONE": "America/New_York",
        "AIRFLOW__GPUFLOW__DEPLOYMENT": "tests",
    }
    home.migrate()
    (tmp_path / "nightly.yaml").write_text(PIPELINE)
    home.compile(tmp_path / "nightly.yaml")
    with Services(home) as airflow:
        yield airflow


def said(server: StandIn) -> dict[str, list[str]]:
    """The words that each run's container got, by the run's id."""
    commands = [pod["spec"]["containers"][0]["command"][1:] for pod in server.made]
    assert all(len(command) == 5 for command in commands)
    return {command[3]: [*command[:3], command[4]] for command in commands}


def test_every_run_says_the_date_it_is_for(airflow: Services, server: StandIn) -> None:
    airflow.cli(
        "backfill", "create", "--dag-id", "nightly", "--from-date", "2025-10-14T00:00:00Z",
        "--to-date", "2025-10-17T00:00:00Z", "--max-active-runs", "2",
    )  # fmt: skip
    airflow.start("api-server")
    airflow.ask("POST", "/dags/nightly/dagRuns", {"dag_run_id": "by-hand", "logical_date": "2025-10-15T12:30:00Z"})
    airflow.ask("POST", "/dags/nightly/dagRuns", {"dag_run_id": "by-hand-now", "logical_date": None})
    assets = airflow.ask("GET", "/assets")["assets"]
    (asset,) = [asset["id"] for asset in assets if asset["uri"] == "s3://lake/reviews"]
    airflow.ask("PATCH", "/dags/nightly", {"is_paused": False})
    airflow.ask("POST", "/assets/events", {"asset_id": asset})
    airflow.start("scheduler", "triggerer")

    # One more: although nothing is caught up, Airflow makes up for the latest time since the start on its own.
    runs, words = airflow.ended("nightly", 7), said(server)
    (latest,) = [words[name] for name, run in runs.items() if run["run_type"] == "scheduled"]
    assert latest[0].endswith("-10-16")
    assert latest[2] == latest[0].replace("-16", "-15").replace("-", "/")
    backfilled = {name: words[name] for name, run in runs.items() if run["run_type"] == "backfill"}
    assert sorted(backfilled.values()) == [
        ["2025-10-14", "2025-10-14T01:00:00+00:00", "2024/10/16", "1"],
        ["2025-10-15", "2025-10-15T01:00:00+00:00", "2025/10/14", "1"],
        ["2025-10-16", "2025-10-16T01:00:00+00:00", "2025/10/15", "1"],
    ]
    assert words["by-hand"] == ["2025-10-15", "2025-10-15T12:30:00+00:00", "2025/10/15", "1"]
    (by_data,) = [run for run in runs.values() if run["run_type"] == "asset_triggered"]
    for made in (runs["by-hand-now"], by_data):
        assert made["logical_date"] is None
        assert_created(words[made["dag_run_id"]], made)


def assert_created(words: list[str], run: dict[str, Any]) -> None:
    """A run without a logical date has the time at which it was made."""
    moment = datetime.fromisoformat(words[1])
    assert moment == datetime.fromisoformat(run["run_after"]).replace(microsecond=0)
    assert words[2] <= words[0].replace("-", "/")
