"""How the engines are built: by content, side by side, and with an estimate. Nothing is compiled here."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engines import build

PROJECT = build.PROJECTS[0]


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUFLOW_CACHE", str(tmp_path))
    # The places are computed once for a project.
    monkeypatch.setattr(build, "PROJECTS", tuple(replace(project) for project in build.PROJECTS))
    by_program = {name: project for project in build.PROJECTS for name in project.programs}
    monkeypatch.setattr(build, "BY_PROGRAM", by_program)
    return tmp_path


def test_a_changed_dependency_or_linker_value_is_another_program(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = PROJECT.digest
    assert replace(PROJECT, stamp={"main.version": "other"}).digest != before
    engines = tmp_path / "engines-source"
    (engines / PROJECT.folder).mkdir(parents=True)
    for name in ("go.mod", "go.sum"):
        (engines / PROJECT.folder / name).write_bytes((build.ENGINES / PROJECT.folder / name).read_bytes())
    monkeypatch.setattr(build, "ENGINES", engines)
    assert PROJECT.digest == before
    with (engines / PROJECT.folder / "go.sum").open("a") as file:
        file.write("example.com/other v1.0.0 h1:abc=\n")
    assert PROJECT.digest != before


def test_a_changed_main_of_ours_is_another_program(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = build.BY_PROGRAM["coredns"]
    before = project.digest
    engines = tmp_path / "engines-source"
    shutil.copytree(build.ENGINES / project.folder, engines / project.folder)
    monkeypatch.setattr(build, "ENGINES", engines)
    assert project.digest == before
    with (engines / project.folder / "server" / "main.go").open("a") as file:
        file.write("// one more plugin\n")
    assert project.digest != before


def test_projects_are_built_side_by_side_and_the_programs_of_one_after_another(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    together = threading.Barrier(2, timeout=120)
    at_work: list[str] = []

    def build_one(project: build.Project, program: str, lock: int, plan: build.Plan) -> None:
        assert project.folder not in at_work, "two programs of one project at once"
        at_work.append(project.folder)
        plan.begin(program)
        if program in ("etcd", "kwok"):
            together.wait()  # both are there at once, or the barrier breaks
        plan.end(program, 1.0)
        at_work.remove(project.folder)

    monkeypatch.setattr(build, "_build_one", build_one)
    monkeypatch.setattr(build, "at_once", lambda: 2)
    monkeypatch.setattr(build, "judge", lambda wanted: None)
    build.build(["etcd", "kwok"])
    assert "2 at once" in capsys.readouterr().out
    build.build(["kubectl", "kubelet", "kube-scheduler"])


def test_a_build_that_fails_stops_the_one_beside_it(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []

    def build_one(project: build.Project, program: str, lock: int, plan: build.Plan) -> None:
        plan.begin(program)
        if program == "etcd":
            raise build.BuildError("etcd does not compile")
        if plan.stop.wait(120):
            stopped.append(program)

    monkeypatch.setattr(build, "_build_one", build_one)
    monkeypatch.setattr(build, "at_once", lambda: 2)
    monkeypatch.setattr(build, "judge", lambda wanted: None)
    with pytest.raises(build.BuildError, match="etcd does not compile"):
        build.build(["etcd", "kwok"])
    assert stopped == ["kwok"]


@pytest.mark.parametrize(("free", "expected"), [(4 << 20, 1), (11 << 20, 2), (200 << 20, 2)])
def test_only_as_many_at_once_as_memory_carries(free: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"MemTotal: 1 kB\nMemAvailable: {free} kB\n"
    real = Path.read_text

    def read_text(path: Path, *words: Any, **named: Any) -> str:
        return text if str(path) == "/proc/meminfo" else real(path, *words, **named)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert build.at_once() == expected


def test_the_estimate_is_what_the_builds_took_here_before(empty_cache: Path) -> None:
    (empty_cache / "engines").mkdir()
    fresh = build.Plan(["etcd", "kwok"])
    assert fresh.left() == f"about {(70 + 258) / 60:.0f} min left for all"
    fresh.begin("etcd")
    fresh.end("etcd", 40.0)
    again = build.Plan(["etcd", "kwok"])
    assert again.usual("etcd") == 40.0
    again.lanes = 2
    assert again.left() == f"about {(40 + 258) / 2 / 60:.0f} min left for all"
    again.begin("kwok")
    again.end("kwok", 1.0)
    again.begin("etcd")
    assert "such a build took 40 s; about 20 s left for all" in again.so_far("etcd")


def test_a_program_of_other_modules_is_not_taken_over(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = build.BY_PROGRAM["etcd"]
    old = empty_cache / "engines" / f"{project.folder}-{project.version}" / "bin" / "etcd"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"\x7fELF")
    pinned = (build.ENGINES / "etcd" / "go.sum").read_text().splitlines()
    good = next(line for line in pinned if "/go.mod " not in line).split()
    for noted, taken in ((["example.com/m", "v1.0.0", "h1:abc="], False), (good, True)):
        note = "etcd: go1.26\n\tdep\t" + "\t".join(noted) + "\n"

        def run(words: list[str], note: str = note, **_: Any) -> Any:
            return type("Done", (), {"stdout": note, "returncode": 0})()

        monkeypatch.setattr(build.subprocess, "run", run)
        monkeypatch.setattr(build.shutil, "which", lambda name: name)
        assert build._take_over(project, "etcd") is taken
        assert project.binary("etcd").exists() is taken
