"""Outputs: read once, typed, and put where each engine looks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gpuflow.runtime.options import BadOption
from gpuflow.runtime.outputs import BadOutput, Output, collect, deliver, pairs, parse, typed
from gpuflow.runtime.records import Kept
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
    marker = {"m": Kept(type="directory", sha256="0" * 64, bytes=1, uri="s3://b/m/000001-ab/files", files=[])}
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
        typed(Output("x", kind, None), text)


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
        _, said = made.communicate(timeout=20)
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
        *(("float", text) for text in ("nan", "NaN", "-inf", "Infinity", "1e999", "１.５", "\x1f5.5")),
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


def test_a_supervised_step_with_such_a_number_fails_and_says_why(tmp_path: Path) -> None:
    where = ["--outputs-dir", tmp_path / "o", "--deliver", f"x={tmp_path / 'kfp'}"]
    made = run("--engine", "kubeflow", "--output", "x:float", *where, *shell("echo nan > $GPUFLOW_OUTPUTS/x"))
    assert made.returncode != 0
    assert "the output \"x\" of type float is 'nan': Kubeflow has no such number" in made.stderr
    assert not (tmp_path / "kfp").exists()
