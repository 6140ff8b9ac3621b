"""How an engine spells references inside a pod's text."""

from __future__ import annotations

from typing import Protocol

from gpuflow.kubernetes.expansion import escape
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref, Text, parts_of


class Spelling(Protocol):
    """An engine's own words. `literal` gets text that Kubernetes' expansion is already safe from."""

    def literal(self, text: str) -> str: ...

    def reference(self, ref: Ref) -> str: ...


class ReadableSpelling:
    """References as a reader would write them; for `show`, `demand` and `check`, where no engine is involved."""

    def literal(self, text: str) -> str:
        return text

    def reference(self, ref: Ref) -> str:
        if isinstance(ref, ParamRef):
            return f"<param {ref.name}>"
        if isinstance(ref, OutputRef):
            return f"<output {ref.step}.{ref.name}>"
        if isinstance(ref, ItemRef):
            return f"<item {ref.name}>"
        return f"<run {' '.join(filter(None, (ref.field, ref.format, ref.timezone)))}>"


def spell_text(text: Text, spelling: Spelling) -> str:
    """A text as a pod holds it: literals protected from Kubernetes' expansion, references in the engine's syntax.

    A plain str, whatever kind of str the pipeline holds.
    """
    if isinstance(text, str):  # most words of most commands
        return spelling.literal(escape(text) if "$" in text else str(text))
    parts = parts_of(text)
    result = ""
    for index, part in enumerate(parts):
        if isinstance(part, str):
            result += spelling.literal(escape(str(part), glued=index + 1 < len(parts)))
        else:
            result += spelling.reference(part)
    return result
