"""Whether the cluster will admit a pipeline, and why not.

Names are loaded when they are first used: the API server's arithmetic (`kubernetes.admission`) is below the demand that
is counted with it, and the verdict is above both.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuflow.checker.kueue import Assignment, assign_flavors
    from gpuflow.checker.nodes import NodeFit, fit_nodes
    from gpuflow.checker.report import LimitLine, Report
    from gpuflow.checker.run import check
    from gpuflow.kubernetes.admission import Admission, admit

_HOMES = {
    "Admission": "gpuflow.kubernetes.admission",
    "Assignment": "gpuflow.checker.kueue",
    "NodeFit": "gpuflow.checker.nodes",
    "Report": "gpuflow.checker.report",
    "LimitLine": "gpuflow.checker.report",
    "admit": "gpuflow.kubernetes.admission",
    "assign_flavors": "gpuflow.checker.kueue",
    "check": "gpuflow.checker.run",
    "fit_nodes": "gpuflow.checker.nodes",
}
__all__ = [
    "Admission",
    "Assignment",
    "LimitLine",
    "NodeFit",
    "Report",
    "admit",
    "assign_flavors",
    "check",
    "fit_nodes",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gpuflow.checker' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
