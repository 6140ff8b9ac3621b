"""PyTorch: everything a training needs to go on bit for bit, saved atomically, with a short stall.

    with checkpointing() as ckpt:
        saver = pytorch.Saver(ckpt, model=model, optimizer=optimizer)
        step = saver.restore().get("step", 0)
        ...
        if ckpt.due():
            saver.save(step=step)

`save` copies the state to pinned host memory, which is all the training waits for, and writes it in the background.
"""

from __future__ import annotations

import random
import time
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]  # an extra

from gpuflow.runtime.saving import Checkpointing


class Saver:
    """Saves and restores the `state_dict` of everything given by name, and the random number generators."""

    def __init__(self, ckpt: Checkpointing, *, background: bool = True, **parts: Any) -> None:
        self.ckpt, self.background, self.parts = ckpt, background, parts
        self.staging = Staging()

    def save(self, name: str | None = None, **facts: Any) -> None:
        """One checkpoint. With `background`, returns when the state is safe in host memory."""
        began = time.monotonic()
        self.ckpt.wait()
        state = capture(self.parts, facts)
        if not self.background:
            self.ckpt.save(lambda path: torch.save(state, path), name)
            return
        staged = self.staging.copy(state)
        stall = time.monotonic() - began
        self.ckpt.save_in_background(lambda path: torch.save(staged, path), name, stall=stall)

    def restore(self, map_location: Any = "cpu") -> dict[str, Any]:
        """Load the checkpoint to resume from into the parts; the facts saved with it, or {} for a fresh start."""
        path = self.ckpt.resume_from
        return {} if path is None else load(path, self.parts, map_location)


class Staging:
    """A copy of a state in host memory whose pinned buffers are used again by the next one."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[Any, ...], Any] = {}

    def copy(self, state: Any) -> Any:
        """The same state with every tensor copied to the host, done when it returns."""
        copied = self._copy(state, ())
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return copied

    def _copy(self, value: Any, path: tuple[Any, ...]) -> Any:
        if isinstance(value, torch.Tensor):
            if not value.is_cuda:
                return value.detach().clone()
            buffer = self._buffers.get(path)
            if buffer is None or buffer.shape != value.shape or buffer.dtype != value.dtype:
                buffer = torch.empty(value.shape, dtype=value.dtype, device="cpu", pin_memory=True)
                self._buffers[path] = buffer
            buffer.copy_(value.detach(), non_blocking=True)
            return buffer
        if isinstance(value, dict):
            return type(value)((key, self._copy(item, (*path, key))) for key, item in value.items())
        if isinstance(value, (list, tuple)):
            items = [self._copy(item, (*path, index)) for index, item in enumerate(value)]
            return items if isinstance(value, list) else tuple(items)
        return value


def capture(parts: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """States of the parts, facts, and every generator that decides what comes next."""
    state: dict[str, Any] = {name: part.state_dict() for name, part in parts.items()}
    generators: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        generators["cuda"] = torch.cuda.get_rng_state_all()
    try:
        import numpy  # type: ignore[import-not-found,unused-ignore]  # an extra

        generators["numpy"] = numpy.random.get_state()
    except ImportError:
        pass
    return {"parts": state, "facts": facts, "generators": generators}


def load(path: str, parts: dict[str, Any], map_location: Any = "cpu") -> dict[str, Any]:
    """Put a captured state back; its facts."""
    state = torch.load(path, map_location=map_location, weights_only=False)
    for name, part in parts.items():
        part.load_state_dict(state["parts"][name])
    generators = state["generators"]
    random.setstate(generators["python"])
    torch.set_rng_state(generators["torch"].cpu())
    if "cuda" in generators and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([generator.cpu() for generator in generators["cuda"]])
    if "numpy" in generators:
        import numpy

        numpy.random.set_state(generators["numpy"])
    facts: dict[str, Any] = state["facts"]
    return facts
