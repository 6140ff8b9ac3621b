"""The house stays small and can be walked: lines and files are counted, signs are true, public names stay."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import LONG, ROOT
from tools.files_that_run import COMMANDS, files_apart

PACKAGE = ROOT / "gpuflow"
ARCHITECTURE = ROOT / "docs" / "design" / "architecture.md"

LINES, FILES, RUNTIME_ENTRIES = 110_910, 464, 14
"""A change that needs more raises them in the same commit, and says in it why nothing else can go."""

PUBLIC = (
    *(
        f"gpuflow.{name}"
        for name in ("airflow", "api", "argo", "catalog", "kubeflow", "local", "quantity", "run", "runtime")
    ),
    *(f"gpuflow.runtime.{name}" for name in ("dcp", "elastic", "huggingface", "lightning", "pytorch")),
)
"""Modules that people import; names in them are on docs/reference/python.md and python-names.md."""
IN_AIRFLOW = ("operator", "gang_operator", "tasks", "approvals", "trigger", "gang_trigger", "links", "provider")
"""Modules of `gpuflow.airflow` that Airflow itself stores by name: operators, triggers, links."""


def test_the_package_does_not_grow_unnoticed() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    lines = sum(text.count("\n") for text in texts)
    assert lines <= LINES and len(texts) <= FILES, f"{lines} lines in {len(texts)} files"
    assert lines > LINES - 1_000, f"{lines} lines: lower LINES, so that what was won is kept"


def test_few_files_run_for_the_check_of_the_readme() -> None:
    assert len(files_apart("check")["executed"]) <= 220
    readme = re.sub(r"\s*\\\n\s*", " ", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert " ".join(COMMANDS["check"]) in readme and " ".join(COMMANDS["compile"][:4]) in readme


PARTICIPLE = re.compile(
    "[a-z]+(ed|ing)|written|taken|given|made|said|shown|held|kept|left|sent|told|found|heard|known|bound|done|gone|grown"
    "|drawn|built|brought|lost|met|thrown|chosen|broken|hidden|driven|spent|led|paid|laid|won|seen|begun|forbidden"
)
NO_PARTICIPLES = {
    *("anything", "binding", "finding", "greeting", "mapping", "spelling", "warning"),  # things
    *("bring", "feed", "need", "proceed", "succeed"),  # verbs
    *(
        "forbidden",
        "required",
        "unsupported",
        "privileged",
        "allowed",
        "used",
    ),  # as upstream: field errors, levels, quotas
    *("checkpointing", "interrupted"),  # public names
    "missing",  # __missing__
}
IN_COMPILED_FILES = "airflow/function_runner.py"
"""Its text is part of compiled DAGs: its names stay."""


@pytest.mark.slow
def test_a_function_is_a_verb_or_the_thing_it_returns() -> None:
    bare = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != PACKAGE / IN_COMPILED_FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and PARTICIPLE.fullmatch(word := node.name.strip("_"))
        and word not in NO_PARTICIPLES
    ]
    assert not bare, "a participle alone does not say what a function does or gives: " + ", ".join(bare)


def test_what_make_test_leaves_out_is_there_and_ci_runs_it() -> None:
    assert [name for name in LONG if not (ROOT / "tests" / f"{name}.py").is_file()] == []
    assert "make test-long" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_runtime_has_few_doors() -> None:
    entries = {path.name for path in (PACKAGE / "runtime").iterdir()} - {"__pycache__"}
    assert len(entries) <= RUNTIME_ENTRIES, sorted(entries)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_modules_stay_where_they_are(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None


@pytest.mark.parametrize("name", IN_AIRFLOW)
def test_what_airflow_stores_by_name_stays_where_it_is(name: str) -> None:
    assert (PACKAGE / "airflow" / f"{name}.py").is_file()


def signs() -> list[tuple[str, str, str, str]]:
    section = ARCHITECTURE.read_text(encoding="utf-8").split("## Where is …\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| `(.+?)/` \| `(.+?)` \| `(.+?)` \|$", section, re.MULTILINE)
    return [(where, package, file, there) for where, package, file, there in rows]


def test_the_questions_that_everybody_asks_have_signs() -> None:
    asked = {where for where, *_ in signs()}
    assert {
        "the limit of a ClusterQueue's borrowing decided",
        "`retry` written for Airflow",
        "a checkpoint given its name",
    } <= asked


@pytest.mark.parametrize(("where", "package", "file", "there"), signs(), ids=lambda part: str(part)[:40])
def test_a_sign_leads_to_the_place_in_three_steps(where: str, package: str, file: str, there: str) -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8").split("## Where is …")[0]
    first = package.split("/")[0]
    assert f"`{package}/`" in page or f"`{first}/`" in page or f"`{package.partition('/')[2]}/`" in page, where
    scope = ast.parse((PACKAGE / package / file).read_text(encoding="utf-8")).body
    for name in there.split("."):
        kinds = (ast.FunctionDef, ast.ClassDef)
        found = [node for node in scope if isinstance(node, kinds) and node.name == name]
        assert found, f"{package}/{file} has no {there}"
        scope = found[0].body


def calls() -> Iterator[tuple[str, str]]:
    """Each function on the way of a command, and the one that calls it."""
    page = ARCHITECTURE.read_text(encoding="utf-8")
    above: list[str] = []
    for line in page.split("## The way of a command")[1].split("```")[1].splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        del above[max(depth - 1, 0) :]
        if depth:
            if above:
                yield above[-1], line.strip()
            above.append(line.strip())


@pytest.mark.parametrize(("caller", "called"), [*calls()], ids=lambda place: place.split()[1])
def test_the_way_of_a_command_is_as_the_page_says(caller: str, called: str) -> None:
    function_at(*called.split())
    used = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(function_at(*caller.split()))}
    assert re.split("[ .]", called)[-1] in used


def function_at(file: str, name: str) -> ast.AST:
    found: ast.AST = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    for part in name.split("."):
        kinds = (ast.FunctionDef, ast.ClassDef)
        inside = [node for node in ast.iter_child_nodes(found) if isinstance(node, kinds) and node.name == part]
        assert inside, f"{file} has no {name}"
        found = inside[0]
    return found


def modules() -> list[Path]:
    paths = (path.relative_to(ROOT) for path in PACKAGE.rglob("*.py"))
    return sorted(path for path in paths if path.name not in ("__init__.py", "__main__.py"))


def docstrings_of_tests() -> dict[Path, str]:
    """Every test file with its first docstring."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return {path.relative_to(ROOT): ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "" for path in paths}


def named_after(test: Path, among: list[Path]) -> set[Path]:
    """tests/pod/test_build.py, test_pod_build.py and test_build_labels.py are named after gpuflow/pod/build.py.

    The folder may be one further up; a name that two modules below it have names neither.
    """
    below = [module for module in among if Path("gpuflow", *test.parts[1:-1]) in module.parents]
    found = set()
    for names in ({m: m.stem for m in below}, {m: f"{m.parent.name}_{m.stem}" for m in below}):
        for module, name in names.items():
            unique = list(names.values()).count(name) == 1
            if unique and f"{test.stem}_".startswith(f"test_{name}_"):
                found.add(module)
    return found


def paths_in(docstring: str) -> set[Path]:
    return {Path(name) for name in re.findall(r"\bgpuflow/[\w/]+\.py\b", docstring)}


@pytest.mark.slow
def test_a_test_of_each_module_is_found_by_its_name_or_by_its_path() -> None:
    everything, files = modules(), docstrings_of_tests()
    found = {module for file, said in files.items() for module in named_after(file, everything) | paths_in(said)}
    missing = [str(module) for module in everything if module not in found]
    assert not missing, f"name a test after them, or say 'Tests {missing[0]}.' in the docstring of one: {missing}"


def test_the_modules_that_tests_name_exist() -> None:
    gone = [
        f"{file}: {path}"
        for file, said in docstrings_of_tests().items()
        for path in paths_in(said)
        if not (ROOT / path).is_file()
    ]
    assert not gone


def test_a_module_without_a_test_of_its_name_is_noticed() -> None:
    among = [Path("gpuflow/pod/build.py"), Path("gpuflow/pod/notes.py"), Path("gpuflow/why/notes.py")]
    for name in ("pod/test_build.py", "pod/test_pod_build.py", "pod/test_build_labels.py", "test_build.py"):
        assert named_after(Path("tests", name), among) == {among[0]}
    for name in ("why/test_build.py", "pod/test_builder.py", "pod/test_rebuild.py", "test_notes.py"):
        assert named_after(Path("tests", name), among) == set()
    assert named_after(Path("tests/pod/test_notes.py"), among) == {among[1]}
    assert paths_in("Tests gpuflow/pod/build.py and gpuflow/gone.py.") == {among[0], Path("gpuflow/gone.py")}
