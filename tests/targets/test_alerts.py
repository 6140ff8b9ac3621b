"""Alerts on every target: carried, weaker, or refused with the way out; what an engine adds for them is counted.

Tests gpuflow/targets/refusals.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gpuflow.api import demand
from gpuflow.core.errors import Finding
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import load_target
from gpuflow.targets.airflow.dag import dag_of
from gpuflow.targets.airflow.dag_file import dag_file
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.airflow.standalone import standalone
from gpuflow.targets.argo.alerts import agent_manifests, alert_rules, alert_tasks, run_metrics
from gpuflow.targets.argo.shared_templates import Names
from gpuflow.targets.target import Compiled, Request, findings_of, losses_of

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: nightly\n"
SECRET = "{secret: s, key: k}"
FULL = {
    "slack": f'{{slack: {{channel: "#ml", authorization: {SECRET}, connection: chat}}}}',
    "webhook": f"{{webhook: {{url: https://x/y, headers: {{Authorization: {SECRET}}}, connection: hook}}}}",
    "pagerduty": f"{{pagerduty: {{routing_key: {SECRET}, connection: pd}}}}",
    "mail": "{mail: {to: [a@b.c]}}",
}


def pipeline(*alerts: str, more: str = "", step: str = "") -> Pipeline:
    notify = f"notify: [{', '.join(alerts)}]\n" if alerts else ""
    return loads(f"{HEAD}{notify}{more}steps: {{a: {{image: 'i:1', command: [x]{step}}}}}\n", "p.yaml")


def site(notify: str = "", image: str | None = "python:3.13-slim", url: str = "") -> Site:
    text: dict[str, Any] = {"apiVersion": "gpuflow/v1", "kind": "Site", "name": "s", "images": {"alerts": image}}
    text["notify"] = yaml.safe_load(f"[{notify}]")
    if url:
        text["engines"] = {"argo": {"url": url, "service_account": "runner"}}
    return Site.model_validate(text)


def refused(target: str, given: Pipeline, on: Site, **options: Any) -> list[Finding]:
    chosen = AirflowOptions(**options) if options else None
    request = Request(given, on, None, "p.yaml", (), chosen)
    return [loss.refusal() for loss in losses_of(load_target(target), request)]


def noted(target: str, given: Pipeline, on: Site, **options: Any) -> list[Finding]:
    chosen = AirflowOptions(**options) if options else None
    return findings_of(load_target(target), Request(given, on, None, "p.yaml", (), chosen), Compiled(()))


@pytest.mark.parametrize(
    ("target", "alert", "code", "words", "way_out"),
    [
        (
            "airflow",
            f"{{slack: {{channel: c, authorization: {SECRET}}}}}",
            "GF383",
            "no connection",
            "connection: NAME",
        ),
        ("airflow", f"{{pagerduty: {{routing_key: {SECRET}}}}}", "GF383", "no connection", "connection: NAME"),
        ("airflow", f"{{webhook: {{url: {SECRET}}}}}", "GF383", "the url is in one", "connection: NAME"),
        ("airflow", f"{{webhook: {{url: https://x, headers: {{A: {SECRET}}}}}}}", "GF383", "header A", "connection"),
        ("argo", "{slack: {connection: c}}", "GF383", "headers only", "authorization"),
        ("argo", f"{{slack: {{url: {SECRET}}}}}", "GF383", "headers only", "authorization"),
        ("argo", f"{{webhook: {{url: {SECRET}}}}}", "GF383", "headers only", "plain text"),
        ("argo", "{webhook: {connection: c}}", "GF383", "no Airflow connection", "plain text"),
        ("argo", FULL["mail"], "GF301", "notify.mail", "webhook"),
        ("argo", FULL["pagerduty"], "GF301", "from the body", "--alert-rules"),
        ("kubeflow", "{slack: {connection: c}}", "GF383", "no connection of Airflow", "incoming webhook"),
        ("kubeflow", "{pagerduty: {connection: c}}", "GF383", "no connection of Airflow", "routing_key"),
        ("kubeflow", "{webhook: {connection: c}}", "GF383", "no connection of Airflow", "url"),
        ("kubeflow", FULL["mail"], "GF301", "notify.mail", "webhook"),
    ],
)
def test_what_an_engine_cannot_read_is_refused_whoever_says_it(
    target: str, alert: str, code: str, words: str, way_out: str
) -> None:
    for found in (refused(target, pipeline(alert), site()), refused(target, pipeline(), site(alert))):
        (finding,) = found
        assert finding.code == code and words in finding.message, finding
        assert way_out in (finding.hint or "") and "--allow-lossy" in (finding.hint or "")
    assert not refused(target, pipeline(more="notify: []\n"), site(alert)), "un-said"


def test_kubeflow_needs_an_image_to_send_from() -> None:
    (finding,) = refused("kubeflow", pipeline(FULL["webhook"]), site(image=None))
    assert finding.code == "GF383" and "images.alerts" in (finding.hint or "")


@pytest.mark.parametrize(
    ("target", "step", "more", "warned"),
    [
        ("airflow", "", "", True),
        ("airflow", ", queue_timeout: 1h", "", False),
        ("airflow", "", "deadline: 2h\n", False),
        ("argo", "", "", True),
        ("argo", "", "deadline: 2h\n", False),
        ("kubeflow", "", "", True),
        ("kubeflow", "", "deadline: 2h\n", False),
    ],
)
def test_a_wait_without_end_is_a_warning(target: str, step: str, more: str, warned: bool) -> None:
    """A step that waits for quota ends no run, and only an end is told."""
    found = [
        each for each in noted(target, pipeline(FULL["webhook"], step=step, more=more), site()) if each.code == "GF384"
    ]
    assert [each.severity for each in found] == (["warning"] if warned else [])
    assert not [each for each in noted(target, pipeline(step=step, more=more), site()) if each.code == "GF384"]


def test_the_sites_alerts_are_weaker_too_and_the_note_says_whose_they_are() -> None:
    notes = [each for each in noted("argo", pipeline(), site(FULL["webhook"])) if each.code == "GF305"]
    assert any('notify.webhook of site "s"' in each.message for each in notes)


def test_airflow_calls_back_for_each_outcome_that_is_asked_for() -> None:
    both = FULL["webhook"][:-1] + ", on: [failure, success]}"
    request = Request(pipeline(FULL["slack"], both), site(FULL["mail"]), None, "p.yaml")
    text = dag_file(dag_of(request), request)
    compile(text, "nightly.py", "exec")
    assert text.count("webhook_alert(") == 2 and text.count("slack_alert(") == 1
    failed = text[text.index("on_failure_callback") : text.index("on_success_callback")]
    assert failed.index("slack_alert") < failed.index("webhook_alert") < failed.index("mail_alert")
    assert "secret" not in text.lower(), "what Airflow does not read is not in its file"


def test_airflow_standalone_uses_airflows_own_notifiers() -> None:
    options = AirflowOptions(standalone=True)
    given = pipeline(FULL["slack"], FULL["pagerduty"], FULL["mail"])
    request = Request(given, site(), None, "p.yaml", (), options)
    text = dag_file(standalone(dag_of(request)), request)
    compile(text, "nightly.py", "exec")
    assert "gpuflow.airflow" not in text
    for name in ("SlackNotifier(", "PagerdutyNotifier(", "SmtpNotifier("):
        assert name in text
    packages = [each.hint for each in noted("airflow", given, site(), standalone=True) if each.code == "GF385"]
    assert len(packages) == 3 and all("apache-airflow-providers-" in (hint or "") for hint in packages)
    (finding,) = refused("airflow", pipeline(FULL["webhook"]), site(), standalone=True)
    assert "does not support notify.webhook" in finding.message


def test_argo_sends_from_the_exit_handler_and_fails_no_run() -> None:
    tasks, templates = alert_tasks(pipeline(FULL["slack"], FULL["webhook"]), site(), Names())
    (task,) = tasks
    group = templates[0]
    assert task["template"] == group["name"] and task["continueOn"] == {"error": True, "failed": True}
    assert all(each["continueOn"] == task["continueOn"] for each in group["dag"]["tasks"])
    assert all(each["when"] == "{{workflow.status}} != Succeeded" for each in group["dag"]["tasks"])
    sent = [each["http"] for each in templates if "http" in each]
    reference = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    assert all({"name": "Authorization", **reference} in each["headers"] for each in sent)
    # Argo ends an expression at the first two braces.
    for text in (
        value["value"] for each in (task, *group["dag"]["tasks"]) for value in each["arguments"]["parameters"]
    ):
        assert text.count("{{") == 1 and text.count("}}") == 1 and text.endswith("}}")


def test_names_of_exit_steps_are_not_taken() -> None:
    given = loads(
        f"{HEAD}notify: [{FULL['webhook']}]\nsteps: {{a: {{image: 'i:1', command: [x]}}}}\n"
        "exit: {alerts: {image: 'i:1', command: [x]}}\n",
        "p.yaml",
    )
    ((task,), _) = alert_tasks(given, site(), Names())
    assert task["name"] != "alerts"


def test_argos_agent_counts_as_a_pod_of_the_engine() -> None:
    given = pipeline(FULL["webhook"])
    plain, told = demand(pipeline(), site=site(), engine="argo"), demand(given, site=site(), engine="argo")
    assert [step.name for step in told.steps] == ["a", "alert"]
    assert str(told.overhead["limits.memory"].value) == "256M"
    assert "alert" not in [step.name for step in plain.steps]
    assert "alert" not in [step.name for step in demand(given, site=site(), engine="airflow").steps]
    assert [step.name for step in demand(given, site=site(), engine="kubeflow").steps] == ["a", "alert-failure"]
    assert told.where("alert").line == 4


def test_kubeflows_container_takes_nothing_from_the_defaults() -> None:
    given = pipeline(FULL["webhook"], more="defaults: {env: {A: b}, memory: 64Gi, queue: gpus}\n")
    steps = {
        step.name: step
        for step in demand(
            given, site=Site.load("nvidia").model_copy(update={"images": site().images}), engine="kubeflow"
        ).steps
    }
    own = steps["alert-failure"].pod["spec"]["containers"][0]
    assert own["resources"]["limits"] == {"cpu": "50m", "memory": "128Mi"}
    assert "A" not in [entry["name"] for entry in own["env"]]
    assert steps["a"].pod["spec"]["containers"][0]["resources"]["limits"]["memory"] == "64Gi"


def test_the_agents_role_is_as_small_as_the_alerts() -> None:
    secret, role, binding = agent_manifests([pipeline(FULL["webhook"])], site(url="https://argo.example.com"), "team")
    assert secret["metadata"]["name"] == "runner.service-account-token"
    assert role["rules"][-1] == {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s"], "verbs": ["get"]}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "runner", "namespace": "team"}]
    plain = pipeline("{webhook: {url: https://x}}")
    assert len(agent_manifests([plain], site(), None)[1]["rules"]) == 2


def test_what_no_pod_can_tell_is_a_metric_and_a_rule() -> None:
    given = pipeline(FULL["webhook"], more="deadline: 1h\n")
    found = run_metrics(given, site())
    assert [each["name"] for each in found] == [
        "gpuflow_runs",
        "gpuflow_run_seconds",
    ]
    rules = alert_rules(Request(given, site(), "team", "p.yaml"))
    assert rules is not None and rules.name == "nightly-alerts.yaml"
    document = yaml.safe_load(rules.text)
    names = [each["alert"] for each in document["spec"]["groups"][0]["rules"]]
    assert names == ["GpuflowRunFailed", "GpuflowRunNeverEnds"]
    assert "> 5400" in json.dumps(document)
    assert not run_metrics(pipeline(), site()) and alert_rules(Request(pipeline(), site(), None, "p")) is None
