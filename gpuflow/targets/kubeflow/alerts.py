"""Alerts as exit steps: KFP sends nothing by itself, so a small container of the site's image does.

The program is `gpuflow/alert.py` as it stands, and a few lines below it: nothing of gpuflow need be in the image.
What is secret comes from Secrets as variables; what is not stands in one variable as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

from gpuflow.alert import PAGERDUTY, SLACK_API
from gpuflow.errors import Finding
from gpuflow.site import Site
from gpuflow.site.alerts import alerts_of
from gpuflow.spec.container import SecretKey
from gpuflow.spec.notify import Alert, SecretValue
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.settings import Settings
from gpuflow.spec.step import Step
from gpuflow.spec.text import RunRef
from gpuflow.targets.alerts import UNSAID, placed_alerts
from gpuflow.targets.frame import Request
from gpuflow.targets.kubeflow.exit_outputs import added_defaults, started_after
from gpuflow.targets.kubeflow.facts import FACTS
from gpuflow.targets.kubeflow.outcomes import added_step
from gpuflow.targets.kubeflow.own_steps import free_name, own_step

CARRIED = ("slack", "webhook", "pagerduty")
_SENDER = """
import os
import sys

said = json.loads(os.environ["ALERT"])
link = said["url"] and said["url"] + "/#/runs/details/" + sys.argv[1]
now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
found = alert_of(said["pipeline"], sys.argv[1], said["status"], now, (), link)
for each in said["alerts"]:
    secret = [os.environ.get(name, "").strip() for name in each["secrets"]]
    headers = {**each["headers"], **dict(zip(each["secret_headers"], secret))}
    try:
        if each["channel"] == "pagerduty":
            post(each["url"], pagerduty_body(found, secret[0], each["severity"]))
        elif each["channel"] == "slack":
            post_to_slack(each["url"] or secret[0], slack_body(found, each["slack_channel"]), headers)
        else:
            post(each["url"] or secret[-1], found, headers)
        print("alert", each["channel"] + ": sent")
    except Exception as trouble:
        why = trouble if isinstance(trouble, NotSent) else type(trouble).__name__
        print("alert", each["channel"] + ": not sent:", why)
"""


def with_alerts(pipeline: Pipeline, site: Site) -> Pipeline:
    """The pipeline with an exit step for each outcome that somebody is told of, one that asks for the outcome, and a
    first step that writes what exit steps may read; the same one where none of them is needed."""
    sent = [alert for alert in alerts_of(pipeline, site) if alert.channel in CARRIED and _lacks(alert, site) is None]
    added: dict[str, Step] = {}
    for status in ("failure", "success"):
        told = [alert for alert in sent if status in alert.on]
        if told:
            added[free_name(f"alert-{status}", pipeline)] = _step(pipeline, site, status, told)
    added |= added_step(pipeline.model_copy(update={"exit": {**pipeline.exit, **added}}), site)
    first = added_defaults(pipeline, site)
    if not added and not first:
        return pipeline
    # Our containers take nothing from the defaults of steps, so these are put into the steps that do.
    sections = {
        section: {name: pipeline.effective(name) for name in getattr(pipeline, section)}
        for section in ("steps", "exit")
    }
    steps = {**first, **started_after(first, sections["steps"])} if first else sections["steps"]
    update = {"defaults": Settings(), "steps": steps, "exit": {**sections["exit"], **added}}
    return pipeline.model_copy(update=update)


def alert_refusals(request: Request) -> Iterator[Finding]:
    """Alerts that lack an image to be sent from, or a Secret."""
    for alert, where in placed_alerts(request.pipeline, request.site):
        lacking = _lacks(alert, request.site) if alert.channel in CARRIED else None
        if lacking is not None:
            yield Finding("GF383", f"notify.{alert.channel}: {lacking[0]}", where, f"{lacking[1]}; {UNSAID}")


def _lacks(alert: Alert, site: Site) -> tuple[str, str] | None:
    if site.images.alerts is None:
        return (
            f'Kubeflow sends alerts from a container, and site "{site.name}" names no image for it',
            "set images.alerts in the site to an image with Python, such as python:3.13-slim",
        )
    if alert.slack is not None and alert.slack.authorization is None and alert.slack.url is None:
        return (
            "a pod reads Secrets, and no connection of Airflow",
            "give url: {secret: SECRET, key: KEY}, the URL of an incoming webhook",
        )
    if alert.pagerduty is not None and alert.pagerduty.routing_key is None:
        return "a pod reads Secrets, and no connection of Airflow", "give routing_key: {secret: SECRET, key: KEY}"
    if alert.webhook is not None and alert.webhook.url is None:
        return "a pod reads Secrets, and no connection of Airflow", "give it a url"
    return None


def _step(pipeline: Pipeline, site: Site, status: str, alerts: list[Alert]) -> Step:
    secrets: dict[str, SecretKey] = {}
    documents = [_document(alert, secrets) for alert in alerts]
    base = site.engine(FACTS.name).url
    said = {"pipeline": pipeline.name, "status": status, "url": base and base.rstrip("/"), "alerts": documents}
    program = (resources.files("gpuflow") / "alert.py").read_text(encoding="utf-8") + _SENDER
    env = {"ALERT": json.dumps(said, ensure_ascii=False), **secrets}
    return own_step(site, f"Tells of a {status}", program, RunRef("id"), env=env, on=status)


def _document(alert: Alert, secrets: dict[str, SecretKey]) -> dict[str, Any]:
    """One alert as the program reads it; the Secrets it names become variables."""
    found: dict[str, Any] = {"channel": alert.channel, "url": None, "headers": {}, "secret_headers": [], "secrets": []}

    def secret(value: SecretValue) -> None:
        name = f"ALERT_SECRET_{len(secrets) + 1}"
        secrets[name] = SecretKey(secret=value.secret, key=value.key)
        found["secrets"].append(name)

    if alert.pagerduty is not None:
        assert alert.pagerduty.routing_key is not None
        secret(alert.pagerduty.routing_key)
        return {**found, "url": PAGERDUTY, "severity": alert.pagerduty.severity}
    if alert.slack is not None:
        if alert.slack.authorization is not None:
            secret(alert.slack.authorization)
            return {
                **found,
                "url": SLACK_API,
                "secret_headers": ["Authorization"],
                "slack_channel": alert.slack.channel,
            }
        assert alert.slack.url is not None
        secret(alert.slack.url)
        return {**found, "slack_channel": None}
    assert alert.webhook is not None
    for name, value in alert.webhook.headers.items():
        if isinstance(value, SecretValue):
            found["secret_headers"].append(name)
            secret(value)
        else:
            found["headers"][name] = value
    if isinstance(alert.webhook.url, SecretValue):
        secret(alert.webhook.url)
    else:
        found["url"] = alert.webhook.url
    return found
