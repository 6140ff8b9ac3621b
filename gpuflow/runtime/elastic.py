"""torchrun: many processes, one decision. All save or stop at the same step.

    due, stop = elastic.agree(ckpt)
    if due:
        saver.save(step=step)      # every rank may call it; rank 0 writes
    if stop:
        break

Lightning's and the Hugging Face callback ask here too. Every rank must ask at the same step: it is a collective.

`CollectiveWriter` writes one checkpoint from many processes. Each process writes its own files. All processes of a pod
share a directory; pods may each have their own, or share one. In each directory the process with the lowest rank makes
the folder and renames it when every process has written: until then its name has a dot. Every stage is agreed on, so
that all of them finish a checkpoint or none does.
"""

from __future__ import annotations

import os
from typing import Any

from gpuflow.runtime.base.files import SharedFolder, discard
from gpuflow.runtime.checkpoints import training
from gpuflow.runtime.checkpoints.training import Checkpointing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_NOT_TOLD = -1e18


class SaveFailed(RuntimeError):
    """A save failed on another rank; this rank fails too, so that no rank waits for it."""


def rank() -> int:
    """This process's number among all, 0 outside torchrun."""
    distributed = _torch_distributed()
    return int(os.environ.get("RANK", "0")) if distributed is None else int(distributed.get_rank())


def world_size() -> int:
    """How many processes there are that talk to each other."""
    distributed = _torch_distributed()
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
    if (distributed := _torch_distributed()) is None or distributed.get_world_size(group) == 1:
        return ckpt.due(), ckpt.interrupted
    first = distributed.get_rank() == 0
    ckpt.gathered = None  # of an earlier step, if nobody used it
    left = ckpt.time_left()
    due, failure = _ask(ckpt) if first else (False, None)
    mine = [failure is not None, due, first and left is not None, _NOT_TOLD if left is None else -left]
    failed, due_now, first_told, soonest = _all_reduce_max(distributed, mine, group)
    if stop := soonest > _NOT_TOLD / 2:
        ckpt.tell(-soonest)
        if not (failed or first_told):
            # Rank 0 hears of it only now, and with it whether a last save is due.
            due, failure = _ask(ckpt) if first else (False, None)
            failed, due_now = _all_reduce_max(distributed, [failure is not None, due], group)
    if failed:
        raise failure or SaveFailed("a checkpoint failed on rank 0; its own message says why")
    if not first:
        ckpt.hear_due(bool(due_now))
    if due_now and ckpt.of_each_rank:
        gather(ckpt, group)
    return bool(due_now), stop and ckpt.interrupted


def gather(ckpt: Checkpointing, group: Any = None) -> None:
    """Bring what each rank has of its own (`ckpt.of_each_rank`) to rank 0, into `ckpt.gathered`; a collective."""
    distributed = _torch_distributed()
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
    """Whether a save is due, or the error of the save before, which the other ranks must get too."""
    try:
        return ckpt.due(), None
    except Exception as error:
        return False, error


def barrier() -> None:
    """Until every rank is here; nothing where there is one."""
    if (distributed := _torch_distributed()) is not None and distributed.get_world_size() > 1:
        _all_reduce_max(distributed, [0.0], None)


def _torch_distributed() -> Any:
    """torch.distributed where the program has it in use, else None."""
    try:
        import torch.distributed as distributed  # type: ignore[import-not-found,unused-ignore]  # an extra
    except ImportError:
        return None
    return distributed if distributed.is_available() and distributed.is_initialized() else None


def _all_reduce_max(distributed: Any, values: list[Any], group: Any) -> list[float]:
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


_UNFINISHED = ".part"


class CollectiveWriter:
    """The processes of one training that write checkpoints together. Making one is a collective, and so is `write`."""

    def __init__(self, ckpt: Checkpointing, group: Any) -> None:
        self._path, self._marker, self._group = ckpt.directory.path, ckpt.directory.marker, group
        self.token = ""
        """What this save is called, the same on every rank: it goes into the marker file."""
        self.leads = self._is_first_here()
        if self.leads:
            self._sweep()
        self._all_or_none(lambda: None)

    def agree_on(self, name: str) -> str:
        """Rank 0's name for the next checkpoint, on every rank, and a token that no other save has."""
        given: list[Any] = [name, os.urandom(8).hex()]
        if (distributed := _torch_distributed()) is not None and self._group is not None:
            distributed.broadcast_object_list(given, src=0, group=self._group)
        self.token = f"{given[0]} {given[1]}"
        return str(given[0])

    def write(self, write: Callable[[str], object], path: str, *, sync: bool) -> None:
        """Let every process write its files into one folder per directory, then give it its name."""
        folder, name = os.path.split(path)
        temporary = os.path.join(folder, f".{name}{_UNFINISHED}")
        try:
            self._all_or_none(lambda: self._make(temporary) if self.leads else None)
            self._all_or_none(lambda: write(temporary))
            self._all_or_none(lambda: self._finish(temporary, path, sync) if self.leads else None)
        finally:
            if self.leads:
                discard(temporary)

    def _make(self, temporary: str) -> None:
        discard(temporary)
        os.makedirs(temporary)

    def _finish(self, temporary: str, path: str, sync: bool) -> None:
        folder, name = os.path.split(temporary)
        SharedFolder(folder).write(f"{name}/{self._marker}", f"{self.token}\n".encode("ascii"))
        if sync:
            training.sync(temporary)
        discard(path)
        os.replace(temporary, path)
        if sync:
            training.sync_one(os.path.dirname(path))

    def _all_or_none(self, action: Callable[[], object]) -> None:
        """Do it; raises on every rank when it failed on one, and everywhere the disk's refusal if that was it."""
        failure: Exception | None = None
        try:
            action()
        except Exception as error:
            failure = error
        refused = failure.errno if isinstance(failure, OSError) and training.is_disk_refusal(failure) else 0
        failed, code = float(failure is not None and not refused), float(refused or 0)
        if (distributed := _torch_distributed()) is not None and self._group is not None:
            failed, code = _all_reduce_max(distributed, [failed, code], self._group)
        if failure is not None and not (refused and failed):
            raise failure
        if failed:
            raise SaveFailed("a checkpoint failed on another rank; its own message says why") from failure
        if code:
            raise OSError(int(code), f"{os.strerror(int(code))}, on another rank")

    def _is_first_here(self) -> bool:
        """Whether no process of a lower rank sees this directory: each leaves a file, and looks for those of others."""
        if (distributed := _torch_distributed()) is None or self._group is None:
            return True
        rank = distributed.get_rank()
        given: list[Any] = [os.urandom(8).hex()]
        distributed.broadcast_object_list(given, src=0, group=self._group)
        prefix = f".gpuflow-here-{given[0]}-"
        own = os.path.join(self._path, f"{prefix}{rank}")
        try:
            self._all_or_none(lambda: open(own, "x", encoding="ascii").close())
            here: list[int] = []

            def look() -> None:
                here.extend(int(name[len(prefix) :]) for name in os.listdir(self._path) if name.startswith(prefix))

            self._all_or_none(look)
            return min(here) == int(rank)
        finally:
            self._all_or_none(lambda: discard(own))

    def _sweep(self) -> None:
        """What a killed program left half-written."""
        for name in os.listdir(self._path):
            if name.startswith(f".{training.PREFIX}") and name.endswith(_UNFINISHED):
                discard(os.path.join(self._path, name))
