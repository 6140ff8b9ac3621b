"""gpuflow: describe a GPU pipeline once, compile it to three engines, and know whether the cluster will admit it.

    import gpuflow

    pipeline = gpuflow.load("pipeline.yaml")
    print(gpuflow.compile(pipeline, target="argo").text)
    print(gpuflow.check(pipeline, "cluster/", namespace="team-a", engine="argo").verdict)

Names are loaded when they are first used: importing gpuflow costs almost nothing and never loads an engine's SDK.
"""

from __future__ import annotations

import importlib

from gpuflow.core.version import __version__

TYPE_CHECKING = False  # as in `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from gpuflow import airflow, argo, catalog, kubeflow, local, quantity, run
    from gpuflow.api import check, compile, demand, gpus, submit
    from gpuflow.checker.kueue import assign_flavors
    from gpuflow.checker.nodes import fit_nodes
    from gpuflow.core.errors import Finding, GpuflowError
    from gpuflow.kubernetes.admission.decision import admit
    from gpuflow.site import Site
    from gpuflow.spec.builder import gpu, mig
    from gpuflow.spec.loading import load, loads
    from gpuflow.spec.pipeline import Pipeline
    from gpuflow.spec.step import Step
    from gpuflow.spec.text import join, text

_HOMES = {
    "Finding": "gpuflow.core.errors",
    "GpuflowError": "gpuflow.core.errors",
    "Pipeline": "gpuflow.spec.pipeline",
    "Site": "gpuflow.site",
    "Step": "gpuflow.spec.pipeline",
    "admit": "gpuflow.kubernetes.admission.decision",
    "assign_flavors": "gpuflow.checker.kueue",
    "check": "gpuflow.api",
    "compile": "gpuflow.api",
    "demand": "gpuflow.api",
    "fit_nodes": "gpuflow.checker.nodes",
    "gpu": "gpuflow.spec.builder",
    "gpus": "gpuflow.api",
    "join": "gpuflow.spec.text",
    "load": "gpuflow.spec.loading",
    "loads": "gpuflow.spec.loading",
    "mig": "gpuflow.spec.builder",
    "submit": "gpuflow.api",
    "text": "gpuflow.spec.text",
}
_MODULES = ("airflow", "argo", "catalog", "kubeflow", "local", "quantity", "run", "runtime")

__all__ = [
    "Finding",
    "GpuflowError",
    "Pipeline",
    "Site",
    "Step",
    "__version__",
    "admit",
    "airflow",
    "argo",
    "assign_flavors",
    "catalog",
    "check",
    "compile",
    "demand",
    "fit_nodes",
    "gpu",
    "gpus",
    "join",
    "kubeflow",
    "load",
    "loads",
    "local",
    "mig",
    "quantity",
    "run",
    "submit",
    "text",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return _module(name)
    raise AttributeError(f"module 'gpuflow' has no attribute {name!r}")


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"gpuflow.{name}")
    except ModuleNotFoundError as missing:
        if missing.name is not None and missing.name.startswith("gpuflow"):
            raise
        from gpuflow.core.errors import EnvironmentFailure, Finding, install_line

        message = f"gpuflow.{name} needs the package {missing.name}, which is not installed"
        raise EnvironmentFailure(Finding("GF901", message, hint=install_line(name))) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
