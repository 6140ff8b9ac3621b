"""What runs inside the container: checkpoint, resume, signals, exit codes, success marker.

    from gpuflow.runtime import checkpointing

    with checkpointing() as ckpt:
        for step in range(start, steps):
            train(step)
            if ckpt.due():
                ckpt.save(lambda path: torch.save(state, path))
            if ckpt.interrupted:
                break

Standard library only, Python 3.8 or newer, and nothing of the rest of gpuflow: the same files are in the
ConfigMap that is mounted into images which do not have gpuflow (`gpuflow.runtime.bundle`). Names load when first used.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuflow.runtime.checkpoints.training import Checkpointing, checkpointing

__all__ = ["Checkpointing", "checkpointing"]

CONTRACT = 1
"""The version of everything a container sees: options, variables, exit codes, files in the store."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("gpuflow.runtime.checkpoints.training"), name)
    raise AttributeError(f"module 'gpuflow.runtime' has no attribute {name!r}")
