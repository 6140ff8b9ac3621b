"""A stand-in for the `docker` package: kfp's own DockerRunner on top of it, containers as plain processes below it.

kfp does everything it does with Docker: orders the tasks, fills in placeholders, collects outputs. Only the image is
missing: its programs are those of this environment. Like Docker, and unlike the kubelet, the stub expands no `$(NAME)`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from gpuflow.targets.kubeflow.build import ENGINE


class Container:
    """A container that has ended."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self._done = done

    def logs(self, stream: bool) -> Iterator[bytes]:
        yield from self._done.stdout.splitlines(keepends=True)

    def wait(self) -> dict[str, int]:
        return {"StatusCode": self._done.returncode}


class Client:
    """What kfp asks of a Docker client; images are there when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.images = self.containers = self
        self.pulled: list[str] = []

    def info(self) -> dict[str, Any]:
        return {}

    def list(self) -> list[Any]:
        return []

    def pull(self, image: str) -> None:
        self.pulled.append(image)

    def run(self, command: list[str], environment: dict[str, str] | None = None, **_: Any) -> Container:
        own = tempfile.mkdtemp(dir=self._folder)  # a container has a /tmp of its own
        words = [word.replace(ENGINE.outputs_dir, f"{own}/outputs") for word in command]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        variables = {**os.environ, **(environment or {}), "PATH": path, "TMPDIR": own}
        done = subprocess.run(
            words, env=variables, cwd=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False
        )
        return Container(done)

    def close(self) -> None:
        pass


def docker_module(client: Client) -> Any:
    """The package as kfp imports it."""
    module: Any = ModuleType("docker")
    module.DockerClient = Client
    module.from_env = lambda: client
    module.errors = ModuleType("docker.errors")
    module.errors.NotFound = LookupError
    return module
