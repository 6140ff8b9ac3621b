"""The sequences that are played: picked by hand for the edges, drawn with a fixed seed for what nobody thought of."""

from __future__ import annotations

import random
from collections.abc import Iterator

from .contract import TAKEN_AWAY, Care, Sequence

EDGES: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    # name, failures, interruptions, what happens
    ("nothing-happens", 1, 1, ("exit:0",)),
    ("failures-just-suffice", 2, 1, ("exit:1", "exit:3", "exit:0")),
    ("failures-spent", 1, 3, ("exit:1", "exit:1")),
    ("interruptions-just-suffice", 0, 2, ("delete:143", "evict:143", "exit:0")),
    ("interruptions-spent", 3, 1, ("delete:143", "evict:143")),
    ("both-just-suffice", 2, 2, ("exit:1", "delete:143", "exit:1", "evict:143", "exit:0")),
    ("both-and-one-failure-more", 1, 2, ("delete:143", "exit:1", "evict:143", "exit:1")),
    ("both-and-one-interruption-more", 1, 2, ("evict:143", "exit:1", "delete:143", "evict:143")),
    ("sigterm-answered-with-0", 0, 2, ("delete:0", "evict:0", "exit:0")),
    ("sigterm-answered-with-0-too-often", 2, 1, ("delete:0", "delete:0")),
    ("sigterm-ignored", 1, 1, ("delete:never", "exit:0")),
    ("own-kill", 1, 1, ("kill", "exit:0")),
    ("own-kill-too-often", 1, 2, ("kill", "kill")),
    ("out-of-memory", 1, 1, ("oom", "exit:0")),
    ("out-of-memory-too-often", 1, 2, ("oom", "delete:143", "oom")),
    ("everything-killed", 1, 1, ("crash", "exit:0")),
    ("everything-killed-too-often", 2, 1, ("crash", "crash")),
    ("force-deleted", 0, 2, ("force:143", "force:143", "exit:0")),
    ("force-deleted-too-often", 2, 1, ("force:143", "force:143")),
    ("force-deleted-and-sigterm-ignored", 0, 1, ("force:never", "exit:0")),
    ("force-deleted-and-0", 1, 2, ("force:0", "exit:1", "force:0", "exit:0")),
    ("deleted-early", 0, 2, ("early:143", "early:0", "exit:0")),
    ("deleted-early-too-often", 1, 1, ("early:143", "early:143")),
    ("codes-of-the-supervisor", 3, 1, ("exit:79", "exit:75", "exit:78", "exit:0")),
)
LISTED: tuple[tuple[str, int, int, tuple[str, ...], tuple[int, ...], tuple[int, ...] | None], ...] = (
    # ... and the exit codes that are final, and those that alone are retried
    ("final-code", 3, 3, ("delete:143", "exit:1", "exit:2"), (2,), None),
    ("final-code-as-answer-to-sigterm", 1, 1, ("delete:2", "exit:0"), (2,), None),
    ("code-that-is-not-retryable", 3, 1, ("exit:9", "exit:1", "exit:3"), (), (1, 9)),
)
ALONE: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("alone-failures-just-suffice", 2, 0, ("exit:1", "exit:3", "exit:0")),
    ("alone-failures-spent", 1, 3, ("exit:1", "exit:1")),
    ("alone-interrupted-beyond-the-failures", 1, 2, ("delete:143", "evict:143", "delete:143", "exit:0")),
    ("alone-interruptions-eat-failures", 1, 2, ("evict:143", "exit:1")),
    ("alone-no-interruptions-allowed", 2, 0, ("evict:143", "exit:0")),
    ("alone-no-failures-allowed", 0, 2, ("delete:143", "exit:1")),
    ("alone-out-of-memory", 1, 1, ("oom", "exit:0")),
    ("alone-own-kill-too-often", 1, 1, ("kill", "kill")),
    ("alone-sigterm-ignored", 1, 1, ("delete:never", "exit:0")),
    ("alone-force-deleted", 1, 2, ("force:143", "exit:1", "exit:0")),
)
SEED = 2026
DRAWN_COUNTED, DRAWN_ALONE = 12, 6
OWN_ENDS = ("exit:1", "exit:1", "exit:3", "kill", "oom")
FAULTS = ("delete:143", "delete:0", "delete:3", "evict:143", "evict:0", "force:143", "force:0", "crash")
FAULTS_ALONE = ("delete:143", "evict:143", "force:143", "delete:3")


def _drawn(random_: random.Random, name: str, care: Care, faults: tuple[str, ...]) -> Sequence:
    failures, interruptions = random_.randint(0, 2), random_.randint(1, 3)
    length = random_.randint(2, failures + interruptions + 1)
    acts = tuple(random_.choice(OWN_ENDS if random_.random() < 0.4 else faults) for _ in range(length))
    final = (3,) if random_.random() < 0.3 else ()
    return Sequence(name, care, failures, interruptions, acts, final)


def _all() -> Iterator[Sequence]:
    for index, (name, failures, interruptions, acts) in enumerate(EDGES):
        yield Sequence(name, ("checkpoint", "state")[index % 2], failures, interruptions, acts)  # type: ignore[arg-type]  # one of two literals
    for name, failures, interruptions, acts, final, retryable in LISTED:
        yield Sequence(name, "state", failures, interruptions, acts, final, retryable)
        yield Sequence(f"alone-{name}", "none", failures, interruptions, acts, final, retryable)
    for name, failures, interruptions, acts in ALONE:
        yield Sequence(name, "none", failures, interruptions, acts)
    random_ = random.Random(SEED)
    for number in range(1, DRAWN_COUNTED + 1):
        yield _drawn(random_, f"drawn-{number}", random_.choice(("checkpoint", "state")), FAULTS)  # type: ignore[arg-type]  # one of two literals
    for number in range(1, DRAWN_ALONE + 1):
        yield _drawn(random_, f"alone-drawn-{number}", "none", FAULTS_ALONE)


FALLS_BACK = Sequence(
    "falls-back", "checkpoint", 0, 3, ("evict:143", "evict:143", "exit:0"), spot={"mode": "prefer", "fallback_after": 2}
)
GROWS = Sequence("grows", "state", 2, 1, ("oom", "oom", "exit:0"), more_memory={"factor": 2, "max": "300Mi"})
FALSE_GREEN = Sequence("alone-sigterm-answered-with-0", "none", 1, 1, ("delete:0",))
"""What only a supervisor can prevent: Argo takes the exit code for what it says."""
SEQUENCES = tuple(_all())
DISTURBED = tuple(
    sequence for sequence in SEQUENCES if any(act.partition(":")[0] in TAKEN_AWAY for act in sequence.acts)
)
"""Where it matters how much Argo sees of a pod's end."""
