"""The supervisor as one file, for images that do not have gpuflow: `python3 gpuflow-run …`, Python 3.8 or newer.

The file holds the sources of this package and a loader for them; nothing is unpacked. The same package gives the same
bytes. `config_map` is the manifest that carries it, with a second small file beside it, so that a training script can
say `from gpuflow_runtime import checkpointing` when the mount is on its path. It is immutable and named after its
content: an artifact that names it says which supervisor it runs, and pods that run keep theirs after an upgrade.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.resources
import json

from gpuflow.runtime import CONTRACT
from gpuflow.runtime.wrapping import FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FIRST = """\
import sys

if __name__ == "__main__" and sys.version_info >= (3, 8):
    import _signal

    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGTERM, _signal.SIGINT))
if sys.version_info < (3, 8):
    import os

    said = "gpuflow-run: %s is Python %d.%d, and 3.8 or newer is needed: " % ((sys.executable,) + sys.version_info[:2])
    said += "install one in the image, and name it as runtime.python in the site"
    if __name__ != "__main__":
        raise ImportError(said)
    words = sys.argv[1 : sys.argv.index("--") if "--" in sys.argv else None]
    log = os.environ.get("GPUFLOW_RUN_TERMINATION_LOG", "/dev/termination-log")
    for at, word in enumerate(words):
        if word == "--termination-log":
            log = "".join(words[at + 1 : at + 2])
        elif word.startswith("--termination-log="):
            log = word.split("=", 1)[1]
    sys.stderr.write(said + "\\n")
    if os.path.exists(log):
        try:
            with open(log, "w") as last:
                last.write(said + "\\n")
        except (IOError, OSError):
            pass
    sys.exit(79)
"""
"""What older Pythons read too, 2.7 among them: none of the words above is newer, and `MODULES` is only text."""
ANNOTATION = "gpuflow.dev/runtime-digest"
_LEFT_OUT = ("bundle", "wrapping")
_LOADER = """\
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

import sys

if sys.version_info < (3, 8):
    raise ImportError("gpuflow_runtime needs Python 3.8 or newer, and this is %d.%d" % tuple(sys.version_info[:2]))
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
    # In single quotes: the sources are full of double ones, and each would need a backslash.
    lines += [f"    {name!a}: {text!a}," for name, text in sorted(modules.items())]
    return "\n".join(lines) + "\n}\n" + _LOADER


@functools.lru_cache(maxsize=1)
def _data() -> dict[str, str]:
    return {FILE: single_file(), "gpuflow_runtime.py": IMPORTABLE}


@functools.lru_cache(maxsize=1)
def digest() -> str:
    """SHA-256 over the ConfigMap's `data`, as JSON with sorted keys and no spaces."""
    return hashlib.sha256(json.dumps(_data(), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def config_map_name(prefix: str = "gpuflow-runtime") -> str:
    """`gpuflow-runtime-1a2b3c4d`: another content has another name."""
    return f"{prefix}-{digest()[:8]}"


def config_map(prefix: str = "gpuflow-runtime", namespace: str | None = None) -> dict[str, Any]:
    """A ConfigMap ready to apply; mount it at the site's `runtime.mount`."""
    metadata: dict[str, Any] = {
        "name": config_map_name(prefix),
        "labels": {"app.kubernetes.io/part-of": "gpuflow"},
        "annotations": {ANNOTATION: f"sha256:{digest()}"},
    }
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": dict(_data())}


def without_comments(source: str) -> str:
    """The same program without docstrings and comments: half the size, and it starts sooner.

    Lines are cut and never written anew, so that every version of Python makes the same bytes of it.
    """
    lines = [line.encode() for line in source.split("\n")]
    inside: dict[int, list[tuple[int, int]]] = {}
    """The texts on each line, from column to column: what looks like a comment there is none."""
    docstrings = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Constant, ast.JoinedStr)):
            last = node.end_lineno or node.lineno
            for row in range(node.lineno, last + 1):
                begin = node.col_offset if row == node.lineno else 0
                inside.setdefault(row, []).append((begin, (node.end_col_offset or 0) if row == last else 1 << 30))
        body = getattr(node, "body", None)
        texts = [part for part in body if _is_text(part)] if isinstance(body, list) else []
        docstrings += [(text, len(texts) == len(body or ()) and text is texts[0]) for text in texts]
    for row, line in enumerate(lines, 1):
        at = line.find(b"#")
        while at >= 0 and any(begin <= at < end for begin, end in inside.get(row, ())):
            at = line.find(b"#", at + 1)
        if at >= 0:
            lines[row - 1] = line[:at].rstrip()
    for text, alone in docstrings:
        for row in range(text.lineno, (text.end_lineno or text.lineno) + 1):
            lines[row - 1] = b""
            inside.pop(row, None)
        if alone:
            lines[text.lineno - 1] = b" " * text.col_offset + b"pass"
    return b"\n".join(line for row, line in enumerate(lines, 1) if line.strip() or row in inside).decode() + "\n"


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
