"""The supervisor as one file, for images that do not have gpuflow: `python3 gpuflow-run …`, Python 3.8 or newer.

The file holds the sources of this package and a loader for them; nothing is unpacked. The same package gives the same
bytes. `config_map` is the manifest that carries it, with a second small file beside it, so that a training script can
say `from gpuflow_runtime import checkpointing` when the mount is on its path.
"""

from __future__ import annotations

import ast
import importlib.resources
import json

from gpuflow.runtime import CONTRACT
from gpuflow.runtime.wrapping import FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FIRST = """\
if __name__ == "__main__":
    import _signal

    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGTERM, _signal.SIGINT))
"""
_LEFT_OUT = ("bundle", "wrapping")
_LOADER = """\
import sys
from importlib.machinery import ModuleSpec


class Packed:
    def find_spec(self, name, path=None, target=None):
        if name in MODULES:
            return ModuleSpec(name, self, origin=__file__, is_package=name in ("gpuflow", "gpuflow.runtime"))
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(compile(MODULES[module.__name__], "<gpuflow-run>/" + module.__name__, "exec"), module.__dict__)


sys.meta_path.insert(0, Packed())

if __name__ == "__main__":
    from gpuflow.runtime.main import main

    sys.exit(main())
"""
IMPORTABLE = f'''\
"""Checkpointing for scripts in images without gpuflow: from gpuflow_runtime import checkpointing"""

try:
    from gpuflow.runtime.saving import Checkpointing, checkpointing
except ImportError:
    import os

    _packed = os.path.join(os.path.dirname(os.path.abspath(__file__)), "{FILE}")
    with open(_packed, encoding="utf-8") as _file:
        exec(compile(_file.read(), _packed, "exec"), {{"__name__": "gpuflow_run", "__file__": _packed}})
    from gpuflow.runtime.saving import Checkpointing, checkpointing
'''


def single_file() -> str:
    """The whole runtime as the text of one Python program."""
    modules = {"gpuflow": ""}
    folder = importlib.resources.files("gpuflow.runtime")
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        stem, dot, suffix = item.name.partition(".")
        if dot and suffix == "py" and stem not in _LEFT_OUT:
            name = "gpuflow.runtime" if stem == "__init__" else f"gpuflow.runtime.{stem}"
            modules[name] = without_comments(item.read_text(encoding="utf-8"))
    lines = [
        "#!/usr/bin/env python3",
        f"# gpuflow-run, contract {CONTRACT}; made from gpuflow's own sources",
        _FIRST + "MODULES = {",
    ]
    lines += [f"    {json.dumps(name)}: {json.dumps(text)}," for name, text in sorted(modules.items())]
    return "\n".join(lines) + "\n}\n" + _LOADER


def config_map(name: str = "gpuflow-runtime", namespace: str | None = None) -> dict[str, Any]:
    """A ConfigMap ready to apply; mount it at the site's `runtime.mount`."""
    metadata: dict[str, Any] = {"name": name, "labels": {"app.kubernetes.io/part-of": "gpuflow"}}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {FILE: single_file(), "gpuflow_runtime.py": IMPORTABLE},
    }


def without_comments(source: str) -> str:
    """The same program without docstrings and comments: half the size, and it starts sooner."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [part for part in body if not _is_text(part)]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]  # only nodes with a body come here
    return ast.unparse(tree) + "\n"


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
