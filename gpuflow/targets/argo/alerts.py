"""Alerts as tasks of the exit handler, sent by Argo's own agent through HTTP templates.

The agent is one pod for a run, which Argo creates when the first HTTP template is due. Which steps failed is in
`workflow.failures`, JSON inside a Go string. What programs said is in it too, so it is read and written as JSON, and no
`{{` is left in it: Argo replaces tags in several passes.

An HTTP template has a timeout only while its own node is pending, which the node of a `retryStrategy` never is. So the
retries are those of a small DAG around it: an agent that cannot start delays the end of a run, and never forever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gpuflow import alert as wording
from gpuflow.errors import Finding
from gpuflow.pod.injected import RESTRICTED
from gpuflow.site import Site
from gpuflow.site.alerts import alerts_of
from gpuflow.spec.notify import Alert, SecretValue
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.alerts import UNSAID, endless_waits, placed_alerts
from gpuflow.targets.argo.facts import FACTS
from gpuflow.targets.argo.names import Names
from gpuflow.targets.argo.retries import TAKEN_AWAY
from gpuflow.targets.argo.run_facts import WHEN
from gpuflow.targets.frame import Request

CARRIED = ("slack", "webhook")
PENDING = "5m"
"""How long a request may wait for the agent."""
STATUS: dict[tuple[str, ...], str] = {
    ("failure",): "{{workflow.status}} != Succeeded",
    ("success",): "{{workflow.status}} == Succeeded",
}
AGENT_POD: dict[str, Any] = {
    "metadata": {},
    "spec": {
        kind: [
            {
                "name": name,
                "image": "engine",
                "resources": {
                    "requests": {"cpu": "10m", "memory": "64M"},
                    "limits": {"cpu": "100m", "memory": "256M"},
                },
                **RESTRICTED,
            }
        ]
        for kind, name in (("initContainers", "init"), ("containers", "main"))
    },
}
"""The agent, as createAgentPod makes it (agent.go, 4.0.2) where ARGO_AGENT_CPU_LIMIT and _MEMORY_LIMIT are not set."""
_UNREADABLE = r"(^|[^\\])((?:\\\\)*)\\(?:x7f|U[0-9a-f]{8})"
"""What a Go string writes in a way that JSON cannot read."""


def sent_by_agent(pipeline: Pipeline, site: Site) -> tuple[Alert, ...]:
    """The alerts that Argo sends."""
    return tuple(alert for alert in alerts_of(pipeline, site) if alert.channel in CARRIED and not _lacks(alert))


def alert_tasks(pipeline: Pipeline, site: Site, names: Names) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Tasks for the exit handler, and the templates that they call. An alert that is not sent fails no run."""
    sent = sent_by_agent(pipeline, site)
    if not sent:
        return [], []
    group = names.claim("alerts")
    task = {
        "name": Names(pipeline.exit).claim("alerts"),
        "template": group,
        "arguments": _parameters("steps", f"toJson({_steps()})"),
        "continueOn": {"error": True, "failed": True},
    }
    tasks, templates = [], []
    for alert in sent:
        title, sender = names.claim(f"alert-{alert.channel}"), names.claim(f"alert-{alert.channel}-post")
        one = {
            "name": title,
            "template": title,
            "arguments": _parameters("body", f"toJson({_body(alert, pipeline, site)})"),
            "continueOn": {"error": True, "failed": True},
            "when": STATUS.get(tuple(dict.fromkeys(alert.on))),
        }
        tasks.append({key: value for key, value in one.items() if value is not None})
        templates += [_retried(title, sender), _post(sender, alert)]
    inputs = {"parameters": [{"name": "steps"}]}
    return [task], [{"name": group, "inputs": inputs, "dag": {"tasks": tasks}}, *templates]


def _retried(title: str, sender: str) -> dict[str, Any]:
    arguments = {"parameters": [{"name": "body", "value": "{{=inputs.parameters.body}}"}]}
    return {
        "name": title,
        "inputs": {"parameters": [{"name": "body"}]},
        "retryStrategy": {
            "limit": str(wording.TRIES - 1),
            "retryPolicy": "Always",
            "backoff": {"duration": f"{wording.WAIT}s", "factor": "2"},
        },
        "dag": {"tasks": [{"name": "post", "template": sender, "arguments": arguments}]},
    }


def _post(sender: str, alert: Alert) -> dict[str, Any]:
    return {
        "name": sender,
        "inputs": {"parameters": [{"name": "body"}]},
        "timeout": PENDING,
        "http": {
            "method": "POST",
            "url": _url(alert),
            "headers": list(_headers(alert)),
            "timeoutSeconds": wording.TIMEOUT,
            **({"successCondition": _TAKEN_BY_SLACK} if alert.slack is not None else {}),
            "body": "{{=inputs.parameters.body}}",
        },
    }


def alert_refusals(request: Request) -> Iterator[Finding]:
    """Alerts that need a Secret where Argo cannot put one."""
    for alert, where in placed_alerts(request.pipeline, request.site):
        if alert.channel in CARRIED and (lacking := _lacks(alert)):
            text, hint = lacking
            yield Finding("GF383", f"notify.{alert.channel}: {text}", where, f"{hint}; {UNSAID}")


def alert_notes(request: Request) -> Iterator[Finding]:
    """Waits without end, and what the agent needs."""
    yield from endless_waits(request.plan)
    if not sent_by_agent(request.pipeline, request.site):
        return
    account = request.site.engine(FACTS.name).service_account or "default"
    where = next(placed_alerts(request.pipeline, request.site))[1]
    text = f'Argo\'s agent sends alerts as ServiceAccount "{account}", which needs a Role and a Secret with its token'
    yield Finding("GF385", text, where, "apply what gpuflow argo agent prints", "note")


def _lacks(alert: Alert) -> tuple[str, str] | None:
    if alert.slack is not None and alert.slack.authorization is None:
        return (
            "Argo's HTTP template takes Secrets in headers only, so it needs a bot's token",
            'give channel: "#…" and authorization: {secret: SECRET, key: KEY}, the key holding Bearer and the token',
        )
    if alert.webhook is not None and not isinstance(alert.webhook.url, str):
        return (
            "Argo's HTTP template takes Secrets in headers only, and no Airflow connection",
            "give it a url in plain text, and what is secret as a header: {Authorization: {secret: SECRET, key: KEY}}",
        )
    return None


def _url(alert: Alert) -> str:
    return wording.SLACK_API if alert.webhook is None else str(alert.webhook.url)


def _headers(alert: Alert) -> Iterator[dict[str, Any]]:
    yield {"name": "Content-Type", "value": "application/json; charset=utf-8"}
    given: dict[str, Any] = {} if alert.webhook is None else dict(alert.webhook.headers)
    if alert.slack is not None:
        given["Authorization"] = alert.slack.authorization
    for name, value in given.items():
        if isinstance(value, SecretValue):
            yield {"name": name, "valueFrom": {"secretKeyRef": {"name": value.secret, "key": value.key}}}
        else:
            yield {"name": name, "value": value}


_TAKEN_BY_SLACK = 'response.statusCode == 200 && response.body contains "\\"ok\\":true"'
"""Slack answers 200 to what it refuses, too."""


def _parameters(name: str, text: str) -> dict[str, Any]:
    """JSON in which no tag can stand: `{{` is in no JSON but inside text, where it can be written as an escape."""
    return {"parameters": [{"name": name, "value": f"{{{{={_WITHOUT_TAGS}{text})\n}}}}"}]}


_WITHOUT_TAGS = "sprig.replace('{' + '{', '{\\\\u007b', "
# In these expressions no two braces stand together: they would begin or end a tag.


def _steps() -> str:
    """The failed steps as documents, the last first. Argo lists attempts, and the groups around a step, as failed."""
    text = "workflow.failures"
    for _ in range(2):  # of two such characters side by side, the second is found in the second pass
        text = f"sprig.regexReplaceAll(`{_UNREADABLE}`, {text}, '${{1}}${{2}}?')"
    own = "filter(fromJSON(fromJSON(" + text + ")) ?? [],\n  .message != '' && !(.message matches `" + _GROUPS + "`))"
    fields = {"step": ".displayName", "cause": _cause(".message")}
    fields["message"] = f"sprig.trunc({wording.MOST_WORDS}, .message)"
    latest = f"take(sortBy({own}, .finishedAt ?? '', 'desc'), {wording.MOST_STEPS})"
    return f"map({latest},\n  ({_map(fields)} ))"


_GROUPS = "^(child '.*' failed|No more retries left|Max duration limit exceeded|retry exceeded workflow deadline)"
"""What Argo says of a group of nodes; the nodes in it are listed too."""
_OF_MESSAGES = (
    ("out of memory", "^main: OOMKilled "),
    ("deadline", "^Step exceeded its deadline"),
    ("timed out", "^Pod was active on the node longer|^main: Error .exit code 124"),
    ("quota", '^pods "[^"]*" is forbidden: (exceeded|failed) quota'),
    ("interruption", f"^({'|'.join(TAKEN_AWAY)}|pod deleted|main: Error .exit code (75|143))"),
)
"""Causes by how Argo's message begins, where no program can write."""


def _cause(message: str) -> str:
    tests = "".join(f"\n    {message} matches `{pattern}` ? '{cause}' :" for cause, pattern in _OF_MESSAGES)
    return f"({tests} 'failure')"


# The text of a run's failed steps, which the group of alerts is handed.
_READ = "fromJSON(inputs.parameters.steps)"
_DATE = f"({WHEN})"
_FAILED = "workflow.status != 'Succeeded'"
_RUN_CAUSE = f"(len({_READ}) > 0 ? {_READ}[0].cause : 'failure')"


def _link(site: Site) -> str:
    base = site.engine(FACTS.name).url
    if base is None:
        return "'argo logs -n ' + workflow.namespace + ' ' + workflow.name"
    return f"{json.dumps(base.rstrip('/'))} + '/workflows/' + workflow.namespace + '/' + workflow.name"


def _body(alert: Alert, pipeline: Pipeline, site: Site) -> str:
    name = f"'{pipeline.name}'"
    if alert.webhook is not None:
        fields = {
            "pipeline": name,
            "run": "workflow.name",
            "status": f"({_FAILED} ? 'failure' : 'success')",
            "cause": f"({_FAILED} ? {_RUN_CAUSE} : '')",
            "date": _DATE,
            "link": _link(site),
            "steps": f"({_FAILED} ? {_READ} : [])",
        }
        return _map(fields)
    assert alert.slack is not None
    named = f"join(map({_READ}, .step), ', ')"
    where = f"(len({_READ}) > 0 ? ' in ' + {named} : '')"
    first = f"({_FAILED} ? {name} + ' failed: ' + {_RUN_CAUSE} + {where} : {name} + ' succeeded')"
    each = f"join(map({_READ}, '\\n' + .step + ': ' + .cause + ': ' + .message), '')"
    said = f"({_FAILED} ? {each} : '')"
    text = f"{first} + '\\nrun ' + workflow.name + ', ' + {_DATE} + {said} + '\\n' + {_link(site)}"
    for letter, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = f"sprig.replace('{letter}', '{safe}', {text})"
    return _map({"channel": json.dumps(alert.slack.channel), "text": text, "mrkdwn": "false", "unfurl_links": "false"})


def _map(fields: dict[str, str]) -> str:
    return "{\n  " + ",\n  ".join(f"'{key}': {value}" for key, value in fields.items()) + " }"
