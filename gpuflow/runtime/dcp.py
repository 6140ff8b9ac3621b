"""PyTorch's distributed checkpoint (FSDP, tensor parallel): every rank saves its own shards, asynchronously.

    with checkpointing() as ckpt:
        saver = dcp.Saver(ckpt, model, optimizer, schedule=schedule, each_rank={"data": loader})
        step = saver.restore().get("step", 0)
        ...
        due, stop = elastic.agree(ckpt)    # after optimizer.step(), on every rank
        if due:
            saver.save(step=step)          # every rank: it is a collective
        if stop:
            break

The training waits for the copy of each rank's own shards to its host memory; files are written in the background. A
checkpoint is a folder with `.metadata` and `__<rank>_0.distcp`, as `torch.distributed.checkpoint` has them, and one
`rank-00000.pt` for each rank: random states, other parts, facts. It can be read with another number of ranks.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import pickle
import re
import time
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]  # an extra
import torch.distributed.checkpoint as torch_dcp  # type: ignore[import-not-found,unused-ignore]
from torch.distributed.checkpoint import (  # type: ignore[import-not-found,unused-ignore]
    DefaultLoadPlanner,
    FileSystemReader,
    FileSystemWriter,
)
from torch.distributed.checkpoint.state_dict import (  # type: ignore[import-not-found,unused-ignore]
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)

from gpuflow.runtime import elastic, pytorch
from gpuflow.runtime.checkpoints import completeness, torch_state, training
from gpuflow.runtime.checkpoints.training import Checkpointing, say
from gpuflow.runtime.elastic import CollectiveWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT = 1
_RANK_FILE = re.compile(r"rank-(\d{5,})\.pt")
_INDEX_MODULES = ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem")


class Saver(pytorch.Saver):
    """Saves and restores a model and its optimizer in shards, and what each rank has beside them.

    `parts` are alike on all ranks (a schedule, a scaler), `each_rank` are not (a loader of data). Every rank makes it,
    and every rank calls `save` and `restore`.
    """

    def __init__(
        self,
        ckpt: Checkpointing,
        model: Any,
        optimizer: Any = None,
        *,
        background: bool = True,
        weights_only: bool = True,
        host_memory: int | None = None,
        each_rank: dict[str, Any] | None = None,
        **parts: Any,
    ) -> None:
        super().__init__(
            ckpt,
            background=background,
            weights_only=weights_only,
            host_memory=host_memory,
            each_rank=each_rank,
            **parts,
        )
        # Each rank writes its own: nothing travels to rank 0.
        del ckpt.of_each_rank["saver"]
        self.model, self.optimizer = model, optimizer
        self.group = _own_group()
        self.together = CollectiveWriter(ckpt, self.group)

    def save(self, name: str | None = None, **facts: Any) -> None:
        """One checkpoint of all ranks. With `background`, returns when this rank's shards are safe in host memory."""
        began = time.monotonic()
        self.ckpt.wait()
        chosen = self.together.agree_on(name or self.ckpt._next_name())
        own = {
            "format": FORMAT,
            "facts": facts,
            "parts": {part: value.state_dict() for part, value in self.parts.items()},
            "own": self._own(),
        }
        state = self._state()
        shards = Shards(state)
        # Frozen together: what both hold is copied once.
        frozen = torch_state.FrozenState({"own": own, "shards": shards.plain})
        if not (self.background and shards.can_wait and self._fits(frozen)):
            if not shards.can_wait:
                self._say_once("FSDP without a device mesh is written while the training waits; fully_shard is not")
            self._must_be_plain(frozen)
            self.ckpt.save(lambda path: self._write(state, own, path), chosen, together=self.together)
            return
        copied = self.staging.copy_frozen(frozen)
        self._must_be_plain(frozen)
        state = shards.with_copies(copied["shards"])
        stall = time.monotonic() - began
        self.ckpt.save_in_background(
            lambda path: self._write(state, copied["own"], path), chosen, stall=stall, together=self.together
        )

    def restore(
        self, map_location: Any = "cpu", *, weights_only: bool | None = None, optional: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Load the checkpoint to resume from into model, optimizer and parts; its facts, or {} for a fresh start. Saved
        with another number of ranks, each gets the shards that are its own now."""
        if (path := self.ckpt.resume_from) is None:
            return {}
        name = os.path.basename(path)
        plain = self.weights_only if weights_only is None else weights_only
        if not os.path.isfile(os.path.join(path, completeness.METADATA)):
            raise ValueError(f"{name} was not saved by dcp.Saver: it has no {completeness.METADATA}")
        state = self._state()
        reader = _PlainReader(path) if plain else FileSystemReader(path)
        planner = _PlainPlanner() if plain else DefaultLoadPlanner()
        with _plain_errors():
            torch_dcp.load(
                state,
                storage_reader=reader,
                planner=planner,
                process_group=self.group,
                **({"no_dist": True} if self.group is None else {}),
            )
        self._load(state)
        return self._restore_own(path, name, map_location, plain, set(optional))

    def _restore_own(self, path: str, name: str, map_location: Any, plain: bool, optional: set[str]) -> dict[str, Any]:
        ranks = sorted(int(found[1]) for found in map(_RANK_FILE.fullmatch, os.listdir(path)) if found)
        rank, world = elastic.rank() if elastic.world_size() > 1 else 0, elastic.world_size()
        if not ranks:
            raise ValueError(f"{name} was not saved by dcp.Saver: it has no file of any rank")
        source = rank if rank in ranks else ranks[0]
        load = pytorch._load_plain if plain else torch.load
        options = {"map_location": map_location, **({} if plain else {"weights_only": False})}
        own = load(os.path.join(path, _rank_file(source)), **options)
        if own.get("format", 0) > FORMAT:
            raise ValueError(f"{name} was saved by a newer gpuflow (format {own['format']})")
        pytorch._fill(self.parts, own["parts"], name, optional)
        if source == rank:
            pytorch._fill(self.each_rank, own["own"]["parts"], name, optional)
            for remark in torch_state.restore_generators(own["own"]["generators"]):
                say(f"{name}: {remark}")
        if len(ranks) != world:
            say(
                f"{name}: saved by {len(ranks)} ranks and read by {world}: the weights are the same, "
                + ("what each rank has of its own as far as both go" if source == rank else f"rank {rank} begins anew")
                + "; random draws and the order of data are not those of an undisturbed run"
            )
        facts: dict[str, Any] = own["facts"]
        return facts

    def _state(self) -> dict[str, Any]:
        if self.optimizer is None:
            return {"model": get_model_state_dict(self.model)}
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def _load(self, state: dict[str, Any]) -> None:
        if self.optimizer is None:
            set_model_state_dict(self.model, state["model"])
        else:
            set_state_dict(
                self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
            )

    def _write(self, state: dict[str, Any], own: dict[str, Any], path: str) -> None:
        """This rank's files; in the background, so the group is one that nothing else uses meanwhile."""
        rank = elastic.rank() if self.group is not None else 0
        writer = FileSystemWriter(path, sync_files=self.ckpt._sync)
        with _plain_errors():
            torch_dcp.save(
                state,
                storage_writer=writer,
                process_group=self.group,
                **({"no_dist": True} if self.group is None else {}),
            )
        pytorch.write(own, os.path.join(path, _rank_file(rank)))


class Shards:
    """A state taken apart: the shards of this rank as plain tensors, and how to make shards of them again."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self.can_wait = True
        """Whether a copy can be made that is as good as the state itself."""
        self.plain = self._plain(state)

    def with_copies(self, copies: Any) -> Any:
        """The same state around these copies of its shards."""
        return _pair(self._state, copies)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._plain(item) for item in value]
        if _is_dtensor(value):
            return value.to_local().detach()
        if training.sharded_kind(value) is not None:
            # Of another kind: it is written as it is.
            self.can_wait = False
            return None
        return value.detach() if isinstance(value, torch.Tensor) else value


def _pair(value: Any, copy: Any) -> Any:
    if isinstance(value, dict):
        return {key: _pair(item, copy[key]) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        made = [_pair(item, other) for item, other in zip(value, copy)]  # noqa: B905  # Python 3.8
        return made if isinstance(value, list) else tuple(made)
    if _is_dtensor(value):
        # On the host, whatever the mesh is on: from_local would move it back.
        return type(value)(copy, value._spec, requires_grad=False)
    return copy


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Unwrap PyTorch's error over all ranks, which is no Exception, so that a disk error is raised as such."""
    try:
        yield
    except torch_dcp.CheckpointException as error:
        found = {rank: wrapped[0] for rank, wrapped in error.failures.items()}
        for failure in found.values():
            if isinstance(failure, OSError) and training.is_disk_refusal(failure):
                raise OSError(failure.errno, f"{failure.strerror}, on one rank") from error
        rank = min(found)
        raise RuntimeError(f"rank {rank}: {found[rank]}") from error


def _is_dtensor(value: Any) -> bool:
    return training.sharded_kind(value) == "DTensor"


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.pt"


def _own_group() -> Any:
    """A group with gloo for saves alone: what happens in the background must not meet the training's own messages."""
    if (distributed := elastic._torch_distributed()) is None or distributed.get_world_size() == 1:
        return None
    return distributed.new_group(backend="gloo")


class _PlainReader(FileSystemReader):  # type: ignore[misc,unused-ignore]  # its base is of an extra
    """Reads the index without running code: PyTorch unpickles it."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        with open(self._get_metadata_path(kwargs.get("rank")), "rb") as file:
            metadata = _IndexReader(file).load()
        for info in metadata.storage_data.values():
            if os.path.basename(info.relative_path) != info.relative_path:
                raise ValueError(
                    f"{completeness.METADATA} names a file outside of the checkpoint: {info.relative_path!r}"
                )
        if getattr(metadata, "storage_meta", None) is not None:
            metadata.storage_meta.load_id = self.load_id
        return metadata


class _IndexReader(pickle.Unpickler):
    """Knows the classes of an index, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module in _INDEX_MODULES:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        elif module == "torch":
            found = getattr(torch, name, None)
            if found is torch.Size or isinstance(found, (torch.dtype, torch.layout, torch.memory_format)):
                return found
        elif (module, name) == ("torch.serialization", "_get_layout"):
            return super().find_class(module, name)
        elif module in ("pathlib", "pathlib._local") and name in ("PosixPath", "PurePosixPath"):
            return pathlib.PurePosixPath
        elif (module, name) == ("collections", "OrderedDict"):
            return super().find_class(module, name)
        raise TypeError(
            f"{completeness.METADATA} holds {module}.{name}, which is not plain data; "
            "restore(weights_only=False) reads it "
            "if you trust everyone who can write to the store"
        )


class _PlainPlanner(DefaultLoadPlanner):  # type: ignore[misc,unused-ignore]  # its base is of an extra
    """Reads values that are no tensors as plain data; PyTorch unpickles them."""

    def load_bytes(self, read_item: Any, value: Any) -> None:
        from torch.distributed.checkpoint._nested_dict import (  # type: ignore[import-not-found,unused-ignore]
            set_element,
        )

        name = read_item.dest_index.fqn
        found = pytorch._load_plain(value)
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[name], found)
        else:
            self.state_dict[name] = found
