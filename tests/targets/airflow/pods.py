"""The pods that a compiled DAG file asks for, in the shape of `pod_for`. Airflow's operator takes them as they are."""

from __future__ import annotations

import ast
import builtins
from typing import Any
from unittest.mock import MagicMock


class _Names(dict[str, Any]):
    """Whatever a DAG file imports, as something that can be called; operators keep what they are given."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: dict[str, Any] = {}
        operator = MagicMock(side_effect=self._task)
        operator.partial.side_effect = self._task
        self.update(GpuPodOperator=operator, Pod=lambda metadata, spec: {"metadata": metadata, "spec": spec})

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        self[name] = MagicMock(name=name)
        return self[name]

    def _task(self, **named: Any) -> Any:
        self.tasks[named["task_id"]] = named.get("template")
        return MagicMock()


def read_pods(text: str) -> dict[str, Any]:
    """The pod of each task of a compiled file."""
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    names = _Names()
    exec(compile(tree, "dag.py", "exec"), {}, names)  # our own text
    return names.tasks


def comparable(pod: dict[str, Any]) -> dict[str, Any]:
    """A step's own pod: nothing is different."""
    return pod
