"""The ground of the proof: one Airflow with a database, and a namespace of the private cluster."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from tests.cluster import images
from tests.cluster.cluster import Cluster
from tests.cluster.kube import Kube, KubeError
from tests.cluster.waiting import until
from tests.targets.airflow.forking import Running
from tests.targets.airflow.home import ROOT, Home

from .runs import Run

ENVIRONMENT = ROOT / ".venvs" / "airflow"
DAGS = Path(__file__).parent / "dags"
READY = "migrated"
"""The file that says that the database is whole: it takes a while to make, and the next start uses it too."""
LONGEST = 3600
"""Seconds after which a run is not slow but wrong, on a machine that does ten other things."""


class Ground:
    """What every case uses. A namespace is made for each case and deleted after it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        extra = {
            "kube_config_path": str(cluster.kube.kubeconfig),
            "in_cluster": False,
            "xcom_sidecar_container_image": cluster.image("busybox"),
        }
        self.serializers = images.serializers()
        more = {
            # No KUBECONFIG: the trigger of the stock operator refuses it beside a connection that names a cluster.
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(self._packages())]),
            "PYTHONPYCACHEPREFIX": str(ENVIRONMENT / "pycache"),
            "AIRFLOW_CONN_SECOND": json.dumps({"conn_type": "kubernetes", "extra": extra}),
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": str(LONGEST),
            "PROOF_IMAGE": cluster.image("busybox"),
            "PROOF_PYTHON_IMAGE": cluster.image("serializers"),
        }
        self.home = Home(folder, ENVIRONMENT / "bin", extra, cluster.enter, **more)
        if not (folder / READY).exists():
            shutil.rmtree(folder, ignore_errors=True)
            self.home.migrate()
            (folder / READY).touch()
        self._started: list[Running] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._started:
            if running.poll() is None:
                running.kill()

    def _packages(self) -> Path:
        """The serializers that this machine has, where the worker finds them beside Airflow."""
        folder = self.folder.with_name(f"{self.folder.name}-packages")
        folder.mkdir(parents=True, exist_ok=True)
        for name, place in self.serializers.items():
            link = folder / name
            link.unlink(missing_ok=True)
            link.symlink_to(place)
        return folder

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
        """`airflow dags test` in the cluster's network."""
        log = self.folder / f"{dag}-{namespace}.log"
        variables = {"PROOF_NAMESPACE": namespace, **environment}
        running = self.home.forks().start("airflow", "dags", "test", dag, *words, log=log, **variables)
        self._started.append(running)
        return Run(dag, log, running, self.folder / "airflow.db")


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def pods(kube: Kube, task: str = "") -> list[dict[str, Any]]:
    found = kube.list("pod", f"task_id={task}" if task else "")
    return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))


def running(kube: Kube, task: str, run: Run, but: frozenset[str] = frozenset()) -> str:
    """The name of the task's pod, once its program runs; nothing when the run ends without another one."""

    def found() -> str:
        for pod in pods(kube, task):
            name = str(pod["metadata"]["name"])
            is_there = pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
            if is_there and name not in but:
                return name
        return "-" if run.is_over() else ""

    return until(f"a pod of {task} to run", found, timeout=LONGEST, every=1).strip("-")


def forget(kube: Kube) -> None:
    try:
        kube("delete", "namespace", kube.namespace, "--wait=false", "--ignore-not-found")
    except KubeError as trouble:
        print(f"  {trouble}")
