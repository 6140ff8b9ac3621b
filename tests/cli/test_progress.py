"""The line that says what takes long: on a terminal only, and gone when it is over."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest

from gpuflow.cli import check, demand, inputs
from gpuflow.cli import terminal as module
from gpuflow.cli.terminal import ERASE, progress
from tests.cli.commands import NIGHTLY, Gpuflow


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(module, "DELAY", 0.02)


def until_shown(out: io.StringIO) -> None:
    for _ in range(12_000):
        if out.getvalue():
            return
        time.sleep(0.01)


def test_what_takes_long_is_said_on_a_terminal_and_erased_when_it_is_over() -> None:
    out = Terminal()
    with progress("checking p", out):
        until_shown(out)
    assert re.match(rf"{re.escape(ERASE)}checking p: \d+ s", out.getvalue())
    assert out.getvalue().endswith(ERASE)


def test_it_is_erased_before_an_error_is_said() -> None:
    out = Terminal()

    def check_a_broken_one() -> None:
        with progress("checking p", out):
            until_shown(out)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        check_a_broken_one()
    assert out.getvalue().endswith(ERASE)


def test_what_is_quick_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELAY", 60)
    out = Terminal()
    with progress("checking p", out):
        pass
    assert out.getvalue() == ""


@pytest.mark.parametrize("where", ["pipe", "ci", "dumb"])
def test_nothing_is_said_where_nobody_watches(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO() if where == "pipe" else Terminal()
    if where == "ci":
        monkeypatch.setenv("CI", "true")
    if where == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    with progress("checking p", out):
        time.sleep(0.1)
    assert out.getvalue() == ""


def test_a_name_cannot_control_the_terminal() -> None:
    out = Terminal()
    with progress("checking \x1b[2Jp\n", out):
        until_shown(out)
    assert "\x1b[2J" not in out.getvalue()
    assert "\n" not in out.getvalue()


def test_check_and_demand_say_what_they_do(gpuflow: Gpuflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    for each in (check, demand, inputs):
        monkeypatch.setattr(each, "progress", lambda what: (said.append(what), progress(what))[1])
    gpuflow("demand", NIGHTLY)
    (tmp_path / "namespace.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n")
    gpuflow("check", NIGHTLY, "--cluster", tmp_path, "--namespace", "team-a")
    assert said[0].startswith("working out the demand of ")
    assert said[1:2] == [f"reading {tmp_path}"]
    assert said[2].startswith("checking ")
