"""A gang on Airflow, as it is compiled: four ranks in one JobSet, made and followed by Airflow itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..targets.airflow.forking import Running
from ..targets.airflow.home import Home
from .cluster import Cluster
from .faults import Faults
from .fixtures import AnyCluster, lacking
from .gang_runs import WORD, GangRun, pipeline
from .gangs import RANK
from .kube import Kube
from .waiting import until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venvs" / "airflow"


class Ground(GangRun):
    """An Airflow of its own, a namespace in which its gangs run, and pipelines of one gang."""

    def __init__(self, cluster: Cluster, kube: Kube, folder: Path) -> None:
        super().__init__(kube)
        self.folder = folder
        extra = {
            "kube_config_path": str(kube.kubeconfig),
            "in_cluster": False,
            "xcom_sidecar_container_image": cluster.image("busybox"),
        }
        # No KUBECONFIG: the trigger of the stock operator refuses it beside a connection that names a cluster.
        more = {name: value for name, value in cluster.environment().items() if name != "KUBECONFIG"}
        more |= {"PYTHONPYCACHEPREFIX": str(ENVIRONMENT / "pycache"), "AIRFLOW__GPUFLOW__DEPLOYMENT": "tests"}
        self.home = Home(folder / "airflow", ENVIRONMENT / "bin", extra, cluster.enter, **more)
        self.home.folder.mkdir()
        self.home.migrate()
        self.log = folder / "run.log"
        site = {"apiVersion": "gpuflow/v1", "kind": "Site", "name": "s", "gangs": {"service_account": "gpuflow-gang"}}
        (folder / "site.yaml").write_text(yaml.safe_dump(site))

    def start(self, *words: str, **run: Any) -> Running:
        """`airflow dags test` under way. `words`: more for gpuflow compile; `run`: see `gang_runs.pipeline`."""
        (self.folder / "p.yaml").write_text(yaml.safe_dump(pipeline(**run)))
        to = ["--site", "site.yaml", "--namespace", self.kube.namespace]
        self.gpuflow("compile", "p.yaml", "--target", "airflow", *to, *words, "-o", f"{self.home.dags}/")
        return self.home.forks().start("airflow", "dags", "test", "gangs", log=self.log)

    def gpuflow(self, *words: str) -> str:
        command = [self.home.python, "-m", "gpuflow", *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.home.environment, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ended(self, run: Running, timeout: float = 1200) -> str:
        until("the run to end", lambda: run.poll() is not None, timeout=timeout, otherwise=self.said)
        return self.said()

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


@pytest.fixture
def ground(
    private_cluster: Cluster, cluster: AnyCluster, jobset: AnyCluster, namespace: Kube, tmp_path: Path
) -> Ground:
    if not (ENVIRONMENT / "bin" / "airflow").exists():
        lacking("no Airflow in .venvs/airflow; make it: make .venvs/airflow/.ready")
    private_cluster.image("gpuflow")
    return Ground(private_cluster, namespace, tmp_path)


def test_four_ranks_one_output_and_text_as_it_was_written(ground: Ground) -> None:
    log = ground.ended(ground.start())
    assert f"[main] rank 0 of 4, attempt 1 after 0: {WORD}" in log, "rank 0's log is in the task's"
    assert f"[main] {WORD}" in log, "the next step has the output"
    assert "state:success" in log or "state=success" in log
    ground.nothing_left()


def test_an_evicted_rank_is_one_interruption_of_the_gang(ground: Ground, faults: Faults) -> None:
    run = ground.start(seconds=45)
    faults.evict(ground.all_run()[2])
    ground.all_run(2)
    assert ground.counts() == ("2", "0", "1")
    log = ground.ended(run)
    assert "interruption 1 of 3: creating another JobSet" in log
    assert "rank 0 of 4, attempt 2 after 1" in log
    assert "state:success" in log or "state=success" in log


def test_a_rank_that_fails_is_one_failure_and_a_spent_budget_ends_the_run(ground: Ground) -> None:
    log = ground.ended(ground.start(fails="11"))
    assert "rank 1: exit code 3" in log, "which rank it was is said, though all of them exit alike"
    assert "; there is no retry" in log
    assert "state:failed" in log or "state=failed" in log
    assert ground.counts() == ("1", "1", "0") and len(ground.attempts()) == 1


def test_a_failed_rank_is_followed_by_another_try(ground: Ground) -> None:
    run = ground.start(fails="31", failures=1, seconds=30)
    ground.all_run(2)
    assert ground.counts() == ("2", "1", "0")
    log = ground.ended(run)
    assert "state:success" in log or "state=success" in log


def test_stock_operators_run_it_through_a_launcher(ground: Ground) -> None:
    for manifest in yaml.safe_load_all(
        ground.gpuflow("site", "gang", "--namespace", ground.kube.namespace, "site.yaml")
    ):
        ground.kube.create(manifest)
    log = ground.ended(ground.start("--standalone"))
    assert f"rank 0 of 4, attempt 1 after 0: {WORD}" in log
    assert "state:success" in log or "state=success" in log


@pytest.mark.parametrize("where", ["operator", "trigger"])
def test_a_task_that_is_stopped_takes_every_rank_with_it(where: str, ground: Ground, tmp_path: Path) -> None:
    main = {
        "name": "main",
        "image": "gpuflow.test/gpuflow:1",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "600"],
        "resources": {"requests": {"cpu": "20m"}},
    }
    order = {
        "namespace": ground.kube.namespace,
        "pod": {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [main]}},
        "arguments": {"workers": 4, "deferrable": where == "trigger"},
        "killed_in": where,
    }
    words = [ground.home.python, "-m", "tests.targets.airflow.real", json.dumps(order)]
    with (tmp_path / "log").open("w") as file:
        process = subprocess.Popen(
            [*ground.home.enter, *words],
            cwd=ROOT,
            env={**os.environ, **ground.home.environment},
            stdout=file,
            stderr=file,
        )
    try:
        until("all ranks run", lambda: len(ground.kube.list("pod", RANK)) == 4, timeout=900)
        until("the trigger to see it", lambda: "running, 4 of 4" in (tmp_path / "log").read_text(), timeout=300)
        process.send_signal(signal.SIGTERM)
        process.wait(120)
    finally:
        process.kill()
    ground.nothing_left()
