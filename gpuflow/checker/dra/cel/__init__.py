"""Selectors of devices: a part of CEL, evaluated as Kubernetes does. Other text is not judged."""

from gpuflow.checker.dra.cel.parser import CelError, Unsupported, View, compile_expression

__all__ = ["CelError", "Unsupported", "View", "compile_expression"]
