"""Imports go one way, engines' SDKs stay where they belong, and importing gpuflow is cheap."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "gpuflow"
LAYERS: tuple[tuple[str, ...], ...] = (
    ("core", "runtime", "quantity"),
    ("graph",),
    ("kubernetes",),
    ("engines", "catalog"),
    ("spec",),
    ("site",),
    ("plan",),
    ("pod",),
    ("demands",),
    ("cluster",),
    ("formats",),
    ("readers",),
    ("checker.report",),
    ("checker.contention", "checker.kueue", "checker.nodes"),
    ("checker.dra",),
    ("checker.hints",),
    ("checker.quota",),
    ("checker.snapshot",),
    ("checker.pipeline",),
    ("checker.question",),
    ("checker.rules",),
    ("checker",),
    ("report", "why"),
    ("importing",),
    ("targets",),
    ("local",),
    ("runs",),
    ("api", "airflow", "argo", "kubeflow", "run"),
    ("cli",),
    ("__main__",),
)
"""From the bottom up. A package imports from the layers below its own, and not from its neighbors."""
RUNTIME_ROOMS: tuple[tuple[str, ...], ...] = (
    ("runtime.base",),
    ("runtime.stores",),
    ("runtime.state",),
    ("runtime.checkpoints",),
    ("runtime.artifacts",),
    ("runtime.supervise",),
    ("runtime.gangs",),
    ("runtime.supervise.main",),
    ("runtime.checkpoints.training",),
    ("runtime.checkpoints.torch_state",),
    ("runtime.elastic",),
    ("runtime.pytorch",),
    ("runtime.dcp", "runtime.huggingface", "runtime.lightning"),
)
"""The rooms of the runtime, from the bottom up; the command line is above them, and above it what training imports."""
SDKS = {
    "airflow": ("targets.airflow", "airflow"),
    "hera": ("targets.argo", "argo"),
    "kfp": ("targets.kubeflow", "kubeflow"),
    "google": ("targets.kubeflow", "kubeflow"),
    "kubernetes": ("cluster.api_server", "airflow"),
    "kubernetes_asyncio": ("airflow",),
    "fsspec": ("runtime",),
    "lightning": ("runtime",),
    "numpy": ("runtime",),
    "pytorch_lightning": ("runtime",),
    "rich": ("cli.live_tree",),
    "torch": ("runtime",),
    "transformers": ("runtime",),
    "urllib3": ("cluster.api_server", "airflow"),
}
"""Who may import which SDK. The Kubernetes client inside `airflow` is the one that its provider brings."""
DATA = {"", "demo", "demo.moons"}
"""The front door, which loads everything lazily, and the files of the demo."""
ARCHITECTURE = ROOT / "docs" / "design" / "architecture.md"


class Import(NamedTuple):
    """One import statement: the importing module, what it imports, and where."""

    module: str
    what: str
    place: str
    for_types: bool
    """Below `if TYPE_CHECKING:`."""


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: imports are written in full"
                assert node.module is not None
                # `from gpuflow.spec import text` may name a module or something in one.
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                names = [alias.name for alias in node.names]
            for name in names:
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield Import(module_of(path), name, place, node in typing_only)


WITH_TYPES = [found for path in sorted(PACKAGE.rglob("*.py")) for found in imports(path)]
EVERY = [found for found in WITH_TYPES if not found.for_types]


def package_of(module: str, layers: Iterable[tuple[str, ...]] = LAYERS) -> str | None:
    """The entry of `layers` that a module belongs to: the most precise one."""
    entries = (entry for layer in layers for entry in layer if module == entry or module.startswith(f"{entry}."))
    return max(entries, key=len, default=None)


def upward(found: Iterable[Import], layers: tuple[tuple[str, ...], ...]) -> list[str]:
    """The imports that do not go down."""
    level = {entry: index for index, layer in enumerate(layers) for entry in layer}
    wrong = []
    for each in found:
        if each.module in DATA or not each.what.startswith("gpuflow."):
            continue
        here, there = package_of(each.module, layers), package_of(each.what.removeprefix("gpuflow."), layers)
        if here is not None and there is not None and here != there and level[there] >= level[here]:
            wrong.append(f"{each.place}: {here} imports {there}")
    return wrong


def circles(imported: Mapping[str, set[str]]) -> set[str]:
    """The groups of modules of which each leads to each, and modules that import themselves."""
    reached: dict[str, set[str]] = {}
    for module in imported:
        seen: set[str] = set()
        ahead = [module]
        while ahead:
            ahead += (found := imported.get(ahead.pop(), set()) - seen)
            seen |= found
        reached[module] = seen
    return {
        " ".join(sorted(other for other in seen if module in reached.get(other, ())))
        for module, seen in reached.items()
        if module in seen
    }


def test_every_module_belongs_to_a_layer() -> None:
    modules = {module_of(path) for path in PACKAGE.rglob("*.py")} - DATA
    assert sorted(module for module in modules if package_of(module) is None) == []


def test_every_package_of_the_checker_has_its_own_layer() -> None:
    found = {module_of(path) for path in (PACKAGE / "checker").iterdir() if (path / "__init__.py").exists()}
    assert sorted(name for name in found if package_of(name) != name) == []


def test_every_layer_names_what_exists() -> None:
    modules = {module_of(path) for path in PACKAGE.rglob("*.py")}
    assert sorted(entry for layer in LAYERS for entry in layer if entry not in modules) == []


def test_imports_go_down() -> None:
    assert upward(EVERY, LAYERS) == []


def test_the_rooms_of_the_runtime_import_downward() -> None:
    """Also for types and inside functions."""
    assert upward(WITH_TYPES, RUNTIME_ROOMS) == []
    entries = {entry for layer in RUNTIME_ROOMS for entry in layer}
    modules = {module_of(path) for path in (PACKAGE / "runtime").rglob("*.py")}
    assert sorted(entries - modules) == []
    roomless = {module for module in modules if package_of(module, RUNTIME_ROOMS) is None}
    assert roomless == {"runtime", "runtime.bundle"}


def test_no_modules_import_each_other() -> None:
    """Imports at the top, inside functions and for types are counted."""
    modules = {f"gpuflow.{module_of(path)}".rstrip(".") for path in PACKAGE.rglob("*.py")}
    imported: dict[str, set[str]] = {}
    for found in WITH_TYPES:
        # `from gpuflow.spec import text`: the module, or what has the name.
        what = found.what if found.what in modules else found.what.rpartition(".")[0]
        if what in modules:
            imported.setdefault(f"gpuflow.{found.module}".rstrip("."), set()).add(what)
    assert circles(imported) == set()


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "e": {"e"}}) == {"b c", "e"}


def test_the_page_on_architecture_has_the_same_layers() -> None:
    """The table under "Packages, lowest first": one row for each layer, in the same order."""
    section = ARCHITECTURE.read_text(encoding="utf-8").split("## Packages, lowest first\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    names = [tuple(re.findall(r"`([a-z_/]+)`", row.split("|")[1])) for row in rows]
    assert [tuple(name.rstrip("/").replace("/", ".") for name in row) for row in names] == list(LAYERS)


def test_the_checker_knows_no_pipeline_and_no_site() -> None:
    documents = ("spec", "site", "plan", "pod")
    wrong = [
        f"{found.place}: {found.what}"
        for found in EVERY
        if found.module.split(".")[0] == "checker" and found.what.removeprefix("gpuflow.").split(".")[0] in documents
    ]
    assert wrong == []
    loaded = loaded_by("import gpuflow.checker.run, gpuflow.demands")
    assert sorted(name for name in loaded if name.startswith(tuple(f"gpuflow.{room}" for room in documents))) == []


def test_a_check_without_nodes_and_queues_loads_nothing_that_judges_them() -> None:
    demo = [str(PACKAGE / "demo" / name) for name in ("nightly.yaml", "cluster")]
    words = ["check", demo[0], "--cluster", demo[1], "--namespace", "team-a"]
    loaded = loaded_by(f"from gpuflow.cli.main import main; main({words})")
    assert "gpuflow.checker.rules" in loaded
    judges = ("gpuflow.checker.dra", "gpuflow.checker.pipeline.placement", "gpuflow.checker.pipeline.nodes.verdicts")
    assert (
        sorted(name for name in loaded if name.startswith((*judges, "gpuflow.checker.pipeline.queues.verdicts"))) == []
    )


def test_the_runtime_imports_nothing_of_the_rest() -> None:
    wrong = [
        f"{found.place}: {found.what}"
        for found in EVERY
        if found.module.split(".")[0] == "runtime"
        and found.what.startswith("gpuflow")
        and not found.what.startswith("gpuflow.runtime")
    ]
    assert wrong == []


def is_in(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def test_sdks_are_imported_by_their_own_target_and_public_face_only() -> None:
    wrong = []
    for found in EVERY:
        root = found.what.split(".")[0]
        owners = SDKS.get(root)
        if owners is not None and not is_in(found.module, owners):
            wrong.append(f"{found.place}: {found.module} imports {found.what}")
    assert wrong == []


def test_the_core_needs_msgspec_pydantic_and_yaml_only() -> None:
    known = {*sys.stdlib_module_names, "gpuflow", "msgspec", "pydantic", "pydantic_core", "yaml"}
    guests = {owner for owners in SDKS.values() for owner in owners}
    wrong = [
        f"{found.place}: {found.module} imports {found.what}"
        for found in EVERY
        if found.what.split(".")[0] not in known and not is_in(found.module, guests)
    ]
    assert wrong == []


def loaded_by(statement: str) -> set[str]:
    """The modules that are there after a statement, in a fresh interpreter."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


HEAVY = {*SDKS, "msgspec", "pydantic", "yaml"} - {"google"}
NETWORK = {"asyncio", "email", "http", "socket", "ssl", "xml"}


def test_importing_gpuflow_loads_no_sdk_no_client_and_not_even_pydantic() -> None:
    loaded = loaded_by("import gpuflow")
    assert {module for module in loaded if module.split(".")[0] in HEAVY} == set()
    assert {module for module in loaded if module.startswith("gpuflow.")} == {"gpuflow.core", "gpuflow.core.version"}


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
    loaded = loaded_by(statement)
    assert {module for module in loaded if module.split(".")[0] in {*HEAVY, *NETWORK}} == set()
    assert "urllib.request" not in loaded  # urllib.parse is light, and some interpreters start with it


def test_the_version_is_said_before_anything_is_imported() -> None:
    """`gpuflow --version` takes little more than Python itself: what commands need comes when they run."""
    loaded = loaded_by("from gpuflow.cli.main import main; main(['--version'])") - loaded_by("pass")
    own = {"gpuflow", "gpuflow.cli", "gpuflow.cli.main", "gpuflow.core", "gpuflow.core.version"}
    assert loaded - own <= {"__future__", "errno", "gc", "importlib", "warnings"}


def test_loading_checking_and_demand_load_no_sdk() -> None:
    nightly = ROOT / "docs" / "examples" / "nightly.yaml"
    demo = PACKAGE / "demo"
    statement = (
        "from gpuflow.cli.main import main\n"
        f"main(['check', {str(nightly)!r}, '--cluster', {str(demo / 'cluster')!r}, '--namespace', 'team-a'])\n"
        f"main(['compile', {str(nightly)!r}, '--target', 'airflow'])"
    )
    sdks = HEAVY - {"msgspec", "pydantic", "yaml"}
    assert {module for module in loaded_by(statement) if module.split(".")[0] in sdks} == set()


def test_a_check_of_a_pipeline_of_ours_loads_no_reader_of_other_tools() -> None:
    demo = PACKAGE / "demo"
    words = ["check", str(demo / "nightly.yaml"), "--cluster", str(demo / "cluster"), "--namespace", "team-a"]
    loaded = loaded_by(f"from gpuflow.cli.main import main\nmain({words!r})")
    foreign = tuple(f"gpuflow.readers.{name}" for name in ("argo", "kfp", "kubernetes", "findings", "python.dags"))
    assert "gpuflow.checker.quota.peak" in loaded  # it was judged
    assert {module for module in loaded if module.startswith(foreign)} == set()


def test_every_public_name_is_there() -> None:
    import gpuflow

    sdk_faces = {"airflow", "argo", "kubeflow"}
    for name in set(gpuflow.__all__) - sdk_faces:
        assert getattr(gpuflow, name) is not None
    assert set(gpuflow.__all__) <= set(dir(gpuflow))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        gpuflow.nonsense  # noqa: B018  # the access itself is the mistake
