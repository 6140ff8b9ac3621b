"""For Airflow 2: a pod that is rendered once, whatever the worker does.

`airflow dags test` and `dag.test()` of Airflow 2 run a deferred task in one process, and render it again when it goes
on. What `literal` kept is plain text by then, so braces of the step's own would be read as a template: the task fails
after its pod was made. A file whose steps have such text gets the stock operator with one method more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gpuflow.targets.airflow.dag import Dag
from gpuflow.targets.airflow.python import Call, Method

STOCK = "KubernetesPodOperator"
ONCE = "RenderedOnce"
MARKS = ("{{", "{%", "{#")
QUOTED = re.compile(r'\{\{ "((?:[^"\\]|\\.)*)" \}\}')
"""Text beside a value, which stands in quotes inside Jinja (`standalone._kept`)."""
DEFINITION = f'''class Rendered(dict):
    """Values that are filled in already."""


class {ONCE}({STOCK}):
    """The stock operator. `airflow dags test` renders it again after a deferral, and would read braces of the pod."""

    def render_template(self, content, *args, **kwargs):
        if isinstance(content, Rendered):
            return content
        value = super().render_template(content, *args, **kwargs)
        return Rendered(value) if isinstance(value, dict) else value'''


def rendered_once(dag: Dag) -> Dag:
    """The DAG with that operator for the tasks whose pods hold braces of their own."""
    tasks = [replace(made, call=_once(made.call)) if _has_marks(made.call) else made for made in dag.tasks]
    if tasks == dag.tasks:
        return dag
    return replace(dag, tasks=tasks, functions=(*dag.functions, DEFINITION))


def _once(call: Any) -> Any:
    if isinstance(call, Method):
        return replace(call, target=_once(call.target))
    if isinstance(call, Call) and call.name in (STOCK, f"{STOCK}.partial"):
        return replace(call, name=call.name.replace(STOCK, ONCE))
    return call


def _has_marks(tree: Any) -> bool:
    """Whether a text that no renderer may change has what Jinja would read."""
    return any(mark in text for text in _kept_texts(tree, False) for mark in MARKS)


def _kept_texts(tree: Any, kept: bool) -> Iterable[str]:
    if isinstance(tree, str):
        yield from [tree] if kept else QUOTED.findall(tree)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _kept_texts(key, kept)
            yield from _kept_texts(value, kept)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _kept_texts(value, kept)
    elif isinstance(tree, Method):
        yield from _kept_texts((tree.target, tree.args, tree.named), kept)
    elif isinstance(tree, Call):
        yield from _kept_texts((tree.args, tree.named), kept or tree.name == "literal")
