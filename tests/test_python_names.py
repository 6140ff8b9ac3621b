"""The page of Python names is whole, and a Python shell completes them before anything is loaded."""

from __future__ import annotations

import importlib.util
import rlcompleter
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def pages() -> Any:
    spec = importlib.util.spec_from_file_location("python_names", DOCS / "python_names.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_public_name_and_every_argument_has_a_meaning(pages: Any) -> None:
    assert pages.gaps() == []


def test_the_page_is_what_the_sources_say(pages: Any) -> None:
    text = (DOCS / "reference" / "python-names.md").read_text(encoding="utf-8")
    assert pages.page().rstrip() in text, "run make docs"


def test_every_generated_page_is_what_the_sources_say() -> None:
    answer = subprocess.run(
        [sys.executable, str(DOCS / "generate.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_a_shell_completes_the_names_of_airflow_without_airflow() -> None:
    code = (
        "import sys, gpuflow.airflow, rlcompleter\n"
        "shell = rlcompleter.Completer({'gpuflow': gpuflow})\n"
        "print(sorted(set(gpuflow.airflow.__all__) - set(dir(gpuflow.airflow))))\n"
        "print('airflow' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert done.stdout.splitlines() == ["[]", "False"]


def test_completion_finds_names_by_their_beginning() -> None:
    import gpuflow.airflow

    assert {"task", "to_dag"} <= set(dir(gpuflow.airflow))
    assert "_HOMES" not in dir(gpuflow.airflow)
    found = rlcompleter.Completer({"gpuflow": gpuflow}).complete("gpuflow.air", 0)
    assert found is not None and found.startswith("gpuflow.airflow")
