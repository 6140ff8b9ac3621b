"""Kueue on the private cluster: its webhooks are reached by address, with a certificate made here."""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ..engines import build
from .programs import Program

if TYPE_CHECKING:
    from .cluster import Cluster

NAMESPACE = "kueue-system"
WEBHOOK_PORT = 9443
HEALTH_PORT = 8081
FRAMEWORKS = ("batch/job", "pod")
# Kinds served in two versions, which the API server lets Kueue convert.
CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
# The web hooks that look at Kueue's own objects, and those of the frameworks above.
WATCHED_GROUPS = {"kueue.x-k8s.io", "batch", ""}
METRICS_CERTIFICATES = "/etc/kueue/metrics/certs"


def install(cluster: Cluster) -> None:
    """Definitions, certificate, manager, and only then the webhooks, which refuse while nobody answers."""
    folder = cluster.layout.run / "kueue"
    folder.mkdir(exist_ok=True)
    authority = _certificate(folder)
    metrics = cluster.sandbox.path(METRICS_CERTIFICATES)
    metrics.mkdir(parents=True, exist_ok=True)
    for name in ("tls.crt", "tls.key"):
        shutil.copyfile(folder / name, metrics / name)
    kube = cluster.kube
    kube.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *(_converted(definition, authority) for definition in _documents(build.shared("kueue", "crds"))),
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
    hooks = _documents(build.shared("kueue", "webhooks.yaml"))
    kube.apply(*(_addressed(configuration, authority) for configuration in hooks))


def _certificate(folder: Path) -> str:
    """A self-signed certificate for the loopback address; the text that the API server needs to trust it."""
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=kueue",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            folder / "tls.key",
            "-out",
            folder / "tls.crt",
        ],
        check=True,
        capture_output=True,
    )
    return base64.b64encode((folder / "tls.crt").read_bytes()).decode()


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


def _documents(place: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(place.glob("*.yaml")) if place.is_dir() else [place]:
        yield from (document for document in yaml.safe_load_all(path.read_text()) if document)


def _client(path: str, authority: str) -> dict[str, str]:
    return {"url": f"https://127.0.0.1:{WEBHOOK_PORT}{path}", "caBundle": authority}


def _converted(definition: dict[str, Any], authority: str) -> dict[str, Any]:
    if definition["spec"]["names"]["plural"] in CONVERTED:
        webhook = {"clientConfig": _client("/convert", authority), "conversionReviewVersions": ["v1"]}
        definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return definition


def _addressed(configuration: dict[str, Any], authority: str) -> dict[str, Any]:
    """The webhooks of the frameworks in use, called by address and not for the system's own namespaces."""
    configuration["metadata"]["name"] = f"kueue-{configuration['metadata']['name']}"
    configuration["webhooks"] = [hook for hook in configuration["webhooks"] if _watched(hook)]
    for hook in configuration["webhooks"]:
        hook["clientConfig"] = _client(hook["clientConfig"]["service"]["path"], authority)
        if "kueue.x-k8s.io" not in _groups(hook):
            outside = {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["kube-system", NAMESPACE],
            }
            hook["namespaceSelector"] = {"matchExpressions": [outside]}
    return configuration


def _groups(hook: Mapping[str, Any]) -> set[str]:
    return {group for rule in hook["rules"] for group in rule["apiGroups"]}


def _watched(hook: Mapping[str, Any]) -> bool:
    return _groups(hook) <= WATCHED_GROUPS
