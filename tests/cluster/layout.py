"""Names, addresses and places of one private cluster; nothing here touches the machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..engines import build

# One address does three jobs: the API server listens on it; it is the first address of the service range, so
# the `kubernetes` service reaches the API server without a proxy; and it is the node's own address.
ADDRESS = "10.99.0.1"
SERVICE_RANGE = "10.99.0.0/24"
POD_RANGE = "10.98.0.0/16"
CLUSTER_DOMAIN = "cluster.local"
REAL_NODE = "real"
IMAGES = {
    "pause": "gpuflow.test/pause:1",
    "busybox": "gpuflow.test/busybox:1",
    "python": "gpuflow.test/python:1",
    "gpuflow": "gpuflow.test/gpuflow:1",
    "serializers": "gpuflow.test/serializers:1",
    "stores": "gpuflow.test/stores:1",
    "mpi": "gpuflow.test/mpi:1",
    "argoexec": "gpuflow.test/argoexec:1",
    "kfp-driver": "gpuflow.test/kfp-driver:1",
    "kfp-launcher": "gpuflow.test/kfp-launcher:1",
}


@dataclass(frozen=True)
class Layout:
    """Where the cluster called `name` keeps its files."""

    name: str

    @property
    def run(self) -> Path:
        return build.cache() / "cluster" / self.name

    @property
    def lock(self) -> Path:
        return build.cache() / "cluster" / f"{self.name}.lock"

    @property
    def state(self) -> Path:
        return self.run / "state.json"

    @property
    def kubeconfig(self) -> Path:
        return self.run / "kubeconfig"

    @property
    def tokens(self) -> Path:
        return self.run / "tokens.csv"

    @property
    def service_account_key(self) -> Path:
        return self.run / "service-account.key"

    @property
    def api_certificate(self) -> Path:
        return self.run / "certificates" / "apiserver.crt"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def cgroup(self) -> str:
        return f"gpuflow-{self.name}"
