"""Kubeflow pipelines that are imported and compiled again start the same pods; the differences are in kfp_pods.

Tests gpuflow/importing/kubeflow.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

import gpuflow
from gpuflow.importing.pipelines import ImportResult
from gpuflow.pod.supervision import RUN_ID
from gpuflow.readers import Document
from gpuflow.spec.loading import loads
from tests.importing.corpus import answers, summary
from tests.importing.kfp_pods import pods_of
from tests.importing.samples import KFP, SITE, import_text

GOLDEN = Path(__file__).parent / "golden" / "import-corpus.txt"


def compiled(result: ImportResult) -> str:
    assert result.pipeline is not None, [finding.render() for finding in result.findings]
    return gpuflow.compile(result.pipeline, target="kubeflow", site=SITE).text


def same_pods(path: Path, document: Document, result: ImportResult) -> bool:
    return pods_of(path.read_text(encoding="utf-8")) == pods_of(compiled(result))


def test_the_corpus_of_kubeflow_s_pipelines(corpora: Path, golden: Callable[[Path, str], None]) -> None:
    lines = list(answers(corpora / "kubeflow-pipelines" / "ir", same_pods))
    assert not [line for line in lines if line.endswith("OTHER PODS")]
    golden(GOLDEN, summary(lines))


def test_a_pipeline_with_a_loop_and_a_gpu_starts_the_same_pods() -> None:
    assert pods_of(KFP) == pods_of(compiled(import_text(KFP)))
    other = compiled(import_text(KFP.replace('"a", "b"', '"a", "c"')))
    assert pods_of(KFP) != pods_of(other)


OURS = """
apiVersion: gpuflow/v1
kind: Pipeline
name: p
steps:
  ask: {image: "i:1", command: [ask], outputs: {o: string}}
  say: {image: "i:1", command: [say, {output: ask.o}]}
"""


def test_a_supervisor_that_is_imported_still_knows_its_run() -> None:
    """gpuflow-run hands its own variables to no program: one inside another is told the run's id in its command."""
    made = gpuflow.compile(loads(OURS), target="kubeflow", site=SITE).text
    assert RUN_ID in made
    result = import_text(made)
    assert result.pipeline is not None, [finding.render() for finding in result.findings]
    words = yaml.safe_load(result.text())["steps"]["ask"]["command"]
    assert words[:2] == ["gpuflow-run", {"join": ["--run-id=", {"run": "id"}]}]
    assert RUN_ID not in result.text()
    compiled(result)
    by_hand = import_text(made.replace("gpuflow-run", "other-run"))
    assert by_hand.pipeline is None, "a variable of gpuflow's name that is not gpuflow-run's is no pipeline's to set"
    assert any(f"cannot change the variable {RUN_ID}" in finding.message for finding in by_hand.findings)
