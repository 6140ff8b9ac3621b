"""This program once more: the words that start gpuflow-run as another process, from its package or its one file."""

from __future__ import annotations

import os
import sys

_IN_PACKAGE = "import sys; sys.path[:] = {path!r}; from gpuflow.runtime.main import main; sys.exit(main())"


def command(*words: str) -> list[str]:
    """`gpuflow-run` with these words."""
    spec = sys.modules["gpuflow.runtime"].__spec__
    # Nothing of the image's Python but the standard library: it starts sooner, and no variable changes it.
    python = [sys.executable, "-E", "-S"]
    if spec is not None and not spec.has_location and spec.origin:
        return [*python, spec.origin, *words]
    return [*python, "-c", _IN_PACKAGE.format(path=[os.path.abspath(place) for place in sys.path]), *words]
