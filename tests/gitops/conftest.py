"""A copy of this checkout as others get it: a Git repository with a tag, to install and take hooks from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

from gpuflow.core.version import __version__
from tests.cli.conftest import gpuflow
from tests.conftest import ROOT

__all__ = ["gpuflow"]

WHO = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}  # fmt: skip
"""Whoever runs the tests needs no name in Git."""


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; what it prints."""
    done = subprocess.run(
        ["git", "-C", str(folder), *words], env={**os.environ, **WHO}, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Git has or would add of this checkout, committed and tagged as a release."""
    copy = tmp_path_factory.mktemp("gpuflow")
    for name in git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        source = ROOT / name
        # Proofs and benchmarks are not needed to install it, and what was deleted is not there to copy.
        if name and not name.startswith(("tests/", "bench/")) and source.is_file():
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(source.stat().st_mode & 0o777)  # the hook's script is run
    git(copy, "init", "--quiet")
    git(copy, "add", "--all")
    git(copy, "commit", "--quiet", "--message", "release")
    git(copy, "tag", f"v{__version__}")
    return copy


TAKEN = "taken"
_CODE = "import os\nopen(os.path.join({folder!r}, 'taken'), 'a').write(__file__ + chr(10))\n"
HOSTILE_MODULES = (
    "venv.py", "json.py", "yaml.py", "sitecustomize.py", "usercustomize.py", "re.py", "pydantic.py", "hera.py",
    "setuptools.py", "setup.py", "ensurepip/__init__.py", "pip/__init__.py", "pip/__main__.py", "gpuflow/__init__.py",
    "gpuflow/cli/main.py", "pipelines/yaml.py", "pipelines/json.py",
)  # fmt: skip
HOSTILE_SETTINGS = {
    ".python-version": "no-such-python\n",
    "pip.conf": "[global]\nno-index = true\n",
    "setup.cfg": "[install]\nprefix = /nowhere\n",
    "pyproject.toml": "[build-system]\nrequires = ['no-such-package']\nbuild-backend = 'setup'\nbackend-path = ['.']\n",
}


def plant(folder: Path) -> None:
    """What a pull request may add to a repository so that it is run; whatever is run writes its name to `taken`."""
    for name in HOSTILE_MODULES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(_CODE.format(folder=str(folder)))
    for name, text in HOSTILE_SETTINGS.items():
        (folder / name).write_text(text)


UNREACHABLE = ("No matching distribution found", "Could not find a version", "Connection", "Network is unreachable")


def no_index(words: str) -> NoReturn:
    """An installation failed: skip when the package index is out of reach, unless CI is set; else fail."""
    if not os.environ.get("CI") and any(sign in words for sign in UNREACHABLE):
        pytest.skip(f"installing needs the package index: {words.strip().splitlines()[-1]}")
    pytest.fail(words, pytrace=False)
