"""PyTorch: everything a training needs to go on bit for bit, saved atomically, with a short stall.

    with checkpointing() as ckpt:
        saver = pytorch.Saver(ckpt, model=model, optimizer=optimizer, data=loader)
        step = saver.restore().get("step", 0)
        ...
        if ckpt.due():             # after optimizer.step(), not in the middle of an accumulation of gradients
            saver.save(step=step)

`save` copies the state to pinned host memory, which is all the training waits for, and writes it in the background. A
part is anything with `state_dict` and `load_state_dict`: a module, an optimizer, a schedule, a scaler, torchdata's
StatefulDataLoader. With several ranks ask `elastic.agree(ckpt)`; every rank may then call `save`, and rank 0 writes.
"""

from __future__ import annotations

import errno
import io
import os
import pickle
import re
import time
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]  # an extra

from gpuflow.runtime import elastic
from gpuflow.runtime.base import container
from gpuflow.runtime.checkpoints import torch_state, training
from gpuflow.runtime.checkpoints.training import Checkpointing, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

FORMAT = 2
SHARE = 0.8
"""How much of the host memory that is left a copy may take."""
_SMALL = 1 << 16
_WRITING = ("PytorchStreamWriter", "inline_container", "iostream error")
"""What PyTorch says when a file cannot be written."""


class Saver:
    """Saves and restores the `state_dict` of everything given by name, and the random number generators.

    `each_rank` are parts whose state differs from rank to rank, such as a loader of data. `host_memory` is the most
    that the copy may take, in bytes; a state that needs more is written while the training waits. With `weights_only`
    a checkpoint is read back as plain data, so that whoever can write to the store cannot run code here.
    """

    def __init__(
        self,
        ckpt: Checkpointing,
        *,
        background: bool = True,
        weights_only: bool = True,
        host_memory: int | None = None,
        each_rank: dict[str, Any] | None = None,
        **parts: Any,
    ) -> None:
        self.ckpt, self.background, self.parts = ckpt, background, parts
        self.weights_only, self.host_memory, self.each_rank = weights_only, host_memory, each_rank or {}
        self.staging = torch_state.Staging()
        self._plain: set[tuple[str, str]] = set()
        self._checked = False
        self._said: set[str] = set()
        for name, part in {**parts, **self.each_rank}.items():
            training.refuse_sharded(name, part)
        ckpt.of_each_rank["saver"] = self._own

    def save(self, name: str | None = None, **facts: Any) -> None:
        """One checkpoint. With `background`, returns when the state is safe in host memory."""
        if not elastic.writes():
            return
        began = time.monotonic()
        self.ckpt.wait()
        state = self._capture(facts)
        frozen = torch_state.FrozenState(state)
        if not (self.background and self._fits(frozen)):
            self._must_be_plain(frozen)
            self.ckpt.save(lambda path: write(state, path), name)
            return
        copied = self.staging.copy_frozen(frozen)
        self._must_be_plain(frozen)
        stall = time.monotonic() - began
        self.ckpt.save_in_background(lambda path: write(copied, path), name, stall=stall)

    def restore(
        self, map_location: Any = "cpu", *, weights_only: bool | None = None, optional: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Load the checkpoint to resume from into the parts; the facts saved with it, or {} for a fresh start.

        Read to the host and copied from there into the parts, piece by piece: a GPU never holds the state twice.
        Parts named in `optional` may be missing from the checkpoint.
        """
        if (path := self.ckpt.resume_from) is None:
            return {}
        state = read(path, map_location, weights_only=self.weights_only if weights_only is None else weights_only)
        name, rank = os.path.basename(path), 0 if elastic.writes() else elastic.rank()
        ranks = state["ranks"]
        own = ranks[rank] if rank < len(ranks) else None
        _fill(self.parts, state["parts"], name, set(optional))
        if own is not None:
            _fill(self.each_rank, own["parts"], name, set(optional))
            for remark in torch_state.restore_generators(own["generators"]):
                say(f"{name}: {remark}")
        if len(ranks) != elastic.world_size():
            say(
                f"{name}: saved by {len(ranks)} ranks and read by {elastic.world_size()}: "
                + ("rank by rank as far as both go" if own is not None else f"rank {rank} begins with its own seed")
                + "; random draws and the order of data are not those of an undisturbed run"
            )
        facts: dict[str, Any] = state["facts"]
        return facts

    def _own(self) -> dict[str, Any]:
        """What only this rank has."""
        parts = {name: part.state_dict() for name, part in self.each_rank.items()}
        return {"generators": torch_state.capture_generators(), "parts": parts}

    def _capture(self, facts: dict[str, Any]) -> dict[str, Any]:
        gathered, self.ckpt.gathered = self.ckpt.gathered, None
        if gathered is not None:
            ranks = [of_rank["saver"] for of_rank in gathered]
        else:
            ranks = [self._own()]
            if elastic.world_size() > 1:
                self._say_once(
                    "this checkpoint has the random states of rank 0 only: ask elastic.agree(ckpt) on every rank "
                    "right before a save"
                )
        for name, part in self.parts.items():
            training.refuse_sharded(name, part)
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        return {"format": FORMAT, "parts": parts, "facts": facts, "ranks": ranks}

    def _fits(self, frozen: torch_state.FrozenState) -> bool:
        """Whether there is host memory for a copy; a container that takes too much is killed with all its work."""
        needed = frozen.host_bytes(self.staging.pinned_buffers())
        room, left = self.host_memory, container.available_memory()
        if room is not None:
            room -= sum(size * count for size, count in self.staging.pinned_buffers().items())
        elif left is not None:
            room = int(SHARE * left)
        if room is None or needed <= room:
            return True
        self._say_once(
            f"the copy of this state needs {needed / 1e9:.1f} GB of host memory and may take {room / 1e9:.1f} GB: "
            "checkpoints are written while the training waits; give the step more memory for a short stall"
        )
        return False

    def _must_be_plain(self, frozen: torch_state.FrozenState) -> None:
        """Find out at the first save, not at the first resume, that a state cannot be read back as plain data."""
        if not self.weights_only or (self._checked and frozen.globals <= self._plain):
            return
        trial = io.BytesIO()
        torch.save(frozen.hollow(), trial)
        trial.seek(0)
        try:
            _load_plain(trial)
        except pickle.UnpicklingError as error:
            raise TypeError(
                f"the state holds {_refused_class(error)}, which is not read back as plain data: let state_dict() give "
                "numbers, texts, lists, dicts, tensors and arrays, or make the Saver with weights_only=False if you "
                "trust everyone who can write to the store"
            ) from error
        self._checked = True
        self._plain |= frozen.globals

    def _say_once(self, sentence: str) -> None:
        if sentence[:40] not in self._said:
            self._said.add(sentence[:40])
            say(sentence)


def write(state: Any, path: str) -> None:
    """`torch.save` that raises the disk's OSError, where PyTorch raises a RuntimeError without the cause."""
    try:
        torch.save(state, path)
    except RuntimeError as error:
        training.probe_disk(os.path.dirname(os.path.abspath(path)))
        if any(word in str(error) for word in _WRITING):
            raise OSError(errno.EIO, f"{os.strerror(errno.EIO)}: {error}", path) from error
        raise


def read(path: str, map_location: Any = "cpu", *, weights_only: bool = True) -> dict[str, Any]:
    """A saved state, in the form of today."""
    # Mapped, not read: what goes to a GPU passes through the host page by page. On the host itself the parts would go
    # on living in the file, which then could not be removed.
    mapped = map_location == "cpu" and _has_gpu() and os.path.isfile(path)
    options = {"map_location": map_location, **({"mmap": True} if mapped else {})}
    if weights_only and not _refuses_code(torch.__version__):
        say(
            f"PyTorch {torch.__version__} can be made to run code by a checkpoint also with weights_only=True "
            "(CVE-2025-32434); use 2.6 or newer, or trust everyone who can write to the store"
        )
    try:
        state = _load_plain(path, **options) if weights_only else torch.load(path, weights_only=False, **options)
    except pickle.UnpicklingError as error:
        raise TypeError(
            f"{os.path.basename(path)} holds {_refused_class(error)}, which is not plain data; "
            "restore(weights_only=False) reads it if you trust everyone who can write to the store, "
            "and what the Saver writes after that is plain again"
        ) from error
    if not isinstance(state, dict) or not {"parts", "facts"} <= set(state):
        raise ValueError(f"{os.path.basename(path)} was not saved by pytorch.Saver: read it with torch.load")
    if state.get("format", 1) > FORMAT:
        raise ValueError(f"{os.path.basename(path)} was saved by a newer gpuflow (format {state['format']})")
    if "ranks" not in state:
        state["ranks"] = [{"generators": state["generators"], "parts": {}}]
    return _unmap_small(state) if mapped else state


def _refuses_code(version: str) -> bool:
    """Whether `weights_only` keeps its promise in this version of PyTorch."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is None or (int(found[1]), int(found[2])) >= (2, 6)


def _has_gpu() -> bool:
    return bool(torch.cuda.is_available())


def _load_plain(source: Any, **options: Any) -> Any:
    """`torch.load` that runs no code; containers of the standard library and NumPy's arrays are data too."""
    import collections

    harmless: list[Any] = [collections.Counter, collections.defaultdict, collections.OrderedDict, collections.deque]
    harmless += [set, frozenset, int, float, str, bool, list, dict, tuple, bytes, complex, slice, range]
    try:
        import numpy  # type: ignore[import-not-found,unused-ignore]  # an extra

        array = numpy.zeros(1)
        harmless += [numpy.ndarray, numpy.dtype, array.__reduce__()[0], array[0].__reduce__()[0]]
        harmless += [type(numpy.dtype(code)) for code in numpy.typecodes["All"]]
    except ImportError:
        pass
    if (safe := getattr(torch.serialization, "safe_globals", None)) is None:
        return torch.load(source, weights_only=True, **options)
    with safe(harmless):
        return torch.load(source, weights_only=True, **options)


def _refused_class(error: Exception) -> str:
    """The class that plain loading stumbled over."""
    found = re.search(r"GLOBAL (\S+)|[Cc]lass `?([\w.]+)`?", str(error))
    return next(filter(None, found.groups())) if found else "something"


def _unmap_small(state: Any) -> Any:
    """Small tensors (a step count that an optimizer keeps on the host) out of the file, so that it can be removed."""
    frozen = torch_state.FrozenState(state)
    small = {key: storage.clone() for key, storage in frozen.storages.items() if storage.nbytes() < _SMALL}
    return frozen.thaw({**frozen.storages, **small})


def _fill(parts: dict[str, Any], saved: dict[str, Any], name: str, optional: set[str]) -> None:
    """Load each part, or say which is missing on which side."""
    if missing := sorted(set(parts) - set(saved) - optional):
        raise KeyError(
            f"{name} has no {', '.join(missing)} (it has {', '.join(sorted(saved)) or 'no parts'}): "
            f"restore(optional={missing!r}) leaves what was added later as it is"
        )
    for part in sorted(set(saved) - set(parts)):
        say(f'{name} holds "{part}", which this Saver was not given: it is not restored')
    for part in sorted(optional & set(parts) - set(saved)):
        say(f'{name} has no "{part}": it begins fresh')
    for part in parts:
        if part in saved:
            parts[part].load_state_dict(saved[part])
