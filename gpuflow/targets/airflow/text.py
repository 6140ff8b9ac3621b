"""A DAG as the text of a Python file."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpuflow.printable import comment
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.airflow.dag import RESERVED, Dag, Made
from gpuflow.targets.airflow.homes import HOMES
from gpuflow.targets.airflow.in_images import image_lines
from gpuflow.targets.airflow.python import Call, Name, commented, imports_in, names_in, source, with_names
from gpuflow.targets.airflow.reasons import of_constant, of_settings, with_reasons
from gpuflow.targets.airflow.sharing import Defaults, Shared
from gpuflow.targets.frame import Request, header

FILE_NAMES = ("dag", "ends", "run_name", "literal")
"""Names that the file itself gives."""
BELOW = HOMES["KubernetesPodOperator"]
"""What gpuflow.airflow stands on. A DAG processor loads the Airflow modules that a file names before it forks for each
file; what only gpuflow names, each fork would load anew, for a second of processor time."""
_WHY_BELOW = commented(
    "gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks."
)


def dag_file(dag: Dag, request: Request, homes: Mapping[str, str] = HOMES) -> str:
    """The text of the file. `homes`: where its names are imported from."""
    own = _own_imports(dag)
    dag = _with_imports(dag, own)
    names = names_in([dag.settings, *(made.call for made in dag.tasks)]) | _bases(dag.functions)
    used = {"DAG"} | {name for name in names if name in HOMES}
    if any(made.group for made in dag.tasks):
        used.add("TaskGroup")
    lines = [*comment([*header(request), *image_lines(request)]).splitlines(), "", *_imports(used, own, homes), ""]
    for function in dag.functions:
        lines += ["", function, ""]
    lines += [""] if dag.functions else []
    calls = [made.call for made in dag.tasks]
    shared = Shared(calls, _defaults(request.pipeline))
    lines += _constants(shared.constants)
    settings = of_settings(dag.settings, calls)
    lines += [*([""] if shared.constants else []), f"with {source(Call('DAG', (), settings), '', 12)} as dag:"]
    lines += _tasks(
        [Made(made.variable, made.group, with_reasons(shared.named(made.call), made.call)) for made in dag.tasks]
    )
    lines += _edges(dag.edges)
    lines += [*([""] if dag.roles else []), *(f"    {source(role, '    ')}" for role in dag.roles)]
    return "\n".join(lines) + "\n"


def _bases(definitions: Iterable[str]) -> set[str]:
    """What the classes that the file defines stand on."""
    parts = [part for text in definitions for part in ast.parse(text).body if isinstance(part, ast.ClassDef)]
    return {base.id for part in parts for base in part.bases if isinstance(base, ast.Name)}


def _constants(constants: Mapping[str, Any]) -> list[str]:
    """Constants, each kind with its reason before the first of them."""
    lines: list[str] = []
    said: set[str] = set()
    for name, value in constants.items():
        if (because := of_constant(name, value)) and because not in said:
            said.add(because)
            lines += commented(because)
        lines.append(f"{name} = {source(value, '', len(name) + 3)}")
    return lines


def _defaults(pipeline: Pipeline) -> Defaults:
    """The variables that the defaults of each pipeline in the file give to its steps."""
    env: dict[str, frozenset[str]] = {}
    left = [pipeline]
    while left:
        each = left.pop()
        env[each.name] = env.get(each.name, frozenset()) | frozenset(each.defaults.env)
        left += [step.pipeline for step in each.steps.values() if step.pipeline is not None]
    return Defaults(pipeline.name, env)


def _own_imports(dag: Dag) -> dict[tuple[str, str], str]:
    """What the user names by import path, and the name that each has in the file: its own, unless that is taken."""
    names: dict[tuple[str, str], str] = {}
    taken = {*dag.taken, *RESERVED, *FILE_NAMES}
    for each in imports_in([dag.settings, *(made.call for made in dag.tasks)]):
        if (each.module, each.attribute) in names:
            continue
        name = each.attribute
        if HOMES.get(name) == each.module:  # the file means the same object by this name
            names[each.module, name] = name
            continue
        if name in taken or name.isupper():  # in capitals, the file names parts of pods
            name = f"{each.module}.{each.attribute}".replace(".", "_").lower()
        while name in taken:
            name += "_"
        taken.add(name)
        names[each.module, each.attribute] = name
    return names


def _with_imports(dag: Dag, own: Mapping[tuple[str, str], str]) -> Dag:
    tasks = [Made(made.variable, made.group, with_names(made.call, own)) for made in dag.tasks] if own else dag.tasks
    return replace(dag, settings=with_names(dag.settings, own), tasks=tasks)


def _imports(used: set[str], own: Mapping[tuple[str, str], str], homes: Mapping[str, str]) -> list[str]:
    """Import lines as isort groups them: standard library, Airflow, gpuflow, and the user's own."""
    modules: dict[str, list[str]] = {}
    for name in sorted(used):
        modules.setdefault(homes[name], []).append(name)
    for (module, attribute), name in sorted(own.items()):
        modules.setdefault(module, []).append(attribute if name == attribute else f"{attribute} as {name}")
    modules = {module: sorted({*names}, key=_in_order) for module, names in modules.items()}
    theirs = {module for module, _ in own}
    stock = sorted(m for m in modules if m.startswith("airflow."))
    groups = [["datetime", "zoneinfo"], stock, ["gpuflow.airflow"]]
    groups.append(sorted(theirs - {module for group in groups for module in group}))
    lines: list[str] = []
    for group in groups:
        block = [line for module in group if module in modules for line in _import(module, modules[module])]
        if group is stock and "gpuflow.airflow" in modules and BELOW not in modules:
            block = [*_WHY_BELOW, f"import {BELOW}  # noqa: F401", *block]
        if block:
            lines += [*([""] if lines else []), *block]
    return lines


def _in_order(name: str) -> tuple[bool, bool, str]:
    """Constants, then classes, then functions."""
    return not name.isupper(), not name[0].isupper(), name


def _import(module: str, names: list[str]) -> list[str]:
    """One line for a module, and one for each name that it has another name in the file."""
    renamed = [([name], [f"from {module} import {name}"]) for name in names if " as " in name]
    plain = [name for name in names if " as " not in name]
    lines = [*renamed, *([(plain, _import_plain(module, plain))] if plain else [])]
    return [line for _, block in sorted(lines, key=lambda each: _in_order(each[0][0])) for line in block]


def _import_plain(module: str, names: list[str]) -> list[str]:
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
