"""Random number generators of one process: what they are about to draw, as plain data, and back again."""

from __future__ import annotations

import random
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]  # an extra


def capture() -> dict[str, Any]:
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


def restore(state: dict[str, Any]) -> list[str]:
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
