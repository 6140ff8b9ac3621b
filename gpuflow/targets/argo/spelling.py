"""References in Argo's words: everything a template uses comes in through its inputs."""

from __future__ import annotations

import json

from gpuflow.spec import expression
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref, RunRef


def input_name(ref: Ref) -> str:
    """The template input that carries a reference. No two references share one: steps end with no '-'."""
    if isinstance(ref, ParamRef):
        return ref.name
    if isinstance(ref, OutputRef):
        return f"{ref.step}-{ref.name}"
    assert isinstance(ref, ItemRef)
    return f"item--{ref.name}"


class Inputs:
    """Spells references as template inputs, and remembers which were used."""

    def __init__(self) -> None:
        self.used: dict[str, Ref] = {}

    def literal(self, text: str) -> str:
        return text

    def reference(self, ref: Ref) -> str:
        if isinstance(ref, RunRef):
            return "{{workflow.uid}}"
        self.used[input_name(ref)] = ref
        return f"{{{{inputs.parameters.{input_name(ref)}}}}}"


def argument(ref: Ref, *, nested: bool, single_item: bool) -> str:
    """What a task passes for a reference. Inside a sub-pipeline, parameters are inputs of its template."""
    if isinstance(ref, ParamRef):
        return f"{{{{{'inputs' if nested else 'workflow'}.parameters.{ref.name}}}}}"
    if isinstance(ref, OutputRef):
        return f"{{{{tasks.{ref.step}.outputs.parameters.{ref.name}}}}}"
    assert isinstance(ref, ItemRef)
    return "{{item}}" if single_item else f"{{{{item.{ref.name}}}}}"


def condition(tree: expression.Expression, type_of: dict[str, str], *, nested: bool) -> str:
    """A condition as one `{{=…}}` expression. Argo's values are text, so each is read as its declared type."""
    return "{{=" + _expression(tree, type_of, nested) + "}}"


def _expression(tree: expression.Expression, type_of: dict[str, str], nested: bool) -> str:
    if isinstance(tree, expression.Literal):
        return json.dumps(tree.value, ensure_ascii=False)
    if isinstance(tree, expression.Reference):
        return _value(tree, type_of, nested)
    if isinstance(tree, expression.Not):
        return f"!({_expression(tree.term, type_of, nested)})"
    if isinstance(tree, expression.Logic):
        joiner = " && " if tree.operator == "and" else " || "
        return joiner.join(f"({_expression(term, type_of, nested)})" for term in tree.terms)
    if isinstance(tree, expression.Member):
        options = ", ".join(json.dumps(option.value, ensure_ascii=False) for option in tree.options)
        inside = f"{_expression(tree.value, type_of, nested)} in [{options}]"
        return f"!({inside})" if tree.negated else inside
    return f"{_expression(tree.left, type_of, nested)} {tree.operator} {_expression(tree.right, type_of, nested)}"


def _value(reference: expression.Reference, type_of: dict[str, str], nested: bool) -> str:
    ref = reference.ref
    if isinstance(ref, OutputRef):
        text = f"tasks['{ref.step}'].outputs.parameters['{ref.name}']"
    else:
        text = f"{'inputs' if nested else 'workflow'}.parameters['{ref.name}']"
    kind = type_of[expression.render(reference)]
    return {"int": f"asInt({text})", "float": f"asFloat({text})", "bool": f"({text} == 'true')"}.get(kind, text)
