"""Kueue on the private cluster: its webhooks are reached by address, with a certificate made here."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ..engines import build
from .kube import documents
from .programs import Program
from .webhooks import Hooks, groups

if TYPE_CHECKING:
    from .cluster import Cluster

NAMESPACE = "kueue-system"
WEBHOOK_PORT = 9443
HEALTH_PORT = 8081
# A framework whose kind is not served is left alone; see `jobset.install` for one that comes later.
FRAMEWORKS = ("batch/job", "pod", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob")
# Kinds served in two versions, which the API server lets Kueue convert.
CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
# The web hooks that look at Kueue's own objects, and those of the frameworks above.
OWN_GROUP = "kueue.x-k8s.io"
WATCHED_GROUPS = {OWN_GROUP, "batch", "", "jobset.x-k8s.io", "trainer.kubeflow.org"}
METRICS_CERTIFICATES = "/etc/kueue/metrics/certs"


def install(cluster: Cluster) -> None:
    """Definitions, certificate, manager, and only then the webhooks, which refuse while nobody answers."""
    folder = cluster.layout.run / "kueue"
    folder.mkdir(exist_ok=True)
    hooks = Hooks.certified("kueue", WEBHOOK_PORT, folder)
    metrics = cluster.sandbox.path(METRICS_CERTIFICATES)
    metrics.mkdir(parents=True, exist_ok=True)
    for name in ("tls.crt", "tls.key"):
        shutil.copyfile(folder / name, metrics / name)
    kube = cluster.kube
    kube.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *(_converted(definition, hooks) for definition in documents(build.shared("kueue", "crds"))),
    )
    kube.await_definitions()
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(_configuration(folder)))
    argv = (
        str(build.binary("kueue")),
        f"--config={config}",
        "--feature-gates=VisibilityOnDemand=false",
    )
    env = {"KUBECONFIG": str(cluster.layout.kubeconfig), "POD_NAMESPACE": NAMESPACE}
    cluster.run("kueue", Program(argv, WEBHOOK_PORT, env))
    kube.apply(*(_watching(each, hooks) for each in documents(build.shared("kueue", "webhooks.yaml"))))


def _configuration(certificates: Path) -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{HEALTH_PORT}"},
        "metrics": {"bindAddress": "127.0.0.1:8443"},
        "webhook": {"port": WEBHOOK_PORT, "host": "127.0.0.1", "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": list(FRAMEWORKS)},
    }


def _converted(definition: dict[str, Any], hooks: Hooks) -> dict[str, Any]:
    if definition["spec"]["names"]["plural"] in CONVERTED:
        webhook = {"clientConfig": hooks.client("/convert"), "conversionReviewVersions": ["v1"]}
        definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return definition


def _watching(configuration: dict[str, Any], hooks: Hooks) -> dict[str, Any]:
    """The webhooks of the frameworks in use, called by address and not for the system's own namespaces."""
    configuration["webhooks"] = [hook for hook in configuration["webhooks"] if groups(hook) <= WATCHED_GROUPS]
    return hooks.addressed(configuration, OWN_GROUP, ["kube-system", NAMESPACE])
