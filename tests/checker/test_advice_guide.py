"""The guide on quotas and the README show what gpuflow prints: every `$ gpuflow` in them is run again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuflow.cli.main import main
from tests.conftest import ROOT

GUIDE = ROOT / "docs" / "guides" / "quota.md"
README = ROOT / "README.md"
HOME = ROOT / "docs" / "examples" / "quota"
BLOCK = re.compile(r"^```console\n(?P<command>\$ gpuflow [^\n]+)\n(?P<output>.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT = '; echo "exit $?"'


@pytest.mark.parametrize(("page", "least"), [(GUIDE, 5), (README, 1)], ids=["guide", "readme"])
def test_every_command_of_the_page_prints_what_the_page_shows(
    page: Path,
    least: int,
    golden: Callable[[Path, str], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(HOME)

    def run(block: re.Match[str]) -> str:
        command = block["command"].removeprefix("$ gpuflow ").removesuffix(EXIT)
        capsys.readouterr()
        code = main(shlex.split(command))
        shown = capsys.readouterr()
        assert not shown.err, f"gpuflow {command} complains: {shown.err}"
        return f"```console\n{block['command']}\n{shown.out}exit {code}\n```"

    text = page.read_text(encoding="utf-8")
    assert len(BLOCK.findall(text)) >= least
    assert text.count("$ gpuflow") == len(BLOCK.findall(text)), "a command stands outside a console block"
    golden(page, BLOCK.sub(run, text))


@pytest.mark.parametrize(
    ("verdict", "command"), [("ALWAYS", "nightly.yaml"), ("MAY QUEUE", "wider.yaml"), ("NEVER", "larger.yaml")]
)
def test_the_guide_shows_each_verdict_that_its_headings_promise(verdict: str, command: str) -> None:
    shown = [block["output"] for block in BLOCK.finditer(GUIDE.read_text(encoding="utf-8"))]
    first = [output for output in shown if f": {verdict}\n" in output.splitlines(keepends=True)[0]]
    assert first, f"no output of {command} says {verdict}"


def test_every_code_that_the_guide_explains_exists() -> None:
    from gpuflow.codes import CODES

    assert set(re.findall(r"GF\d{3}", GUIDE.read_text(encoding="utf-8"))) <= set(CODES)
