"""Airflow's own words: what a DAG and a task take that is not the pipeline's to decide."""

from __future__ import annotations

from typing import ClassVar

from gpuflow.spec.engine_words.words import EngineWords
from gpuflow.spec.model import Count, Str


class AirflowDag(EngineWords):
    """What Airflow takes for the DAG."""

    TITLE: ClassVar[str] = "Airflow"

    owner: Str | None = None
    """The owner of every task; default: the label `owner` or `team`."""
    tags: tuple[Str, ...] = ()
    """More tags in the list of DAGs, beside those that come from labels."""


class AirflowTask(EngineWords):
    """What Airflow takes for the task of a step."""

    TITLE: ClassVar[str] = "Airflow"

    pool: Str | None = None
    """The pool that the task takes slots of."""
    pool_slots: Count | None = None
    """How many slots it takes."""
