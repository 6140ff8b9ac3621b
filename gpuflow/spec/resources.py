"""What a step asks of a machine: CPU, memory, storage, and at most one kind of GPU.

GPU models are names of the catalog (`gpuflow gpus`), never resource names or node labels: the site knows how a
cluster spells them.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from gpuflow.quantity import Quantity
from gpuflow.spec.model import QUANTITY_SCHEMA, Count, Model, QuantityField, Str, exactly_one, problem
from gpuflow.spec.names import ObjectName

_GPU_SHORT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:[x×*]\s*(\d+))?\s*")
_MIG_SHORT = re.compile(r"\s*(\d+g\.\d+gb\S*)\s+(?:of|on)\s+([A-Za-z0-9][\w.-]*)\s*(?:[x×*]\s*(\d+))?\s*")


class Amount(Model):
    """A request and a limit. One number sets both."""

    SHORT_FORM: ClassVar[dict[str, Any]] = QUANTITY_SCHEMA

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
    def _ordered(self) -> Amount:
        if self.request is None and self.limit is None:
            raise problem("GF151", "give a request, a limit, or one number for both", None)
        if self.request is not None and self.limit is not None and self.request > self.limit:
            raise problem(
                "GF112",
                f"the request {self.request} is above the limit {self.limit}",
                "raise the limit or lower the request",
            )
        return self

    def canonical(self) -> Any:
        """One quantity when request and limit are the same."""
        if self.request == self.limit:
            return str(self.request)
        return {k: str(v) for k, v in (("request", self.request), ("limit", self.limit)) if v is not None}


class Gpu(Model):
    """Whole GPUs: of one model, of any of several, or with enough memory."""

    SHORT_FORM: ClassVar[dict[str, Any]] = {"type": "string", "examples": ["a100-80gb", "a100-80gb x 2"]}

    model: Str | None = None
    """A model of the catalog, for example a100-80gb."""
    any_of: tuple[Str, ...] | None = None
    """Any of these models."""
    memory: QuantityField | None = None
    """Any model with at least this much usable GPU memory."""
    count: Count = 1
    """How many, in one container."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        if isinstance(value, str):
            match = _GPU_SHORT.fullmatch(value)
            if not match:
                raise problem("GF152", f'"{value}" does not name GPUs', "write it like a100-80gb or a100-80gb x 2")
            return {"model": match[1], "count": int(match[2] or 1)}
        if isinstance(value, int) and not isinstance(value, bool):
            raise problem("GF152", f"{int(value)} does not say which GPUs", "write a model and a count, like l4 x 2")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> Gpu:
        exactly_one(self, ("model", "any_of", "memory"), "gpu")
        if self.any_of is not None and not self.any_of:
            raise problem("GF128", "any_of names no model", "list at least one")
        return self

    def canonical(self) -> Any:
        if self.model is not None:
            return f"{self.model} x {self.count}" if self.count > 1 else self.model
        way: dict[str, Any] = {"any_of": list(self.any_of)} if self.any_of else {"memory": str(self.memory)}
        return {**way, "count": self.count} if self.count > 1 else way


class Mig(Model):
    """A MIG slice. The profile alone does not identify a GPU, so the model belongs to it."""

    SHORT_FORM: ClassVar[dict[str, Any]] = {"type": "string", "examples": ["1g.10gb of a100-80gb"]}

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


class SharedGpu(Model):
    """A share of a GPU that others use at the same time."""

    SHORT_FORM: ClassVar[dict[str, Any]] = {"type": "string", "examples": ["l4"]}

    model: Str | None = None
    """A model of the catalog; default: any."""
    by: Literal["time-slicing", "mps"] = "time-slicing"
    """time-slicing has no isolation; mps gives each share its part of memory and compute."""
    count: Count = 1
    """How many shares. Clusters usually refuse more than one: two shares may be on the same card."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        return {"model": value} if isinstance(value, str) else value


class DeviceClaim(Model):
    """A DRA claim (resource.k8s.io): an existing ResourceClaim, or a ResourceClaimTemplate for one per pod."""

    claim: ObjectName | None = None
    """An existing ResourceClaim."""
    template: ObjectName | None = None
    """A ResourceClaimTemplate: each pod gets its own claim."""
    request: Str | None = None
    """Which request of the claim; default: all."""

    @model_validator(mode="after")
    def _one_way(self) -> DeviceClaim:
        exactly_one(self, ("claim", "template"), "device_claim")
        return self
