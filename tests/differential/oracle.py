"""Programs that answer with an engine's own code, built once per version and source.

An oracle reads one case a line and answers one line each. It is built from the Go modules in `tests/engines`
into the cache of the engines, under a hash of its source, so that a changed oracle is never mistaken for an
old one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

ENGINES = Path(__file__).resolve().parents[1] / "engines"
MODULES = {
    "kubernetes": "k8s.io/kubernetes",
    "kueue": "sigs.k8s.io/kueue",
    "argo": "github.com/argoproj/argo-workflows/v4",
    "simulator": "sigs.k8s.io/kueue",
}
NICE = 10

Case = dict[str, Any]
Answer = dict[str, Any]


class OracleUnavailable(RuntimeError):
    """The engine's code cannot be asked here, in words for the person who wanted it."""


def version(engine: str) -> str:
    """The release of the engine that its module pins."""
    text = (ENGINES / engine / "go.mod").read_text()
    found = re.search(rf"^(?:require)?\s*{re.escape(MODULES[engine])} (v\S+)", text, re.MULTILINE)
    if not found:
        raise OracleUnavailable(f"tests/engines/{engine}/go.mod pins no version of {MODULES[engine]}")
    return found[1]


def program(engine: str) -> Path:
    """The engine's oracle, built when it is not there yet."""
    folder = _cache() / "engines" / f"{engine}-{version(engine)}"
    path = folder / f"oracle-{_fingerprint(engine)}"
    if path.exists():
        return path
    if not shutil.which("go"):
        raise OracleUnavailable(f"the {engine} oracle is not built, and building it needs Go: no `go` in PATH")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "oracle.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _build(engine, path)
    return path


def _cache() -> Path:
    return Path(os.environ.get("GPUFLOW_CACHE") or Path.home() / ".cache" / "gpuflow").resolve()


def _fingerprint(engine: str) -> str:
    digest = hashlib.sha256()
    folder = ENGINES / engine
    sources = [folder / "go.mod", folder / "go.sum", *(folder / "oracle").iterdir(), *(ENGINES / "lines").iterdir()]
    for path in sorted(sources):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _build(engine: str, path: Path) -> None:
    print(f"building the {engine} oracle ({version(engine)}); the first time takes minutes", file=sys.stderr)
    unfinished = path.with_suffix(f".{os.getpid()}")
    command = ["nice", "-n", str(NICE), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(unfinished), "./oracle"]
    done = subprocess.run(
        command, cwd=ENGINES / engine, env={**os.environ, "CGO_ENABLED": "0"}, capture_output=True, text=True
    )
    if done.returncode:
        raise OracleUnavailable(f"the {engine} oracle does not build:\n{done.stderr}")
    unfinished.rename(path)
    for old in path.parent.glob("oracle-*"):
        if old != path:
            old.unlink()


class Oracle:
    """A running oracle. Use it in a `with` statement, ask it as often as you like."""

    def __init__(self, engine: str, mode: str) -> None:
        self.name = f"{engine} {version(engine)} {mode}"
        self._process = subprocess.Popen(
            ["nice", "-n", str(NICE), str(program(engine)), mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the program: it stops when it has nothing more to read."""
        _pipe(self._process.stdin).close()
        self._process.wait(timeout=60)
        _pipe(self._process.stdout).close()

    def ask(self, cases: Sequence[Case]) -> list[Answer]:
        """The answers, in the order of the cases. `{"error": …}` is a case that the engine could not be asked."""
        writer = threading.Thread(target=self._write, args=(cases,))
        writer.start()
        lines = [self._read(case) for case in cases]
        writer.join()
        return [json.loads(line) for line in lines]

    def _write(self, cases: Iterable[Case]) -> None:
        pipe = _pipe(self._process.stdin)
        for case in cases:
            pipe.write(json.dumps(case).encode() + b"\n")
        pipe.flush()

    def _read(self, case: Case) -> bytes:
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise OracleUnavailable(f"{self.name} ended without an answer to {json.dumps(case)}")
        return line


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
