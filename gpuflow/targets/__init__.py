"""The engines, by name. A target's module is loaded when it is asked for, and only it imports the engine's SDK."""

from __future__ import annotations

import importlib

from gpuflow.errors import Finding, SurroundingsError, did_you_mean, fail
from gpuflow.targets.frame import Target

TARGETS = {
    "airflow": "gpuflow.targets.airflow",
    "argo": "gpuflow.targets.argo",
    "kubeflow": "gpuflow.targets.kubeflow",
}
"""Adding an engine is one line here, a module with `target`, and an extra of the same name in pyproject.toml."""


def load_target(name: str) -> Target:
    """The target of that name; a missing SDK is one message with the install command."""
    if name not in TARGETS:
        raise fail("GF302", f'"{name}" is not a target', hint=did_you_mean(name, TARGETS))
    try:
        module = importlib.import_module(TARGETS[name])
    except ModuleNotFoundError as missing:
        if missing.name is not None and missing.name.startswith("gpuflow."):
            raise
        raise SurroundingsError(
            Finding(
                "GF901",
                f"compiling for {name} needs the package {missing.name}, which is not installed",
                hint=f'python -m pip install "gpuflow[{name}]"',
            )
        ) from None
    target: Target = module.target
    return target
