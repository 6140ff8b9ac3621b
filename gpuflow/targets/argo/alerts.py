"""Alerts as tasks of the exit handler, sent by Argo's own agent through HTTP templates, and rules for Prometheus.

The agent is one pod for a run, which Argo creates when the first HTTP template is due. `gpuflow argo agent` prints what
its account must be allowed. Which steps failed is in `workflow.failures`, JSON inside a Go string. What programs said
is in it too, so it is read and written as JSON, and no `{{` is left in it: Argo replaces tags in several passes.

An HTTP template has a timeout only while its own node is pending, which the node of a `retryStrategy` never is. So the
retries are those of a small DAG around it: an agent that cannot start delays the end of a run, and never forever.

What no pod can tell, metrics of a run tell, which Argo's controller counts by itself, and rules for Prometheus over
them. The controller counts a run when it has ended, its exit handler included, so also when no pod of it could start. A
run that does not end has its age as a metric.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from gpuflow.core import alert as wording
from gpuflow.core.emit import emit
from gpuflow.core.errors import Finding, Problem, rule
from gpuflow.core.printable import comment
from gpuflow.pod.build import LABEL
from gpuflow.pod.launcher import role_and_binding
from gpuflow.runtime.base.outcomes import EXIT_FINAL
from gpuflow.site import Site
from gpuflow.site.model import alerts_of
from gpuflow.spec.notify import Alert, SecretValue
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.argo.engine_options import token_of
from gpuflow.targets.argo.facts import FACTS
from gpuflow.targets.argo.references import RUN_TIME
from gpuflow.targets.argo.retries import NODE_LOSS_MESSAGES
from gpuflow.targets.argo.shared_templates import Names
from gpuflow.targets.capabilities import refusal
from gpuflow.targets.refusals import alerts_with_places, endless_waits, lacking_alerts
from gpuflow.targets.target import Artifact, Request, header

CHANNELS = ("slack", "webhook")
PENDING = "5m"
"""How long a request may wait for the agent."""
STATUS: dict[tuple[str, ...], str] = {
    ("failure",): "{{workflow.status}} != Succeeded",
    ("success",): "{{workflow.status}} == Succeeded",
}
_UNREADABLE = r"(^|[^\\])((?:\\\\)*)\\(?:x7f|U[0-9a-f]{8})"
"""What a Go string writes in a way that JSON cannot read."""


def sent_by_agent(pipeline: Pipeline, site: Site) -> tuple[Alert, ...]:
    """The alerts that Argo sends."""
    return tuple(alert for alert in alerts_of(pipeline, site) if alert.channel in CHANNELS and not _lacks(alert))


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
        templates += [_retry_template(title, sender), _post(sender, alert)]
    inputs = {"parameters": [{"name": "steps"}]}
    return [task], [{"name": group, "inputs": inputs, "dag": {"tasks": tasks}}, *templates]


def _retry_template(title: str, sender: str) -> dict[str, Any]:
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
            "url": wording.SLACK_API if alert.webhook is None else str(alert.webhook.url),
            "headers": list(_headers(alert)),
            "timeoutSeconds": wording.TIMEOUT,
            **({"successCondition": _TAKEN_BY_SLACK} if alert.slack is not None else {}),
            "body": "{{=inputs.parameters.body}}",
        },
    }


@refusal("GF383", optional=True)
def alert_refusals(request: Request) -> Iterator[Problem]:
    """Alerts that need a Secret where Argo cannot put one."""
    return lacking_alerts(request.pipeline, request.site, CHANNELS, _lacks)


@rule("GF384", "GF385")
def alert_notes(request: Request) -> Iterator[Finding]:
    """Waits without end, and what the agent needs."""
    yield from endless_waits(request.plan)
    if not sent_by_agent(request.pipeline, request.site):
        return
    account = request.site.engine(FACTS.name).service_account or "default"
    where = next(alerts_with_places(request.pipeline, request.site))[1]
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
    """The failed steps as documents, and how many more there are.

    Argo lists the attempts of a step, the items of a fan-out and the groups around them, in no order. Of each step, or
    item, the last attempt is told. First comes what ended last, and each step is named before a second item of another.
    """
    text = "workflow.failures"
    for _ in range(2):  # of two such characters side by side, the second is found in the second pass
        text = f"sprig.regexReplaceAll(`{_UNREADABLE}`, {text}, '${{1}}${{2}}?')"
    own = "filter(fromJSON(fromJSON(" + text + ")) ?? [],\n  .message != '' && !(.message matches `" + _GROUPS + "`))"
    numbered = f"(.displayName matches `{_ATTEMPT}` ? .displayName : '(0)')"
    attempt = {
        "step": f"sprig.regexReplaceAll(`{_ATTEMPT}`, .displayName, '${{1}}')",
        "number": f"int(sprig.regexReplaceAll(`{_ATTEMPT}`, {numbered}, '${{2}}'))",
        "at": ".finishedAt ?? ''",
        "cause": _cause(".message"),
        "message": ".message",
    }
    last = {
        "step": "#[0].step",
        "task": f"sprig.regexReplaceAll(`{_ITEM}`, #[0].step, '')",
        "at": "#[0].at",
        "cause": "first(filter(#, .cause != ''))?.cause ?? 'failure'",
        "message": f"sprig.trunc({wording.MOST_WORDS}, #[0].message)",
    }
    ranked = {key: f".{key}" for key in ("step", "cause", "message")}
    ranked["order"] = "(#index == 0 ? 'first ' : 'again ') + .at + .step"
    told = f"map({own},\n  ({_map(attempt)} ))"
    told = f"map({_groups(told, '.step', '.number')},\n  ({_map(last)} ))"
    told = f"map({_groups(told, '.task', '.at + .step')},\n  map(#, ({_map(ranked)} )))"
    told = f"sortBy(flatten({told}), .order, 'desc')"
    shown = {key: f".{key}" for key in ("step", "cause", "message")}
    most = wording.MOST_STEPS
    whole = {"steps": f"map(take(#, {most}), ({_map(shown)} ))", "more": f"(len(#) > {most} ? len(#) - {most} : 0)"}
    return f"map([{told}],\n  ({_map(whole)} ))[0]"


def _groups(told: str, by: str, order: str) -> str:
    """The expression that groups entries by `by`, the last of each group first."""
    return f"map(values(groupBy({told},\n  {by})), sortBy(#, {order}, 'desc'))"


_ATTEMPT = "(?s)^(.*)[(]([0-9]+)[)]$"
"""How Argo calls an attempt: the step, and its number. The item of a fan-out has a colon: `each(0:a)`."""
_ITEM = "(?s)[(][0-9]+:.*$"
_GROUPS = (
    "^(child '.*' failed|No more retries left|retryStrategy.expression evaluated to false|Max duration limit exceeded|"
    "Backoff would exceed max duration limit|retry exceeded workflow deadline)"
)
"""What Argo says of a group of nodes; the nodes in it are listed too."""
_FINAL = f"main: [^ ]+ .exit code {EXIT_FINAL}.: gpuflow-run: [^\\n]*"
"""How the supervisor's last sentence begins when no further attempt may run. No program writes in it."""
_OF_MESSAGES = (
    ("out of memory", f"^(main: OOMKilled |{_FINAL}(killed for memory|over its memory limit|ran out of memory))"),
    ("deadline", "^Step exceeded its deadline"),
    ("timed out", f"^(Pod was active on the node longer|main: Error .exit code 124|{_FINAL}it ran longer than )"),
    ("quota", '^pods "[^"]*" is forbidden: (exceeded|failed) quota'),
    (
        "interruption",
        f"^({'|'.join(NODE_LOSS_MESSAGES)}|pod deleted|main: Error .exit code (75|143)|"
        f"{_FINAL}(told to stop|budget of [0-9]+ interruptions is spent|[0-9]+ interruptions so far))",
    ),
    ("", f"^{_FINAL}[0-9]+ failures (and interruptions )?so far"),
)
"""Causes by how Argo's message begins, where no program can write. None: an attempt before it has the cause."""


def _cause(message: str) -> str:
    tests = "".join(f"\n    {message} matches `{pattern}` ? '{cause}' :" for cause, pattern in _OF_MESSAGES)
    return f"({tests} 'failure')"


# The text of a run's failed steps, which the group of alerts is handed.
_READ = "fromJSON(inputs.parameters.steps)"
_STEPS = f"{_READ}.steps"
_DATE = f"({RUN_TIME})"
_RUN_FAILED = "workflow.status != 'Succeeded'"
_RUN_CAUSE = f"(len({_STEPS}) > 0 ? {_STEPS}[0].cause : 'failure')"


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
            "status": f"({_RUN_FAILED} ? 'failure' : 'success')",
            "cause": f"({_RUN_FAILED} ? {_RUN_CAUSE} : '')",
            "date": _DATE,
            "link": _link(site),
            "steps": f"({_RUN_FAILED} ? {_STEPS} : [])",
            "more": f"({_RUN_FAILED} ? {_READ}.more : 0)",
        }
        return _map(fields)
    assert alert.slack is not None
    named = f"join(map({_STEPS}, .step), ', ')"
    others = f"({_READ}.more > 0 ? ' and ' + string({_READ}.more) + ' more' : '')"
    where = f"(len({_STEPS}) > 0 ? ' in ' + {named} + {others} : '')"
    first = f"({_RUN_FAILED} ? {name} + ' failed: ' + {_RUN_CAUSE} + {where} : {name} + ' succeeded')"
    each = f"join(map({_STEPS}, '\\n' + .step + ': ' + .cause + ': ' + .message), '')"
    said = f"({_RUN_FAILED} ? {each} : '')"
    text = f"{first} + '\\nrun ' + workflow.name + ', ' + {_DATE} + {said} + '\\n' + {_link(site)}"
    for letter, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = f"sprig.replace('{letter}', '{safe}', {text})"
    return _map({"channel": json.dumps(alert.slack.channel), "text": text, "mrkdwn": "false", "unfurl_links": "false"})


def _map(fields: dict[str, str]) -> str:
    return "{\n  " + ",\n  ".join(f"'{key}': {value}" for key, value in fields.items()) + " }"


TASKS = [
    {"apiGroups": ["argoproj.io"], "resources": ["workflowtasksets"], "verbs": ["list", "watch"]},
    {"apiGroups": ["argoproj.io"], "resources": ["workflowtasksets/status"], "verbs": ["patch"]},
]
"""How the agent is told what to send, and says what came of it."""


def agent_manifests(pipelines: Iterable[Pipeline], site: Site, namespace: str | None) -> list[dict[str, Any]]:
    """A Role with its binding, and the Secret that Kubernetes fills with the account's token.

    The agent mounts that Secret (createAgentPod in agent.go, 4.0.2). Argo looks for NAME.service-account-token, unless
    the account has a Secret or the annotation workflows.argoproj.io/service-account-token.name.
    """
    account = site.engine(FACTS.name).service_account or "default"
    place = {} if namespace is None else {"namespace": namespace}
    rules: list[dict[str, Any]] = [*TASKS]
    if secrets := secrets_of(pipelines, site):
        rules.append({"apiGroups": [""], "resources": ["secrets"], "resourceNames": secrets, "verbs": ["get"]})
    token = token_of(account, f"{account}.service-account-token", place)
    return [token, *role_and_binding(f"gpuflow-agent-{account}", account, namespace, rules)]


def secrets_of(pipelines: Iterable[Pipeline], site: Site) -> list[str]:
    """The Secrets whose keys are sent as headers."""
    found: set[str] = set()
    for pipeline in pipelines:
        for alert in sent_by_agent(pipeline, site):
            values = alert.webhook.headers.values() if alert.webhook else [alert.slack and alert.slack.authorization]
            found |= {value.secret for value in values if isinstance(value, SecretValue)}
    return sorted(found)


RUNS, SECONDS = "gpuflow_runs", "gpuflow_run_seconds"
PREFIX = "argo_workflows_"
"""What the controller puts before every name."""
LATE_SECONDS = 1800
"""How long after its deadline a run may still be busy with its exit handler, in seconds."""


def run_metrics(pipeline: Pipeline, site: Site) -> list[dict[str, Any]]:
    """Prometheus metrics of a workflow whose end somebody is told of."""
    if not alerts_of(pipeline, site):
        return []
    labels = [{"key": "pipeline", "value": pipeline.name}, {"key": "run_namespace", "value": "{{workflow.namespace}}"}]
    return [
        {
            "name": RUNS,
            "help": "Runs that have ended",
            "labels": [*labels, {"key": "status", "value": "{{workflow.status}}"}],
            "counter": {"value": "1"},
        },
        {
            "name": SECONDS,
            "help": "How long a run has been active",
            "labels": [*labels, {"key": "run", "value": "{{workflow.name}}"}],
            "gauge": {"realtime": True, "value": "{{workflow.duration}}"},
        },
    ]


def alert_rules(request: Request) -> Artifact | None:
    """A PrometheusRule for a pipeline whose end somebody is told of."""
    pipeline = request.pipeline
    if not alerts_of(pipeline, request.site):
        return None
    of_this = f'pipeline="{pipeline.name}"'
    if request.namespace is not None:
        of_this += f', run_namespace="{request.namespace}"'
    failed = f'{PREFIX}{RUNS}{{{of_this}, status!="Succeeded"}}'
    # A counter that was never there begins at 1, and `increase` sees no step in that.
    rules = [
        _rule(
            "GpuflowRunFailed",
            f"({failed} unless {failed} offset 15m) or ({failed} - {failed} offset 15m > 0)",
            pipeline.name,
            f"a run of {pipeline.name} failed",
        )
    ]
    if pipeline.deadline is not None:
        late = f"max by (run) ({PREFIX}{SECONDS}{{{of_this}}}) > {pipeline.deadline.seconds + LATE_SECONDS}"
        text = f"a run of {pipeline.name} has not ended although its deadline of {pipeline.deadline} is long over"
        rules.append(_rule("GpuflowRunNeverEnds", late, pipeline.name, text))
    metadata: dict[str, Any] = {
        "name": f"{pipeline.name}-alerts",
        "labels": {**pipeline.labels, f"{LABEL}pipeline": pipeline.name},
    }
    if request.namespace is not None:
        metadata["namespace"] = request.namespace
    manifest = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata,
        "spec": {"groups": [{"name": f"gpuflow-{pipeline.name}", "rules": rules}]},
    }
    return Artifact(f"{pipeline.name}-alerts.yaml", comment(header(request)) + emit(manifest))


def _rule(name: str, expression: str, pipeline: str, summary: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expression,
        "labels": {"pipeline": pipeline, "severity": "warning"},
        "annotations": {"summary": summary},
    }
