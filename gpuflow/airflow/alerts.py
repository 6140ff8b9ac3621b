"""Alerts of a DAG, its `on_failure_callback` and `on_success_callback`, and the causes of failures that they tell.

Airflow runs the callbacks in the DAG processor, once for a run, when the scheduler has seen its end. No pod and no
worker is asked: they only need the network. Which steps failed is asked of Airflow. Why they failed, each task leaves
in XCom before it ends (`record_cause`), because nothing can be written after; the next try of a task begins with no
XCom. An alert that cannot be sent is a line in the DAG processor's log for this file. It changes nothing about the run.
"""

from __future__ import annotations

import base64
import html
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from airflow.providers.common.compat.sdk import AirflowSkipException

from gpuflow.airflow.references import Context
from gpuflow.core import alert
from gpuflow.runtime.base import outcomes

FAILURE_XCOM = "gpuflow_failure"
FAILURE, INTERRUPTION, QUOTA, DEADLINE, REFUSED = "failure", "interruption", "quota", "deadline", "refused"
OUT_OF_MEMORY, TIMED_OUT = "out of memory", "timed out"
CAUSE_BY_OUTCOME = {
    outcomes.INTERRUPTED: INTERRUPTION,
    outcomes.NEVER_STARTED: INTERRUPTION,
    outcomes.OUT_OF_MEMORY: OUT_OF_MEMORY,
    outcomes.TIMED_OUT: TIMED_OUT,
}
"""The causes that a pod's end tells; any other end is a failure."""
_LAST_SENTENCES = (
    (OUT_OF_MEMORY, "killed for memory|over its memory limit|ran out of memory"),
    (TIMED_OUT, "it ran longer than "),
    (INTERRUPTION, "told to stop|budget of [0-9]+ interruptions is spent|[0-9]+ interruptions so far"),
)
"""What the supervisor's last sentence holds when no further attempt may run; no program writes in it."""
LONGEST_MESSAGE = 2000
"""How many characters of a message are kept."""


def cause_of_end(outcome: str, last_words: str) -> str:
    """The cause of a pod's end. For a supervised pod that ended for good, the supervisor names it."""
    if outcome == outcomes.FINAL:
        for cause, words in _LAST_SENTENCES:
            if re.match(rf" \(exit code {outcomes.EXIT_FINAL}\): gpuflow-run: [^\n]*({words})", last_words):
                return cause
    return CAUSE_BY_OUTCOME.get(outcome, FAILURE)


@contextmanager
def record_cause(operator: Any, context: Context) -> Iterator[None]:
    """Leave the cause behind when a task fails and its DAG sends alerts."""
    operator.cause = FAILURE
    try:
        yield
    except AirflowSkipException:
        raise
    except Exception as failure:
        if _is_asked_for(context):
            try:
                context["ti"].xcom_push(
                    key=FAILURE_XCOM, value={"cause": operator.cause, "message": str(failure)[:LONGEST_MESSAGE]}
                )
            except Exception as trouble:
                operator.log.warning("alerts will not say why this task failed: %s", trouble)
        raise


def _is_asked_for(context: Context) -> bool:
    callbacks = getattr(context.get("dag"), "on_failure_callback", None) or ()
    return any(isinstance(each, Alert) for each in (callbacks if isinstance(callbacks, list | tuple) else [callbacks]))


log = logging.getLogger(__name__)
FAILED = "failed"
SLACK_WEBHOOKS = "https://hooks.slack.com/services"


class Alert:
    """One way to tell how a run ended. Give it to a DAG: `on_failure_callback=[slack_alert(connection="chat")]`."""

    def __call__(self, context: Mapping[str, Any]) -> None:
        """Called by Airflow when a run has ended. Never raises."""
        try:
            self.send(document_of(context))
            log.info("%s: sent", self)
        except alert.NotSent as why:
            log.error("%s: not sent: %s", self, why)
        except Exception as trouble:
            # Its words may hold what a connection holds.
            log.error("%s: not sent: %s", self, type(trouble).__name__)

    def send(self, document: dict[str, Any]) -> None:
        """Hand it over, or raise."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"


class slack_alert(Alert):
    """A message in Slack: by a Slack API connection when there is a channel, else by that of an incoming webhook.

    :param connection: an Airflow connection: of Slack's API where there is a channel, else of an incoming webhook.
    :param channel: where to post, for example `#ml`.
    """

    def __init__(self, *, connection: str, channel: str | None = None) -> None:
        self.connection, self.channel = connection, channel

    def send(self, document: dict[str, Any]) -> None:
        known = connection_of(self.connection)
        body = alert.slack_body(document, self.channel)
        if self.channel is None:
            secret = known.password or ""
            url = secret if "://" in secret else f"{address_of(known, SLACK_WEBHOOKS).rstrip('/')}/{secret.lstrip('/')}"
            alert.post_to_slack(url, body)
        else:
            headers = {"Authorization": f"Bearer {known.password}"}
            alert.post_to_slack(address_of(known, alert.SLACK_API), body, headers)


class webhook_alert(Alert):
    """A POST of one JSON document. A connection adds what is secret: headers in its extra, a login or a token.

    :param url: where to post; the connection's address unless given.
    :param headers: more headers, none of them secret.
    :param connection: an HTTP connection whose extra, login or password is sent along.
    """

    def __init__(
        self, url: str | None = None, *, headers: Mapping[str, str] | None = None, connection: str | None = None
    ) -> None:
        self.url, self.headers, self.connection = url, dict(headers or {}), connection

    def send(self, document: dict[str, Any]) -> None:
        url, headers = self.url, dict(self.headers)
        if self.connection is not None:
            known = connection_of(self.connection)
            url = url or address_of(known, "")
            headers |= _secret_headers(known)
        alert.post(url or "", document, headers)


class pagerduty_alert(Alert):
    """An event in PagerDuty; the connection's password is the integration key.

    :param connection: a PagerDuty events connection; its password is the integration key.
    :param severity: critical, error, warning or info.
    """

    def __init__(self, *, connection: str, severity: str = "error") -> None:
        self.connection, self.severity = connection, severity

    def send(self, document: dict[str, Any]) -> None:
        known = connection_of(self.connection)
        body = alert.pagerduty_body(document, known.password, self.severity)
        alert.post(address_of(known, alert.PAGERDUTY), body)


class mail_alert(Alert):
    """A mail, by an SMTP connection of Airflow's own provider.

    :param to: who gets it.
    :param connection: an SMTP connection.
    """

    def __init__(self, to: Sequence[str], *, connection: str = "smtp_default") -> None:
        self.to, self.connection = list(to), connection

    def send(self, document: dict[str, Any]) -> None:
        from airflow.providers.smtp.hooks.smtp import SmtpHook

        text = html.escape(alert.text_of(document)).replace("\n", "<br>\n")
        with SmtpHook(smtp_conn_id=self.connection) as hook:
            hook.send_email_smtp(to=self.to, subject=alert.summary_of(document)[:200], html_content=text)


def connection_of(name: str) -> Any:
    """The connection; the error for a missing one names it."""
    from airflow.sdk import Connection

    try:
        return Connection.get(name)
    except Exception as missing:
        raise alert.NotSent(f'there is no connection "{name}" ({type(missing).__name__})') from None


def address_of(known: Any, default: str) -> str:
    """The address that a connection names, as Airflow's HTTP hook reads it."""
    host: str = known.host or ""
    if not host:
        return default
    if "://" in host:
        return host
    port = f":{known.port}" if known.port else ""
    return f"{known.schema or 'https'}://{host}{port}"


def _secret_headers(known: Any) -> dict[str, str]:
    extra = known.extra_dejson or {}
    given = extra.get("headers")
    headers = given if isinstance(given, dict) else {k: v for k, v in extra.items() if isinstance(v, str)}
    if known.login:
        both = f"{known.login}:{known.password or ''}".encode()
        return {"Authorization": f"Basic {base64.b64encode(both).decode()}", **headers}
    return {"Authorization": f"Bearer {known.password}", **headers} if known.password else headers


def document_of(context: Mapping[str, Any]) -> dict[str, Any]:
    """The alert about the run in a DAG callback's context."""
    dag, run_id, reason = context["dag"], context["run_id"], context.get("reason") or ""
    run = context.get("dag_run")
    date = getattr(run, "logical_date", None) or getattr(run, "run_after", None)
    link = f"{_base_url()}/dags/{dag.dag_id}/runs/{quote(run_id)}"
    status = "success" if reason == "success" else "failure"
    steps = list(failed_steps(dag, run_id, link)) if status == "failure" else []
    cause = "deadline" if reason == "timed_out" else None  # Airflow's own limit of a run
    when = None if date is None else date.isoformat()
    document: dict[str, Any] = alert.alert_of(dag.dag_id, run_id, status, when, steps, link, cause)
    return document


def failed_steps(dag: Any, run_id: str, link: str) -> Iterator[dict[str, Any]]:
    """The tasks that failed, each with what is known about it. Less is known when Airflow does not answer."""
    for task_id, index in _failed_tasks(dag, run_id):
        said = _left_behind(dag.dag_id, run_id, task_id, index)
        mapped = f"/mapped/{index}" if index is not None else ""
        name = task_id if index is None else f"{task_id}[{index}]"
        yield alert.failed_step(name, said.get("message"), f"{link}/tasks/{quote(task_id)}{mapped}", said.get("cause"))


def _failed_tasks(dag: Any, run_id: str) -> list[tuple[str, int | None]]:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    try:
        states = RuntimeTaskInstance.get_task_states(dag_id=dag.dag_id, run_ids=[run_id]).get(run_id, {})
    except Exception as trouble:
        log.warning("Airflow does not say which tasks failed: %s", type(trouble).__name__)
        return []
    known: set[str] = set(dag.task_ids)
    found: list[tuple[str, int | None]] = []
    for name in sorted(name for name, state in states.items() if str(state) == FAILED):
        task_id, _, index = name.rpartition("_")  # Airflow names the copies of a mapped task task_0, task_1, …
        mapped = name not in known and task_id in known and index.isdecimal()
        found.append((task_id, int(index)) if mapped else (name, None))
    return found


def _left_behind(dag_id: str, run_id: str, task_id: str, index: int | None) -> dict[str, Any]:
    from airflow.sdk.execution_time.xcom import XCom

    try:
        said = XCom.get_one(key=FAILURE_XCOM, dag_id=dag_id, task_id=task_id, run_id=run_id, map_index=index)
    except Exception as trouble:
        log.warning("why task %s failed is not known: %s", task_id, type(trouble).__name__)
        return {}
    return said if isinstance(said, dict) else {}


def _base_url() -> str:
    from airflow.providers.common.compat.sdk import conf

    url: str = conf.get("api", "base_url", fallback="") or "http://localhost:8080"
    return url.rstrip("/")
