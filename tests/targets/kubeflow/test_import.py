"""Kubeflow pipelines that are imported and compiled again start the same pods; the differences are in kfp_pods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gpuflow
from gpuflow.importing.pipelines import Imported
from gpuflow.readers import Document
from tests.importing.corpus import answers, summary
from tests.importing.kfp_pods import pods_of
from tests.importing.samples import KFP, SITE, import_text

GOLDEN = Path(__file__).parent / "golden" / "import-corpus.txt"


def compiled(result: Imported) -> str:
    assert result.pipeline is not None, [finding.render() for finding in result.findings]
    return gpuflow.compile(result.pipeline, target="kubeflow", site=SITE).text


def same_pods(path: Path, document: Document, result: Imported) -> bool:
    return pods_of(path.read_text(encoding="utf-8")) == pods_of(compiled(result))


def test_the_corpus_of_kubeflow_s_pipelines(corpora: Path, golden: Callable[[Path, str], None]) -> None:
    lines = list(answers(corpora / "kubeflow-pipelines" / "ir", same_pods))
    assert not [line for line in lines if line.endswith("OTHER PODS")]
    golden(GOLDEN, summary(lines))


def test_a_pipeline_with_a_loop_and_a_gpu_starts_the_same_pods() -> None:
    assert pods_of(KFP) == pods_of(compiled(import_text(KFP)))
    other = compiled(import_text(KFP.replace('"a", "b"', '"a", "c"')))
    assert pods_of(KFP) != pods_of(other)
