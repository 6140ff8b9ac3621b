"""Fan-out as a loop of one task.

A list that is written in the pipeline stands in `withItems`, each text spelled so that neither Argo nor the kubelet
changes it. A list that is only known at run time is a `withParam`; several lists become one there, by an expression
that makes every combination. A condition on the item must see the text as it is, so such a list is a `withParam` too.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from gpuflow.errors import Finding, Where
from gpuflow.kubernetes.expansion import escaped
from gpuflow.spec import expression
from gpuflow.spec.fan_out import Range
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef
from gpuflow.targets.argo.spelling import (
    NO_DEFAULTS,
    Defaults,
    Reader,
    constant,
    hidden_json,
    reading,
    text_value,
    without_tags,
)
from gpuflow.targets.fan_outs import fan_out_finding

AS_TEXT = "type(#) == 'string' ? # : toJson(#)"


def asks_item(step: Step) -> bool:
    """Whether the step's condition is about the item, so that every copy has its own answer."""
    return step.when is not None and any(isinstance(found.ref, ItemRef) for found in expression.references(step.when))


def is_static(step: Step) -> bool:
    """Whether the loop's items stand in the manifest in their safe spelling."""
    return not asks_item(step) and is_written(step)


def is_written(step: Step) -> bool:
    """Whether the loop's items stand in the manifest at all."""
    return not any(_is_open(source) for source in (step.for_each or {}).values())


def item_reading(step: Step, *, nested: bool, defaults: Defaults = NO_DEFAULTS) -> Reader:
    """How the step's condition reads what it is about."""
    single = len(step.for_each or ()) == 1
    return reading(nested=nested, single_item=single, written=is_written(step), defaults=defaults)


def _is_open(source: Any) -> bool:
    return isinstance(source, ParamRef | OutputRef)


def loop(step: Step, *, nested: bool, defaults: Defaults = NO_DEFAULTS) -> dict[str, Any]:
    """`withItems` or `withParam`, or nothing for a step that is no fan-out."""
    if not step.for_each:
        return {}
    keys, sources = tuple(step.for_each), tuple(step.for_each.values())
    if is_written(step):
        spell = _hidden if is_static(step) else str
        rows = [[spell(text_of(value)) for value in row] for row in itertools.product(*map(_values, sources))]
        items = [row[0] if len(keys) == 1 else dict(zip(keys, row, strict=True)) for row in rows]
        return {"withItems": items} if is_static(step) else {"withParam": _written(items)}
    if len(keys) == 1:
        return {"withParam": hidden_json(text_value(sources[0], nested=nested, defaults=defaults))}
    return {"withParam": hidden_json(_combinations(step.for_each, nested=nested, defaults=defaults))}


def _written(items: list[Any]) -> str:
    """A list of the pipeline as JSON in which Argo finds no tag."""
    return json.dumps(items, ensure_ascii=False).replace("{{", "{\\u007b")


def _combinations(sources: dict[str, Any], *, nested: bool, defaults: Defaults) -> str:
    """The expression for every combination as a list of maps of texts. Braces never touch: `}}` would end the tag."""
    *outer, last = sources
    texts = {name: _texts_of(source, nested=nested, defaults=defaults) for name, source in sources.items()}
    fields = ", ".join(f"'{name}': v{number}" for number, name in enumerate(outer))
    result = f"map({texts[last]}, {{ {{{fields}, '{last}': #}} }})"
    for number, name in reversed(list(enumerate(outer))):
        result = f"map({texts[name]}, {{let v{number} = #; {result} }})"
    return f"toJson(flatten({result}))"


def _texts_of(source: Any, *, nested: bool, defaults: Defaults) -> str:
    if _is_open(source):
        return f"map(fromJSON({text_value(source, nested=nested, defaults=defaults)}), {AS_TEXT})"
    return "[" + ", ".join(constant(text_of(value)) for value in _values(source)) + "]"


def is_quoted(step: Step, name: str) -> bool:
    """Whether Argo hands an item of several variables on with JSON's escapes still in it."""
    texts = (_hidden(text_of(value)) for value in _values((step.for_each or {})[name]))
    return any(json.dumps(text)[1:-1] != text for text in texts)


def item_findings(pipeline: Pipeline, name: str, step: Step) -> Iterator[Finding]:
    """Items that Argo cannot express: it quotes what it replaces as Go does, which is not JSON for the unprintable."""
    where = pipeline.where("steps", name, "for_each") if step.for_each else Where()
    written = [source for source in (step.for_each or {}).values() if not _is_open(source)]
    too_large = fan_out_finding(step, name, "Argo", where)
    if too_large is not None:
        yield too_large
        return
    for text in (text_of(value) for source in written for value in _values(source)):
        if not all(character.isprintable() or character in "\n\t\r" for character in text):
            yield Finding("GF306", f'step "{name}": Argo cannot express the item {text!r}', where, "use printable text")
        elif step.pipeline is not None and is_static(step) and _hidden(text) != text:
            yield Finding(
                "GF306",
                f'step "{name}": the item {text!r} cannot be passed to a sub-pipeline',
                where,
                "pass items with $ or { through a parameter instead",
            )


def _hidden(text: str) -> str:
    """An item as text that neither Argo nor the kubelet changes; numbers too, so that no engine prints them anew."""
    return without_tags(escaped(text, glued=True))


def _values(source: Any) -> list[Any]:
    return list(source.items if isinstance(source, Range) else source)
