"""Short names for Python users: `gpu("a100-80gb", 2)`, `mig("1g.10gb", "a100-80gb")`."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError

from gpuflow.errors import Finding, GpuflowError
from gpuflow.spec.building import caller
from gpuflow.spec.problems import problems
from gpuflow.spec.resources import Gpu, Mig

M = TypeVar("M", Gpu, Mig)


def gpu(
    model: str | None = None, count: int = 1, *, any_of: tuple[str, ...] | list[str] | None = None, memory: Any = None
) -> Gpu:
    """Whole GPUs: `gpu("a100-80gb", 2)`, `gpu(any_of=["a100-80gb", "h100-80gb"])`, `gpu(memory="24Gi")`."""
    fields = {"model": model, "any_of": any_of, "memory": memory}
    return _checked(Gpu, {**{k: v for k, v in fields.items() if v is not None}, "count": count})


def mig(profile: str, model: str, count: int = 1) -> Mig:
    """MIG slices: `mig("1g.10gb", "a100-80gb")`."""
    return _checked(Mig, {"profile": profile, "model": model, "count": count})


def _checked(kind: type[M], fields: dict[str, Any]) -> M:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        where = caller()
        raise GpuflowError(
            Finding(code, message, where, hint) for code, message, hint, _, _ in problems(error, kind)
        ) from None
