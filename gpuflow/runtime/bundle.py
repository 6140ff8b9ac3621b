"""The supervisor as it is delivered: one file for images that do not have gpuflow, and a step's command under it.

The one file (`python3 gpuflow-run …`, Python 3.8 or newer) holds the sources of this package and a loader for them;
nothing is unpacked. The same package gives the same bytes. `config_map` is the manifest that carries it, with a second
small file beside it, so that a training script can say `from gpuflow_runtime import checkpointing` when the mount is
on its path. It is immutable and named after its content: an artifact that names it says which supervisor it runs, and
pods that run keep theirs after an upgrade.

`wrap` makes the list of words that goes into the container's `command`. There are two deliveries. `image`: gpuflow-run
is installed in the image. `config-map`: the one file is mounted, and runs under the image's own Python; an image
without one ends at once with the final code and one sentence. User text travels as separate words and is never read by
the shell.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.resources
import json

from gpuflow.runtime import CONTRACT
from gpuflow.runtime.base import options as table
from gpuflow.runtime.base.outcomes import EXIT_FINAL

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from importlib.resources.abc import Traversable
    from typing import Any

FILE = "gpuflow-run"
"""The ConfigMap's key, and the name of the file in the mounted directory."""

# No `$(` and no `$$`: Kubernetes and Argo would read them before the shell does.
NEEDS_PYTHON = (
    'if command -v "$0" >/dev/null 2>&1; then exec "$0" "$@"; fi; '
    'm="gpuflow-run: this image has no $0; install Python 3.8 or newer in it, or install gpuflow in the image '
    'and set runtime.delivery: image in the site"; echo "$m" >&2; '
    'if [ -w /dev/termination-log ]; then echo "$m" >/dev/termination-log; fi; '
    f"exit {EXIT_FINAL}"
)


def wrap(
    command: Sequence[str],
    options: Mapping[str, Any],
    *,
    delivery: str = "image",
    mount: str = "/gpuflow/bin",
    python: str = "python3",
) -> list[str]:
    """`command` under `gpuflow-run` with `options` (by option name, `run-id` or `run_id`); None is left out."""
    return delivery_command([*option_words(options), "--", *command], delivery=delivery, mount=mount, python=python)


def delivery_command(words: Sequence[str], *, delivery: str, mount: str, python: str) -> list[str]:
    """`gpuflow-run` with these words, as it is delivered."""
    if delivery == "image":
        return [FILE, *words]
    if delivery == "config-map":
        return ["sh", "-c", NEEDS_PYTHON, python, f"{mount.rstrip('/')}/{FILE}", *words]
    raise ValueError(f'delivery "{delivery}" is neither image nor config-map')


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Options as words, `--name=value`, in the order of the table, so that the same options give the same words."""
    given = {name.replace("_", "-"): value for name, value in options.items() if value is not None}
    unknown = sorted(set(given) - {option.name for option in table.TABLE})
    if unknown:
        raise ValueError(f"gpuflow-run has no option --{unknown[0]}")
    words: list[str] = []
    for option in table.TABLE:
        if option.name in given:
            value = given[option.name]
            if option.kind == "flag":
                words += [f"--{option.name}"] if value else []
                continue
            values = value if option.kind == "list" else [value]
            words += [f"--{option.name}={_option_text(option, item)}" for item in values]
    return words


def _option_text(option: table.Option, value: Any) -> str:
    if option.kind == "codes" and not isinstance(value, str):
        return ",".join(str(code) for code in value)
    if option.kind in ("span", "every") and isinstance(value, (int, float)):
        return f"{value:g}s"
    return str(value)


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
_LEFT_OUT = ("bundle",)
_LOADER = """\
from importlib.machinery import ModuleSpec

PACKAGES = {name.rpartition(".")[0] for name in MODULES}


class Packed:
    def find_spec(self, name, path=None, target=None):
        if name in MODULES:
            return ModuleSpec(name, self, origin=__file__, is_package=name in PACKAGES)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(compile(MODULES[module.__name__], "<gpuflow-run>/" + module.__name__, "exec"), module.__dict__)


sys.meta_path.insert(0, Packed())

if __name__ == "__main__":
    from gpuflow.runtime.supervise.main import main

    sys.exit(main())
"""
IMPORTABLE = f'''\
"""Checkpointing for scripts in images without gpuflow: from gpuflow_runtime import checkpointing"""

import sys

if sys.version_info < (3, 8):
    raise ImportError("gpuflow_runtime needs Python 3.8 or newer, and this is %d.%d" % tuple(sys.version_info[:2]))
try:
    from gpuflow.runtime import Checkpointing, checkpointing
except ImportError:
    import os

    _packed = os.path.join(os.path.dirname(os.path.abspath(__file__)), "{FILE}")
    with open(_packed, encoding="utf-8") as _file:
        exec(compile(_file.read(), _packed, "exec"), {{"__name__": "gpuflow_run", "__file__": _packed}})
    from gpuflow.runtime import Checkpointing, checkpointing
'''


def single_file() -> str:
    """The whole runtime as the text of one Python program."""
    modules = {"gpuflow": "", **dict(_sources("gpuflow.runtime", importlib.resources.files("gpuflow.runtime")))}
    lines = [
        "#!/usr/bin/env python3",
        f"# gpuflow-run, contract {CONTRACT}; made from gpuflow's own sources",
        _FIRST + "MODULES = {",
    ]
    # In single quotes: the sources are full of double ones, and each would need a backslash.
    lines += [f"    {name!a}: {text!a}," for name, text in sorted(modules.items())]
    return "\n".join(lines) + "\n}\n" + _LOADER


def _sources(package: str, folder: Traversable) -> Iterator[tuple[str, str]]:
    """The modules of a package and of those inside it, by name."""
    for item in folder.iterdir():
        stem, dot, suffix = item.name.partition(".")
        if dot and suffix == "py" and stem not in _LEFT_OUT:
            name = package if stem == "__init__" else f"{package}.{stem}"
            yield name, without_comments(item.read_text(encoding="utf-8"))
        elif not dot and (item / "__init__.py").is_file():
            yield from _sources(f"{package}.{stem}", item)


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
        texts = [part for part in body if _is_docstring(part)] if isinstance(body, list) else []
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


def _is_docstring(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
