"""Engines that are built from an archive: it is the pinned one, or one line says why nothing is built."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engines import archive, build

PROJECT = build.BY_PROGRAM["kfp-apiserver"]
VARIABLE = "GPUFLOW_KUBEFLOW_SOURCE"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No archive beside the project, and an empty cache."""
    monkeypatch.setattr(archive, "BESIDE", tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("GPUFLOW_CACHE", str(tmp_path / "cache"))
    projects = tuple(replace(project) for project in build.PROJECTS)
    monkeypatch.setattr(build, "PROJECTS", projects)
    monkeypatch.setattr(build, "BY_PROGRAM", {name: one for one in projects for name in one.programs})
    monkeypatch.setattr(build.shutil, "which", lambda name: name)
    return tmp_path


def test_without_the_archive_one_line_says_what_to_do(nowhere: Path) -> None:
    with pytest.raises(build.BuildError) as missing:
        build.build(["kfp-driver"])
    words = str(missing.value)
    assert "kubeflow-pipelines-7b70c7b9.tar.gz" in words and VARIABLE in words and "\n" not in words


def test_who_builds_everything_is_told_what_is_left_out(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built: list[str] = []
    monkeypatch.setattr(build, "_build_lane", lambda names, plan: built.extend(names))
    build.build()
    said = capsys.readouterr().out
    assert "not building kfp-driver" in said and "no source kubeflow-pipelines-7b70c7b9.tar.gz here" in said
    assert "etcd" in built and not [name for name in built if name.startswith("kfp-")]


def test_another_archive_is_not_taken(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = nowhere / "other.tar.gz"
    other.write_bytes(b"not what was pinned")
    monkeypatch.setenv(VARIABLE, str(other))
    with pytest.raises(build.BuildError, match="SHA-256"):
        build.build(["kfp-driver"])


def test_another_archive_or_replacement_is_another_program() -> None:
    assert PROJECT.archive is not None
    other = replace(PROJECT, archive=replace(PROJECT.archive, sha256="0" * 64))
    edited = replace(PROJECT, archive=replace(PROJECT.archive, replaced={}))
    assert len({PROJECT.digest, other.digest, edited.digest}) == 3
    assert PROJECT.version in PROJECT.home.name and PROJECT.digest in PROJECT.home.name


def test_a_tree_is_unpacked_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "tree.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        entry = tarfile.TarInfo("tree/go.mod")
        text = b"module example.com/tree\n\ngo 1.26\n\ntoolchain go1.99.0\n"
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    monkeypatch.setenv("TREE", str(packed))
    found = hashlib.sha256(packed.read_bytes()).hexdigest()
    pinned = archive.Archive("tree.tar.gz", found, "TREE", "tree")
    calls: list[list[str]] = []

    def fails(words: list[str], **_: object) -> None:
        calls.append(words)
        raise OSError("go is not here")

    monkeypatch.setattr(archive.subprocess, "run", fails)
    with pytest.raises(OSError, match="go is not here"):
        pinned.unpack(tmp_path / "place")
    assert not (tmp_path / "place" / "tree").exists()
    monkeypatch.setattr(archive.subprocess, "run", lambda words, **_: calls.append(words))
    assert (pinned.unpack(tmp_path / "place") / "go.mod").read_bytes() == text
    assert calls[-1][:4] == ["go", "mod", "edit", "-toolchain=none"]
    pinned.unpack(tmp_path / "place")  # what is there is taken as it is
    assert len(calls) == 2
