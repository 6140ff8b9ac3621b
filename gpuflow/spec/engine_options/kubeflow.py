"""Options of Kubeflow: what a pipeline and a task take that is not the pipeline's to decide."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import model_validator

from gpuflow.spec.engine_options.base import EngineOptions
from gpuflow.spec.model import DurationField, Str, problem

_PARALLELISM = "KFP 2.17 has no limit for a whole run: set parallel on the fan-outs, or use a Kueue queue"
_ROOT = re.compile(r"(gs|s3|minio)://[^/?]+(/[^?]*)?(\?.+)?")
"""What KFP's launcher reads as a place for artifacts (ParseBucketPathToConfig in objectstore/config.go, 2.17)."""


class KubeflowOptions(EngineOptions):
    """Words that KFP hands to Argo as they are."""

    @model_validator(mode="after")
    def _without_tags(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, str) and "{{" in value:
                text = f"Argo would replace a tag in {name}: {value[:60]!r}"
                raise problem("GF306", text, "write it without {{", at=(name,))
        return self


class KubeflowTask(KubeflowOptions):
    """What Kubeflow takes for the task of a step."""

    TITLE: ClassVar[str] = "Kubeflow"
    OURS: ClassVar[Mapping[str, str]] = {
        "retry": "write retry: … in the step",
        "num_retries": "write retry: …",
        "caching": "write cache: true or false in the step",
        "enable_caching": "write cache: true or false in the step",
        "image": "write image: … in the step",
        "command": "write command: […] in the step",
        "cpu_limit": "write cpu: … in the step",
        "memory_limit": "write memory: … in the step",
        "accelerator_type": "write gpu: … in the step",
        "accelerator_limit": "write gpu: … in the step",
        "env": "write env: {…} in the step",
    }
    ELSEWHERE: ClassVar[Mapping[str, str]] = {"parallelism": "write parallel: … on the fan-out"}

    display_name: Str | None = None
    """The task's name in the user interface."""
    cache_key: Str | None = None
    """With `cache: true`: the key under which results are found again. It replaces what Kubeflow computes from image,
    command and inputs, so change it whenever one of these should count."""
    hand_over: bool | None = None
    """Whether Kubeflow keeps the files of outputs with a kind too, so that its own components can read them; default:
    in a component that is used by hand-written pipelines yes, in a pipeline no."""


class KubeflowPipeline(KubeflowOptions):
    """What Kubeflow takes for the pipeline."""

    TITLE: ClassVar[str] = "Kubeflow"
    OURS: ClassVar[Mapping[str, str]] = {
        "name": "write name: … in the pipeline",
        "description": "write description: … in the pipeline",
        "active_deadline_seconds": "write deadline: …",
        "caching": "write cache: true or false in the step or in defaults",
        "enable_caching": "write cache: true or false in the step or in defaults",
        "workspace": "write claims: {…}",
    }
    OURS_INSIDE: ClassVar[Mapping[str, str]] = KubeflowTask.OURS
    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "parallelism": _PARALLELISM,
        "pipeline_parallelism": _PARALLELISM,
        "experiment": "it belongs to a run: client.create_run_from_pipeline_package(…, experiment_name=…)",
        "service_account": "it belongs to a run: client.create_run_from_pipeline_package(…, service_account=…)",
    }

    display_name: Str | None = None
    """The pipeline's name in the user interface."""
    pipeline_root: Str | None = None
    """Where Kubeflow keeps artifacts of runs, for example s3://bucket/pipelines; default: the installation's."""
    ttl: DurationField | None = None
    """How long the workflow object of a finished run is kept; default: what the installation says."""

    @model_validator(mode="after")
    def _has_place(self) -> KubeflowPipeline:
        if self.pipeline_root is not None and not _ROOT.fullmatch(self.pipeline_root):
            text = f'"{self.pipeline_root[:60]}" is no place where KFP can keep artifacts'
            raise problem("GF357", text, "write s3://bucket/path, gs://… or minio://…", at=("pipeline_root",))
        return self
