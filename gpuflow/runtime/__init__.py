"""What runs inside the container: checkpoint, resume, signals, progress, exit codes, success marker.

    from gpuflow.runtime import checkpointing, progress

    with checkpointing() as ckpt:
        for step in range(start, steps):
            train(step)
            progress(step + 1, steps)
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

    from gpuflow.runtime.base.progress import progress
    from gpuflow.runtime.checkpoints.training import Checkpointing, checkpointing

__all__ = ["Checkpointing", "checkpointing", "progress"]

CONTRACT = 1
"""The version of everything a container sees: options, variables, exit codes, files in the store."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        room = "base.progress" if name == "progress" else "checkpoints.training"
        return getattr(importlib.import_module(f"gpuflow.runtime.{room}"), name)
    raise AttributeError(f"module 'gpuflow.runtime' has no attribute {name!r}")
