"""States that are spread over the ranks. Rank 0 alone cannot save them: that would hang, or keep one piece of many.

`gpuflow.runtime.dcp` saves them, rank by rank.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMES = {
    "FullyShardedDataParallel", "FSDPModule", "FlatParameter", "DTensor", "ShardedTensor", "DeepSpeedEngine",
    "DeepSpeedZeroOptimizer", "DeepSpeedZeroOptimizer_Stage3", "ZeroRedundancyOptimizer", "FSDPStrategy",
    "ModelParallelStrategy", "DeepSpeedStrategy",
}  # fmt: skip
_PACKAGES = ("torch", "deepspeed", "fairscale", "lightning", "pytorch_lightning")
_seen: dict[type, str | None] = {}


class Sharded(TypeError):
    """A state that rank 0 alone cannot save."""


def kind(value: object) -> str | None:
    """The name of the sharded thing that this object is, else None. By name: nothing is imported to find out."""
    cls = type(value)
    if cls not in _seen:
        bases = [base for base in cls.__mro__ if base.__module__.split(".")[0] in _PACKAGES]
        _seen[cls] = next((base.__name__ for base in bases if base.__name__ in _NAMES), None)
    return _seen[cls]


def refuse(name: str, part: Any) -> None:
    """Raise when this part's state is sharded; before anyone asks for its `state_dict`, which may be a collective."""
    found = kind(part)
    if found is None and hasattr(part, "modules") and hasattr(part, "parameters"):
        found = next(filter(None, map(kind, part.modules())), None) or next(
            filter(None, map(kind, part.parameters())), None
        )
    if found is None and isinstance(getattr(part, "param_groups", None), list):
        found = next((kind(value) for group in part.param_groups for value in group["params"] if kind(value)), None)
    if found is not None:
        raise Sharded(sentence(name, found))


def sentence(name: str, found: str) -> str:
    """What to say about it."""
    return (
        f'"{name}" is sharded over the ranks ({found}), and gpuflow saves only whole states here; in a loop of your '
        "own gpuflow.runtime.dcp.Saver saves every rank's shards (FSDP, DTensor); else train with "
        "DistributedDataParallel"
    )
