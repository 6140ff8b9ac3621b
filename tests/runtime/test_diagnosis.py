"""Why a program failed: memory by the kernel's count, the rest by its exit code and last words."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuflow.runtime.base.outcomes import FINAL, INTERRUPTED, OUT_OF_MEMORY, RETRYABLE
from gpuflow.runtime.supervise.diagnosis import diagnose
from tests.runtime.harness import environment, python, words

IMPORT = "Traceback (most recent call last):\n  File \"t.py\", line 1\nModuleNotFoundError: No module named 'apex'\n"
DRIVER = "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory\n"


@pytest.mark.parametrize(
    ("code", "last_words", "kills", "outcome"),
    [
        (137, "", 1, OUT_OF_MEMORY),
        (1, "a data loader worker was killed", 2, OUT_OF_MEMORY),
        (137, "", 0, RETRYABLE),
        (143, "", 0, INTERRUPTED),
        (1, "", 0, RETRYABLE),
        (75, "", 0, RETRYABLE),
        (1, IMPORT, 0, FINAL),
        (2, IMPORT, 0, RETRYABLE),
        (1, IMPORT + "and then it went on\n", 0, RETRYABLE),
        (1, DRIVER, 0, RETRYABLE),
        (127, "sh: 1: trian: not found\n", 0, FINAL),
        (126, "sh: 1: ./train: Exec format error\n", 0, FINAL),
        (126, "entry.sh: line 3: ./train: Permission denied\n", 0, FINAL),
        (1, "open: Permission denied\n", 0, RETRYABLE),
        (1, "RuntimeError: CUDA error: uncorrectable ECC error encountered\n", 0, INTERRUPTED),
        (1, "NVRM: Xid (PCI:0000:3b:00): 13, Graphics Exception\n", 0, RETRYABLE),
    ],
)
def test_a_failure_gets_its_outcome(code: int, last_words: str, kills: int, outcome: str) -> None:
    assert diagnose(code, last_words, kills).outcome == outcome


def test_an_exit_code_the_step_calls_final_beats_every_guess() -> None:
    assert diagnose(3, "NCCL error", 0, final_exit_codes=(3,)).outcome == FINAL


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A memory group of 80 MB, as a container's limit makes one."""
    top = Path("/sys/fs/cgroup/memory")
    version_1 = (top / "memory.limit_in_bytes").exists()
    group = (top if version_1 else Path("/sys/fs/cgroup")) / f"gpuflow-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if version_1 else "memory.max")).write_text(str(80 << 20))
    except OSError as refusal:
        pytest.skip(f"no memory group can be made here: {refusal}")
    yield group
    group.rmdir()


def test_a_program_over_its_memory_limit_is_out_of_memory(small_memory: Path) -> None:
    inside = words(*python("x = bytearray(400 << 20); x[::4096] = b'x' * len(x[::4096])"))
    join = f'echo $$ >{small_memory}/cgroup.procs && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", join, "sh", *inside], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 137, done.stderr
    assert "out of memory: exit code 137: it was over its memory limit" in done.stderr
