"""Values of a file as plain data, and text with an engine's tags as text with references.

A text is a tuple of parts: plain text, or a reference as the pipeline's document has it (`{"param": "lr"}`). The scope
says what a tag stands for; a tag that stands for text disappears into it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gpuflow.spec.template_tags import looks_like_template


def whole_number(value: Any) -> int | None:
    """A number from 0 up that Argo and Kubernetes read too, be it as text; None for anything else."""
    text = str(value)
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def scalar_text(value: Any) -> str:
    """A scalar as it is written."""
    if isinstance(value, str):
        return value
    spelled = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return getattr(value, "text", None) or spelled


Part = str | dict[str, Any]
Parts = tuple[Part, ...]
Lookup = Callable[[str], Parts | None]
"""What a tag stands for; None when nothing in a pipeline says it."""

_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_VARIABLE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


def merge_text(parts: Parts) -> Parts:
    """Neighbors that are plain text as one, without empty ones."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part != "":
            found.append(part)
    return tuple(found)


def fill_tags(text: str, lookup: Lookup) -> tuple[Parts, list[str]]:
    """The text with its tags looked up, and the tags that stand for nothing here."""
    parts: list[Part] = []
    lost: list[str] = []
    end = 0
    for match in _TAG.finditer(text):
        parts.append(text[end : match.start()])
        end = match.end()
        value = lookup(match[1].strip())
        if value is None:
            lost.append(match[0])
        else:
            parts += value
    return merge_text((*parts, text[end:])), lost


def plain_text(parts: Parts) -> str | None:
    """The text, when it holds no reference."""
    if not parts:
        return ""
    return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else None


def document_value(parts: Parts) -> Any:
    """As the document of a pipeline has it."""
    text = plain_text(parts)
    if text is not None:
        return {"text": text} if looks_like_template(text) else text
    return parts[0] if len(parts) == 1 else {"join": [document_value((part,)) for part in parts]}


def condition_in_words(text: str, token: re.Pattern[str], word_of: Callable[[re.Match[str]], str | None]) -> str | None:
    """An engine's condition as one of a pipeline, token by token; None where a token has no word in a pipeline."""
    words: list[str] = []
    at = 0
    while at < len(text):
        match = token.match(text, at)
        word = None if match is None else word_of(match)
        if match is None or word is None:
            return None
        at = match.end()
        words.append(word)
    return " ".join(words).replace("( ", "(").replace(" )", ")")


def operand(parts: Parts | None, quoted: Callable[[str], str]) -> str | None:
    """What a tag stands for, as a condition of a pipeline names it; None where none does."""
    if parts is None or len(parts) > 1:
        return None
    part = parts[0] if parts else ""
    if isinstance(part, str):
        return quoted(part)
    ((kind, name),) = part.items() if len(part) == 1 else (("", ""),)
    return {"param": f"params.{name}", "output": f"steps.{name}", "item": f"item.{name}"}.get(kind)


def expand_variables(parts: Parts, variables: Mapping[str, Parts | None]) -> Parts | None:
    """The text as the kubelet hands it over: `$$` is `$`, `$(NAME)` a variable's value. None: it is not known."""
    found: list[Part] = []
    for part in parts:
        if not isinstance(part, str):
            found.append(part)
            continue
        end = 0
        for match in _VARIABLE.finditer(part):
            found.append(part[end : match.start()])
            end = match.end()
            if match[1] is None:
                found.append("$")
            elif match[1] not in variables:
                found.append(match[0])
            else:
                value = variables[match[1]]
                if value is None:
                    return None
                found += value
        found.append(part[end:])
    return merge_text(tuple(found))
