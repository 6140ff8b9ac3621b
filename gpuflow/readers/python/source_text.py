"""What a Python file is, by its text alone: it is parsed, never imported.

The text also tells where a DAG file makes its tasks, and which arguments of old examples today's operators refuse or
ignore, so that no GPU is asked for.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from gpuflow.core import yaml_tree
from gpuflow.core.errors import Finding, Where, fail
from gpuflow.spec.loading import read_bytes

Kind = Literal["pipeline", "airflow", "hera", "other"]
_AIRFLOW_OURS = ("gpuflow.airflow",)


def program_of(file: str) -> Kind:
    """A pipeline of ours, an Airflow DAG, a Hera workflow, or something else."""
    tree = parse_file(file)
    names = set(_imported_names(tree))
    roots = {name.partition(".")[0] for name in names}
    if {"gpuflow.Pipeline", "gpuflow.spec.pipeline.Pipeline"} & names or _uses_name(tree, "gpuflow", "Pipeline"):
        return "pipeline"
    if "airflow" in roots or any(name.startswith(_AIRFLOW_OURS) for name in names):
        return "airflow"
    if "hera" in roots:
        return "hera"
    # What a module beside it makes, only running it would tell: such a file may be a pipeline of ours.
    return "pipeline" if _has_own_modules(file, roots) else "other"


def parse_file(file: str) -> ast.Module:
    """The file's syntax tree, or GF192."""
    text = yaml_tree.decode(read_bytes(Path(file), named=True), file)
    try:
        return ast.parse(text, file)
    except SyntaxError as refusal:
        where = Where(file, refusal.lineno, refusal.offset)
        raise fail("GF192", f"not valid Python: {refusal.msg}", where=where) from None
    except (ValueError, RecursionError, MemoryError):
        raise fail("GF192", "not valid Python: it nests too deeply, or holds a NUL", where=Where(file)) from None


def _imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _uses_name(tree: ast.Module, module: str, name: str) -> bool:
    """Whether the file says `module.name`, by whatever name it imports the module."""
    known = {
        each.asname or each.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for each in node.names
        if each.name == module
    }
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.value, ast.Name)
        and node.value.id in known
        for node in ast.walk(tree)
    )


def _has_own_modules(file: str, roots: set[str]) -> bool:
    folder = Path(file).parent
    unknown = roots - set(sys.stdlib_module_names)
    return any((folder / f"{name}.py").exists() or (folder / name).is_dir() or name == "gpuflow" for name in unknown)


OLD_KEYS = ("limit_gpu", "limit_memory", "limit_cpu", "request_memory", "request_cpu", "request_gpu")
"""Keys of the `resources` that operators took before provider version 5."""
NEW = (
    'write container_resources=k8s.V1ResourceRequirements(limits={"nvidia.com/gpu": "1"}, …); '
    "resources= no longer reaches the pod"
)


def old_snippets(tree: ast.Module, file: str) -> Iterator[Finding]:
    """GF751: what the file asks for in words that no operator understands any more."""
    named = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not _is_pod_operator(node.func):
            continue
        for each in node.keywords:
            value = named.get(each.value.id, each.value) if isinstance(each.value, ast.Name) else each.value
            if each.arg == "resources" and (old := _old_keys(value)):
                where = Where(file, each.value.lineno, each.value.col_offset + 1)
                said = ", ".join(old)
                yield Finding("GF751", f"resources= with {said} is an old spelling that asks for nothing", where, NEW)


def _old_keys(value: ast.expr) -> list[str]:
    if isinstance(value, ast.Dict):
        names = [key.value for key in value.keys if isinstance(key, ast.Constant)]
    elif isinstance(value, ast.Call):
        names = [each.arg for each in value.keywords]
    else:
        return []
    return [str(name) for name in names if name in OLD_KEYS]


def _is_pod_operator(node: ast.expr) -> bool:
    """`KubernetesPodOperator(…)`, `.partial(…)` of it, `@task.kubernetes(…)`."""
    if isinstance(node, ast.Attribute):
        return node.attr.endswith("PodOperator") or node.attr == "kubernetes" or _is_pod_operator(node.value)
    return isinstance(node, ast.Name) and node.id.endswith("PodOperator")


def places_of(tree: ast.Module, file: str) -> dict[str, Where]:
    """By the last part of a task's id: the call that names it, or the function that a decorator makes a task of."""
    found: dict[str, Where] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for each in node.keywords:
                if each.arg in ("task_id", "dag_id", "group_id") and isinstance(each.value, ast.Constant):
                    found.setdefault(str(each.value.value), Where(file, node.lineno, node.col_offset + 1))
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and _is_dag(node.func):
                found.setdefault(first.value, Where(file, node.lineno, node.col_offset + 1))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.decorator_list:
            found.setdefault(node.name, Where(file, node.lineno, node.col_offset + 1))
    return found


def _is_dag(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in ("DAG", "dag")
