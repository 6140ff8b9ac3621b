"""What is refused, and said all at once before anything starts.

Tests gpuflow/local/preflight.py, gpuflow/cli/run.py, gpuflow/cli/runs.py, gpuflow/cli/logs.py and
gpuflow/local/console.py.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.local import Console, run
from gpuflow.local.record import runs_in
from tests.cli.commands import Gpuflow
from tests.local.programs import outputs, run_steps, write


@pytest.fixture
def gpuflow(capsys: pytest.CaptureFixture[str], here: Path) -> Gpuflow:
    return Gpuflow(capsys)


EVERYTHING = """steps:
  large: {gpu: h100-80gb x 64, command: ['true']}
  secret: {env: {TOY_TOKEN: {secret: hub, key: token}, TOY_MODE: {config_map: modes, key: m}}, command: ['true']}
  missing: {command: [no-such-program, x]}
  script: {script: {run: 'x', interpreter: [no-such-interpreter]}}
  gang: {gang: {workers: 2, leader: {command: [no-such-leader]}}, cpu: 4k, command: ['true']}
  side: {sidecars: [{name: proxy, image: x, command: [y]}], command: ['true']}
  files: {volumes: {/keys: {secret: keys}}, command: ['true']}
  xcom: {outputs_from: xcom, outputs: {v: int}, command: ['true']}
"""


def test_all_that_this_machine_lacks_is_said_at_once_and_nothing_starts(gpuflow: Gpuflow, here: Path) -> None:
    answer = gpuflow("run", write(here, EVERYTHING))
    assert answer.code == 1 and not Path(".gpuflow").exists()
    codes = [line.split()[1] for line in answer.err.splitlines() if ": GF" in line]
    assert codes == ["GF920", "GF921", "GF921", "GF922", "GF922", "GF920", "GF922", "GF923", "GF921", "GF923"]
    for text in (
        'toy.yaml:6:16: GF920 step "large": it asks for 64 x h100-80gb',
        "--pretend-gpus",
        "export TOY_TOKEN=",
        "the ConfigMap modes",
        "no-such-program",
        "--env-for missing=PYTHON",
        "no-such-interpreter",
        "its 3 ranks together ask for 12k CPU",
        "toy.yaml:10:48: GF922",
        "--allow-lossy",
        "$GPUFLOW_OUTPUTS",
    ):
        assert text in answer.err


def test_a_folder_that_scripts_would_misread_is_refused_with_the_place_of_the_path(
    gpuflow: Gpuflow, here: Path
) -> None:
    text = "steps:\n  a:\n    volumes:\n      /data: {claim: d}\n    command: ['true']\nclaims: {d: {size: 1Gi}}\n"
    answer = gpuflow("run", write(here, text), "--folder", "my runs")
    assert answer.code == 1
    assert "toy.yaml:8:" in answer.err and 'GF940 step "a": /data of the step would be' in answer.err


def test_a_secret_comes_from_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_TOKEN", "hidden")
    text = "steps:\n  a: {env: {TOY_TOKEN: {secret: hub, key: token}}, command: [test, x]}\n"
    text = text.replace("[test, x]", "[sh, -c, 'test $TOY_TOKEN = hidden']")
    assert run_steps(text).state == "succeeded"


def test_sidecars_are_left_out_where_that_is_allowed(here: Path) -> None:
    lines: list[str] = []
    text = "steps:\n  a: {sidecars: [{name: proxy, image: x, command: [y]}], command: ['true']}\n"
    assert run_steps(text, allow_lossy=True, console=Console(lines.append)).state == "succeeded"
    assert any("left out: the sidecars of a" in line for line in lines)


def test_the_environment_of_a_step(here: Path) -> None:
    folder = here / "env" / "bin"
    folder.mkdir(parents=True)
    for name, body in {"python": f'exec {sys.executable} "$@"', "toy": 'echo "$0" > "$GPUFLOW_OUTPUTS/v"'}.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    text = "steps:\n  a: {command: [toy], outputs: {v: string}}\n"
    with pytest.raises(GpuflowError, match="GF922"):
        run_steps(text)
    assert outputs(run_steps(text, env_for={"a": str(folder / "python")})) == {"a": {"v": str(folder / "toy")}}
    with pytest.raises(GpuflowError, match=r'GF927 --env-for b=.*no step "b"'):
        run_steps(text, env_for={"b": str(folder / "python")})
    with pytest.raises(GpuflowError, match="GF922 --env-for a=nothing: that is no program"):
        run_steps(text, env_for={"a": "nothing"})


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "GF903 no pipeline is named"),
        (["missing.yaml"], 2, "GF100"),
        (["toy.yaml", "--param", "p=x"], 2, 'GF903 --param p: "x" is not an int'),
        (["toy.yaml", "--param", "p=9"], 2, "GF146"),
        (["toy.yaml", "--param", "q=9"], 2, "GF178"),
        (["toy.yaml"], 2, "GF931 the parameter p must be given"),
        (["toy.yaml", "--resume"], 2, 'GF926 there is no unfinished run of "toy"'),
        (["toy.yaml", "--resume", "x"], 2, 'GF926 "x" is not a run'),
        (["--resume", "x"], 2, 'GF926 "x" is not a run'),
        (["toy.yaml", "--until", "b"], 2, 'GF927 --until b: "toy" has no step'),
        (["toy.yaml", "--only", "x", "--param", "p=1"], 2, "GF927"),
        (["toy.yaml", "--only", "a", "--until", "a"], 2, "GF903"),
        (["toy.yaml", "--again", "ab"], 2, "GF927"),
        (["toy.yaml", "--jobs", "0"], 2, "GF903"),
        (["toy.yaml", "--env-for", "a"], 2, "GF903"),
        (["toy.yaml", "--site", "nowhere.yaml"], 2, "GF100"),
        (["toy.yaml", "--folder", "toy.yaml", "--param", "p=1"], 3, "GF906"),
        (["toy.yaml", "--no-such"], 2, "GF903"),
    ],
)
def test_bad_input_is_one_message(gpuflow: Gpuflow, here: Path, words: list[str], code: int, said: str) -> None:
    write(here, "params: {p: {type: int, max: 5}}\nsteps:\n  a: {command: [echo, {param: p}]}\n")
    answer = gpuflow("run", *words)
    assert answer.code == code and said in answer.err and "Traceback" not in answer.err
    assert answer.err.count(": GF") == 1


def test_an_option_that_python_misspells(here: Path) -> None:
    with pytest.raises(GpuflowError, match=r'GF903 run has no option job.*\n.*"jobs"'):
        run_steps("steps:\n  a: {command: ['true']}\n", job=3)


def test_only_linux(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(GpuflowError, match="GF928") as refused:
        run_steps("steps:\n  a: {command: ['true']}\n")
    assert refused.value.exit_code == 3


RUNS = "steps:\n  a: {for_each: {n: [1, 2]}, command: [sh, -c, 'echo copy $0', {item: n}]}\n"
RUNS += "  b: {command: [sh, -c, 'echo try $GPUFLOW_ATTEMPT; exit $((2 - $GPUFLOW_ATTEMPT))'], retry: {failures: 1}}\n"


def test_the_command_its_lines_its_json_and_what_it_leaves(gpuflow: Gpuflow, here: Path) -> None:
    file = write(here, RUNS)
    answer = gpuflow("run", file, "--format", "json")
    assert answer.code == 0 and answer.data["state"] == "succeeded"
    assert answer.data["steps"] == [
        {"name": "a", "state": "succeeded", "attempts": 2, "outputs": {}},
        {"name": "b", "state": "succeeded", "attempts": 2, "outputs": {}},
    ]
    for text in (
        "a@1 started: n=2",
        "b failed after",
        "exit code 1",
        "| try 1",
        "b is tried again now",
        "b started (attempt 2)",
        "+ a  succeeded, 2 of 2",
    ):
        assert text in answer.err
    assert Path(".gpuflow/.gitignore").read_text() == "*\n"

    answer = gpuflow("runs", "--format", "json")
    assert [(each["run"], each["state"]) for each in answer.data] == [(gpuflow_run(), "succeeded")]
    assert gpuflow_run() in gpuflow("runs").out

    assert gpuflow("logs", "a").out == "== a@0, attempt 1\ncopy 1\n== a@1, attempt 1\ncopy 2\n"
    assert gpuflow("logs", "a@1").out == "copy 2\n"
    assert gpuflow("logs", gpuflow_run(), "b", "--attempt", "2").out == "try 2\n"
    assert gpuflow("logs", "-f", "a@0").out == "copy 1\n"
    for words, said in {("c",): "GF927", ("x", "a"): "GF926", ("x", "a", "b"): "GF903"}.items():
        refused = gpuflow("logs", *words)
        assert refused.code == 2 and said in refused.err

    answer = gpuflow("run", "--resume", gpuflow_run())
    assert answer.code == 0 and "+ b  succeeded" in answer.out  # nothing was left to do


def gpuflow_run() -> str:
    return runs_in(Path(".gpuflow"))[0].id


def test_where_there_are_no_runs(gpuflow: Gpuflow) -> None:
    assert gpuflow("runs").out == "no runs in .gpuflow\n"
    assert "GF926" in gpuflow("logs", "a").err


def test_a_run_that_cannot_be_read_is_said(gpuflow: Gpuflow, here: Path) -> None:
    file = write(here, "steps:\n  a: {command: ['true']}\n")
    assert gpuflow("run", file).code == 0
    (runs_in(Path(".gpuflow"))[0].path / "run.json").write_text("{")
    assert "cannot be read" in gpuflow("runs").out
    answer = gpuflow("run", "--resume", gpuflow_run())
    assert answer.code == 2 and "GF926" in answer.err


def test_words_of_programs_and_names_do_not_reach_the_terminal_as_orders(gpuflow: Gpuflow, here: Path) -> None:
    text = "steps:\n  a: {command: [sh, -c, 'printf \"\\033[2Jx\\n::error::y\\n\"; exit 1']}\n"
    answer = gpuflow("run", write(here, text))
    assert answer.code == 1 and "\x1b" not in answer.out and "\n::error" not in answer.out
    assert "\x1b" not in gpuflow("logs", "a").out


def test_a_python_pipeline(gpuflow: Gpuflow, here: Path) -> None:
    (here / "toy.py").write_text(
        "import gpuflow\nwith gpuflow.Pipeline('toy', defaults={'image': 'x'}) as p:\n"
        "    n = p.param('n', int, default=3)\n    write = ['sh', '-c', 'echo $0 > $GPUFLOW_OUTPUTS/v', n]\n"
        "    a = p.step('a', write, outputs={'v': int})\n"
        "    p.step('b', ['test', a.outputs.v, '=', '4'])\n"
    )
    answer = gpuflow("run", "toy.py", "--param", "n=4", "--format", "json")
    assert answer.code == 0 and answer.data["steps"][0]["outputs"] == {"v": 4}
    assert json.loads((runs_in(Path(".gpuflow"))[0].path / "run.json").read_text())["params"] == {"n": 4}
    assert gpuflow("run", "toy.py", "--no-allow-python").code == 2


def test_a_folder_whose_name_no_path_can_have(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strange = here / "a b"
    strange.mkdir()
    monkeypatch.chdir(strange)
    with pytest.raises(GpuflowError, match="GF940"):
        run_steps("steps:\n  a: {volumes: {/data: {claim: x}}, command: ['true']}\n")
    assert run_steps("steps:\n  a: {command: ['true']}\n").state == "succeeded"
    assert os.listdir(".gpuflow/runs")


def test_in_python_a_run_is_a_value(here: Path) -> None:
    result = run(write(here, "steps:\n  a: {command: ['false']}\n"))
    assert (result.state, result.exit_code, result.steps[0].state) == ("failed", 1, "failed")
    assert result.document()["steps"][0]["because"] == "exit code 1: it failed"
    assert (result.folder / "journal.jsonl").is_file()
