"""Argo's own words reach the workflow as they are, and what the pipeline says itself is refused with its own word.

Tests gpuflow/spec/engine_options/argo.py and gpuflow/targets/argo/engine_options.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpuflow.core.errors import GpuflowError
from gpuflow.plan import plan_of
from gpuflow.site import Site
from gpuflow.spec.engine_options.argo import ArgoTemplate, ArgoWorkflow
from gpuflow.spec.loading import loads
from gpuflow.targets.target import engine_findings
from tests.targets.argo.manifests import compiled

WORDS = """
engines:
  argo:
    pod_gc: {strategy: OnWorkflowCompletion, delay: 10m}
    ttl: {success: 1d, failure: 7d}
    archive_logs: true
    priority: 10
    instance_id: gpu
    title: Nightly training
    annotations: {example.com/runbook: see the wiki}
    pod_metadata: {labels: {cost: nlp}, annotations: {example.com/scrape: "true"}}
    hooks:
      running:
        expression: workflow.status == "Running"
        template_ref: {name: announce, template: post}
        arguments: {run: "{{workflow.name}}"}
    metrics:
      - {name: runs, help: Runs by result, labels: {status: "{{status}}"}, counter: "1"}
      - {name: seconds, help: Duration, gauge: {value: "{{duration}}", realtime: true}}
      - name: spread
        help: Durations
        when: "{{status}} == Succeeded"
        histogram: {value: "{{duration}}", buckets: [60, 600]}
    history: {successful: 10, failed: 5}
    security_context: {run_as_user: 65534, run_as_non_root: true, seccomp_profile: RuntimeDefault}
"""
STEPS = """
steps:
  train:
    image: registry.example.com/train:1
    command: [train]
    engines: {argo: {archive_logs: false, metrics: [{name: trained, help: Trained models, counter: "1"}]}}
"""


def _built(more: str = "", words: str = WORDS) -> dict[str, Any]:
    return compiled(f"{more}{words}{STEPS}")


def test_every_word_is_somewhere_in_the_workflow() -> None:
    """A word without a place would be lost in silence: each one changes the manifest."""
    bare = _built(words="", more="schedule: 0 3 * * *\n")
    given = yaml.safe_load(WORDS)["engines"]["argo"]
    assert set(given) == set(ArgoWorkflow.model_fields)
    for word, value in given.items():
        one = _built(words=yaml.safe_dump({"engines": {"argo": {word: value}}}), more="schedule: 0 3 * * *\n")
        assert one != bare, word
    assert set(ArgoTemplate.model_fields) == {"archive_logs", "metrics"}


def test_words_of_the_workflow() -> None:
    spec = _built()["spec"]
    assert spec["podGC"] == {"strategy": "OnWorkflowCompletion", "deleteDelayDuration": "600s"}
    assert spec["ttlStrategy"] == {"secondsAfterSuccess": 86400, "secondsAfterFailure": 604800}
    assert spec["archiveLogs"] is True
    assert spec["priority"] == 10
    assert spec["podMetadata"] == {"labels": {"cost": "nlp"}, "annotations": {"example.com/scrape": "true"}}
    assert spec["hooks"] == {
        "running": {
            "expression": 'workflow.status == "Running"',
            "templateRef": {"name": "announce", "template": "post"},
            "arguments": {"parameters": [{"name": "run", "value": "{{workflow.name}}"}]},
        }
    }
    counter, gauge, histogram = spec["metrics"]["prometheus"]
    assert counter["labels"] == [{"key": "status", "value": "{{status}}"}] and counter["counter"] == {"value": "1"}
    assert gauge["gauge"] == {"value": "{{duration}}", "realtime": True}
    assert histogram["histogram"] == {"value": "{{duration}}", "buckets": [60, 600]}
    assert histogram["when"] == "{{status}} == Succeeded"
    assert spec["securityContext"] == {
        "runAsUser": 65534, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}
    }  # fmt: skip


def test_runs_get_the_label_of_their_controller_and_the_annotations() -> None:
    built = _built("schedule: 0 3 * * *\n")
    for metadata in (built["metadata"], built["spec"]["workflowMetadata"]):
        assert metadata["labels"]["workflows.argoproj.io/controller-instanceid"] == "gpu"
        assert metadata["annotations"]["workflows.argoproj.io/title"] == "Nightly training"
        assert metadata["annotations"]["example.com/runbook"] == "see the wiki"
    assert built["spec"]["successfulJobsHistoryLimit"] == 10
    assert built["spec"]["failedJobsHistoryLimit"] == 5


def test_words_of_a_step_stand_in_its_template() -> None:
    (template,) = [each for each in _built()["spec"]["templates"] if each["name"] == "train"]
    assert template["archiveLocation"] == {"archiveLogs": False}
    assert template["metrics"]["prometheus"][0]["name"] == "trained"


@pytest.mark.parametrize(
    ("words", "code", "way_out"),
    [
        ("parallelism: 3", "GF351", "write parallel: …"),
        ("activeDeadlineSeconds: 3", "GF351", "write deadline: …"),
        ("retryStrategy: {limit: 3}", "GF351", "retry"),
        ("hooks: {exit: {expression: 'true', template_ref: {name: a, template: b}}}", "GF351", "write exit: {…}"),
        ("pod_metadata: {labels: {kueue.x-k8s.io/queue-name: q}}", "GF351", "write queue: …"),
        ("metrics: [{name: a b, help: c, counter: '1'}]", "GF131", "letters"),
        ("metrics: [{name: a, help: c}]", "GF128", "counter"),
        ("synchronization: {}", "GF113", "--semaphores"),
        ("podgc: {}", "GF113", "pod_gc"),
    ],
)
def test_what_contradicts_the_pipeline_is_refused(words: str, code: str, way_out: str) -> None:
    text = f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: nightly\nengines: {{argo: {{{words}}}}}\n{STEPS}"
    with pytest.raises(GpuflowError) as refused:
        loads(text)
    (finding,) = refused.value.findings
    assert finding.code == code
    assert finding.where.line == 4
    assert way_out in f"{finding.message} {finding.hint}"


HOOK = "hooks: {h: {expression: %s, template_ref: {name: a, template: b}, arguments: {x: %s}}}"


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (HOOK % ("'{{=true'", "'1'"), "hooks.h.expression"),
        (HOOK % ("'true'", "'{{=workflow.name'"), "hooks.h.arguments.x"),
        (HOOK % ("'true'", "'{{workflow.name}} {{workflow.uid'"), "hooks.h.arguments.x"),
        ("metrics: [{name: a, help: 'b {{=', counter: '1'}]", "metrics.0.help"),
        ("metrics: [{name: a, help: b, gauge: {value: '{{=1'}}]", "metrics.0.gauge.value"),
        ("metrics: [{name: a, help: b, labels: {k: '{{status'}, counter: '1'}]", "metrics.0.labels.k"),
        ("pod_metadata: {annotations: {a: '{{=x'}}", "pod_metadata.annotations.a"),
    ],
)
def test_a_tag_that_is_not_closed_is_refused_by_name(words: str, place: str) -> None:
    with pytest.raises(GpuflowError) as refused:
        _built(words=f"engines: {{argo: {{{words}}}}}\n")
    (finding,) = refused.value.findings
    assert (finding.code, finding.hint) == ("GF306", "close it with }}")
    assert finding.message.startswith(f"engines.argo.{place}: ")
    assert finding.where.line


def test_a_tag_of_a_step_that_is_not_closed_is_refused_with_its_step() -> None:
    step = "{image: i, command: [x], engines: {argo: {metrics: [{name: a, help: b, counter: '{{=1'}]}}}"
    head = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
    text = f"{head}steps:\n  s: {{pipeline: {{name: q, steps: {{t: {step}}}}}}}\n"
    (finding,) = engine_findings("argo", plan_of(loads(text, "p.yaml"), Site.load("nvidia")))
    assert finding.code == "GF306" and finding.message.startswith('step "t": engines.argo.metrics.0.counter: ')
    assert finding.where.line == 5


@pytest.mark.parametrize("words", ["title: '{{workflow.name}}'", "annotations: {a: '{{workflow.name}}'}"])
def test_a_tag_is_refused_where_argo_replaces_it_for_some_kinds_only(words: str) -> None:
    with pytest.raises(GpuflowError) as refused:
        _built(words=f"engines: {{argo: {{{words}}}}}\n")
    (finding,) = refused.value.findings
    assert finding.code == "GF306"
    assert f"engines.argo.{words.partition(':')[0]}" in finding.message
