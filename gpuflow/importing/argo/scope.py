"""What the tags of Argo stand for in one template, and what gpuflow itself writes into compiled workflows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuflow.formats.nodes import as_list, maps
from gpuflow.importing.draft import Draft, identifier
from gpuflow.importing.unsupported import Place, Unsupported
from gpuflow.importing.values import Parts

RUNNER = "gpuflow-run"
OUTPUTS = "/gpuflow/outputs"
ATTEMPT = "=asInt(retries) + 1"
RETRIES = "asInt(lastRetry.exitCode) != 79"
"""A supervised step that is retried whatever ended it, unless the supervisor says that no attempt can help."""
_PAIRS = (
    ("'{'", "'$(GPUFLOW_BRACE)'"),
    ("'$'", "'$$'"),
    ("'%25'", "'%'"),
    ("'%7B'", "'{'"),
    ("'{'", "'%7B'"),
    ("'%'", "'%25'"),
)
_LIST = "sprig.replace('{' + '{', '{\\\\u007b', "
_ITEM = "(type(item) in ['map', 'array'] ? toJson(item) : string(item))"
_GUARD = re.compile(
    r"\((?P<ref>.+?) matches '.*?' \? (?P=ref) : sprig\.fail\('.* is not an? (?P<kind>\w+)'\)\)", re.DOTALL
)
_OPTION = re.compile(r"--([a-z-]+)(?:=(.*))?", re.DOTALL)
_OF_ENGINE = ("pipeline", "step", "run-id", "item", "engine", "outputs-dir", "timeout", "grace")
"""Options that follow from the rest of the step."""


def unwrap_expression(expression: str) -> tuple[str, str | None]:
    """The reference within an expression of ours, and the type that it is held to."""
    text, kind = expression.strip(), None
    while True:
        for old, new in _PAIRS:
            head = f"sprig.replace({old}, {new}, "
            if text.startswith(head) and text.endswith(")"):
                text = text[len(head) : -1]
                break
        else:
            if text.startswith(_LIST) and text.endswith(")"):
                text, kind = text[len(_LIST) : -1], "json"
            elif match := _GUARD.fullmatch(text):
                text, kind = match["ref"], match["kind"]
            else:
                return "item" if text == _ITEM else text, kind


def without_supervisor(
    main: Mapping[str, Any], spec: dict[str, Any], listing: Unsupported, place: Place
) -> tuple[Mapping[str, Any], dict[str, Any], dict[str, dict[str, Any]] | None]:
    """The container and the pod without gpuflow-run, and the outputs that it hands over; None: it has none."""
    words = as_list(main.get("command"))
    if words[:1] != [RUNNER] or "--" not in words:
        return main, spec, None
    end = words.index("--")
    outputs: dict[str, dict[str, Any]] = {}
    for word in words[1:end]:
        match = _OPTION.fullmatch(str(word))
        name, value = (match[1], match[2] or "") if match else (str(word), "")
        if name == "output":
            declared, _, path = value.partition("=")
            title, _, kind = declared.partition(":")
            outputs[title] = {"type": kind or "string", **({"path": path} if path else {})}
        elif name not in _OF_ENGINE:
            hint = "import the rest, and write checkpoint, retry or the uri of an artifact in the step"
            listing.cannot(f"{RUNNER} --{name}", "it is not read back", place.of(main, "command"), hint)
    mounts = [each for each in maps(main.get("volumeMounts")) if each.get("mountPath") != OUTPUTS]
    scratch = [each.get("name") for each in maps(main.get("volumeMounts")) if each.get("mountPath") == OUTPUTS]
    rest = {key: value for key, value in main.items() if key != "volumeMounts"}
    volumes = [each for each in maps(spec.get("volumes")) if each.get("name") not in scratch]
    pod = {**spec, "volumes": volumes} if volumes else {key: value for key, value in spec.items() if key != "volumes"}
    own = {**rest, "command": words[end + 1 :], **({"volumeMounts": mounts} if mounts else {})}
    return own, pod, outputs


_TYPED_OUTPUT = re.compile(r"tasks\['([^']+)'\]\.outputs\.parameters\['([^']+)'\]")
RUN = {"workflow.uid": "id", "workflow.name": "name"}
_OUTPUT = re.compile(r"(?:steps|tasks)\.(?P<step>[^.]+)\.outputs\.parameters\.(?P<name>.+)")
_EXPRESSION = re.compile(
    r"=\s*(?P<owner>inputs\.parameters|workflow\.parameters)(?:\.(?P<dotted>\w+)|\[['\"](?P<quoted>[^'\"\]]+)['\"]\])\s*"
)


class AnyItem(dict[str, Any]):
    """The item of a loop that is listed already."""


@dataclass
class Scope:
    """The values that a template sees; `draft` is the pipeline that they are spoken of in."""

    draft: Draft
    inputs: dict[str, Parts] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """The names of steps, by what Argo calls them."""
    item: Parts | dict[str, Any] | None = None
    """What {{item}} is: a text, or a map of texts."""
    outer: Callable[[str], Parts | None] | None = None
    """What workflow parameters are, outside of the outermost pipeline's own text."""
    refused: set[str] = field(default_factory=set)
    """Steps that are listed already: what refers to them is not listed again."""

    def __call__(self, tag: str) -> Parts | None:
        """What a tag stands for; None when no reference says it."""
        kind: str | None = None
        if tag == ATTEMPT:
            return ({"run": "attempt"},)
        if tag.startswith("="):
            inside, kind = unwrap_expression(tag[1:])
            if outcome := _TYPED_OUTPUT.fullmatch(inside):
                tag = f"tasks.{outcome[1]}.outputs.parameters.{outcome[2]}"
            else:
                tag = f"={inside}"
        found = self._look_up(tag)
        if kind is not None and found is not None and len(found) == 1 and isinstance(found[0], dict):
            self.draft.as_type(found[0], kind)
        return found

    def _look_up(self, tag: str) -> Parts | None:
        if match := _EXPRESSION.fullmatch(tag):
            tag = f"{match['owner']}.{match['dotted'] or match['quoted']}"
        if tag.replace(" ", "") == "=item":
            tag = "item"
        if tag.startswith("inputs.parameters."):
            return self.inputs.get(tag.removeprefix("inputs.parameters."))
        if tag.startswith("workflow.parameters."):
            return self.outer(tag.removeprefix("workflow.parameters.")) if self.outer else None
        if tag in RUN:
            return ({"run": RUN[tag]},)
        if tag == "item" or tag.startswith("item."):
            return self._item(tag.removeprefix("item").removeprefix("."))
        match = _OUTPUT.fullmatch(tag)
        return self._output(match["step"], match["name"]) if match else None

    def _item(self, key: str) -> Parts | None:
        if isinstance(self.item, AnyItem):
            return ({"item": "item"},)
        if isinstance(self.item, dict):
            value: Parts | None = self.item.get(key) if key else None
            return value
        return None if key else self.item

    def _output(self, step: str, name: str) -> Parts | None:
        found = self.names.get(step)
        if found is None:
            return ({"output": "refused.refused"},) if step in self.refused else None
        owner = self.draft.steps.get(found, {})
        known = owner.get("outputs", {}) if "pipeline" not in owner else owner["pipeline"].get("outputs", {})
        wanted = identifier(name, ())
        return ({"output": f"{found}.{wanted}"},) if wanted in known else None

    def with_item(self, item: Parts | dict[str, Any] | None) -> Scope:
        """The same, in a loop."""
        return replace(self, item=item)
