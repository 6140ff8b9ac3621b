"""Selectors of devices: a part of CEL, evaluated as Kubernetes does. Other text is not judged."""

from gpuflow.checker.dra.cel.parser import compile_expression
from gpuflow.checker.dra.cel.values import CelError, Unsupported, View

__all__ = ["CelError", "Unsupported", "View", "compile_expression"]
