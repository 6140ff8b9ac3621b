"""All cases that run under the settings that gpuflow asks for."""

from __future__ import annotations

from . import constructs, examples, forced, scenes
from .case import Case


def every_case() -> list[Case]:
    """The most telling first."""
    return [*scenes.all_scenes(), *examples.cases(), *constructs.cases(), *forced.cases()]
