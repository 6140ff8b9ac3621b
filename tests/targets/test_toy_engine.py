"""An engine is its package and one line: a toy engine goes through compile, demand and check, and refuses by name."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuflow.engines import ENGINES
from gpuflow.site import Site
from tests.cli.commands import Answer, Gpuflow
from tests.conftest import ROOT

CLUSTER = ROOT / "gpuflow" / "demo" / "cluster"
PIPELINE = """
apiVersion: gpuflow/v1
kind: Pipeline
name: boxed
parallel: 1
defaults: {image: "i:1", cpu: 1, memory: 1Gi}
steps:
  left: {command: [l], outputs: {n: int}}
  right: {command: [r]%s}
"""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "toy", "tests.targets.toy")  # the one line
    monkeypatch.setitem(sys.modules, "toy_sdk", SimpleNamespace(VERSION="1.0"))  # type: ignore[arg-type]  # a module


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    return written(tmp_path)


def written(folder: Path, more: str = "") -> Path:
    path = folder / "boxed.gpuflow.yaml"
    path.write_text(PIPELINE % more)
    return path


def checked(gpuflow: Gpuflow, pipeline: Path, *words: object) -> Answer:
    return gpuflow("check", pipeline, "--cluster", CLUSTER, "--namespace", "team-a", "--engine", "toy", *words)


def test_it_compiles_to_its_files_with_its_own_flags(gpuflow: Gpuflow, pipeline: Path, tmp_path: Path) -> None:
    words = ("compile", pipeline, "--target", "toy", "-o", f"{tmp_path}/out/", "--color", "red", "--wheels")
    answer = gpuflow(*words)
    assert answer.code == 0, answer.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["box.yaml", "boxed.yaml"]
    assert "color: red\nwheels: True\nsdk: 1.0\n" in (tmp_path / "out" / "box.yaml").read_text()
    assert "--engine=none" in (tmp_path / "out" / "boxed.yaml").read_text()
    assert "GF305 a toy is not for children under 3" in answer.err
    assert gpuflow(*words, "--check").code == 0


def test_its_flags_are_in_the_help_and_refused_elsewhere(
    gpuflow: Gpuflow, pipeline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        gpuflow("compile", "--help")
    assert "toy: the color of the box" in capsys.readouterr().out
    answer = gpuflow("compile", pipeline, "--target", "airflow", "--color", "red")
    assert (answer.code, "GF903 --color is for --target toy" in answer.err) == (2, True)
    answer = gpuflow("compile", pipeline, "--target", "toy", "--pools")
    assert (answer.code, "GF903 --pools is for --target airflow" in answer.err) == (2, True)


def test_several_files_need_a_folder(gpuflow: Gpuflow, pipeline: Path, tmp_path: Path) -> None:
    answer = gpuflow("compile", pipeline, "--target", "toy", "-o", tmp_path / "one.yaml")
    assert (answer.code, "becomes 2 files" in answer.err) == (2, True)


def test_a_missing_sdk_is_said_with_the_command_that_installs_it(
    gpuflow: Gpuflow, pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "toy_sdk")
    answer = gpuflow("compile", pipeline, "--target", "toy")
    assert (answer.code, 'python -m pip install "gpuflow[toy] @ git+URL@COMMIT"' in answer.err) == (3, True)
    assert gpuflow("demand", pipeline, "--engine", "toy").code == 0
    assert checked(gpuflow, pipeline).code == 0


def test_its_demand_counts_what_it_keeps_and_what_the_site_says_of_it(
    gpuflow: Gpuflow, pipeline: Path, tmp_path: Path
) -> None:
    bare = gpuflow("demand", pipeline, "--engine", "toy", "--format", "json").data
    assert (bare["engine"], bare["peak"]["requests.cpu"]["value"]) == ("toy", "2")  # parallel: 1 is not kept
    site = tmp_path / "site.yaml"
    site.write_text(
        "apiVersion: gpuflow/v1\nkind: Site\nname: s\nextends: nvidia\n"
        "engines: {toy: {containers: {spring: {requests: {cpu: 500m}}}}}\n"
    )
    wound = gpuflow("demand", pipeline, "--site", site, "--engine", "toy", "--format", "json").data
    assert (wound["peak"]["requests.cpu"]["value"], wound["overhead"]["requests.cpu"]["value"]) == ("3", "1")


def test_a_check_speaks_of_it(gpuflow: Gpuflow, tmp_path: Path) -> None:
    answer = checked(gpuflow, written(tmp_path, ", gpu: a100-80gb x 7"), "--format", "json")
    hints = " ".join(finding["hint"] or "" for finding in answer.data["findings"])
    assert (answer.data["verdict"], "Toy waits" in hints) == ("may-queue", True)


REFUSED = ", cache: true, timeout: 1h}\n  third: {pipeline: {name: q, steps: {a: {image: i, command: [x]}}}"
WORDS = (
    "toy does not support cache",
    "toy does not support pipeline",
    "toy: a box holds two steps",
)


def test_all_it_refuses_comes_in_one_go(gpuflow: Gpuflow, tmp_path: Path) -> None:
    answer = gpuflow("compile", written(tmp_path, REFUSED), "--target", "toy")
    assert (answer.code, answer.err.count("GF301")) == (2, 3)
    assert all(words in answer.err for words in WORDS)


def test_what_it_refuses_is_never_always(gpuflow: Gpuflow, tmp_path: Path) -> None:
    answer = checked(gpuflow, written(tmp_path, REFUSED), "--format", "json")
    assert (answer.code, answer.data["verdict"]) == (1, "never")
    said = [finding["message"] for finding in answer.data["findings"] if finding["code"] == "GF301"]
    assert all(any(words in message for message in said) for words in WORDS)


def test_accepted_losses_stand_in_the_file_on_the_console_and_in_json(gpuflow: Gpuflow, tmp_path: Path) -> None:
    pipeline = written(tmp_path, ", cache: true")
    words = ("compile", pipeline, "--target", "toy", "--allow-lossy")
    answer = gpuflow(*words)
    assert "GF303 toy does not support cache" in answer.err
    assert "# LOST: toy does not support cache" in answer.out
    data = gpuflow(*words, "--format", "json").data
    assert data["findings"][0]["code"] == "GF303"
    assert checked(gpuflow, pipeline).code == 1
    allowed = checked(gpuflow, pipeline, "--allow-lossy", "--format", "json")
    assert (allowed.code, allowed.data["verdict"]) == (0, "always")
    assert [finding["code"] for finding in allowed.data["findings"] if finding["severity"] == "warning"] == ["GF303"]


def test_a_site_names_engines_that_exist(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="unknown key"):
        Site.model_validate({"name": "s", "engines": {"tory": {}}})
