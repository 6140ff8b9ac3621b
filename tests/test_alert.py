"""What an alert says and how it is posted, against a local server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.core import alert
from gpuflow.site import Site
from tests.conftest import ROOT
from tests.receiver import Received, Receiver

FAILED = alert.alert_of(
    "nightly", "run-1", "failure", "2026-11-16T00:00:00Z", [alert.failed_step("train", "it broke", "https://log/1")]
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


def test_the_text_names_pipeline_step_cause_run_date_and_log() -> None:
    lines = alert.text_of(FAILED).splitlines()
    assert lines == [
        "nightly failed: failure in train",
        "run run-1, 2026-11-16T00:00:00Z",
        "train: failure: it broke",
        "https://log/1",
    ]


def test_many_failed_steps_are_counted_and_long_words_are_cut() -> None:
    steps = [alert.failed_step(f"s{number}", "x" * 5000) for number in range(40)]
    found = alert.alert_of("p", "r", "failure", None, steps)
    assert len(found["steps"]) == alert.MOST_STEPS and found["more"] == 35
    assert len(alert.text_of(found)) < 4000 and "and 35 more" in alert.summary_of(found)


@given(st.text())
def test_slack_reads_no_mention_and_no_link_in_what_a_program_says(words: str) -> None:
    body = alert.slack_body(alert.alert_of("p", "r", "failure", None, [alert.failed_step("a", words)]), "#c")
    assert "<" not in body["text"] and ">" not in body["text"]
    assert json.loads(json.dumps(body)) == body


def test_a_success_ends_the_incident_of_its_run() -> None:
    failed = alert.pagerduty_body(FAILED, "key", "error")
    done = alert.pagerduty_body(alert.alert_of("nightly", "run-1", "success"), "key", "error")
    assert (failed["event_action"], done["event_action"]) == ("trigger", "resolve")
    assert failed["dedup_key"] == done["dedup_key"]


def test_trouble_of_the_server_is_tried_again(receiver: Receiver) -> None:
    answers = iter([(500, "no"), (429, "slow"), (200, "fine")])
    receiver.answer = lambda request: next(answers)
    waits: list[float] = []
    assert alert.post(f"{receiver.url}/x", FAILED, {"X-Team": "nlp"}, waits.append) == "fine"
    assert len(receiver.got) == 3 and len(waits) == 2
    assert receiver.got[0].body == FAILED and receiver.got[0].headers["x-team"] == "nlp"


@pytest.mark.parametrize(("answer", "tries"), [((404, "no"), 1), ((500, "no"), 3)])
def test_what_cannot_be_sent_is_said_without_the_address(
    receiver: Receiver, answer: tuple[int, str], tries: int
) -> None:
    receiver.answer = lambda request: answer
    with pytest.raises(alert.NotSent, match=f"^the answer was {answer[0]}$"):
        alert.post(f"{receiver.url}/secret", FAILED, None, lambda seconds: None)
    assert len(receiver.got) == tries
    with pytest.raises(alert.NotSent) as refusal:
        alert.post("http://127.0.0.1:9/secret", FAILED, None, lambda seconds: None)
    assert "secret" not in str(refusal.value)


def test_a_secret_goes_to_no_other_address(receiver: Receiver) -> None:
    with Receiver() as elsewhere:
        receiver.answer = lambda request: (307, f"{elsewhere.url}/stolen")
        with pytest.raises(alert.NotSent, match="307"):
            alert.post(f"{receiver.url}/x", FAILED, {"Authorization": "Bearer x"}, lambda seconds: None)
        assert not elsewhere.got


@pytest.mark.parametrize("url", ["file:///etc/passwd", "", "ftp://x/y", "HTTPS"])
def test_only_http_is_spoken(url: str) -> None:
    with pytest.raises(alert.NotSent, match="neither"):
        alert.post(url, FAILED)


def test_slack_refuses_with_200(receiver: Receiver) -> None:
    receiver.answer = lambda request: (200, '{"ok": false, "error": "channel_not_found"}')
    with pytest.raises(alert.NotSent, match="channel_not_found"):
        alert.post_to_slack(receiver.url, alert.slack_body(FAILED, "#x"))
    receiver.answer = lambda request: (200, "ok")  # an incoming webhook
    alert.post_to_slack(receiver.url, alert.slack_body(FAILED))


def test_kubeflows_program_sends_all_of_its_alerts_and_ends_well(receiver: Receiver) -> None:
    """The program as it stands in a compiled pipeline, run by a Python that knows nothing of gpuflow."""
    from gpuflow.spec.loading import loads
    from gpuflow.targets.kubeflow.exit_steps import with_alerts

    preset = Site.load("nvidia")
    site = preset.model_copy(update={"images": preset.images.model_copy(update={"alerts": "python:3.13-slim"})})
    secret = "{secret: s, key: k}"
    notify = (
        f"[{{webhook: {{url: {receiver.url}/hook, headers: {{Authorization: {secret}, X-Team: nlp}}}}}}, "
        f"{{slack: {{url: {secret}}}}}, {{webhook: {{url: http://127.0.0.1:9/nobody}}}}]"
    )
    head = f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nnotify: {notify}\n"
    pipeline = loads(head + "steps: {a: {image: 'i:1', command: [x]}}\n", "p.yaml")
    step = with_alerts(pipeline, site).exit["alert-failure"]
    program = [str(word) for word in step.command[2:3]]
    environment = {
        "ALERT": str(step.env["ALERT"]),
        "ALERT_SECRET_1": "Bearer x",
        "ALERT_SECRET_2": f"{receiver.url}/in",
    }
    program[0] = program[0].replace("WAIT = 5", "WAIT = 0")
    done = subprocess.run(
        [sys.executable, "-I", "-c", *program, "run-7"],
        env=environment,
        text=True,
        capture_output=True,
        cwd=ROOT.parent,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["alert webhook: sent", "alert slack: sent"]
    assert done.stdout.splitlines()[2].startswith("alert webhook: not sent: no answer")
    by_path: dict[str, Received] = {each.path: each for each in receiver.got}
    assert by_path["/hook"].headers["authorization"] == "Bearer x" and by_path["/hook"].body["run"] == "run-7"
    assert by_path["/in"].body["text"].startswith("p failed: failure\nrun run-7")
