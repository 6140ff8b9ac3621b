"""Airflow's KubernetesPodOperator runs a GPU task as a pod of this cluster."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .fixtures import AnyCluster, lacking
from .kube import Kube

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venvs" / "airflow"
DAG = """\
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG
from kubernetes.client import models as k8s

with DAG("proof"):
    KubernetesPodOperator(
        task_id="train",
        name="train",
        namespace={namespace!r},
        image={image!r},
        image_pull_policy="IfNotPresent",
        cmds=["sh", "-c", {script!r}],
        container_resources=k8s.V1ResourceRequirements(
            requests={{"cpu": "20m", "memory": "16Mi", "nvidia.com/gpu": "1"}}, limits={{"nvidia.com/gpu": "1"}}
        ),
        config_file={kubeconfig!r},
        in_cluster=False,
        get_logs=True,
        on_finish_action="keep_pod",
    )
"""


class Airflow:
    """The airflow command with a home of its own, in the cluster's network."""

    def __init__(self, cluster: AnyCluster, home: Path) -> None:
        self.cluster = cluster
        self.dags = home / "dags"
        self.dags.mkdir(parents=True)
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self.environment = {
            **inherited,
            **cluster.environment(),
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            # Imports are slow without byte code; keep it, but not among the sources.
            "PYTHONPYCACHEPREFIX": str(ENVIRONMENT / "pycache"),
        }
        self("db", "migrate")

    def __call__(self, *words: str, check: bool = True) -> str:
        program = str(ENVIRONMENT / "bin" / "airflow")
        done = subprocess.run(
            [*self.cluster.enter, program, *words],
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )
        assert not check or done.returncode == 0, f"airflow {' '.join(words)}:\n{done.stdout[-6000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def airflow(cluster: AnyCluster, tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    if not (ENVIRONMENT / "bin" / "airflow").exists():
        lacking("no Airflow in .venvs/airflow; make it: make .venvs/airflow/.ready")
    return Airflow(cluster, tmp_path_factory.mktemp("airflow"))


def run(airflow: Airflow, namespace: Kube, script: str, check: bool = True) -> str:
    text = DAG.format(
        namespace=namespace.namespace,
        image=airflow.cluster.image("busybox"),
        kubeconfig=str(namespace.kubeconfig),
        script=script,
    )
    (airflow.dags / "proof.py").write_text(text)
    return airflow("dags", "test", "proof", check=check)


def test_a_gpu_task_runs_as_a_pod_and_succeeds(airflow: Airflow, namespace: Kube) -> None:
    output = run(airflow, namespace, "echo trained")
    (ran,) = namespace.list("pod")
    assert ran["status"]["phase"] == "Succeeded"
    assert ran["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "trained" in output


def test_a_failing_task_fails_the_run(airflow: Airflow, namespace: Kube) -> None:
    output = run(airflow, namespace, "exit 3", check=False)
    (ran,) = namespace.list("pod")
    assert ran["status"]["phase"] == "Failed"
    assert "state:failed" in output or "state=failed" in output
