"""`gpuflow compile`: files written whole, compared on request, and losses said once each.

The frame is the same for every engine; Airflow's target needs no SDK, so it stands for all of them here.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuflow.engines import ENGINES
from tests.cli.commands import EXAMPLES, NIGHTLY, Gpuflow

FINETUNE = EXAMPLES / "finetune.yaml"
"""It has steps whose outputs are cached, which Airflow cannot."""


def compile_to(gpuflow: Gpuflow, output: object, *words: object) -> int:
    return gpuflow("compile", NIGHTLY, "--target", "airflow", "-o", output, *words).code


def test_without_an_output_the_artifact_goes_to_standard_output(gpuflow: Gpuflow) -> None:
    answer = gpuflow("compile", NIGHTLY, "--target", "airflow")
    assert answer.code == 0
    assert answer.out.startswith("# Made by gpuflow ")
    assert "from nightly.yaml sha256:" in answer.out.splitlines()[0]
    compile(answer.out, "nightly.py", "exec")


def test_the_same_source_gives_the_same_bytes(gpuflow: Gpuflow) -> None:
    assert gpuflow("compile", NIGHTLY, "--target", "airflow") == gpuflow("compile", NIGHTLY, "--target", "airflow")


def test_a_folder_gets_the_engines_files_and_nothing_else(gpuflow: Gpuflow, tmp_path: Path) -> None:
    assert compile_to(gpuflow, f"{tmp_path}/dags/") == 0
    assert [path.name for path in (tmp_path / "dags").iterdir()] == ["nightly.py"]
    assert compile_to(gpuflow, tmp_path / "dags") == 0
    assert compile_to(gpuflow, tmp_path / "mine.py") == 0
    assert (tmp_path / "mine.py").read_bytes() == (tmp_path / "dags" / "nightly.py").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dags", "mine.py"]


def test_check_is_quiet_when_the_file_is_up_to_date(gpuflow: Gpuflow, tmp_path: Path) -> None:
    compile_to(gpuflow, tmp_path / "n.py")
    answer = gpuflow("compile", NIGHTLY, "--target", "airflow", "-o", tmp_path / "n.py", "--check")
    assert (answer.code, answer.out) == (0, "")


@pytest.mark.parametrize("present", [None, "# something else\n", b"\xff"])
def test_check_shows_a_diff_writes_nothing_and_exits_with_1_when_it_is_stale(
    gpuflow: Gpuflow, tmp_path: Path, present: str | bytes | None
) -> None:
    file = tmp_path / "n.py"
    if present is not None:
        file.write_bytes(present.encode() if isinstance(present, str) else present)
    answer = gpuflow("compile", NIGHTLY, "--target", "airflow", "-o", file, "--check")
    assert answer.code == 1
    assert answer.out.startswith(f"--- {file}\n+++ {file} (compiled now)\n@@ ")
    assert "1 file is stale" in answer.err
    assert (file.read_bytes() if file.exists() else None) == (present.encode() if isinstance(present, str) else present)
    assert len(list(tmp_path.iterdir())) == (0 if present is None else 1)


def test_json_says_what_was_written_or_is_stale(gpuflow: Gpuflow, tmp_path: Path) -> None:
    words = ("compile", NIGHTLY, "--target", "airflow", "-o", tmp_path / "n.py", "--format", "json")
    stale = gpuflow(*words, "--check")
    assert (stale.code, len(stale.data["stale"]), list(tmp_path.iterdir())) == (1, 1, [])
    written = gpuflow(*words)
    assert (written.code, written.data["files"]) == (0, [str(tmp_path / "n.py")])
    assert written.data["artifacts"][0]["text"] == (tmp_path / "n.py").read_text()
    assert gpuflow(*words, "--check").code == 0


def test_the_header_names_the_source_relative_to_the_repository_and_never_by_a_machines_path(
    gpuflow: Gpuflow, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "pipelines").mkdir()
    source = tmp_path / "pipelines" / "nightly.yaml"
    source.write_bytes(Path(NIGHTLY).read_bytes())
    assert gpuflow("compile", source, "--target", "airflow", "-o", f"{tmp_path}/dags/").code == 0
    inside = (tmp_path / "dags" / "nightly.py").read_text()
    assert " from pipelines/nightly.yaml sha256:" in inside.splitlines()[0]
    assert str(tmp_path) not in inside
    assert " from nightly.yaml sha256:" in gpuflow("compile", source, "--target", "airflow").out.splitlines()[0]


def test_a_write_that_fails_leaves_the_old_file_and_no_rubbish(
    gpuflow: Gpuflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "n.py"
    file.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    answer = gpuflow("compile", NIGHTLY, "--target", "airflow", "-o", file)
    assert (answer.code, "GF906" in answer.err, "No space left" in answer.err) == (3, True, True)
    assert (file.read_text(), list(tmp_path.iterdir())) == ("old", [file])


def test_a_place_that_cannot_be_written_is_the_surroundings_fault(gpuflow: Gpuflow, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = gpuflow("compile", NIGHTLY, "--target", "airflow", "-o", tmp_path / "file" / "n.py")
    assert (answer.code, "GF906" in answer.err) == (3, True)


def test_the_permissions_of_a_file_survive(gpuflow: Gpuflow, tmp_path: Path) -> None:
    file = tmp_path / "n.py"
    file.write_text("old")
    file.chmod(0o640)
    compile_to(gpuflow, file)
    assert file.stat().st_mode & 0o777 == 0o640


def test_two_pipelines_of_one_name_are_refused(gpuflow: Gpuflow, tmp_path: Path) -> None:
    answer = gpuflow("compile", NIGHTLY, EXAMPLES / "nightly.py", "--target", "airflow", "-o", f"{tmp_path}/")
    assert (answer.code, "GF304" in answer.err, list(tmp_path.iterdir())) == (2, True, [])


def test_nothing_that_is_read_is_written_over(gpuflow: Gpuflow, tmp_path: Path) -> None:
    text = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: {}\nsteps: {{a: {{image: i, command: [x]}}}}\n"
    one, two = tmp_path / "one.yaml", tmp_path / "two.py"
    one.write_text(text.format("two"))
    two.write_text(
        'from gpuflow import Pipeline\np = Pipeline("other", steps={"a": {"image": "i", "command": ["x"]}})\n'
    )
    before = two.read_text()
    answer = gpuflow("compile", one, two, "--target", "airflow", "-o", tmp_path)
    assert (answer.code, "would overwrite" in answer.err, two.read_text()) == (2, True, before)


def test_what_the_engine_cannot_say_is_refused_once_per_construct_with_a_way_out(
    gpuflow: Gpuflow, tmp_path: Path
) -> None:
    answer = gpuflow("compile", FINETUNE, "--target", "airflow", "-o", tmp_path / "x.py")
    assert (answer.code, list(tmp_path.iterdir())) == (2, [])
    (line,) = [line for line in answer.err.splitlines() if "GF301" in line]
    assert line.startswith(f"{FINETUNE}:")
    assert "does not support cache (" in line
    assert "--allow-lossy" in answer.err


def test_allow_lossy_writes_the_losses_into_the_artifact_and_says_them(gpuflow: Gpuflow) -> None:
    answer = gpuflow("compile", FINETUNE, "--target", "airflow", "--allow-lossy")
    assert answer.code == 0
    assert "GF303" in answer.err
    (lost,) = [line for line in answer.out.splitlines() if "LOST: " in line]
    assert "cache" in lost


@pytest.mark.parametrize("target", ENGINES)
def test_an_engine_compiles_or_says_which_extra_it_needs(target: str, gpuflow: Gpuflow) -> None:
    answer = gpuflow("compile", NIGHTLY, "--target", target, "--allow-lossy")
    if answer.code == 3:
        assert "GF901" in answer.err
        assert f'python -m pip install "gpuflow[{target}] @ git+URL@COMMIT"' in answer.err
    else:
        assert (answer.code, answer.out[:2]) == (0, "# ")
