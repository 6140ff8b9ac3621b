"""How much is worth working out. What would take longer gets a bound, which is as safe and says that it is one.

Work is counted, never timed: the same question gets the same answer on every machine.
"""

from dataclasses import dataclass, field

FLOW = 8_000_000
"""Arcs that one flow may look at: some seconds. Ten thousand steps with a handful of edges each stay below."""
QUESTION = 2_000_000
"""Arcs for all prices that one question about a cap tries; a flow that has begun is brought to its own end."""


@dataclass
class Work:
    """What one question has cost so far."""

    most: int = field(default_factory=lambda: QUESTION)
    spent: int = 0
    cut_short: bool = False
    """Something was given up: where bound and reach differ, more work might bring them together."""

    @property
    def is_used_up(self) -> bool:
        return self.spent > self.most
