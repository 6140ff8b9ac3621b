"""From a file to a checked pipeline. YAML is read with positions; a Python file is run and its pipeline taken."""

from __future__ import annotations

import contextlib
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

from gpuflow.core import files, gc_pause, yaml_tree
from gpuflow.core.errors import Finding, GpuflowError, Where, did_you_mean, fail
from gpuflow.spec.pipeline import Pipeline, check
from gpuflow.spec.problems import Source


def load(path: str | Path, *, allow_python: bool = True) -> Pipeline:
    """The pipeline in a `.yaml`, `.yml`, `.json` or `.py` file. Raises `GpuflowError` with every problem it has.

    A Python file is a program, and reading it runs it: `allow_python=False` refuses it.
    """
    file = Path(path)
    if file.suffix == ".py":
        if not allow_python:
            hint = "read what it does, then allow it (--allow-python); or commit it as YAML: gpuflow show --format yaml"
            raise fail("GF196", f"{file} is a program and is not run", where=Where(str(path)), hint=hint)
        return _from_python(file)
    raw = read_bytes(file, named=True)
    return loads(raw, str(path))


@gc_pause.gc_paused()
def loads(text: str | bytes, file: str = "<text>") -> Pipeline:
    """The pipeline in a YAML text; `file` is the name that errors show, and what sub-pipelines are found beside."""
    if not isinstance(text, str | bytes):
        raise TypeError(f"text is a {type(text).__name__}; it must be str or bytes")
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    tree = yaml_tree.parse(raw, file)
    require_kind(tree, "Pipeline", file)
    _include(tree, Path(file).parent, (Path(file),), [])
    return check(Pipeline, tree, Source(file, lambda p, key: yaml_tree.where_of(tree, p, key=key)))


def read_bytes(file: Path, *, named: bool = False, root: Path | None = None, written: str | None = None) -> bytes:
    """The file's bytes, or an error that says why not. `named` and `root` as for `files.read_at_most`. `written`: how
    the user wrote its path, where that begins in another folder."""
    yaml_tree.require_plain_name(str(file))
    try:
        if file.is_dir():
            raise fail("GF100", f"{file} is a directory, not a file", where=Where(str(file)), hint="name a file in it")
        raw = files.read_at_most(file, yaml_tree.MAX_BYTES, named=named, root=root)
        if len(raw) > yaml_tree.MAX_BYTES:
            yaml_tree.refuse_size(max(file.stat().st_size, len(raw)), str(file))
        return raw
    except FileNotFoundError:
        beside = [p.name for p in file.parent.glob("*")] if file.parent.is_dir() else []
        documents = [n for n in beside if n.endswith((".yaml", ".yml", ".py", ".json"))]
        folder = (written or str(file)).removesuffix(file.name)
        hint = did_you_mean(file.name, documents, before=folder)
        raise fail("GF100", f"{file} does not exist", where=Where(str(file)), hint=hint) from None
    except (OSError, ValueError) as refusal:
        files.refuse_outside(refusal, file)
        raise fail("GF100", f"{file} cannot be read: {files.reason_of(refusal)}", where=Where(str(file))) from None


def require_kind(tree: Any, kind: str, file: str) -> None:
    """Refuse documents that are not what they are used as, before every key in them is called unknown."""
    if not isinstance(tree, yaml_tree.Map):
        what = "is empty" if tree is None else "is not a mapping"
        text = f"the document {what}"
        raise fail("GF116", text, where=Where(file, 1, 1), hint=f"begin with apiVersion: gpuflow/v1, kind: {kind}")
    for key, expected in (("apiVersion", "gpuflow/v1"), ("kind", kind)):
        if key not in tree:
            hint = f"add {key}: {expected}"
            if kind == "Pipeline" and not {"kind", "name", "steps"} & tree.keys():
                hint = "this looks like no pipeline of gpuflow; check, demand and show also read documents of Argo, "
                hint += "Kubeflow and Kubernetes, which say apiVersion and kind"
            raise fail("GF114", f'"{key}" is missing', where=yaml_tree.where_of(tree, ()), hint=hint)
        if tree[key] != expected:
            hint = f"gpuflow reads {key}: {expected} here"
            if kind == "Pipeline" and key == "apiVersion" and not str(tree[key]).startswith("gpuflow"):
                hint = "gpuflow reads no manifests of Kubernetes here: name the pipeline that this one was compiled "
                hint += "from, or ask about a single pod in Python, with gpuflow.admit"
            text = f'{key} "{tree[key]}" is not "{expected}"'
            raise fail("GF120", text, where=yaml_tree.where_of(tree, (key,)), hint=hint)


MOST_INCLUDES = 1_000
"""Files that include each other twice at every level would otherwise grow without end."""


def _include(tree: yaml_tree.Map, folder: Path, opened: tuple[Path, ...], included: list[Path]) -> None:
    """Replace `pipeline: file.yaml` by the document it names, all the way down."""
    for section in ("steps", "exit"):
        steps = tree.get(section)
        for name, step in steps.items() if isinstance(steps, yaml_tree.Map) else ():
            inner = step.get("pipeline") if isinstance(step, yaml_tree.Map) else None
            if isinstance(inner, str):
                where = yaml_tree.where_of(tree, (section, name, "pipeline"))
                step["pipeline"] = _read_include(inner, folder, opened, included, where)
            elif isinstance(inner, yaml_tree.Map):
                _include(inner, folder, opened, included)


def _read_include(
    name: str, folder: Path, opened: tuple[Path, ...], included: list[Path], where: Where
) -> yaml_tree.Map:
    file = folder / name
    if Path(name).is_absolute():
        raise fail("GF100", f'"{name}" is an absolute path', where=where, hint="name a file next to this one")
    if file.suffix == ".py":
        text = f'"{name}" is a Python file'
        raise fail("GF100", text, where=where, hint="gpuflow show --format yaml writes it as YAML")
    if file.resolve() in [path.resolve() for path in opened]:
        loop = " -> ".join(str(path) for path in (*opened, file))
        text = f"the pipelines include each other: {loop}"
        raise fail("GF172", text, where=where, hint="remove one of these includes")
    included.append(file)
    if len(included) > MOST_INCLUDES:
        raise fail("GF102", f"more than {MOST_INCLUDES:,} pipelines are included", where=where, hint="use for_each")
    try:
        raw = read_bytes(file, root=files.bounds_of_references(opened[0]), written=name)
    except GpuflowError as refusal:
        first = refusal.findings[0]
        raise GpuflowError(Finding(first.code, first.message, where, first.hint)) from None
    inner = yaml_tree.parse(raw, str(file))
    require_kind(inner, "Pipeline", str(file))
    _include(inner, file.parent, (*opened, file), included)
    return inner  # type: ignore[no-any-return]  # require_kind has seen that it is a mapping


def _from_python(file: Path) -> Pipeline:
    read_bytes(file, named=True)  # says why a file cannot be read, before it is run
    added = str(file.parent.resolve())
    sys.path.insert(0, added)
    try:
        # What the file prints must not get among what gpuflow prints.
        with contextlib.redirect_stdout(sys.stderr):
            names = runpy.run_path(str(file), run_name="gpuflow_pipeline")
    except (GpuflowError, KeyboardInterrupt):
        raise
    except SyntaxError as refusal:
        text = f"not valid Python: {refusal.msg}"
        raise fail("GF192", text, where=Where(str(file), refusal.lineno, refusal.offset)) from None
    except BaseException as refusal:  # whatever the user's file does, the answer is one message
        frames = [f for f in traceback.extract_tb(refusal.__traceback__) if f.filename == str(file)]
        where = Where(str(file), frames[-1].lineno if frames else 1, 1)
        raise fail("GF192", f"the file raised {type(refusal).__name__}: {refusal}", where=where) from None
    finally:
        sys.path.remove(added)
    found = {name: value for name, value in names.items() if isinstance(value, Pipeline)}
    inner = {id(step.pipeline) for value in found.values() for step in value.steps.values()}
    outer = {name: value for name, value in found.items() if id(value) not in inner}
    distinct = {id(value): value for value in outer.values()}
    if len(distinct) != 1:
        have = "no pipeline" if not distinct else "several pipelines: " + ", ".join(outer)
        hint = "leave exactly one Pipeline at the top level of the file"
        raise fail("GF193", f"the file defines {have}", where=Where(str(file), 1, 1), hint=hint)
    pipeline = next(iter(distinct.values()))
    if pipeline._draft is not None:
        text = f'pipeline "{pipeline.name}" is still open'
        raise fail("GF193", text, where=Where(str(file), 1, 1), hint="use `with Pipeline(…) as p:`")
    pipeline._source = Source(str(file), pipeline.source.locate)
    return pipeline
