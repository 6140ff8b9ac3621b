"""Conditions in CEL, the language of KFP's driver.

One expression, `and` and `or` included, so a step has one condition's sub-DAG however long its condition is. KFP hands
every number over as a double; ints are converted back, as KFP's own compiler does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from gpuflow.spec.expression import Compare, Expression, Literal, Logic, Member, Not, Reference
from gpuflow.targets.kubeflow.messages import ir
from gpuflow.targets.kubeflow.names import Channel, channel_name
from gpuflow.targets.kubeflow.values import Type

_INT: Type = ir.ParameterType.NUMBER_INTEGER
_DOUBLE: Type = ir.ParameterType.NUMBER_DOUBLE
_DOLLAR = re.compile(r"\$(?=[$(]|[^\x00-\x7f])")
"""A dollar that a kubelet may take for more than that (gpuflow/kubernetes/expansion.py)."""
_LOGIC = {"and": " && ", "or": " || "}


class Cel:
    """Translates conditions; `type_of` and `name_of` know the references."""

    def __init__(self, type_of: Callable[[Channel], Type], name_of: Callable[[Channel], str] = channel_name) -> None:
        self._type_of, self._name_of = type_of, name_of

    def render(self, tree: Expression) -> str:
        """The condition as the driver reads it."""
        if isinstance(tree, Logic):
            return _LOGIC[tree.operator].join(self._grouped(term) for term in tree.terms)
        if isinstance(tree, Not):
            return f"!({self.render(tree.term)})"
        if isinstance(tree, Member):
            options = ", ".join(_constant(option.value, self._is_double(tree.value)) for option in tree.options)
            found = f"{self._operand(tree.value, self._is_double(tree.value))} in [{options}]"
            return f"!({found})" if tree.negated else found
        if isinstance(tree, Compare):
            double = self._is_double(tree.left) or self._is_double(tree.right)
            return f"{self._operand(tree.left, double)} {tree.operator} {self._operand(tree.right, double)}"
        if isinstance(tree, Reference):
            return f"{self._operand(tree, False)} == true"
        return _constant(tree.value, False)

    def _grouped(self, term: Expression) -> str:
        return f"({self.render(term)})" if isinstance(term, Logic) else self.render(term)

    def _is_double(self, tree: Expression) -> bool:
        if isinstance(tree, Literal):
            return isinstance(tree.value, float)
        return isinstance(tree, Reference) and self._type_of(tree.ref) == _DOUBLE

    def _operand(self, tree: Expression, double: bool) -> str:
        if isinstance(tree, Literal):
            return _constant(tree.value, double)
        if isinstance(tree, Reference):
            value = f"inputs.parameter_values['{self._name_of(tree.ref)}']"
            whole = f"int({value})" if self._type_of(tree.ref) == _INT else value
            return f"double({whole})" if double and whole != value else whole
        return f"({self.render(tree)})"


def _constant(value: str | int | float | bool, double: bool) -> str:
    if isinstance(value, str):
        escaped = json.dumps(value, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")
        # On the way Argo would read a literal {{, and the driver's kubelet $$ and $(NAME).
        return "'" + _DOLLAR.sub(r"\\u0024", escaped.replace("{{", "{\\u007b")) + "'"
    if isinstance(value, bool):
        return str(value).lower()
    return f"double({value})" if double and isinstance(value, int) else str(value)
