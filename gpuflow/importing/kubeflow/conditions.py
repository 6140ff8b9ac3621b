"""Conditions of Kubeflow as conditions of a pipeline."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpuflow.importing.texts import Parts
from gpuflow.readers.kfp.arriving import arriving
from gpuflow.readers.kfp.conditions import unquoted

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<ref>inputs\.parameter_values\[['"](?P<name>[^'"]+)['"]\])
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<number>[-+]?\d+(?:\.\d+)?)
    | (?P<op>==|!=|<=|>=|<|>|&&|\|\||!|\(|\))
    | (?P<word>true|false)
    )""",
    re.VERBOSE,
)
_CAST = re.compile(r"\b(?:int|double|string|bool)\((inputs\.parameter_values\[['\"][^'\"]+['\"]\])\)")
_WORDS = {"&&": "and", "||": "or", "!": "not"}


def condition(text: str, value: Callable[[str], Parts | None]) -> str | None:
    """The condition; None when it says more than a pipeline can."""
    words: list[str] = []
    at, text = 0, _CAST.sub(r"\1", arriving(text.strip()))
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        at = match.end()
        if match["ref"]:
            word = _reference(value(match["name"]))
            if word is None:
                return None
            words.append(word)
        elif match["text"]:
            literal = unquoted(match["text"])
            if literal is None:
                return None
            words.append(_quoted(literal))
        else:
            found = match["op"] or match["number"] or match["word"]
            words.append(_WORDS.get(found, found))
    return " ".join(words).replace("( ", "(").replace(" )", ")")


def _reference(parts: Parts | None) -> str | None:
    if parts is None or len(parts) != 1:
        return None
    (part,) = parts
    if isinstance(part, str):
        return _quoted(part)
    ((kind, name),) = part.items() if len(part) == 1 else (("", ""),)
    return {"param": f"params.{name}", "output": f"steps.{name}", "item": f"item.{name}"}.get(kind)


def _quoted(text: str) -> str:
    """A text in a condition of a pipeline, where a backslash takes the next character as it is."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
