"""Kubeflow's own options of `gpuflow compile`."""

from __future__ import annotations

from dataclasses import dataclass

from gpuflow.targets.options import option

COMPONENT = "component"


@dataclass(frozen=True, slots=True)
class KubeflowOptions:
    """What may be asked of a KFP artifact."""

    form: str | None = option("--as", "crd, or component (a pipeline of one step)", metavar="KIND")
