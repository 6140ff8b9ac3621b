"""Kubeflow's training operator on the private cluster: it makes the pods of PyTorchJobs."""

from __future__ import annotations

import base64
import shutil
from typing import TYPE_CHECKING, Any

from ..engines import build
from .kube import documents
from .programs import Program
from .waiting import until

if TYPE_CHECKING:
    from .cluster import Cluster

# Beside those of Kueue, JobSet, Trainer and Volcano.
WEBHOOK_PORT = 9447
HEALTH_PORT = 8084
NAMESPACE = "kubeflow"
# The name in the certificate that it makes for itself, in the Secret that its pod would have mounted there.
HOST = f"training-operator.{NAMESPACE}.svc"
SECRET = "training-operator-webhook-cert"
CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"
WITH_CERTIFICATES = f'mkdir -p {CERTIFICATES} && mount --bind "$0" {CERTIFICATES} && exec "$@"'
WEBHOOK = "validator.training-operator.kubeflow.org"


def install(cluster: Cluster) -> None:
    """The definition of PyTorchJobs alone: that of MPIJobs would take the place of the MPI operator's."""
    folder = cluster.layout.run / "training-operator"
    folder.mkdir(exist_ok=True)
    kube, own = cluster.kube, cluster.kube.within(NAMESPACE)
    kube.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *documents(build.shared("training-operator", "crds") / "kubeflow.org_pytorchjobs.yaml"),
        *map(_addressed, documents(build.shared("training-operator", "webhooks.yaml"))),
    )
    own.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}})
    kube.await_definitions()
    with cluster.sandbox.path("/etc/hosts").open("a") as hosts:
        hosts.write(f"127.0.0.1 {HOST}\n")
    argv = (
        *(shutil.which("unshare") or "unshare", "--mount", "sh", "-c", WITH_CERTIFICATES, str(folder)),
        str(build.binary("training-operator")),
        "--enable-scheme=pytorchjob",
        "--metrics-bind-address=0",
        f"--health-probe-bind-address=127.0.0.1:{HEALTH_PORT}",
        f"--webhook-server-port={WEBHOOK_PORT}",
    )
    env = {"KUBECONFIG": str(cluster.layout.kubeconfig), "MY_POD_NAMESPACE": NAMESPACE}
    cluster.run("training-operator", Program(argv, WEBHOOK_PORT, env), wait=False)
    made = until("its certificate", lambda: (own.get("secret", SECRET) or {}).get("data"), timeout=60)
    # As a kubelet mounts it; the program looks for the certificate, so that comes last.
    for name in ("tls.key", "tls.crt"):
        (folder / name).write_bytes(base64.b64decode(made[name]))
    cluster.await_program("training-operator")


def _addressed(configuration: dict[str, Any]) -> dict[str, Any]:
    """The webhook of PyTorchJobs, under the name by which the operator knows it; it writes in whom to trust."""
    configuration["metadata"]["name"] = WEBHOOK
    hooks = [hook for hook in configuration["webhooks"] if "pytorchjobs" in hook["rules"][0]["resources"]]
    for hook in hooks:
        hook["clientConfig"] = {"url": f"https://{HOST}:{WEBHOOK_PORT}{hook['clientConfig']['service']['path']}"}
    return {**configuration, "webhooks": hooks}
