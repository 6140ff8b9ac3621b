"""The guide on quotas shows each verdict and explains codes that exist; tests/first_hour runs its commands."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT

GUIDE = ROOT / "docs" / "guides" / "quota.md"
DETAILS = ROOT / "docs" / "reference" / "checking.md"
BLOCK = re.compile(r"^```console\n(?P<command>\$ gpuflow [^\n]+)\n(?P<output>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("verdict", "command"), [("ALWAYS", "nightly.yaml"), ("MAY QUEUE", "wider.yaml"), ("NEVER", "larger.yaml")]
)
def test_the_guide_shows_each_verdict_that_its_headings_promise(verdict: str, command: str) -> None:
    shown = [block["output"] for block in BLOCK.finditer(GUIDE.read_text(encoding="utf-8"))]
    first = [output for output in shown if f": {verdict}\n" in output.splitlines(keepends=True)[0]]
    assert first, f"no output of {command} says {verdict}"


def test_every_code_that_the_guide_explains_exists() -> None:
    from gpuflow.core.codes import CODES

    told = GUIDE.read_text(encoding="utf-8") + DETAILS.read_text(encoding="utf-8")
    assert {"GF501", "GF512", "GF536"} <= set(re.findall(r"GF\d{3}", told)) <= set(CODES)
