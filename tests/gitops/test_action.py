"""The GitHub Action: its metadata is sound, and its steps say of a repository what gpuflow says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gpuflow.core.version import __version__
from tests.conftest import ROOT
from tests.gitops.action import ACTION, INSTALLING, Ended, commands, run
from tests.gitops.comments import comments
from tests.gitops.conftest import TAKEN, git, no_index, plant
from tests.gitops.test_comment import event, surroundings

TEMPLATES = ROOT / "gpuflow" / "templates"
STEP_KEYS = {"name", "id", "if", "shell", "working-directory", "env", "run"}
SCRIPTS = [step for step in ACTION["runs"]["steps"] if "run" in step]
OTHERS = [step for step in ACTION["runs"]["steps"] if "uses" in step]


def test_the_metadata_has_what_github_asks_of_a_composite_action() -> None:
    assert set(ACTION) <= {"name", "description", "author", "branding", "inputs", "outputs", "runs"}
    assert ACTION["name"] and ACTION["description"]
    assert set(ACTION["runs"]) == {"using", "steps"} and ACTION["runs"]["using"] == "composite"
    for name, entry in ACTION["inputs"].items():
        assert re.fullmatch(r"[a-z][a-z-]*", name)
        assert set(entry) <= {"description", "required", "default"}
        assert entry["description"]
        assert entry.get("required") is True or isinstance(entry["default"], str)
    ids = {step["id"] for step in ACTION["runs"]["steps"] if "id" in step}
    for entry in ACTION["outputs"].values():
        found = re.fullmatch(r"\$\{\{ steps\.(\w+)\.outputs\.\w+ \}\}", entry["value"])
        assert found and found[1] in ids
    for step in SCRIPTS:
        assert set(step) <= STEP_KEYS
        assert step["shell"] == "bash"
    assert "gpuflow --version" in ACTION["runs"]["steps"][INSTALLING - 2]["run"].replace('"', "")
    for step in OTHERS:
        assert set(step) <= {"name", "id", "if", "uses", "with"}
        assert re.fullmatch(r"actions/cache/(restore|save)@[0-9a-f]{40}", step["uses"])


def test_no_script_holds_an_expression_so_nobody_can_add_a_command() -> None:
    assert [step["name"] for step in SCRIPTS if "${{" in step["run"]] == []
    named = {word for step in ACTION["runs"]["steps"] for word in re.findall(r"inputs\.([a-z-]+)", json.dumps(step))}
    assert named == set(ACTION["inputs"])


@pytest.fixture(scope="module")
def temp(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runner's folder, after the action's own first step has installed gpuflow from its own folder.

    The repository is hostile: had anything of it been run, the tests would not begin.
    """
    folder, hostile = tmp_path_factory.mktemp("runner"), tmp_path_factory.mktemp("hostile")
    plant(hostile)
    given = {"files": "none", "output": "", "cluster": ""}
    ended = run(hostile, folder, checkout, given, installed=False, more=SURROUNDINGS)
    assert not (hostile / TAKEN).exists(), (hostile / TAKEN).read_text()
    if ended.status:
        no_index(ended.log)
    assert ended.log.splitlines() == [
        f"gpuflow {__version__}",
        "no output is given: nothing is compiled",
        "no cluster is given: nothing is checked",
        "this run belongs to no pull request: no comment",
    ]
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two pipelines, a site and a cluster, committed."""
    folder = tmp_path / "repository"
    (folder / "pipelines").mkdir(parents=True)
    (folder / "cluster").mkdir()
    text = (TEMPLATES / "pipeline.yaml").read_text()
    (folder / "pipelines" / "first.yaml").write_text(text)
    (folder / "pipelines" / "my second.yaml").write_text(text.replace("my-pipeline", "second"))
    shutil.copy(TEMPLATES / "site.yaml", folder / "site.yaml")
    shutil.copy(TEMPLATES / "cluster.yaml", folder / "cluster" / "quota.yaml")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "pipelines")
    return folder


SURROUNDINGS = {"PYTHONPATH": os.pathsep, "PYTHONSTARTUP": "venv.py", "PIP_CONFIG_FILE": "pip.conf"}
"""What a job may have set: an empty entry of PYTHONPATH is the current folder, as is that of a relative path."""
Act = Callable[..., Ended]


@pytest.fixture
def act(temp: Path, checkout: Path, repository: Path) -> Act:
    """Run the action for the repository, all of its pipelines when not told otherwise."""

    def on(**given: str) -> Ended:
        inputs = {"files": "pipelines/*.yaml", "site": "site.yaml", "cluster": "cluster/", "kustomization": "true"}
        inputs |= {name.replace("_", "-"): value for name, value in given.items()}
        return run(repository, temp, checkout, inputs, installed=True, more=SURROUNDINGS)

    return on


def compile_all(temp: Path, repository: Path) -> None:
    files = sorted(str(path.relative_to(repository)) for path in (repository / "pipelines").iterdir())
    options = ["--site", "site.yaml", "--target", "argo", "-o", "argo_templates/", "--kustomization"]
    subprocess.run([temp / "gpuflow/bin/gpuflow", "compile", *files, *options], cwd=repository, check=True)


def test_a_fresh_folder_that_the_cluster_admits_passes(act: Act, temp: Path, repository: Path) -> None:
    compile_all(temp, repository)
    ended = act()
    assert (ended.status, ended.outputs) == (0, {"stale": "false", "admitted": "true"})
    assert re.findall(r"^### \S+ `([a-z-]+)` in `my-team`: (.+)$", ended.summary, re.MULTILINE) == [
        ("my-pipeline", "always"),
        ("second", "always"),
    ]


FOREIGN = """apiVersion: batch/v1
kind: Job
metadata: {name: theirs}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: GPUS}}}]
"""


def test_documents_of_other_tools_are_checked_and_their_programs_are_listed_and_not_run(
    act: Act, repository: Path
) -> None:
    (repository / "k8s").mkdir()
    (repository / "k8s" / "job.yaml").write_text(FOREIGN.replace("GPUS", "1"))
    (repository / "k8s" / "dag.py").write_text(f"import airflow\nopen({TAKEN!r}, 'w').close()\n")
    ended = act(files="k8s/", output="", allow_python="true", kustomization="false")
    assert (ended.status, ended.outputs) == (0, {"admitted": "true"})
    assert "`theirs` in `my-team`: always" in ended.summary
    assert "Python, not run unless named: k8s/dag.py" in ended.log
    (repository / "k8s" / "job.yaml").write_text(FOREIGN.replace("GPUS", "1000"))
    ended = act(files="k8s/job.yaml", output="")
    assert (ended.status, ended.outputs) == (1, {"admitted": "false"})
    assert not (repository / TAKEN).exists()


def test_a_stale_folder_fails_shows_the_difference_and_is_still_checked(act: Act, temp: Path, repository: Path) -> None:
    compile_all(temp, repository)
    path = repository / "pipelines" / "first.yaml"
    path.write_text(path.read_text().replace("cpu: 1", "cpu: 2"))
    ended = act()
    assert (ended.status, ended.outputs) == (1, {"stale": "true", "admitted": "true"})
    assert "### ❌ Stale" in ended.summary
    assert '+          cpu: "2"' in ended.summary
    assert "1 file is stale" in ended.log


def test_a_pipeline_the_cluster_never_admits_fails_with_annotations_and_sarif(
    act: Act, temp: Path, repository: Path
) -> None:
    path = repository / "pipelines" / "first.yaml"
    path.write_text(path.read_text().replace("gpu: l4", "gpu: l4 x 8"))
    compile_all(temp, repository)
    ended = act(sarif="findings.sarif")
    assert (ended.status, ended.outputs) == (1, {"stale": "false", "admitted": "false"})
    assert re.search(r"^::error file=pipelines/first\.yaml,line=\d+", ended.log, re.MULTILINE)
    assert "`my-pipeline` in `my-team`: never" in ended.summary
    written = json.loads((repository / "findings.sarif").read_text())
    assert written["version"] == "2.1.0"
    assert any(result["level"] == "error" for result in written["runs"][0]["results"])


def test_fail_on_namespace_and_further_options_reach_the_checker(act: Act, repository: Path) -> None:
    path = repository / "pipelines" / "first.yaml"
    path.write_text(path.read_text().replace("gpu: l4", "gpu: l4 x 4"))
    given = {"files": "pipelines/first.yaml", "output": ""}
    assert act(**given).outputs == {"admitted": "true"}
    assert act(**given, fail_on="may-queue").outputs == {"admitted": "false"}
    assert act(**given, namespace="nowhere").status != 0
    assert act(**given, check_options="--runs 1 --fail-on may-queue").outputs == {"admitted": "false"}


def test_the_summary_compares_with_a_revision_where_the_pipeline_was_already_there(act: Act, repository: Path) -> None:
    path = repository / "pipelines" / "first.yaml"
    path.write_text(path.read_text().replace("gpu: l4", "gpu: l4 x 2"))
    (repository / "pipelines" / "third.yaml").write_text(path.read_text().replace("my-pipeline", "third"))
    ended = act(output="", compare="HEAD")
    assert ended.status == 0
    assert re.search(r"`requests.nvidia.com/gpu` .*\b1\b.*\b2\b", ended.summary)
    assert "`third` in `my-team`" in ended.summary


@pytest.mark.parametrize("files", ["pipelines/*.toml", "pipelines/none.yaml"])
def test_files_that_are_not_there_fail(act: Act, files: str) -> None:
    ended = act(files=files)
    assert ended.status == 2
    assert files in ended.log


HOSTILE = ["$(touch taken)", "`touch taken`", "'; touch taken; '", '"; touch taken; "', "x && touch taken", "${IFS}"]
LISTS = {"files", "compile-options", "check-options"}
SWITCHES = {"kustomization", "allow-python", "locked", "comment", "cache"}
IN_COMMANDS = sorted(set(ACTION["inputs"]) - {"working-directory", "python", "package", "sarif", "token"} - SWITCHES)


@pytest.mark.parametrize("name", IN_COMMANDS)
def test_an_input_reaches_gpuflow_as_it_is_and_is_never_run(repository: Path, tmp_path: Path, name: str) -> None:
    """A stand-in for gpuflow writes down the words it is called with."""
    program = tmp_path / "gpuflow" / "bin" / "gpuflow"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >> {tmp_path}/words\n")
    program.chmod(0o755)
    for text in HOSTILE:
        (tmp_path / "words").write_text("")
        given = {"files": "pipelines/first.yaml", "cluster": "cluster/", "compare": "HEAD", name: text}
        run(repository, tmp_path, ROOT, given, installed=True)
        words = (tmp_path / "words").read_text().splitlines()
        assert not (repository / "taken").exists()
        # Lists are split into words; every other input is one word. A revision says that it is one.
        text = f"git:{text}" if name == "compare" else text
        assert set(text.split() if name in LISTS else [text]) <= set(words)


def test_nothing_of_the_repository_is_run(act: Act, temp: Path, repository: Path) -> None:
    plant(repository)
    (repository / "pipelines" / "yaml.py").unlink()
    (repository / "pipelines" / "json.py").unlink()
    compile_all(temp, repository)
    ended = act(compare="HEAD", sarif="gpuflow.sarif")
    assert (ended.status, ended.outputs) == (0, {"stale": "false", "admitted": "true"}), ended.log
    assert not (repository / TAKEN).exists(), (repository / TAKEN).read_text()


def test_a_python_pipeline_is_run_only_when_it_was_asked_for(act: Act, repository: Path) -> None:
    (repository / "pipelines" / "program.py").write_text("open('taken', 'w').close()\n")
    ended = act(files="pipelines/*", compile_options="--allow-python", check_options="--allow-python")
    assert ended.status == 2
    assert ended.log.count("GF196 pipelines/program.py is a program and is not run") == 2
    assert not (repository / TAKEN).exists()
    act(files="pipelines/*", allow_python="true")
    assert (repository / TAKEN).exists()


def test_what_a_committed_link_leads_to_is_neither_in_the_log_nor_in_the_summary(
    act: Act, temp: Path, repository: Path
) -> None:
    (repository.parent / "config").write_text("token: kube-SECRET\n")
    compile_all(temp, repository)
    (repository / "argo_templates" / "second.yaml").unlink()
    (repository / "argo_templates" / "second.yaml").symlink_to("../../config")
    ended = act()
    assert (ended.status, "GF909" in ended.log) == (2, True)
    assert "SECRET" not in ended.log + ended.summary


def test_findings_are_written_anywhere_in_the_workspace_but_in_git_and_a_folder_that_is_missing_is_said(
    temp: Path, checkout: Path, repository: Path
) -> None:
    """A part of a large repository may keep its reports beside those of the others."""
    given = {"files": "first.yaml", "site": "../site.yaml", "cluster": "../cluster/", "output": ""}

    def to(sarif: str) -> Ended:
        inputs = {**given, "working-directory": "pipelines", "sarif": sarif}
        workspace = {"GITHUB_WORKSPACE": str(repository)}
        return run(repository, temp, checkout, inputs, installed=True, more=workspace)

    assert to("../gpuflow.sarif").status == 0
    assert json.loads((repository / "gpuflow.sarif").read_text())["version"] == "2.1.0"
    assert to("../../gpuflow.sarif").status == 2
    (repository / "reports").symlink_to(".git/hooks")
    assert to("../reports/pre-commit").status == 2
    missing = to("nowhere/gpuflow.sarif")
    assert missing.status == 2 and "::error::the folder of sarif does not exist" in missing.log


@pytest.mark.parametrize("sarif", ["gpuflow.sarif", "reports/gpuflow.sarif"])
def test_findings_are_not_written_through_a_link(act: Act, repository: Path, sarif: str) -> None:
    outside = repository.parent / "outside"
    outside.mkdir()
    (repository / "gpuflow.sarif").symlink_to(outside / "gpuflow.sarif")
    (repository / "reports").symlink_to(outside)
    ended = act(output="", sarif=sarif)
    assert (ended.status, "is not written" in ended.log, list(outside.iterdir())) == (2, True, [])


SPOKEN = ["::error title=Security review::approved", "::stop-commands::x", "::add-mask::a", "~" * 40, "##[group]x"]


def test_no_line_of_a_difference_is_a_command_and_none_ends_its_block(act: Act, temp: Path, repository: Path) -> None:
    path = repository / "pipelines" / "first.yaml"
    script = "".join(f"      {line}\n" for line in SPOKEN)
    path.write_text(path.read_text() + f"  last:\n    image: i:1\n    script: |\n{script}")
    ended = act()
    assert ended.outputs["stale"] == "true"
    spoken = [line.replace("##[", r"#\u0023[") for line in SPOKEN]  # a runner looks for this one anywhere in a line
    for line in spoken:
        assert line in ended.log
    assert [
        line
        for line in commands(ended.log)
        if not line.startswith(("::warning file=", "::notice file=", "::notice title=gpuflow::"))
    ] == []
    fence = max(re.findall("^~+", ended.summary, re.MULTILINE), key=len)
    block = re.search(f"^{fence}diff\n(.*?)^{fence}$", ended.summary, re.MULTILINE | re.DOTALL)
    assert block is not None and all(line in block[1] for line in spoken)
    assert not re.search(f"^ {{0,3}}{fence}", block[1], re.MULTILINE)


def test_a_file_with_the_name_of_the_revision_is_not_compared_with(act: Act, repository: Path) -> None:
    path = repository / "pipelines" / "first.yaml"
    path.write_text(path.read_text().replace("gpu: l4", "gpu: l4 x 2"))
    (repository / "HEAD").write_text(path.read_text())
    ended = act(output="", compare="HEAD", files="pipelines/first.yaml")
    assert re.search(r"`requests.nvidia.com/gpu` .*\b1\b.*\b2\b", ended.summary)


def test_the_workflow_in_the_guide_gives_inputs_that_exist() -> None:
    guide = (ROOT / "docs" / "guides" / "argo-gitops.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml \.github/workflows/gpuflow\.yaml\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    steps = yaml.safe_load(text)["jobs"]["check"]["steps"]
    (given,) = [step["with"] for step in steps if step["uses"] == "./.gpuflow"]
    assert given.keys() <= ACTION["inputs"].keys()
    required = {name for name, entry in ACTION["inputs"].items() if entry.get("required")}
    assert required <= given.keys()


def test_the_action_checks_once_whatever_it_writes(repository: Path, tmp_path: Path) -> None:
    """A stand-in for gpuflow counts how often it is called."""
    program = tmp_path / "gpuflow" / "bin" / "gpuflow"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/calls\n')
    program.chmod(0o755)
    given = {"files": "pipelines/*.yaml", "cluster": "cluster/", "compare": "HEAD", "sarif": "gpuflow.sarif"}
    run(repository, tmp_path, ROOT, given, installed=True)
    assert (tmp_path / "calls").read_text().split() == ["compile", "check"]


def test_the_pull_request_gets_one_comment_that_follows_its_changes(
    temp: Path, checkout: Path, repository: Path
) -> None:
    compile_all(temp, repository)
    given = {"files": "pipelines/", "site": "site.yaml", "cluster": "cluster/", "kustomization": "true"}
    with comments() as github:
        more = {**SURROUNDINGS, **surroundings(github, temp, event())}
        first = run(repository, temp, checkout, given, installed=True, more=more)
        assert first.status == 0 and "wrote a comment" in first.log
        (comment,) = github.present
        assert "✅ What is committed is what the sources compile to." in comment["body"]
        assert comment["body"].count(": always") == 2
        path = repository / "pipelines" / "first.yaml"
        path.write_text(path.read_text().replace("gpu: l4", "gpu: l4 x 8"))
        second = run(repository, temp, checkout, given, installed=True, more=more)
        assert second.status == 1 and "updated the comment" in second.log
        assert len(github.present) == 1
        assert "### ❌ Stale" in comment["body"] and "`my-pipeline` in `my-team`: never" in comment["body"]
        path.write_text("apiVersion: gpuflow/v1\nkind: Pipeline\n")
        third = run(repository, temp, checkout, given, installed=True, more=more)
        assert third.status == 2
        assert "Cannot be compiled" in comment["body"] and "Cannot be checked" in comment["body"]
        assert "never" not in comment["body"]


def test_text_of_the_pull_request_is_only_text_in_the_comment(temp: Path, checkout: Path, repository: Path) -> None:
    text = (repository / "pipelines" / "first.yaml").read_text().replace("gpu: l4", "gpu: l4 x 8")
    (repository / "pipelines" / "@all-hands<img>[a](b).yaml").write_text(text.replace("my-pipeline", "third"))
    with comments() as github:
        more = {**SURROUNDINGS, **surroundings(github, temp, event())}
        given = {"files": "pipelines/", "site": "site.yaml", "cluster": "cluster/", "output": ""}
        assert run(repository, temp, checkout, given, installed=True, more=more).status == 1
        (comment,) = github.present
    assert "@all-hands<img>[a](b).yaml" in comment["body"]
    plain = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", comment["body"])
    assert "@all" not in plain and "[a](b)" not in plain and "<img" not in plain


def test_packages_are_downloaded_once_and_kept_by_the_lock(
    checkout: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """pip itself is a stand-in, which keeps a file where it is told to: what is kept is GitHub's matter and ours."""
    kept, python = tmp_path / "kept", tmp_path / "python"
    kept.mkdir()
    python.write_text(
        '#!/usr/bin/env bash\n[ "$3" = venv ] || exit 9\nmkdir -p "$4/bin"\ncp "$0.pip" "$4/bin/python"\n'
        'printf "#!/bin/sh\\n" > "$4/bin/gpuflow"; chmod +x "$4/bin/gpuflow"\n'
    )
    (tmp_path / "python.pip").write_text(
        "#!/usr/bin/env bash\nwhile [ $# -gt 0 ]; do\n"
        '  if [ "$1" = --cache-dir ]; then ls "$2" 2> /dev/null; mkdir -p "$2"; touch "$2/wheel"; fi; shift\ndone\n'
    )
    for program in (python, tmp_path / "python.pip"):
        program.chmod(0o755)

    def log(target: str) -> str:
        given = {"files": "none", "output": "", "python": str(python), "target": target, "comment": "false"}
        runner = tmp_path_factory.mktemp("runner")
        return run(tmp_path, runner, checkout, given, installed=False, kept=kept).log

    # pip is called three times, and the first call of a run sees only what an earlier run has left.
    assert [log(target).count("wheel\n") for target in ("argo", "argo", "airflow")] == [2, 3, 2]
    assert sorted(path.name.split("-")[3] for path in kept.iterdir()) == ["airflow", "argo"]
    assert "target is argo, airflow or kubeflow" in log("../../argo")
