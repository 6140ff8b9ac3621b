"""The Action writes one comment on a pull request and updates it; GitHub's API is a stand-in on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.gitops.comments import BOT, NUMBER, REPOSITORY, TOKEN, Comments, comments

SCRIPT = ROOT / "tools" / "comment.py"
Say = Callable[..., str]


@pytest.fixture
def github() -> Iterator[Comments]:
    with comments() as api:
        yield api


def event(head: str | None = REPOSITORY) -> dict[str, Any]:
    repo = {"full_name": head} if head else None
    return {"pull_request": {"number": NUMBER, "head": {"repo": repo}, "base": {"repo": {"full_name": REPOSITORY}}}}


def surroundings(github: Comments, folder: Path, about: dict[str, Any], name: str = "pull_request") -> dict[str, str]:
    """What the runner sets for a pull request."""
    path = folder / "event.json"
    path.write_text(json.dumps(about))
    return {
        "GITHUB_API_URL": github.url, "GITHUB_EVENT_PATH": str(path), "GITHUB_EVENT_NAME": name,
        "GITHUB_REPOSITORY": REPOSITORY, "GITHUB_SERVER_URL": "https://github.example.com", "GITHUB_RUN_ID": "99",
    }  # fmt: skip


@pytest.fixture
def say(github: Comments, tmp_path: Path) -> Say:
    """Write these parts; what the log shows."""

    def now(*texts: str, about: str = "argo . pipelines/", token: str = TOKEN, **how: Any) -> str:
        parts = []
        for number, text in enumerate(texts):
            parts.append(str(tmp_path / f"{number}.md"))
            Path(parts[-1]).write_text(text)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
        given = surroundings(github, tmp_path, how.get("event", event()), how.get("name", "pull_request"))
        done = subprocess.run(
            [sys.executable, "-I", SCRIPT, about, *parts, str(tmp_path / "none.md")],
            env={**kept, **given, "TOKEN": token},
            text=True,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert TOKEN not in done.stdout
        return done.stdout

    return now


def test_the_comment_is_written_once_and_then_updated(github: Comments, say: Say) -> None:
    assert say("✅ fresh", "### always") == "wrote a comment on the pull request\n"
    assert say("✅ fresh", "### always") == "the comment on the pull request is up to date\n"
    assert say("### ❌ Stale", "### never") == "updated the comment on the pull request\n"
    (comment,) = github.present
    assert "### ❌ Stale\n\n### never" in comment["body"] and "always" not in comment["body"]
    assert comment["body"].endswith(f"(https://github.example.com/{REPOSITORY}/actions/runs/99)")
    assert [each.split()[0] for each in github.asked if "/user" not in each] == ["GET", "POST", "GET", "GET", "PATCH"]


def test_two_uses_in_one_pull_request_have_a_comment_each(github: Comments, say: Say) -> None:
    say("argo's")
    say("airflow's", about="airflow . pipelines/")
    say("argo's again")
    assert ["argo's again" in github.present[0]["body"], "airflow's" in github.present[1]["body"]] == [True, True]
    assert len(github.present) == 2


def test_a_stranger_who_copies_the_mark_gets_nothing_written_into_their_comment(github: Comments, say: Say) -> None:
    say("first")
    mark = github.present[0]["body"].splitlines()[0]
    github.present.clear()
    theirs = github.add(f"{mark}\nmine", {"login": "stranger", "type": "User"})
    quoted = github.add(f"look: {mark}", BOT)
    say("second")
    assert (theirs["body"], quoted["body"]) == (f"{mark}\nmine", f"look: {mark}")
    assert "second" in github.present[2]["body"]


def test_a_token_of_a_person_finds_its_own_comment(github: Comments, say: Say) -> None:
    github.owner = "platform-team"
    say("first")
    say("second")
    assert len(github.present) == 1 and "second" in github.present[0]["body"]


def test_the_comment_is_found_behind_hundreds_of_others(github: Comments, say: Say) -> None:
    for number in range(230):
        github.add(f"talk {number}", {"login": "a", "type": "User"})
    say("first")
    say("second")
    assert len(github.present) == 231 and "second" in github.present[-1]["body"]


@pytest.mark.parametrize("head", ["stranger/pipelines", None])
def test_a_fork_gets_a_notice_and_no_request_is_made(github: Comments, say: Say, head: str | None) -> None:
    shown = say("text", event=event(head))
    assert shown.startswith("::notice title=gpuflow::this pull request comes from a fork")
    assert github.asked == []


def test_where_there_is_no_pull_request_or_no_token_nothing_is_written(github: Comments, say: Say) -> None:
    assert "belongs to no pull request" in say("text", event={"ref": "main"}, name="push")
    assert "no token is given" in say("text", token="")
    assert github.asked == []


@pytest.mark.parametrize(("status", "words"), [(403, "pull-requests: write"), (404, "pull-requests"), (500, "500")])
def test_what_github_refuses_is_said_and_fails_nothing(github: Comments, say: Say, status: int, words: str) -> None:
    github.answers = status
    shown = say("text")
    assert shown.startswith("::notice title=gpuflow::no comment is written") and words in shown


def test_an_api_that_is_away_fails_nothing(github: Comments, say: Say) -> None:
    github.url = "http://127.0.0.1:9"
    assert "GitHub does not answer" in say("text")


def test_a_report_that_is_too_long_is_cut_to_its_heading_and_the_rest_stays(github: Comments, say: Say) -> None:
    say("### ❌ Stale\n" + "x" * 64_000, "### `train`: never")
    body = github.present[0]["body"]
    assert len(body) < 65_536
    assert "### ❌ Stale\n\nToo long for a comment." in body and "### `train`: never" in body
