"""docs/reference/python.md: every example runs as it stands, in order; every name of the front door is on the page."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpuflow
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
NEEDS_TORCH = ("pytorch", "elastic", "huggingface", "lightning", "torch_state", "dcp")
FRONT_DOOR = ("load", "compile", "demand", "check", "gpus", "admit", "fit_nodes", "assign_flavors", "gpu", "mig")


def test_the_examples_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "docs" / "examples" / "quota")
    assert len(EXAMPLES) >= 8
    names: dict[str, object] = {}
    for number, example in enumerate(EXAMPLES, 1):
        exec(compile(example, f"python.md, example {number}", "exec"), names)


def test_every_public_name_is_on_the_page() -> None:
    assert [name for name in gpuflow.__all__ if name not in PAGE and name not in ("__version__", "Finding")] == [
        name for name in ("quantity", "loads") if name not in PAGE
    ]


def test_the_front_door_stays_open_after_every_module_was_imported() -> None:
    """A submodule of the same name would take a function's place the moment somebody imports it."""
    modules = [
        module.name
        for module in pkgutil.walk_packages([str(ROOT / "gpuflow")], "gpuflow.")
        if not module.name.startswith(("gpuflow.airflow", "gpuflow.targets", "gpuflow.argo", "gpuflow.kubeflow"))
        and module.name != "gpuflow.cli.live_tree"
        and module.name.rpartition(".")[2] not in NEEDS_TORCH
    ]
    assert len(modules) > 150
    program = (
        "import importlib\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "import gpuflow\n"
        f"for name in {FRONT_DOOR!r}: assert callable(getattr(gpuflow, name)), name\n"
        "assert gpuflow.gpus('h200') and gpuflow.gpu('l4').count == 1\n"
        "assert not callable(gpuflow.catalog) and not callable(importlib.import_module('gpuflow.checker'))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_an_option_of_another_target_is_refused_with_those_it_has() -> None:
    with pytest.raises(gpuflow.GpuflowError) as refusal:
        gpuflow.compile(ROOT / "docs" / "examples" / "quota" / "wider.yaml", target="airflow", standalon=True)
    (finding,) = refusal.value.findings
    assert finding.code == "GF903"
    assert finding.hint is not None
    assert "standalone" in finding.hint


def test_a_check_without_a_namespace_says_so() -> None:
    quota = ROOT / "docs" / "examples" / "quota"
    with pytest.raises(gpuflow.GpuflowError, match="no namespace is given"):
        gpuflow.check(quota / "wider.yaml", Path(quota / "cluster"))


def test_the_package_of_the_catalog_is_a_plain_module() -> None:
    assert type(importlib.import_module("gpuflow.catalog")).__name__ == "module"
