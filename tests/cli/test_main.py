"""The command line as a whole: help, version, exit codes, color, pipes, completion.

Tests gpuflow/cli/commands.py, gpuflow/cli/completion.py, gpuflow/cli/main.py and gpuflow/cli/terminal.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuflow.cli.commands import COMMANDS, load, parser_for
from gpuflow.core.version import __version__
from tests.cli.commands import NIGHTLY, Gpuflow

PYTHON = [sys.executable, "-m", "gpuflow.cli.main"]


def test_alone_and_with_help_it_lists_every_command(gpuflow: Gpuflow) -> None:
    assert gpuflow().code == 2
    for words in (("--help",), ("-h",), ("help",)):
        answer = gpuflow(*words)
        assert answer.code == 0
        assert [name for name in COMMANDS if f"\n  {name} " not in answer.out] == []
        assert "Exit codes: 0 fine, 1 findings, 2 bad input, 3 environment" in answer.out


def test_the_version_is_one_line(gpuflow: Gpuflow) -> None:
    for words in (("--version",), ("-V",)):
        assert gpuflow(*words).out == f"gpuflow {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_shows_an_example_that_begins_with_it(name: str, gpuflow: Gpuflow) -> None:
    with pytest.raises(SystemExit) as ended:
        gpuflow(name, "--help")
    assert ended.value.code == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_every_command_uses_options_that_exist(name: str) -> None:
    from gpuflow.cli.completion import words_of

    shown = parser_for(name).format_help()
    assert "example:" in shown
    known = {*words_of(name)[0], "-o"}
    commands = [line.split("#")[0] for line in load(name).EXAMPLE.splitlines() if line.startswith(f"gpuflow {name}")]
    assert commands
    for line in commands:
        assert {word for word in line.split(" | ")[0].split() if word.startswith("-")} <= known


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["valdiate"], "GF902", 'did you mean "validate"?'),
        (["show"], "GF903", "required: FILE"),
        (["show", NIGHTLY, "--format", "xml"], "GF903", "invalid choice: 'xml'"),
        (["show", NIGHTLY, "--frmat", "json"], "GF903", "unrecognized arguments: --frmat"),
        (["show", NIGHTLY, "--form", "json"], "GF903", "unrecognized arguments"),
        (["compile", NIGHTLY, "--target", "airflow", "--check"], "GF903", "needs -o"),
        (["check", NIGHTLY, "--cluster", "x", "--runs", "0"], "GF903", "--runs 0 is below 1"),
        (["show", NIGHTLY, "--param", "lr"], "GF903", "is not name=value"),
        (["show", NIGHTLY, "--param", "lr=fast"], "GF903", "is not a float"),
        (["show", NIGHTLY, "--param", "lr=-1"], "GF146", "below the minimum 0"),
        (["show", NIGHTLY, "--param", "rl=1"], "GF178", "known here: lr, suites"),
        (["explain", "GF000"], "GF905", "is not a gpuflow code"),
        (["show", "nowhere.yaml"], "GF100", "does not exist"),
        (["validate", NIGHTLY, "--site", "gkee"], "GF212", 'did you mean "gke"?'),
        (["show", NIGHTLY, "--site", "gkee"], "GF212", 'did you mean "gke"?'),
        (["show", NIGHTLY, "--param", 'suites={"a": 1}'], "GF182", "is not a list"),
        (["demand", NIGHTLY, "--namespace", "Team A"], "GF903", '"Team A" is not a namespace'),
        (["compile", NIGHTLY, "--target", "airflow", "--as", "crd"], "GF903", "--as is for --target argo and kubeflow"),
        (["compile", NIGHTLY, "--target", "airflow", "--semaphores", "x"], "GF903", "is for --target argo"),
        (["compile", NIGHTLY, "--target", "airflow", "--kustomization"], "GF903", "is for --target argo"),
        (["compile", NIGHTLY, "--target", "airflow", "-o", ""], "GF903", "name a file or a folder"),
        (["gpus", "show", "9g.99gb"], "GF202", "no model has a MIG profile 9g.99gb"),
        (["gpus", "instances", "zzz"], "GF203", "no instance type matches"),
    ],
)
def test_misuse_ends_with_2_a_code_and_the_way_out(words: list[str], code: str, text: str, gpuflow: Gpuflow) -> None:
    answer = gpuflow(*words)
    assert (answer.code, answer.out) == (2, "")
    assert f" {code} " in answer.err
    assert text in answer.err


def test_color_is_for_terminals_only(gpuflow: Gpuflow, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = gpuflow("show", NIGHTLY)
    assert "\x1b[" not in plain.out
    monkeypatch.setenv("FORCE_COLOR", "1")
    painted = gpuflow("show", NIGHTLY)
    assert "\x1b[1m" in painted.out
    monkeypatch.setenv("NO_COLOR", "1")
    assert gpuflow("show", NIGHTLY) == plain


def test_what_a_document_holds_cannot_break_the_line_or_color_the_screen(gpuflow: Gpuflow, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text('apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"\\e[31mred\\nline": 1\n')
    answer = gpuflow("validate", file)
    assert answer.code == 2
    assert "\x1b" not in answer.err
    assert answer.err.startswith(f"{file}:4:1: GF113 ")


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{' '.join(PYTHON)} show {NIGHTLY} --format json | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


def test_it_runs_without_a_terminal_a_home_or_a_locale() -> None:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    done = subprocess.run([*PYTHON, "show", NIGHTLY], capture_output=True, env=environment, check=True)
    assert "● fetch" in done.stdout.decode("utf-8")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_option(shell: str, gpuflow: Gpuflow) -> None:
    script = gpuflow("completion", shell)
    assert script.code == 0
    assert [name for name in COMMANDS if name not in script.out] == []
    assert "allow-lossy" in script.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_valid(shell: str, gpuflow: Gpuflow, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here, so its own parser cannot be asked")
    script = tmp_path / "script"
    script.write_text(gpuflow("completion", shell).out)
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["gpuflow", "val"], "validate"),
        (["gpuflow", "compile", "--allow"], "--allow-lossy"),
        (["gpuflow", "gpus", "pa"], "pack"),
    ],
)
def test_bash_completes_words(words: list[str], expected: str, gpuflow: Gpuflow, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(gpuflow("completion", "bash").out)
    line = " ".join(f'"{word}"' for word in words)
    ask = f'. {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _gpuflow; echo "${{COMPREPLY[*]}}"'
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert expected in done.stdout.split()
