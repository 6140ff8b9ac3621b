"""The engines, by name. An engine's package loads without its SDK; only compiling may need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuflow.core.errors import did_you_mean, fail
from gpuflow.engines import load_engine

if TYPE_CHECKING:
    from gpuflow.targets.target import Target

TARGETS = {
    "airflow": "gpuflow.targets.airflow",
    "argo": "gpuflow.targets.argo",
    "kubeflow": "gpuflow.targets.kubeflow",
}
"""Adding an engine is one line here, and a package with `target`."""


def load_target(name: str) -> Target:
    if name not in TARGETS:
        raise fail("GF302", f'"{name}" is not a target', hint=did_you_mean(name, TARGETS))
    target: Target = load_engine(name)
    return target
