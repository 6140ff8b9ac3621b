"""Where a DAG file makes its tasks, by its text alone."""

from __future__ import annotations

import ast

from gpuflow.errors import Where


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
