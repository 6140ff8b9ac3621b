"""A DAG as the text of a Python file."""

from __future__ import annotations

from collections import Counter

from gpuflow.printable import comment
from gpuflow.targets.airflow.dag import Dag, Made
from gpuflow.targets.airflow.homes import HOMES
from gpuflow.targets.airflow.python import Call, Name, names_in, source
from gpuflow.targets.airflow.sharing import Shared
from gpuflow.targets.frame import Request, header


def dag_file(dag: Dag, request: Request) -> str:
    """The text of the file."""
    used = {"DAG"} | {name for name in names_in([dag.settings, *(made.call for made in dag.tasks)]) if name in HOMES}
    if any(made.group for made in dag.tasks):
        used.add("TaskGroup")
    lines = [*comment(header(request)).splitlines(), "", *_imports(used), ""]
    for function in dag.functions:
        lines += ["", function, ""]
    lines += [""] if dag.functions else []
    shared = Shared([made.call for made in dag.tasks])
    lines += [f"{name} = {source(value, '', len(name) + 3)}" for name, value in shared.constants.items()]
    lines += [*([""] if shared.constants else []), f"with {source(Call('DAG', (), dag.settings), '', 12)} as dag:"]
    lines += _tasks([Made(made.variable, made.group, shared.named(made.call)) for made in dag.tasks])
    lines += _edges(dag.edges)
    return "\n".join(lines) + "\n"


def _imports(used: set[str]) -> list[str]:
    """Import lines as isort groups them: standard library, Airflow, gpuflow."""
    modules: dict[str, list[str]] = {}
    for name in sorted(used, key=lambda name: (not name.isupper(), not name[0].isupper(), name)):
        modules.setdefault(HOMES[name], []).append(name)
    groups = [["datetime", "zoneinfo"], sorted(m for m in modules if m.startswith("airflow")), ["gpuflow.airflow"]]
    lines: list[str] = []
    for group in groups:
        block = [line for module in group if module in modules for line in _import(module, modules[module])]
        if block:
            lines += [*([""] if lines else []), *block]
    return lines


def _import(module: str, names: list[str]) -> list[str]:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= 110:
        return [line]
    return [f"from {module} import (", *(f"    {name}," for name in names), ")"]


def _tasks(tasks: list[Made]) -> list[str]:
    """Tasks in document order; neighbors of one group share its `with` block."""
    lines: list[str] = []
    opened: tuple[str, ...] = ()
    for made in tasks:
        common = 0
        while common < min(len(opened), len(made.group)) and opened[common] == made.group[common]:
            common += 1
        for depth in range(common, len(made.group)):
            lines.append(f"{'    ' * (depth + 1)}with TaskGroup({source(made.group[depth])}):")
        opened = made.group
        indent = "    " * (len(opened) + 1)
        lines.append(f"{indent}{made.variable} = {source(made.call, indent, len(made.variable) + 3)}")
    return lines


def _edges(edges: list[tuple[tuple[str, ...], str]]) -> list[str]:
    """`a >> b` lines; a long list that several tasks wait for gets the name `ends`."""
    if not edges:
        return []
    counted = Counter(before for before, _ in edges if len(before) > 3)
    ends = next((before for before, count in counted.items() if count > 1), ())
    lines = [""]
    if ends:
        lines.append(f"    ends = {source([Name(name) for name in ends], '    ', 7)}")
    return lines + [f"    {_edge(before, after, ends)}" for before, after in edges]


def _edge(before: tuple[str, ...], after: str, ends: tuple[str, ...]) -> str:
    if before == ends:
        return f"ends >> {after}"
    if len(before) == 1:
        return f"{before[0]} >> {after}"
    names = list(before)
    if ends and set(ends) < set(before):
        names = ["*ends", *(name for name in before if name not in ends)]
    return f"{source([Name(name) for name in names], '    ', len(after) + 4)} >> {after}"
