"""From a clone: the lines of docs/install.md, what `init` writes and prints, and the three commands of the README.

Everything is installed as the pages say, from a Git address with a commit (`file://`). Nothing is downloaded again:
pip finds the packages of the suite's own environment, which are those of the same lock; only gpuflow is new.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.first_hour.pages import ENGINES, HERE, text_of
from tests.first_hour.test_pages import CHOICE, _as_chosen
from tests.gitops.conftest import WHO, git, no_index
from tests.gitops.guide import Shell, told_again

pytestmark = [pytest.mark.slow, pytest.mark.skipif(HERE not in ENGINES, reason="needs an engine's environment")]
KEPT = ("PIP_", "SSL_", "HTTP", "LANG", "XDG_")


@pytest.fixture(scope="module")
def installed(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Shell, str]:
    """docs/install.md followed once, and the page as its commands answered; `env/bin` has this engine's gpuflow."""
    folder = tmp_path_factory.mktemp("first-hour")
    (folder / "home").mkdir()
    kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
    source = {"URL": f"file://localhost{checkout}", "COMMIT": git(checkout, "rev-parse", "HEAD").strip()}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    mine = {"HOME": str(folder / "home"), "PATH": path, "PYTHONPATH": sysconfig.get_paths()["purelib"]}
    kept.setdefault("PIP_DEFAULT_TIMEOUT", "90")  # an index that is slow is waited for, without a word about it
    shell = Shell(folder, {**kept, **WHO, **source, **mine, "NO_COLOR": "1"})
    again = told_again(CHOICE.sub(HERE, text_of("docs/install.md")), shell, {None})
    if not (folder / "env" / "bin" / "gpuflow").exists():
        no_index(again)
    (packages,) = (folder / "env" / "lib").glob("python3*/site-packages")
    (packages / "suite.pth").write_text(f"{shell.env.pop('PYTHONPATH')}\n")  # behind what was installed
    return shell, again


def test_the_lines_that_install_it_do(installed: tuple[Shell, str], golden: Callable[[Path, str], None]) -> None:
    _, again = installed
    golden(ROOT / "docs" / "install.md", _as_chosen(again, text_of("docs/install.md")))


@pytest.fixture
def started(installed: tuple[Shell, str], tmp_path: Path) -> tuple[Path, str]:
    """`gpuflow init --engine …` in an empty Git repository, with the gpuflow that was installed; what it printed."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    return folder, _run(installed[0], folder, f"gpuflow init --engine {HERE}")


def _run(shell: Shell, folder: Path, command: str, **more: str) -> str:
    path = os.pathsep.join([str(shell.folder / "env" / "bin"), shell.env["PATH"]])
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command],
        cwd=folder,
        env={**shell.env, "PATH": path, **more},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_every_line_that_init_prints_can_be_run(installed: tuple[Shell, str], started: tuple[Path, str]) -> None:
    folder, printed = started
    commands = re.findall(r"^(?:next|then): (.*)$", printed, re.MULTILINE)
    assert [command.split()[1] for command in commands] == ["run", "check", "compile"]
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".git/" not in str(path)}
    for command in commands:
        assert HERE in command or command.startswith("gpuflow run ")
        _run(installed[0], folder, command)
    # What init compiled is what the user's own command compiles.
    assert before == {path: path.read_bytes() for path in before}


def test_the_ci_that_init_writes_is_green_in_the_first_pull_request(
    installed: tuple[Shell, str], started: tuple[Path, str], tmp_path: Path
) -> None:
    """Its own commands, one by one; as written, with the address and the commit that gpuflow was installed from."""
    shell, (folder, _) = installed[0], started
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "first")
    workflow = yaml.safe_load((folder / ".github" / "workflows" / "gpuflow.yaml").read_text())
    job = workflow["jobs"]["check"]
    assert job["env"]["GPUFLOW_COMMIT"] == shell.env["COMMIT"]
    assert job["env"]["GPUFLOW_URL"].removeprefix("file://localhost") == shell.env["URL"].removeprefix(
        "file://localhost"
    )
    runner = tmp_path / "runner"
    runner.mkdir()
    steps = [step for step in job["steps"] if "run" in step]
    assert len(steps) == 4
    for step in steps:
        place = runner if step.get("working-directory") == "${{ runner.temp }}" else folder
        _run(shell, place, _with_packages(step["run"]), RUNNER_TEMP=str(runner), **job["env"])
    source = folder / "pipeline.yaml"
    (folder / "second.yaml").write_text(source.read_text().replace("my-pipeline", "second"))
    with pytest.raises(AssertionError, match="1 file is stale"):  # a new pipeline is checked without being listed
        _run(shell, folder, steps[-1]["run"], RUNNER_TEMP=str(runner), **job["env"])


def _with_packages(script: str) -> str:
    """An isolated Python sees no PYTHONPATH: the packages of the suite are put into its environment instead."""
    packages = sysconfig.get_paths()["purelib"]
    link = f"echo {packages} > $(gpuflow/bin/python -I -c 'import site; print(site.getsitepackages()[0])')/suite.pth"
    return script.replace("python -I -m venv gpuflow\n", f"python -I -m venv gpuflow\n{link}\n")


def test_an_init_that_does_not_know_its_origin_writes_a_ci_that_says_so_and_is_green(tmp_path: Path) -> None:
    text = (ROOT / "gpuflow" / "templates" / "ci.yaml").read_text()
    for word in ("URL", "COMMIT"):
        text = text.replace(f"@{word}@", "")
    steps = yaml.safe_load(text)["jobs"]["check"]["steps"]
    scripts = [step for step in steps if "run" in step]
    done = subprocess.run(
        ["bash", "-e", "-c", scripts[0]["run"]], cwd=tmp_path, env={**os.environ, "GPUFLOW_URL": ""},
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "::warning::" in done.stdout, list(tmp_path.iterdir())) == (0, True, [])
    assert {step["if"] for step in scripts[1:]} == {"${{ env.GPUFLOW_URL != '' }}"}


@pytest.mark.skipif(HERE != "argo", reason="run once, in the suite that also installs the hooks")
def test_the_three_commands_of_the_readme_from_a_fresh_clone(
    checkout: Path, tmp_path: Path, golden: Callable[[Path, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """All packages are installed here: this is the time that a new user waits, less what pip has in its cache."""
    began = time.monotonic()
    subprocess.run(["git", "clone", "--quiet", str(checkout), tmp_path / "gpuflow"], check=True)
    (tmp_path / "home").mkdir()
    env = {name: value for name, value in os.environ.items() if name.startswith((*KEPT, "PATH"))}
    home = {
        "HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
    }
    shell = Shell(tmp_path / "gpuflow", {**env, **home, "NO_COLOR": "1"})
    text = text_of("README.md")
    again = told_again(text, shell, {None, "timing"})
    if not (tmp_path / "gpuflow" / ".venvs" / "demo" / ".ready").exists():
        no_index(again)
    with capsys.disabled():
        print(f"\nREADME from a fresh clone, run, compiled and checked: {time.monotonic() - began:.0f} s")
    golden(ROOT / "README.md", again)


def test_the_readme_shows_the_file_that_its_commands_read() -> None:
    example = (ROOT / "docs" / "examples" / "first" / "finetune.yaml").read_text(encoding="utf-8")
    assert f"```yaml\n{example}```" in text_of("README.md")
