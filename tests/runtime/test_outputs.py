"""Outputs: read once, typed, and put where each engine looks.

Tests gpuflow/runtime/artifacts/delivery.py and gpuflow/runtime/artifacts/outputs.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuflow.runtime.artifacts.outputs import (
    BadOutput,
    Output,
    OutputWatch,
    collect,
    deliver,
    pairs,
    parse,
    parse_value,
)
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.records import KeptOutput
from tests.runtime.harness import run, shell, start


def test_airflow_gets_one_json_object_with_typed_values(tmp_path: Path) -> None:
    texts = {"loss": "0.25\n", "n": "7", "ok": "True\n", "names": '["ä", "b"]', "note": "two\n\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    declared = parse(["loss:float", "n:int", "ok:bool", "names:json", "note"])
    marker = collect(declared, str(tmp_path), {})
    deliver(marker, "airflow", str(tmp_path), {}, xcom=str(tmp_path / "xcom" / "return.json"))
    seen = json.loads((tmp_path / "xcom" / "return.json").read_text())
    assert seen == {"loss": 0.25, "n": 7, "ok": True, "names": ["ä", "b"], "note": "two\n"}


def test_airflow_gets_the_uri_of_an_artifact(tmp_path: Path) -> None:
    marker = {"m": KeptOutput(type="directory", sha256="0" * 64, bytes=1, uri="s3://b/m/000001-ab/files", files=[])}
    deliver(marker, "airflow", str(tmp_path), {}, xcom=str(tmp_path / "return.json"))
    uri = "s3://b/m/000001-ab/files"
    about = {"uri": uri, "type": "directory", "sha256": "0" * 64, "bytes": 1, "files": 0}
    assert json.loads((tmp_path / "return.json").read_text()) == {"m": uri, "gpuflow.artifacts": {"m": about}}


def test_no_engine_means_no_xcom(tmp_path: Path) -> None:
    deliver({}, "argo", str(tmp_path), {}, xcom=str(tmp_path / "xcom"))
    assert not (tmp_path / "xcom").exists()


@pytest.mark.parametrize(
    ("kind", "text"), [("int", "1.5"), ("float", "much"), ("bool", "1"), ("json", "{"), ("int", "")]
)
def test_a_text_that_is_not_of_its_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(BadOutput, match=f"is not of type {kind}"):
        parse_value(Output("x", kind, None), text)


def test_a_file_where_a_directory_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("x")
    with pytest.raises(BadOutput, match="should be a directory"):
        collect(parse(["m:directory"]), str(tmp_path), {})


def test_text_that_is_not_utf_8_is_refused_with_the_name(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(BadOutput, match='"x" cannot be read as text'):
        collect(parse(["x"]), str(tmp_path), {})


def test_a_pipe_is_no_value_and_is_not_waited_for(tmp_path: Path) -> None:
    made = start("--output", "x", "--outputs-dir", tmp_path, *shell("mkfifo $GPUFLOW_OUTPUTS/x"))
    try:
        _, said = made.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        made.kill()  # it holds back every other signal
        raise
    assert made.returncode == 1
    assert 'the output "x" cannot be read as text' in said
    assert "is no file" in said


@pytest.mark.parametrize(("made", "because"), [("mkfifo", "is no file"), ("ln -s nothing", "a link to nothing")])
def test_what_is_no_file_is_a_failure_of_the_command(made: str, because: str, tmp_path: Path) -> None:
    state = ("--state", tmp_path / "state", "--run-id", "r")
    done = run("--output", "x:file", "--outputs-dir", tmp_path, *state, *shell(f"{made} $GPUFLOW_OUTPUTS/x"))
    assert done.returncode == 1
    assert 'the output "x" cannot be kept' in done.stderr
    assert because in done.stderr


@pytest.mark.parametrize("word", ["", ":int", "../x", ".hidden", "x:number"])
def test_a_bad_declaration_is_refused(word: str) -> None:
    with pytest.raises(BadOption):
        parse([word])


def test_pairs_need_both_sides() -> None:
    assert pairs(["a=s3://b/c=d"], "artifact") == {"a": "s3://b/c=d"}
    with pytest.raises(BadOption, match="NAME=URI"):
        pairs(["a"], "artifact")


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (("--output", "m:directory", "--artifact", "n=/kept"), 'no file or directory output "n"'),
        (("--output", "m", "--artifact", "m=/kept"), 'no file or directory output "m"'),
        (("--output", "m", "--deliver", "n=/kept"), 'no output "n"'),
        (("--output", "m", "--output", "m:int"), "given twice"),
        (("--output", "a:file", "--output", "b:file", "--artifact", "a=/u", "--artifact", "b=/u/"), "cannot both"),
    ],
)
def test_names_that_do_not_fit_together_are_refused_before_the_command_runs(
    words: tuple[str, ...], because: str, tmp_path: Path
) -> None:
    refused = run(*words, *shell(f"touch {tmp_path}/ran"))
    assert refused.returncode == 78, refused.stderr
    assert because in refused.stderr
    assert not (tmp_path / "ran").exists()


def test_an_output_that_whoever_succeeded_did_not_leave_is_named(tmp_path: Path) -> None:
    state = ("--state", tmp_path / "state", "--run-id", "r")
    assert run("--output", "a", *state, *shell("echo 1 >$GPUFLOW_OUTPUTS/a")).returncode == 0
    again = run("--output", "a", "--output", "b", *state, *shell("exit 3"))
    assert again.returncode == 0
    assert "attempt 1 left no output b" in again.stderr


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("int", text) for text in ("1_000", "\x1f5", "１２", "9007199254740993", "9223372036854775808")),
        *(("float", text) for text in ("１.５", "\x1f5.5")),
        *(("bool", text) for text in ("tRuE", "\x1ftrue")),
    ],
)
def test_a_number_that_kubeflow_does_not_read_fails_the_step_that_wrote_it(
    kind: str, text: str, tmp_path: Path
) -> None:
    """Each was given to strconv.ParseInt, ParseFloat and ParseBool of Go, as KFP's launcher does: it refuses them, or
    takes them for a number that the JSON of KFP's driver cannot hold or changes."""
    (tmp_path / "x").write_text(text)
    declared = parse([f"x:{kind}"])
    collect(declared, str(tmp_path), {}, "argo")
    collect(declared, str(tmp_path), {}, "airflow")
    with pytest.raises(BadOutput, match=f'^the output "x" of type {kind} is .*: Kubeflow'):
        collect(declared, str(tmp_path), {}, "kubeflow")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("int", text) for text in ("+5", "-5", " 5 ", "5\n", "\u00a05", "007", "9007199254740992")),
        *(("float", text) for text in ("1_000.5", "+5", "-.5", "5.", " 5.5\n", "1e-999", "1E5", "2e-05")),
        *(("bool", text) for text in ("true", "True", "TRUE", " false ")),
    ],
)
def test_a_number_that_kubeflow_reads_as_python_does_is_taken(kind: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(text)
    assert collect(parse([f"x:{kind}"]), str(tmp_path), {}, "kubeflow")["x"].type == kind


@pytest.mark.parametrize("engine", ["none", "argo", "airflow", "kubeflow"])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("float", text) for text in ("nan", "NaN", "-inf", "Infinity", "1e999")),
        *(("json", text) for text in ('{"a": NaN}', "[1, -Infinity]", "Infinity", '{"a": [1e999]}')),
    ],
)
def test_what_is_no_number_in_json_fails_the_step_that_wrote_it(
    engine: str, kind: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(BadOutput, match=f'^the output "x" of type {kind} is .*: JSON has no NaN and no infinity'):
        collect(parse([f"x:{kind}"]), str(tmp_path), {}, engine)
    assert collect(parse(["x:string"]), str(tmp_path), {}, engine)["x"].value == text


def test_a_supervised_step_with_such_a_number_fails_and_says_why(tmp_path: Path) -> None:
    where = ["--outputs-dir", tmp_path / "o", "--deliver", f"x={tmp_path / 'kfp'}"]
    made = run("--engine", "kubeflow", "--output", "x:float", *where, *shell("echo nan > $GPUFLOW_OUTPUTS/x"))
    assert made.returncode != 0
    assert "the output \"x\" of type float is 'nan': JSON has no NaN and no infinity" in made.stderr
    assert not (tmp_path / "kfp").exists()


# -- what the command leaves behind

WRITER = """
import os, sys, time
path, ready = os.environ["GPUFLOW_OUTPUTS"] + "/x", sys.argv[1]
{code}
"""


def left_behind(tmp_path: Path, code: str, *more: str, kind: str = "string") -> subprocess.CompletedProcess[str]:
    """A command that ends with 0 once the process that it leaves behind says that it is ready."""
    (tmp_path / "writer.py").write_text(WRITER.replace("{code}", code))
    ready = tmp_path / "ready"
    wait = f"while ! test -e {ready}; do sleep 0.02; done"
    state = ("--state", tmp_path / "state", "--run-id", "r", "--failures", "5", "--output", f"x:{kind}")
    start = f"setsid {sys.executable} {tmp_path}/writer.py {ready} & {wait}; exit 0"
    return run(*state, *shell("; ".join([*more, start])))


def is_torn(done: subprocess.CompletedProcess[str], tmp_path: Path, why: str) -> bool:
    assert done.returncode == 1, done.stderr
    assert 'failed (retryable): the output "x" may be half written' in done.stderr
    assert why in done.stderr
    return not list(tmp_path.glob("state/**/success.json"))


def test_an_output_that_a_killed_process_has_open_is_no_success(tmp_path: Path) -> None:
    code = "file = open(path, 'w'); file.write('part 1'); file.flush(); open(ready, 'w'); time.sleep(60)"
    assert is_torn(left_behind(tmp_path, code), tmp_path, "had it open for writing")


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_an_output_that_changes_after_the_commands_end_is_no_success_when_its_writer_had_to_be_killed(
    kind: str, tmp_path: Path
) -> None:
    code = "folder = not os.path.exists(path)\n_ = folder and os.makedirs(path)\nopen(ready, 'w')\nwhile True:\n"
    code += "    name = f'{path}/{time.time()}' if folder else path\n"
    code += "    with open(name, 'a') as file: file.write('more')\n    time.sleep(0.05)"
    done = left_behind(tmp_path, code, ": >$GPUFLOW_OUTPUTS/x" if kind == "file" else "true", kind=kind)
    assert is_torn(done, tmp_path, "")


@pytest.mark.parametrize("name", ["$GPUFLOW_OUTPUTS/x", "${GPUFLOW_OUTPUTS}/x"])
def test_an_output_that_a_killed_shell_names_is_no_success(name: str, tmp_path: Path) -> None:
    """It sleeps between two writes: nothing is open, and nothing changes within the second it gets."""
    script = f"printf part1 >{name}; touch {tmp_path}/ready; sleep 60; printf part2 >>{name}"
    (tmp_path / "script").write_text(script)
    state = ("--state", tmp_path / "state", "--run-id", "r", "--output", "x")
    wait = f"while ! test -e {tmp_path}/ready; do sleep 0.02; done"
    done = run(*state, *shell(f'setsid sh -c "$(cat {tmp_path}/script)" & {wait}'))
    assert is_torn(done, tmp_path, "the words of sh")


def test_what_ends_by_itself_within_its_second_has_written_a_whole_output(tmp_path: Path) -> None:
    code = "file = open(path, 'w'); file.write('part 1'); file.flush(); open(ready, 'w'); file.write(', part 2')"
    done = left_behind(tmp_path, code)
    assert done.returncode == 0, done.stderr
    (marker,) = tmp_path.glob("state/**/success.json")
    assert json.loads(marker.read_text())["outputs"]["x"]["value"] == "part 1, part 2"


def test_a_daemon_that_has_nothing_to_do_with_the_output_is_ended_and_the_step_succeeds(tmp_path: Path) -> None:
    code = "open(ready, 'w'); log = open(path + '.log', 'w'); time.sleep(60)"
    done = left_behind(tmp_path, code, "echo whole >$GPUFLOW_OUTPUTS/x")
    assert done.returncode == 0, done.stderr
    assert "ended what the command left behind: python" in done.stderr


def test_beside_a_daemon_one_that_finishes_the_output_by_itself_is_no_trouble(tmp_path: Path) -> None:
    witness = OutputWatch(parse(["x"]), str(tmp_path))
    witness.look()  # the command has ended
    (tmp_path / "x").write_text("whole")  # by one that ends by itself now
    witness.look()
    witness.note_killed({})
    assert witness.damage() is None
    (tmp_path / "x").write_text("torn")
    assert "it changed after the command had ended" in str(witness.damage())
