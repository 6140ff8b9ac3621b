"""Real S3 servers for the tests marked `s3`; they run in an environment made from locks/runtime.txt."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.harness import end_started
from tests.runtime.stage import Stage


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "s3: needs s3fs and a real S3 server (locks/runtime.txt)")


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    end_started()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _command(server: str, port: int, folder: Path) -> list[str]:
    beside = Path(sys.executable).parent
    if server == "moto":
        return [str(beside / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    weed = shutil.which("weed", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}") or "weed"
    ports = [f"-{name}={_free_port()}" for name in ("master.port", "volume.port", "filer.port")]
    ports += [f"-{name}={_free_port()}" for name in ("master.port.grpc", "volume.port.grpc", "filer.port.grpc")]
    settings = [
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-dir={folder}",
        "-volume.max=20",
        "-master.volumeSizeLimitMB=64",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]
    return [weed, "server", "-s3", f"-s3.port={port}", f"-s3.port.grpc={_free_port()}", *settings, *ports]


@pytest.fixture(scope="session", params=["moto", "seaweedfs"])
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an empty bucket on a running server; the environment points S3 clients at it."""
    for module in ("s3fs", "moto"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed; make the environment of locks/runtime.txt")
    folder = tmp_path_factory.mktemp(request.param)
    port = _free_port()
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            _command(request.param, port, folder), stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    saved = dict(os.environ)
    os.environ.update(
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
        AWS_DEFAULT_REGION="us-east-1",
    )
    try:
        _make_bucket(port, server)
        yield "s3://gpuflow-test"
    finally:
        os.environ.clear()
        os.environ.update(saved)
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(20)


def _make_bucket(port: int, server: subprocess.Popen[bytes]) -> None:
    import boto3  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an extra

    until = time.monotonic() + 90
    while True:
        assert server.poll() is None, "the S3 server did not start"
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2).read()
        except urllib.error.HTTPError:
            pass
        except OSError:
            assert time.monotonic() < until, "the S3 server does not answer"
            time.sleep(0.2)
            continue
        try:
            boto3.client("s3").create_bucket(Bucket="gpuflow-test")
            return
        except Exception:
            assert time.monotonic() < until, "the bucket cannot be made"
            time.sleep(0.5)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place for actors; none of them outlives the test."""
    made = Stage(tmp_path)
    yield made
    for pid in made.alive():
        os.kill(pid, signal.SIGKILL)
