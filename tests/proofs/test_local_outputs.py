"""Small parts of the proof that local runs and engines make the same bytes: two pipelines here, and what it sees."""

from __future__ import annotations

import copy

import pytest

from proofs.local_outputs.__main__ import LOCAL, TABLE, faults, main, run_here


def test_every_pipeline_of_the_table_names_its_artifacts() -> None:
    assert len(TABLE) > 4
    assert all(row.file.exists() and row.engines and (row.bytes or row.counts) for row in TABLE)


def test_bytes_that_differ_are_seen() -> None:
    row = next(row for row in TABLE if row.name == "conditions")
    result = run_here(row)
    assert faults(row, {LOCAL: result}) == []
    other = copy.deepcopy(result)
    other["digests"]["good"]["got"] = ["0" * 16]
    del other["digests"]["after-good"]
    assert faults(row, {LOCAL: result, "argo": other}) == [
        "conditions on argo: after-good.got, good.got are not what the table says",
        "conditions: argo and this machine have different bytes",
    ]
    assert "did not succeed" in faults(row, {LOCAL: {**result, "good": False}})[0]
    assert "x is damaged" in faults(row, {LOCAL: {**result, "damaged": ["x is damaged"]}})[0]


def test_the_local_part_needs_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--local", "--only", "nested"]) == 0
    assert "1 pipelines, 1 runs on local, 4 artifacts" in capsys.readouterr().out
