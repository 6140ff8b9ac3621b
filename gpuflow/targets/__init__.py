"""What each engine gets: a package each, which loads without the engine's SDK; only compiling may need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuflow.core.errors import did_you_mean, fail
from gpuflow.engines import ENGINES, load_engine

if TYPE_CHECKING:
    from gpuflow.targets.target import Target


def load_target(name: str) -> Target:
    if name not in ENGINES:
        raise fail("GF302", f'"{name}" is not a target', hint=did_you_mean(name, ENGINES))
    target: Target = load_engine(name)
    return target
