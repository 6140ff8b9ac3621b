"""Kubeflow Pipelines on the private cluster: what its manifests install, with the programs beside the pods.

The database, the object store, ML Metadata and KFP's three servers run in the cluster's network and are ended with it;
the driver and the launcher run in pods, as everywhere. The cluster has neither DNS nor a service proxy, so the pods of
runs know KFP's services by `hostAliases`. That and what a site may set for all runs goes through the API server's
COMPILED_PIPELINE_SPEC_PATCH: workflows that are none of KFP's see nothing of it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engines import build
from . import backend, machine, object_store
from .layout import ADDRESS
from .programs import Program
from .sandbox import ProgramError

if TYPE_CHECKING:
    from .cluster import Cluster

NAMESPACE = "kubeflow"
HOST = f"http://{ADDRESS}:8888"
"""What kfp.Client is told; it can be reached from the cluster's network only."""
APISERVER, PERSISTENCE, SCHEDULES = "kfp-apiserver", "kfp-persistence", "kfp-schedules"
EXECUTOR_USER = 8737
"""KFP's templates forbid root for the whole pod, and the executor's image names no user."""
NAMES = (
    "ml-pipeline.kubeflow", "ml-pipeline.kubeflow.svc", "ml-pipeline.kubeflow.svc.cluster.local",
    "metadata-grpc-service.kubeflow", "metadata-grpc-service.kubeflow.svc",
    "metadata-grpc-service.kubeflow.svc.cluster.local",
    "seaweedfs.kubeflow", "seaweedfs.kubeflow.svc.cluster.local", "minio-service.kubeflow",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What an administrator chooses for all runs: `retry` of every template, more of the workflow, more variables."""

    retry: Mapping[str, str] | None = field(default_factory=lambda: {"limit": "2", "retryPolicy": "OnError"})
    patch: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    def spec_patch(self) -> str:
        """The value of COMPILED_PIPELINE_SPEC_PATCH."""
        executor = {"securityContext": {"runAsUser": EXECUTOR_USER}}
        pods = {
            "initContainers": [{"name": "init", **executor}],
            "containers": [{"name": "wait", **executor}],
        }
        spec: dict[str, Any] = {
            "hostAliases": [{"ip": ADDRESS, "hostnames": list(NAMES)}],
            "podSpecPatch": json.dumps(pods),
        }
        if self.retry is not None:
            spec["templateDefaults"] = {"retryStrategy": dict(self.retry)}
        return json.dumps({**spec, **self.patch})


STOCK = Settings()
"""As KFP 2.17.0 is shipped: deleted pods are retried twice, failed ones never, whatever a task says of its retries."""
ALWAYS = Settings(retry={"limit": "0", "retryPolicy": "Always"})
"""What gpuflow asks an administrator for: tasks with retries survive failures and deletions, others are untouched."""
BEFORE = Settings(retry=None)
"""As before 2.17: Argo's own default, which retries failed pods and no deleted ones."""
SETTINGS = {"stock": STOCK, "always": ALWAYS, "before": BEFORE}


def install(cluster: Cluster) -> None:
    """Database, store, metadata, KFP's objects and its servers; Argo is there already."""
    if not cluster.state["node"]:
        raise ProgramError("KFP needs a node that runs pods: its driver is one")
    machine.packages(machine.KUBEFLOW_TOOLS)
    home = cluster.layout.run / "kubeflow"
    home.mkdir()
    environment = backend.environment()
    cluster.run("mariadb", _mariadb(home), wait=False)
    object_store.start(cluster, wait=False)
    cluster.run("mlmd", _mlmd(home, environment), wait=False)
    for image in ("kfp-driver", "kfp-launcher"):
        cluster.image(image)
    _objects(cluster)
    for name in ("mariadb", object_store.NAME, "mlmd"):
        cluster.await_program(name)
    config = home / "config"
    config.mkdir()
    shutil.copy(build.shared("kubeflow", "config.json"), config)
    cluster.run(APISERVER, _apiserver(cluster, STOCK))
    cluster.run(PERSISTENCE, _persistence(cluster))
    cluster.run(SCHEDULES, _schedules(cluster))


def settings(cluster: Cluster, chosen: Settings) -> None:
    """Start the API server with other settings; runs that were made before keep theirs."""
    program = _apiserver(cluster, chosen)
    if cluster.state["programs"][APISERVER]["env"] == program.env and APISERVER in cluster.sandbox.running():
        return
    # It does not end within ten seconds of being asked, and its state is in the database.
    cluster.stop(APISERVER, signal.SIGKILL)
    cluster.run(APISERVER, program)


def _objects(cluster: Cluster) -> None:
    """What KFP's manifests create for its runs, and the two objects that its installers write by hand."""
    kube = cluster.kube.within(NAMESPACE)
    manifests = build.shared("kubeflow", "pipeline")
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    files = [manifests / "cluster-scoped" / "scheduled-workflow-crd.yaml"]
    files += [manifests / f"pipeline-runner-{part}.yaml" for part in ("sa", "role", "rolebinding")]
    kube("apply", "--server-side", *(f"--filename={file}" for file in files))
    secret = {"accesskey": object_store.ACCESS_KEY, "secretkey": object_store.SECRET_KEY}
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "mlpipeline-minio-artifact"},
            "stringData": secret,
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kfp-launcher"},
            "data": {"defaultPipelineRoot": "minio://mlpipeline/v2/artifacts"},
        },
    )
    kube.await_definitions()


def _mariadb(home: Path) -> Program:
    data = home / "mariadb"
    common = ["--no-defaults", "--user=root", f"--datadir={data}"]
    make = ["mariadb-install-db", *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
    done = subprocess.run(make, text=True, capture_output=True, check=False)
    if done.returncode:
        raise ProgramError(f"{' '.join(make)}:\n{(done.stdout + done.stderr).strip()[-2000:]}")
    return Program(
        (
            shutil.which("mariadbd") or "/usr/sbin/mariadbd",
            *common,
            f"--socket={home / 'mariadb.sock'}",
            f"--pid-file={home / 'mariadb.pid'}",
            "--bind-address=127.0.0.1",
            "--port=3306",
            "--skip-log-bin",
            "--innodb-flush-log-at-trx-commit=0",
        ),
        port=3306,
    )


def _mlmd(home: Path, environment: Path) -> Program:
    server = Path(__file__).with_name("mlmd_server.py")
    return Program(
        (str(environment / "bin" / "python"), "-I", str(server), "0.0.0.0:8080", str(home / "mlmd.db")), port=8080
    )


def _apiserver(cluster: Cluster, chosen: Settings) -> Program:
    env = {
        "KUBECONFIG": str(cluster.layout.kubeconfig),
        "POD_NAMESPACE": NAMESPACE,
        "CLUSTER_DOMAIN": "cluster.local",
        "DBCONFIG_MYSQLCONFIG_HOST": "127.0.0.1",
        "DBCONFIG_MYSQLCONFIG_PORT": "3306",
        "DBCONFIG_MYSQLCONFIG_USER": "root",
        "DBCONFIG_MYSQLCONFIG_PASSWORD": "",
        "OBJECTSTORECONFIG_HOST": ADDRESS,
        "OBJECTSTORECONFIG_PORT": "9000",
        "OBJECTSTORECONFIG_SECURE": "false",
        "V2_DRIVER_IMAGE": cluster.image("kfp-driver"),
        "V2_LAUNCHER_IMAGE": cluster.image("kfp-launcher"),
        # It ends without a place for pictures, and nothing here asks for one.
        "ML_PIPELINE_VISUALIZATIONSERVER_SERVICE_HOST": "127.0.0.1",
        "ML_PIPELINE_VISUALIZATIONSERVER_SERVICE_PORT": "8889",
        "COMPILED_PIPELINE_SPEC_PATCH": chosen.spec_patch(),
        **chosen.env,
    }
    config = cluster.layout.run / "kubeflow" / "config"
    return Program((str(build.binary(APISERVER)), f"--config={config}", "--logtostderr=true"), port=8888, env=env)


def _persistence(cluster: Cluster) -> Program:
    """The agent that tells the API server how runs stand; it insists on a token, which nobody checks here."""
    tokens = cluster.sandbox.path("/run/secrets/kubeflow/tokens")
    os.makedirs(tokens, exist_ok=True)
    (tokens / "persistenceagent-sa-token").write_text("unchecked")
    return _agent(cluster, PERSISTENCE)


def _schedules(cluster: Cluster) -> Program:
    # Its usual port for metrics is that of Argo's controller.
    return _agent(cluster, SCHEDULES, "--metricsPort=9092")


def _agent(cluster: Cluster, name: str, *more: str) -> Program:
    config = cluster.layout.kubeconfig
    words = (f"--kubeconfig={config}", f"--namespace={NAMESPACE}", f"--mlPipelineAPIServerName={ADDRESS}", *more)
    env = {"KUBECONFIG": str(config), "CRON_SCHEDULE_TIMEZONE": "UTC"}
    return Program((str(build.binary(name)), *words), env=env)
