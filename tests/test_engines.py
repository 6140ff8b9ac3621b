"""What is known about engines, by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.demands import demand_of
from gpuflow.engines import ENGINES, NONE, engine_choices, engine_names, facts_of
from gpuflow.runtime.base import options
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.test_imports import HEAVY, PACKAGE, loaded_by

ONE = "{apiVersion: gpuflow/v1, kind: Pipeline, name: p, steps: {a: {image: i, command: [x]}}}"


def test_every_engine_has_facts_under_its_own_name() -> None:
    assert [facts_of(name).name for name in engine_names()] == list(engine_names())
    assert facts_of("none") is NONE


@pytest.mark.parametrize("name", ["none", *engine_names()])
def test_every_engine_says_how_it_waits(name: str) -> None:
    waits = facts_of(name).waits
    assert set(waits) == {"quota", "queue", "nodes", "objects"}
    assert all(sentence.endswith(".") for sentence in waits.values())


@pytest.mark.parametrize("name", ["none", *engine_names()])
def test_the_supervisor_knows_how_outputs_leave(name: str) -> None:
    assert facts_of(name).supervisor in options.ENGINES


def test_an_unknown_engine_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(GpuflowError) as refusal:
        demand_of(loads(ONE), Site.load(), "agro")
    (finding,) = refusal.value.findings
    assert (finding.code, finding.message) == ("GF302", '"agro" is not an engine')
    assert finding.hint == 'did you mean "argo"?'


def test_a_site_that_misspells_an_engine_is_told_so() -> None:
    with pytest.raises(Exception, match="unknown key"):
        Site.model_validate({"name": "s", "engines": {"agro": {}}})


def test_facts_and_capabilities_load_without_any_sdk() -> None:
    loaded = loaded_by("from gpuflow.engines import ENGINES, load_engine\nfor name in ENGINES: load_engine(name)")
    assert {module for module in loaded if module.split(".")[0] in HEAVY - {"msgspec", "pydantic", "yaml"}} == set()


def test_the_default_comes_first_where_one_is_chosen() -> None:
    assert engine_choices()[:3] == ("argo", "airflow", "kubeflow")
    assert set(engine_choices()) == set(ENGINES)


THE_PLACE = "engines.py"
READERS = {"airflow": "readers/python"}
"""Readers that are called as the language, not as the engine."""
ELSEWHERE = {
    "__init__.py": "the public modules gpuflow.argo, .airflow, .kubeflow, for Python; it may import nothing",
    "cli/commands.py": "the commands `gpuflow argo` and `gpuflow airflow`; it is loaded before anything is known",
    "runtime": "words of `gpuflow-run --engine`: it imports nothing of the rest, and a test above compares them",
}
"""Where else an engine's name stands as a literal, and why."""


def own_places(engine: str) -> list[str]:
    """Modules and packages that are about one engine."""
    rooms = ("", "targets/", "readers/", "importing/", "spec/engine_options/", "cli/", "runs/")
    return [*(f"{room}{engine}" for room in rooms), *filter(None, [READERS.get(engine)])]


def spelled_engines(text: str) -> Iterator[tuple[str, int]]:
    """The literals that are an engine's name, its title or its package, with their lines; attributes are none."""
    packages = {package: name for name, package in ENGINES.items()}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = packages.get(node.value, node.value.lower())
            if name in ENGINES:
                yield name, node.lineno


def names_outside(path: Path) -> Iterator[str]:
    module = path.relative_to(PACKAGE).as_posix()
    if module != THE_PLACE and not any(Path(module).is_relative_to(known) for known in ELSEWHERE):
        for name, line in spelled_engines(path.read_text(encoding="utf-8")):
            if not any(Path(module.removesuffix(".py")).is_relative_to(own) for own in own_places(name)):
                yield f"gpuflow/{module}:{line}: {name}"


def test_the_names_of_engines_stand_in_one_place() -> None:
    """A table, a choice or an `if` for one engine belongs to its package, or takes the name from gpuflow.engines."""
    assert [found for path in sorted(PACKAGE.rglob("*.py")) for found in names_outside(path)] == []


def test_the_exceptions_are_needed() -> None:
    places = [*ELSEWHERE, *READERS.values()]
    files = {place: [PACKAGE / place, *(PACKAGE / place).rglob("*.py")] for place in places}
    unused = [
        place
        for place, paths in files.items()
        if not any(True for path in paths if path.is_file() for _ in spelled_engines(path.read_text(encoding="utf-8")))
    ]
    assert unused == []


@pytest.mark.parametrize(
    "code",
    ["x = 'argo'", "t = {'Airflow': 1}", "if e == 'kubeflow': pass", "match e:\n case 'argo': pass",
     "T = Literal['argo']", "p.add_argument(choices=('argo',))", "f\"{'argo'}\"", "m = 'gpuflow.targets.argo'"],
)  # fmt: skip
def test_names_are_found_however_they_are_written(code: str) -> None:
    assert len(list(spelled_engines(code))) == 1


def test_words_with_an_engine_in_them_are_no_names() -> None:
    assert list(spelled_engines("x = 'set engines.argo.executor'\ny = pipeline.engines.argo")) == []
