"""Finding E8: several pipelines in one command.

Tests gpuflow/checker/several_pipelines.py and gpuflow/demands/combine.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuflow.cli.main import main
from tests.assumed import ASSUMED
from tests.checker.findings.test_c_never_ends import counts
from tests.checker.whole_scenes import HEAD, HOME, NAMESPACE

RECORD = {"apiVersion": "gpuflow/v1", "kind": "Snapshot", "assumed": sorted(ASSUMED)}
GPUS = "requests.nvidia.com/gpu"
TRAIN = "steps: {train: {command: [x], gpu: a100-80gb x 4}}"


@pytest.fixture
def asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """`check` on pipelines a and b of 4 GPUs each, with a quota of so many: exit code and what was printed."""

    def check(gpus: int, *words: str, text: str = TRAIN, names: tuple[str, ...] = ("a", "b")) -> tuple[int, str]:
        cluster = {"apiVersion": "v1", "kind": "List", "items": [HOME, RECORD, counts({GPUS: gpus})]}
        (tmp_path / "cluster.json").write_text(json.dumps(cluster))
        files = []
        for name in names:
            files.append(tmp_path / f"{name}.yaml")
            files[-1].write_text(HEAD.replace("name: p", f"name: {name}") + text)
        words = (*words, "--cluster", str(tmp_path / "cluster.json"), "--namespace", NAMESPACE)
        code = main(["check", *map(str, files), "--fail-on", "may-queue", *words])
        return code, capsys.readouterr().out

    return check


def test_e8_two_pipelines_that_fit_alone_and_not_together(asked: Any) -> None:
    code, text = asked(4)
    assert code == 0
    assert "Each of these 2 was checked alone; --together checks them side by side.\n" in text
    code, text = asked(4, "--together")
    assert code == 1
    assert "a + b in namespace team-a: MAY QUEUE" in text
    assert "a.train, b.train together ask for 8" in text
    assert asked(8, "--together")[0] == 0


def test_e8_together_is_one_more_object(asked: Any) -> None:
    *alone, whole = json.loads(asked(4, "--together", "--format", "json")[1])
    assert [each["verdict"] for each in alone] == ["always", "always"]
    assert (list(whole), whole["together"]["verdict"]) == (["together"], "may-queue")
    assert whole["together"]["scopes"][0]["peak"] == "8"
    first, second = json.loads(asked(4, "--format", "json")[1])
    assert "GF530" in [each["code"] for each in first["findings"]]
    assert "GF530" in [each["code"] for each in second["findings"]]


def test_e8_one_pipeline_is_not_told_about_others(asked: Any) -> None:
    assert "--together" not in asked(4, names=("a",))[1]
    assert "GF530" not in asked(4, "--format", "json", names=("a",))[1]


def test_e8_each_pipeline_counts_with_its_own_runs(asked: Any) -> None:
    on_data = "on_data: [s3://b/x]\nsteps: {train: {command: [x], gpu: a100-80gb x 4}}"
    assert asked(2 * 16 * 4, "--together", "--engine", "airflow", text=on_data)[0] == 0
    assert asked(2 * 16 * 4 - 1, "--together", "--engine", "airflow", text=on_data)[0] == 1


def test_e8_together_is_never_better_than_alone(asked: Any) -> None:
    *_, whole = json.loads(asked(3, "--together", "--format", "json")[1])
    assert whole["together"]["verdict"] == "never"


def test_e8_a_claim_and_a_workflow_of_each_run_count(tmp_path: Path) -> None:
    text = "claims: {c: {size: 1Gi}}\nsteps: {train: {command: [x], volumes: {/d: {new_claim: c}}}}"
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(HEAD.replace("name: p", f"name: {name}") + text)
    hard = {"persistentvolumeclaims": 1, "count/workflows.argoproj.io": 1}
    cluster = {"apiVersion": "v1", "kind": "List", "items": [HOME, RECORD, counts(hard)]}
    (tmp_path / "both.json").write_text(json.dumps(cluster))
    files = [str(tmp_path / f"{name}.yaml") for name in ("a", "b")]
    words = ["--cluster", str(tmp_path / "both.json"), "--namespace", NAMESPACE, "--engine", "argo", "--fail-on"]
    assert main(["check", *files, *words, "may-queue"]) == 0
    assert main(["check", *files, *words, "may-queue", "--together"]) == 1


def test_e8_the_driver_of_pipelines_side_by_side_has_a_name_that_kubernetes_takes(asked: Any) -> None:
    *_, whole = json.loads(asked(8, "--together", "--format", "json", "--engine", "kubeflow")[1])
    assert whole["together"]["verdict"] == "always"
