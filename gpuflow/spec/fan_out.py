"""What a fan-out runs over: a list, a range, or a list that a parameter or another step gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema, model_validator

from gpuflow.spec.model import Count, Integer, Model, problem
from gpuflow.spec.params import plain_json
from gpuflow.spec.problems import validate_nested
from gpuflow.spec.text import OutputRef, ParamRef, parse_text, ref_schema

MOST_COPIES = 1_000_000
"""No step runs more often: what is multiplied out beyond that ends nowhere, in no engine."""


def written_sizes(sources: Mapping[str, Any]) -> list[int]:
    """The sizes of the lists that stand in the document; those that only the run knows are left out."""
    written = (source.items if isinstance(source, Range) else source for source in sources.values())
    return [len(items) for items in written if isinstance(items, tuple | range)]


def product_of(sizes: list[int]) -> str:
    """`25,000,000 copies (5,000 x 5,000)`."""
    factors = f" ({' x '.join(f'{size:,}' for size in sizes)})" if len(sizes) > 1 else ""
    return f"{math.prod(sizes):,} copies{factors}"


def _source(value: Any) -> Any:
    if isinstance(value, dict):
        if "range" in value:
            if set(value) != {"range"}:
                raise problem("GF163", "range stands alone", None)
            return validate_nested(Range, value["range"])
        value = parse_text(value)
    if isinstance(value, ParamRef | OutputRef | Range):
        return value
    if isinstance(value, list | tuple):
        if not value:
            raise problem("GF163", "the list is empty: the step would never run", "give at least one item")
        return tuple(plain_json(value))
    raise problem("GF163", "a fan-out runs over a list, {range: …}, {param: …} or {output: …}", None)


class Range(Model, short="stop", types=(int,), form={"type": "integer", "minimum": 1}):
    """Whole numbers from start up to, but not including, stop."""

    start: Integer = 0
    """The first number."""
    stop: Integer
    """The number after the last."""
    step: Count = 1
    """The distance."""

    @model_validator(mode="after")
    def _not_empty(self) -> Range:
        if self.stop <= self.start:
            raise problem("GF163", f"the range from {self.start} to {self.stop} is empty", None)
        if len(self.items) > MOST_COPIES:
            raise problem("GF163", f"the range has {len(self.items):,} numbers; {MOST_COPIES:,} is the most", None)
        return self

    @property
    def items(self) -> range:
        return range(self.start, self.stop, self.step)


_RANGE_SCHEMA = {
    "type": "object",
    "required": ["range"],
    "additionalProperties": False,
    "properties": {"range": {"anyOf": [{"type": "integer"}, {"type": "object"}]}},
}
_SOURCE_SCHEMA = {"anyOf": [{"type": "array", "minItems": 1}, ref_schema("param", "output"), _RANGE_SCHEMA]}
SourceField = Annotated[Any, PlainValidator(_source), WithJsonSchema(_SOURCE_SCHEMA)]
