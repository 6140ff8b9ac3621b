"""From a Python file to documents: the file runs in a process of its own, and only its answer is read.

The process has a time limit, no credentials, and one file for its answer; it is a copy of one that has imported the
engine already, so that many files take little longer than one. What a file is, where a DAG file makes its
tasks, and which arguments of old examples today's operators refuse or ignore is told by its text, which is parsed and
never imported.
"""

from __future__ import annotations

import ast
import atexit
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from msgspec import ValidationError, convert, to_builtins

from gpuflow.core import yaml_tree
from gpuflow.core.errors import EnvironmentFailure, Finding, GpuflowError, Where, fail, install_line
from gpuflow.engines import AIRFLOW, ARGO
from gpuflow.formats.airflow import Answer, Fault
from gpuflow.formats.documents import DAG, Document, kind_of, silenced_in
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


TIME_LIMIT = 180
"""Seconds that a file may take, its imports included."""
PATIENCE = 10
"""Seconds that a program which gives no answer may take to end."""
MOST_ANSWER = 64 * 1024 * 1024
VARIABLES = "AIRFLOW_VAR_"
"""Begins what gives an Airflow Variable its value, which somebody must have set for this."""
KEPT_ENVIRONMENT = (
    "AIRFLOW__CORE__DAGS_FOLDER",
    "PATH",
    "PYTHONPATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "SYSTEMROOT",
    "LD_LIBRARY_PATH",
)
"""What of the environment a file sees. No credential, no kubeconfig, no home folder."""
UNSET = 1_000_003
"""Says that a limit is only Airflow's setting, and not the file's; `inside_engine` knows it too."""


def answer_of(engine: str, file: str, python: str, params: Mapping[str, str] | None = None) -> Answer:
    """What the program beside this module says about a file of an engine."""
    exe = os.path.abspath(python) if os.sep in python else shutil.which(python) or python
    with tempfile.TemporaryDirectory(prefix="gpuflow-") as home:
        answer, log = Path(home) / "answer.json", Path(home) / "log"
        asked = {"file": os.path.abspath(file), "answer": str(answer), "log": str(log), "params": dict(params or {})}
        code = _ask(_reader(engine, exe, log, file), {**asked, "environment": _environment(home)}, file)
        if not answer.is_file():
            raise _unreadable_error(file, f"it ended with code {code} before its DAGs were known{_last_lines(log)}")
        return _read(answer, file)


def _environment(home: str) -> dict[str, str]:
    """What a file sees."""
    kept = [name for name in os.environ if name in KEPT_ENVIRONMENT or name.startswith(VARIABLES)]
    environment = {name: os.environ[name] for name in kept}
    if paths := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(each) for each in paths.split(os.pathsep))
    return environment | {
        "HOME": home,
        "TMPDIR": home,
        "AIRFLOW_HOME": home,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": str(UNSET),
        "AIRFLOW__CORE__MAX_ACTIVE_RUNS_PER_DAG": str(UNSET),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }


@dataclass(frozen=True)
class _Reader:
    process: subprocess.Popen[bytes]
    told: int
    """What it answers by. Its standard output is everybody's: a wrapper or a start-up file may print there."""


_READERS: dict[tuple[str | None, ...], _Reader] = {}
"""Processes that have imported an engine and wait for files, by engine, Python and what its imports depend on."""


def _reader(engine: str, exe: str, log: Path, file: str) -> _Reader:
    """The process for an engine, started where there is none. It ends when gpuflow does, with its standard input."""
    home = _home()
    environment = _environment(home)
    key = (engine, exe, *(environment.get(name) for name in KEPT_ENVIRONMENT))
    known = _READERS.get(key)
    if known is not None and known.process.poll() is None:
        return known
    told, tells = os.pipe()
    words = [exe, str(Path(__file__).parent / "inside_engine.py"), engine, str(tells)]
    with log.open("wb") as stream:
        try:
            process = subprocess.Popen(
                words,
                env=environment,
                cwd=home,
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                pass_fds=[tells],
            )
        except OSError as refusal:
            os.close(told)
            hint = "--airflow-python names a Python that has Airflow"
            text = f"{exe} cannot be run: {refusal.strerror}"
            raise EnvironmentFailure(Finding("GF707", text, Where(file), hint)) from None
        finally:
            os.close(tells)
    _READERS[key] = _Reader(process, told)
    return _READERS[key]


@cache
def _home() -> str:
    """A home for those processes, removed when gpuflow ends."""
    home = tempfile.TemporaryDirectory(prefix="gpuflow-", ignore_cleanup_errors=True)
    atexit.register(home.cleanup)
    return home.name


def _ask(reader: _Reader, asked: Mapping[str, Any], file: str) -> int:
    """How the process that read a file ended. What the file has started in its session ends with it."""
    process, pid = reader.process, None
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        process.stdin.flush()
        pid = int(_line(reader.told, file))
        return os.waitstatus_to_exitcode(int(_line(reader.told, file)))
    except (OSError, ValueError):  # it is no Python, or has no room, or hands the descriptor to nobody
        with suppress(OSError, subprocess.TimeoutExpired):
            process.stdin.close()
            return process.wait(PATIENCE)
        process.kill()
        return process.wait()
    except BaseException:
        process.kill()
        raise
    finally:
        if pid is not None:
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)


def _line(stream: int, file: str) -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        if not select.select([stream], [], [], TIME_LIMIT)[0]:
            hint = "a DAG file should only describe; move work, waits and network calls into its tasks"
            text = f"{file} was stopped: it ran for more than {TIME_LIMIT} seconds"
            raise fail("GF708", text, where=Where(file), hint=hint)
        part = os.read(stream, 1)
        if not part:
            break
        found += part
    return found


def _read(answer: Path, file: str) -> Answer:
    if answer.stat().st_size > MOST_ANSWER:
        raise _unreadable_error(file, "it says too much")
    try:
        return convert(json.loads(answer.read_text(encoding="utf-8")), Answer)
    except (ValueError, ValidationError, RecursionError):
        raise _unreadable_error(file, "what it says cannot be read") from None


def _unreadable_error(file: str, because: str) -> GpuflowError:
    return fail("GF708", f"{file} could not be read: {because}", where=Where(file), hint="run it by itself to see why")


def _last_lines(log: Path) -> str:
    """The last line that it printed: data of a stranger's, cut short."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - 4096))
            lines = [each.strip() for each in stream.read().decode("utf-8", "replace").splitlines() if each.strip()]
    except OSError:
        return ""
    return f"; its last words: {lines[-1][:300]}" if lines else ""


@dataclass(frozen=True)
class Pythons:
    """Which Python runs which files; None: the one that gpuflow itself runs in."""

    airflow: str | None = None
    hera: str | None = None


def read_program(
    file: str, pythons: Pythons, *, allowed: bool, params: Mapping[str, str] | None = None
) -> list[Document]:
    """The DAGs or workflows of a file. Reading it runs it: `allowed` must say so. `params`: values of a DAG's."""
    kind = program_of(file)
    if kind not in ("airflow", "hera"):
        text = f"{file} is Python, but no pipeline of gpuflow, no Airflow DAG and no Hera workflow"
        raise fail("GF702", text, where=Where(file, 1, 1))
    if not allowed:
        what = "an Airflow DAG" if kind == "airflow" else "a Hera workflow"
        hint = "read what it does, then allow it: --allow-python runs it without credentials, in a process of its own"
        raise fail("GF196", f"{file} is {what}: a program, which is not run", where=Where(file), hint=hint)
    silenced = silenced_in(read_bytes(Path(file), named=True).decode("utf-8", "replace"))
    documents = _dags(file, parse_file(file), pythons, params) if kind == "airflow" else _workflows(file, pythons)
    return [replace(each, silenced=silenced) for each in documents]


def _dags(file: str, tree: ast.Module, pythons: Pythons, params: Mapping[str, str] | None) -> list[Document]:
    old = list(old_snippets(tree, file))
    answer = answer_of(AIRFLOW, file, pythons.airflow or sys.executable, params)
    if answer.fault is not None:
        raise _program_error(answer.fault, file, AIRFLOW, old)
    places = places_of(tree, file)
    documents = []
    for index, dag in enumerate(answer.dags):
        dag.line = _place(places.get(dag.dag_id, Where(file, 1, 1)))
        dag.old = [(each.code, each.message, *_place(each.where), each.hint) for each in old]
        for task in dag.tasks:
            place = places.get(task.task_id.rpartition(".")[2])
            task.line = None if place is None else _place(place)
        whole = {"metadata": {"name": dag.dag_id}, **to_builtins(dag)}
        documents.append(Document(whole, file, *DAG, index, dag=dag))
    if not documents:
        hint = "Airflow takes the DAGs at the top level of a file"
        raise fail("GF709", f"{file} makes no DAG", where=Where(file, 1, 1), hint=hint)
    return documents


def _place(where: Where) -> tuple[int, int]:
    return where.line or 1, where.column or 1


def _workflows(file: str, pythons: Pythons) -> list[Document]:
    answer = answer_of("hera", file, pythons.hera or sys.executable)
    if answer.fault is not None:
        raise _program_error(answer.fault, file, "hera", [])
    documents = [Document(tree, file, *kind_of(tree), index) for index, tree in enumerate(answer.documents)]
    if not documents:
        hint = "gpuflow takes the Workflow objects at the top level of a file"
        raise fail("GF709", f"{file} makes no workflow", where=Where(file, 1, 1), hint=hint)
    return documents


def _program_error(fault: Fault, file: str, engine: str, old: list[Finding]) -> GpuflowError:
    if (fault.missing or "").partition(".")[0] == engine:
        title, extra = ("Airflow", AIRFLOW) if engine == AIRFLOW else ("Hera", ARGO)
        hint = f"--{engine}-python EXE names a Python that has it; or install it here:\n{install_line(extra)}"
        return EnvironmentFailure(Finding("GF707", f"{file} needs {title}, which this Python lacks", Where(file), hint))
    where = Where(file, fault.line, None if fault.line is None else 1)
    text = f"{file} cannot be loaded: {fault.message[:1000]}"
    hint = "it runs without the environment's credentials and connections"
    if fault.variable is not None:
        text = f"{file} cannot be loaded: Variable {fault.variable} has no value here"
        hint = f"give it a default in the file, or set {VARIABLES}{fault.variable.upper()}"
    return GpuflowError([Finding("GF708", text, where, hint), *old])
