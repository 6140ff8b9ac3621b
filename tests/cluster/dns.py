"""Names for pods and services on the private cluster: CoreDNS, at the node's own address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engines import build
from .layout import ADDRESS, CLUSTER_DOMAIN
from .programs import Program

if TYPE_CHECKING:
    from .cluster import Cluster

PORT = 53
READY_PORT = 8182


def install(cluster: Cluster) -> None:
    """Start it; the kubelet names this address to every pod, whether it answers or not."""
    config = cluster.layout.run / "Corefile"
    # Nothing of the cluster is kept, as kubeadm sets it: a pod that comes late is found as soon as it is there.
    config.write_text(f"""\
.:{PORT} {{
    bind {ADDRESS}
    errors
    ready 127.0.0.1:{READY_PORT}
    kubernetes {CLUSTER_DOMAIN} {{
        kubeconfig {cluster.layout.kubeconfig}
    }}
    cache 30 {{
        disable success {CLUSTER_DOMAIN}
        disable denial {CLUSTER_DOMAIN}
    }}
}}
""")
    cluster.run("coredns", Program((str(build.binary("coredns")), f"-conf={config}"), PORT))
