"""What Argo's alerts say, asked of Argo's own substitution: causes of supervised steps, and steps instead of attempts.

The last words of supervised steps are those that `gpuflow-run` really leaves.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.differential.oracle import Oracle
from tests.runtime.harness import end_started, run, shell, start
from tests.targets.argo.manifests import compiled, substituted, template

pytestmark = pytest.mark.go

TEXT = """notify:
- webhook: {url: "https://alerts.example.com/x"}
- slack: {channel: "#ml", authorization: {secret: s, key: k}}
steps: {s: {command: [x]}}
"""
SCOPE = {"workflow.status": "Failed", "workflow.creationTimestamp.RFC3339": "2026-03-29T09:58:07Z"}
OOM = "main: OOMKilled (exit code 137)"
EVICTED = "The node was low on resource: memory. "
ENDS = "retryStrategy.expression evaluated to false"


@pytest.fixture(scope="module")
def argo() -> Iterator[Oracle]:
    with Oracle("argo", "substitution") as oracle:
        yield oracle


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    (tmp_path / "log").touch()
    state = ("--state", str(tmp_path / "state"), "--run-id", "r", "--outputs-dir", str(tmp_path / "out"))
    yield (*state, "--termination-log", str(tmp_path / "log"), "--failures", "1", "--interruptions", "1")
    end_started()


def said(tmp_path: Path, code: int, reason: str = "Error") -> str:
    """The node's message, as Argo's inferFailedReason writes it."""
    return f"main: {reason} (exit code {code}): {(tmp_path / 'log').read_text()}"


def node(name: str, message: str, second: int) -> dict[str, str]:
    return {
        "displayName": name,
        "message": message,
        "templateName": name.partition("(")[0],
        "phase": "Failed",
        "podName": f"wf-{second}",
        "finishedAt": f"2026-03-29T10:00:{second:02d}Z",
    }


def posted(argo: Oracle, *failed: dict[str, str], to: str = "webhook") -> Any:
    """The body of an alert: the template that posts it is made a container, which Argo's code makes a pod of."""
    manifest = compiled(TEXT, kind="Workflow")
    spec = manifest["spec"]
    sender = template(manifest, f"alert-{to}-post")
    sender.pop("http")
    sender["container"] = {"image": "i", "args": ["{{=inputs.parameters.body}}"]}
    spec["entrypoint"] = spec.pop("onExit")
    # Argo writes the JSON as a Go string: JSON is one, for what stands here.
    scope = {**SCOPE, "workflow.failures": json.dumps(json.dumps(failed or None))}
    path = ["alerts", f"alert-{to}", "post"]
    (pod,) = substituted(argo, manifest, path, scope=scope)
    return json.loads(pod["container"]["args"][0])


def told_to_stop(*options: str) -> int:
    process: subprocess.Popen[str] = start(*options, *shell("echo ready; exec sleep 60"))
    assert process.stdout is not None and process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    return process.wait(120)


def test_a_timeout_that_ends_a_supervised_step_is_its_cause(
    argo: Oracle, tmp_path: Path, supervised: tuple[str, ...]
) -> None:
    messages = []
    for code in (124, 79):
        done = run(*supervised, "--timeout", "0.5s", *shell("exec sleep 60"))
        assert done.returncode == code
        messages.append(said(tmp_path, code))
    body = posted(argo, node("s(0)", messages[0], 1), node("s(1)", messages[1], 2), node("s", ENDS, 3))
    (step,) = body["steps"]
    assert (body["cause"], body["more"], step["step"], step["cause"]) == ("timed out", 0, "s", "timed out")
    assert step["message"] == messages[1][:500]


def test_a_container_that_was_killed_for_memory_twice_ran_out_of_memory(
    argo: Oracle, tmp_path: Path, supervised: tuple[str, ...]
) -> None:
    """The third attempt finds the budget spent and runs nothing: the cause is that of the second."""
    word = json.dumps({"by": "argo", "phase": "Failed", "message": OOM, "attempt": 0})
    for attempt in (0, 1):
        more = () if attempt == 0 else ("--last", word)
        process = start(*supervised, "--engine-attempt", str(attempt), *more, *shell("echo ready; exec sleep 60"))
        assert process.stdout is not None and process.stdout.readline()
        process.kill()
        process.wait(120)
    again = json.dumps({"by": "argo", "phase": "Failed", "message": OOM, "attempt": 1})
    assert run(*supervised, "--engine-attempt", "2", "--last", again, *shell("true")).returncode == 79
    last = said(tmp_path, 79)
    assert "2 failures so far" in last
    body = posted(argo, node("s(0)", OOM, 1), node("s", ENDS, 9), node("s(2)", last, 9), node("s(1)", OOM, 5))
    assert [(each["step"], each["cause"]) for each in body["steps"]] == [("s", "out of memory")]
    assert body["cause"] == "out of memory" and body["steps"][0]["message"] == last[:500]


@pytest.mark.parametrize(
    ("because", "cause"),
    [
        ("exit code 137: a process of it was killed for memory; the budget of 1 failures is spent", "out of memory"),
        ("exit code 137: it was over its memory limit; the budget of 1 failures is spent", "out of memory"),
        ("rank 3: it ran out of memory; the budget of 0 failures is spent", "out of memory"),
        (
            "it ran longer than 8 s; told to stop, the command ended with 0; the budget of 1 failures is spent",
            "timed out",
        ),
        ("told to stop; the command ended with 143; the budget of 1 interruptions is spent", "interruption"),
        ("told to stop; the command ended with 143; the budget of 3 retries is spent", "interruption"),
        ("2 interruptions so far; the budget of 1 is spent", "interruption"),
        ("exit code 3: it failed; the budget of 1 failures is spent", "failure"),
        ("exit code 2: the exit code is one that the step calls final", "failure"),
    ],
)
def test_the_supervisors_last_sentence_says_why(argo: Oracle, because: str, cause: str) -> None:
    for sentence in (
        f"attempt 2 failed (final): {because} (exit code 79)",
        f"attempt 2 was final: {because}; start anew",
    ):
        message = f'main: Error (exit code 79): gpuflow-run: {sentence}\n{{"gpuflow": 1}}\n'
        body = posted(argo, node("s(0)", "main: Error (exit code 1)", 1), node("s(1)", message, 2), node("s", ENDS, 2))
        assert (body["cause"], [each["cause"] for each in body["steps"]]) == (cause, [cause])


def test_what_a_program_writes_decides_no_cause(argo: Oracle) -> None:
    for words in ("it ran longer than 8 s", "gpuflow-run: told to stop", "main: OOMKilled (exit code 137)"):
        body = posted(argo, node("s", f"main: Error (exit code 3): {words}\nit ran out of memory", 1))
        assert body["steps"] == [
            {"step": "s", "cause": "failure", "message": f"main: Error (exit code 3): {words}\nit ran out of memory"}
        ]


def test_an_interruption_too_many_is_the_cause(argo: Oracle, tmp_path: Path, supervised: tuple[str, ...]) -> None:
    words = (*supervised[:-4], "--failures", "0", "--interruptions", "0")
    assert told_to_stop(*words) == 79
    message = said(tmp_path, 79)
    assert (
        posted(argo, node("s(0)", EVICTED, 1), node("s(1)", message, 2), node("s", ENDS, 3))["cause"] == "interruption"
    )
    assert posted(argo, node("s(0)", EVICTED, 1), node("s", "No more retries left", 3))["cause"] == "interruption"


def test_a_step_with_many_attempts_hides_no_other_step(argo: Oracle) -> None:
    often = [node(f"often({number})", f"main: Error (exit code 4): {number}", 10 + number) for number in range(7)]
    group = node("often", "No more retries left", 20)
    body = posted(argo, *often, group, node("other", "main: Error (exit code 7)", 2))
    assert body["steps"] == [
        {"step": "often", "cause": "failure", "message": "main: Error (exit code 4): 6"},
        {"step": "other", "cause": "failure", "message": "main: Error (exit code 7)"},
    ]
    assert body["more"] == 0


def test_the_last_attempt_is_found_though_all_ended_in_one_second(argo: Oracle) -> None:
    attempts = [node(f"s({number})", f"main: Error (exit code 4): {number}", 5) for number in (3, 10, 0, 9)]
    assert [each["message"] for each in posted(argo, *attempts)["steps"]] == ["main: Error (exit code 4): 10"]


def test_items_of_a_fan_out_come_after_every_step_that_failed(argo: Oracle) -> None:
    items = [
        node(f"each({index}:a({index}))({tried})", f"try {tried}", 20 + index) for index in range(7) for tried in (0, 1)
    ]
    body = posted(argo, *items, node("each", "child 'wf-1' failed", 40), node("last", "main: Error (exit code 1)", 1))
    assert [each["step"] for each in body["steps"]] == [
        "each(6:a(6))", "last", "each(5:a(5))", "each(4:a(4))", "each(3:a(3))",
    ]  # fmt: skip
    assert {each["message"] for each in body["steps"]} == {"try 1", "main: Error (exit code 1)"}
    assert body["more"] == 3


def test_slack_is_told_the_same_steps(argo: Oracle) -> None:
    steps = [node(f"s{index}", "main: Error (exit code 1)", index) for index in range(7)]
    text = posted(argo, *steps, to="slack")["text"]
    assert text.startswith("p failed: failure in s6, s5, s4, s3, s2 and 2 more\n") and "\ns6: failure: main" in text
    assert posted(argo, steps[0], to="slack")["text"].startswith("p failed: failure in s0\n")


def test_a_run_of_which_nothing_is_listed_has_failed_all_the_same(argo: Oracle) -> None:
    body = posted(argo)
    assert (body["status"], body["cause"], body["steps"], body["more"]) == ("failure", "failure", [], 0)
