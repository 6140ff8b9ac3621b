"""torchrun: many processes, one decision. All save or stop at the same step.

    due, stop = elastic.agree(ckpt)
    if due:
        saver.save(step=step)      # every rank may call it; rank 0 writes
    if stop:
        break

Lightning's and the Hugging Face callback ask here too. Every rank must ask at the same step: it is a collective.
"""

from __future__ import annotations

import os

from gpuflow.runtime.saving import Checkpointing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NOT_TOLD = -1e18


class SaveFailed(RuntimeError):
    """A save failed on another rank; this one ends with it, so that nobody waits for the other."""


def rank() -> int:
    """This process's number among all, 0 outside torchrun."""
    distributed = _distributed()
    return int(os.environ.get("RANK", "0")) if distributed is None else int(distributed.get_rank())


def world_size() -> int:
    """How many processes there are that talk to each other."""
    distributed = _distributed()
    return 1 if distributed is None else int(distributed.get_world_size())


def writes() -> bool:
    """Whether this process writes the checkpoints: rank 0, or one that talks to no other, whatever it is numbered."""
    return world_size() == 1 or rank() == 0


def agree(ckpt: Checkpointing, group: Any = None) -> tuple[bool, bool]:
    """Whether to save and whether to stop, the same on every rank.

    One that is told to stop stops all, with the shortest grace that any of them has. When to save is rank 0's to say:
    it alone knows when it saved last. `group` is a process group to ask over, such as one with gloo, so that the
    question does not wait for the GPU.
    """
    distributed = _distributed()
    if distributed is None or distributed.get_world_size(group) == 1:
        return ckpt.due(), ckpt.interrupted
    first = distributed.get_rank() == 0
    ckpt.gathered = None  # of an earlier step, if nobody used it
    left = ckpt.time_left()
    due, failure = _ask(ckpt) if first else (False, None)
    mine = [failure is not None, due, first and left is not None, _NOT_TOLD if left is None else -left]
    failed, due_now, first_told, soonest = _largest(distributed, mine, group)
    stop = soonest > _NOT_TOLD / 2
    if stop:
        ckpt.tell(-soonest)
        if not (failed or first_told):
            # Rank 0 hears of it only now, and with it whether a last save is due.
            due, failure = _ask(ckpt) if first else (False, None)
            failed, due_now = _largest(distributed, [failure is not None, due], group)
    if failed:
        raise failure or SaveFailed("a checkpoint failed on rank 0; its own message says why")
    if not first:
        ckpt.hear_due(bool(due_now))
    if due_now and ckpt.of_each_rank:
        gather(ckpt, group)
    return bool(due_now), stop and ckpt.interrupted


def gather(ckpt: Checkpointing, group: Any = None) -> None:
    """Bring what each rank has of its own (`ckpt.of_each_rank`) to rank 0, into `ckpt.gathered`; a collective."""
    distributed = _distributed()
    assert distributed is not None
    mine: dict[str, Any] = {}
    try:
        mine = {"state": {name: give() for name, give in ckpt.of_each_rank.items()}}
    except Exception as error:
        mine = {"error": f"rank {distributed.get_rank()}: {error!r}"}
    everyone: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(everyone, mine, group=group)
    errors = [other["error"] for other in everyone if "error" in other]
    if errors:
        raise SaveFailed(f"the state of {errors[0]}")
    ckpt.gathered = [other["state"] for other in everyone] if distributed.get_rank() == 0 else None


def _ask(ckpt: Checkpointing) -> tuple[bool, Exception | None]:
    """Whether a save is due, or what went wrong with the one before: the others must hear of that too."""
    try:
        return ckpt.due(), None
    except Exception as error:
        return False, error


def barrier() -> None:
    """Until every rank is here; nothing where there is one."""
    distributed = _distributed()
    if distributed is not None and distributed.get_world_size() > 1:
        _largest(distributed, [0.0], None)


def _distributed() -> Any:
    """torch.distributed where the program has it in use, else None."""
    try:
        import torch.distributed as distributed  # type: ignore[import-not-found,unused-ignore]  # an extra
    except ImportError:
        return None
    return distributed if distributed.is_available() and distributed.is_initialized() else None


def _largest(distributed: Any, values: list[Any], group: Any) -> list[float]:
    """Each value as the largest over all ranks."""
    import torch  # type: ignore[import-not-found,unused-ignore]  # an extra

    votes = torch.tensor([float(value) for value in values], dtype=torch.float64, device=_device(distributed, group))
    distributed.all_reduce(votes, op=distributed.ReduceOp.MAX, group=group)
    return list(votes.tolist())


def _device(distributed: Any, group: Any) -> str:
    """Where the group's backend wants its tensors: on the host when it can, which waits for no GPU."""
    backend = str(distributed.get_backend(group))
    if backend in ("gloo", "mpi"):
        return "cpu"
    try:
        devices = [pair.partition(":")[0] for pair in str(distributed.get_backend_config(group)).split(",")]
    except (AttributeError, RuntimeError):
        devices = ["cuda" if backend == "nccl" else "cpu"]
    return "cpu" if "cpu" in devices else devices[0]
