"""The page about what people import in their own engine code, read from the sources: no engine need be installed."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PARAM = re.compile(r"^:(?:param )?(\w+): ", re.MULTILINE)
FOR_PEOPLE = ("to_dag", "gpu_task", "gpu_step", "task", "GpuPodOperator")
"""What people call in a DAG of their own; the rest stands in compiled files, and may be used as well."""
HEAD = """# Python names for the engines

Every name that your own DAG, Hera workflow or Kubeflow pipeline may import, with all arguments. The names load when
they are first used; `dir()` and completion in a Python shell show them before.

"""


class Said(NamedTuple):
    """A public name: how it is called, what it is, and its arguments with what each says."""

    name: str
    signature: str
    text: str
    arguments: tuple[tuple[str, str, str], ...]
    """Name, default, meaning."""


def page() -> str:
    """The whole page."""
    airflow = names(ROOT / "gpuflow" / "airflow" / "__init__.py")
    first = [name for name in FOR_PEOPLE if name in airflow]
    parts = [HEAD, "## gpuflow.airflow\n", "How they are used: [GPU steps in Airflow](../guides/airflow.md).\n"]
    parts += [section("gpuflow.airflow", said(airflow[name], name)) for name in first]
    parts.append("### In compiled files\n\nValues, limits and small tasks, for a hand-written DAG too.\n")
    parts += [section("gpuflow.airflow", said(airflow[name], name)) for name in sorted(airflow) if name not in first]
    for module, guide in (
        ("argo", "Argo](../guides/argo.md#in-python)"),
        ("kubeflow", "Kubeflow](../guides/kubeflow.md#in-a-hand-written-pipeline)"),
    ):
        parts += [f"## gpuflow.{module}\n", f"How they are used: [{guide}.\n"]
        file = ROOT / "gpuflow" / f"{module}.py"
        parts += [section(f"gpuflow.{module}", said(file, name)) for name in _exported(file)]
    return "\n".join(parts)


def names(file: Path) -> dict[str, Path]:
    """The names of a lazy package, and the file of each."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_NAMES":
            homes: dict[str, tuple[str, ...]] = ast.literal_eval(node.value)
            return {name: file.with_name(f"{home}.py") for home, each in homes.items() for name in each}
    raise ValueError(f"{file} has no _NAMES")


def _exported(file: Path) -> list[str]:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            found: list[str] = ast.literal_eval(node.value)
            return found
    raise ValueError(f"{file} has no __all__")


def said(file: Path, name: str) -> Said:
    """What the source says about a name."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for place, node in enumerate(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return _said(name, node.args, ast.get_docstring(node) or "", 0)
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _said(name, _init(node, tree), _class_text(node, tree), 1)
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            if isinstance(node.value, ast.Name):  # another name for the same
                same = said(file, node.value.id)
                return same._replace(name=name, signature=same.signature.replace(same.name, name, 1))
            after = tree.body[place + 1] if place + 1 < len(tree.body) else None
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            return Said(name, f"{name} = {ast.unparse(node.value)}", str(text), ())
    raise ValueError(f"{file} has no {name}")


def _init(node: ast.ClassDef, tree: ast.Module) -> ast.arguments:
    """The arguments of a class, or of the class of the same file that it comes from; none where neither has any."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            return part.args
    fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
    if fields and any("dataclass" in ast.unparse(each) for each in node.decorator_list):
        return _fields(fields)
    return next((_init(base, tree) for base in _bases(node, tree)), ast.arguments([], [], None, [], [], None, []))


def _fields(fields: list[ast.AnnAssign]) -> ast.arguments:
    """The arguments that the fields of a dataclass make; those after KW_ONLY are only named."""
    rows = [(ast.unparse(each.target), ast.unparse(each.annotation), each.value) for each in fields]
    at = next((place for place, row in enumerate(rows) if row[1] == "KW_ONLY"), len(rows))
    plain, named = rows[:at], rows[at + 1 :]
    defaults = [value for _, _, value in plain if value is not None]
    return ast.arguments(
        [], [ast.arg(name) for name in ("self", *(name for name, _, _ in plain))], None,
        [ast.arg(name) for name, _, _ in named], [value for _, _, value in named], None, defaults,
    )  # fmt: skip


def _class_text(node: ast.ClassDef, tree: ast.Module) -> str:
    """A class's own words, and what those it comes from say of arguments."""
    own = ast.get_docstring(node) or ""
    inherited = [line for base in _bases(node, tree) for line in _params(ast.get_docstring(base) or "")]
    return "\n".join([own, *(f":param {name}: {text}" for name, text in inherited if f":param {name}:" not in own)])


def _bases(node: ast.ClassDef, tree: ast.Module) -> list[ast.ClassDef]:
    wanted = {base.id for base in node.bases if isinstance(base, ast.Name)}
    return [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name in wanted]


def _params(text: str) -> list[tuple[str, str]]:
    parts = PARAM.split(text)
    return [(parts[at], " ".join(parts[at + 1].split())) for at in range(1, len(parts), 2)]


def _said(name: str, arguments: ast.arguments, text: str, skipped: int) -> Said:
    meanings = dict(_params(text))
    plain = [*arguments.posonlyargs, *arguments.args][skipped:]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    rows = [*zip(plain, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    found = [
        (one.arg, "" if default is None else ast.unparse(default), meanings.get(one.arg, "")) for one, default in rows
    ]
    found += [
        (f"{stars}{one.arg}", "", meanings.get(one.arg, ""))
        for stars, one in (("*", arguments.vararg), ("**", arguments.kwarg))
        if one
    ]
    return Said(name, f"{name}({_signature(arguments, skipped)})", PARAM.split(text)[0].strip(), tuple(found))


def _signature(arguments: ast.arguments, skipped: int) -> str:
    shown = ast.arguments(
        [], [ast.arg(one.arg) for one in arguments.args[skipped:]], _bare(arguments.vararg),
        [ast.arg(one.arg) for one in arguments.kwonlyargs], arguments.kw_defaults, _bare(arguments.kwarg),
        arguments.defaults,
    )  # fmt: skip
    return ast.unparse(shown)


def _bare(one: ast.arg | None) -> ast.arg | None:
    return None if one is None else ast.arg(one.arg)


def section(module: str, what: Said) -> str:
    """One name of the page."""
    lines = [f"### {module}.{what.name}\n", f"```python\n{_folded(what.signature)}\n```\n", what.text, ""]
    if what.arguments:
        lines += ["| argument | default | what it says |", "|---|---|---|"]
        for name, default, meaning in what.arguments:
            shown = f"`{default}`" if default else ""
            lines.append(f"| `{name}` | {shown} | {meaning.replace('|', chr(92) + '|')} |")
        lines.append("")
    return "\n".join(lines)


def _folded(signature: str) -> str:
    if len(signature) <= 110:
        return signature
    head, _, rest = signature.partition("(")
    call = ast.parse(f"def f({rest}: pass").body[0]
    assert isinstance(call, ast.FunctionDef)
    parts, bare = [], call.args
    plain: list[ast.expr | None] = [None] * (len(bare.args) - len(bare.defaults)) + list(bare.defaults)
    for one, default in zip(bare.args, plain, strict=True):
        parts.append(one.arg if default is None else f"{one.arg}={ast.unparse(default)}")
    if bare.vararg or bare.kwonlyargs:
        parts.append(f"*{bare.vararg.arg}" if bare.vararg else "*")
    for one, default in zip(bare.kwonlyargs, bare.kw_defaults, strict=True):
        parts.append(one.arg if default is None else f"{one.arg}={ast.unparse(default)}")
    parts += [f"**{bare.kwarg.arg}"] if bare.kwarg else []
    return f"{head}(\n" + "".join(f"    {part},\n" for part in parts) + ")"


def gaps() -> list[str]:
    """Public names without a word about them, and arguments without a meaning; a test wants none."""
    airflow = names(ROOT / "gpuflow" / "airflow" / "__init__.py")
    every = [("gpuflow.airflow", said(file, name)) for name, file in sorted(airflow.items())]
    for module in ("argo", "kubeflow"):
        file = ROOT / "gpuflow" / f"{module}.py"
        every += [(f"gpuflow.{module}", said(file, name)) for name in _exported(file)]
    found = [f"{module}.{each.name}" for module, each in every if not each.text]
    return found + [
        f"{module}.{each.name}: {name}" for module, each in every for name, _, text in each.arguments if not text
    ]
