"""A Python file, run in a process of its own: with a time limit, without credentials, with one file as its answer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuflow.errors import EnvironmentFailure, Finding, GpuflowError, Where, fail

TIME_LIMIT = 180
"""Seconds that a file may take, its imports included."""
MOST_ANSWER = 64 * 1024 * 1024
KEPT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT", "LD_LIBRARY_PATH")
"""What of the environment a file sees. No credential, no kubeconfig, no home folder."""
UNSET = 1_000_003
"""Says that a limit is only Airflow's setting, and not the file's; `inside_airflow` knows it too."""


def answer_of(program: str, file: str, python: str, params: Mapping[str, str] | None = None) -> Any:
    """What one of the programs beside this module says about a file."""
    with tempfile.TemporaryDirectory(prefix="gpuflow-") as home:
        answer, log = Path(home) / "answer.json", Path(home) / "log"
        exe = os.path.abspath(python) if os.sep in python else shutil.which(python) or python
        words = [exe, str(Path(__file__).parent / f"{program}.py"), os.path.abspath(file), str(answer)]
        words.append(json.dumps(dict(params or {})))
        code = _run(words, home, log, file)
        if not answer.is_file():
            raise _broken(file, f"it ended with code {code} before its DAGs were known{_last_words(log)}")
        return _read(answer, file)


def _run(words: list[str], home: str, log: Path, file: str) -> int:
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= {
        "HOME": home,
        "TMPDIR": home,
        "AIRFLOW_HOME": home,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": str(UNSET),
        "AIRFLOW__CORE__MAX_ACTIVE_RUNS_PER_DAG": str(UNSET),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    folder = str(Path(file).resolve().parent)
    with log.open("wb") as stream:
        try:
            process = subprocess.Popen(
                words,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as refusal:
            hint = "--airflow-python names a Python that has Airflow"
            text = f"{words[0]} cannot be run: {refusal.strerror}"
            raise EnvironmentFailure(Finding("GF707", text, Where(file), hint)) from None
        try:
            return process.wait(TIME_LIMIT)
        except subprocess.TimeoutExpired:
            hint = "a DAG file should only describe; move work, waits and network calls into its tasks"
            text = f"{file} was stopped: it ran for more than {TIME_LIMIT} seconds"
            raise fail("GF708", text, where=Where(file), hint=hint) from None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it and whatever it has started in its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (OSError, AttributeError):
        process.kill()
    process.wait()


def _read(answer: Path, file: str) -> Any:
    if answer.stat().st_size > MOST_ANSWER:
        raise _broken(file, "it says too much")
    try:
        said = json.loads(answer.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise _broken(file, "what it says cannot be read") from None
    if not isinstance(said, dict):
        raise _broken(file, "what it says cannot be read")
    return said


def _broken(file: str, because: str) -> GpuflowError:
    return fail("GF708", f"{file} could not be read: {because}", where=Where(file), hint="run it by itself to see why")


def _last_words(log: Path) -> str:
    """The last line that it printed: data of a stranger's, cut short."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - 4096))
            lines = [each.strip() for each in stream.read().decode("utf-8", "replace").splitlines() if each.strip()]
    except OSError:
        return ""
    return f"; its last words: {lines[-1][:300]}" if lines else ""
