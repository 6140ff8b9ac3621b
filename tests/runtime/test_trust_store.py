"""A store in the hands of somebody else: nothing is written outside, nothing is believed that does not fit.

Each of these is an attack that worked once, or the class behind it. `proofs/trust_store` tries thousands.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuflow.runtime.base import record_fields, records
from gpuflow.runtime.base.files import SharedFolder
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.records import Claim, Corrupt, File, Manifest
from gpuflow.runtime.checkpoints import restore
from gpuflow.runtime.state.attempts import History
from gpuflow.runtime.state.checkpoint_dir import Directory
from gpuflow.runtime.state.ledger import Ledger
from gpuflow.runtime.stores import local_files
from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.stores.local_files import NoRoom
from gpuflow.runtime.stores.storage_timeout import Limit
from gpuflow.runtime.stores.store import StorageError
from proofs.trust_store.sound import build
from proofs.trust_store.trial import Case
from tests.runtime.harness import run, shell

BASE = "default/r/default"
SAVE = 'cd "$GPUFLOW_CHECKPOINT_DIR"; echo "w $GPUFLOW_ATTEMPT" >.t; mv .t "ck-$GPUFLOW_ATTEMPT"; exit 5'
RESUMED = shell('basename "$GPUFLOW_RESUME_FROM"; cat "$GPUFLOW_RESUME_FROM"')


def options(tmp_path: Path) -> tuple[object, ...]:
    return (
        *("--run-id", "r", "--store", tmp_path / "s", "--checkpoint-dir", tmp_path / "c"),
        *("--outputs-dir", tmp_path / "o", "--storage-timeout", "1s", "--termination-log", tmp_path / "log"),
    )


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two sound checkpoints."""
    place = tmp_path_factory.mktemp("sound")
    for _ in range(2):
        assert run(*options(place), *shell(SAVE)).returncode == 5
        shutil.rmtree(place / "c")
    return place / "s"


@pytest.fixture
def two(tmp_path: Path, sound: Path) -> Path:
    """The newest manifest of such a store: what an attacker writes."""
    (tmp_path / "log").write_text("")
    shutil.copytree(sound, tmp_path / "s")
    return sorted((tmp_path / "s" / BASE / "checkpoints").glob("*/manifest.json"))[-1]


def forge(path: Path, **changes: Any) -> None:
    """Change a record as anyone can who may write to the store: the hash has no key."""
    value = {**json.loads(path.read_bytes()), **changes}
    for name in [name for name, item in value.items() if item is ...]:
        del value[name]
    path.write_bytes(records.encode({**value, "hash": records.digest(value)}))


# -- finding 2: a manifest decides where bytes go


def test_a_manifest_writes_nothing_through_a_link_and_the_checkpoint_before_is_resumed(
    tmp_path: Path, two: Path
) -> None:
    (tmp_path / "site").mkdir()
    (file,) = json.loads(two.read_bytes())["files"]
    link = {"path": "a", "link": str(tmp_path / "site")}
    (two.parent / "files" / "a").mkdir(parents=True)
    shutil.copy(two.parent / "file", two.parent / "files" / "a" / "sitecustomize.py")
    forge(two, kind="directory", files=[link, {**file, "path": "a/sitecustomize.py", "mode": 0o4755}])
    done = run(*options(tmp_path), *RESUMED)
    assert (done.returncode, done.stdout) == (0, "ck-1\nw 1\n"), done.stderr
    assert "something lies below 'a', a file or a link; taking an older one" in done.stderr
    assert list((tmp_path / "site").iterdir()) == []


OUT = ["/etc", "..", "../x", "a/../..", "l/l/../..", "x/../../y", "", "\0", "a/\ud800"]


@pytest.mark.parametrize("link", OUT)
def test_a_link_that_leads_or_may_lead_out_makes_a_manifest_corrupt(tmp_path: Path, two: Path, link: str) -> None:
    assert record_fields.leads_out("k", link)
    forge(two, kind="directory", files=[{"path": "l", "link": "."}, {"path": "k", "link": link}])
    done = run(*options(tmp_path), *RESUMED)
    assert (done.returncode, done.stdout) == (0, "ck-1\nw 1\n"), done.stderr


@pytest.mark.parametrize(("path", "link"), [("k", "a/b"), ("k", "."), ("a/b/k", "../../x"), ("a/k", "./../b/c")])
def test_a_link_that_stays_is_kept(path: str, link: str) -> None:
    assert not record_fields.leads_out(path, link)


def test_no_mode_beyond_the_nine_bits_is_restored(tmp_path: Path, two: Path) -> None:
    (file,) = json.loads(two.read_bytes())["files"]
    forge(two, files=[{**file, "mode": 0o106755}])
    done = run(*options(tmp_path), *shell('stat -c %a "$GPUFLOW_RESUME_FROM"'))
    assert done.stdout == "755\n"


class Planting(Folder):
    """A store beside which a neighbor plants links while a checkpoint is brought."""

    streams = 1
    plant = ("", "")

    def chunks(self, key: str) -> Iterator[bytes]:
        place, target = self.plant
        if place and not os.path.lexists(place):
            os.symlink(target, place)
        yield from super().chunks(key)


def kept(tmp_path: Path, *paths: str) -> list[File]:
    for path in paths:
        place = tmp_path / "s" / "p" / "files" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("evil")
    return [File(path=path, size=4, sha256=records.text_digest("evil"), mode=0o644) for path in paths]


@pytest.mark.parametrize("planted", ["d", "z"])
def test_a_link_that_is_planted_while_files_come_is_not_followed(tmp_path: Path, planted: str) -> None:
    """`a` comes first; then there is a link where the folder `d`, or the file `z`, is to be made."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "z").write_text("untouched")
    store, into = Planting(str(tmp_path / "s")), tmp_path / "c" / "into"
    store.plant = (str(into / planted), str(tmp_path / "outside" / ("" if planted == "d" else "z")))
    files = kept(tmp_path, "a", "d/x", "z")
    with pytest.raises(Corrupt):
        bring(store, files, into)
    assert sorted(os.listdir(tmp_path / "outside")) == ["z"]
    assert (tmp_path / "outside" / "z").read_text() == "untouched"


def bring(store: Folder, files: list[File], into: Path, arrived: set[str] | None = None) -> None:
    key = Manifest(checkpoint="000001-000001-a", entry="e", kind="directory", attempt=1, id="a", files=files).key
    found = arrived if arrived is not None else set()
    shared = SharedFolder(str(into.parent))
    local_files.bring_files(store, "p", files, shared, into.name, key, lambda _: None, single=False, arrived=found)


def test_two_names_that_a_file_system_takes_for_one_are_corrupt_and_not_written_over(tmp_path: Path) -> None:
    store, into = Folder(str(tmp_path / "s")), tmp_path / "c" / "into"
    (first,) = kept(tmp_path, "w")
    bring(store, [first], into)
    with pytest.raises(Corrupt, match="'w' cannot be made here"):
        bring(store, [first], into)


# -- finding 6: a success that nobody had


def forged_success(tmp_path: Path, attempt_id: str, outputs: dict[str, Any]) -> None:
    value = {"format": 2, "attempt": 1, "id": attempt_id, "time": "", "outputs": outputs}
    place = tmp_path / "s" / BASE / "success.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(records.encode({**value, "hash": records.digest(value), "signature": None}))


def value(text: str, kind: str = "string") -> dict[str, Any]:
    return {"type": kind, "value": text, "sha256": records.text_digest(text)}


def test_a_success_marker_of_an_attempt_that_never_was_is_not_believed(tmp_path: Path) -> None:
    forged_success(tmp_path, "abcd", {"model": value("s3://evil/model"), "../escaped/x.pth": value("evil")})
    done = run(*options(tmp_path), "--output", "model", *shell('echo ran; echo mine >"$GPUFLOW_OUTPUTS/model"'))
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert (tmp_path / "o" / "model").read_text() == "mine"
    forged_success(tmp_path, "abcd", {"model": value("s3://evil/model")})
    done = run(*options(tmp_path), "--output", "model", *shell('echo ran; echo mine >"$GPUFLOW_OUTPUTS/model"'))
    assert done.stdout == "ran\n"
    assert "of which default/r/default/attempts/000001.json knows nothing; it is not believed" in done.stderr
    assert not (tmp_path / "escaped").exists()


def claim_id(tmp_path: Path) -> str:
    found: str = json.loads((tmp_path / "s" / BASE / "attempts" / "000001.json").read_text())["id"]
    return found


def test_only_declared_outputs_are_delivered_and_what_else_there_is_is_said(tmp_path: Path) -> None:
    assert run(*options(tmp_path), *shell("exit 5")).returncode == 5
    forged_success(tmp_path, claim_id(tmp_path), {"n": value("7", "int"), "train.py": value("evil")})
    done = run(*options(tmp_path), "--output", "n:int", *shell("echo ran"))
    assert (done.returncode, done.stdout) == (0, "")
    assert os.listdir(tmp_path / "o") == ["n"]
    assert "left outputs that this step does not have: train.py" in done.stderr


@pytest.mark.parametrize(("declared", "text"), [("int", "seven"), ("json", "{"), ("bool", "7"), ("file", "7")])
def test_an_output_that_is_not_of_its_declared_type_is_refused_in_one_sentence(
    tmp_path: Path, declared: str, text: str
) -> None:
    assert run(*options(tmp_path), *shell("exit 5")).returncode == 5
    forged_success(tmp_path, claim_id(tmp_path), {"n": value(text)})
    (tmp_path / "log").write_text("")
    done = run(*options(tmp_path), "--output", f"n:{declared}", *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")
    assert "attempt 1 has succeeded, but" in (tmp_path / "log").read_text()
    assert not (tmp_path / "o" / "n").exists()


def test_a_value_that_does_not_match_its_own_hash_is_no_success(tmp_path: Path) -> None:
    assert run(*options(tmp_path), *shell("exit 5")).returncode == 5
    forged_success(tmp_path, claim_id(tmp_path), {"n": {**value("7"), "value": "8"}})
    assert run(*options(tmp_path), "--output", "n", *shell('echo 9 >"$GPUFLOW_OUTPUTS/n"')).returncode == 0
    assert (tmp_path / "o" / "n").read_text() == "9"


# -- finding 13: one odd object stops a run for good

ODD: list[dict[str, Any]] = [
    {"entry": ...},
    {"entry": 5},
    {"files": None},
    {"kind": ...},
    {"files": [{"path": "a\0b", "size": 1, "sha256": "0" * 64}]},
    *({"entry": entry} for entry in ("", ".", ".gpuflow", "a/b", "x" * 256, "\ud800")),
    {"attempt": 1},
    {"checkpoint": "000001-000001-ffffffff"},
]


@pytest.mark.parametrize("change", ODD, ids=str)
def test_an_odd_manifest_costs_one_checkpoint_and_no_more(tmp_path: Path, two: Path, change: dict[str, Any]) -> None:
    forge(two, **change)
    done = run(*options(tmp_path), *RESUMED)
    assert (done.returncode, done.stdout) == (0, "ck-1\nw 1\n"), done.stderr
    assert "taking an older one" in done.stderr


def nested(depth: int) -> bytes:
    """A claim with its hash, as `records.pack` writes it, which itself cannot write so deep a value."""
    inner = "[" * depth + "]" * depth
    plain = f'"attempt":1,"failures":0,"format":2,"id":"a","interruptions":0,"more":{inner},"seconds":0'
    return f'{{{plain},"hash":"{hashlib.sha256(f"{{{plain}}}{chr(10)}".encode()).hexdigest()}"}}'.encode()


def test_deep_json_is_corrupt_at_any_depth_and_no_recursion_error() -> None:
    for depth in (10, 300, *range(900, 1100, 7), 5000, 200_000):
        try:
            records.unpack(Claim, nested(depth), "k")
        except Corrupt:
            assert depth > 100


def test_a_number_that_takes_long_to_read_is_not_read() -> None:
    data = nested(1).replace(b"[]", b"9" * 4000)
    with pytest.raises(Corrupt):
        records.unpack(Claim, data, "k")


@pytest.mark.parametrize("name", ["00000²", "٣٣٣٣٣٣", "1000000000000000000", "00000000000000000000009"])
def test_a_claim_that_numbers_no_attempt_is_passed_over_and_said(tmp_path: Path, two: Path, name: str) -> None:
    attempts = two.parents[2] / "attempts"
    shutil.copy(attempts / "000002.json", attempts / f"{name}.json")
    done = run(*options(tmp_path), *RESUMED)
    assert (done.returncode, done.stdout) == (0, "ck-2\nw 2\n"), done.stderr
    assert "names no attempt; it is passed over" in done.stderr


def test_a_claim_after_which_there_is_no_number_is_refused_with_the_object_and_the_way_out(
    tmp_path: Path, two: Path
) -> None:
    attempts = two.parents[2] / "attempts"
    shutil.copy(attempts / "000002.json", attempts / "999999999.json")
    forge(attempts / "999999999.json", attempt=999_999_999)
    done = run(*options(tmp_path), *RESUMED)
    assert (done.returncode, done.stdout) == (78, "")
    assert "attempts/999999999.json leaves no number for another attempt" in (tmp_path / "log").read_text()
    (attempts / "999999999.json").unlink()
    assert run(*options(tmp_path), *RESUMED).stdout == "ck-2\nw 2\n"


@pytest.mark.parametrize("change", [{"failures": 2**63 - 1}, {"seconds": 9e14}, {"since": 3}, {"checkpoint": "zzz"}])
def test_a_claim_with_figures_that_cannot_be_is_counted_from_what_lies_beside_it(
    tmp_path: Path, two: Path, change: dict[str, Any]
) -> None:
    forge(two.parents[2] / "attempts" / "000002.json", **change)
    done = run(*options(tmp_path), *RESUMED)
    assert (done.returncode, done.stdout) == (0, "ck-2\nw 2\n"), done.stderr


def test_the_name_of_an_end_record_is_no_id_unless_it_can_be_one(tmp_path: Path, two: Path) -> None:
    attempts = two.parents[2] / "attempts"
    (attempts / "000002.json").write_text("{")
    (attempts / "000002-zz zz\u202e.end.json").write_text("{}")
    done = run(*options(tmp_path), *RESUMED)
    assert (done.returncode, done.stdout) == (0, "ck-2\nw 2\n"), done.stderr


@pytest.mark.parametrize("kind", ["pipe", "link", "huge"])
def test_what_is_no_regular_file_of_a_fitting_size_is_corrupt_and_not_waited_for(
    tmp_path: Path, two: Path, kind: str
) -> None:
    if kind == "huge":
        os.truncate(two, 10 << 30)
    else:
        aside = two.rename(tmp_path / "aside")
        os.mkfifo(two) if kind == "pipe" else two.symlink_to(aside)
    done = run(*options(tmp_path), *RESUMED)
    assert (done.returncode, done.stdout) == (0, "ck-1\nw 1\n"), done.stderr


@pytest.mark.parametrize("name", ["success.json", "attempts/000003.json"])
def test_a_folder_in_the_place_of_a_record_is_refused_before_the_command_runs(
    tmp_path: Path, two: Path, name: str
) -> None:
    (two.parents[2] / name).mkdir()
    done = run(*options(tmp_path), *RESUMED)
    assert (done.returncode, done.stdout) == (78, "")
    assert f"{name} is a folder, where a file should be; remove it" in (tmp_path / "log").read_text()


# -- more than was said, or than there is room for


class Endless(Folder):
    """Whose objects never end."""

    read_so_far = 0

    def chunks(self, key: str) -> Iterator[bytes]:
        while True:
            self.read_so_far += 1 << 16
            yield b"\0" * (1 << 16)


def test_a_download_stops_when_more_comes_than_the_manifest_names(tmp_path: Path) -> None:
    store, into = Endless(str(tmp_path / "s")), tmp_path / "c" / "into"
    with pytest.raises(Corrupt, match="more than the 4 bytes"):
        bring(store, kept(tmp_path, "w"), into)
    assert store.read_so_far == 1 << 16
    assert list(into.iterdir()) == []


def test_a_size_that_is_made_up_is_found_out_before_the_disk_is_full(tmp_path: Path, two: Path) -> None:
    (file,) = json.loads(two.read_bytes())["files"]
    forge(two, files=[{**file, "size": 10**15}])
    done = run(*options(tmp_path), *RESUMED)
    assert (done.returncode, done.stdout) == (0, "ck-1\nw 1\n"), done.stderr
    assert "is not as large as its manifest says; taking an older one" in done.stderr


def test_a_checkpoint_that_does_not_fit_is_refused_with_its_name_and_not_passed_over(
    tmp_path: Path, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise NoRoom("it needs 9 bytes")

    monkeypatch.setattr(local_files, "_see_that_it_fits", full)
    ledger, directory = Ledger(Folder(str(tmp_path / "s")), BASE), Directory(str(tmp_path / "c"))
    history: History = ledger.history()
    assert ledger.claim(history)
    directory.enter("0" * 16, ledger.id)
    directory.prepare()
    with pytest.raises(BadOption, match=f"checkpoint {BASE}/checkpoints/{two.parent.name} cannot be restored"):
        restore.Restore(directory, ledger, history, ledger.store, Limit(1.0), lambda: True, lambda _: None).newest()


def test_a_manifest_that_no_reader_would_take_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuflow.runtime.checkpoints import transfer

    monkeypatch.setattr(records, "LARGE", 300)
    manifest = Manifest(
        checkpoint="000001-000001-a", entry="e", kind="directory", attempt=1, id="a", files=kept(tmp_path, "a", "b")
    )
    with pytest.raises(local_files.CheckpointRefused, match="its 2 files are too many"):
        transfer.commit(Folder(str(tmp_path / "s")), "p", manifest)
    assert not (tmp_path / "s" / "p" / "manifest.json").exists()


def test_folders_nested_without_end_are_an_error_with_their_name(tmp_path: Path) -> None:
    place = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(3000):
            os.mkdir("d", dir_fd=place)
            inner = os.open("d", os.O_RDONLY, dir_fd=place)
            os.close(place)
            place = inner
    finally:
        os.close(place)
    try:
        with pytest.raises(StorageError, match="the listing failed"):
            Folder(str(tmp_path)).names("d")
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


# -- what is saved with links


def test_a_link_that_might_lead_out_is_saved_as_the_file_it_stands_for(tmp_path: Path) -> None:
    (tmp_path / "c" / "d").mkdir(parents=True)
    (tmp_path / "c" / "w").write_text("weights")
    (tmp_path / "c" / "k").symlink_to("d/../w")
    items = {item.relative: item for item in local_files.list_items(str(tmp_path / "c"))}
    assert items["k"].is_file
    assert items["k"].link is None


# -- thousands: a part of `python -m proofs trust-store`


@pytest.fixture
def quick_place(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be had: forcing thousands of small files to disk takes minutes."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(tmp_path)
    place = Path(tempfile.mkdtemp(prefix="gpuflow-hostile-", dir=memory))
    yield place
    shutil.rmtree(place)


def test_changed_objects_cost_at_most_their_own_checkpoint(quick_place: Path) -> None:
    sounds = build(quick_place / "sound")
    faults = []
    for number in range(306):
        case = Case(sounds, 15, number, quick_place / "case")
        result = case.start() if number < 300 else case.start_process()
        faults += [f"{case}: {fault}" for fault in case.faults(result)]
    assert faults == []
