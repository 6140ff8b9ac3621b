"""The command line, for tests of targets that go through it."""

from tests.cli.conftest import gpuflow  # noqa: F401  # a fixture is found by its name
