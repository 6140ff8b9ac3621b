"""Kubeflow's own words of a pipeline and of its steps."""

from __future__ import annotations

from typing import Any

from gpuflow.spec.engine_words.kubeflow import KubeflowPipeline, KubeflowTask
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.targets.kubeflow.text import for_driver

_NOTHING = KubeflowTask()


def pipeline_words(pipeline: Pipeline) -> KubeflowPipeline:
    """What the pipeline says to Kubeflow alone."""
    return (pipeline.engines and pipeline.engines.kubeflow) or KubeflowPipeline()


def task_words(step: Step) -> KubeflowTask:
    """What a step says to Kubeflow alone."""
    return (step.engines and step.engines.kubeflow) or _NOTHING


def set_caching(options: Any, step: Step) -> None:
    """Whether the step's results are used again, and under which key (CachingOptions of the IR)."""
    options.enable_cache = bool(step.cache)
    key = task_words(step).cache_key
    if step.cache and key:
        options.cache_key = for_driver(key)
