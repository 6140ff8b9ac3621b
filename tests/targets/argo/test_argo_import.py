"""Argo workflows that are imported and compiled again start the same pods; the list of differences is in argo_pods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import gpuflow
from gpuflow.importing.pipelines import ImportResult
from gpuflow.readers import Document
from tests.conftest import ROOT
from tests.importing.argo_pods import Run
from tests.importing.corpus import answers, summary
from tests.importing.samples import JOB, SITE, WORKFLOW, import_text

GOLDEN = Path(__file__).parent / "golden" / "import-corpus.txt"


def compiled(result: ImportResult) -> dict[str, Any]:
    assert result.pipeline is not None, [finding.render() for finding in result.findings]
    found: dict[str, Any] = yaml.safe_load(gpuflow.compile(result.pipeline, target="argo", site=SITE).text)
    return found


def same_pods(path: Path, document: Document, result: ImportResult) -> bool:
    objects = [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if isinstance(each, dict)]
    own = next(each for each in objects if each["kind"] == document.kind and _name(each) == document.name)
    return Run(own, {}).pods() == Run(compiled(result), {}).pods()


def _name(tree: dict[str, Any]) -> str:
    metadata = tree["metadata"]
    return str(metadata.get("name") or metadata.get("generateName", "").rstrip("-"))


def test_the_corpus_of_argo_s_examples(corpora: Path, golden: Callable[[Path, str], None]) -> None:
    lines = list(answers(corpora / "argo-workflows", same_pods))
    assert not [line for line in lines if line.endswith("OTHER PODS")]
    golden(GOLDEN, summary(lines))


def test_a_workflow_with_most_words_starts_the_same_pods() -> None:
    result = import_text(WORKFLOW)
    assert Run(yaml.safe_load(WORKFLOW), {}).pods() == Run(compiled(result), {}).pods()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("image: train:1", "image: train:2"),
        ("--rows=", "--lines="),
        ("[{to: a}, {to: b}]", "[{to: a}, {to: c}]"),
        ("memory: 8Gi", "memory: 9Gi"),
        ("claimName: data", "claimName: other"),
        ("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
        ("serviceAccountName: runner", "serviceAccountName: other"),
        ("periodSeconds: 5", "periodSeconds: 6"),
        ("== Succeeded", "!= Succeeded"),
        ("NVIDIA-L4", "NVIDIA-L40S"),
        ("key: token", "key: other"),
    ],
)
def test_the_comparison_sees_every_change(old: str, new: str) -> None:
    """Otherwise that two sides are equal would say nothing."""
    assert old in WORKFLOW
    changed = compiled(import_text(WORKFLOW.replace(old, new)))
    assert Run(yaml.safe_load(WORKFLOW), {}).pods() != Run(changed, {}).pods()


def test_a_job_s_pod_is_the_pod_of_its_step() -> None:
    """Kubernetes' own objects are compared through Argo: a workflow whose template is the Job's pod."""
    job = yaml.safe_load(JOB)
    spec = job["spec"]["template"]["spec"]
    (main,) = spec["containers"]
    main["command"] = [
        word.replace("$(JOB_COMPLETION_INDEX)", "{{inputs.parameters.index}}") for word in main["command"]
    ]
    main["env"] = [{"name": "JOB_COMPLETION_INDEX", "value": "{{inputs.parameters.index}}"}]
    pod = {
        "name": "pod",
        "inputs": {"parameters": [{"name": "index"}]},
        "container": main,
        "nodeSelector": spec["nodeSelector"],
        "volumes": spec["volumes"],
        "metadata": {"labels": {"team": "nlp", "kueue.x-k8s.io/queue-name": "gpus"}},
    }
    given = {"parameters": [{"name": "index", "value": "{{item}}"}]}
    call = {"name": "all", "template": "pod", "arguments": given, "withSequence": {"count": "4"}}
    workflow = {"spec": {"entrypoint": "main", "templates": [{"name": "main", "steps": [[call]]}, pod]}}
    assert Run(workflow, {}).pods() == Run(compiled(import_text(JOB)), {}).pods()


OWN = """apiVersion: gpuflow/v1
kind: Pipeline
name: own
labels: {team: nlp}
params: {lr: 0.1, name: small, seeds: {type: json, default: [1, 2]}}
defaults: {image: busybox, cpu: 2}
steps:
  prepare: {command: [sh, -c, "echo {{x}} $(date)"], outputs: {rows: int, model: {path: /tmp/m}}}
  train:
    command: [train, {join: [--lr=, {param: lr}]}, {item: seed}, {output: prepare.rows}, {run: id}, {run: attempt}]
    for_each: {seed: {param: seeds}}
    gpu: a100-80gb
    retry: 2
    env: {NAME: {param: name}, HUB: {secret: hub, key: token}}
  again: {command: [train, {item: n}], for_each: {n: [a, b]}, needs: [train]}
  report: {needs: again, when: "params.name == 'small'", script: {run: "print(1)", interpreter: [python]}}
  send: {needs: report, if_skipped: run, command: [send]}
exit:
  tell: {command: [tell], on: failure}
"""
EXAMPLES = ROOT / "docs" / "examples"
NOT_READ_BACK = {
    "daily.yaml": "dates of the run, which are expressions of Argo",
    "nightly.yaml": "checkpoints, budgets of retries, and values that the copies of a step wrote",
}
"""Examples whose compiled workflow says more than is read back."""
NOT_FOR_ARGO = ("finetune.yaml", "gang.yaml")


@pytest.mark.parametrize("name", ["own", *sorted(path.name for path in EXAMPLES.glob("*.yaml"))])
def test_what_gpuflow_compiled_is_read_back_with_the_same_pods(name: str) -> None:
    if name in NOT_FOR_ARGO:
        return
    pipeline = gpuflow.loads(OWN) if name == "own" else gpuflow.load(EXAMPLES / name)
    text = gpuflow.compile(pipeline, target="argo", site=SITE).text
    result = import_text(text)
    assert (result.pipeline is None) == (name in NOT_READ_BACK)
    if result.pipeline is not None:
        assert Run(yaml.safe_load(text), {}).pods() == Run(compiled(result), {}).pods()
        typed = {key: (param.type, param.default) for key, param in pipeline.params.items()}
        assert {key: (param.type, param.default) for key, param in result.pipeline.params.items()} == typed
        assert result.pipeline.steps.keys() == pipeline.steps.keys()
