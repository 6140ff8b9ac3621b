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
from .services import LONGEST, Services
from .stand_in import StandIn, quota_words

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

PATHS = {"/slack", "/services/T/B/x", "/hook", "/page"}


@pytest.fixture
def told(tmp_path: Path) -> tuple[list[Received], list[str], str]:
    """What arrives after a run whose every pod is refused, and how the run ended."""
    with StandIn() as server, Receiver() as receiver, MailBox() as mails:
        # The namespace has no quota left, for ever.
        server.refuse(r"POST .*/pods(\?dry)?", 403, quota_words("1", "8", "8"), "Forbidden", times=10**9)
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
        connection = {"kube_config_path": str(server.kubeconfig(tmp_path)), "in_cluster": False}
        home = Home(
            tmp_path, Path(sys.executable).parent, connection, AIRFLOW__GPUFLOW__DEPLOYMENT="tests", **variables
        )
        home.migrate()
        source = tmp_path / "alerting.yaml"
        source.write_text(PIPELINE.format(url=receiver.url))
        home.compile(source)
        with Services(home) as airflow:
            airflow.start("api-server")
            airflow.ask("PATCH", "/dags/alerting", {"is_paused": False})
            airflow.ask("POST", "/dags/alerting/dagRuns", {"dag_run_id": "by-hand", "logical_date": None})
            # The DAG processor is who sends: Airflow calls a DAG's callbacks there.
            airflow.start("scheduler", "triggerer", "dag-processor")
            # Not four of any kind: where an answer takes long, one is sent again.
            airflow.until(lambda: {each.path for each in receiver.got} >= PATHS, "an alert for each of four to come")
            mailed = mails.waited(1, LONGEST)
            (run,) = airflow.runs("alerting")
            time.sleep(5)  # one that came twice would be here by now
            assert not server.made, "a pod started"
            return list(receiver.got), mailed, str(run["state"])


def body_of(got: list[Received], path: str) -> tuple[Any, dict[str, str]]:
    """The one alert that was sent there; the same again is one whose answer took too long for the sender."""
    found = [each for each in got if each.path == path]
    assert found, f"{path}: none of {[each.path for each in got]}"
    assert all(each.body == found[0].body for each in found), f"{path}: {[each.body for each in found]}"
    return found[0].body, found[0].headers


def test_alerts_reach_everybody_although_no_pod_could_start(told: tuple[list[Received], list[str], str]) -> None:
    """One test, so that one Airflow is started for it however tests are spread over workers."""
    got, mails, state = told
    assert state == "failed"
    assert_one_document_names_pipeline_step_cause_date_and_log(got)
    assert_slack_gets_it_by_token_and_by_incoming_webhook(got)
    assert_pagerduty_gets_one_incident_for_the_run(got)
    (mail,) = mails
    assert "Subject: alerting failed: quota in train" in mail and "To: team@example.com" in mail


def assert_one_document_names_pipeline_step_cause_date_and_log(got: list[Received]) -> None:
    document, headers = body_of(got, "/hook")
    assert (document["pipeline"], document["run"], document["status"]) == ("alerting", "by-hand", "failure")
    assert document["cause"] == "quota"
    assert document["date"].startswith("20")
    (step,) = document["steps"]  # what waited for it did not fail by itself
    assert step["step"] == "train"
    assert "waited longer than" in step["message"] and "exceeded quota: gpuq" in step["message"]
    assert step["log"].endswith("/dags/alerting/runs/by-hand/tasks/train")
    assert headers["authorization"] == "Bearer hook-1" and headers["x-team"] == "nlp"


def assert_slack_gets_it_by_token_and_by_incoming_webhook(got: list[Received]) -> None:
    by_token, headers = body_of(got, "/slack")
    assert by_token["channel"] == "#ml" and headers["authorization"] == "Bearer xoxb-1"
    assert by_token["text"].startswith("alerting failed: quota in train\nrun by-hand")
    incoming, headers = body_of(got, "/services/T/B/x")
    assert incoming["text"] == by_token["text"] and "authorization" not in headers


def assert_pagerduty_gets_one_incident_for_the_run(got: list[Received]) -> None:
    event, _ = body_of(got, "/page")
    assert (event["routing_key"], event["event_action"]) == ("key-1", "trigger")
    assert event["dedup_key"] == "gpuflow/alerting/by-hand"
    assert event["payload"]["severity"] == "critical"
    assert event["payload"]["custom_details"]["steps"][0]["cause"] == "quota"
