"""What a Python file is, by its text alone: it is parsed, never imported."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from gpuflow import yaml_tree
from gpuflow.errors import Where, fail
from gpuflow.spec.loading import read_bytes

Kind = Literal["pipeline", "airflow", "hera", "other"]
_AIRFLOW_OURS = ("gpuflow.airflow",)


def program_of(file: str) -> Kind:
    """A pipeline of ours, an Airflow DAG, a Hera workflow, or something else."""
    tree = parsed(file)
    names = set(_imported(tree))
    roots = {name.partition(".")[0] for name in names}
    if {"gpuflow.Pipeline", "gpuflow.spec.pipeline.Pipeline"} & names or _says(tree, "gpuflow", "Pipeline"):
        return "pipeline"
    if "airflow" in roots or any(name.startswith(_AIRFLOW_OURS) for name in names):
        return "airflow"
    if "hera" in roots:
        return "hera"
    # What a module beside it makes, only running it would tell: such a file may be a pipeline of ours.
    return "pipeline" if _has_own_modules(file, roots) else "other"


def parsed(file: str) -> ast.Module:
    """The file's syntax tree, or GF192."""
    text = yaml_tree.decode(read_bytes(Path(file), named=True), file)
    try:
        return ast.parse(text, file)
    except SyntaxError as refusal:
        where = Where(file, refusal.lineno, refusal.offset)
        raise fail("GF192", f"not valid Python: {refusal.msg}", where=where) from None
    except (ValueError, RecursionError, MemoryError):
        raise fail("GF192", "not valid Python: it nests too deeply, or holds a NUL", where=Where(file)) from None


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _says(tree: ast.Module, module: str, name: str) -> bool:
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
