"""`gpuflow init`: a project for each engine; tests/first_hour runs what it writes and prints."""

from __future__ import annotations

import json
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.cli import init
from gpuflow.cli.init import Origin, _safe_origin, origin
from gpuflow.engines import ENGINES
from gpuflow.targets import load_target
from tests.cli.commands import Gpuflow
from tests.conftest import ROOT

COMMIT = "0123456789abcdef" * 2 + "01234567"


def test_every_engine_has_its_folder() -> None:
    folders = {name: load_target(name).folder for name in ENGINES}
    assert all(folder.endswith("/") for folder in folders.values())
    assert (folders["airflow"], folders["argo"], folders["kubeflow"]) == ("dags/", "argo_templates/", "compiled/")


@pytest.mark.parametrize("engine", [None, *ENGINES])
def test_what_init_writes_and_prints_is_for_the_engine(
    gpuflow: Gpuflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init, "origin", lambda: Origin("https://git.example.com/gpuflow.git", COMMIT))
    answer = gpuflow("init", *([f"--engine={engine}"] if engine else []))
    assert answer.code == 0
    assert ("since no engine is named" in answer.out) == (engine is None)
    engine = engine or "argo"
    for other in set(ENGINES) - {engine}:
        assert f"--engine {other}\n" not in answer.out and f"--target {other}" not in answer.out
    text = Path(".github/workflows/gpuflow.yaml").read_text()
    assert "@ENGINE@" not in text and "@FOLDER@" not in text
    job = yaml.safe_load(text)["jobs"]["check"]
    assert job["env"] == {"GPUFLOW_URL": "https://git.example.com/gpuflow.git", "GPUFLOW_COMMIT": COMMIT}
    assert f"install-{engine}.txt" in text and f"--target {engine} -o {load_target(engine).folder} --check" in text
    assert "checks nothing yet" not in answer.out
    # Without the engine's SDK nothing can be compiled, and init says so; Airflow's is not needed.
    assert Path(load_target(engine).folder).is_dir() != ("GF901" in answer.err)
    assert engine != "airflow" or Path("dags/my_pipeline.py").is_file()
    assert f"run:  {load_target(engine).first_run}\n" in answer.out


@pytest.mark.parametrize("engine", ENGINES)
def test_the_lines_of_init_can_be_pasted_one_after_another(
    gpuflow: Gpuflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """In one shell: a second `cd` into the same folder would fail."""
    monkeypatch.chdir(tmp_path)
    printed = gpuflow("init", "first", "--engine", engine).out
    assert re.findall(r"^(?:next|then|run): +(?:.*\b)?cd .*$", printed, re.MULTILINE) == [
        "next: cd first && gpuflow run pipeline.yaml --pretend-gpus"
    ]
    assert f"\nthen: gpuflow check pipeline.yaml --site site.yaml --cluster cluster/ --engine {engine}\n" in printed


def test_what_init_writes_runs_at_once_on_this_machine(
    gpuflow: Gpuflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line that it prints first; what the run leaves there is no pipeline of the folder."""
    monkeypatch.chdir(tmp_path)
    printed = gpuflow("init", "first", "--engine", "airflow").out
    command = re.findall("^next: cd first && gpuflow (.*)$", printed, re.MULTILINE)
    monkeypatch.chdir("first")
    answer = gpuflow(*command[0].split())
    assert answer.code == 0
    assert re.findall(r"^  \S.*$", answer.out, re.MULTILINE) == ["  + prepare  succeeded", "  + train  succeeded"]
    assert gpuflow("logs", "prepare").out == "preparing\n"
    assert gpuflow("logs", "train").out == "trained for 3 epochs\n"
    again = gpuflow("compile", ".", "--site", "site.yaml", "--target", "airflow", "-o", "dags/", "--check")
    assert (again.code, ".gpuflow" in again.out + again.err) == (0, False)


def test_the_site_for_argo_names_the_account_that_argos_own_containers_need(
    gpuflow: Gpuflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the default account of a namespace, Argo's containers may not report results, and every run fails."""
    monkeypatch.chdir(tmp_path)
    gpuflow("init", "--engine", "argo")
    accounts = gpuflow("site", "executor", "site.yaml")
    assert accounts.code == 0
    kinds = [document["kind"] for document in yaml.safe_load_all(accounts.out)]
    assert kinds == ["ServiceAccount", "Secret", "Role", "RoleBinding"]
    assert "GF317" not in gpuflow("validate", ".", "--site", "site.yaml", "--engine", "argo").err


def test_what_init_compiles_is_fresh(gpuflow: Gpuflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "--quiet"], check=True)
    assert gpuflow("init", "a folder", "--engine", "airflow").code == 0
    monkeypatch.chdir(tmp_path / "a folder")
    words = ("compile", ".", "--site", "site.yaml", "--target", "airflow", "-o", "dags/", "--check")
    assert gpuflow(*words).code == 0


def test_init_says_what_keeps_its_ci_from_working(
    gpuflow: Gpuflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init, "origin", lambda: None)
    answer = gpuflow("init", "below it", "--engine", "airflow")
    assert "next: cd 'below it' && gpuflow run" in answer.out
    assert "it checks nothing yet: set GPUFLOW_URL and GPUFLOW_COMMIT in it" in answer.out
    assert "GitHub reads workflows at the top of a repository only" in answer.out
    assert yaml.safe_load(Path("below it/.github/workflows/gpuflow.yaml").read_text())["jobs"]["check"]["env"] == {
        "GPUFLOW_URL": "",
        "GPUFLOW_COMMIT": "",
    }
    monkeypatch.setattr(init, "origin", lambda: Origin("file:///somewhere", COMMIT))
    answer = gpuflow("init", ".", "--engine", "airflow")
    assert "which only this machine has" in answer.out and "top of a repository" not in answer.out


def recorded(monkeypatch: pytest.MonkeyPatch, document: object) -> None:
    """What pip wrote down."""

    class Installed:
        def read_text(self, name: str) -> str:
            assert name == "direct_url.json"
            return json.dumps(document)

    monkeypatch.setattr(metadata, "distribution", lambda name: Installed())


def test_an_installation_from_git_knows_its_address_and_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    vcs = {"vcs": "git", "commit_id": COMMIT, "requested_revision": "main"}
    recorded(monkeypatch, {"url": "https://git.example.com/a/gpuflow.git", "vcs_info": vcs})
    assert origin() == Origin("https://git.example.com/a/gpuflow.git", COMMIT)
    for document in (None, [], {}, {"url": "https://x/y.whl", "archive_info": {}}):
        recorded(monkeypatch, document)
        assert origin() is None


def test_an_installation_from_a_clone_asks_the_clone_and_gives_no_password_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clone = tmp_path / "my clone"
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", "init", "--quiet", clone], check=True)
    subprocess.run(["git", "-C", clone, *who, "commit", "--quiet", "--allow-empty", "--message", "x"], check=True)
    recorded(monkeypatch, {"url": clone.as_uri(), "dir_info": {"editable": True}})
    assert origin() is None
    remote = "https://me:ghp_SECRET@git.example.com/a/gpuflow.git"
    subprocess.run(["git", "-C", clone, "remote", "add", "origin", remote], check=True)
    found = origin()
    assert found is not None and found.url == "https://git.example.com/a/gpuflow.git"
    head = subprocess.run(["git", "-C", clone, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert found.commit == head.stdout.strip()


@given(st.text(max_size=40), st.sampled_from(["", "https://", "ssh://git@h/", "file:///", "git@h:"]))
def test_an_address_needs_no_quotes_in_yaml_or_in_a_shell(text: str, before: str) -> None:
    found = _safe_origin(before + text, COMMIT)
    if found is not None:
        assert not set(found.url) & set(" \t\n\r\"'`$\\;&|<>(){}*?!#,")
        assert yaml.safe_load(f'a: "{found.url}"') == {"a": found.url}
    assert _safe_origin("https://git.example.com/a.git", text) is None or len(text) in (40, 64)


def test_the_guides_do_to_what_init_wrote_what_its_ci_does(gpuflow: Gpuflow, tmp_path: Path) -> None:
    """A namespace in one command and another in the site would make the compiled file stale."""
    assert gpuflow("init", tmp_path, "--engine", "airflow").code == 0
    guide = (ROOT / "docs" / "guides" / "airflow.md").read_text()
    commands = re.findall(r"^\$ gpuflow (compile pipeline\.yaml --site site\.yaml .*)$", guide, re.MULTILINE)[:2]
    ci = (tmp_path / ".github" / "workflows" / "gpuflow.yaml").read_text()
    assert len(commands) == 2 and "--namespace" not in " ".join(commands) + ci
