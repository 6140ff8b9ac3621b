"""Exit steps: when they start, the outputs they read, and alerts, which are exit steps too.

KFP sends nothing by itself, so a small container of the site's image sends alerts. The program is `gpuflow/alert.py` as
it stands, and a few lines below it: nothing of gpuflow need be in the image. What is secret comes from Secrets as
variables; what is not stands in one variable as JSON.

Start: KFP tells an exit task how the steps ended: the state of their group in ML Metadata. The group's state is written
by the launcher of each step, so a group has none where the last word was not a launcher's: a pod that was deleted or
timed out, a driver that failed, and also, in a good run, a step that was skipped or came from the cache. Then the state
is still RUNNING. Where every task of the group has a launcher, RUNNING can only mean that one of them did not come to
its end. Where not, a small container asks Argo's Workflow, which knows how the group ended (`ask_argo.py`), and the
exit steps wait for its answer.

Outputs: KFP hands an exit task the output of a step that ended well. Of any other step there is none: the driver of the
exit task fails, and the exit step never starts. So the group of all steps hands out the first of two values that is
there: the step's own, or its default, which a small container writes. The container runs before the first step, not
beside it, because Argo starts nothing more in a group once a step of it has failed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from gpuflow.core.alert import PAGERDUTY, SLACK_API
from gpuflow.core.errors import Finding, Problem, rule
from gpuflow.plan import Plan
from gpuflow.site import Site
from gpuflow.site.model import alerts_of
from gpuflow.spec.container import SecretKey
from gpuflow.spec.notify import Alert, SecretValue
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.step_fields import Settings
from gpuflow.spec.text import OutputRef, RunRef
from gpuflow.targets.capabilities import refusal
from gpuflow.targets.kubeflow.facts import FACTS
from gpuflow.targets.kubeflow.references import StatusRef, channel_name, input_name
from gpuflow.targets.refusals import lacking_alerts

CPU, MEMORY = "50m", FACTS.launcher_memory


def own_step(site: Site, description: str, program: str, *arguments: Any, **more: Any) -> Step:
    """A step that runs a program in Python."""
    fields = {
        "description": description,
        "image": site.images.alerts,
        "command": ("python3", "-c", program, *arguments),
        "cpu": CPU,
        "memory": MEMORY,
        **more,
    }
    return Step.model_validate(fields)


def free_name(name: str, pipeline: Pipeline) -> str:
    """A name that no step of the pipeline has."""
    while name in pipeline.steps or name in pipeline.exit:
        name += "-x"
    return name


DEFAULTS_STEP = "exit-defaults"
"""The step that writes the defaults."""
DEFAULTS_PROGRAM = """
import os, sys
half = len(sys.argv) // 2 + 1
for text, place in zip(sys.argv[1:half], sys.argv[half:]):
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "w", encoding="utf-8") as file:
        file.write(text)
"""
"""Takes all texts, then the place of each."""


def exit_reads(pipeline: Pipeline) -> Iterator[tuple[str, tuple[str | int, ...], OutputRef]]:
    """Each output of a step that an exit step reads: the exit step, the place in it, and the output."""
    for name in pipeline.exit:
        for path, ref in pipeline.effective(name).references():
            if isinstance(ref, OutputRef) and ref.step in pipeline.steps:
                yield name, path, ref


def has_one_end(step: Step) -> bool:
    """Whether KFP always records how the step ended; it does not for a group of tasks."""
    return step.runs_container and step.when is None and not step.for_each


def defaults_of(pipeline: Pipeline) -> dict[OutputRef, str]:
    """The outputs that exit steps read and that have a default to fall back on, each with that default."""
    steps = {ref.step: pipeline.effective(ref.step) for _, _, ref in exit_reads(pipeline)}
    refs = sorted({ref for _, _, ref in exit_reads(pipeline) if has_one_end(steps[ref.step])}, key=channel_name)
    return {ref: text_of(steps[ref.step].outputs[ref.name].default) for ref in refs}


def defaults_step(pipeline: Pipeline) -> str | None:
    """The step that writes the defaults, if the pipeline was given one."""
    return next((name for name, step in pipeline.steps.items() if DEFAULTS_PROGRAM in step.command), None)


def added_defaults(pipeline: Pipeline, site: Site) -> dict[str, Step]:
    """The step that writes the defaults, where one is needed and the site has an image for it."""
    texts = defaults_of(pipeline)
    if not texts or site.images.alerts is None:
        return {}
    says = "Writes what exit steps read where a step did not end well"
    return {free_name(DEFAULTS_STEP, pipeline): own_step(site, says, DEFAULTS_PROGRAM, *texts.values())}


def started_after(first: Mapping[str, Step], steps: Mapping[str, Step]) -> dict[str, Step]:
    """The steps, with those that wait for nothing now waiting for `first`."""
    return {
        name: step
        if step.needs or any(isinstance(ref, OutputRef) for _, ref in step.references())
        else step.model_copy(update={"needs": tuple(first)})
        for name, step in steps.items()
    }


OUTCOMES = ("failure", "success")
"""The values of `on` that ask how the run ended, and what the container that asks Argo answers."""
OUTCOME_STEP, OUTCOME_OUTPUT = "run-outcome", "outcome"
"""The exit step that asks Argo, and its output."""
_GOOD = ("SUCCEEDED", "COMPLETE")
"""KFP's own word for success, and that of a backend with ML Metadata."""


def asks_outcome(step: Step) -> bool:
    """Whether an exit step is for one outcome only."""
    return step.on in OUTCOMES


def outcome_channel(pipeline: Pipeline) -> StatusRef | OutputRef:
    """What tells an exit step how the run ended: KFP's final status, or the answer of the container that asks Argo."""
    asking = outcome_step(pipeline)
    return StatusRef() if asking is None else OutputRef(asking, OUTCOME_OUTPUT)


def condition_on(pipeline: Pipeline, step: Step) -> str:
    """The condition in CEL under which an exit step with `on` starts; the driver decides it, before there is a pod."""
    channel = outcome_channel(pipeline)
    value = f"inputs.parameter_values['{input_name(channel)}']"
    if isinstance(channel, OutputRef):
        return f"{value} == '{step.on}'"
    good = f"{value}.state in [{', '.join(map(repr, _GOOD))}]"
    if step.on == "success":
        return good
    return f"{value}.state == 'FAILED'" if may_stay_running(pipeline) else f"!({good})"


def may_stay_running(pipeline: Pipeline) -> bool:
    """Whether a good run may leave the state RUNNING: not where each task of the group is a plain step's container."""
    return any(
        step.cache or not step.runs_container or step.when is not None or step.for_each
        for step in (pipeline.effective(name) for name in pipeline.steps)
    )


def outcome_step(pipeline: Pipeline) -> str | None:
    """The exit step that asks Argo, if the pipeline was given one."""
    return next((name for name, step in pipeline.exit.items() if _program() in step.command), None)


def added_outcome_step(pipeline: Pipeline, site: Site) -> dict[str, Step]:
    """The exit step that asks Argo, where one is needed and the site has an image for it."""
    needed = any(map(asks_outcome, pipeline.exit.values())) and may_stay_running(pipeline)
    if not needed or site.images.alerts is None:
        return {}
    step = own_step(site, "Asks Argo how the steps ended", _program(), RunRef("name"))
    return {free_name(OUTCOME_STEP, pipeline): step}


@cache
def _program() -> str:
    return (resources.files("gpuflow.targets.kubeflow") / "ask_argo.py").read_text(encoding="utf-8")


@rule("GF325", severity="note")
def unsure_ends(plan: Plan) -> list[Finding]:
    """Exit steps that may not start although the run ended as they ask, because KFP has no record of its end."""
    pipeline = plan.pipeline
    names = [name for name, step in pipeline.exit.items() if asks_outcome(step)]
    if not names or not may_stay_running(pipeline) or plan.site.images.alerts is not None:
        return []
    shown = ", ".join(f'"{name}"' for name in names)
    return [
        Finding(
            "GF325",
            f"exit {shown}: KFP has no record of how a run ended whose last word was a pod that was deleted or timed "
            "out, or a step that was skipped or cached; then neither on: failure nor on: success starts",
            pipeline.where("exit", names[0], "on"),
            "set images.alerts in the site to an image with Python, and a small container asks Argo; or leave on out "
            "and decide in the step",
            "warning",
        )
    ]


CHANNELS = ("slack", "webhook", "pagerduty")
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
    sent = [alert for alert in alerts_of(pipeline, site) if alert.channel in CHANNELS and _lacks(alert, site) is None]
    added: dict[str, Step] = {}
    for status in ("failure", "success"):
        told = [alert for alert in sent if status in alert.on]
        if told:
            added[free_name(f"alert-{status}", pipeline)] = _step(pipeline, site, status, told)
    added |= added_outcome_step(pipeline.model_copy(update={"exit": {**pipeline.exit, **added}}), site)
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


@refusal("GF383", optional=True)
def alert_refusals(plan: Plan) -> Iterator[Problem]:
    """Alerts that lack an image to be sent from, or a Secret."""
    return lacking_alerts(plan.pipeline, plan.site, CHANNELS, lambda alert: _lacks(alert, plan.site))


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
    program = (resources.files("gpuflow") / "core" / "alert.py").read_text(encoding="utf-8") + _SENDER
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
