"""The house stays small and can be walked: lines and files are counted, signs are true, public names stay."""

from __future__ import annotations

import ast
import importlib.util
import re

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "gpuflow"
ARCHITECTURE = ROOT / "docs" / "design" / "architecture.md"

LINES, FILES, RUNTIME_ENTRIES = 103_920, 487, 14
"""A change that needs more raises them in the same commit, and says in it why nothing else can go."""

PUBLIC = (
    *(f"gpuflow.{name}" for name in ("airflow", "api", "argo", "catalog", "kubeflow", "quantity", "run", "runtime")),
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
