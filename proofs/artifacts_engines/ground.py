"""The ground: a private cluster with Argo, KFP and an S3 server, and a pipeline, the guide's example, to run there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from gpuflow.runtime.bundle import config_map
from tests.cluster import argo, kubeflow, object_store
from tests.cluster.cluster import Cluster
from tests.cluster.kube import Kube
from tests.cluster.waiting import until

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "artifacts"
BUCKET = "ml-artifacts"
STORE = object_store.URL
SECRET = "s3-artifacts"
PYTHON = ROOT / ".venvs" / "runtime" / "bin" / "python"
READ = Path(__file__).with_name("reading.py")


class Ground:
    """What every engine uses."""

    def __init__(self, cluster: Cluster, folder: Path, pipeline: Path = EXAMPLE / "best-model.yaml") -> None:
        """The name of the pipeline's file is the pipeline's."""
        self.cluster, self.folder, self.name = cluster, folder, pipeline.stem
        folder.mkdir(parents=True, exist_ok=True)
        self.image = cluster.image("stores")
        self.pipeline, self.site = folder / pipeline.name, folder / "site.yaml"
        self.pipeline.write_text(pipeline.read_text())
        self.steps: list[str] = list(yaml.safe_load(pipeline.read_text())["steps"])
        site = yaml.safe_load((EXAMPLE / "site.yaml").read_text())
        site["images"] = {"rewrites": {"registry.example.com/python-s3:3.12": self.image}}
        site["runtime"]["buckets"][f"s3://{BUCKET}"]["env"]["AWS_ENDPOINT_URL"] = STORE
        self.site.write_text(yaml.safe_dump(site))

    def namespace(self, name: str) -> Kube:
        """A namespace with the credentials and the supervisor in it; KFP's own one is there already."""
        kube = self.cluster.kube.within(name)
        if name != kubeflow.NAMESPACE:
            kube("delete", "namespace", name, "--ignore-not-found", timeout=300)
            kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            until("the default service account", lambda: kube.get("serviceaccount", "default"))
            argo.permit(kube)
        keys = {"id": object_store.ACCESS_KEY, "secret": object_store.SECRET_KEY}
        kube.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": keys}, config_map()
        )
        return kube

    def compile(self, engine: str, namespace: str, into: Path) -> None:
        """`gpuflow compile` of the example in the engine's own environment."""
        python = ROOT / ".venvs" / engine / "bin" / "python"
        words = ["compile", str(self.pipeline), "--target", engine, "--site", str(self.site), "-o", str(into)]
        done = subprocess.run(
            [python, "-m", "gpuflow", *words, "--namespace", namespace],
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def artifacts(self) -> dict[str, dict[str, Any]]:
        """Every artifact of the bucket by the URI of its folder, as its manifest tells it."""
        found: dict[str, dict[str, Any]] = json.loads(self.in_store(str(READ), BUCKET))
        return found

    def in_store(self, *words: str) -> str:
        """What a Python with s3fs prints that runs where the S3 server can be reached."""
        env = {
            "AWS_ACCESS_KEY_ID": object_store.ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": object_store.SECRET_KEY,
            "AWS_ENDPOINT_URL": STORE,
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
        }
        command = [*self.cluster.enter, str(PYTHON), *words]
        done = subprocess.run(command, env=env, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout
