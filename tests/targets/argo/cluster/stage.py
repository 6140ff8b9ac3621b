"""A namespace with a volume that every pod of it shares and the test can read, and what gpuflow compiles for it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import argo
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import OWNER, lacking
from tests.cluster.kube import Kube
from tests.cluster.waiting import until

ROOT = Path(__file__).resolve().parents[4]
ENVIRONMENT = ROOT / ".venvs" / "argo"
CLAIM = "state"
MOUNT = "/state"
LABEL = "gpuflow.test/stage"
INFORMED = 4.0
"""The controller hears of a template a moment after it was made, and refuses a run that it hears of before."""


@dataclass(frozen=True)
class Stage:
    """Where pipelines are played."""

    cluster: Cluster
    kube: Kube
    folder: Path
    """Files of this stage on the node, `shared` among them."""

    @property
    def shared(self) -> Path:
        """What pods of the namespace find at `/state`, through the claim `state`."""
        return self.folder / f"claim-{CLAIM}"

    @property
    def labels(self) -> dict[str, str]:
        """What marks objects outside the namespace, so that they go with it."""
        return {**OWNER, LABEL: self.kube.namespace}

    def compile(self, pipelines: Mapping[str, str], site: str, *options: str) -> dict[str, dict[str, Any]]:
        """What one run of `gpuflow compile` makes of pipelines (name -> YAML text), applied to the namespace."""
        python = ENVIRONMENT / "bin" / "python"
        if not python.exists():
            lacking("compiling for argo needs .venvs/argo with gpuflow[argo]")
        sources, made = self.folder / "sources", self.folder / "compiled"
        for folder in (sources, made):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        (sources / "site.yaml").write_text(site)
        for name, text in pipelines.items():
            (sources / f"{name}.yaml").write_text(text)
        files = [str(sources / f"{name}.yaml") for name in pipelines]
        words = ["-m", "gpuflow.cli.main", "compile", *files, "--target", "argo", "-o", f"{made}/"]
        words += ["--namespace", self.kube.namespace, "--site", str(sources / "site.yaml"), *options]
        done = subprocess.run(
            [python, *words],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = {name: yaml.safe_load((made / f"{name}.yaml").read_text()) for name in pipelines}
        self.kube.create(*found.values())
        time.sleep(INFORMED)
        return found

    def start(self, template: Mapping[str, Any], arguments: Mapping[str, str] | None = None) -> None:
        """Start one run of a compiled object, named like it; a schedule is not waited for."""
        name = template["metadata"]["name"]
        run: dict[str, Any] = {"apiVersion": template["apiVersion"], "kind": "Workflow", "metadata": {"name": name}}
        run["spec"] = dict(template["spec"].get("workflowSpec", {"workflowTemplateRef": {"name": name}}))
        if arguments:
            run["spec"]["arguments"] = {"parameters": [{"name": key, "value": arguments[key]} for key in arguments]}
        self.kube.create(run)

    def volume(self, claim: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """A folder of the node as a volume that many pods may use at once, and the claim for it."""
        path, name = self.folder / f"claim-{claim}", f"{self.kube.namespace}-{claim}"
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
        kind: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        size = {"storage": "1Gi"}
        return (
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name, "labels": self.labels},
                "spec": {**kind, "capacity": size, "hostPath": {"path": str(path)}},
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim},
                "spec": {**kind, "resources": {"requests": size}, "volumeName": name},
            },
        )

    def workflows(self) -> dict[str, dict[str, Any]]:
        return {item["metadata"]["name"]: item for item in self.kube.list("workflow")}


@contextlib.contextmanager
def stage(cluster: Cluster) -> Iterator[Stage]:
    """A stage of its own, taken down afterwards."""
    name = f"gpuflow-{uuid.uuid4().hex[:10]}"
    kube = cluster.kube.within(name)
    folder = cluster.layout.run / f"stage-{name}"
    folder.mkdir()
    folder.chmod(0o777)
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": OWNER}})
    try:
        until("the default service account", lambda: kube.get("serviceaccount", "default"))
        argo.permit(kube)
        made = Stage(cluster, kube, folder)
        kube.create(*made.volume(CLAIM))
        yield made
    finally:
        kube("delete", "workflow", "--all", "--wait=false")
        kube("delete", "namespace", name, "--wait=false")
        kinds = ["persistentvolume", "priorityclass"]
        if "kueue" in cluster.state["addons"]:
            kinds += ["clusterqueue", "resourceflavor", "workloadpriorityclass"]
        kube("delete", ",".join(kinds), f"--selector={LABEL}={name}", "--wait=false")
        shutil.rmtree(folder, ignore_errors=True)
