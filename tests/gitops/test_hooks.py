"""The hooks for pre-commit, run by pre-commit itself, installed from a copy of this checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gpuflow.cli.main import main
from gpuflow.core.version import __version__
from tests.conftest import ROOT
from tests.gitops.conftest import TAKEN, git, no_index, plant
from tests.gitops.test_action import FOREIGN

TEMPLATES = ROOT / "gpuflow" / "templates"
PRE_COMMIT = Path(sys.executable).with_name("pre-commit")
TARGET = ["--site=site.yaml", "--target=argo", "--output=argo_templates/", "--kustomization"]
HOOKS = [
    {"id": "gpuflow-validate", "args": ["--site=site.yaml"]},
    {"id": "gpuflow-compile-check", "args": ["pipelines/", *TARGET]},
    {"id": "gpuflow-check", "args": ["pipelines/", "--site=site.yaml", "--cluster=cluster/"]},
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pre-commit keeps what it installs: once for all tests here."""
    return tmp_path_factory.mktemp("pre-commit")


Hooks = Callable[[], dict[str, str]]


@pytest.fixture
def repository(checkout: Path, tmp_path: Path) -> Path:
    """A pipeline with its compiled file, a site, a cluster, and the hooks; all of it staged."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "cluster").mkdir()
    shutil.copy(TEMPLATES / "pipeline.yaml", tmp_path / "pipelines" / "first.yaml")
    shutil.copy(TEMPLATES / "site.yaml", tmp_path / "site.yaml")
    shutil.copy(TEMPLATES / "cluster.yaml", tmp_path / "cluster" / "quota.yaml")
    config = {"repos": [{"repo": f"file://{checkout}", "rev": f"v{__version__}", "hooks": HOOKS}]}
    (tmp_path / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    git(tmp_path, "init", "--quiet")
    return tmp_path


@pytest.fixture
def hooks(repository: Path, home: Path) -> Hooks:
    """Stage everything, run the hooks, and say how each ended; `log` has what they printed."""

    def run() -> dict[str, str]:
        git(repository, "add", "--all")
        done = subprocess.run(
            [PRE_COMMIT, "run", "--all-files", "--color=never"],
            cwd=repository,
            env={**os.environ, "PRE_COMMIT_HOME": str(home)},
            text=True,
            capture_output=True,
            check=False,
        )
        ended = dict(re.findall(r"^(gpuflow [a-z -]+?)\.+(Passed|Failed)$", done.stdout, re.MULTILINE))
        if len(ended) != len(HOOKS):
            no_index(done.stdout + done.stderr)
        return {**ended, "log": done.stdout}

    return run


@pytest.fixture
def compile_first(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def now() -> None:
        monkeypatch.chdir(repository)
        assert main(["compile", "pipelines/first.yaml", *TARGET]) == 0

    return now


def test_pre_commit_takes_the_manifest_of_hooks() -> None:
    path = ROOT / ".pre-commit-hooks.yaml"
    subprocess.run([PRE_COMMIT, "validate-manifest", path], check=True)
    assert [hook["id"] for hook in yaml.safe_load(path.read_text())] == [hook["id"] for hook in HOOKS]


def test_what_is_fresh_passes_and_a_source_that_changed_or_a_file_that_was_edited_fails(
    hooks: Hooks, repository: Path, compile_first: Callable[[], None]
) -> None:
    assert hooks()["gpuflow compile --check"] == "Failed"
    compile_first()
    ended = hooks()
    assert {name: word for name, word in ended.items() if name != "log"} == {
        "gpuflow validate": "Passed",
        "gpuflow compile --check": "Passed",
        "gpuflow check": "Passed",
    }
    source = repository / "pipelines" / "first.yaml"
    source.write_text(source.read_text().replace("cpu: 1", "cpu: 2"))
    ended = hooks()
    assert (ended["gpuflow validate"], ended["gpuflow compile --check"]) == ("Passed", "Failed")
    assert '+          cpu: "2"' in ended["log"]
    compile_first()
    assert hooks()["gpuflow compile --check"] == "Passed"
    made = repository / "argo_templates" / "kustomization.yaml"
    made.write_text(made.read_text().replace("namespace: my-team", "namespace: other"))
    assert hooks()["gpuflow compile --check"] == "Failed"


def test_a_new_pipeline_is_checked_by_each_hook_without_being_listed(
    hooks: Hooks, repository: Path, compile_first: Callable[[], None]
) -> None:
    compile_first()
    assert hooks()["gpuflow compile --check"] == "Passed"
    text = (repository / "pipelines" / "first.yaml").read_text().replace("my-pipeline", "second")
    (repository / "pipelines" / "second.yaml").write_text(text.replace("gpu: l4", "gpu: l4 x 8"))
    ended = hooks()
    assert [ended[name] for name in ("gpuflow validate", "gpuflow compile --check", "gpuflow check")] == [
        "Passed",
        "Failed",
        "Failed",
    ]
    assert "+++ argo_templates/second.yaml" in ended["log"]


def test_documents_of_other_tools_are_validated_and_checked(
    hooks: Hooks, repository: Path, compile_first: Callable[[], None]
) -> None:
    compile_first()
    theirs = repository / "pipelines" / "theirs.yaml"
    theirs.write_text(FOREIGN.replace("GPUS", "1"))
    (repository / "pipelines" / "dag.py").write_text(f"import airflow\nopen({TAKEN!r}, 'w').close()\n")
    words = ("gpuflow validate", "gpuflow compile --check", "gpuflow check")
    ended = hooks()
    assert [ended[name] for name in words] == ["Passed", "Passed", "Passed"], ended["log"]
    theirs.write_text(FOREIGN.replace("GPUS", "1000"))
    ended = hooks()
    assert [ended[name] for name in words] == ["Passed", "Passed", "Failed"]
    assert "theirs in namespace my-team: NEVER" in ended["log"]
    assert "Python, not run unless named: pipelines/dag.py" in ended["log"]
    assert not (repository / TAKEN).exists()


def test_a_broken_pipeline_and_one_the_cluster_never_admits_fail_in_their_own_hook(
    hooks: Hooks, repository: Path, compile_first: Callable[[], None]
) -> None:
    source = repository / "pipelines" / "first.yaml"
    sound = source.read_text()
    source.write_text(sound.replace("gpu: l4", "gpu: l4 x 8"))
    compile_first()
    ended = hooks()
    assert [ended[name] for name in ("gpuflow validate", "gpuflow compile --check", "gpuflow check")] == [
        "Passed",
        "Passed",
        "Failed",
    ]
    source.write_text(sound.replace("needs: [prepare]", "needs: [prepar]"))
    ended = hooks()
    assert ended["gpuflow validate"] == "Failed"
    assert "GF177" in ended["log"]


def test_nothing_of_the_repository_is_run_and_a_python_pipeline_is_refused(
    hooks: Hooks, repository: Path, home: Path, compile_first: Callable[[], None]
) -> None:
    compile_first()
    plant(repository)
    ended = hooks()
    assert [ended[name] for name in ("gpuflow validate", "gpuflow compile --check", "gpuflow check")] == ["Passed"] * 3
    assert not (repository / TAKEN).exists(), (repository / TAKEN).read_text()
    # pre-commit itself does not survive such a PYTHONPATH here; what it calls does.
    (script,) = home.glob("repo*/tools/hook")
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep}
    words = ["validate", "--no-allow-python", "pipelines/first.yaml", "pipelines/json.py"]
    done = subprocess.run(
        [script, *words], cwd=repository, env=surroundings, text=True, capture_output=True, check=False
    )
    assert (done.returncode, "GF196" in done.stderr, "first.yaml: ok" in done.stdout) == (2, True, True), done.stderr
    assert not (repository / TAKEN).exists(), (repository / TAKEN).read_text()


def test_a_file_name_is_no_option_of_the_hook(tmp_path: Path) -> None:
    """pre-commit hands names over as they are, after the options that the user gave."""
    python = tmp_path / "hook" / ".venvs" / "hook-argo" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    (tmp_path / "hook" / "tools").mkdir()
    hook = shutil.copy(ROOT / "tools" / "hook", tmp_path / "hook" / "tools" / "hook")
    name = "--site=x/pipelines/a.yaml"
    (tmp_path / name).parent.mkdir(parents=True)

    def run() -> subprocess.CompletedProcess[str]:
        words = [hook, "validate", "--site=site.yaml", name]
        return subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, check=False)

    assert run().stdout == f"-I -m gpuflow.cli.main validate --site=site.yaml {name}\n"
    (tmp_path / name).write_text("")
    ended = run()
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "would be taken for an option" in ended.stderr
