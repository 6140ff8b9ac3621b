"""What a step asks of a machine: CPU, memory, storage, and at most one kind of GPU.

GPU models are names of the catalog (`gpuflow gpus`), never resource names or node labels: the site knows how a
cluster spells them.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import model_validator

from gpuflow.catalog.catalog import FormName
from gpuflow.quantity import Quantity
from gpuflow.spec.model import QUANTITY_SCHEMA, Count, Model, QuantityField, Str, as_spelled, exactly_one, problem
from gpuflow.spec.names import ObjectName

_TIMES = r"(?:[x×*]\s*(\d{1,10}))"
_GPU_SHORT = re.compile(rf"\s*([A-Za-z0-9][\w.-]*)(?:\s+(?![x×*]\s*(?:\d|$))([A-Za-z]\w*))?\s*{_TIMES}?\s*", re.ASCII)
"""A model, a form, a count. An x with a number behind it is no form."""
_NUMBER_FIRST = re.compile(r"\s*(\d{1,10})\s*(?:[x×*]\s*)?([A-Za-z][\w.-]*)?\s*", re.ASCII)
_MIG_SHORT = re.compile(r"\s*(\d+g\.\d+gb\S*)\s+(?:of|on)\s+([A-Za-z0-9][\w.-]*)\s*(?:[x×*]\s*(\d+))?\s*")


class Amount(Model, form=QUANTITY_SCHEMA):
    """A request and a limit. One number sets both."""

    request: QuantityField | None = None
    """What the scheduler reserves."""
    limit: QuantityField | None = None
    """The most that the container may use."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        if isinstance(value, str | int | float | Quantity) and not isinstance(value, bool):
            return {"request": value, "limit": value}
        return value

    @model_validator(mode="after")
    def _check_order(self) -> Amount:
        if self.request is None and self.limit is None:
            raise problem("GF151", "give a request, a limit, or one number for both", None)
        if self.request is not None and self.limit is not None and self.request > self.limit:
            text = f"the request {self.request} is above the limit {self.limit}"
            raise problem("GF112", text, "raise the limit or lower the request")
        return self

    def canonical(self) -> Any:
        """One quantity when request and limit are the same."""
        if self.request == self.limit:
            return str(self.request)
        return {k: str(v) for k, v in (("request", self.request), ("limit", self.limit)) if v is not None}


_GPU_EXAMPLES = ["any x 2", "a100-80gb", "a100-80gb x 2", "a100-80gb sxm x 8"]


class Gpu(Model, form={"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "examples": _GPU_EXAMPLES}]}):
    """Whole GPUs: any that the site has, of one model, of any of several, or with enough memory."""

    model: Str | None = None
    """A model of the catalog, for example a100-80gb. Without model, any_of and memory: any GPU of the site."""
    any_of: tuple[Str, ...] | None = None
    """Any of these models."""
    memory: QuantityField | None = None
    """Any model with at least this much usable GPU memory."""
    form: FormName | None = None
    """Only boards of this form, where the model comes in several: sxm, pcie or nvl. Default: any form."""
    count: Count = 1
    """How many, in one container."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        if isinstance(value, str):
            return _without_any(_parse_short(value))
        if isinstance(value, int | float):
            return {"count": _number(value)}
        if isinstance(value, dict):
            if not value:
                raise problem("GF152", "gpu: {} does not say how many GPUs", _NUMBER_HINT)
            return _without_any(value)
        return value

    @model_validator(mode="after")
    def _one_way(self) -> Gpu:
        given = [name for name in ("model", "any_of", "memory") if getattr(self, name) is not None]
        if len(given) > 1:
            text = f"gpu takes at most one of model, any_of, memory; {' and '.join(given)} given"
            raise problem("GF128", text, "keep one")
        if self.any_of is not None and not self.any_of:
            raise problem("GF128", "any_of names no model", "list at least one, or write gpu: 1 for any GPU")
        if self.form is not None and not given:
            text = f"gpu: form: {self.form} does not say of which GPU"
            raise problem("GF204", text, "add model, any_of or memory", at=("form",))
        return self

    @property
    def is_any(self) -> bool:
        """Whether any GPU of the site will do."""
        return self.model is None and self.any_of is None and self.memory is None

    @property
    def description(self) -> str:
        """The kind of GPU, for sentences."""
        if self.memory is not None:
            return f"{'' if self.form is None else f'{self.form} '}GPU with {self.memory}"
        names = (self.model,) if self.model is not None else self.any_of or ("any GPU",)
        return " or ".join(name if self.form is None else f"{name} {self.form}" for name in names)

    def canonical(self) -> Any:
        if self.is_any:
            return self.count
        if self.model is not None:
            kind = self.model if self.form is None else f"{self.model} {self.form}"
            return f"{kind} x {self.count}" if self.count > 1 else kind
        way: dict[str, Any] = {"any_of": list(self.any_of)} if self.any_of else {"memory": str(self.memory)}
        form = {} if self.form is None else {"form": self.form}
        return {**way, **form, **({"count": self.count} if self.count > 1 else {})}


_NUMBER_HINT = "write a whole number for any GPU, like gpu: 1, or a model, like l4 x 2"


def _number(value: int | float) -> int:
    """How many GPUs of any kind."""
    if isinstance(value, float | bool):
        hint = _NUMBER_HINT if isinstance(value, bool) else f"{_NUMBER_HINT}; a part of a GPU is mig: or shared_gpu:"
        raise problem("GF152", f"gpu: {str(as_spelled(value)).lower()} is not a number of GPUs", hint)
    if value < 1:
        hint = "leave gpu out" if value == 0 else _NUMBER_HINT
        raise problem("GF152", f"gpu: {int(value)} asks for no GPU", hint)
    return value


def _parse_short(text: str) -> dict[str, Any]:
    """`any x 2`, `a100-80gb`, `a100-80gb sxm x 8` in its parts."""
    number = _NUMBER_FIRST.fullmatch(text)
    if number:
        count, model = number.groups()
        hint = f"write gpu: {int(count)}, without quotes" if model is None else f"write it like {model} x {int(count)}"
        raise problem("GF152", f'"{text}" does not name GPUs', hint)
    match = _GPU_SHORT.fullmatch(text)
    if not match:
        message = f'"{text}" does not name GPUs'
        raise problem("GF152", message, "write gpu: 1 for any GPU, or a model like a100-80gb or a100-80gb x 2")
    model, form, count = match.groups()
    parts = {"model": model, "count": int(count or 1)}
    return parts if form is None else {**parts, "form": form.lower()}


def _without_any(fields: dict[str, Any]) -> dict[str, Any]:
    """Without the model when it is `any`, which is no model."""
    model = fields.get("model")
    if isinstance(model, str) and model.strip().lower() == "any":
        return {key: value for key, value in fields.items() if key != "model"} or {"count": 1}
    return fields


class Mig(Model, form={"type": "string", "examples": ["1g.10gb of a100-80gb"]}):
    """A MIG slice. The profile alone does not identify a GPU, so the model belongs to it."""

    profile: Str
    """For example 1g.10gb."""
    model: Str
    """The GPU the slice is cut from, for example a100-80gb."""
    count: Count = 1
    """How many slices, in one container."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        if isinstance(value, str):
            match = _MIG_SHORT.fullmatch(value)
            if not match:
                raise problem("GF153", f'"{value}" does not name a MIG slice', "write it like 1g.10gb of a100-80gb")
            return {"profile": match[1], "model": match[2], "count": int(match[3] or 1)}
        return value

    def canonical(self) -> Any:
        parts: dict[str, Any] = {"profile": self.profile, "model": self.model}
        return {**parts, "count": self.count} if self.count > 1 else parts


class SharedGpu(Model, short="model", form={"type": "string", "examples": ["l4"]}):
    """A share of a GPU that others use at the same time."""

    model: Str | None = None
    """A model of the catalog; default: any."""
    by: Literal["time-slicing", "mps"] = "time-slicing"
    """time-slicing has no isolation; mps gives each share its part of memory and compute."""
    count: Count = 1
    """How many shares. Clusters usually refuse more than one: two shares may be on the same card."""


class DeviceClaim(Model):
    """A DRA claim (resource.k8s.io): an existing ResourceClaim, or a ResourceClaimTemplate for one per pod."""

    claim: ObjectName | None = None
    """An existing ResourceClaim."""
    template: ObjectName | None = None
    """A ResourceClaimTemplate: each pod gets its own claim."""
    request: Str | None = None
    """Which request of the claim; default: all."""

    _one_way = exactly_one("claim", "template", what="device_claim")
