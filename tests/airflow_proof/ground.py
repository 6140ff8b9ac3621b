"""The ground of the proof: one Airflow with a database, and a namespace of the private cluster."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..cluster.cluster import Cluster
from ..cluster.kube import Kube, KubeError
from ..cluster.waiting import until
from ..targets.airflow.home import ROOT, Home

ENVIRONMENT = ROOT / ".venvs" / "airflow"
DAGS = Path(__file__).parent / "dags"
LONGEST = 3600
"""Seconds after which a run is not slow but wrong, on a machine that does ten other things."""


class Ground:
    """What every case uses. A namespace is made for each case and deleted after it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        shutil.rmtree(folder, ignore_errors=True)
        extra = {
            "kube_config_path": str(cluster.kube.kubeconfig),
            "in_cluster": False,
            "xcom_sidecar_container_image": cluster.image("busybox"),
        }
        more = {
            **cluster.environment(),
            "PYTHONPYCACHEPREFIX": str(ENVIRONMENT / "pycache"),
            "AIRFLOW_CONN_SECOND": json.dumps({"conn_type": "kubernetes", "extra": extra}),
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": str(LONGEST),
            "PROOF_IMAGE": cluster.image("busybox"),
            "PROOF_PYTHON_IMAGE": cluster.image("gpuflow"),
        }
        self.home = Home(folder, ENVIRONMENT / "bin", extra, cluster.enter, **more)
        self.home.migrate()

    def namespace(self, name: str) -> Kube:
        kube = self.cluster.kube.within(name)
        kube("delete", "namespace", name, "--ignore-not-found", timeout=180)
        kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        until("the default service account", lambda: kube.get("serviceaccount", "default"))
        labels = {"name": "lake"}
        kube.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": labels, "stringData": {"LAKE": "key"}},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}, "data": {"app.ini": "a = 1"}},
        )
        return kube

    def put(self, name: str, **texts: str) -> None:
        """Bring one DAG into the folder, and no other."""
        for file in self.home.dags.iterdir():
            if file.is_file():
                file.unlink()
        source = DAGS / name
        text = source.read_text()
        for key, value in texts.items():
            text = text.replace(key, value)
        if source.suffix == ".py":
            (self.home.dags / name).write_text(text)
            return
        (self.folder / name).write_text(text)
        self.home.compile(self.folder / name, texts["NAMESPACE"])

    @contextlib.contextmanager
    def receiver(self) -> Iterator[tuple[str, Callable[[], list[dict[str, Any]]]]]:
        """A local server for alerts in the cluster's network: its address, and what it got so far."""
        file = self.folder / "received"
        file.unlink(missing_ok=True)
        words = [*self.home.enter, self.home.python, "-m", "tests.receiver", "127.0.0.1", str(file)]
        process = subprocess.Popen(words, cwd=ROOT, env=self.home.environment)
        try:
            port = until("the receiver", lambda: file.exists() and file.read_text().partition("\n")[0], timeout=120)
            yield f"http://127.0.0.1:{port}", lambda: [json.loads(line)["body"] for line in _lines(file)[1:]]
        finally:
            process.kill()
            process.wait()

    def start(self, dag: str, namespace: str, *words: str, **environment: str) -> Run:
        log = self.folder / f"{dag}-{namespace}.log"
        out = log.open("wb")
        process = subprocess.Popen(
            [*self.home.enter, self.home.python, "-m", "airflow", "dags", "test", dag, *words],
            env={**self.home.environment, "PROOF_NAMESPACE": namespace, **environment},
            stdout=out,
            stderr=out,
        )
        return Run(process, log)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


class Run:
    """One run of a DAG to its end, in another process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log

    def ended(self) -> str:
        try:
            self.process.wait(LONGEST)
        finally:
            if self.process.poll() is None:
                self.process.kill()
        return self.text

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def state(self) -> str:
        return "success" if self.process.returncode == 0 else "failed"

    def said(self, words: str) -> bool:
        return words in self.text


def pods(kube: Kube, task: str = "") -> list[dict[str, Any]]:
    found = kube.list("pod", f"task_id={task}" if task else "")
    return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))


def running(kube: Kube, task: str) -> str:
    """The name of the task's pod, once its program runs."""

    def found() -> str:
        for pod in pods(kube, task):
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp"):
                return str(pod["metadata"]["name"])
        return ""

    return until(f"a pod of {task} to run", found, timeout=LONGEST)


def forget(kube: Kube) -> None:
    try:
        kube("delete", "namespace", kube.namespace, "--wait=false", "--ignore-not-found")
    except KubeError as trouble:
        print(f"  {trouble}")
