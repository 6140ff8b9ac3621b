"""What is installed is what was locked, and nothing sends anybody to a package that is not ours."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

LOCKS = sorted((ROOT / "locks").glob("*.txt"))
ENTRY = re.compile(
    r"^(?P<name>[a-z0-9.-]+)==(?P<version>[^\s;\\]+)(?P<marker> ; [^\\\n]+)?(?P<hashes>(?: \\\n    --hash=\S+)*)\n",
    re.MULTILINE,
)
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ENGINES = ("argo", "airflow", "kubeflow")


def shipped() -> list[Path]:
    """Every text file of the repository but the tests, the proofs' programs and what was measured."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = [name for name in done.stdout.decode().split("\0") if name and not name.startswith(("tests/", "bench/"))]
    names = [name for name in names if not name.startswith("proofs/") or name.endswith(".md")]
    return [ROOT / name for name in names if (ROOT / name).is_file() and not name.endswith(".png")]


def versions(lock: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for entry in ENTRY.finditer(lock.read_text(encoding="utf-8")):
        found.setdefault(entry["name"], set()).add(entry["version"])
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# The name is not ours to vouch for.

BARE_NAME = re.compile(
    r"""(?:pip3?|pipx|uv|poetry|conda|mamba)\S*\s+(?:pip\s+)?(?:install|add|run)\b[^\n|;&]*?"""
    r"""(?<![\w./-])gpuflow(?![\w/.-])(?!\[[^\]]*\]\s*@)(?!\s*@)"""
)


@pytest.mark.parametrize(
    ("line", "is_bare"),
    [
        ("pip install gpuflow", True),
        ('python -m pip install "gpuflow[argo]" pre-commit', True),
        ("RUN pip install --no-cache gpuflow==0.1.0", True),
        ("uv pip install gpuflow", True),
        ('python -m pip install "gpuflow[argo] @ git+URL@COMMIT"', False),
        ("pip install /tmp/gpuflow-*.whl", False),
        ("pip install --no-deps --no-build-isolation ./gpuflow", False),
        ("pip install --require-hashes -r gpuflow/locks/build.txt", False),
    ],
)
def test_an_install_line_with_the_bare_name_is_recognized(line: str, is_bare: bool) -> None:
    assert bool(BARE_NAME.search(line)) is is_bare


def test_no_shipped_text_installs_gpuflow_by_its_bare_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line[0]}"
        for path in shipped()
        for line in BARE_NAME.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


# The locks.


def test_every_environment_has_a_lock_and_every_lock_an_environment() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(r"^ENVIRONMENTS := (.*)$", text, re.MULTILINE)
    assert found is not None
    assert {path.stem for path in LOCKS} == {"build", *found[1].split(), *(f"install-{name}" for name in ENGINES)}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_has_a_hash_for_every_package_and_no_address(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    rest = ENTRY.sub("", text)
    assert [line for line in rest.splitlines() if not line.startswith("#")] == []
    for entry in ENTRY.finditer(text):
        hashes = re.findall(r"--hash=(\S+)", entry["hashes"])
        assert hashes, f"{entry['name']} has no hash"
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in hashes)
    assert "://" not in text and "--index" not in text and "--find-links" not in text


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_has_the_build_tool_that_the_project_names(lock: Path) -> None:
    (required,) = PROJECT["build-system"]["requires"]
    if lock.stem != "frameworks":  # its own packages say which
        assert versions(lock)["setuptools"] == {required.removeprefix("setuptools==")}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_users_install_is_what_was_tested_and_complete(engine: str) -> None:
    tested, installed = (versions(ROOT / "locks" / f"{name}.txt") for name in (engine, f"install-{engine}"))
    assert {name: found for name, found in installed.items() if tested.get(name) != found} == {}
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"][engine]]
    names = {normal(re.split(r"[<>=!~\[; ]", line)[0]) for line in asked}
    assert names <= set(installed)


def test_pip_takes_nothing_with_another_hash(tmp_path: Path) -> None:
    """pip itself, offline: the file is at hand and is not the one."""
    wheel = tmp_path / "wheels" / "six-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"not what was locked")
    (tmp_path / "lock.txt").write_text(f"six==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    offline = ("--no-index", "--find-links", str(wheel.parent), "--target", str(tmp_path / "out"))
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", *offline, "--require-hashes", "-r", "lock.txt"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("PIP_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_make_the_action_and_the_hooks_install_from_the_locks() -> None:
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "$(PIP_INSTALL) --require-hashes --no-build-isolation --no-deps -r locks/$*.txt" in make
    assert "$(PIP_INSTALL) --no-deps --no-build-isolation -e ." in make
    action = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert '--require-hashes --no-build-isolation --no-deps -r "$ACTION_PATH/locks/install-$TARGET.txt"' in action
    assert '--no-deps --no-build-isolation "$ACTION_PATH"' in action
    script = (ROOT / "tools" / "hook").read_text(encoding="utf-8")
    assert '--require-hashes --no-build-isolation --no-deps -r "locks/install-$engine.txt"' in script
    assert "--no-deps --no-build-isolation ." in script
    for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")):
        assert hook["entry"].startswith("tools/hook ") and "--no-allow-python" in hook["entry"]


# Workflows.


def workflows() -> list[tuple[str, str]]:
    guides = [path for path in shipped() if path.suffix == ".md"]
    blocks = [
        (f"{path.name}", block)
        for path in guides
        for block in re.findall(r"^```yaml[^\n]*\n(.*?)^```$", path.read_text(encoding="utf-8"), re.M | re.S)
        if "uses:" in block
    ]
    return [("ci.yaml", (ROOT / "gpuflow" / "templates" / "ci.yaml").read_text(encoding="utf-8")), *blocks]


@pytest.mark.parametrize(("name", "text"), workflows(), ids=[name for name, _ in workflows()])
def test_a_workflow_pins_actions_by_commit_and_has_few_rights(name: str, text: str) -> None:
    for line in re.findall(r"uses: (.+)", text):
        if line != "./.gpuflow":  # the reader's own copy, checked out at a commit that only they know
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
    workflow = yaml.safe_load(text)
    granted = [workflow["permissions"], *(job.get("permissions", {}) for job in workflow["jobs"].values())]
    allowed = {("contents", "read"), ("security-events", "write"), ("pull-requests", "write")}
    assert all(set(each.items()) <= allowed for each in granted)
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
            for call in re.findall(r"\bpython\S* .*", step.get("run", "")):
                assert " -I " in call, call


# The release.


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_source_archive_has_the_same_bytes_whenever_it_was_built(release: ModuleType, tmp_path: Path) -> None:
    made = []
    for time, names in ((1_000_000_000, ("b", "a")), (1_700_000_000, ("a", "b"))):
        path = tmp_path / f"{time}.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            for name in names:
                (tmp_path / name).write_text(f"{name}\n")
                os.utime(tmp_path / name, (time, time))
                tar.add(tmp_path / name, arcname=f"gpuflow-1/{name}")
        made.append(release.repacked(path, 1_234_567_890))
    assert made[0] == made[1]
    (tmp_path / "new.tar.gz").write_bytes(made[0])
    with tarfile.open(tmp_path / "new.tar.gz") as tar:
        assert [(entry.name, entry.mtime, entry.uid) for entry in tar] == [
            ("gpuflow-1/a", 1_234_567_890, 0),
            ("gpuflow-1/b", 1_234_567_890, 0),
        ]


def test_the_list_of_packages_is_that_of_the_locks(release: ModuleType) -> None:
    listed = release.packages("1.0", "0" * 40)
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.5")
    found = {(each["name"], each["version"]) for each in listed["components"]}
    locks = [versions(ROOT / "locks" / f"install-{engine}.txt") for engine in ENGINES]
    assert found == {(name, version) for lock in locks for name, numbers in lock.items() for version in numbers}
    assert len({each["bom-ref"] for each in listed["components"]}) == len(listed["components"])
    assert json.dumps(listed) == json.dumps(release.packages("1.0", "0" * 40))


ANSWERS = {
    "no service": (
        "echo 'ConnectionError: https://example.com/ is down' >&2; exit 1",
        "NOT audited: ConnectionError",
        0,
    ),
    "nothing known": ({"name": "a", "skip_reason": "not found"}, "NOT audited: none of its 1 packages", 0),
    "sound": ({"name": "a", "version": "1", "vulns": []}, "1 packages audited, 0 known", 0),
    "vulnerable": ({"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}, "a 1: CVE-1", 1),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_audit_says_what_it_found_and_when_there_was_none(
    release: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    answer, words, vulnerable = ANSWERS[name]
    (tmp_path / "answer").write_text(json.dumps({"dependencies": [answer]}))
    find = 'while [ "$1" != --output ]; do shift; done; '
    program = tmp_path / "python"
    program.write_text(
        "#!/bin/sh\n" + (answer if isinstance(answer, str) else f'{find}cp {tmp_path}/answer "$2"') + "\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    found, text = release.audited()
    assert found == bool(vulnerable)
    assert text.decode().count(words) == len(ENGINES)
    assert "://" not in text.decode()


def wheel_and_archive(change: Callable[[dict[str, bytes]], None] = lambda files: None) -> dict[str, bytes]:
    """A small release, with one thing changed in the wheel before its RECORD is written."""
    text = (
        b"Metadata-Version: 2.4\nName: gpuflow\nVersion: 1.0\nSummary: s\nLicense-Expression: Apache-2.0\n"
        b"License-File: LICENSE\nRequires-Python: >=3.11\nDescription-Content-Type: text/markdown\n\n# gpuflow\n"
    )
    info = "gpuflow-1.0.dist-info"
    inside = {
        "gpuflow/cli/main.py": b"", f"{info}/METADATA": text, f"{info}/licenses/LICENSE": b"Apache",
        f"{info}/entry_points.txt": b"[console_scripts]\ngpuflow = gpuflow.cli.main:main\n",
    }  # fmt: skip
    change(inside)
    rows = []
    for name, content in inside.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(content)}")
    if "changed.py" in inside:
        inside["changed.py"] = b"other"
    wheel, archive = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as made:
        for name, content in {**inside, f"{info}/RECORD": "\n".join(rows).encode()}.items():
            made.writestr(name, content)
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        entry = tarfile.TarInfo("gpuflow-1.0/PKG-INFO")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    return {"gpuflow-1.0-py3-none-any.whl": wheel.getvalue(), "gpuflow-1.0.tar.gz": archive.getvalue()}


METADATA = "gpuflow-1.0.dist-info/METADATA"
UNSOUND: dict[str, tuple[Callable[[dict[str, bytes]], None], str]] = {
    "version": (
        lambda files: files.update({METADATA: files[METADATA].replace(b"Version: 1.0", b"Version: one")}),
        "'one' is invalid",
    ),
    "license": (
        lambda files: files.pop("gpuflow-1.0.dist-info/licenses/LICENSE") and None,
        "LICENSE is not in",
    ),
    "entry point": (lambda files: files.pop("gpuflow/cli/main.py") and None, "names gpuflow.cli.main"),
    "record": (lambda files: files.update({"changed.py": b"one"}), "RECORD does not have changed.py"),
    "difference": (lambda files: files.update({METADATA: files[METADATA] + b"more"}), "different metadata"),
}


def test_metadata_that_an_index_takes_is_sound(release: ModuleType) -> None:
    assert release.metadata_problems(wheel_and_archive()) == []


@pytest.mark.parametrize("how", UNSOUND)
def test_metadata_that_is_not_sound_is_named(release: ModuleType, how: str) -> None:
    change, words = UNSOUND[how]
    assert any(words in problem for problem in release.metadata_problems(wheel_and_archive(change)))


def test_a_tag_needs_its_version_a_date_in_the_changelog_and_a_clean_tree(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    for name in ("NAME", "EMAIL"):
        for who in ("AUTHOR", "COMMITTER"):
            monkeypatch.setenv(f"GIT_{who}_{name}", "a@example.com")
    (tmp_path / "gpuflow" / "core").mkdir(parents=True)
    (tmp_path / "gpuflow" / "core" / "version.py").write_text('__version__ = "1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("## 1.0 (unreleased)\n")
    release.git("init", "--quiet")

    def commit() -> str:
        release.git("add", "--all")
        release.git("commit", "--quiet", "--message", "x")
        return str(release.git("rev-parse", "HEAD"))

    assert release.untaggable("v1.0", commit()) == ["CHANGELOG.md has no date for 1.0"]
    (tmp_path / "CHANGELOG.md").write_text("## 1.0 (2026-11-16)\n")
    assert release.untaggable("v1.0", commit()) == []
    assert "v2.0 is not v1.0" in release.untaggable("v2.0", "HEAD")[0]
    (tmp_path / "new").write_text("")
    assert release.untaggable("v1.0", "HEAD") == ["the working tree has changes that are not committed"]
    (tmp_path / "new").unlink()
    release.git("tag", "v1.0")
    assert release.untaggable("v1.0", "HEAD") == ["v1.0 exists already"]
    # Asked for a tag that cannot be made, it builds nothing.
    monkeypatch.setattr(release, "built", lambda *_: pytest.fail("it was built"))
    assert release.main("v1.0") == 1
