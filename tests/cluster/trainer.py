"""Kubeflow Trainer on the private cluster: it makes a JobSet of each TrainJob."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from ..engines import build
from .kube import documents
from .programs import Program
from .webhooks import Hooks

if TYPE_CHECKING:
    from .cluster import Cluster

# Beside those of Kueue and JobSet.
WEBHOOK_PORT = 9445
HEALTH_PORT = 8083
STATUS_PORT = 10443
GROUP = "trainer.kubeflow.org"
# Where it looks for the certificate of its webhooks: its configuration has no field for it. Each cluster has its own.
CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"
WITH_CERTIFICATES = f'mkdir -p {CERTIFICATES} && mount --bind "$0" {CERTIFICATES} && exec "$@"'


def install(cluster: Cluster) -> None:
    """Definitions, certificate, controller, and only then the webhooks, which refuse while nobody answers."""
    folder = cluster.layout.run / "trainer"
    folder.mkdir(exist_ok=True)
    hooks = Hooks.certified("trainer", WEBHOOK_PORT, folder)
    kube = cluster.kube
    definitions = [each for each in documents(build.shared("trainer", "crds")) if "metadata" in each]
    kube.apply(*definitions)
    kube.await_definitions()
    config = folder / "config.yaml"
    settings = {
        "apiVersion": f"config.{GROUP}/v1alpha1",
        "kind": "Configuration",
        "webhook": {"port": WEBHOOK_PORT, "host": "127.0.0.1"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{HEALTH_PORT}"},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
        "statusServer": {"port": STATUS_PORT},
    }
    config.write_text(json.dumps(settings))
    argv = (
        shutil.which("unshare") or "unshare",
        "--mount",
        "sh",
        "-c",
        WITH_CERTIFICATES,
        str(folder),
        str(build.binary("trainer")),
    )
    argv = (*argv, f"--config={config}")
    cluster.run("trainer", Program(argv, WEBHOOK_PORT, {"KUBECONFIG": str(cluster.layout.kubeconfig)}))
    kube.apply(*(hooks.addressed(each, GROUP, []) for each in documents(build.shared("trainer", "webhooks.yaml"))))
    if "kueue" in cluster.state["programs"]:
        # It looks for kinds that were not served when it started only every two minutes.
        cluster.restart("kueue")
