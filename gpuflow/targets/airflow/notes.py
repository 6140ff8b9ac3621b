"""What a reader of a DAG file should know about it, although nothing is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from gpuflow.errors import Finding
from gpuflow.targets.frame import Request

IMPORTED = frozenset(
    {
        "airflow", "gpuflow", "hera", "jinja2", "kfp", "kubernetes", "kubernetes_asyncio", "numpy", "pendulum",
        "pydantic", "sqlalchemy", "torch", "yaml",
    }
)  # fmt: skip
"""Packages that DAG files import, and some that these need. A file of their name that is found first is imported."""


def file_of(pipeline: str) -> str:
    """The DAG file of a pipeline, by the pipeline's name."""
    return f"{pipeline.replace('-', '_')}.py"


def notes_of(request: Request) -> Iterator[Finding]:
    """`python dags/x.py` looks for modules in dags/ first, so a DAG file must not be called as one of them."""
    name = request.pipeline.name
    module = file_of(name).removesuffix(".py")
    if module in IMPORTED or module in sys.stdlib_module_names:
        text = f'pipeline "{name}" becomes {file_of(name)}, which has the name of the Python module {module}'
        hint = f'rename the pipeline, for example "{name}-pipeline", or name another file: -o dags/{module}_dag.py'
        yield Finding("GF320", text, request.pipeline.where("name"), hint, "warning")
