"""What the tests share: oracles that are there, or one line that says why not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.differential.oracle import Oracle, OracleUnavailable

Ask = Callable[[str, str], Oracle]


@pytest.fixture
def oracle() -> Iterator[Ask]:
    """Starts an oracle by engine and mode. Without Go the test is skipped, but in CI that is a failure."""
    started: list[Oracle] = []

    def start(engine: str, mode: str) -> Oracle:
        try:
            running = Oracle(engine, mode)
        except OracleUnavailable as missing:
            if os.environ.get("CI"):
                pytest.fail(str(missing))
            pytest.skip(str(missing))
        started.append(running)
        return running

    yield start
    for running in started:
        running.close()
