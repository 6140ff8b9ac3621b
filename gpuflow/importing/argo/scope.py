"""What the tags of Argo stand for, in one template."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from gpuflow.importing.argo.own import ATTEMPT, unwrapped
from gpuflow.importing.drafts import Draft, identifier
from gpuflow.importing.texts import Parts

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
            inside, kind = unwrapped(tag[1:])
            if outcome := _TYPED_OUTPUT.fullmatch(inside):
                tag = f"tasks.{outcome[1]}.outputs.parameters.{outcome[2]}"
            else:
                tag = f"={inside}"
        found = self._found(tag)
        if kind is not None and found is not None and len(found) == 1 and isinstance(found[0], dict):
            self.draft.as_type(found[0], kind)
        return found

    def _found(self, tag: str) -> Parts | None:
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
