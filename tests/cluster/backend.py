"""The Python environment that a private KFP stands on: what locks/kubeflow-backend.txt pins, made once in the cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..engines import build
from .machine import MachineError

LOCKS = Path(__file__).resolve().parents[2] / "locks"
FILES = ("build.txt", "kubeflow-backend.txt")
PYTHON = "3.11"
"""ML Metadata has no wheel for a later one."""


def environment() -> Path:
    """The folder of the environment; a changed lock gives another one."""
    digest = hashlib.sha256(b"\0".join((LOCKS / name).read_bytes() for name in FILES)).hexdigest()[:10]
    place = build.cache() / f"kubeflow-backend-{digest}"
    if not (place / ".ready").exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (place / ".ready").exists():
                _make(place)
    return place


def _make(place: Path) -> None:
    print(f"installing {FILES[-1]} into the cache (once)", flush=True)
    shutil.rmtree(place, ignore_errors=True)
    _call([_python(), "-m", "venv", str(place)])
    for name in FILES:
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        _call([str(place / "bin" / "python"), *install, "--no-build-isolation", "-r", str(LOCKS / name)])
    (place / ".ready").touch()


def _python() -> str:
    """An interpreter of the version that the lock covers."""
    if "{}.{}".format(*sys.version_info) == PYTHON:
        return os.path.realpath(sys.executable)
    if found := shutil.which(f"python{PYTHON}"):
        return found
    raise MachineError(f"a private KFP needs Python {PYTHON} for ML Metadata: no python{PYTHON} in PATH")


def _call(command: list[str]) -> None:
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode:
        raise MachineError(f"`{' '.join(command)}` failed:\n{done.stderr.strip()[-2000:]}")
