"""Signed state: who may write to the store but has no key can destroy, and nothing else. Every exploit runs twice:

without a key it works, with one it does not.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuflow.runtime.base import records
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.outcomes import RETRYABLE
from gpuflow.runtime.base.record_fields import LAST
from gpuflow.runtime.base.records import (
    Claim,
    Corrupt,
    End,
    File,
    Judgment,
    KeptOutput,
    Manifest,
    Success,
    UnknownFormat,
)
from gpuflow.runtime.base.signing import Keys, read_keys
from gpuflow.runtime.checkpoints import keeper, transfer
from gpuflow.runtime.state.forget import forget_run
from gpuflow.runtime.state.ledger import Ledger, OwnershipLost
from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.stores.store import StorageError
from tests.runtime.harness import python, run, shell

BASE = "default/r/default"
SECRET = "0123456789abcdef0123456789abcdef"
KEYS = Keys([SECRET.encode()])
FORGER = "f" * 16
BOTH = pytest.mark.parametrize("keys", [None, KEYS], ids=["without a key", "with a key"])


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return written(tmp_path / "key", SECRET + "\n")


def written(path: Path, text: str, mode: int = 0o400) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "store"), lasting=False)


def begin(store: Folder, keys: Keys | None, said: list[str] | None = None) -> Ledger:
    ledger = Ledger(store, BASE, say=(said if said is not None else []).append, keys=keys)
    assert ledger.claim(ledger.history())
    return ledger


def forged_claim(number: int, **fields: Any) -> bytes:
    values = {"attempt": number, "id": FORGER, "failures": 9, "interruptions": 9, "seconds": 0.0, **fields}
    return records.pack(Claim(**values))


def forged_success() -> bytes:
    text = "s3://evil/model"
    kept = KeptOutput(type="string", value=text, sha256=hashlib.sha256(text.encode()).hexdigest())
    return records.pack(Success(attempt=1, id=FORGER, outputs={"model": kept}))


def forge_checkpoint(store: Folder, name: str, text: str) -> None:
    file = File(path="", size=len(text), sha256=hashlib.sha256(text.encode()).hexdigest(), mode=0o644)
    manifest = Manifest(checkpoint=name, entry="evil", kind="file", attempt=int(name[:6]), id=FORGER, files=[file])
    store.write(f"{BASE}/checkpoints/{name}/file", text.encode())
    store.write(f"{BASE}/checkpoints/{name}/manifest.json", records.pack(manifest))


class Machine:
    """`gpuflow-run` as a user starts it, each time on a new machine."""

    def __init__(self, tmp_path: Path, key_file: Path | None, run_id: str = "r") -> None:
        self.tmp_path, self.key_file, self.run_id = tmp_path, key_file, run_id

    def __call__(self, code: str, *more: object, key_file: Path | None = None) -> subprocess.CompletedProcess[str]:
        shutil.rmtree(self.tmp_path / "checkpoints", ignore_errors=True)
        key = key_file or self.key_file
        return run(
            *("--checkpoint-dir", self.tmp_path / "checkpoints", "--store", self.tmp_path / "store"),
            *("--run-id", self.run_id, *(("--key-file", key) if key else ()), *more, *shell(code)),
        )


SAVE = "d=$GPUFLOW_CHECKPOINT_DIR; echo {0} > $d/.{0}; mv $d/.{0} $d/{0}; exit 1"
SHOW = 'if [ -n "$GPUFLOW_RESUME_FROM" ]; then cat "$GPUFLOW_RESUME_FROM"; else echo nothing; fi'


@pytest.fixture(params=[False, True], ids=["without a key", "with a key"])
def machine(request: pytest.FixtureRequest, tmp_path: Path, key_file: Path) -> Machine:
    return Machine(tmp_path, key_file if request.param else None)


# -- the exploits


def test_a_forged_success_marker_skips_nothing(machine: Machine, store: Folder) -> None:
    store.write(f"{BASE}/attempts/000001.json", forged_claim(1))
    store.write(f"{BASE}/success.json", forged_success())
    done = machine('echo the command ran; echo "true" > "$GPUFLOW_OUTPUTS/model"', "--output", "model")
    assert ("the command ran" in done.stdout) == (machine.key_file is not None)
    if machine.key_file is not None:
        # Its own marker takes the place of the forged one.
        again = machine("echo ran again", "--output", "model")
        assert "attempt 2 has succeeded already" in again.stderr
        assert "ran again" not in again.stdout


def test_a_forged_checkpoint_is_not_resumed_from(machine: Machine, store: Folder) -> None:
    assert machine(SAVE.format("true")).returncode == 1
    forge_checkpoint(store, "000001-999999-ffffffff", "forged\n")
    done = machine(SHOW)
    if machine.key_file is None:
        assert done.stdout == "forged\n"
    else:
        assert done.stdout == "true\n"
        assert "000001-999999-ffffffff/manifest.json is not signed with our key; taking an older one" in done.stderr


def test_a_checkpoint_of_our_own_whose_files_were_changed_is_not_resumed_from(machine: Machine, store: Folder) -> None:
    """The hashes are in the manifest: only who can sign can make others fit."""
    assert machine(SAVE.format("true")).returncode == 1
    (key,) = [key for key, _ in store.names(f"{BASE}/checkpoints") if key.endswith("/file")]
    manifest = json.loads(store.read(key[: -len("file")] + "manifest.json"))
    store.write(key, b"evil\n")
    manifest["files"][0]["sha256"] = hashlib.sha256(b"evil\n").hexdigest()
    store.write(key[: -len("file")] + "manifest.json", records.encode({**manifest, "hash": records.digest(manifest)}))
    assert machine(SHOW).stdout == ("evil\n" if machine.key_file is None else "nothing\n")


@BOTH
def test_a_forged_claim_takes_nothing_over(keys: Keys | None, store: Folder) -> None:
    ledger = begin(store, keys)
    store.write(f"{BASE}/attempts/000099.json", forged_claim(99, since=99))
    if keys is None:
        with pytest.raises(OwnershipLost):
            ledger.assert_owner()
        return
    ledger.assert_owner()
    ledger.succeed({})
    found = Ledger(store, BASE, keys=keys).success()
    assert found is not None
    assert found.id == ledger.id


@BOTH
def test_a_forged_claim_costs_nothing_and_ends_nothing(keys: Keys | None, store: Folder) -> None:
    begin(store, keys).end(RETRYABLE, final=False, exit_code=1, because="x")
    store.write(f"{BASE}/attempts/000002.json", forged_claim(2))
    final = End(outcome="failed (final)", final=True, exit_code=79, seconds=0.0)
    store.write(f"{BASE}/attempts/000002-{FORGER}.end.json", records.pack(final))
    said: list[str] = []
    history = Ledger(store, BASE, say=said.append, keys=keys).history()
    if keys is None:
        assert history.final is not None
        assert (history.counts.failures, history.counts.interruptions) == (10, 9)
        return
    assert history.final is None
    assert (history.counts.failures, history.counts.interruptions) == (1, 0)
    assert any("000002.json is not signed with our key: no attempt of this run" in sentence for sentence in said)
    # The name stays taken: the next number is beyond it.
    assert begin(store, keys).number == 3


def test_a_thousand_forged_claims_are_one_sentence_and_the_next_number_is_beyond_those_in_a_row(store: Folder) -> None:
    for number in [*range(2, 1000), LAST]:
        store.write(f"{BASE}/attempts/{number:06d}.json", forged_claim(number))
    said: list[str] = []
    assert begin(store, KEYS, said).number == 1
    assert begin(store, KEYS).number == 1000
    assert len(said) == 1
    assert "and 998 more are not signed with our key" in said[0]


def test_a_forged_number_that_comes_and_goes_blocks_nobody(store: Folder) -> None:
    ledger = begin(store, KEYS)
    store.write(f"{BASE}/attempts/000099.json", forged_claim(99))
    ledger.assert_owner()
    store.delete([f"{BASE}/attempts/000099.json"])
    ledger.assert_owner()
    # But a number of ours must stay.
    store.write(f"{BASE}/attempts/000099.json", forged_claim(99))
    store.delete([f"{BASE}/attempts/000001.json"])
    with pytest.raises(StorageError, match=r"000001\.json is gone"):
        ledger.history()


@BOTH
def test_a_forged_end_neither_fails_nor_ends_the_run(keys: Keys | None, store: Folder) -> None:
    ledger = begin(store, keys)
    final = End(outcome="failed (final)", final=True, exit_code=79, seconds=0.0)
    store.write(f"{BASE}/attempts/000001-{ledger.id}.end.json", records.pack(final))
    history = Ledger(store, BASE, keys=keys).history()
    assert (history.final is None) == (keys is not None)
    assert (history.counts.failures, history.counts.interruptions) == ((1, 0) if keys is None else (0, 1))


@BOTH
def test_a_forged_judgment_is_not_counted(keys: Keys | None, store: Folder) -> None:
    ledger = begin(store, keys)
    judged = Judgment(outcome="out of memory", by="me")
    store.write(f"{BASE}/attempts/000001-{ledger.id}.judged.json", records.pack(judged))
    counts = Ledger(store, BASE, keys=keys).history().counts
    assert (counts.failures, counts.interruptions) == ((1, 0) if keys is None else (0, 1))


@BOTH
def test_forged_checkpoints_do_not_take_the_place_of_ours(keys: Keys | None, store: Folder) -> None:
    ledger = begin(store, keys)
    names = [records.checkpoint_name(1, number, ledger.id) for number in (1, 2)]
    for name in names:
        manifest = Manifest(checkpoint=name, entry="e", kind="directory", attempt=1, id=ledger.id, files=[])
        transfer.commit(store, ledger.key("checkpoints", name), manifest, keys)
    for number in (7, 8):
        forge_checkpoint(store, f"000099-{number:06d}-ffffffff", "x")
    assert keeper.prune(store, ledger, 2, names[-1], lambda: True)
    left = [name for name, _ in transfer.manifests(store, BASE) if name in names]
    assert left == (names[1:] if keys is None else names)


@BOTH
def test_a_checkpoint_that_is_not_signed_is_not_what_the_book_remembers(keys: Keys | None, store: Folder) -> None:
    """Else who wrote it could remove it again, and the run would wait for it."""
    begin(store, keys)
    forge_checkpoint(store, "000001-999999-ffffffff", "x")
    kept = Ledger(store, BASE, keys=keys).history().kept
    assert kept == (None if keys is not None else "000001-999999-ffffffff")


@BOTH
def test_a_marker_moved_from_another_run_is_not_believed(keys: Keys | None, store: Folder) -> None:
    other = Ledger(store, "default/other/default", keys=keys)
    assert other.claim(other.history())
    other.succeed({})
    for name in ("attempts/000001.json", "success.json"):
        store.write(f"{BASE}/{name}", store.read(f"default/other/default/{name}"))
    assert (Ledger(store, BASE, keys=keys).success() is None) == (keys is not None)


@BOTH
def test_a_checkpoint_moved_from_another_run_is_not_believed(keys: Keys | None, store: Folder) -> None:
    """Nor under another name in its own: an old one would be the newest."""
    manifest = Manifest(checkpoint="000001-000001-aa", entry="e", kind="directory", attempt=1, id="aa", files=[])
    transfer.commit(store, f"{BASE}/checkpoints/000001-000001-aa", manifest, keys)
    moved = "default/other/default/checkpoints/000001-000001-aa/manifest.json"
    store.write(moved, store.read(f"{BASE}/checkpoints/000001-000001-aa/manifest.json"))
    if keys is None:
        transfer.read_manifest(store, moved)
    else:
        with pytest.raises(Corrupt, match="is not signed with our key"):
            transfer.read_manifest(store, moved, keys)


@pytest.mark.parametrize("how", ["stripped", "emptied", "of another key", "hash only", "a list"])
def test_a_stripped_or_wrong_signature_is_none(how: str, store: Folder) -> None:
    begin(store, KEYS).succeed({})
    value = json.loads(store.read(f"{BASE}/success.json"))
    if how == "stripped":
        del value["signature"]
    else:
        other = Keys([b"another key of 32 bytes or more"]).sign(value["hash"], f"{BASE}/success.json")
        value["signature"] = {"emptied": "", "of another key": other, "hash only": value["hash"], "a list": []}[how]
    store.write(f"{BASE}/success.json", records.encode(value))
    assert Ledger(store, BASE, keys=KEYS).success() is None
    assert Ledger(store, BASE).success() is not None


@pytest.mark.parametrize("kind", ["claim", "manifest", "success"])
def test_a_record_of_version_1_is_not_believed_beside_a_key(kind: str, store: Folder) -> None:
    """It has no signature, and claims not even a hash: it stops nobody who has a key."""
    old: dict[str, Any] = {
        "claim": {"contract": 1, "attempt": 9, "id": "ab", "failures": 9, "interruptions": 0, "seconds": 0},
        "manifest": {"contract": 1, "checkpoint": "000009-000001-ab", "entry": "e", "kind": "directory", "attempt": 9,
                     "id": "ab", "seconds": 0, "files": []},
        "success": {"contract": 1, "attempt": 9, "id": "ab", "time": "", "outputs": {}},
    }[kind]  # fmt: skip
    shape = {"claim": Claim, "manifest": Manifest, "success": Success}[kind]
    data = records.encode(old if kind == "claim" else {**old, "hash": records.digest(old)})
    with pytest.raises(UnknownFormat, match="k is of format 1"):
        records.unpack(shape, data, "k")
    with pytest.raises(Corrupt, match="k is not signed with our key"):
        records.unpack(shape, data, "k", KEYS)


def test_an_unknown_format_stops_the_run_only_when_it_is_signed(store: Folder) -> None:
    value = {**json.loads(forged_claim(2)), "format": 3}
    value["hash"] = records.digest(value)
    with pytest.raises(UnknownFormat):
        records.unpack(Claim, records.encode(value), "k")
    with pytest.raises(Corrupt):
        records.unpack(Claim, records.encode(value), "k", KEYS)
    value["signature"] = KEYS.sign(value["hash"], "k")
    with pytest.raises(UnknownFormat):
        records.unpack(Claim, records.encode(value), "k", KEYS)


def test_names_that_are_no_numbers_are_no_claims(store: Folder) -> None:
    for name in ("00000²", "0000001", "1", "9" * 30, "-00001"):
        store.write(f"{BASE}/attempts/{name}.json", forged_claim(1))
    store.write(f"{BASE}/attempts/000001-no id.end.json", b"{}")
    assert begin(store, None).number == 1


def test_artifacts_are_signed_for_the_place_they_lie_at(tmp_path: Path, key_file: Path, store: Folder) -> None:
    machine = Machine(tmp_path, key_file)
    outputs = ("--output", "a:file", "--output", "b:file", "--artifact", f"b={tmp_path / 'own'}")
    code = 'echo a > "$GPUFLOW_OUTPUTS/a"; echo b > "$GPUFLOW_OUTPUTS/b"'
    assert machine(code, *outputs).returncode == 0
    (kept,) = [key for key, _ in store.names(f"{BASE}/artifacts") if key.endswith("/manifest.json")]
    records.unpack(Manifest, store.read(kept), kept, KEYS)
    (own,) = (tmp_path / "own").glob("*/manifest.json")
    records.unpack(Manifest, own.read_bytes(), f"{BASE} {own}", KEYS)
    with pytest.raises(Corrupt):
        records.unpack(Manifest, own.read_bytes(), kept, KEYS)


# -- keys


def test_a_run_goes_on_while_its_key_is_replaced(tmp_path: Path, key_file: Path) -> None:
    machine, new = Machine(tmp_path, key_file), "a new key, with 24 bytes"
    assert machine(SAVE.format("old")).returncode == 1
    both = written(tmp_path / "both", f"{new}\n{SECRET}\n")
    assert machine(SHOW + "; " + SAVE.format("new"), key_file=both).stdout == "old\n"
    assert machine(SHOW, key_file=written(tmp_path / "new", new)).stdout == "new\n"


def test_what_was_written_before_there_was_a_key_is_not_believed(tmp_path: Path, key_file: Path) -> None:
    assert Machine(tmp_path, None)(SAVE.format("unsigned")).returncode == 1
    done = Machine(tmp_path, key_file)(SHOW + '; echo "$GPUFLOW_ATTEMPT"')
    assert done.stdout == "nothing\n2\n"
    assert "is not signed with our key" in done.stderr


def test_without_the_key_signed_records_are_read_and_that_is_said_once(tmp_path: Path, key_file: Path) -> None:
    assert Machine(tmp_path, key_file)(SAVE.format("signed")).returncode == 1
    done = Machine(tmp_path, None)(SHOW)
    assert done.stdout == "signed\n"
    assert done.stderr.count("signatures are not checked") == 1


def test_to_forget_a_run_needs_its_key(store: Folder) -> None:
    """What is written without it would not be believed, and half of the run would be gone."""
    begin(store, KEYS).succeed({})
    store.write(f"{BASE}/attempts/000099.json", forged_claim(99))
    with pytest.raises(BadOption, match="give its key by --key-file"):
        forget_run(Ledger(store, BASE))
    assert Ledger(store, BASE, keys=KEYS).success() is not None
    forget_run(Ledger(store, BASE, keys=KEYS))
    assert Ledger(store, BASE, keys=KEYS).success() is None
    ledger = begin(store, KEYS)
    assert (ledger.number, ledger.since) == (3, 2)


def test_forget_takes_the_key_on_the_command_line(tmp_path: Path, key_file: Path) -> None:
    machine = Machine(tmp_path, key_file)
    assert machine("true").returncode == 0
    words = ("forget", "--store", tmp_path / "store", "--run-id", "r")
    assert run(*words, "--key-file", key_file).returncode == 0
    assert machine("echo from nothing").stdout == "from nothing\n"
    assert run(*words, "--key-file", tmp_path / "none").returncode == 78


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty; make a key with: openssl rand -hex 32"),
        ("\n \n", "is empty"),
        ("short-secret", "key 1 in {} has 12 bytes, and needs at least 16"),
        (SECRET + "\nfifteen-bytes-x\n", "key 2 in {} has 15 bytes"),
        ("x" * 70_000, "is larger than 65536 bytes"),
        (SECRET + "\n# the old key, remove it in May\n", "line 2 in {} looks like a remark; every line is a key"),
    ],
)
def test_a_bad_key_file_is_a_bad_configuration_in_one_sentence(text: str, why: str, tmp_path: Path) -> None:
    path = written(tmp_path / "key", text)
    done = run("--key-file", path, *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")
    assert why.format(path) in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not any(line.strip() and line.strip() in done.stderr for line in text.splitlines() if line.strip())


def test_a_key_file_that_is_none_is_a_bad_configuration(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, why in (("none", "cannot be read: No such file"), ("folder", "is no file"), ("pipe", "is no file")):
        with pytest.raises(BadOption, match=why):
            read_keys(str(tmp_path / name))


def test_a_key_that_everybody_may_read_is_said(tmp_path: Path, key_file: Path) -> None:
    said: list[str] = []
    assert read_keys(str(key_file), said.append) is not None
    assert said == []
    assert read_keys(str(written(tmp_path / "open", SECRET, 0o444)), said.append) is not None
    assert "may be read by every user" in said[0]


def test_the_programs_environment_has_neither_the_key_nor_its_place(tmp_path: Path, key_file: Path) -> None:
    code = (
        "import os; print([name for name, value in os.environ.items() "
        f"if 'KEY_FILE' in name or {SECRET!r} in value or {str(key_file)!r} in value]); "
        "print([os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') "
        f"if os.path.lexists(f'/proc/self/fd/{{n}}') and {str(key_file)!r} in os.readlink(f'/proc/self/fd/{{n}}')])"
    )
    done = run(*python(code), environ={"GPUFLOW_RUN_KEY_FILE": str(key_file)})
    assert done.stdout == "[]\n[]\n"


def test_without_a_store_the_checkpoints_are_not_signed_and_that_is_said(tmp_path: Path, key_file: Path) -> None:
    words = ("--checkpoint-dir", tmp_path / "c", "--run-id", "r", "--key-file", key_file)
    assert "the checkpoints in the directory are not" in run(*words, *shell("true")).stderr


# -- spoiled claims, and the wrong key


def test_a_run_that_was_done_without_the_key_is_not_done_again_in_silence(tmp_path: Path, key_file: Path) -> None:
    assert Machine(tmp_path, None)("true").returncode == 0
    done = Machine(tmp_path, key_file)("echo ran")
    assert done.stdout == "ran\n"
    assert done.stderr.count("success.json is not signed with our key; the run does not count as done by it") == 1


def test_spoiled_claims_with_signed_ends_do_not_stop_the_run_for_good(store: Folder) -> None:
    """A number between two of them must not be taken for the next one: what is counted before it would be later."""
    for _ in range(4):
        begin(store, KEYS).end(RETRYABLE, final=False, exit_code=1, because="it failed")
    for number in (2, 4):
        store.write(f"{BASE}/attempts/{number:06d}.json", forged_claim(number))
    store.delete([f"{BASE}/attempts/000003.json"])
    ledger = begin(store, KEYS)
    assert (ledger.number, ledger.counts.failures) == (5, 3)
    forget_run(Ledger(store, BASE, keys=KEYS))
    assert begin(store, KEYS).since == 6


def test_to_forget_goes_beyond_spoiled_claims_with_signed_ends(store: Folder) -> None:
    for _ in range(4):
        begin(store, KEYS).end(RETRYABLE, final=False, exit_code=1, because="it failed")
    for number in (2, 4):
        store.write(f"{BASE}/attempts/{number:06d}.json", forged_claim(number))
    store.delete([f"{BASE}/attempts/000003.json"])
    forget_run(Ledger(store, BASE, keys=KEYS))
    ledger = begin(store, KEYS)
    assert (ledger.number, ledger.since, ledger.counts.failures) == (6, 5, 0)


def test_an_attempt_with_the_wrong_key_removes_no_checkpoint_of_the_run(tmp_path: Path, key_file: Path) -> None:
    """Else a mistake in a Secret costs a week, and the right key has nothing left to resume from."""
    wrong = written(tmp_path / "wrong", "a new key that took the place of the old")
    machine = Machine(tmp_path, key_file)
    assert machine(SAVE.format("week")).returncode == 1
    mistaken = machine(SHOW + "; " + SAVE.format("other"), "--keep", 1, key_file=wrong)
    assert mistaken.stdout == "nothing\n"
    assert "not signed with our key: left in the store, and not removed" in mistaken.stderr
    assert machine(SHOW).stdout == "week\n"
    assert run("forget", "--store", tmp_path / "store", "--run-id", "r", "--key-file", key_file).returncode == 0
    assert not (tmp_path / "store" / BASE / "checkpoints").exists()
