"""Every bench still runs: with `--smoke` it does the same work at the smallest sizes. No figure is judged.

An engine's bench runs where that engine's suite does (GPUFLOW_TEST_TARGET), that of artifacts where object stores are.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

CORE = ("check", "graph", "readers", "runtime", "spec")
ENGINES = ("airflow", "argo", "kubeflow")
WITH_KFP = "local"
"""Its peer is kfp's own local runner, so it runs where kfp is."""
ON_A_GPU = ("runtime_gpu", "sharded_gpu")
SHARED = "measuring"
LIMIT = 300
"""Seconds after which a bench hangs."""

TARGET = os.environ.get("GPUFLOW_TEST_TARGET")
BESIDE = [WITH_KFP] if TARGET == "kubeflow" else []
HERE = [TARGET, *BESIDE] if TARGET else [*CORE, pytest.param("artifacts", marks=pytest.mark.s3)]


def run(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, f"bench/{name}.py", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)


def test_every_bench_has_a_suite() -> None:
    known = {*CORE, *ENGINES, *ON_A_GPU, "artifacts", SHARED, WITH_KFP}
    assert {file.stem for file in (ROOT / "bench").glob("*.py")} == known


@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_a_bench_runs(name: str) -> None:
    done = run(name, "--smoke")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) > 2  # its tables


@pytest.mark.parametrize("name", ON_A_GPU)
def test_a_bench_that_needs_a_gpu_says_so(name: str) -> None:
    done = run(name, "--help")
    assert done.returncode == 0, done.stderr
    assert "Needs PyTorch and a GPU" in " ".join(done.stdout.split())


def test_a_bench_refuses_what_it_does_not_know() -> None:
    assert run("graph", "--smok3").returncode == 2
