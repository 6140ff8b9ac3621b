"""Hold and wait: pods that take up quota while they wait, and gangs that keep it from each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpuflow.checker.quota.namespace import NamespacePolicy, StepAdmission, charge_of
from gpuflow.checker.report import LimitLine
from gpuflow.checker.wording import listed, where_of
from gpuflow.demands import Demand
from gpuflow.demands.model import summed
from gpuflow.demands.peaks import tree_of
from gpuflow.errors import Finding
from gpuflow.graph import peak
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.quantity import Quantity

MOST_UNITS: Final = 1_000_000
"""What is free of a line, up to which the deadlock of gangs is worked out; GPUs and pods stay far below."""


def waiting_counts_in_quota(
    demand: Demand, admissions: Sequence[StepAdmission], lines: Sequence[LimitLine]
) -> Iterator[Finding]:
    """A quota line that runs out while queued pods, which already count there, only wait.

    Reported for the first such line, and not where every queue admits at once or where not even one pod gets in.
    """
    queues = [scope for scope in lines if scope.kind == "ClusterQueue"]
    if queues and all(scope.verdict == "always" for scope in queues):
        return
    queued = {one.step.name: one for one in admissions if _queue_of(one) and one.ever.allowed}
    for scope in lines:
        waiting = [name for name in scope.witness if name in queued]
        if scope.kind != "ResourceQuota" or scope.verdict != "may-queue" or scope.resource.startswith("count/"):
            continue
        if scope.peak is None or scope.used is None:
            continue
        charges = [Quantity(queued[name].ever.usage[scope.resource]) for name in waiting]
        if not any(scope.used + charge <= scope.hard for charge in charges):
            continue
        names = ", ".join(sorted({_queue_of(queued[name]) or "" for name in waiting}))
        safe = f", or parallel: {scope.safe_parallelism}" if scope.safe_parallelism else ""
        yield Finding(
            "GF554",
            f"{listed(waiting)}: pods that wait in queue {names} already count in quota {scope.name}, which refuses "
            f"more of {scope.resource} while they wait",
            where_of(demand, waiting[0]),
            f"a quota of {scope.used + scope.peak} holds all that may wait{safe}; or let the queue alone count it",
            severity="note",
        )
        return


def _queue_of(one: StepAdmission) -> str | None:
    """The queue that the step's pod names."""
    labels: Mapping[str, str] = one.step.pod["metadata"].get("labels", {})
    return labels.get(QUEUE_LABEL)


def gangs_above_quota(
    demand: Demand, policy: NamespacePolicy, admissions: Sequence[StepAdmission]
) -> Iterator[Finding]:
    """Gangs of which every pod fits into a quota, and all of them together never."""
    for one in admissions:
        for _, quota in policy.quotas if one.step.pods > 1 and one.ever.allowed else ():
            for key, amount in sorted(charge_of(one, quota).items()):
                whole = amount * one.step.pods
                if whole > quota.hard[key]:
                    yield Finding(
                        "GF501",
                        f'step "{one.step.name}": a gang of {one.step.pods} pods asks for {whole} of {key}, and quota '
                        f"{quota.name} allows {quota.hard[key]} at most",
                        where_of(demand, one.step.name),
                        f"{quota.hard[key].milli // amount.milli} such pods fit; or have the quota raised",
                    )


def deadlocks(
    demand: Demand, policy: NamespacePolicy, admissions: Sequence[StepAdmission], runs: int
) -> Iterator[Finding]:
    """Gangs that can each hold a part of a quota line, so that none ever gets the rest. Reported for one line."""
    gangs = {one.step.name: one for one in admissions if one.step.pods > 1 and one.ever.allowed}
    if not gangs:
        return
    for _, quota in policy.quotas:
        charges = {name: charge_of(one, quota) for name, one in gangs.items()}
        for key in sorted({key for charge in charges.values() for key in charge if not key.startswith("count/")}):
            used = quota.used.get(key)
            if used is None:
                continue
            free = quota.hard[key] - used
            live = _live(demand, admissions, charges, key, runs)
            parts = [Part(charges[name][key], gangs[name].step.pods, copies) for name, copies in live.items()]
            if any(part.whole > quota.hard[key] for part in parts) or not may_block(parts, free):
                continue
            smallest = min(part.pod for part in parts)
            enough = sum((part.pod * (part.copies * (part.pods - 1)) for part in parts), smallest)
            yield Finding(
                "GF555",
                f"{listed(list(live), 'gang')}: at once they can each take a part of the {free} of {key} that "
                f"quota {quota.name} leaves, and wait for the rest for ever",
                where_of(demand, next(iter(live))),
                f"let one run at a time (needs, or parallel), or leave {enough} of {key} free for them",
                severity="warning",
            )
            return


class Part(NamedTuple):
    """So many gangs alike: what one pod weighs, pods of a gang, and how many such gangs are alive."""

    pod: Quantity
    pods: int
    copies: int

    @property
    def whole(self) -> Quantity:
        return self.pod * self.pods


def _live(
    demand: Demand,
    admissions: Sequence[StepAdmission],
    charges: Mapping[str, Mapping[str, Quantity]],
    key: str,
    runs: int,
) -> dict[str, int]:
    """The gangs that are alive together when they ask for most of the line, with their copies."""
    usages = {one.step.name: summed([(charges.get(one.step.name, {}), one.step.pods)]) for one in admissions}
    found = peak(tree_of(demand.graph, usages), key)
    return {name: copies * runs for name, copies in found.live.items()}


def may_block(parts: Sequence[Part], free: Quantity) -> bool:
    """Whether gangs can hold so much of what is free that no pod of any fits any more, while each still misses one.

    A subset sum over whole units; amounts that come in fractions or in bytes are not worked out.
    """
    room = free.value
    if sum(part.copies for part in parts) < 2 or not 0 <= room <= MOST_UNITS or any(p.pod.milli % 1000 for p in parts):
        return False
    smallest = min(part.pod.value for part in parts)
    if room < smallest:
        return False  # nothing can be held: they wait for others, not for each other
    reachable = 1
    for part in parts:
        weight = part.pod.value
        for _ in range(min(part.copies * (part.pods - 1), room // weight)):
            reachable |= reachable << weight
    full = (1 << (room + 1)) - (1 << (room - smallest + 1))
    return bool(reachable & full)
