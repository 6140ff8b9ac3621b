"""Codes of findings that a pipeline's file silences: notes and warnings, never errors."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from gpuflow.codes import CODES
from gpuflow.errors import did_you_mean
from gpuflow.spec.model import problem

_REFUSALS = frozenset({"GF301", "GF302", "GF304", "GF312", "GF342", "GF702", "GF703", "GF704", "GF736", "GF737"})
_REMARKS = frozenset({"GF210", "GF912"})
"""Notes and warnings among codes that are errors else."""


def is_always_error(code: str) -> bool:
    """Whether a code only ever stops the work: what is wrong with a document, a site or a command, and every never."""
    if code in _REMARKS:
        return False
    return code in _REFUSALS or code[:3] in ("GF1", "GF2", "GF9") or CODES[code].title.startswith("Never")


def _silenced(value: Any) -> str:
    if not isinstance(value, str) or value not in CODES:
        hint = did_you_mean(value, CODES) if isinstance(value, str) else None
        raise problem("GF342", f"{value!r} is not a code", hint or "gpuflow explain lists them")
    if is_always_error(value):
        raise problem(
            "GF342",
            f'{value} ("{CODES[value].title}") is an error, which cannot be silenced',
            f"gpuflow explain {value}",
        )
    return value


SilencedCode = Annotated[str, PlainValidator(_silenced), WithJsonSchema({"type": "string", "pattern": "^GF[0-9]{3}$"})]
