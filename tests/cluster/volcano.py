"""Volcano on the private cluster: its Jobs, its groups of pods, its queues, and its scheduler beside the usual one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from ..engines import build
from .kube import documents
from .programs import Program
from .waiting import until
from .webhooks import Hooks

if TYPE_CHECKING:
    from .cluster import Cluster

NAMESPACE = "volcano-system"
WEBHOOK_PORT = 9446
# As its chart has it.
ADMISSIONS = (
    "/jobs/mutate",
    "/jobs/validate",
    "/podgroups/validate",
    "/queues/mutate",
    "/queues/validate",
    "/hypernodes/validate",
    "/cronjobs/validate",
)
HEALTH_PORTS = {"volcano-controllers": 11250, "volcano-scheduler": 11252}


def install(cluster: Cluster) -> None:
    """Definitions, certificate, webhooks with who answers them, and then the controllers and the scheduler."""
    folder = cluster.layout.run / "volcano"
    folder.mkdir(exist_ok=True)
    hooks = Hooks.certified("volcano", WEBHOOK_PORT, folder)
    kube = cluster.kube
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    # Its controllers wait for all of them before they do anything.
    kube.apply(
        namespace, *(each for name in ("crds", "flow-crds") for each in documents(build.shared("volcano", name)))
    )
    kube.await_definitions()
    # Whoever answers them looks for them first, and they refuse until it does.
    kube.apply(*_webhooks(build.shared("volcano", "webhooks.yaml").read_text(), hooks))
    config = f"--kubeconfig={cluster.layout.kubeconfig}"
    certificate = [f"--tls-cert-file={folder / 'tls.crt'}", f"--tls-private-key-file={folder / 'tls.key'}"]
    words = [config, *certificate, f"--ca-cert-file={folder / 'tls.crt'}", f"--port={WEBHOOK_PORT}"]
    words += ["--listen-address=127.0.0.1", "--webhook-url=https://127.0.0.1"]
    words += [f"--enabled-admission={','.join(ADMISSIONS)}"]
    cluster.run("volcano-webhooks", Program((str(build.binary("volcano-webhooks")), *words), WEBHOOK_PORT))
    for name, port in HEALTH_PORTS.items():
        words = [config, "--leader-elect=false", "--enable-healthz=true", f"--healthz-address=127.0.0.1:{port}"]
        words += [f"--scheduler-conf={build.shared('volcano', 'scheduler.yaml')}"] * (name == "volcano-scheduler")
        cluster.run(name, Program((str(build.binary(name)), *words), port))
    until("Volcano's first queue", lambda: _is_open(kube.get("queues.scheduling.volcano.sh", "default")))


def _is_open(queue: dict[str, Any] | None) -> bool:
    return queue is not None and queue.get("status", {}).get("state") == "Open"


def _webhooks(template: str, hooks: Hooks) -> list[dict[str, Any]]:
    """Those in use, from the template of a chart: all that it says under conditions, with the usual values.

    They keep the names by which Volcano knows them.
    """
    plain = "\n".join(line for line in template.splitlines() if not line.lstrip().startswith("{{-"))
    plain = re.sub(r"{{ \.Release\.\w+ }}", NAMESPACE, plain)
    found = []
    for configuration in yaml.safe_load_all(plain):
        (hook,) = configuration["webhooks"]
        path = hook["clientConfig"]["service"]["path"]
        if path in ADMISSIONS:
            hook["clientConfig"] = hooks.client(path)
            found.append(configuration)
    return found
