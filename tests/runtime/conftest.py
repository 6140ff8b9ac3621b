"""Real S3 servers for the tests marked `s3`; they run in an environment made from locks/runtime.txt."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.harness import end_started
from tests.runtime.servers import BUCKET, s3_server
from tests.runtime.stage import Stage


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    end_started()


@pytest.fixture(autouse=True)
def _signals_are_heard_as_before() -> Iterator[None]:
    """`gpuflow-run` holds them back for good; a test that calls it in this process would make the next one deaf."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.fixture(scope="session", params=["moto", "seaweedfs"])
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an empty bucket on a running server; the environment points S3 clients at it."""
    for module in ("s3fs", "moto"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed; make the environment of locks/runtime.txt")
    with s3_server(request.param, tmp_path_factory.mktemp(request.param)):
        yield f"s3://{BUCKET}"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place for actors; none of them outlives the test."""
    made = Stage(tmp_path)
    yield made
    for pid in made.alive():
        os.kill(pid, signal.SIGKILL)
