"""Engines' own words: `engines: {airflow: …}` in a pipeline and in a step.

Tests gpuflow/spec/engine_options/airflow.py, gpuflow/spec/engine_options/argo.py, gpuflow/spec/engine_options/base.py,
gpuflow/spec/engine_options/kubeflow.py and gpuflow/spec/engine_options/rules.py.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow import GpuflowError, Pipeline, loads
from gpuflow.spec.canonical import to_document, to_yaml
from gpuflow.spec.engine_options import PipelineEngines, StepEngines
from gpuflow.spec.engine_options.airflow import AirflowDag, AirflowTask
from gpuflow.spec.engine_options.base import Imported
from gpuflow.spec.rules.remarks import remarks_on
from gpuflow.spec.schema import pipeline_schema
from tests.conftest import ROOT

HEAD = 'apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: "i:1"}\n'
WORDS = ROOT / "tests" / "targets" / "airflow" / "cases" / "words.yaml"
SCHEMA = jsonschema.Draft202012Validator(pipeline_schema())


def dag(words: str, more: str = "") -> str:
    return f"{HEAD}{more}engines: {{airflow: {{{words}}}}}\nsteps: {{a: {{command: [x]}}}}\n"


def task(words: str, more: str = "command: [x]") -> str:
    return f"{HEAD}steps:\n  a: {{{more}, engines: {{airflow: {{{words}}}}}}}\n"


def of(engine: str, words: str) -> str:
    return dag(words).replace("airflow", engine)


def of_step(engine: str, words: str) -> str:
    return task(words).replace("airflow", engine)


def told(text: str) -> list[tuple[str, str | None]]:
    """Code and way out of every finding."""
    with pytest.raises(GpuflowError) as refusal:
        loads(text, "p.yaml")
    return [(finding.code, finding.hint) for finding in refusal.value.findings]


def test_words_are_the_same_from_yaml_from_python_and_from_the_canonical_form() -> None:
    pipeline = loads(WORDS.read_text(), "words.yaml")
    text = to_yaml(pipeline)
    assert loads(text, "again.yaml") == pipeline
    assert to_yaml(loads(text, "again.yaml")) == text
    assert Pipeline(**to_document(pipeline)) == pipeline
    SCHEMA.validate(to_document(pipeline))
    assert "on_success_callback:\n    - airflow.sdk.timezone.coerce_datetime\n" in text, "the short form is kept"


def test_words_in_python() -> None:
    with Pipeline("p", defaults={"image": "i:1"}, engines={"airflow": {"owner": "nlp"}}) as pipeline:
        pipeline.step("a", ["x"], engines={"airflow": {"pool": "gpus"}})
    assert pipeline == loads(dag("owner: nlp").replace("[x]", "[x], engines: {airflow: {pool: gpus}}"))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (HEAD + "airflow: {owner: x}\nsteps: {a: {command: [x]}}", "write engines: {airflow: {…}}"),
        (HEAD + "steps: {a: {command: [x], argo: {}}}", "write engines: {argo: {…}}"),
        (
            HEAD + "tags: [x]\nsteps: {a: {command: [x]}}",
            "it is a word of Airflow: write engines: {airflow: {tags: …}}",
        ),
        (
            HEAD + "steps: {a: {command: [x], pool: x}}",
            "it is a word of Airflow: write engines: {airflow: {pool: …}}",
        ),
        (HEAD + "steps: {a: {command: [x], retries: 3}}", "write retry: N in the step or in defaults"),
        (HEAD + "catchup: true\nsteps: {a: {command: [x]}}", "write schedule: {cron: …, catch_up: true}"),
        (
            HEAD + "podGC: {}\nsteps: {a: {command: [x]}}",
            "it is a word of Argo: write engines: {argo: {pod_gc: …}}",
        ),
        (of("argo", "podGC: {}"), "write pod_gc: …"),
        (of("argo", "ttlStrategy: {}"), "write ttl: …"),
        (of_step("argo", "hooks: {}"), "it is about the whole run: write engines: {argo: {hooks: …}} in the pipeline"),
        (dag("ownr: x"), 'did you mean "owner"?'),
        (dag("pool: x"), "write default_args: {pool: …} for all tasks, or pool in a step's engines.airflow"),
        (dag("fail_fast: true"), "leave it out: Airflow takes it only where no task has a trigger rule"),
        (task("executor_config: {}"), "set it where Airflow is installed"),
        (task("teleport: 1"), "it is none of the words of Airflow that are taken here"),
        (HEAD.replace("defaults: {", "defaults: {engines: {}, ") + "steps: {a: {command: [x]}}", "engines stands in"),
    ],
)
def test_a_word_in_the_wrong_place_says_where_it_belongs(text: str, hint: str) -> None:
    ((code, said),) = told(text)
    assert code == "GF113"
    assert said is not None and said.startswith(hint)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (task("retries: 3"), "write retry: N"),
        (task("execution_timeout: 60"), "write timeout: 2h"),
        (task("schedule_timeout_seconds: 60"), "write queue_timeout: 6h"),
        (task("image: x"), "write image: …"),
        (task("env_vars: {}"), "write env: {NAME: value}"),
        (task("container_resources: {}"), "write cpu, memory and gpu"),
        (task("full_pod_spec: {}"), "say it in the step"),
        (dag("default_args: {retries: 3}"), "write retry: N"),
        (dag("default_args: {image: x}"), "write image: …"),
        (dag("start_date: 2027-01-01"), "write schedule: {cron: …, start: 2027-01-31}"),
        (dag("schedule: '@daily'"), "write schedule:"),
        (dag("dagrun_timeout: 60"), "write deadline: 8h"),
        (dag("retries: 3"), "write retry: N"),
        (dag("image: x"), "write image: …"),
        (dag("resources: {}"), "write cpu, memory and gpu"),
        (of("argo", "image: x"), "write image: …"),
        (of("argo", "resources: {}"), "write cpu, memory and gpu"),
        (of("kubeflow", "num_retries: 2"), "write retry: …"),
        (of("kubeflow", "image: x"), "write image: …"),
        (of_step("argo", "nodeSelector: {}"), "write kubernetes: {…}"),
        (of_step("argo", "volumes: []"), "write volumes: {…} in the step"),
        (dag("max_active_tasks: 3"), "write parallel: N"),
    ],
)
def test_a_word_that_would_contradict_the_spec_is_refused_with_the_specs_own_word(text: str, hint: str) -> None:
    ((code, said),) = told(text)
    assert code == "GF351"
    assert said is not None and said.startswith(hint)


def test_every_refused_word_is_found_with_its_place() -> None:
    text = HEAD + "steps:\n  a:\n    command: [x]\n    engines:\n      airflow:\n        retries: 1\n        image: x\n"
    with pytest.raises(GpuflowError) as refusal:
        loads(text, "p.yaml")
    assert [(f.code, f.where.line, f.where.column, f.where.step) for f in refusal.value.findings] == [
        ("GF351", 10, 9, "a"),
        ("GF351", 11, 9, "a"),
    ]


def test_no_word_is_both_taken_and_refused() -> None:
    for model in (AirflowDag, AirflowTask):
        taken = set(model.model_fields)
        assert not taken & set(model.OURS)
        assert not set(model.OURS) & set(model.ELSEWHERE)
    assert not set(AirflowTask.model_fields) & set(AirflowTask.ELSEWHERE)


def test_the_words_of_every_engine_have_a_place_in_pipeline_and_step() -> None:
    assert list(PipelineEngines.model_fields) == list(StepEngines.model_fields) == ["airflow", "argo", "kubeflow"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (dag("max_active_runs: 2", 'schedule: "0 3 * * *"\n'), "GF353"),
        (dag("timetable: a.b", 'schedule: "0 3 * * *"\n'), "GF354"),
        (dag("timetable: a.b", "on_data: s3://b/new\n"), "GF354"),
        (dag("timetable: '0 3 * * *'"), "GF352"),
        (dag("on_failure_callback: page"), "GF352"),
        (dag("on_failure_callback: a.class"), "GF352"),
        (dag("on_failure_callback: {path: a.b, arguments: {not a name: 1}}"), "GF352"),
        (dag("end_date: tomorrow"), "GF356"),
        (dag('end_date: "0001-01-01T00:00+14:00"'), "GF356"),
        (dag('end_date: "2027-01-31T18:00:00.5"'), "GF356"),
        (dag(f"tags: [{'x' * 101}]"), "GF355"),
        (dag("owner_links: {me: here}"), "GF355"),
        (dag("access_control: {Viewer: can_read}"), "GF355"),
        (dag("owner: a, default_args: {owner: b}"), "GF128"),
        (task("container_logs: false"), "GF355"),
        (task("on_finish_action: burn"), "GF115"),
        (HEAD + "steps: {s: {pipeline: {name: q, engines: {airflow: {}}, steps: {a: {command: [x]}}}}}", "GF187"),
    ],
)
def test_what_cannot_be_is_one_finding(text: str, code: str) -> None:
    assert code in [each for each, _ in told(text)]


@pytest.mark.parametrize("concurrency", ["allow", "forbid"])
def test_runs_at_once_as_the_schedule_says(concurrency: str) -> None:
    schedule = f'schedule: {{cron: "0 3 * * *", concurrency: {concurrency}}}\n'
    loads(dag(f"max_active_runs: {3 if concurrency == 'allow' else 1}", schedule))


@given(st.from_regex(r"[A-Za-z_]\w{0,5}(\.[A-Za-z_]\w{0,5}){1,3}", fullmatch=True) | st.text(max_size=20))
def test_an_import_path_is_what_python_would_import_and_nothing_else(path: str) -> None:
    module, _, name = path.rpartition(".")
    try:
        compile(f"from {module} import {name} as taken", "p", "exec")
        plain = path.isascii() and all(part.isidentifier() for part in path.split("."))
    except (SyntaxError, ValueError):
        plain = False
    try:
        Imported.model_validate(path)
        taken = True
    except ValueError:
        taken = False
    assert taken == plain


def test_words_for_one_engine_are_no_loss_on_the_others() -> None:
    from gpuflow.engines import ENGINES
    from gpuflow.targets import load_target
    from gpuflow.targets.capabilities import construct_losses, partial_support_notes

    every: Any = loads(WORDS.read_text().replace("approval: Go on?", "command: [z]"), "words.yaml")
    for name in ENGINES:
        table = load_target(name).capabilities
        lost = [loss.construct for loss in construct_losses(every, table, name)]
        assert not [construct for construct in lost if construct and construct.startswith("engines")], name
        assert not [each for each in partial_support_notes(every, table) if "engines" in each.message], name


def test_the_end_of_a_dag_is_a_date_of_python_too() -> None:
    with Pipeline("p", defaults={"image": "i:1"}, engines={"airflow": {"end_date": date(2027, 1, 31)}}) as pipeline:
        pipeline.step("a", ["x"])
    assert pipeline == loads(dag("end_date: 2027-01-31"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (dag("default_args: {outlets: ['']}"), "GF355"),
        (dag("default_args: {outlets: 'Airflow://x'}"), "GF355"),
        (task("inlets: [context]"), "GF355"),
        (task(f"outlets: ['{'x' * 1501}']"), "GF355"),
        (task("pool: ''"), "GF355"),
        (task("kubernetes_conn_id: ' '"), "GF355"),
        (task("priority_weight: 99999999999"), "GF127"),
        (of("argo", "priority: 99999999999"), "GF127"),
        (of("argo", "instance_id: ''"), "GF357"),
        (of("argo", "hooks: {a: {expression: '', template_ref: {name: t, template: t}}}"), "GF357"),
        (of("argo", "metrics: [{name: m, help: h, labels: {a-b: c}, counter: '1'}]"), "GF357"),
        (of("argo", "metrics: [{name: m, help: '', counter: '1'}]"), "GF357"),
        (of("argo", "metrics: [{name: m, help: h, counter: ''}]"), "GF357"),
        (of("argo", "metrics: [{name: m, help: h, histogram: {value: '', buckets: [1]}}]"), "GF357"),
        (of("argo", "metrics: [{name: m, help: h, gauge: {value: '1', realtime: true}}]"), "GF357"),
        (of("argo", "metrics: [{name: gpuflow_runs, help: h, counter: '1'}]"), "GF357"),
        (of("kubeflow", "pipeline_root: not a place"), "GF357"),
        (of("kubeflow", "pipeline_root: 'https://example.com/x'"), "GF357"),
    ],
)
def test_a_value_that_the_engine_could_not_use_is_refused(text: str, code: str) -> None:
    ((found, _),) = told(text)
    assert found == code


@pytest.mark.parametrize(
    "words",
    [
        "metrics: [{name: m, help: h, gauge: {value: '{{workflow.duration}}', realtime: true}}]",
        "metrics: [{name: m, help: h, labels: {a_b: c}, histogram: {value: '1', buckets: [1, 2]}}], priority: -5",
    ],
)
def test_a_value_that_argo_can_use_is_taken(words: str) -> None:
    assert loads(of("argo", words)).engines is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (of_step("kubeflow", "cache_key: k"), 'step "a": cache_key of Kubeflow says nothing'),
        (
            dag("end_date: 2026-12-31", "schedule: {cron: '0 3 * * *', start: 2027-01-31, timezone: Europe/Berlin}\n"),
            "end_date 2026-12-31T00:00:00 is before the schedule's start",
        ),
    ],
)
def test_a_word_that_does_nothing_is_pointed_out(text: str, said: str) -> None:
    (remark,) = remarks_on(loads(text))
    assert (remark.code, remark.severity) == ("GF358", "warning")
    assert remark.message.startswith(said)


@pytest.mark.parametrize(
    "text",
    [
        of_step("kubeflow", "cache_key: k").replace("command: [x]", "command: [x], cache: true"),
        of_step("kubeflow", "cache_key: k").replace('{image: "i:1"}', '{image: "i:1", cache: true}'),
        dag("end_date: 2027-12-31", "schedule: {cron: '0 3 * * *', start: 2027-01-31}\n"),
        dag("end_date: 2027-12-31", "schedule: '0 3 * * *'\n"),
    ],
)
def test_a_word_that_does_something_is_not(text: str) -> None:
    assert remarks_on(loads(text)) == []
