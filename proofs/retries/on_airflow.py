"""Cases on Airflow: compiled by `gpuflow compile`, played by `airflow_player` in Airflow's own environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable
from typing import Any

from tests.cluster.fixtures import lacking
from tests.cluster.waiting import until
from tests.targets.airflow.home import ROOT, Home

from .contract import Case
from .ground import Ground
from .on_argo import site_of
from .pipelines import SITE, SITE_ALONE, SITE_CLOSED, STEP, pipeline

ENVIRONMENT = ROOT / ".venvs" / "airflow"


class Airflow:
    """Starts cases and tells how they stand."""

    def __init__(self, ground: Ground) -> None:
        if not (ENVIRONMENT / "bin" / "airflow").exists():
            lacking("no Airflow in .venvs/airflow; `make test-airflow` makes it")
        self.ground = ground
        self.folder = ground.stage.folder / "airflow"
        for name in ("sources", "dags", "orders", "ends"):
            (self.folder / name).mkdir(parents=True)
        cluster, kube = ground.cluster, ground.kube
        extra = {
            "kube_config_path": str(kube.kubeconfig),
            "in_cluster": False,
            "xcom_sidecar_container_image": cluster.image("busybox"),
        }
        more = {**cluster.environment(), "PYTHONPYCACHEPREFIX": str(ENVIRONMENT / "pycache")}
        self.home = Home(self.folder, ENVIRONMENT / "bin", extra, cluster.enter, **more)
        log = (self.folder / "player.log").open("w")
        self.player = subprocess.Popen(
            [*cluster.enter, self.home.python, "-m", "proofs.retries.airflow_player", str(self.folder)],
            env={**self.home.environment, "AIRFLOW__GPUFLOW__DEPLOYMENT": "proof"},
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def compile(self, cases: Iterable[Case]) -> None:
        given = list(cases)
        for site in (SITE, SITE_ALONE, SITE_CLOSED):
            texts = {case.name: pipeline(case) for case in given if site_of(case) == site}
            if not texts:
                continue
            sources = self.folder / "sources"
            shutil.rmtree(sources)
            sources.mkdir()
            (sources / "site.yaml").write_text(site)
            for name, text in texts.items():
                (sources / f"{name}.yaml").write_text(text)
            files = [str(sources / f"{name}.yaml") for name in texts]
            words = ["-m", "gpuflow.cli.main", "compile", *files, "--target", "airflow", "-o", f"{self.folder}/dags/"]
            words += ["--namespace", self.ground.kube.namespace, "--site", str(sources / "site.yaml")]
            done = subprocess.run(
                [self.home.python, *words],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                text=True,
                capture_output=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr

    def start(self, case: Case) -> None:
        partial = self.folder / f"{case.name}.order"
        partial.write_text(json.dumps({"name": case.name, "file": str(self.folder / "dags" / f"{file_of(case)}.py")}))
        partial.rename(self.folder / "orders" / f"{case.name}.json")

    def look(self) -> None:
        if self.player.poll() is not None:
            raise AssertionError(f"the player of Airflow tasks ended:\n{self._log()}")

    def seen_running(self, case: Case, pod: str) -> bool:
        """The operator looks at the pod itself, whenever it was made."""
        return True

    def ended(self, case: Case) -> dict[str, Any] | None:
        path = self.folder / "ends" / f"{case.name}.json"
        return {**json.loads(path.read_text()), "said": self._said(case)} if path.exists() else None

    def _said(self, case: Case) -> list[str]:
        """What the operator said of each pod of a case: how it judged it, and what kept it from being made."""
        pod = re.escape(f"{case.name}-{STEP}"[:50].rstrip("-"))
        log = (self.folder / "player.log").read_text(errors="replace")
        return re.findall(rf"(pod {pod}-\w+: [a-z ()]+: .*?) \[(?:airflow|gpuflow)", log)

    def told(self, case: Case) -> dict[str, Any]:
        return self.ended(case) or {"state": "running", "message": self._log()[-1500:], "nodes": []}

    def forget(self, case: Case) -> None:
        """The operator deletes its pods itself, and keeps failed ones as users want them."""

    def close(self) -> None:
        if self.player.poll() is None:
            os.killpg(self.player.pid, signal.SIGTERM)
            until("the player to end", lambda: self.player.poll() is not None, timeout=20)

    def _log(self) -> str:
        return (self.folder / "player.log").read_text(errors="replace")[-4000:]


def file_of(case: Case) -> str:
    """The name of the DAG file that is compiled for a pipeline."""
    return case.name.replace("-", "_")
