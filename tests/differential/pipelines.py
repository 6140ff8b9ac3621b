"""Pipelines full of text that an engine might take for its own, and what their containers must be given.

A case names one step. `words` reads the pipeline the way its author does: literals as they are written, a
reference as the text it stands for. The other side is what Argo's substitution makes of the compiled workflow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from typing import Any

from gpuflow.spec.params import text_of
from tests.differential.draw import Draw, without_none

Document = dict[str, Any]

LITERALS = (
    "run", "--flag", "a b", "", " ", "'", '"', "\\", "\\n", "line\nbreak", "\ttab", "$", "$$", "$HOME", "${HOME}",
    "$(A)", "$$(A)", "$(UNSET)", "`date`", "{", "}", "{ {", "} }", "{}", "%s", "100%", "null", "~", "yes", "0x1F",
    "1e3", "007", "- item", "key: value", "# no comment", "&anchor", "*", "!tag", "|", ">", "é", "日本", "🚀",
    "a;b&&c|d", "<x>", "[1]", "\u2028", "a=b", "-1", "--",
)  # fmt: skip
VALUES = ("", "x", "a b", 'say "hi"', "it's", "\\", "$5", "a\nb", "é", "{", "}", "1e3", "null", "[]", "0", "日本語")
"""What a parameter or an output may hold when the run is started: no doubled braces, which Argo reads as its own."""
NUMBERS: dict[str, tuple[Any, ...]] = {
    "int": (0, 7, -3, 10**30),
    "float": (0.5, -0.0, 1e3, 1e-7, 2.5e30),
    "bool": (True, False),
}
"""Defaults of parameters that are no text."""
SPELLED = {
    "int": ("007", "-0", "+5", "123456789012345678901"),
    "float": ("1e3", "1E-5", "-0.0", ".5", "5.", "inf", "NaN"),
    "bool": ("true", "false"),
}
"""The same as a person may type them when a run is started."""
NAMES = ("first", "second", "third")


def case(draw: Draw) -> dict[str, Any]:
    """A pipeline, the values of one run, and the step to look at."""
    params: Document = {
        name: {"type": "string", "default": draw.pick(VALUES)} for name in draw.some(("lr", "name", "text"))
    }
    for kind in draw.some(tuple(NUMBERS)):
        params[f"a_{kind}"] = {"type": kind, "default": draw.pick(NUMBERS[kind])}
    params |= {"list": {"type": "json", "default": ["a"]}}
    steps: Document = {}
    outputs: dict[str, str] = {}
    for name in NAMES[: draw.number(1, 3)]:
        steps[name] = _step(draw, tuple(params), tuple(outputs))
        if draw.chance(0.5):
            steps[name]["outputs"] = {"result": {"type": "string"}}
            if "for_each" not in steps[name]:
                outputs[f"{name}.result"] = draw.pick(VALUES)
    return {
        "pipeline": {
            "apiVersion": "gpuflow/v1",
            "kind": "Pipeline",
            "name": "p",
            "params": params,
            "defaults": {"image": "registry.example.com/x:1"},
            "steps": steps,
        },
        "parameters": {
            name: json.dumps(_items(draw)) if name == "list" else draw.pick(SPELLED.get(param["type"], VALUES))
            for name, param in params.items()
            if draw.chance(0.7)
        },
        "outputs": outputs,
        "step": draw.pick(tuple(steps)),
    }


def _items(draw: Draw) -> list[str]:
    return [draw.pick(VALUES) for _ in range(draw.number(1, 3))]


def _step(draw: Draw, params: tuple[str, ...], outputs: tuple[str, ...]) -> Document:
    items = {
        name: {"param": "list"} if index == 0 and draw.chance(0.4) else _items(draw)
        for index, name in enumerate(draw.weighted({(): 6, ("part",): 3, ("part", "size"): 1}))
    }
    if len(items) > 1:
        items = {name: values if isinstance(values, list) else ["a", "b"] for name, values in items.items()}
    references: list[Document] = [{"param": name} for name in params if name != "list"]
    references += [{"output": name} for name in outputs]
    references += [{"item": name} for name in items]
    words = [_word(draw, references) for _ in range(draw.number(1, 5))]
    return without_none(
        command=["tool", *words],
        env={name: _word(draw, references) for name in draw.some(("A", "B"))} or None,
        for_each=items or None,
        parallel=draw.number(1, 3) if items and draw.chance(0.5) else None,
        retry={"failures": 1} if draw.chance(0.3) else None,
        memory="1Gi",
    )


def _word(draw: Draw, references: list[Document]) -> str | Document:
    if not references or draw.chance(0.5):
        return draw.pick(LITERALS)
    if draw.chance(0.5):
        return draw.pick(references)
    return {"join": [draw.pick(LITERALS), draw.pick(references), draw.pick(LITERALS)]}


def meant(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What each copy of the step must be given, in the order of its items."""
    step = asked["pipeline"]["steps"][asked["step"]]
    defaults = {name: param["default"] for name, param in asked["pipeline"]["params"].items()}
    params = {name: value if name == "list" else text_of(value) for name, value in defaults.items()} | asked[
        "parameters"
    ]
    listed = json.loads(params["list"]) if isinstance(params["list"], str) else params["list"]
    loops = {name: values if isinstance(values, list) else listed for name, values in step.get("for_each", {}).items()}
    pods = []
    for chosen in product(*loops.values()):
        known = {"param": params, "output": asked["outputs"], "item": dict(zip(loops, chosen, strict=True))}
        pods.append(
            {
                "argv": [words(word, known) for word in step["command"]],
                "env": {name: words(word, known) for name, word in step.get("env", {}).items()},
            }
        )
    return {"pods": pods}


def words(word: str | Document, known: Mapping[str, Mapping[str, str]]) -> str:
    """The text that a literal, a reference or a join stands for."""
    if isinstance(word, str):
        return word
    ((kind, value),) = word.items()
    if kind == "join":
        return "".join(words(part, known) for part in value)
    return known[kind][value]
