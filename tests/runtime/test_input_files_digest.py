"""`gpuflow-run digest`: the same sum that an input is checked with."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from gpuflow.runtime.artifacts import artifact_files, inputs
from gpuflow.runtime.stores.open import open_store
from gpuflow.runtime.supervise.main import main


def test_of_a_file_it_is_the_hash_of_its_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    assert main(["digest", str(tmp_path / "f")]) == 0
    assert capsys.readouterr().out == f"sha256:{hashlib.sha256(b'abc').hexdigest()}\n"


def test_of_a_directory_it_is_what_a_fetched_copy_adds_up_to(tmp_path: Path) -> None:
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "empty").mkdir()
    (tmp_path / "d" / "sub" / "x").write_bytes(b"1")
    (tmp_path / "d" / "y").write_bytes(b"")
    uri = str(tmp_path / "d")
    source = inputs.read_source(inputs.Stores(open_store), uri, "directory", None, lambda _: None)
    for file in (each for each in source.files if not each.directory):
        file.sha256 = hashlib.sha256((tmp_path / "d" / file.path).read_bytes()).hexdigest()
    assert source.digest() == artifact_files.digest_of_path(uri)


@pytest.mark.parametrize("words", [[], ["a", "b"], ["/does/not/exist"], ["--what"]])
def test_what_has_no_digest(words: list[str]) -> None:
    assert main(["digest", *words]) == 2
