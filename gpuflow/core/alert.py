"""What an alert says, and how it is posted. Only the standard library: it also runs where gpuflow is not installed."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

TRIES = 3
WAIT = 5
TIMEOUT = 10
MOST_STEPS = 5
"""How many steps a message names; the others are counted."""
MOST_WORDS = 500
"""How much of what a program said is repeated."""
SLACK_API = "https://slack.com/api/chat.postMessage"
PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
Document = dict[str, Any]


def failed_step(step: str, words: str | None, log: str | None = None, cause: str | None = None) -> Document:
    """A step that failed, as a document."""
    words = words or ""
    said = words if len(words) <= MOST_WORDS else words[:MOST_WORDS] + "…"
    found = {"step": step, "cause": cause or "failure", "message": said}
    return {**found, "log": log} if log else found


def alert_of(
    pipeline: str,
    run: str,
    status: str,
    date: str | None = None,
    steps: Sequence[Document] = (),
    link: str | None = None,
    cause: str | None = None,
) -> Document:
    """What is told about a run. `status`: failure or success; `steps`: those that failed."""
    shown = list(steps)[:MOST_STEPS]
    document: Document = {
        "pipeline": pipeline,
        "run": run,
        "status": status,
        "date": date,
        "link": link,
        "steps": shown,
    }
    if status == "failure":
        document["cause"] = cause or (shown[0]["cause"] if shown else "failure")
        document["more"] = max(0, len(steps) - len(shown))
    return {key: value for key, value in document.items() if value is not None}


def summary_of(alert: Document) -> str:
    """One line."""
    if alert["status"] == "success":
        return f"{alert['pipeline']} succeeded"
    names = ", ".join(each["step"] for each in alert["steps"])
    more = f" and {alert['more']} more" if alert.get("more") else ""
    where = f" in {names}{more}" if names else ""
    return f"{alert['pipeline']} failed: {alert['cause']}{where}"


def text_of(alert: Document) -> str:
    """The whole message, as plain text."""
    lines = [summary_of(alert), f"run {alert['run']}" + (f", {alert['date']}" if alert.get("date") else "")]
    for each in alert["steps"]:
        lines.append(f"{each['step']}: {each['cause']}: {each['message']}".rstrip(": "))
        lines += [each["log"]] if each.get("log") else []
    return "\n".join([*lines, alert["link"]] if alert.get("link") else lines)


def slack_body(alert: Document, channel: str | None = None) -> Document:
    """For chat.postMessage, or for an incoming webhook. Nothing in it is a mention, a link or a format."""
    text = text_of(alert).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    body: Document = {"text": text, "mrkdwn": False, "unfurl_links": False}
    return {"channel": channel, **body} if channel else body


def pagerduty_body(alert: Document, routing_key: str, severity: str) -> Document:
    """For the Events API v2. A run is one incident, and a success of it ends the incident."""
    event: Document = {"routing_key": routing_key, "dedup_key": f"gpuflow/{alert['pipeline']}/{alert['run']}"[:255]}
    if alert["status"] == "success":
        return {**event, "event_action": "resolve"}
    payload: Document = {"summary": summary_of(alert)[:1024], "source": alert["pipeline"], "severity": severity}
    return {**event, "event_action": "trigger", "payload": {**payload, "custom_details": alert}}


class NotSent(Exception):
    """Why an alert could not be sent; no secret is in it."""


class _Straight(urllib.request.HTTPRedirectHandler):
    """Follows nothing: what is secret goes to the address that was named, and nowhere else."""

    def redirect_request(self, *_: object) -> None:
        return None


def post(
    url: str,
    body: Document,
    headers: Mapping[str, str] | None = None,
    pause: Callable[[float], object] = time.sleep,
) -> str:
    """POST a document; tries again, then raises NotSent. The answer's text is the result."""
    if not url.startswith(("https://", "http://")):
        raise NotSent("its address is neither https:// nor http://")
    data = json.dumps(body).encode()
    sent = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "gpuflow", **(headers or {})}
    opener, trouble = urllib.request.build_opener(_Straight), "nobody tried"
    for attempt in range(TRIES):
        if attempt:
            pause(WAIT * attempt)
        try:
            request = urllib.request.Request(url, data, sent, method="POST")
            with opener.open(request, timeout=TIMEOUT) as answer:
                text: str = answer.read(65536).decode("utf-8", "replace")
                return text
        except Exception as found:  # of any kind: an alert never ends a run
            code = getattr(found, "code", None)
            # Not the message: a library may put the address into it, and the address may be a secret.
            trouble = f"the answer was {code}" if code else f"no answer ({type(found).__name__})"
            if code is not None and 400 <= code < 500 and code not in (408, 429):
                break
    raise NotSent(trouble)


def post_to_slack(url: str, body: Document, headers: Mapping[str, str] | None = None) -> None:
    """Slack's API says in the body whether it took a message; an incoming webhook answers `ok`."""
    answer = post(url, body, headers)
    if answer.startswith("{"):
        document = json.loads(answer)
        if not document.get("ok"):
            raise NotSent(f"Slack answered {str(document.get('error'))[:80]}")
