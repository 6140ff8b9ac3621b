"""The rules over documents of other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpuflow.errors import Finding
from gpuflow.readers.findings.gpu_limits import gpus_without_limit
from gpuflow.readers.findings.subject import Subject

RULES: tuple[Callable[[Subject], Iterator[Finding]], ...] = (gpus_without_limit,)
