"""The rooms of the house: imports go one way, engines' SDKs stay where they belong, and importing gpuflow is cheap."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "gpuflow"
FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "engines", "quantity", "version", "codes", "emit", "graph", "runtime"),
    ("catalog",),
    ("spec",),
    ("site",),
    ("resources",),
    ("pod",),
    ("kubernetes",),
    ("demands",),
    ("cluster",),
    ("checker",),
    ("report",),
    ("targets", "airflow", "argo", "kubeflow"),
    ("cli",),
)
"""From the ground up. A room imports from its own floor and from those below."""
SDKS = {
    "airflow": ("targets.airflow", "airflow"),
    "hera": ("targets.argo", "argo"),
    "kfp": ("targets.kubeflow", "kubeflow"),
    "google": ("targets.kubeflow", "kubeflow"),
    "kubernetes": ("cluster.live", "airflow"),
    "kubernetes_asyncio": ("airflow",),
    "fsspec": ("runtime",),
    "lightning": ("runtime",),
    "numpy": ("runtime",),
    "pytorch_lightning": ("runtime",),
    "torch": ("runtime",),
    "transformers": ("runtime",),
}
"""Who may import which SDK. The Kubernetes client inside `airflow` is the one that its provider brings."""
UPWARDS = {
    ("gpu", "spec.shapes"): "gpuflow.catalog is callable, and asks the spec only when it is called",
}


class Import(NamedTuple):
    """One import statement: who, what, and where."""

    room: str
    what: str
    place: str
    lazy: bool


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.walk(node)
    }
    typing_only = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in typing_only:
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: imports are written in full"
                assert node.module is not None
                # `from gpuflow.spec import yaml_tree` may name a module or something in one.
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                names = [alias.name for alias in node.names]
            for name in names:
                yield Import(module_of(path), name, f"{path.relative_to(ROOT)}:{node.lineno}", node in inside)


EVERY = [found for path in sorted(PACKAGE.rglob("*.py")) for found in imports(path)]


def floor(module: str) -> int | None:
    """The floor of a module; of the most precise entry that names it."""
    best = max(
        (
            (len(room), index)
            for index, rooms in enumerate(FLOORS)
            for room in rooms
            if module == room or module.startswith(f"{room}.")
        ),
        default=None,
    )
    return None if best is None else best[1]


def test_every_module_has_a_floor() -> None:
    homeless = {module_of(path) for path in PACKAGE.rglob("*.py")} - {"", "demo"}
    assert sorted(module for module in homeless if floor(module) is None) == []


def test_imports_go_one_way() -> None:
    wrong = []
    for found in EVERY:
        if found.room in ("", "demo") or not found.what.startswith("gpuflow."):
            continue
        what = found.what.removeprefix("gpuflow.")
        here, there = floor(found.room), floor(what)
        if here is not None and there is not None and there > here:
            wrong.append(f"{found.place}: {found.room} imports {what}")
    assert wrong == []


def test_the_runtime_imports_nothing_of_the_rest() -> None:
    wrong = [
        f"{found.place}: {found.what}"
        for found in EVERY
        if found.room.split(".")[0] == "runtime"
        and found.what.startswith("gpuflow")
        and not found.what.startswith("gpuflow.runtime")
    ]
    assert wrong == []


def test_sdks_are_imported_by_their_own_target_and_public_face_only() -> None:
    wrong = []
    for found in EVERY:
        root = found.what.split(".")[0]
        rooms = SDKS.get(root)
        if rooms is not None and not any(found.room == room or found.room.startswith(f"{room}.") for room in rooms):
            wrong.append(f"{found.place}: {found.room} imports {found.what}")
    assert wrong == []


def test_the_core_needs_pydantic_and_yaml_only() -> None:
    known = {*sys.stdlib_module_names, "gpuflow", "pydantic", "pydantic_core", "yaml"}
    guests = {room for rooms in SDKS.values() for room in rooms}
    wrong = [
        f"{found.place}: {found.room} imports {found.what}"
        for found in EVERY
        if found.what.split(".")[0] not in known
        and not any(found.room == room or found.room.startswith(f"{room}.") for room in guests)
    ]
    assert wrong == []


def loaded_by(statement: str) -> set[str]:
    """The modules that are there after a statement, in a fresh interpreter."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


HEAVY = {*SDKS, "pydantic", "yaml"} - {"google"}


def test_importing_gpuflow_loads_no_sdk_no_client_and_not_even_pydantic() -> None:
    loaded = loaded_by("import gpuflow")
    assert {module for module in loaded if module.split(".")[0] in HEAVY} == set()
    assert {module for module in loaded if module.startswith("gpuflow.")} == {"gpuflow.version"}


@pytest.mark.parametrize(
    "statement",
    [
        "from gpuflow.cli.main import main; main(['--version'])",
        "from gpuflow.cli.main import main; main(['--help'])",
        "from gpuflow.cli.main import main; main(['explain', 'GF101'])",
        "import gpuflow.runtime",
    ],
)
def test_what_needs_no_document_loads_no_model(statement: str) -> None:
    assert {module for module in loaded_by(statement) if module.split(".")[0] in HEAVY} == set()


def test_loading_checking_and_demand_load_no_sdk() -> None:
    nightly = ROOT / "docs" / "examples" / "nightly.yaml"
    demo = PACKAGE / "demo"
    statement = (
        "from gpuflow.cli.main import main\n"
        f"main(['check', {str(nightly)!r}, '--cluster', {str(demo / 'cluster')!r}, '--namespace', 'team-a'])\n"
        f"main(['compile', {str(nightly)!r}, '--target', 'airflow'])"
    )
    sdks = HEAVY - {"pydantic", "yaml"}
    assert {module for module in loaded_by(statement) if module.split(".")[0] in sdks} == set()


def test_every_public_name_is_there() -> None:
    import gpuflow

    sdk_faces = {"airflow", "argo", "kubeflow"}
    for name in set(gpuflow.__all__) - sdk_faces:
        assert getattr(gpuflow, name) is not None
    assert set(gpuflow.__all__) <= set(dir(gpuflow))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        gpuflow.nonsense  # noqa: B018  # the access itself is the mistake
