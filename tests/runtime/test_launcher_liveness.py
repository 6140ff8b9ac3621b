"""A gang whose launcher owns it stops when the launcher is gone, and only then. Real processes, real connections."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuflow.runtime.gangs.launcher_liveness import VARIABLE
from tests.conftest import ROOT
from tests.runtime.gangs import QUICK, Gang
from tests.runtime.harness import free_port, shell

WAIT = shell('touch "$OWN/up"; exec sleep 60')
SHORT = shell('touch "$OWN/up"; sleep 3')
LAUNCHER = """
import sys, time
from gpuflow.runtime.gangs.launcher_liveness import LivenessServer as Held
print(Held(sys.argv[1]).port, flush=True)
time.sleep(120)
"""


class Launcher:
    """The launcher's end in a process that can be killed."""

    def __init__(self, digest: str = "0123456789") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, digest], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self.process.stdout is not None
        self.address = f"127.0.0.1:{self.process.stdout.readline().strip()}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _gang(folder: Path) -> Gang:
    return Gang(folder, 2, name="train-0123456789-1", times=f"{QUICK},launcher=2")


def test_a_gang_stops_when_its_launcher_is_killed(tmp_path: Path) -> None:
    launcher, gang = Launcher(), _gang(tmp_path)
    gang.start(*WAIT, environ={VARIABLE: launcher.address})
    gang.are_up()
    launcher.kill()
    assert gang.all_end_with(75)
    assert "has not been there for 2 s" in gang.said(0) and "rank 0 was told to stop" in gang.said(1)


def test_a_gang_works_on_while_its_launcher_is_there(tmp_path: Path) -> None:
    launcher, gang = Launcher(), _gang(tmp_path)
    try:
        gang.start(*SHORT, environ={VARIABLE: launcher.address})
        assert gang.all_end_with(0)
    finally:
        launcher.kill()


@pytest.mark.parametrize("answers", ["nobody", "another gang's launcher"])
def test_a_launcher_that_cannot_be_reached_is_said_and_stops_nothing(tmp_path: Path, answers: str) -> None:
    other, gang = Launcher("ffffffffff"), _gang(tmp_path)
    try:
        address = f"127.0.0.1:{free_port()}" if answers == "nobody" else other.address
        gang.start(*SHORT, environ={VARIABLE: address})
        assert gang.all_end_with(0)
        assert "nobody stops this gang" in gang.said(0)
    finally:
        other.kill()


def test_a_frozen_launcher_is_not_lost(tmp_path: Path) -> None:
    """Its connections hold: a node that is busy is no node that is gone."""
    launcher, gang = Launcher(), _gang(tmp_path)
    try:
        gang.start(*shell('touch "$OWN/up"; sleep 5'), environ={VARIABLE: launcher.address})
        gang.are_up()
        launcher.process.send_signal(signal.SIGSTOP)
        assert gang.all_end_with(0)
    finally:
        launcher.process.send_signal(signal.SIGCONT)
        launcher.kill()
