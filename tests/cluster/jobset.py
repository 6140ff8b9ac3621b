"""JobSet on the private cluster: several pods as one, made, ended and named together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..engines import build
from .kube import documents
from .programs import Program
from .webhooks import Hooks, groups

if TYPE_CHECKING:
    from .cluster import Cluster

# Beside Kueue's.
WEBHOOK_PORT = 9444
HEALTH_PORT = 8082
GROUP = "jobset.x-k8s.io"
# The label of its pods: as it is shipped, JobSet is asked about no others.
OWN_PODS = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}


def install(cluster: Cluster) -> None:
    """Definition, certificate, controller, and only then the webhooks, which refuse while nobody answers."""
    folder = cluster.layout.run / "jobset"
    folder.mkdir(exist_ok=True)
    hooks = Hooks.certified("jobset", WEBHOOK_PORT, folder)
    kube = cluster.kube
    kube.apply(*documents(build.shared("jobset", "crds")))
    kube.await_definitions()
    config = folder / "config.yaml"
    settings = {
        "apiVersion": f"config.{GROUP}/v1alpha1",
        "kind": "Configuration",
        "webhook": {"port": WEBHOOK_PORT, "host": "127.0.0.1", "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }
    config.write_text(json.dumps(settings))
    argv = (
        str(build.binary("jobset")),
        f"--config={config}",
        "--metrics-bind-address=0",
        f"--health-probe-bind-address=127.0.0.1:{HEALTH_PORT}",
    )
    cluster.run("jobset", Program(argv, WEBHOOK_PORT, {"KUBECONFIG": str(cluster.layout.kubeconfig)}))
    kube.apply(*(_narrowed(each, hooks) for each in documents(build.shared("jobset", "webhooks.yaml"))))
    if "kueue" in cluster.state["programs"]:
        # It looks for kinds that were not served when it started only every two minutes.
        cluster.restart("kueue")


def _narrowed(configuration: dict[str, Any], hooks: Hooks) -> dict[str, Any]:
    for hook in configuration["webhooks"]:
        if GROUP not in groups(hook):
            hook["objectSelector"] = OWN_PODS
    return hooks.addressed(configuration, GROUP, ["kube-system"])
