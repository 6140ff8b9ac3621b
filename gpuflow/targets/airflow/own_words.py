"""Airflow's own words as arguments of the DAG and of its tasks."""

from __future__ import annotations

from typing import Any

from gpuflow.spec.engine_words.airflow import AirflowDag, AirflowTask
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step

OWNERS = ("owner", "team")
"""Labels that say whose the pipeline is, the first one first."""


def dag_words(pipeline: Pipeline) -> AirflowDag:
    """What the pipeline says to Airflow alone."""
    return (pipeline.engines and pipeline.engines.airflow) or AirflowDag()


def task_words(step: Step) -> AirflowTask:
    """What a step says to Airflow alone."""
    return (step.engines and step.engines.airflow) or AirflowTask()


def dag_arguments(pipeline: Pipeline) -> dict[str, Any]:
    """More arguments of the DAG; owner and tags come from labels where nothing is said."""
    words, labels = dag_words(pipeline), pipeline.labels
    owner = words.owner or next((labels[key] for key in OWNERS if labels.get(key)), None)
    tags = dict.fromkeys(["gpuflow", *(f"{key}={value}" for key, value in labels.items()), *words.tags])
    return {**({"default_args": {"owner": owner}} if owner else {}), "tags": list(tags)}


def task_arguments(step: Step) -> dict[str, Any]:
    """More arguments of the task."""
    words = task_words(step)
    return {name: value for name in AirflowTask.model_fields if (value := getattr(words, name)) is not None}
