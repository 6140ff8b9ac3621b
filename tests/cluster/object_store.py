"""An S3 server on the private cluster: SeaweedFS beside the pods, which reach it at the cluster's address."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from . import backend
from .layout import ADDRESS
from .programs import Program

if TYPE_CHECKING:
    from .cluster import Cluster

NAME = "seaweedfs"
PORT = 9000
ENDPOINT = f"{ADDRESS}:{PORT}"
URL = f"http://{ENDPOINT}"
ACCESS_KEY, SECRET_KEY = "minio", "minio123"
"""What KFP's own manifests set, and nothing outside the cluster's network can use."""
OWN_TMP = ("/usr/bin/unshare", "--mount", "/bin/sh", "-c", '/bin/mount -t tmpfs tmpfs /tmp && exec "$0" "$@"')
"""SeaweedFS finds its own parts by sockets in /tmp that are named after ports, and every cluster sees the same /tmp."""


def start(cluster: Cluster, *, wait: bool = True) -> None:
    """Start it unless it runs; it is ended with the cluster."""
    if NAME not in cluster.sandbox.running():
        cluster.run(NAME, _program(cluster), wait=wait)


def _program(cluster: Cluster) -> Program:
    """All ports are named, since the usual ones are KFP's and ML Metadata's."""
    home = cluster.layout.run / "object-store"
    data, config = home / "data", home / "s3.json"
    data.mkdir(parents=True, exist_ok=True)
    identity = {
        "name": "kfp",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config.write_text(json.dumps({"identities": [identity]}))
    return Program(
        (
            *OWN_TMP,
            str(backend.environment() / "bin" / "weed"),
            "server",
            f"-dir={data}",
            f"-ip={ADDRESS}",
            "-ip.bind=0.0.0.0",
            "-master.port=9333",
            "-master.volumePreallocate=false",
            "-master.volumeSizeLimitMB=64",
            "-volume.port=9380",
            "-volume.max=40",
            "-filer",
            "-filer.port=9388",
            "-s3",
            f"-s3.port={PORT}",
            f"-s3.config={config}",
        ),
        port=PORT,
    )
