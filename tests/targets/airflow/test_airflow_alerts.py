"""Alerts of a real Airflow: they reach a local server although no pod can start."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ...receiver import MailBox, Received, Receiver
from .home import Home
from .stand_in import StandIn, quota_words
from .whole import Whole

pytestmark = pytest.mark.slow

PIPELINE = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: alerting
defaults: {{image: i}}
notify:
- slack: {{channel: "#ml", connection: chat}}
- slack: {{connection: incoming}}
- webhook: {{url: {url}/hook, headers: {{X-Team: nlp}}, connection: hook}}
  on: [failure, success]
- pagerduty: {{connection: pager, severity: critical}}
- mail: {{to: [team@example.com], connection: mail}}
steps:
  train: {{command: [train], queue_timeout: 20s}}
  other: {{command: [other], needs: train}}
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Received], list[str], str]:
    """What arrives after a run whose every pod is refused, and how the run ended."""
    folder = tmp_path_factory.mktemp("airflow")
    with StandIn() as server, Receiver() as receiver, MailBox() as mails:
        # The namespace has no quota left, for ever.
        server.refuse("POST .*/pods", 403, quota_words("1", "8", "8"), "Forbidden", times=10**9)
        connections = {
            "chat": {"conn_type": "slack", "host": f"{receiver.url}/slack", "password": "xoxb-1"},
            "incoming": {"conn_type": "slackwebhook", "host": f"{receiver.url}/services", "password": "T/B/x"},
            "hook": {"conn_type": "http", "extra": {"headers": {"Authorization": "Bearer hook-1"}}},
            "pager": {"conn_type": "pagerduty_events", "host": f"{receiver.url}/page", "password": "key-1"},
            "mail": {
                "conn_type": "smtp",
                "host": "127.0.0.1",
                "port": mails.port,
                "extra": {"disable_ssl": True, "disable_tls": True, "from_email": "airflow@example.com"},
            },
        }
        variables = {f"AIRFLOW_CONN_{name.upper()}": json.dumps(value) for name, value in connections.items()}
        connection = {"kube_config_path": str(server.kubeconfig(folder)), "in_cluster": False}
        home = Home(folder, Path(sys.executable).parent, connection, AIRFLOW__GPUFLOW__DEPLOYMENT="tests", **variables)
        home.migrate()
        source = folder / "alerting.yaml"
        source.write_text(PIPELINE.format(url=receiver.url))
        home.compile(source)
        with Whole(home) as airflow:
            airflow.start("alerting", "by-hand")
            got, mailed = receiver.waited(4, 400), mails.waited(1, 60)
            state = airflow.state("alerting", "by-hand")
            time.sleep(5)  # one that came twice would be here by now
            assert not server.made, "a pod started"
            (home.folder / "got.json").write_text(json.dumps([(each.path, each.body) for each in got]))
            return list(receiver.got) or got, mailed, state


def body_of(got: list[Received], path: str) -> tuple[Any, dict[str, str]]:
    found = [each for each in got if each.path == path]
    assert len(found) == 1, f"{path}: {len(found)} of {[each.path for each in got]}"
    return found[0].body, found[0].headers


def test_one_document_names_pipeline_step_cause_date_and_log(told: tuple[list[Received], list[str], str]) -> None:
    got, _, state = told
    document, headers = body_of(got, "/hook")
    assert state == "failed"
    assert (document["pipeline"], document["run"], document["status"]) == ("alerting", "by-hand", "failure")
    assert document["cause"] == "quota"
    assert document["date"].startswith("20")
    (step,) = document["steps"]  # what waited for it did not fail by itself
    assert step["step"] == "train" and "waited longer than" in step["message"]
    assert step["log"].endswith("/dags/alerting/runs/by-hand/tasks/train")
    assert headers["authorization"] == "Bearer hook-1" and headers["x-team"] == "nlp"


def test_slack_gets_it_by_token_and_by_incoming_webhook(told: tuple[list[Received], list[str], str]) -> None:
    by_token, headers = body_of(told[0], "/slack")
    assert by_token["channel"] == "#ml" and headers["authorization"] == "Bearer xoxb-1"
    assert by_token["text"].startswith("alerting failed: quota in train\nrun by-hand")
    incoming, headers = body_of(told[0], "/services/T/B/x")
    assert incoming["text"] == by_token["text"] and "authorization" not in headers


def test_pagerduty_gets_one_incident_for_the_run(told: tuple[list[Received], list[str], str]) -> None:
    event, _ = body_of(told[0], "/page")
    assert (event["routing_key"], event["event_action"]) == ("key-1", "trigger")
    assert event["dedup_key"] == "gpuflow/alerting/by-hand"
    assert event["payload"]["severity"] == "critical"
    assert event["payload"]["custom_details"]["steps"][0]["cause"] == "quota"


def test_a_mail_is_sent(told: tuple[list[Received], list[str], str]) -> None:
    (mail,) = told[1]
    assert "Subject: alerting failed: quota in train" in mail and "To: team@example.com" in mail
