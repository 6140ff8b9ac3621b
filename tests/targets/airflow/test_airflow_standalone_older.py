"""Standalone DAG files for Airflows that gpuflow.airflow itself does not run on.

Tests gpuflow/targets/airflow/standalone.py.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import literal
from jinja2 import TemplateError

from gpuflow import GpuflowError, Pipeline, compile, load, loads
from gpuflow.targets.airflow.standalone import DEFINITION

CASE = Path(__file__).parent / "cases" / "older.yaml"
HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i}\n"


def text_for(version: str | None, pipeline: Pipeline | None = None) -> str:
    options = {} if version is None else {"airflow": version}
    return compile(pipeline or load(CASE), target="airflow", namespace="ml", standalone=True, **options).text


def imports(text: str) -> dict[str, str]:
    """Every name that the file imports at its top, and from where."""
    found = [node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in found for alias in node.names}


def test_airflow_2_gets_its_own_imports_a_start_date_and_its_own_clock() -> None:
    text = text_for("2.10")
    homes = imports(text)
    assert not [home for home in homes.values() if home.startswith(("airflow.sdk", "airflow.providers.standard"))]
    assert homes["DAG"] == "airflow.models.dag"
    assert homes["literal"] == "airflow.utils.template"
    assert homes["CronTriggerTimetable"] == "airflow.timetables.trigger"
    assert "start_date=datetime(2020, 1, 1)" in text
    assert "run_after" not in text
    assert "airflow.sdk" not in text
    assert "retry_exponential_backoff=2" not in text


def test_airflow_3_0_and_3_1_differ_in_timetables_and_in_how_runs_are_named() -> None:
    for version in ("3.0", "3.1"):
        text = text_for(version)
        homes = imports(text)
        assert homes["DAG"] == "airflow.sdk"
        assert homes["CronTriggerTimetable"] == "airflow.timetables.trigger"
        assert homes["literal"] == "airflow.sdk.definitions.template", "their airflow.sdk cannot import it"
        assert "airflow.providers.common.compat.sdk" not in text
        assert "create the Variable gpuflow_deployment" in text


@pytest.mark.parametrize("version", ["3.2", "3.3"])
def test_a_current_airflow_gets_what_it_gets_without_the_option(version: str) -> None:
    assert text_for(version) == text_for(None)


@pytest.mark.parametrize(
    ("step", "made"),
    [
        ("{command: [x, '{{ kept }}']}", "RenderedOnce("),
        ("{command: [x], env: {A: '{# kept #}'}}", "RenderedOnce("),
        ("{command: [x, {join: ['{% kept', {param: lr}]}]}", "RenderedOnce("),
        ("{command: [x, {item: n}, '{{ kept }}'], for_each: {n: [1, 2]}}", "RenderedOnce.partial("),
        ("{command: [x, {item: n}], for_each: {n: ['{{ a }}', b]}}", "RenderedOnce.partial("),
        ("{command: [x, '{}', '{a: 1}', {param: lr}]}", "KubernetesPodOperator("),
    ],
)
def test_a_step_with_braces_of_its_own_is_rendered_once_in_airflow_2(step: str, made: str) -> None:
    pipeline = loads(HEAD + f"params: {{lr: 0.1}}\nsteps: {{a: {step}}}")
    text = text_for("2.11", pipeline)
    assert f"a = {made}" in text
    assert ("class RenderedOnce(KubernetesPodOperator):" in text) == made.startswith("RenderedOnce")
    assert imports(text)["KubernetesPodOperator"] == "airflow.providers.cncf.kubernetes.operators.pod"
    for version in ("3.0", None):
        assert "RenderedOnce" not in text_for(version, pipeline), "Airflow 3 renders a task anew from its file"


def test_a_second_rendering_changes_the_stock_operator_and_not_that_one() -> None:
    """What `airflow dags test` of Airflow 2 does to a deferred task, done here to the operator of this Airflow."""
    names: dict[str, Any] = {"KubernetesPodOperator": KubernetesPodOperator}
    exec(DEFINITION, names)
    kept = {"containers": [{"command": ["x", "{{ kept }}"]}], "nested": {"a": "{% if %}"}}
    name = {"metadata": {"name": "{{ given }}"}}
    for template, expected in (
        (literal({"spec": kept}), {"spec": kept}),
        ({**name, "spec": literal(kept)}, {"metadata": {"name": "n"}, "spec": kept}),
    ):
        once = names["RenderedOnce"](task_id="a", pod_template_dict=template)
        stock = KubernetesPodOperator(task_id="a", pod_template_dict=template)
        for operator in (once, stock):
            operator.render_template_fields({"given": "n"})
        assert once.pod_template_dict == stock.pod_template_dict == expected
        once.render_template_fields({"given": "m"})
        assert once.pod_template_dict == expected
        with pytest.raises(TemplateError):
            stock.render_template_fields({"given": "m"})


def test_the_time_for_an_approval_has_the_word_of_the_provider_of_3_1() -> None:
    pipeline = loads(HEAD + "steps: {a: {approval: {message: Go?, timeout: 1h}}}")
    assert "execution_timeout=timedelta(hours=1)," in text_for("3.1", pipeline)
    assert "response_timeout=timedelta(hours=1)," in text_for(None, pipeline)


def test_delays_that_double_are_a_word_of_every_airflow() -> None:
    pipeline = loads(HEAD + "steps: {a: {command: [x], retry: {failures: 2, backoff: {start: 1s, factor: 2}}}}")
    assert "retry_exponential_backoff=2," in text_for(None, pipeline)
    assert "retry_exponential_backoff=True," in text_for("3.1", pipeline)


@pytest.mark.parametrize(
    ("steps", "version", "words"),
    [
        ("steps: {a: {approval: Go?}}", "3.0", "has no approvals"),
        (
            "steps: {a: {command: [x], retry: {failures: 1, backoff: {start: 1s, factor: 3}}}}",
            "3.1",
            "cannot grow by 3",
        ),
        ("on_data: [s3://lake/x]\nsteps: {a: {command: [x]}}", "2.11", "knows no assets"),
        ("steps: {a: {command: [x]}}", "1.10", "is no Airflow that a file can be written for"),
    ],
)
def test_what_an_older_airflow_cannot_say_is_refused_by_name(steps: str, version: str, words: str) -> None:
    with pytest.raises(GpuflowError) as refusal:
        text_for(version, loads(HEAD + steps))
    assert [(each.code, words in each.message) for each in refusal.value.findings] == [("GF370", True)]


def test_an_older_airflow_needs_a_standalone_file() -> None:
    with pytest.raises(GpuflowError) as refusal:
        compile(loads(HEAD + "steps: {a: {command: [x]}}"), target="airflow", airflow="2.11")
    assert refusal.value.findings[0].code == "GF370"
    assert "--standalone" in (refusal.value.findings[0].hint or "")
