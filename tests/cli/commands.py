"""Runs `gpuflow` as a user would, in this process."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from gpuflow.cli.main import main
from tests.conftest import ROOT

EXAMPLES = ROOT / "docs" / "examples"
NIGHTLY = str(EXAMPLES / "nightly.yaml")
FINETUNE = str(EXAMPLES / "finetune.yaml")
DEMO = ROOT / "gpuflow" / "demo"


class Answer(NamedTuple):
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


class Gpuflow:
    """`gpuflow("show", file)`; a fixture, because it needs the captured streams."""

    def __init__(self, streams: pytest.CaptureFixture[str]) -> None:
        self._streams = streams

    def __call__(self, *words: object) -> Answer:
        self._streams.readouterr()
        code = main([str(word) for word in words])
        shown = self._streams.readouterr()
        return Answer(code, shown.out, shown.err)
