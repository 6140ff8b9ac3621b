"""The launcher of a compiled gang as a process, with the account that `gpuflow site gang` prints."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpuflow.kubernetes.expansion import expand
from gpuflow.plan import planned_step
from gpuflow.pod.launcher import gang_account, launcher_for
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline

from ..conftest import ROOT
from ..gang_words import said
from .cluster import Cluster
from .kube import Kube
from .waiting import until


def site_of(word: str) -> Site:
    """A site whose gangs are of this kind."""
    return Site.model_validate(
        {**Site.load("nvidia").model_dump(), "gangs": {**said(word), "service_account": "launcher"}}
    )


def command_of(pipeline: Pipeline, site: Site) -> list[str]:
    """The words of the compiled launcher, from `gang` on, as its kubelet hands them over."""
    found = launcher_for(planned_step(pipeline, "train", site))["spec"]["containers"][0]["command"]
    return [expand(word, {}) for word in found[found.index("gang") :]]


def manifest_of(pipeline: Pipeline, site: Site) -> dict[str, Any]:
    """The object in the words of the launcher."""
    (word,) = (each for each in command_of(pipeline, site) if each.startswith("--manifest="))
    found: dict[str, Any] = json.loads(word.partition("=")[2])
    return found


class Launched:
    """The launcher of one gang."""

    def __init__(self, cluster: Cluster, kube: Kube, folder: Path, pipeline: Pipeline, site: Site) -> None:
        self.cluster, self.kube, self.folder = cluster, kube, folder
        self.pipeline, self.site = pipeline, site
        self.process: subprocess.Popen[str] | None = None
        kube.apply(*gang_account("launcher", kube.namespace, reports=False, kind=site.gangs.made_as))
        self.account = folder / "account"
        self.account.mkdir()
        (self.account / "token").write_text(kube("create", "token", "launcher", "--duration=1h"))
        (self.account / "namespace").write_text(kube.namespace)
        view = json.loads(kube("config", "view", "--raw", "-o", "json"))["clusters"][0]["cluster"]
        authority = view.get("certificate-authority-data")
        text = base64.b64decode(authority).decode() if authority else Path(view["certificate-authority"]).read_text()
        (self.account / "ca.crt").write_text(text)
        self.server = view["server"].removeprefix("https://")

    def start(self, *words: str) -> None:
        """The words of the compiled launcher; `words` in the place of those of the same option."""
        given = command_of(self.pipeline, self.site)
        mine = [word.partition("=")[0] for word in words]
        given = [word for word in given if word.partition("=")[0] not in (*mine, "--run-id", "--owner")]
        host, _, port = self.server.partition(":")
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "GPUFLOW_SERVICE_ACCOUNT": str(self.account),
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port or "443",
        }
        more = ["--run-id=r", "--settle=4s", "--grace=5s", f"--termination-log={self.folder / 'last-words'}"]
        (self.folder / "last-words").touch()
        with (self.folder / "log").open("w") as file:
            self.process = subprocess.Popen(
                [*self.cluster.enter, sys.executable, "-m", "gpuflow.runtime.supervise.main", *given, *more, *words],
                env=environ, stdout=file, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip

    def said(self) -> str:
        """Its log."""
        return (self.folder / "log").read_text()

    def code(self) -> int:
        """How it ended."""
        process = self.process
        assert process is not None
        ended = until("the launcher to end", lambda: (process.poll(),) if process.poll() is not None else None,
                      timeout=90, otherwise=self.said)  # fmt: skip
        return int(ended[0] or 0)

    def close(self) -> None:
        """End it, if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
