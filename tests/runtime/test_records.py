"""Records of the store: what is not exactly what it should be is corrupt, never a traceback and never a guess.

Tests gpuflow/runtime/base/record_fields.py and gpuflow/runtime/base/records.py.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpuflow.runtime.base import records
from gpuflow.runtime.base.record_fields import Record
from gpuflow.runtime.base.records import (
    Claim,
    Corrupt,
    End,
    File,
    Judgment,
    KeptOutput,
    Manifest,
    PreviousAttempt,
    Success,
    UnknownFormat,
)
from gpuflow.runtime.base.signing import Keys
from tests.runtime.harness import run, shell

SHA = "0" * 64


def examples() -> list[Record]:
    files = [
        File(path="d", directory=True),
        File(path="d/l", link="../w"),
        File(path="w", size=3, sha256=SHA, mode=0o644),
    ]
    previous = PreviousAttempt(attempt=6, id="aa", outcome="interrupted", assumed=True)
    return [
        Claim(attempt=7, id="ab", since=2, failures=1, interruptions=2, seconds=3.5, previous=previous),
        End(outcome="failed (final)", final=True, exit_code=3, because="ä\n", seconds=1.0, time="now"),
        Judgment(outcome="out of memory", cause={"kind": "x"}, evidence=["y"], by="argo"),
        Manifest(checkpoint="000007-000001-ab", entry="one", kind="directory", attempt=7, id="ab", files=files),
        Success(
            attempt=7,
            id="ab",
            time="now",
            outputs={
                "n": KeptOutput(type="int", value="7", sha256=records.text_digest("7")),
                "m": KeptOutput(type="directory", sha256=SHA, bytes=3, uri="s3://b/m", files=files),
            },
        ),
    ]


@pytest.mark.parametrize("record", examples(), ids=lambda record: type(record).__name__)
def test_a_record_reads_back_as_it_was_written(record: Record) -> None:
    data = records.pack(record)
    value = json.loads(data)
    assert value["format"] == 2
    assert value["signature"] is None
    assert records.unpack(type(record), data, "k") == record


@pytest.mark.parametrize("record", examples(), ids=lambda record: type(record).__name__)
def test_an_unknown_format_is_named_and_not_guessed_at(record: Record) -> None:
    value = {**json.loads(records.pack(record)), "format": 3}
    with pytest.raises(UnknownFormat, match="is of format 3"):
        records.unpack(type(record), records.encode({**value, "hash": records.digest(value)}), "k")


def test_a_signature_lies_over_the_hash_and_does_not_change_it() -> None:
    record = examples()[0]
    plain, signed = json.loads(records.pack(record)), json.loads(records.pack(record, "k", Keys([b"0123456789abcdef"])))
    assert signed["hash"] == plain["hash"]
    assert records.unpack(Claim, records.pack(record, "k", Keys([b"0123456789abcdef"])), "k") == record


def sealed(value: dict[str, Any]) -> bytes:
    return records.encode({**value, "hash": records.digest(value)})


@pytest.mark.parametrize(
    "files",
    [
        [{"path": "../w", "size": 1, "sha256": SHA, "mode": 0}],
        [{"path": "/etc/x", "size": 1, "sha256": SHA, "mode": 0}],
        [{"path": "a//b", "size": 1, "sha256": SHA, "mode": 0}],
        [{"path": "l", "link": "/etc"}, {"path": "l/x", "size": 1, "sha256": SHA, "mode": 0}],
        [{"path": "w", "size": 1, "sha256": SHA, "mode": 0}] * 2,
        [{"path": "w", "size": -1, "sha256": SHA, "mode": 0}],
        [{"path": "w", "size": 1, "sha256": "x", "mode": 0}],
        [{"path": "w", "sha256": SHA}],
        [{"path": "w"}],
        ["w"],
        "w",
        None,
    ],
)
def test_a_manifest_that_names_what_it_must_not_is_corrupt(files: object) -> None:
    value = {**json.loads(records.pack(examples()[3])), "files": files}
    with pytest.raises(Corrupt):
        records.unpack(Manifest, sealed(value), "k")


def test_an_id_bit_never_comes_from_a_store() -> None:
    assert File(path="w", size=1, sha256=SHA, mode=0o104755).mode == 0o755


def test_mutated_records_are_corrupt_or_harmless_and_never_a_traceback() -> None:
    """The hash is made right again, as an attacker or a bug would: only the types stand in the way."""
    chance = random.Random(7)
    odd: list[Any] = [None, True, -1, 10**30, 1.5, "", "x", "../x", [], {}, [[]], {"a": 1}, "\ud800", float("inf")]
    refused = 0
    for _ in range(5000):
        record = chance.choice(examples())
        value = json.loads(records.pack(record))
        target: Any = value
        while True:
            name = chance.choice(list(target) if isinstance(target, dict) else list(range(len(target))))
            if isinstance(target[name], (dict, list)) and target[name] and chance.random() < 0.7:
                target = target[name]
                continue
            target[name] = chance.choice(odd)
            break
        try:
            data = sealed(value) if chance.random() < 0.8 else records.encode(value)[: chance.randrange(200)]
            records.unpack(type(record), data, "k")
        except (Corrupt, UnknownFormat):
            refused += 1
    assert refused > 2500


OPTIONS = ("--run-id", "r", "--failures", "9")
MANIFEST = "checkpoints/*/manifest.json"


@pytest.mark.parametrize(
    ("name", "field", "version"),
    [("attempts/000001.json", "format", 9), (MANIFEST, "format", 9), (MANIFEST, "contract", 1)],
)
def test_a_store_of_an_unknown_format_is_refused_with_one_sentence(
    name: str, field: str, version: int, tmp_path: Path
) -> None:
    """Format 1, which earlier snapshots wrote, had `contract` in its manifests and successes."""
    options = (*OPTIONS, "--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s")
    save = 'cd "$GPUFLOW_CHECKPOINT_DIR"; echo 1 >.t; mv .t one; exit 5'
    assert run(*options, *shell(save)).returncode == 5
    (path,) = (tmp_path / "s/default/r/default").glob(name)
    value = {key: each for key, each in json.loads(path.read_text()).items() if key != "format"}
    path.write_bytes(sealed({**value, field: version}))
    shutil.rmtree(tmp_path / "c")
    done = run(*options, *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")
    assert f"is of format {version}, and this gpuflow-run knows 2" in done.stderr


def test_a_record_of_a_kind_has_the_fields_of_that_kind() -> None:
    class Listed(File):
        """A file that was listed."""

    made = Listed(path="a", size=1, sha256="0" * 64)
    assert made.plain() == File(path="a", size=1, sha256="0" * 64).plain() != {}
    assert made != Listed(path="b", size=1, sha256="0" * 64)
