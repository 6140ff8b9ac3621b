"""Questions at the terminal, and alerts: what a run asks and tells people.

Tests gpuflow/local/approvals.py and gpuflow/local/alerts.py.
"""

from __future__ import annotations

import os
import pty
from pathlib import Path

import pytest

from gpuflow.local import Console, run
from tests.local.programs import finish, run_steps, start, states, wait_for, write
from tests.receiver import Receiver

ASKING = """steps:
  one: {approval: deploy one?}
  two: {needs: [one], approval: {message: deploy two?, timeout: 1h}}
  three: {needs: [two], command: ['true']}
"""


@pytest.mark.parametrize(("typed", "code", "ends"), [("y\ny\n", 0, "succeeded"), ("what\ny\nn\n", 1, "not run")])
def test_a_person_at_the_terminal_decides(here: Path, typed: str, code: int, ends: str) -> None:
    ours, theirs = pty.openpty()
    process = start(str(write(here, ASKING)), stdin=theirs)
    os.write(ours, typed.encode())
    found, said, lines = finish(process)
    os.close(ours)
    os.close(theirs)
    assert (found, said["steps"][2]["state"]) == (code, ends), lines
    assert "one asks: deploy one? Approve? [y/n]" in lines
    assert ("answer y or n" in lines) == ("what" in typed)


def test_the_end_of_what_is_typed_answers_all_questions(here: Path) -> None:
    ours, theirs = pty.openpty()
    process = start(str(write(here, "steps:\n  one: {approval: one?}\n  two: {approval: two?}\n")), stdin=theirs)
    os.write(ours, b"\x04")
    code, said, _ = finish(process)
    os.close(ours)
    os.close(theirs)
    assert (code, [each["state"] for each in said["steps"]]) == (1, ["failed", "failed"])


def test_without_a_terminal_it_fails_and_can_be_approved_later(here: Path) -> None:
    code, said, lines = finish(start(str(write(here, ASKING))))
    assert code == 1 and said["steps"][0]["state"] == "failed" and "--approve one" in lines
    result = run(here / "toy.yaml", resume="", approve=["one", "two"])
    assert result.state == "succeeded"


def test_a_question_that_nobody_answers_in_time_counts_as_rejected(here: Path) -> None:
    result = run_steps("steps:\n  a: {approval: {message: now?, timeout: 1s}}\n", approvals="wait")
    assert states(result) == {"a": "failed"} and result.steps[0].because == "it took longer than 1s"


def test_a_wait_for_a_person_is_ended_by_a_signal(here: Path) -> None:
    process = start(str(write(here, "steps:\n  a: {approval: now?}\n")), "--approvals", "wait")
    wait_for(lambda: any(here.glob(".gpuflow/runs/*/answers")), "the question")
    process.terminate()
    assert finish(process)[0] == 75


NOTIFY = """notify:
  - {webhook: {url: URL, headers: {X-Kind: {secret: hook, key: kind}}}, on: [failure, success]}
  - {slack: {url: {secret: slack, key: url}}, on: success}
  - {mail: {to: team@example.com}}
steps:
  a: {command: [test, -e, ok]}
"""


def test_nobody_is_told_unless_the_user_says_so(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    with Receiver() as receiver:
        text = NOTIFY.replace("URL", receiver.url)
        assert run_steps(text, console=Console(lines.append)).state == "failed"
        assert receiver.got == [] and any("not told: webhook, mail; --notify" in line for line in lines)

        monkeypatch.setenv("HOOK_KIND", "toy")
        result = run_steps(text, console=Console(lines.append), notify=True)
        assert [each.body["status"] for each in receiver.got] == ["failure"]
        assert receiver.got[0].headers["x-kind"] == "toy" and receiver.got[0].body["run"] == result.run
        assert receiver.got[0].body["steps"][0]["step"] == "a"
        assert any("not told by mail: only Airflow has what it names" in line for line in lines)

        Path("ok").touch()
        run_steps(text, console=Console(lines.append), notify=True)
        assert receiver.got[1].body["status"] == "success"
        assert any("not told by slack: SLACK_URL is not set" in line for line in lines)
        monkeypatch.setenv("SLACK_URL", receiver.url)
        run_steps(text, console=Console(lines.append), notify=True)
        assert "toy succeeded" in receiver.got[3].body["text"]
