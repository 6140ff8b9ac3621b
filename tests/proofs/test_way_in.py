"""`python -m proofs`: every name leads to a program that is there, with options that it knows; one way in for all."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proofs.__main__ import chosen, filled, run
from proofs.table import PROOFS, Command, Stage
from tests.conftest import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "proofs").glob("*.md")]


def proofs(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "proofs", *words], cwd=ROOT, capture_output=True, text=True)


def program_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


def commands(name: str) -> list[list[str]]:
    proof = PROOFS[name]
    stages = filled(proof.commands(name), proof.defaults(), [])
    return [shlex.split(command.words) for stage in stages for command in stage.commands]


@pytest.mark.parametrize("name", PROOFS)
def test_what_a_proof_starts_is_there_and_knows_its_options(name: str) -> None:
    for flag, module, *words in commands(name):
        assert flag == "-m"
        if module == "pytest":
            named = [word.partition("::")[0] for word in words if word.startswith("tests/")]
            assert named and [path for path in named if not (ROOT / path).exists()] == []
        else:
            text = program_of(module).read_text(encoding="utf-8")
            assert [word for word in words if word.startswith("--") and f'"{word}"' not in text] == []


@pytest.mark.parametrize("name", PROOFS)
def test_a_proof_has_a_page_that_speaks_of_it_and_environments_with_locks(name: str) -> None:
    page = ROOT / PROOFS[name].page
    assert re.search(rf"python -m proofs {name}\b", page.read_text(encoding="utf-8")), page
    for environment in PROOFS[name].environments():
        assert (ROOT / "locks" / f"{environment}.txt").exists()


def test_every_harness_has_a_name() -> None:
    found = {
        *(path.parent.name for path in (ROOT / "proofs").glob("*/__main__.py")),
        *(path.stem for path in (ROOT / "proofs").glob("[a-z]*.py")),
    }
    assert found - {"table"} <= {name.replace("-", "_") for name in PROOFS}


def test_pages_name_proofs_that_are_there() -> None:
    named = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"python -m proofs ([a-z][\w-]*)", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert {pair for pair in named if pair[1] not in PROOFS} == set()
    assert [page.name for page in PAGES if "make prove" in page.read_text(encoding="utf-8")] == []


def test_the_list_says_what_each_shows_needs_and_takes() -> None:
    done = proofs("--list")
    rows = [row.splitlines() for row in done.stdout.strip().split("\n\n")]
    assert [row[0].partition(":")[0] for row in rows] == list(PROOFS)
    assert all("needs: " in row[1] and "takes: " in row[1] for row in rows)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a proof: oracles, "),
        (["nope"], "there is no proof 'nope': oracles, "),
        (["airflow", "--count", "3"], "airflow: it has no --count"),
        (["links", "--count", "many"], "links: --count is a whole number, not 'many'"),
        (["gangs", "--only", "x"], "gangs: it runs several programs, and none of its options is '--only'"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(words: list[str], said: str) -> None:
    done = proofs(*words)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr


def test_the_rest_of_the_words_goes_to_the_program() -> None:
    proof = PROOFS["retries"]
    values, rest = chosen(proof, {"count": "5", "seed": None}, ["--only", "two words", "--again"])
    ((command,), _) = filled(proof.commands("retries"), values, rest)[0]
    assert shlex.split(command.words) == [
        *("-m", "proofs.retries", "--count", "5", "--seed", "1"),
        *("--only", "two words", "--again"),
    ]


def exits(status: int, said: str = "") -> Command:
    return Command("core", shlex.join(["-c", f"print({said!r}, flush=True); raise SystemExit({status})"]))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with an environment in which commands can run."""
    (tmp_path / ".venvs" / "core" / "bin").mkdir(parents=True)
    (tmp_path / ".venvs" / "core" / "bin" / "python").symlink_to(sys.executable)
    return tmp_path


@pytest.mark.parametrize(("to_the_end", "said"), [(False, ["one", "two"]), (True, ["one", "two", "three"])])
def test_the_first_failure_is_the_exit_status(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: Path, to_the_end: bool, said: list[str]
) -> None:
    monkeypatch.setattr("proofs.__main__.ROOT", home)
    stages = [Stage((exits(0, "one"),)), Stage((exits(0, "two"), exits(7), exits(0))), Stage((exits(3, "three"),))]
    assert run(stages, 2, to_the_end) == 7
    assert [line for line in capfd.readouterr().out.splitlines() if line] == said


PROOF = """
import signal, sys
from pathlib import Path
from proofs import __main__ as proofs
from proofs.table import Command, Stage
proofs.ROOT = Path(sys.argv[1])
signal.signal(signal.SIGTERM, proofs.stop)
proofs.run([Stage((Command("core", "waits.py"),) * int(sys.argv[2]))], 2, False)
"""
WAITS = "import time\npipe = open('pipe', 'wb', buffering=0)\npipe.write(b'x')\ntime.sleep(600)\n"


@pytest.mark.parametrize(("commands", "at_once"), [(1, 1), (5, 2)])
def test_what_was_started_ends_with_the_proof(home: Path, commands: int, at_once: int) -> None:
    os.mkfifo(home / "pipe")
    (home / "waits.py").write_text(WAITS)
    words = [sys.executable, "-c", PROOF, str(home), str(commands)]
    with subprocess.Popen(words, cwd=ROOT) as proof, open(home / "pipe", "rb", buffering=0) as pipe:
        started = b"".join(pipe.read(1) for _ in range(at_once))
        proof.send_signal(signal.SIGTERM)
        rest = pipe.read()  # ends when nobody holds the other side any more
    assert (started, rest, proof.returncode) == (b"x" * at_once, b"", 143)
