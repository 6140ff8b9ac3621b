"""`when` and `depends` of Argo, as far as a pipeline says the same."""

from __future__ import annotations

import json
import re
from typing import Any

from gpuflow.importing.texts import Lookup

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<tag>\{\{.*?\}\})
    | (?P<quoted>'[^']*'|"[^"]*")
    | (?P<op>==|!=|&&|\|\||\(|\))
    | (?P<word>[\w./-]+)
    )""",
    re.VERBOSE,
)
_STATUS = re.compile(
    r"\s*(?:\{\{\s*workflow\.status\s*\}\}|\"\{\{\s*workflow\.status\s*\}\}\")\s*(==|!=)\s*\"?Succeeded\"?\s*"
)


def condition(text: str, lookup: Lookup) -> str | None:
    """Argo's `when` as a condition of a pipeline; None when it says more than comparisons of texts."""
    words: list[str] = []
    at, text = 0, _tagged(text.strip())
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        at = match.end()
        if match["op"]:
            words.append({"&&": "and", "||": "or"}.get(match["op"], match["op"]))
        elif match["tag"]:
            word = _reference(match["tag"], lookup)
            if word is None:
                return None
            words.append(word)
        else:
            quoted = match["quoted"]
            inner = re.fullmatch(r"\{\{.*?\}\}", quoted[1:-1]) if quoted else None
            word = _reference(inner[0], lookup) if inner else json.dumps(quoted[1:-1] if quoted else match["word"])
            if word is None:
                return None
            words.append(word)
    return " ".join(words).replace("( ", "(").replace(" )", ")")


def _tagged(text: str) -> str:
    """`{{= inputs.parameters['x'] == 'yes'}}` with the tags that the other form has; anything else as it is."""
    expression = re.fullmatch(r"\{\{=(.*)\}\}", text, re.DOTALL)
    if expression is None:
        return text
    names = r"((?:inputs|workflow)\.parameters|(?:steps|tasks)(?:\.\w+|\[['\"][^'\"]+['\"]\])\.outputs\.parameters)"
    return re.sub(rf"{names}(\.\w+|\[['\"][^'\"]+['\"]\])", _as_tag, expression[1])


def _as_tag(match: re.Match[str]) -> str:
    return "{{" + re.sub(r"\[['\"]([^'\"]+)['\"]\]", r".\1", match[0]) + "}}"


def _reference(tag: str, lookup: Lookup) -> str | None:
    value = lookup(tag[2:-2].strip())
    if value is None or len(value) > 1:
        return None
    if not value or isinstance(value[0], str):
        return json.dumps(value[0] if value else "")
    (part,) = value
    assert isinstance(part, dict)
    ((kind, name),) = part.items() if len(part) == 1 else (("", ""),)
    return {"param": f"params.{name}", "output": f"steps.{name}", "item": f"item.{name}"}.get(kind)


def ending(text: str) -> str | None:
    """How a run must have ended for an exit step; None when `when` asks something else."""
    match = _STATUS.fullmatch(text)
    return None if match is None else {"==": "success", "!=": "failure"}[match[1]]


def needs(task: dict[str, Any], skippable: set[str]) -> tuple[list[str], bool] | None:
    """The tasks that one waits for, and whether it also runs when they were skipped. None: more than that."""
    if task.get("dependencies"):
        found = [str(name) for name in task["dependencies"]]
        return found, bool(skippable & set(found))
    text = str(task.get("depends") or "")
    bare: set[str] = set()
    done: set[str] = set()
    if "&&" not in text and "||" in text and not text.startswith("("):
        text = f"({text})"
    for term in (part.strip() for part in text.split("&&") if part.strip()):
        own = re.fullmatch(r"([A-Za-z0-9_-]+)(?:\.(Succeeded))?", term)
        either = re.fullmatch(r"\(([\w-]+)\.Succeeded \|\| \1\.Skipped(?: \|\| \1\.(?:Omitted|Daemoned))?\)", term)
        if either:
            bare.add(either[1])
        elif own:
            (done if own[2] else bare).add(own[1])
        else:
            return None
    if bare & skippable and done & skippable:
        return None
    order = re.findall(r"[A-Za-z0-9_-]+", text)
    return list(dict.fromkeys(name for name in order if name in bare | done)), bool(bare & skippable)
