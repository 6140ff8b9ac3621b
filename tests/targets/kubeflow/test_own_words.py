"""Kubeflow's own words reach the compiled pipeline, and what the pipeline says itself is refused with its own word.

Tests gpuflow/spec/engine_options/kubeflow.py and gpuflow/targets/kubeflow/containers.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.spec.loading import loads
from tests.targets.kubeflow.compiling import HEAD, documents

TEXT = """name: nightly
{words}
steps:
  train:
    image: registry.example.com/train:1
    command: [train]
    cache: true
    engines: {{kubeflow: {{display_name: Train the model, cache_key: "v3"}}}}
"""
WORDS = "engines: {kubeflow: {display_name: Nightly training, pipeline_root: s3://lake/runs, ttl: 7d}}"


def _documents(words: str = WORDS) -> list[dict[str, Any]]:
    return documents(TEXT.format(words=words))


def test_words_of_the_pipeline() -> None:
    spec, platform = _documents()
    assert spec["pipelineInfo"] == {"name": "nightly", "displayName": "Nightly training"}
    assert spec["defaultPipelineRoot"] == "s3://lake/runs"
    assert platform["platforms"]["kubernetes"]["pipelineConfig"] == {"resourceTtlOnCompletion": 604800}


def test_words_of_a_step() -> None:
    task = _documents()[0]["root"]["dag"]["tasks"]["train"]
    assert task["taskInfo"] == {"name": "Train the model"}
    assert task["cachingOptions"] == {"enableCache": True, "cacheKey": "v3"}


@pytest.mark.parametrize(
    ("words", "code", "way_out"),
    [
        ("caching: true", "GF351", "write cache: true or false"),
        ("parallelism: 4", "GF113", "set parallel on the fan-outs"),
        ("experiment: e", "GF113", "experiment_name"),
    ],
)
def test_what_is_said_elsewhere_is_refused_with_the_way_out(words: str, code: str, way_out: str) -> None:
    with pytest.raises(GpuflowError) as refused:
        loads(HEAD + TEXT.format(words=f"engines: {{kubeflow: {{{words}}}}}"))
    (finding,) = refused.value.findings
    assert finding.code == code
    assert way_out in f"{finding.message} {finding.hint}"


@pytest.mark.parametrize("word", ["display_name", "pipeline_root"])
def test_a_tag_that_argo_would_replace_is_refused(word: str) -> None:
    with pytest.raises(GpuflowError) as refused:
        loads(HEAD + TEXT.format(words=f'engines: {{kubeflow: {{{word}: "s3://lake/{{{{workflow.name}}}}"}}}}'))
    assert [finding.code for finding in refused.value.findings] == ["GF306"]
