"""Who is told how a run on this machine ended: nobody unless the user says so, and then with what this machine knows.

What a Secret of the cluster holds is taken from a variable named after it and its key: SLACK_TOKEN for {secret: slack,
key: token}.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from gpuflow.core import alert as messages
from gpuflow.core.alert import NotSent
from gpuflow.local.record import FAILED
from gpuflow.local.walk import Walk
from gpuflow.site import Site
from gpuflow.spec.notify import Alert, SecretValue


class _Unknown(Exception):
    """A secret that this environment does not have."""


def send_alerts(walk: Walk, site: Site, state: str, say: Callable[[str], None], *, is_allowed: bool) -> None:
    """Tell those whom the pipeline and the site name, or say that they are not told."""
    ending = "failure" if state == FAILED else "success"
    wanted = [each for each in alerts_of(walk, site) if ending in each.on]
    if not wanted:
        return
    if not is_allowed:
        say(f"not told: {', '.join(each.channel for each in wanted)}; --notify tells them")
        return
    failed = [
        messages.failed_step(node.key, node.because)
        for node in walk.nodes()
        if node.state == FAILED and not node.inside
    ]
    document = messages.alert_of(walk.plan.pipeline.name, walk.run.id, ending, walk.run.facts().moment, failed)
    for each in wanted:
        try:
            _send(each, document)
            say(f"told by {each.channel}")
        except (_Unknown, NotSent) as fault:
            say(f"not told by {each.channel}: {fault}")


def alerts_of(walk: Walk, site: Site) -> list[Alert]:
    """Those of the pipeline, and those of the site unless the pipeline names nobody."""
    own = walk.plan.pipeline.notify
    return [] if own == () else [*(own or ()), *site.notify]


def _send(each: Alert, document: messages.Document) -> None:
    if each.slack is not None:
        if each.slack.url is not None:
            messages.post_to_slack(_text(each.slack.url), messages.slack_body(document))
            return
        if each.slack.authorization is not None:
            headers = {"Authorization": _text(each.slack.authorization)}
            messages.post_to_slack(messages.SLACK_API, messages.slack_body(document, each.slack.channel), headers)
            return
    elif each.webhook is not None and each.webhook.url is not None:
        headers = {name: _text(value) for name, value in each.webhook.headers.items()}
        messages.post(_text(each.webhook.url), document, headers)
        return
    elif each.pagerduty is not None and each.pagerduty.routing_key is not None:
        key = _text(each.pagerduty.routing_key)
        messages.post(messages.PAGERDUTY, messages.pagerduty_body(document, key, each.pagerduty.severity))
        return
    raise _Unknown("only Airflow has what it names")


def _text(value: Any) -> str:
    if not isinstance(value, SecretValue):
        return str(value)
    name = variable_of(value)
    if not os.environ.get(name):
        raise _Unknown(f"{name} is not set, which stands for the key {value.key} of the Secret {value.secret}")
    return os.environ[name]


def variable_of(value: SecretValue) -> str:
    """`SLACK_TOKEN` for {secret: slack, key: token}."""
    return re.sub(r"[^A-Z0-9]+", "_", f"{value.secret}_{value.key}".upper())
