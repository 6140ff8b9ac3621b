"""What a DAG processor loads for a compiled file, in the fork that it makes for each file.

Before it forks, it loads the Airflow modules that the file itself names. All else is loaded anew for every file, every
time it is looked at.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(path for path in GOLDEN.glob("*.py") if "from gpuflow.airflow import" in path.read_text())
PROGRAM = """
import importlib, json, sys
from airflow.utils.file import iter_airflow_imports
import airflow.sdk, airflow.dag_processing.processor
for path in sys.argv[1:]:
    named = set(iter_airflow_imports(path))
    assert "airflow.providers.cncf.kubernetes.operators.pod" in named, path
    for module in named:
        importlib.import_module(module)
before = set(sys.modules)
for path in sys.argv[1:]:
    importlib.machinery.SourceFileLoader("dag_" + path.rsplit("/")[-1][:-3], path).load_module()
print(json.dumps(sorted(set(sys.modules) - before)))
"""
NEEDED_TO_RUN = ("catalog", "checker", "cluster", "demands", "errors", "plan", "pod", "site", "spec", "targets")
"""Parts of gpuflow that describe, check and compile; a task imports what it needs of them when it runs."""
HEAVY = ("airflow.providers.cncf", "kubernetes", "kubernetes_asyncio", "pydantic")
"""What takes long to load, for a hand-written file too, where it is loaded before the fork."""


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    answer = subprocess.run([sys.executable, "-c", PROGRAM, *map(str, FILES)], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    found: list[str] = json.loads(answer.stdout.splitlines()[-1])
    return found


def test_a_fork_loads_no_part_of_gpuflow_that_only_a_running_task_needs(loaded: list[str]) -> None:
    assert "gpuflow.airflow.operator" in loaded
    assert [name for name in loaded if name.startswith(tuple(f"gpuflow.{part}" for part in NEEDED_TO_RUN))] == []


def test_the_provider_is_loaded_before_the_fork(loaded: list[str]) -> None:
    assert [name for name in loaded if name.startswith(HEAVY)] == []
