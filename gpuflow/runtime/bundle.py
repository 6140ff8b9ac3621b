"""The supervisor as it is delivered: a ConfigMap for images that do not have gpuflow, and a step's command under it.

`files` are the ConfigMap's: a small program (`python3 gpuflow-run …`, Python 3.8 or newer) that loads modules from two
texts beside it, this package's sources in two parts, and keeps what it compiled; and `gpuflow_runtime.py`, for training
scripts. Why two parts, why no archive: docs/design/supervisor.md. The same package gives the same bytes. The ConfigMap
is immutable and named after its content: an artifact that names it says which supervisor it runs, and pods that run
keep theirs after an upgrade.

`wrap` makes the list of words that goes into the container's `command`. There are two deliveries. `image`: gpuflow-run
is installed in the image. `config-map`: the ConfigMap is mounted, and runs under the image's own Python; an image
without one ends at once with the final code and one sentence. User text travels as separate words and is never read by
the shell.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.resources
import json
import re

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
    if unknown := sorted(set(given) - {option.name for option in table.TABLE}):
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


EVERYDAY, SECOND = "supervisor.txt", "gangs-and-training.txt"
"""The two parts, each with sources, one module after the other. A step without a gang runs from the first alone."""
_FRAMEWORKS = "pytorch", "dcp", "elastic", "lightning", "huggingface"
_IN_SECOND = tuple(
    f"gpuflow.runtime.{name}" for name in ("gangs", "checkpoints.training", "checkpoints.torch_state", *_FRAMEWORKS)
)
_LEFT_OUT = ("bundle",)
ANNOTATION = "gpuflow.dev/runtime-digest"
_FIRST = f"""\
import sys

if __name__ == "__main__" and sys.version_info >= (3, 8):
    import _signal

    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGTERM, _signal.SIGINT))
import os

PROGRAM = os.path.abspath(__file__)
HERE = os.path.dirname(PROGRAM)
said = ""
if sys.version_info < (3, 8):
    said = "gpuflow-run: %s is Python %d.%d, and 3.8 or newer is needed: " % ((sys.executable,) + sys.version_info[:2])
    said += "install one in the image, and name it as runtime.python in the site"
elif not os.path.exists(os.path.join(HERE, "{EVERYDAY}")):
    said = "gpuflow-run: {EVERYDAY} is not in %s: mount the whole ConfigMap, not one of its files" % HERE
if said and __name__ != "__main__":
    raise ImportError(said)
if said:
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
    sys.exit({EXIT_FINAL})
"""
"""What older Pythons read too, 2.7 among them: none of the words is newer, here and in the loader."""
_LOADER = """\
import marshal
from binascii import crc32
from importlib.machinery import ModuleSpec

PACKAGES = {name.rpartition(".")[0] for name in MODULES}
ROOT, PLACE = "/", "/tmp"
# Names the sources and all that decides what the interpreter makes of them.
KEPT = "%s/.gpuflow-run-%d-%s-%s-%x-%d" % (
    PLACE, os.geteuid(), DIGEST, sys.implementation.cache_tag, sys.hexversion, sys.flags.optimize
)


class Packed:
    def find_spec(self, name, path=None, target=None):
        if name in MODULES:
            return ModuleSpec(name, self, origin=PROGRAM, is_package=name in PACKAGES)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        try:
            code = read_compiled(name)
        except Exception:
            code = compile(self.get_source(name), "<gpuflow-run>/" + name, "exec", dont_inherit=True)
            try:
                keep_compiled(name, marshal.dumps(code))
            except Exception:
                pass
        exec(code, module.__dict__)

    def get_source(self, name):
        part, start, size = MODULES[name]
        with open(os.path.join(HERE, part), "rb") as file:
            file.seek(start)
            return file.read(size).decode("utf-8")


# Compiled code lies in a folder on the container's own disk, never on a volume: there another pod of the same user
# could write. The folder and its files must be this user's alone; no link is followed, and no pipe waited for.
def opened(path, mode, inside=None):
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inside)
    found = os.fstat(handle)
    on_own_disk = inside is not None or found.st_dev == os.stat(ROOT).st_dev
    if on_own_disk and (found.st_mode, found.st_uid) == (mode, os.geteuid()):
        return handle
    os.close(handle)
    raise OSError("something else stands at " + path)


def read_compiled(name):
    folder = opened(KEPT, 0o40700)
    try:
        with open(opened(name, 0o100600, folder), "rb") as file:
            data = file.read()
    finally:
        os.close(folder)
    if data[:4] != crc32(data[4:]).to_bytes(4, "big"):
        raise ValueError("it is not whole: " + name)
    return marshal.loads(data[4:])


def keep_compiled(name, data):
    if os.stat(PLACE).st_dev == os.stat(ROOT).st_dev and not os.path.lexists(KEPT):
        os.mkdir(KEPT, 0o700)
    folder = opened(KEPT, 0o40700)
    part = ".part-" + os.urandom(8).hex()
    try:
        with open(part, "xb", opener=lambda path, flags: os.open(path, flags, 0o600, dir_fd=folder)) as file:
            file.write(crc32(data).to_bytes(4, "big") + data)
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(part, dir_fd=folder)
    finally:
        os.close(folder)


sys.meta_path.insert(0, Packed())

if __name__ == "__main__":
    from gpuflow.runtime.supervise.main import main

    sys.exit(main())
"""
IMPORTABLE = f"""\
import sys

if sys.version_info < (3, 8):
    raise ImportError("gpuflow_runtime needs Python 3.8 or newer, and this is %d.%d" % tuple(sys.version_info[:2]))
try:
    from gpuflow.runtime import Checkpointing, checkpointing, progress
except ImportError:
    import os

    _packed = os.path.join(os.path.dirname(os.path.abspath(__file__)), "{FILE}")
    with open(_packed, encoding="utf-8") as _file:
        exec(compile(_file.read(), _packed, "exec"), {{"__name__": "gpuflow_run", "__file__": _packed}})
    from gpuflow.runtime import Checkpointing, checkpointing, progress
"""
"""For scripts in images without gpuflow: from gpuflow_runtime import checkpointing, progress"""


@functools.lru_cache(maxsize=1)
def files() -> dict[str, str]:
    """The ConfigMap's files by name: the program with an index of the modules, the two parts, what scripts import."""
    modules = {"gpuflow": "", **dict(_sources("gpuflow.runtime", importlib.resources.files("gpuflow.runtime")))}
    parts = {EVERYDAY: bytearray(), SECOND: bytearray()}
    index = []
    for name, text in sorted(modules.items()):
        part = SECOND if name.startswith(_IN_SECOND) else EVERYDAY
        parts[part] += f"# {name}\n".encode()
        index.append(f"    {name!a}: ({part!a}, {len(parts[part])}, {len(text.encode())}),\n")
        parts[part] += text.encode()
    made = hashlib.sha256(parts[EVERYDAY] + parts[SECOND]).hexdigest()[:16]
    program = f"#!/usr/bin/env python3\n# gpuflow-run, contract {CONTRACT}; its sources are in the texts beside it\n"
    program += f"{_FIRST}DIGEST = {made!a}\nMODULES = {{\n{''.join(index)}}}\n{_LOADER}"
    texts = {part: text.decode() for part, text in parts.items()}
    return {FILE: program, **texts, "gpuflow_runtime.py": IMPORTABLE}


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
def digest() -> str:
    """SHA-256 over the ConfigMap's `data`, as JSON with sorted keys and no spaces."""
    return hashlib.sha256(json.dumps(files(), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


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
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": dict(files())}


def without_comments(source: str) -> str:
    """The same program without docstrings and comments, one space deep where it was four: half the size. Lines are cut
    and never written anew, so that every version of Python makes the same bytes of it."""
    lines = [line.encode() for line in source.split("\n")]
    inside: dict[int, list[tuple[int, int]]] = {}
    """The texts on each line, from column to column (-1: begun before): what looks like a comment there is none."""
    docstrings = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Constant, ast.JoinedStr)):
            last = node.end_lineno or node.lineno
            for row in range(node.lineno, last + 1):
                begin = node.col_offset if row == node.lineno else -1
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
    for row, line in enumerate(lines, 1):
        if min(inside.get(row, [(0, 0)]))[0] >= 0:
            lines[row - 1] = re.sub(rb"^( *)\1\1\1", rb"\1", line)
    return b"\n".join(line for row, line in enumerate(lines, 1) if line.strip() or row in inside).decode() + "\n"


def _is_docstring(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
