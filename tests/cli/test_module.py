"""`python -m gpuflow`, for those whose PATH has no `gpuflow`.

Tests gpuflow/core/version.py.
"""

from __future__ import annotations

import subprocess
import sys

from gpuflow.core.version import __version__


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "gpuflow", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"gpuflow {__version__}\n"), done.stderr
    wrong = subprocess.run([sys.executable, "-m", "gpuflow", "nothing"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "GF902" in wrong.stderr
