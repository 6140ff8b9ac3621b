"""The state of a training in host memory: random number generators, and a copy of all tensors, frozen at the call.

The copy is exactly what `torch.save` would write. Everything but tensors goes through pickle, which keeps types,
attributes and what is the same object; each storage is copied once, however many tensors look into it, so tied weights
stay tied. The generators are kept as plain data: what they are about to draw.
"""

from __future__ import annotations

import io
import pickle
import random
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]  # an extra

from gpuflow.runtime.checkpoints import training


def capture_generators() -> dict[str, Any]:
    """Python's, NumPy's, PyTorch's on the host and on every GPU this process uses: numbers, lists and tensors only."""
    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {"python": [version, list(internal), gauss], "torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
        state["device"] = torch.cuda.current_device()
    try:
        import numpy  # type: ignore[import-not-found,unused-ignore]  # an extra
    except ImportError:
        return state
    kept = numpy.random.get_state()
    if isinstance(kept, tuple):
        name, keys, position, has_gauss, cached = kept
        state["numpy"] = [str(name), [int(key) for key in keys], int(position), int(has_gauss), float(cached)]
    return state


def restore_generators(state: dict[str, Any]) -> list[str]:
    """Put a captured state back; a sentence for each generator that does not go on as it was saved."""
    remarks = []
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(state["torch"].cpu())
    if "numpy" in state:
        try:
            import numpy

            name, keys, *rest = state["numpy"]
            numpy.random.set_state((name, numpy.asarray(keys, dtype=numpy.uint32), *rest))
        except ImportError:
            remarks.append("NumPy's random state was saved, and NumPy is not here")
    if "cuda" in state:
        remarks += _restore_devices([kept.cpu() for kept in state["cuda"]], state.get("device"))
    return remarks


def _restore_devices(states: list[Any], used: int | None) -> list[str]:
    """One state per GPU, as far as there are GPUs; the one this process used goes to the one it uses now."""
    here = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for index, state in enumerate(states[:here]):
        torch.cuda.set_rng_state(state, index)
    if here and used is not None and used < len(states):
        torch.cuda.set_rng_state(states[used], torch.cuda.current_device())
    if here == len(states):
        return []
    return [
        f"random states of {len(states)} GPUs were saved and {here} are here: "
        f"{min(here, len(states))} of them go on as saved, so draws on the GPU are not those of an undisturbed run"
    ]


class FrozenState:
    """A state taken apart: bytes with everything but the tensors, and the tensors, which are still the live ones."""

    def __init__(self, state: Any) -> None:
        self.tensors: list[Any] = []
        self.globals: set[tuple[str, str]] = set()
        """The classes and functions that putting it together needs; known once that was done."""
        out = io.BytesIO()
        _Writer(out, self.tensors).dump(state)
        self._bytes = out.getvalue()
        self.storages: dict[int, Any] = {}
        """Each storage once, by what makes it the same."""
        self.keys: list[int | None] = []
        """Which storage each tensor looks into; None for one that is more than a view."""
        for tensor in self.tensors:
            key = None
            if is_plain_view(tensor):
                storage = tensor.untyped_storage()
                key = storage._cdata
                self.storages.setdefault(key, storage)
            self.keys.append(key)

    def thaw(self, hosts: dict[int, Any]) -> Any:
        """The state put together again, its tensors as views into these storages."""
        tensors = [
            _host_copy(tensor) if key is None else _view(tensor, hosts[key])
            for tensor, key in zip(self.tensors, self.keys)  # noqa: B905  # Python 3.8
        ]
        return self._load(tensors)

    def hollow(self) -> Any:
        """The state put together again with empty tensors, to try things on."""
        empty = torch.empty(0)
        pairs = zip(self.tensors, self.keys)  # noqa: B905  # Python 3.8
        return self._load([tensor if key is None else empty for tensor, key in pairs])

    def _load(self, tensors: list[Any]) -> Any:
        return _Reader(io.BytesIO(self._bytes), tensors, self.globals).load()

    def host_bytes(self, pinned: dict[int, int]) -> int:
        """Host memory that a copy takes; `pinned` are the sizes of buffers that are there already, counted."""
        there, total = dict(pinned), 0
        for storage in self.storages.values():
            size = int(storage.nbytes())
            if not (_is_on_gpu(storage) and size):
                total += size
            elif there.get(size, 0):
                there[size] -= 1
            else:
                # PyTorch rounds pinned memory up to a power of two.
                total += 1 << (size - 1).bit_length()
        odd = [number for number, key in enumerate(self.keys) if key is None]
        return total + sum(_bytes(self.tensors[number]) for number in odd)


class Staging:
    """Copies states; the pinned buffers of one copy are used again by the next, so it must be written by then."""

    def __init__(self) -> None:
        self._buffers: dict[int, list[Any]] = {}

    def pinned_buffers(self) -> dict[int, int]:
        """How many buffers of which size are there."""
        return {size: len(buffers) for size, buffers in self._buffers.items()}

    def copy(self, state: Any) -> Any:
        """The same state with every tensor copied to the host, done when it returns."""
        return self.copy_frozen(FrozenState(state))

    def copy_frozen(self, frozen: FrozenState) -> Any:
        """The same, of a state that was taken apart already."""
        free = self._buffers
        used: dict[int, list[Any]] = {}
        self._buffers = used
        hosts: dict[int, Any] = {}
        devices = set()
        for key, storage in frozen.storages.items():
            size = storage.nbytes()
            if not (_is_on_gpu(storage) and size):
                hosts[key] = storage.clone() if storage.device.type == "cpu" else storage.cpu()
                continue
            buffer = free[size].pop() if free.get(size) else _pinned_buffer(size)
            used.setdefault(size, []).append(buffer)
            buffer.copy_(_as_bytes(storage), non_blocking=True)
            hosts[key] = buffer.untyped_storage()
            devices.add(storage.device)
        copied = frozen.thaw(hosts)
        for device in devices:
            torch.cuda.synchronize(device)
        return copied


class _Writer(pickle.Pickler):
    """Leaves each tensor out and puts its number there."""

    def __init__(self, out: io.BytesIO, tensors: list[Any]) -> None:
        super().__init__(out, protocol=4)
        self._tensors = tensors
        self._numbers: dict[int, int] = {}

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, torch.Tensor):
            return None
        if (found := training.sharded_kind(value)) is not None:
            raise training.ShardedState(training.sharded_sentence("the state", found))
        number = self._numbers.setdefault(id(value), len(self._tensors))
        if number == len(self._tensors):
            self._tensors.append(value)
        return number


class _Reader(pickle.Unpickler):
    """Puts tensors back by their numbers, and notes which classes it was asked for. Reads only our own bytes."""

    def __init__(self, source: io.BytesIO, tensors: list[Any], names: set[tuple[str, str]]) -> None:
        super().__init__(source)
        self._tensors, self._names = tensors, names

    def persistent_load(self, number: int) -> Any:
        return self._tensors[number]

    def find_class(self, module: str, name: str) -> Any:
        self._names.add((module, name))
        return super().find_class(module, name)


def is_plain_view(tensor: Any) -> bool:
    """Whether a tensor is a view into a storage and nothing more."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _view(tensor: Any, host: Any) -> Any:
    """The same view into another storage."""
    view = torch.empty(0, dtype=tensor.dtype)
    view.set_(host, tensor.storage_offset(), tensor.size(), tensor.stride())
    if type(tensor) is torch.nn.Parameter:
        return torch.nn.Parameter(view, requires_grad=tensor.requires_grad)
    return view.requires_grad_() if tensor.requires_grad and tensor.is_leaf else view


def _host_copy(tensor: Any) -> Any:
    """A copy on the host of a tensor that is more than a view."""
    return tensor.detach().clone() if tensor.device.type in ("cpu", "meta") else tensor.detach().cpu()


def _bytes(tensor: Any) -> int:
    """About how much a tensor without a storage of its own takes."""
    try:
        return int(tensor.numel() * tensor.element_size())
    except (RuntimeError, NotImplementedError):
        return 0


def _is_on_gpu(storage: Any) -> bool:
    return bool(storage.device.type == "cuda")


def _as_bytes(storage: Any) -> Any:
    """All bytes of a storage as one tensor."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _pinned_buffer(size: int) -> Any:
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)
