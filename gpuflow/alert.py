"""What an alert says, and how it is posted. Only the standard library: it also runs where gpuflow is not installed."""

from __future__ import annotations

import json
import re
import time
import urllib.request

TRIES = 3
WAIT = 5
TIMEOUT = 10
MOST_STEPS = 5
"""How many steps a message names; the others are counted."""
MOST_WORDS = 500
"""How much of what a program said is repeated."""
SLACK_API = "https://slack.com/api/chat.postMessage"
PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
CAUSES = (
    ("out of memory", r"OOMKilled|out of memory|memory limit"),
    ("deadline", r"its deadline|workflow deadline|dagrun_timeout|timed_out|its time limit"),
    ("timed out", r"longer than the specified deadline|execution_timeout|DeadlineExceeded|timed out|its timeout"),
    ("quota", r"exceeded quota|insufficient quota|insufficient unused quota|can never be admitted|waited longer than"),
    ("interruption", r"interrupted|pod deleted|[Pp]reempt|node was low|node shutdown|node is shutting|exit code 143\)"),
)
"""What the words of an engine tell about a cause, the first that fits."""


def cause_of(words):
    """The cause of a failure, from what the engine said about it."""
    return next((cause for cause, pattern in CAUSES if re.search(pattern, words or "")), "failure")


def failed_step(step, words, log=None, cause=None):
    """A step that failed, as a document."""
    words = words or ""
    said = words if len(words) <= MOST_WORDS else words[:MOST_WORDS] + "…"
    found = {"step": step, "cause": cause or cause_of(words), "message": said}
    return {**found, "log": log} if log else found


def alert_of(pipeline, run, status, date=None, steps=(), link=None, cause=None):
    """What is told about a run. `status`: failure or success; `steps`: those that failed."""
    shown = list(steps)[:MOST_STEPS]
    document = {"pipeline": pipeline, "run": run, "status": status, "date": date, "link": link, "steps": shown}
    if status == "failure":
        document["cause"] = cause or (shown[0]["cause"] if shown else "failure")
        document["more"] = max(0, len(steps) - len(shown))
    return {key: value for key, value in document.items() if value is not None}


def summary_of(alert):
    """One line."""
    if alert["status"] == "success":
        return f"{alert['pipeline']} succeeded"
    names = ", ".join(each["step"] for each in alert["steps"])
    more = f" and {alert['more']} more" if alert.get("more") else ""
    where = f" in {names}{more}" if names else ""
    return f"{alert['pipeline']} failed: {alert['cause']}{where}"


def text_of(alert):
    """The whole message, as plain text."""
    lines = [summary_of(alert), f"run {alert['run']}" + (f", {alert['date']}" if alert.get("date") else "")]
    for each in alert["steps"]:
        lines.append(f"{each['step']}: {each['cause']}: {each['message']}".rstrip(": "))
        lines += [each["log"]] if each.get("log") else []
    return "\n".join([*lines, alert["link"]] if alert.get("link") else lines)


def slack_body(alert, channel=None):
    """For chat.postMessage, or for an incoming webhook. Nothing in it is a mention, a link or a format."""
    text = text_of(alert).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    body = {"text": text, "mrkdwn": False, "unfurl_links": False}
    return {"channel": channel, **body} if channel else body


def pagerduty_body(alert, routing_key, severity):
    """For the Events API v2. A run is one incident, and a success of it ends the incident."""
    event = {"routing_key": routing_key, "dedup_key": f"gpuflow/{alert['pipeline']}/{alert['run']}"[:255]}
    if alert["status"] == "success":
        return {**event, "event_action": "resolve"}
    payload = {"summary": summary_of(alert)[:1024], "source": alert["pipeline"], "severity": severity}
    return {**event, "event_action": "trigger", "payload": {**payload, "custom_details": alert}}


class NotSent(Exception):
    """Why an alert could not be sent; no secret is in it."""


def post(url, body, headers=None, pause=time.sleep):
    """POST a document; tries again, then raises NotSent. The answer's text is the result."""
    if not url.startswith(("https://", "http://")):
        raise NotSent("its address is neither https:// nor http://")
    data = json.dumps(body).encode()
    sent = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "gpuflow", **(headers or {})}
    trouble = "nobody tried"
    for attempt in range(TRIES):
        if attempt:
            pause(WAIT * attempt)
        try:
            request = urllib.request.Request(url, data, sent, method="POST")
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return answer.read(65536).decode("utf-8", "replace")
        except Exception as found:  # of any kind: an alert never ends a run
            code = getattr(found, "code", None)
            # Not the message: a library may put the address into it, and the address may be a secret.
            trouble = f"the answer was {code}" if code else f"no answer ({type(found).__name__})"
            if code is not None and 400 <= code < 500 and code not in (408, 429):
                break
    raise NotSent(trouble)


def post_to_slack(url, body, headers=None):
    """Slack's API says in the body whether it took a message; an incoming webhook answers `ok`."""
    answer = post(url, body, headers)
    if answer.startswith("{"):
        document = json.loads(answer)
        if not document.get("ok"):
            raise NotSent(f"Slack answered {str(document.get('error'))[:80]}")
