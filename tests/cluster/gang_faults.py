"""Faults for a gang that runs, one after the other: what each must cost, and that it goes on.

Its ranks wait until they are told to end. Signals reach the program of one rank from outside of its container, so that
nothing of ours is between: USR1 is an exit with 1, as after an error of NCCL, USR2 eats all memory, HUP is the end.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .faults import Faults
from .gang_runs import GangRun
from .gangs import condition, gang
from .kube import Kube
from .queues import LABEL
from .waiting import until

QUOTA = {"cpu": "100m", "memory": "1Gi"}
"""Room for one gang, and not for another one beside it."""
SCRIPT = """\
trap 'exit 1' USR1
trap 'python3 -c "x = bytes(1) * (1 << 30)"; exit $?' USR2
trap 'ended=yes' HUP
echo "rank $GPUFLOW_RANK of $GPUFLOW_WORLD_SIZE, attempt $GPUFLOW_ATTEMPT after $GPUFLOW_INTERRUPTIONS: $WORD"
while [ -z "$ended" ]; do sleep 0.3; done
printf '%s' "$WORD" > "$GPUFLOW_OUTPUTS/said"
"""


Launchers = Callable[[], str]
"""The name of the pod that looks after a gang now; empty where there is none."""


@dataclass
class Fault:
    """One way to hurt a gang, and the count that it raises: failures, interruptions, or none."""

    name: str
    inject: Callable[[GangRun, Faults, dict[int, str], random.Random], None]
    costs: str | None
    others: bool = False
    """Whether the attempt goes on with other pods."""


def _some(ranks: dict[int, str], chance: random.Random) -> str:
    return ranks[chance.choice(sorted(ranks))]


def _told(which: int) -> Callable[[GangRun, Faults, dict[int, str], random.Random], None]:
    def inject(run: GangRun, _: Faults, ranks: dict[int, str], chance: random.Random) -> None:
        tell(run.kube, _some(ranks, chance), which)

    return inject


def _evict_before_errors(run: GangRun, faults: Faults, ranks: dict[int, str], chance: random.Random) -> None:
    """One is taken away, and the others die of it, before anybody has looked."""
    gone, *others = chance.sample(sorted(ranks), 3)
    found = [pid for other in others for pid in programs(run.kube, ranks[other])]
    faults.evict(ranks[gone])
    for pid in found:
        with contextlib.suppress(ProcessLookupError):  # the supervisors may have been faster
            os.kill(pid, signal.SIGUSR1)


def losing(launcher: Launchers) -> Fault:
    """The pod that looks after the gang goes at once, and another one finds the gang again."""

    def inject(_: GangRun, faults: Faults, __: dict[int, str], ___: random.Random) -> None:
        before = launcher()
        faults.force_delete(before)
        until("another launcher", lambda: launcher() not in ("", before), timeout=180)

    return Fault("the launcher gone at once", inject, None)


def preempting(image: str, urgent: dict[str, str]) -> Fault:
    """Kueue gives the quota to a gang with a higher priority, and back when that one is done."""

    def inject(run: GangRun, _: Faults, __: dict[int, str], chance: random.Random) -> None:
        name = f"urgent-{chance.randrange(10**8)}"
        small = {"cpu": "20m", "memory": "16Mi"}
        run.kube.create(gang(name, 4, image, ["sleep", "3"], labels={**LABEL, **urgent}, resources=small))
        run.kube.await_object("jobset", name, "completed", lambda item: bool(condition(item, "Completed")), 180)
        run.kube("delete", "jobset", name)

    return Fault("Kueue preempts it and gives back", inject, None, others=True)


def _lose_node(run: GangRun, faults: Faults, ranks: dict[int, str], _: random.Random) -> None:
    """The machine goes without a word, and the cloud removes its Node; then one of the same name comes."""
    faults.lose_node(remove=True)
    until("the ranks to be collected", lambda: not set(ranks.values()) & set(run.there()), timeout=240)
    faults.return_node()


ANYWHERE = [
    Fault("one rank evicted", lambda _, faults, ranks, chance: faults.evict(_some(ranks, chance)), "interruptions"),
    Fault("rank 0 evicted", lambda _, faults, ranks, __: faults.evict(ranks[0]), "interruptions"),
    Fault("one rank deleted", lambda _, faults, ranks, chance: faults.delete(_some(ranks, chance)), "interruptions"),
    Fault(
        "one rank gone at once",
        lambda _, faults, ranks, chance: faults.force_delete(_some(ranks, chance)),
        "interruptions",
    ),
    Fault("rank 0 gone at once", lambda _, faults, ranks, __: faults.force_delete(ranks[0]), "interruptions"),
    Fault("one rank evicted, two others exit with 1", _evict_before_errors, "interruptions"),
    Fault("one rank exits with 1", _told(signal.SIGUSR1), "failures"),
    Fault("one rank out of memory", _told(signal.SIGUSR2), "failures"),
    Fault("the node lost, another one comes", _lose_node, "interruptions"),
]


def play(run: GangRun, faults: Faults, drawn: list[Fault], chance: random.Random) -> Iterator[str]:
    """Inject them one after the other; a line for each, AssertionError where one did not cost what it must."""
    counted = {"failures": 0, "interruptions": 0}
    attempt = 1
    for fault in drawn:
        ranks = run.all_run(attempt)
        fault.inject(run, faults, ranks, chance)
        if fault.costs is not None:
            counted[fault.costs] += 1
            attempt += 1
        again = run.all_run(attempt)
        assert (again != ranks) == (fault.costs is not None or fault.others), f"{fault.name}: {ranks}, now {again}"
        wanted = (str(attempt), str(counted["failures"]), str(counted["interruptions"]))
        seen = run.counts()
        assert seen == wanted, f"{fault.name}: attempt, failures and interruptions are {seen}, not {wanted}"
        yield f"{fault.name}: attempt {wanted[0]}, {wanted[1]} failures, {wanted[2]} interruptions"


def finish(run: GangRun, attempt: int) -> None:
    """Let every rank end as it should."""
    for name in run.all_run(attempt).values():
        tell(run.kube, name, signal.SIGHUP)


def tell(kube: Kube, pod: str, number: int) -> None:
    """A signal to the program of a rank."""
    for pid in programs(kube, pod):
        os.kill(pid, number)


def programs(kube: Kube, pod: str) -> list[int]:
    """The process of a rank's program, on this machine."""
    found: dict[str, Any] | None = kube.get("pod", pod)
    assert found is not None, f"{pod} is gone"
    uid: str = found["metadata"]["uid"]
    return until(f"the program of {pod}", lambda: _programs(uid), timeout=30)


def _programs(uid: str) -> list[int]:
    """The shell that runs the script in a pod: the one that the supervisor has started."""
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            group = (place / "cgroup").read_text().replace("_", "-")
            words = (place / "cmdline").read_bytes().split(b"\0")
            parent = (place / "stat").read_text().rpartition(")")[2].split()[1]
            supervisor = Path("/proc", parent, "cmdline").read_bytes()
        except OSError:
            continue
        if uid in group and words[0].endswith(b"sh") and b"gpuflow-run" in supervisor:
            found.append(int(place.name))
    return found
