"""Kubeflow's own words: what a pipeline and a task take that is not the pipeline's to decide."""

from __future__ import annotations

from typing import ClassVar

from gpuflow.spec.engine_words.words import EngineWords
from gpuflow.spec.model import Str


class KubeflowPipeline(EngineWords):
    """What Kubeflow takes for the pipeline."""

    TITLE: ClassVar[str] = "Kubeflow"

    display_name: Str | None = None
    """The pipeline's name in the user interface."""


class KubeflowTask(EngineWords):
    """What Kubeflow takes for the task of a step."""

    TITLE: ClassVar[str] = "Kubeflow"
