"""Files that mirror upstream code name the function and the version, which is the one they are tested against."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

ENGINES = ROOT / "tests" / "engines"
OWN = {
    "kubernetes/admission": {"__init__", "decision"},
    "checker/kueue": {"__init__"},
    "checker/dra": {"__init__", "plan"},
    "checker/dra/cel": {"__init__", "patterns"},
    "checker/nodes": {"__init__", "capacity"},
}
"""Files that read manifests, hold values or put the parts together, and mirror no single function."""
FILES = [
    path for folder, own in OWN.items() for path in (ROOT / "gpuflow" / folder).glob("*.py") if path.stem not in own
]


def required(engine: str, module: str) -> str:
    """The version of a module that an oracle is built from."""
    text = (ENGINES / engine / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"\s{re.escape(module)} (v\S+)", text)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_that_mirrors_upstream_code_names_function_and_version(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    mirrored = re.findall(r"^Mirrors .*?(Kueue|Kubernetes)\s(v[0-9.]+[0-9])\.$", text, re.MULTILINE | re.DOTALL)
    versions = {
        "Kueue": required("kueue", "sigs.k8s.io/kueue"),
        "Kubernetes": required("kubernetes", "k8s.io/kubernetes"),
    }
    assert mirrored == [(name, versions[name]) for name, _ in mirrored] and mirrored
