"""Checkpoints with a part from each rank: kept when all have written, whole or not at all, and restored everywhere.

Tests gpuflow/runtime/gangs/ranks/hub.py and gpuflow/runtime/gangs/ranks/sharded_keeper.py.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuflow.runtime.base.records import File, Manifest
from gpuflow.runtime.checkpoints import completeness
from gpuflow.runtime.gangs.ranks import hub
from gpuflow.runtime.state.ledger import Ledger
from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.stores.local_files import CheckpointRefused
from gpuflow.runtime.stores.store import Memory, StorageError
from gpuflow.runtime.supervise.main import main
from proofs.shards import Killing, undisturbed
from tests.runtime.gangs import Gang
from tests.runtime.harness import eventually, free_port
from tests.runtime.shard_toy_digest import undisturbed as toy_digest

TOY = Path(__file__).parent / "shard_toy.py"
SIZE = 4
KILLS = int(os.environ.get("SHARD_KILLS", "3"))


class Run:
    """A gang of the toy, each rank with a directory of its own unless they share one."""

    def __init__(self, folder: Path, *, size: int = SIZE, shared: bool = False, store: bool = True) -> None:
        self.folder, self.size, self.shared, self.has_store = folder, size, shared, store
        self.attempts = 0

    def __call__(self, steps: int, *words: str, sharded: bool = True, pause: float = 0.02, **more: str) -> Gang:
        self.attempts += 1
        gang = Gang(self.folder, self.size, name=f"gang-{self.attempts}")
        toy = {"TOY_PORT": str(free_port()), "TOY_STEPS": str(steps), "TOY_PAUSE": str(pause)}
        toy |= {"TOY_CORRUPT": str(self.folder / "corrupt"), "GPUFLOW_WORLD_SIZE": str(self.size), **more}
        toy |= {"TOY_ONE_DIRECTORY": "1"} if self.shared else {}
        for rank in reversed(range(self.size)):
            options: list[object] = ["--checkpoint-dir", self.directory(rank), "--run-id", "r", "--every", "0s"]
            options += ["--store", self.folder / "store"] if self.has_store else []
            options += ["--sharded"] if sharded else []
            options += ["--output", "digest", "--outputs-dir", self.folder / "out", *words]
            gang.start(*options, "--", sys.executable, TOY, ranks=[rank], environ=toy)
        return gang

    def directory(self, rank: int) -> Path:
        return self.folder / ("c" if self.shared else f"c{rank}")

    def manifests(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted((self.folder / "store").rglob("manifest.json"))]

    def digest(self) -> str:
        (path,) = self.folder.rglob("success.json")
        return str(json.loads(path.read_text())["outputs"]["digest"]["value"])

    def stops_at_a_checkpoint(self, **more: str) -> str:
        """One attempt that is told to stop in the middle; what the supervisors said."""
        gang = self(10_000, **more)
        eventually(
            lambda: (
                len(list((self.folder / "store").glob("*/*/*/checkpoints/*/manifest.json"))) > 1
                if self.has_store
                else len(list(self.directory(0).glob("step-*"))) > 1
            )
        )
        gang.ranks[2 % self.size].terminate()
        gang.all_end_with(75)
        return gang.said()


def paths(manifest: dict[str, Any]) -> set[str]:
    return {file["path"] for file in manifest["files"]}


PARTS = {f"part-{rank}.json" for rank in range(SIZE)}


def test_the_parts_of_all_ranks_are_one_checkpoint_and_every_rank_resumes_from_it(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.stops_at_a_checkpoint()
    newest = run.manifests()[-1]
    assert paths(newest) == PARTS and newest["shards"] == SIZE
    for rank in range(SIZE):
        shutil.rmtree(run.directory(rank))
    step = int(newest["entry"].partition("-")[2])
    gang = run(step + 7)
    gang.all_end_with(0)
    assert gang.said().count(f"resumes from {newest['entry']} (from the store)") == SIZE
    assert run.digest() == toy_digest(SIZE, step + 7)
    assert not (tmp_path / "corrupt").exists()


def test_what_was_left_half_in_the_directories_is_not_believed(tmp_path: Path) -> None:
    """Rank 0 has its part of a newer one, which the others lost: the store's is resumed from."""
    run = Run(tmp_path)
    run.stops_at_a_checkpoint()
    newest = run.manifests()[-1]
    for manifest in list((tmp_path / "store").rglob("manifest.json")):
        if json.loads(manifest.read_text())["entry"] == newest["entry"]:
            shutil.rmtree(manifest.parent)
    book = next((tmp_path / "store").rglob("attempts"))
    for end in book.glob("*.end.json"):
        end.unlink()  # it names the checkpoint that was removed
    older = run.manifests()[-1]["entry"]
    gang = run(int(older.partition("-")[2]) + 3)
    gang.all_end_with(0)
    assert f"resumes from {older}" in gang.said(0)
    assert not (tmp_path / "corrupt").exists()


def test_a_volume_that_all_ranks_share_is_kept_by_rank_0_alone(tmp_path: Path) -> None:
    run = Run(tmp_path, shared=True)
    run.stops_at_a_checkpoint()
    newest = run.manifests()[-1]
    assert paths(newest) == PARTS and newest["shards"] is None
    assert not list((tmp_path / "store").rglob("shards"))
    step = int(newest["entry"].partition("-")[2])
    run(step + 5).all_end_with(0)
    assert run.digest() == toy_digest(SIZE, step + 5)


def test_a_volume_that_all_ranks_share_needs_no_store(tmp_path: Path) -> None:
    run = Run(tmp_path, shared=True, store=False)
    run.stops_at_a_checkpoint()
    gang = run(12)
    gang.all_end_with(0)
    assert "resumes from step-" in gang.said(0)
    assert not (tmp_path / "corrupt").exists()


def test_without_a_store_and_without_a_shared_volume_it_is_refused(tmp_path: Path) -> None:
    gang = Run(tmp_path, store=False)(5)
    gang.all_end_with(78)
    assert "the parts of a checkpoint never come together; give a store" in gang.said(0)


def test_a_rank_that_does_not_finish_its_part_makes_no_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path)
    gang = run(10, TOY_LAZY="2")
    gang.all_end_with(0)
    assert "step-000010 was not kept: rank 2 did not finish its part" in gang.said(0)
    assert not run.manifests() and not list((tmp_path / "store").rglob("files"))


def test_two_ranks_with_different_files_of_one_name_are_refused_by_name(tmp_path: Path) -> None:
    run = Run(tmp_path)
    gang = run(5, TOY_DIFFERENT="1")
    gang.all_end_with(0)
    assert "same-name is not the same on rank 0 and on rank 1" in gang.said(0)
    assert not run.manifests() and not list((tmp_path / "store").rglob("files/*"))


def test_a_name_that_is_used_again_is_no_checkpoint_since_its_parts_cannot_be_told_apart(tmp_path: Path) -> None:
    run = Run(tmp_path)
    gang = run(20, pause=0.1, TOY_NAME="last")
    gang.all_end_with(0)
    assert "last was written again under its name" in gang.said()
    for manifest in run.manifests():
        folder = tmp_path / "store/default/r/default/checkpoints" / manifest["checkpoint"] / "files"
        assert len({json.loads(part.read_text())["step"] for part in folder.glob("part-*")}) == 1


def test_with_a_key_every_part_is_signed(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 40)
    key.chmod(0o600)
    run = Run(tmp_path)
    run(10, "--key-file", str(key)).all_end_with(0)
    (newest, *_) = reversed(run.manifests())
    assert paths(newest) == PARTS and newest["signature"]
    lists = list((tmp_path / "store").rglob("shards/*.json"))
    assert lists and all(json.loads(path.read_text())["signature"] for path in lists)


def test_one_rank_is_a_gang_too(tmp_path: Path) -> None:
    run = Run(tmp_path, size=1)
    run(5).all_end_with(0)
    assert paths(run.manifests()[-1]) == {"part-0.json"}


def test_without_a_gang_it_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--sharded", "--", "true"]) == 78
    assert "--sharded is for a gang" in capfd.readouterr().err


def test_ranks_killed_at_random_never_leave_a_half_checkpoint_that_counts(tmp_path: Path) -> None:
    killing = Killing(tmp_path, "toy", KILLS, os.environ.get("SHARD_SEED", "7"))
    assert killing.run() == undisturbed(killing)
    print(dict(killing.killed), dict(killing.codes), killing.resumed)
    assert killing.killed.total() == KILLS


# -- a part that looks like a checkpoint


def index(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".metadata").write_bytes(pickle.dumps({"storage": [{"relative_path": name} for name in names]}))


def test_the_index_of_pytorch_names_the_files_that_must_be_there(tmp_path: Path) -> None:
    index(tmp_path, "__0_0.distcp", "__13_2.distcp")
    found = {"m/.metadata": str(tmp_path / ".metadata")}
    assert completeness.lacking_file(found, ["m/.metadata", "m/__0_0.distcp"]) == "m/__13_2.distcp"
    assert completeness.lacking_file(found, ["m/__0_0.distcp", "m/__13_2.distcp"]) is None


def test_a_name_across_two_pieces_of_a_long_index_is_found(tmp_path: Path) -> None:
    path = tmp_path / ".metadata"
    path.write_bytes(b"x" * ((1 << 20) - 5) + b"__3_0.distcp" + b"y" * 100)
    assert completeness.files_in_index(str(path)) == {"__3_0.distcp"}


@pytest.mark.parametrize("hint", ["in a gang", "alone"])
def test_one_ranks_part_is_never_kept_as_a_checkpoint(tmp_path: Path, hint: str) -> None:
    """Without --sharded rank 0 keeps what its own program wrote, and that may be a part."""
    script = (
        "d=$GPUFLOW_CHECKPOINT_DIR/.x; mkdir $d && cp $HERE/.metadata $d/ && echo 1 > $d/__0_0.distcp && mv $d "
        "$GPUFLOW_CHECKPOINT_DIR/step-1"
    )
    index(tmp_path, "__0_0.distcp", "__1_0.distcp")
    gang = Gang(tmp_path, 1)
    words = [
        "--checkpoint-dir",
        tmp_path / "c",
        "--store",
        tmp_path / "store",
        "--run-id",
        "r",
        "--",
        "sh",
        "-c",
        script,
    ]
    if hint == "alone":
        from tests.runtime.harness import run as run_alone

        said = run_alone(*words, environ={"HERE": str(tmp_path)}).stderr
    else:
        gang.run(*words)
        said = gang.said()
    assert "it is a part of a checkpoint and lacks __1_0.distcp" in said
    assert ("--sharded" in said) == (hint == "in a gang")
    assert not list((tmp_path / "store").rglob("manifest.json"))


# -- lists


def file(path: str, digit: str = "a", size: int = 1) -> File:
    return File(path=path, size=size, sha256=digit * 64, mode=0o644)


def test_what_two_ranks_both_have_must_be_the_same() -> None:
    folder = File(path="m", directory=True)
    whole = hub.merge_lists({0: [folder, file("m/x")], 1: [folder, file("m/x"), file("m/y")]})
    assert [each.path for each in whole] == ["m", "m/x", "m/y"]
    with pytest.raises(CheckpointRefused, match="m/x is not the same on rank 0 and on rank 3"):
        hub.merge_lists({0: [file("m/x")], 3: [file("m/x", "b")]})


def test_a_list_counts_only_as_its_rank_wrote_it(tmp_path: Path) -> None:
    store = Folder(str(tmp_path))
    ledger = Ledger(Memory(), "p/r/s", None, print, None)
    ledger.number, ledger.id = 3, "1" * 16
    name = "000003-000001-11111111"
    facts = {"checkpoint": name, "entry": "e", "attempt": 3, "id": "1" * 16}
    digest = hub.write_list(store, ledger, 2, Manifest(**facts, kind="directory", files=[file("x")]))
    assert [each.path for each in hub.read_list(store, ledger, 2, name, "e", digest)] == ["x"]
    with pytest.raises(StorageError, match="is not what rank 2 has stored"):
        hub.read_list(store, ledger, 2, name, "e", "0" * 64)
    with pytest.raises(StorageError, match="is --store the same place for all"):
        hub.read_list(store, ledger, 1, name, "e", digest)
    with pytest.raises(StorageError, match="of another checkpoint"):
        hub.read_list(store, ledger, 2, name, "other", digest)


def test_every_file_must_be_listed_with_its_size(tmp_path: Path) -> None:
    store = Folder(str(tmp_path))
    store.write("p/files/x", b"1")
    hub.check_all_listed(store, "p", [file("x")])
    with pytest.raises(StorageError, match="p/files/x has 1 bytes in the store, not 2"):
        hub.check_all_listed(store, "p", [file("x", size=2)])
    with pytest.raises(StorageError, match="has None bytes"):
        hub.check_all_listed(store, "p", [file("y")])
