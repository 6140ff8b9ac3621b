"""Alerts as callbacks of the DAG, and what Airflow cannot read of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuflow.core.errors import Finding, rule
from gpuflow.site.model import alerts_of
from gpuflow.spec.notify import Alert, SecretValue, Webhook
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.airflow.python_source import Call
from gpuflow.targets.capabilities import refusal
from gpuflow.targets.refusals import NO_ALERTS_HINT, alerts_with_places, endless_waits
from gpuflow.targets.target import Request

NOTIFIER_PACKAGES = {
    "slack": "apache-airflow-providers-slack",
    "pagerduty": "apache-airflow-providers-pagerduty",
    "mail": "apache-airflow-providers-smtp",
}
"""Where the notifiers of a DAG file come from that does not import gpuflow."""
_RUN = "run {{ run_id }}{{ ', ' ~ dag_run.run_after if dag_run is defined and dag_run else '' }}"
TEXTS = {"failure": "{{ dag.dag_id }} failed: {{ reason }}\n" + _RUN, "success": "{{ dag.dag_id }} succeeded\n" + _RUN}
"""What Airflow itself knows, for its own notifiers."""


def callbacks(request: Request) -> dict[str, list[Call]]:
    """Settings of the DAG: what is called when a run has failed, and when it has succeeded."""
    stock = request.options_as(AirflowOptions).standalone
    found: dict[str, list[Call]] = {}
    for alert in alerts_of(request.pipeline, request.site):
        if _lacks(alert) or (stock and alert.channel not in NOTIFIER_PACKAGES):
            continue  # left out, and accepted (--allow-lossy)
        for status in dict.fromkeys(alert.on):
            call = _notifier(alert, status) if stock else _call(alert)
            found.setdefault(f"on_{status}_callback", []).append(call)
    return found


@refusal("GF301", "GF383", optional=True)
def alert_refusals(request: Request) -> Iterator[Finding]:
    """Alerts that need what Airflow cannot read: Secrets of the cluster."""
    stock = request.options_as(AirflowOptions).standalone
    for alert, where in alerts_with_places(request.pipeline, request.site):
        if lacking := _lacks(alert):
            text = f"notify.{alert.channel}: Airflow reads no Secrets of the cluster, and {lacking}"
            yield Finding("GF383", text, where, f"add connection: NAME, an Airflow connection; {NO_ALERTS_HINT}")
        elif stock and alert.channel not in NOTIFIER_PACKAGES:
            text = f"airflow --standalone does not support notify.{alert.channel}: Airflow has no notifier for it"
            hint = f"compile without --standalone, so that the DAG imports gpuflow.airflow; {NO_ALERTS_HINT}"
            yield Finding("GF301", text, where, hint)


@rule("GF384", "GF385")
def alert_notes(request: Request) -> Iterator[Finding]:
    """Waits without end, and what a file that does not import gpuflow needs and leaves out."""
    yield from endless_waits(request.plan, queue_timeout=True)
    if not request.options_as(AirflowOptions).standalone:
        return
    said = set()
    for alert, where in alerts_with_places(request.pipeline, request.site):
        if alert.channel in NOTIFIER_PACKAGES and alert.channel not in said:
            said.add(alert.channel)
            text = f"notify.{alert.channel}: Airflow's own notifier names DAG, run and date, but no step and no cause"
            hint = f"install {NOTIFIER_PACKAGES[alert.channel]} in Airflow; "
            hint += "without --standalone the alert names steps and causes"
            yield Finding("GF385", text, where, hint, "note")


def _lacks(alert: Alert) -> str | None:
    """What is only in a Secret, in words."""
    channel: Any = getattr(alert, alert.channel)
    if channel.connection is not None:
        return None
    if not isinstance(channel, Webhook):
        return "no connection is named"
    if isinstance(channel.url, SecretValue):
        return "the url is in one"
    secret = [name for name, value in channel.headers.items() if isinstance(value, SecretValue)]
    return f"the header {secret[0]} is in one" if secret else None


def _call(alert: Alert) -> Call:
    if alert.slack is not None:
        named: dict[str, Any] = {"connection": alert.slack.connection}
        return Call("slack_alert", (), named | ({"channel": alert.slack.channel} if alert.slack.channel else {}))
    if alert.pagerduty is not None:
        return Call(
            "pagerduty_alert", (), {"connection": alert.pagerduty.connection, "severity": alert.pagerduty.severity}
        )
    if alert.mail is not None:
        return Call("mail_alert", (list(alert.mail.to),), {"connection": alert.mail.connection})
    assert alert.webhook is not None
    hook, named = alert.webhook, {}
    plain = {name: value for name, value in hook.headers.items() if not isinstance(value, SecretValue)}
    if plain:
        named["headers"] = plain
    if hook.connection is not None:
        named["connection"] = hook.connection
    return Call("webhook_alert", (hook.url,) if isinstance(hook.url, str) else (), named)


def _notifier(alert: Alert, status: str) -> Call:
    """Of Airflow's own providers, by the names and arguments they have."""
    text = TEXTS[status]
    if alert.slack is not None:
        if alert.slack.channel is None:
            return Call("SlackWebhookNotifier", (), {"slack_webhook_conn_id": alert.slack.connection, "text": text})
        named = {"slack_conn_id": alert.slack.connection, "channel": alert.slack.channel, "text": text}
        return Call("SlackNotifier", (), named)
    if alert.pagerduty is not None:
        return Call("PagerdutyNotifier", (), {
            "pagerduty_events_conn_id": alert.pagerduty.connection,
            "summary": text,
            "source": "{{ dag.dag_id }}",
            "severity": alert.pagerduty.severity,
            "action": "trigger" if status == "failure" else "resolve",
            "dedup_key": "gpuflow/{{ dag.dag_id }}/{{ run_id }}",
        })  # fmt: skip
    assert alert.mail is not None
    return Call("SmtpNotifier", (), {
        "smtp_conn_id": alert.mail.connection,
        "to": list(alert.mail.to),
        "subject": text.partition("\n")[0],
        "html_content": text.replace("\n", "<br>"),
    })  # fmt: skip
