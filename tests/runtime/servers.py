"""Real S3 servers on this machine, for tests and benchmarks; their packages are in locks/runtime.txt."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.runtime.harness import free_port

BUCKET = "gpuflow-test"


def command(server: str, port: int, folder: Path, *, volumes: int = 20, volume_megabytes: int = 64) -> list[str]:
    """The words that start a server; `volumes` of so many megabytes bound what SeaweedFS can hold."""
    beside = Path(sys.executable).parent
    if server == "moto":
        return [str(beside / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    weed = shutil.which("weed", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}") or "weed"
    ports = [f"-{name}={free_port()}" for name in ("master.port", "volume.port", "filer.port")]
    ports += [f"-{name}={free_port()}" for name in ("master.port.grpc", "volume.port.grpc", "filer.port.grpc")]
    settings = [
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-dir={folder}",
        f"-volume.max={volumes}",
        f"-master.volumeSizeLimitMB={volume_megabytes}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]
    return [weed, "server", "-s3", f"-s3.port={port}", f"-s3.port.grpc={free_port()}", *settings, *ports]


@contextlib.contextmanager
def started(words: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server while it is needed; its output goes to a file `log` in its folder.

    What it holds is of no use afterwards, so it is killed: SeaweedFS takes 20 seconds to leave in order.
    """
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait(120)


@contextlib.contextmanager
def s3_server(
    server: str, folder: Path, *, volumes: int = 20, volume_megabytes: int = 64, strict: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A running server with an empty bucket; S3 clients are pointed at it. `strict`: it checks signatures."""
    port = free_port()
    words = command(server, port, folder, volumes=volumes, volume_megabytes=volume_megabytes)
    if strict:
        keys = {"accessKey": "test", "secretKey": "test"}
        known = {"identities": [{"name": "test", "credentials": [keys], "actions": ["Admin"]}]}
        (folder / "s3.json").write_text(json.dumps(known))
        words.append(f"-s3.config={folder / 's3.json'}")
    with started(words, folder) as process:
        saved = dict(os.environ)
        os.environ.update(
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
            AWS_ACCESS_KEY_ID="test",
            AWS_SECRET_ACCESS_KEY="test",
            AWS_DEFAULT_REGION="us-east-1",
        )
        try:
            _make_bucket(port, process)
            yield process
        finally:
            os.environ.clear()
            os.environ.update(saved)


def answers(url: str, server: subprocess.Popen[bytes], seconds: float = 90) -> None:
    """Return once a server answers at a URL, with whatever status."""
    until = time.monotonic() + seconds
    while True:
        assert server.poll() is None, f"{server.args!r} did not start"
        try:
            urllib.request.urlopen(url, timeout=2).read()
        except urllib.error.HTTPError:
            return
        except OSError:
            assert time.monotonic() < until, f"{url} does not answer"
            time.sleep(0.2)
        else:
            return


def _make_bucket(port: int, server: subprocess.Popen[bytes]) -> None:
    import boto3  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an extra

    answers(f"http://127.0.0.1:{port}/", server)
    until = time.monotonic() + 90
    while True:
        try:
            boto3.client("s3").create_bucket(Bucket=BUCKET)
            return
        except Exception:
            assert time.monotonic() < until, "the bucket cannot be made"
            time.sleep(0.5)
