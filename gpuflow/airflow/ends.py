"""How one attempt of a task ended, once it is judged: what the next decision stands on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class End:
    """The end of one pod, or of one gang."""

    what: str
    """`pod train-3f9c`, as a sentence calls it."""
    outcome: str
    because: str
    interrupted: bool = False
    """Whether it costs an interruption, and no failure."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The outputs of one that succeeded."""
    last_words: str = ""
    """What its program said in the end, as the end of a sentence."""
    told: Mapping[str, Any] | None = None
    """What was seen of it, for the supervisor of the next one."""
    node: str | None = None
