"""Inputs: fetched, checked, placed before the command; what cannot be had is 78 and nobody's failure.

Tests gpuflow/runtime/artifacts/input_options.py and gpuflow/runtime/artifacts/inputs.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from gpuflow.runtime.artifacts import artifact_files, inputs
from gpuflow.runtime.artifacts.artifact_files import Artifact
from gpuflow.runtime.artifacts.input_options import parse as parse_inputs
from gpuflow.runtime.artifacts.inputs import Inputs
from gpuflow.runtime.base import records
from gpuflow.runtime.base.options import BadOption, parse
from gpuflow.runtime.base.records import File, Manifest
from gpuflow.runtime.base.signing import Keys
from gpuflow.runtime.checkpoints.transfer import TransferAbandoned
from gpuflow.runtime.state.ledger import Ledger
from gpuflow.runtime.stores import local_files
from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.stores.open import open_store
from gpuflow.runtime.stores.store import StorageError, Store
from tests.runtime.harness import eventually, run, shell, start
from tests.runtime.trees import Tree, make, read, trees

TREE: Tree = {
    "w": ("file", b"weights", 0o755),
    "empty": ("file", b"", 0o600),
    "d/e": ("folder", None, 0),
    "d/x": ("file", b"x" * 3000, 0o644),
    "l": ("link", "d", 0),
}


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Each test is a process of its own."""
    yield
    inputs._PLACED_SOURCES.clear()


def keep(source: Path, store: Store, keys: Keys | None = None, top: str = "", run: str = "p/r/train") -> str:
    """An artifact as a step leaves it: the URI. With `top` at a URI of its own."""
    ledger = Ledger(Folder(tempfile.mkdtemp(), lasting=False), run, keys=keys)
    ledger.claim(ledger.history())
    name = records.artifact_name(1, ledger.id)
    prefix = f"{top}/{name}" if top else f"{run}/artifacts/m/{name}"
    files = Artifact(ledger, store, prefix, str(source), lambda _: None).keep()
    return store.url(f"{prefix}/files" + (f"/{files[0].path}" if source.is_file() else ""))


def bring(*words: str, keys: Keys | None = None, seconds: float = 0.3) -> list[str]:
    """Place inputs in this process; what was said."""
    said: list[str] = []
    bringing = Inputs(parse_inputs(parse(words, {})), keys, seconds, open_store, said.append, lambda: True)
    bringing.bring()
    return said


def not_linked(path: Path) -> Path:
    """A place where an attempt ended in the middle of a copy: the next one goes on with it."""
    (path / ".gpuflow-input").mkdir(parents=True)
    return path


@pytest.fixture
def kept(tmp_path: Path) -> str:
    return keep(make(TREE, tmp_path / "made"), Folder(str(tmp_path / "root")))


# -- what is said


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (["--input", "/in"], "is not PATH=URI"),
        (["--input", "in=/x"], "no absolute path"),
        (["--input", "/=/x"], "no absolute path"),
        (["--input", "/a/../b=/x"], 'without ".."'),
        (["--input", "/a="], "was it skipped"),
        (["--input", "/a=None"], "neither a URI nor an absolute path"),
        (["--input", "/a=s3://"], "neither a URI"),
        (["--input", "/a=s3://b/../c"], 'has ".." in it'),
        (["--input", "/a=[1"], "not one in JSON"),
        (["--input", '/a=[{"x": 1}]'], "not a URI or null"),
        (["--input", "/a=/x", "--input", "/a/=/y"], "given twice"),
        (["--input", "/a=/x", "--input", "/a/b=/y"], "lies inside of"),
        (["--input", "/a=/x", "--input-type", "/b=file"], "there is no --input"),
        (["--input", "/a=/x", "--input-type", "/a=folder"], "neither file nor directory"),
        (["--input", "/a=/x", "--input-digest", "/a=sha256:12"], "64 hex digits"),
        (["--input", '/a=["/x"]', "--input-digest", f"/a=sha256:{'0' * 64}"], "each of its parts"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_happens(words: list[str], because: str) -> None:
    with pytest.raises(BadOption, match=because):
        parse_inputs(parse(words, {}))
    done = run("--state", "/nonexistent/never-made", "--run-id", "r", *words, *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")


# -- from one step to the next


def test_files_links_modes_and_empty_things_come_as_they_were(tmp_path: Path, kept: str) -> None:
    (tmp_path / "in").mkdir()
    done = run("--input", f"{tmp_path}/in={kept}", *shell(f"ls -A {tmp_path}/in | tr '\\n' ' '"))
    assert (done.returncode, done.stdout) == (0, "d empty l w "), done.stderr
    assert read(tmp_path / "in") == read(tmp_path / "made")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees())
def test_any_tree_arrives_as_it_was(tree: Tree) -> None:
    with tempfile.TemporaryDirectory() as folder:
        inputs._PLACED_SOURCES.clear()
        top = Path(folder)
        uri = keep(make(tree, top / "made"), Folder(str(top / "root"), lasting=False))
        bring("--input", f"{not_linked(top / 'in')}={uri}")
        assert read(top / "in") == read(top / "made")
        again = bring("--input", f"{top}/in={uri}")
        assert "there already" in again[-1]


def test_holes_stay_holes(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    with (tmp_path / "made" / "sparse").open("wb") as file:
        file.truncate(64 << 20)
        file.seek(20 << 20)
        file.write(b"x")
    uri = keep(tmp_path / "made", Folder(str(tmp_path / "root")))
    bring("--input", f"{not_linked(tmp_path / 'in')}={uri}")
    status = os.stat(tmp_path / "in" / "sparse")
    assert (status.st_size, status.st_blocks * 512 < 4 << 20) == (64 << 20, True)


def test_one_file_lies_under_the_name_that_the_step_gives(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"m")
    uri = keep(tmp_path / "model.bin", Folder(str(tmp_path / "root")))
    assert uri.endswith("/files/model.bin")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "other").write_text("beside it")
    bring("--input", f"{tmp_path}/in/m={uri}")
    assert (tmp_path / "in" / "m").read_bytes() == b"m"
    assert sorted(os.listdir(tmp_path / "in")) == ["m", "other"]


def test_a_fan_in_has_a_number_for_each_item_and_leaves_those_free_that_were_skipped(tmp_path: Path) -> None:
    store = Folder(str(tmp_path / "root"))
    uris: list[str | None] = []
    for number in range(3):
        (tmp_path / f"m{number}").mkdir()
        (tmp_path / f"m{number}" / "w").write_text(str(number))
        uris.append(keep(tmp_path / f"m{number}", store, run=f"p/r/train/items/{number}"))
    uris[1] = None
    bring("--input", f"{tmp_path}/in={json.dumps(uris)}")
    assert sorted(os.listdir(tmp_path / "in")) == ["0", "2"]
    assert (tmp_path / "in" / "2" / "w").read_text() == "2"
    bring("--input", f"{tmp_path}/none=[]")
    assert os.listdir(tmp_path / "none") == []


def test_what_lies_in_the_folder_of_a_fan_in_is_not_mixed_with_it(tmp_path: Path, kept: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1").write_text("mine")
    with pytest.raises(BadOption, match="'1' is in the way"):
        bring("--input", f"{tmp_path}/in={json.dumps([kept])}")
    assert os.listdir(tmp_path / "in") == ["1"]


# -- no manifest, no artifact; wrong bytes


def test_without_its_manifest_there_is_no_artifact_and_that_costs_nothing(tmp_path: Path, kept: str) -> None:
    os.unlink(Path(kept).parent / "manifest.json")
    words = ("--state", tmp_path / "state", "--run-id", "r", "--storage-timeout", "4s")
    done = run(*words, "--input", f"{tmp_path}/in={kept}", *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")
    assert f"there is no {Path(kept).parent}/manifest.json: the artifact was never finished" in done.stderr
    assert not (tmp_path / "in").exists()
    (end,) = (tmp_path / "state").rglob("*.end.json")
    assert json.loads(end.read_text())["outcome"] == "never started"


def test_a_manifest_that_comes_late_is_waited_for(tmp_path: Path, kept: str) -> None:
    manifest = Path(kept).parent / "manifest.json"
    os.rename(manifest, tmp_path / "aside")
    timer = threading.Timer(0.7, os.rename, (tmp_path / "aside", manifest))
    timer.start()
    bring("--input", f"{tmp_path}/in={kept}", seconds=30)
    timer.join()
    assert (tmp_path / "in" / "w").read_bytes() == b"weights"


@pytest.mark.parametrize("spoil", ["other bytes", "fewer", "more", "gone", "manifest"])
def test_what_does_not_match_is_read_again_and_then_refused(spoil: str, tmp_path: Path, kept: str) -> None:
    file = Path(kept) / "d" / "x"
    if spoil == "gone":
        file.unlink()
    elif spoil == "manifest":
        file = Path(kept).parent / "manifest.json"
        file.write_bytes(file.read_bytes().replace(b'"attempt":1', b'"attempt":2'))
    else:
        file.write_bytes({"other bytes": b"y" * 3000, "fewer": b"x" * 2999, "more": b"x" * 3001}[spoil])
    (tmp_path / "in").mkdir()
    done = run("--input", f"{tmp_path}/in={kept}", "--storage-timeout", "3s", *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")
    assert "reading it again" in done.stderr
    assert "the input " in done.stderr
    assert "w" not in os.listdir(tmp_path / "in")


def test_a_wrong_read_that_does_not_repeat_is_no_matter(tmp_path: Path, kept: str) -> None:
    class Once(Folder):
        spoiled = 0

        def chunks(self, key: str) -> Iterator[bytes]:
            for data in super().chunks(key):
                self.spoiled += key.endswith("d/x")
                yield data[:-1] + b"?" if key.endswith("d/x") and self.spoiled == 1 else data

    store = Once(kept.partition("/0000")[0])
    said: list[str] = []
    words = parse(["--input", f"{tmp_path}/in={kept}"], {})
    Inputs(parse_inputs(words), None, 1, lambda _: store, said.append, lambda: True).bring()
    assert store.spoiled == 2
    assert read(tmp_path / "in") == read(tmp_path / "made")


def test_the_digest_is_the_one_of_the_success_marker(tmp_path: Path, kept: str) -> None:
    digest = artifact_files.kept_output(
        "directory", artifact_files.measure_files(str(tmp_path / "made")), None, None
    ).sha256
    bring("--input", f"{tmp_path}/in={kept}", "--input-digest", f"{tmp_path}/in=sha256:{digest}")
    with pytest.raises(BadOption, match=r"is sha256:[0-9a-f]{64}, and should be sha256:0000"):
        bring("--input", f"{tmp_path}/in2={kept}", "--input-digest", f"{tmp_path}/in2=sha256:{'0' * 64}")
    assert not (tmp_path / "in2").exists()


def forge(kept: str, **fields: Any) -> None:
    """The manifest of an artifact with other fields, and a hash that fits."""
    path = Path(kept).parent / "manifest.json"
    value = {**json.loads(path.read_bytes()), **fields}
    value["hash"] = records.digest(value)
    path.write_bytes(records.encode(value))


WRITTEN = {"size": 4, "sha256": hashlib.sha256(b"evil").hexdigest()}


@pytest.mark.parametrize(
    "files",
    [
        [{"path": "../evil", **WRITTEN}],
        [{"path": "/evil", **WRITTEN}],
        [{"path": "a/../../evil", **WRITTEN}],
        [{"path": "a//evil", **WRITTEN}],
        [{"path": "l", "link": ".."}, {"path": "l/evil", **WRITTEN}],
        [{"path": "l", "link": "/"}],
        [{"path": "l", "link": "a/../.."}],
        [{"path": "a", **WRITTEN}, {"path": "a", **WRITTEN}],
        [{"path": "x" * 300, **WRITTEN}],
        [{"path": "a\0b", **WRITTEN}],
        [{"path": ".gpuflow-input/lock", **WRITTEN}],
        [{"path": "w", "size": 1 << 62, "sha256": "0" * 64}],
        [{"path": "w", "size": 1 << 64, "sha256": "0" * 64}],
        [{"path": "w", "size": -1, "sha256": "0" * 64}],
    ],
)
def test_a_hostile_manifest_writes_nothing_outside_and_is_refused(
    files: list[dict[str, Any]], tmp_path: Path, kept: str
) -> None:
    for place in ("evil", "files/evil", "files/l/evil", "files/a", "files/a/evil"):
        path = Path(kept).parent / place
        if not path.parent.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_dir():
                path.write_bytes(b"evil")
    forge(kept, files=files)
    (tmp_path / "inner" / "in").mkdir(parents=True)
    with pytest.raises((BadOption, StorageError)):
        bring("--input", f"{tmp_path}/inner/in={kept}")
    assert [path for path in (tmp_path / "inner").rglob("*") if path.name != ".gpuflow-input"] in (
        [tmp_path / "inner" / "in"],
        [tmp_path / "inner" / "in", tmp_path / "inner" / "in" / ".gpuflow-input" / "lock"],
    )


def test_another_artifacts_manifest_is_not_believed(tmp_path: Path, kept: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "w").write_text("other")
    other = keep(tmp_path / "other", Folder(str(tmp_path / "root")))
    shutil.copy(Path(other).parent / "manifest.json", Path(kept).parent / "manifest.json")
    with pytest.raises(BadOption, match="of another artifact"):
        bring("--input", f"{tmp_path}/in={kept}")


def test_only_nine_bits_of_a_mode_are_set(tmp_path: Path, kept: str) -> None:
    (file,) = [
        file for file in json.loads((Path(kept).parent / "manifest.json").read_text())["files"] if file["path"] == "w"
    ]
    forge(kept, files=[{**file, "mode": 0o106755}])
    (tmp_path / "in").mkdir()
    bring("--input", f"{tmp_path}/in={kept}")
    assert os.stat(tmp_path / "in" / "w").st_mode & 0o7777 == 0o755


# -- signatures

KEYS, OTHERS = Keys([b"0123456789abcdef"]), Keys([b"fedcba9876543210"])


@pytest.mark.parametrize("top", ["", "mine"], ids=["below the root", "at a URI of its own"])
def test_with_a_key_an_artifact_must_be_signed_for_its_place(top: str, tmp_path: Path) -> None:
    made, store = make(TREE, tmp_path / "made"), Folder(str(tmp_path / "root"))
    signed, unsigned = keep(made, store, KEYS, top), keep(made, store, None, top)
    bring("--input", f"{tmp_path}/in={signed}", keys=KEYS)
    for uri, keys in ((unsigned, KEYS), (signed, OTHERS)):
        with pytest.raises(BadOption, match="not signed with our key"):
            bring("--input", f"{tmp_path}/in2={uri}", keys=keys)
    said = bring("--input", f"{tmp_path}/in3={signed}")
    assert any("the signature is not checked" in line for line in said)
    # Signed, but for another place: another run, another name, another root of its own.
    folder = Path(signed).parent
    elsewhere = tmp_path / "root" / "p" / "r" / "other" / "artifacts" / "m" / folder.name
    shutil.copytree(folder, elsewhere)
    with pytest.raises(BadOption, match="not signed with our key"):
        bring("--input", f"{tmp_path}/in4={elsewhere}/files", keys=KEYS)
    assert not (tmp_path / "in4").exists()


def test_who_forges_the_run_in_a_manifest_gains_nothing(tmp_path: Path) -> None:
    made, store = make(TREE, tmp_path / "made"), Folder(str(tmp_path / "root"))
    forge(signed := keep(made, store, KEYS), run="p/r/evil")
    with pytest.raises(BadOption, match="not signed with our key"):
        bring("--input", f"{tmp_path}/in={signed}", keys=KEYS)
    old = keep(made, store, KEYS)
    value = json.loads((Path(old).parent / "manifest.json").read_bytes())
    del value["run"]
    (Path(old).parent / "manifest.json").write_bytes(records.encode({**value, "hash": records.digest(value)}))
    with pytest.raises(BadOption, match="not signed with our key"):
        bring("--input", f"{tmp_path}/in={old}", keys=KEYS)


def test_a_signed_artifact_goes_from_program_to_program(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef\n")
    words = ("--key-file", tmp_path / "key", "--run-id", "r", "--artifacts", tmp_path / "root")
    write = 'mkdir "$GPUFLOW_OUTPUTS/m"; echo w >"$GPUFLOW_OUTPUTS/m/w"'
    out = ("--output", "m:directory", "--outputs-dir", tmp_path / "out", "--step", "train")
    assert run(*words, *out, *shell(write)).returncode == 0
    uri = (tmp_path / "out" / "m.uri").read_text()
    reader = (*words, "--step", "eval", "--input", f"{tmp_path}/in={uri}")
    done = run(*reader, *shell(f"cat {tmp_path}/in/w"))
    assert (done.returncode, done.stdout) == (0, "w\n"), done.stderr
    forge(uri, entry="m2")
    assert run(*reader, *shell("echo ran")).returncode == 78


# -- what is there already


def test_what_is_there_already_is_not_fetched_again(tmp_path: Path, kept: str) -> None:
    (tmp_path / "in").mkdir()
    bring("--input", f"{tmp_path}/in={kept}")
    inputs._PLACED_SOURCES.clear()
    shutil.rmtree(kept)  # nothing can be read there any more
    assert "is there already" in bring("--input", f"{tmp_path}/in={kept}")[-1]


@pytest.mark.parametrize("what", ["foreign", "changed", "a folder for a file", "a link", "a file for the folder"])
def test_what_somebody_else_put_there_is_neither_mixed_nor_removed(what: str, tmp_path: Path, kept: str) -> None:
    there = tmp_path / "in"
    if what == "a link":
        (tmp_path / "elsewhere").mkdir()
        there.symlink_to(tmp_path / "elsewhere")
    elif what == "a file for the folder":
        there.write_text("mine")
    else:
        there.mkdir()
        if what == "foreign":
            (there / "mine").write_text("mine")
        elif what == "changed":
            (there / "w").write_text("mine")
        else:
            (there / "w").mkdir()
    before = read(tmp_path / "in") if there.is_dir() else {}
    with pytest.raises(BadOption, match="cannot be placed"):
        bring("--input", f"{there}={kept}")
    assert (read(tmp_path / "in") if there.is_dir() else {}) == before
    assert not (tmp_path / "elsewhere").exists() or not os.listdir(tmp_path / "elsewhere")


def test_a_part_that_is_there_is_kept_and_the_rest_comes(tmp_path: Path, kept: str) -> None:
    (tmp_path / "in" / "d").mkdir(parents=True)
    (tmp_path / "in" / "d" / "x").write_bytes(b"x" * 3000)
    number = os.stat(tmp_path / "in" / "d" / "x").st_ino
    bring("--input", f"{tmp_path}/in={kept}")
    assert read(tmp_path / "in") == read(tmp_path / "made")
    assert os.stat(tmp_path / "in" / "d" / "x").st_ino == number


def test_an_end_in_the_middle_is_gone_on_from(tmp_path: Path) -> None:
    many: Tree = {f"f{number}": ("file", bytes([number]) * 5000, 0o644) for number in range(20)}
    uri = keep(make(many, tmp_path / "made"), Folder(str(tmp_path / "root")))

    class Breaking(Folder):
        streams, left, read_keys = 1, 12, list[str]()

        def chunks(self, key: str) -> Iterator[bytes]:
            self.read_keys.append(key)
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt  # as if it had been killed
            yield from super().chunks(key)

    words = parse(["--input", f"{not_linked(tmp_path / 'in')}={uri}"], {})
    with pytest.raises(KeyboardInterrupt):
        Inputs(parse_inputs(words), None, 1, Breaking, lambda _: None, lambda: True).bring()
    assert os.listdir(tmp_path / "in") == [".gpuflow-input"]
    (tmp_path / "in" / ".gpuflow-input" / "files" / "f3").write_bytes(b"half")
    again = Breaking(uri.partition("/0000")[0])
    again.left, again.read_keys = 100, []
    Inputs(parse_inputs(words), None, 1, lambda _: again, lambda _: None, lambda: True).bring()
    assert read(tmp_path / "in") == read(tmp_path / "made")
    assert sorted(key.rpartition("/")[2] for key in again.read_keys) == sorted(
        {"f3", *(f"f{number}" for number in range(20))} - set(_first_twelve())
    )


def _first_twelve() -> list[str]:
    names = sorted(f"f{number}" for number in range(20))[:12]
    return [name for name in names if name != "f3"]


def test_two_that_fill_one_place_take_turns(tmp_path: Path, kept: str) -> None:
    (tmp_path / "in").mkdir()
    fetched: list[str] = []

    class Slow(Folder):
        def chunks(self, key: str) -> Iterator[bytes]:
            fetched.append(key)
            time.sleep(0.2)
            yield from super().chunks(key)

    def work() -> None:
        words = parse_inputs(parse(["--input", f"{tmp_path}/in={kept}"], {}))
        Inputs(words, None, 60, Slow, lambda _: None, lambda: True).bring()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetched) == 3  # each file once
    assert read(tmp_path / "in") == read(tmp_path / "made")


def test_started_again_in_the_same_container_nothing_is_fetched_twice_and_changes_are_undone(
    tmp_path: Path, kept: str
) -> None:
    (tmp_path / "in").mkdir()
    command = (
        f"cd {tmp_path}/in; cat w d/x | md5sum; ls -A | tr '\\n' ' '; "
        f"echo broken >w; echo mine >cache; rm -rf {Path(kept) / 'd'}; [ -e {tmp_path}/once ] || "
        f"{{ touch {tmp_path}/once; exit 4; }}"
    )
    done = run("--repeat", "--failures", "1", "--input", f"{tmp_path}/in={kept}", *shell(command))
    assert done.returncode == 0, done.stderr
    sums = [line for line in done.stdout.splitlines() if "-" in line]
    whole = hashlib.md5(b"weights" + b"x" * 3000).hexdigest()
    assert done.stdout.count(whole) == 2, (sums, done.stderr)
    assert "cache d empty l w" in done.stdout


@pytest.mark.parametrize("does", ["index", "change", "remove"])
def test_what_a_program_left_beside_its_input_does_not_stop_the_next_attempt(
    does: str, tmp_path: Path, kept: str
) -> None:
    """On a volume that outlives the container. What it changed is not put right: that may be on purpose."""
    (tmp_path / "in").mkdir()
    words = ("--state", tmp_path / "state", "--run-id", "r", "--input", f"{tmp_path}/in={kept}")
    change = {"index": "", "change": "; echo other >w", "remove": "; rm w"}[does]
    first = run(*words, *shell(f"cd {tmp_path}/in; mkdir cache; touch cache/index{change}; exit 4"))
    assert first.returncode == 4, first.stderr
    again = run(*words, *shell(f"cd {tmp_path}/in; cat w; ls cache"))
    if does == "index":
        assert (again.returncode, again.stdout) == (0, "weightsindex\n"), again.stderr
        assert "'cache' beside it stays, from an attempt before" in again.stderr
    else:
        assert (again.returncode, again.stdout) == (78, "")
        assert "is in the way" in again.stderr


def test_what_lay_there_before_the_first_attempt_is_in_the_way_of_every_attempt(tmp_path: Path, kept: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "mine").write_text("x")
    words = ("--state", tmp_path / "state", "--run-id", "r", "--input", f"{tmp_path}/in={kept}")
    for _ in range(3):
        assert run(*words, *shell("echo ran")).returncode == 78
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["mine"]


# -- a disk of this machine


def test_on_a_mounted_claim_nothing_is_copied_where_a_link_can_stand(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "w").write_text("w")
    (tmp_path / "made" / "w").chmod(0o644)
    uri = keep(tmp_path / "made", Folder(str(tmp_path / "root")))
    said = bring("--input", f"{tmp_path}/in/m=file://{uri}")
    assert os.readlink(tmp_path / "in" / "m") == uri
    assert any("is a link to" in line for line in said)
    inputs._PLACED_SOURCES.clear()
    assert "there already" in bring("--input", f"{tmp_path}/in/m=file://{uri}")[-1]
    (Path(uri) / "w").write_text("x")
    inputs._PLACED_SOURCES.clear()
    with pytest.raises(BadOption):
        bring("--input", f"{tmp_path}/in/m=file://{uri}")


def test_what_a_link_would_not_show_is_copied_and_said(tmp_path: Path, kept: str) -> None:
    said = bring("--input", f"{tmp_path}/in={kept}")
    assert any("has not all of its links, empty folders and modes" in line for line in said)
    assert not (tmp_path / "in").is_symlink()


# -- data from outside


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return make(TREE, tmp_path / "outside")


def test_a_folder_from_outside_is_linked_or_copied_with_all_that_is_in_it(tmp_path: Path, outside: Path) -> None:
    bring("--input", f"{tmp_path}/linked={outside}/")
    assert os.readlink(tmp_path / "linked") == str(outside)
    bring("--input", f"{not_linked(tmp_path / 'copied')}={outside}")
    assert read(tmp_path / "copied") == read(outside)
    assert not (tmp_path / "copied").is_symlink()


def test_a_file_from_outside_says_that_it_is_one(tmp_path: Path, outside: Path) -> None:
    uri, digest = f"file://{outside}/w", hashlib.sha256(b"weights").hexdigest()
    with pytest.raises(BadOption, match="--input-type PATH=file"):
        bring("--input", f"{tmp_path}/w={uri}")
    typed = ("--input-type", f"{tmp_path}/w=file")
    (tmp_path / ".w.gpuflow-input").mkdir()  # a copy, please
    bring("--input", f"{tmp_path}/w={uri}", *typed, "--input-digest", f"{tmp_path}/w=sha256:{digest.upper()[:64]}")
    assert (tmp_path / "w").read_bytes() == b"weights"
    with pytest.raises(StorageError, match="there is no file at"):
        bring("--input", f"{tmp_path}/v={uri}2", "--input-type", f"{tmp_path}/v=file")
    with pytest.raises(StorageError, match="there is no directory"):
        bring("--input", f"{tmp_path}/v={uri}2")


@pytest.mark.parametrize("copied", [True, False])
def test_a_wrong_digest_from_outside_is_refused(copied: bool, tmp_path: Path, outside: Path) -> None:
    digest = artifact_files.digest_of_path(str(outside))
    there = tmp_path / "in"
    if copied:
        not_linked(there)
    bring("--input", f"{there}={outside}", "--input-digest", f"{there}=sha256:{digest}")
    inputs._PLACED_SOURCES.clear()
    assert "there already" in bring("--input", f"{there}={outside}", "--input-digest", f"{there}=sha256:{digest}")[-1]
    other = tmp_path / "in2"
    if copied:
        other.mkdir()
    (outside / "w").write_bytes(b"changed")
    with pytest.raises(BadOption, match="adds up to sha256:"):
        bring("--input", f"{other}={outside}", "--input-digest", f"{other}=sha256:{digest}")
    assert not other.is_symlink()
    assert "w" not in (os.listdir(other) if other.exists() else [])


def test_data_from_outside_that_is_there_is_compared_and_never_mixed(tmp_path: Path, outside: Path) -> None:
    there = tmp_path / "in"
    bring("--input", f"{not_linked(there)}={outside}")
    inputs._PLACED_SOURCES.clear()
    bring("--input", f"{there}={outside}")  # the same: fetched, compared, kept
    assert read(there) == read(outside)
    inputs._PLACED_SOURCES.clear()
    (outside / "w").write_bytes(b"changed")
    with pytest.raises(BadOption, match="'w' has other bytes"):
        bring("--input", f"{there}={outside}")
    assert (there / "w").read_bytes() == b"weights"


# -- notices and room


def test_told_to_stop_while_an_input_comes_it_is_an_interruption(tmp_path: Path, kept: str) -> None:
    os.rename(Path(kept).parent / "manifest.json", tmp_path / "aside")
    words = ("--state", tmp_path / "state", "--run-id", "r", "--storage-timeout", "60s")
    process = start(*words, "--input", f"{tmp_path}/in={kept}", *shell("echo ran"))
    eventually(lambda: list((tmp_path / "state").rglob("attempts/000001.json")))
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 75
    assert process.stderr is not None
    assert "told to stop before the command ran" in process.stderr.read()


def test_a_stop_in_the_middle_of_a_file_ends_it_there(tmp_path: Path, kept: str) -> None:
    words = parse(["--input", f"{tmp_path}/in={kept}"], {})
    (tmp_path / "in").mkdir()
    asked = iter([True] * 3 + [False] * 1000)
    with pytest.raises(TransferAbandoned):
        Inputs(parse_inputs(words), None, 1, open_store, lambda _: None, lambda: next(asked)).bring()
    assert os.listdir(tmp_path / "in") == [".gpuflow-input"]


def test_what_does_not_fit_is_refused_before_it_is_fetched(
    tmp_path: Path, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise local_files.NoRoom("it needs 9 bytes, and there is room for 1")

    monkeypatch.setattr(local_files, "_see_that_it_fits", full)
    (tmp_path / "in").mkdir()
    with pytest.raises(BadOption, match="give it a larger volume"):
        bring("--input", f"{tmp_path}/in={kept}")


def test_success_before_needs_no_inputs(tmp_path: Path, kept: str) -> None:
    words = ("--state", tmp_path / "state", "--run-id", "r", "--input", f"{tmp_path}/in={kept}")
    assert run(*words, *shell("true")).returncode == 0
    shutil.rmtree(tmp_path / "root")
    assert run(*words, *shell("true")).returncode == 0


def test_a_manifest_without_the_new_field_is_as_it_was() -> None:
    file = File(path="w", size=1, sha256="0" * 64, mode=0o644)
    old = Manifest(checkpoint="000001-a", entry="w", kind="directory", attempt=1, id="a", files=[file])
    assert "run" not in old.plain()


# -- found by hand


def test_an_empty_directory_is_placed_too(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    bring("--input", f"{tmp_path}/in={json.dumps([str(empty), None, str(empty)])}")
    assert sorted(os.listdir(tmp_path / "in")) == ["0", "2"]
    inputs._PLACED_SOURCES.clear()
    bring("--input", f"{tmp_path}/one={empty}")
    assert (tmp_path / "one").is_dir()


def test_a_place_that_cannot_be_made_is_refused_and_not_waited_for(kept: str) -> None:
    with pytest.raises(BadOption, match="cannot be placed"):
        bring("--input", f"/proc/foo={kept}")


def test_the_digest_that_is_printed_of_a_copy_is_accepted_for_an_artifact(tmp_path: Path, kept: str) -> None:
    printed = artifact_files.digest_of_path(str(tmp_path / "made"))
    bring("--input", f"{tmp_path}/in={kept}", "--input-digest", f"{tmp_path}/in=sha256:{printed}")


@pytest.mark.parametrize("part", ["", "/files/sub", "/files/sub/deeper", "/manifest.json"])
def test_a_part_of_an_artifact_is_no_input(part: str, tmp_path: Path, kept: str) -> None:
    with pytest.raises(BadOption, match="is a part of an artifact; name all of it"):
        bring("--input", f"{tmp_path}/in={kept.removesuffix('/files')}{part}")


@pytest.mark.parametrize("fan_in", [False, True])
def test_an_empty_directory_from_a_directory_that_is_the_store_is_one(fan_in: bool, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    uri = keep(tmp_path / "made", Folder(str(tmp_path / "root")))
    place = tmp_path / "in" / "0" if fan_in else tmp_path / "in"
    for _ in range(2):
        bring("--input", f'{tmp_path}/in=["{uri}"]' if fan_in else f"{tmp_path}/in={uri}")
        assert place.is_dir()
        assert not list(place.iterdir())
        inputs._PLACED_SOURCES.clear()
