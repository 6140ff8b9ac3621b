"""Short names for Python users: `gpu("a100-80gb", 2)`, `mig("1g.10gb", "a100-80gb")`."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError

from gpuflow.catalog.catalog import FormName
from gpuflow.errors import Finding, GpuflowError
from gpuflow.spec.building import caller
from gpuflow.spec.problems import problems
from gpuflow.spec.python_values import plain
from gpuflow.spec.resources import Gpu, Mig

M = TypeVar("M", Gpu, Mig)


def gpu(
    model: str | int | None = None,
    count: int | None = None,
    *,
    any_of: tuple[str, ...] | list[str] | None = None,
    memory: Any = None,
    form: FormName | None = None,
) -> Gpu:
    """Whole GPUs: `gpu(2)` (any), `gpu("a100-80gb", 2)`, `gpu("a100-80gb", form="sxm")`,
    `gpu(any_of=["a100-80gb", "h100-80gb"])`, `gpu(memory="24Gi")`.
    """
    if isinstance(model, int) and count is None and any_of is None and memory is None and form is None:
        return _checked(Gpu, model)
    fields = {"model": model, "any_of": any_of, "memory": memory, "form": form}
    given = {key: value for key, value in fields.items() if value is not None}
    return _checked(Gpu, {**given, "count": 1 if count is None else count})


def mig(profile: str, model: str, count: int = 1) -> Mig:
    """MIG slices: `mig("1g.10gb", "a100-80gb")`."""
    return _checked(Mig, {"profile": profile, "model": model, "count": count})


def _checked(kind: type[M], fields: Any) -> M:
    try:
        return kind.model_validate(plain(fields))
    except ValidationError as error:
        where = caller()
        raise GpuflowError(
            Finding(code, message, where, hint) for code, message, hint, _, _ in problems(error, kind)
        ) from None
