"""Whether the cluster will admit a pipeline, and why not.

Names are loaded when they are first used: the API server's arithmetic (`check.admission`) stands below the demand that
is counted with it, and the verdict stands above both.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuflow.check.admission import Admission, admit
    from gpuflow.check.kueue import Assignment, assign_flavors
    from gpuflow.check.nodes import NodeFit, fit_nodes
    from gpuflow.check.report import Report, Scope
    from gpuflow.check.verdict import check

_HOMES = {
    "Admission": "gpuflow.check.admission",
    "Assignment": "gpuflow.check.kueue",
    "NodeFit": "gpuflow.check.nodes",
    "Report": "gpuflow.check.report",
    "Scope": "gpuflow.check.report",
    "admit": "gpuflow.check.admission",
    "assign_flavors": "gpuflow.check.kueue",
    "check": "gpuflow.check.verdict",
    "fit_nodes": "gpuflow.check.nodes",
}
__all__ = [
    "Admission",
    "Assignment",
    "NodeFit",
    "Report",
    "Scope",
    "admit",
    "assign_flavors",
    "check",
    "fit_nodes",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gpuflow.check' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
