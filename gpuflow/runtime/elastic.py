"""torchrun: many processes, one decision. Rank 0 saves; all save or stop at the same step.

due, stop = elastic.agree(ckpt)
if due and elastic.rank() == 0:
    saver.save(step=step)
"""

from __future__ import annotations

import os
from typing import Any

from gpuflow.runtime.saving import Checkpointing


def rank() -> int:
    """This process's number among all, 0 outside torchrun."""
    return int(os.environ.get("RANK", "0"))


def agree(ckpt: Checkpointing) -> tuple[bool, bool]:
    """Whether to save and whether to stop, the same on every rank: yes when any rank says so."""
    mine = (ckpt.due(), ckpt.interrupted)
    import torch  # type: ignore[import-not-found,unused-ignore]  # an extra
    import torch.distributed as distributed  # type: ignore[import-not-found,unused-ignore]  # an extra

    if not (distributed.is_available() and distributed.is_initialized()):
        return mine
    device: Any = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    votes = torch.tensor([int(vote) for vote in mine], device=device)
    distributed.all_reduce(votes, op=distributed.ReduceOp.MAX)
    due, stop = (bool(vote) for vote in votes.tolist())
    return due, stop
