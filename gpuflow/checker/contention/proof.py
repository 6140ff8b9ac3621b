"""Whether there is always room for a pod group, whatever its competitors take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuflow.checker.contention.bins import Amounts, Bin, Question, refusing_resources
from gpuflow.checker.contention.concurrency import Competitors, Concurrency, PendingRequest, PendingRequests
from gpuflow.checker.report import Verdict
from gpuflow.core.work_budget import TOO_LARGE, TooLarge, is_half_used


@dataclass(frozen=True, slots=True)
class Contention:
    """One pod of a group, its bins, and all pods that may be in them, those of its own group included."""

    steps: tuple[str, ...]
    asked: Amounts
    bins: Sequence[Bin]
    competitors: Competitors
    count: str
    """The key under which every pod counts one."""
    ceilings: Mapping[str, int] = field(default_factory=dict)
    """The most of a key that is ever alive in the bins, whatever the pipeline asks for: what a queue lets through."""
    pending: PendingRequests | None = None
    """Pending pods or workloads of others that may take places in the bins first."""
    avoided: int = 0
    """How many of the bins a later attempt keeps away from, because an earlier one failed there."""
    closed: int = 0
    """How many of the bins pods that keep apart from it may close, whichever those are."""
    reaches_outside: bool = False
    """A competitor may lie in a bin with a part of it only: the rest of it is quota that this request cannot have."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether there is always room."""

    verdict: Verdict
    resources: tuple[str, ...] = ()
    """Through which it may be refused; empty when the bins as they are have no room for it."""
    because: str | None = None
    """Why it is not known."""
    pending: tuple[PendingRequest, ...] = ()
    """Pending pods or workloads of others that may take its place first; without them there would always be room."""
    avoided: int = 0
    """How many bins a later attempt keeps away from, where with them there would always be room."""
    apart: tuple[str, ...] = ()
    """The labels of the domains that pods which keep apart may all close, where else there would always be room."""


def decide(contention: Contention, concurrency: Concurrency, runs: int = 1) -> Decision:
    """Decide with tighter and tighter bounds on what else runs: everything at once, the peak, and the
    peak of the steps that may run at the same time as this pod group."""
    last = Decision("may-queue")
    for competitors, bounds, because, reached in _rounds(contention, concurrency, runs):
        try:
            refused = refusing_resources(_question(contention, competitors, bounds))
        except TooLarge as reason:
            return Decision("unknown", tuple(contention.asked), str(reason))
        if refused is None:
            return Decision("always")
        if not refused:
            return Decision("may-queue")
        # What is certainly reached may be enough to be refused, whatever the bound is.
        certain = because is None or (reached is not None and _is_refused(_question(contention, competitors, reached)))
        last = Decision("may-queue", refused) if certain else Decision("unknown", refused, because)
    return last


def _is_refused(question: Question) -> bool:
    try:
        return bool(refusing_resources(question))
    except TooLarge:
        return False


def decide_with_pending(
    pending: PendingRequests | None, contention: Contention, concurrency: Concurrency, runs: int = 1
) -> Decision:
    """Decide for a first attempt. Where there is always room, decide whether pending pods or workloads can take it;
    where there still is, whether a later attempt finds room on other nodes."""
    decision = decide(replace(contention, avoided=0), concurrency, runs)
    if pending is not None and decision.verdict == "always":
        with_pending = decide(replace(contention, pending=pending, avoided=0), concurrency, runs)
        if with_pending.because == TOO_LARGE["places"]:
            return with_pending
        if with_pending.verdict != "always":
            decision = decision_with_pending(pending, with_pending, contention.asked)
    if contention.avoided and decision.verdict == "always":
        kept_off = decide(replace(contention, pending=pending), concurrency, runs)
        if kept_off.because == TOO_LARGE["places"]:
            return kept_off
        if kept_off.verdict != "always":
            return Decision("may-queue", kept_off.resources or tuple(contention.asked), avoided=contention.avoided)
    return decision


def decision_with_pending(pending: PendingRequests, with_pending: Decision, asked: Amounts) -> Decision:
    """There is always room, except for pending pods or workloads."""
    first = pending.with_requests_for(with_pending.resources or asked)
    return Decision("may-queue", with_pending.resources, pending=first)


def _question(contention: Contention, competitors: Competitors, bounds: Mapping[str, int | None]) -> Question:
    pending, others = contention.pending, competitors.distinct_pods
    budgets = {**bounds, **_budgets_under_ceilings(contention, bounds)}
    # With a part of it outside, a pod can use up a bin that is too small for all of it.
    over = competitors.largest_amounts(contention.asked) if contention.reaches_outside else {}
    if pending is not None:
        others = competitors.others_with(pending)
        budgets = {key: None if most is None else most + pending.total(key) for key, most in budgets.items()}
        largest = pending.largest_amounts(contention.asked)
        over = {key: max(amount, over.get(key, 0)) for key, amount in largest.items()}
    return Question(contention.asked, contention.bins, others, budgets, over, contention.avoided + contention.closed)


def _rounds(
    contention: Contention, concurrency: Concurrency, runs: int
) -> Iterator[tuple[Competitors, dict[str, int | None], str | None, dict[str, int | None] | None]]:
    """Competitors, the most of them that is alive besides the pod, why that is no more than a bound, and then what of
    them certainly may be alive."""
    keys = list(dict.fromkeys((contention.count, *contention.asked)))
    own = {**contention.asked, contention.count: 1}
    everything = {key: contention.competitors.total(key, concurrency) for key in keys}
    if all(total is not None for total in everything.values()):
        yield contention.competitors, _load_beside_pod(everything, everything, own, runs), None, None
    whole, reasons, reached = _moments(contention.competitors, keys, concurrency)
    least = _load_beside_pod(reached, reached, own, runs) if reached else None
    yield contention.competitors, _load_beside_pod(whole, whole, own, runs), "; ".join(reasons) or None, least
    if is_half_used("moments"):
        return  # each pod group asks for moments of its own here, and others are yet to be judged
    near = concurrency.concurrent_with(frozenset(contention.steps))
    if near.issuperset(concurrency.pods):
        return
    concurrent_with = contention.competitors.concurrent_with(near)
    tighter, own_reasons, near_reached = _moments(concurrent_with, keys, concurrency)
    if runs == 1:
        least = _load_beside_pod(near_reached, near_reached, own, runs) if near_reached else None
        yield concurrent_with, _load_beside_pod(tighter, whole, own, runs), "; ".join(own_reasons) or None, least
    else:  # other runs go at their own pace: of them anything may be alive
        least = _load_beside_pod(near_reached, reached, own, runs) if near_reached and reached else None
        yield contention.competitors, _load_beside_pod(tighter, whole, own, runs), "; ".join(reasons) or None, least


def _budgets_under_ceilings(contention: Contention, bounds: Mapping[str, int | None]) -> dict[str, int]:
    """The budgets that a ceiling makes smaller; the pod itself is one of those below it."""
    under = {
        key: max(most - contention.asked.get(key, 0), 0) for key, most in contention.ceilings.items() if key in bounds
    }
    return {key: min(most, most if (bound := bounds[key]) is None else bound) for key, most in under.items()}


def _moments(
    competitors: Competitors, keys: Sequence[str], concurrency: Concurrency
) -> tuple[dict[str, int | None], list[str], dict[str, int | None] | None]:
    """The worst moment for each key, what keeps it from being known, and what is reached where only that does: that
    there is no more than a bound."""
    found = {key: competitors.peak_load(key, concurrency) for key in keys}
    reasons = dict.fromkeys(each.because for each in found.values() if each.because)
    values = {key: each.value for key, each in found.items()}
    if not reasons or None in values.values():
        return values, list(reasons), None
    return values, list(reasons), {key: competitors.reached_load(key, concurrency) for key in keys}


def _load_beside_pod(
    first: Mapping[str, int | None], others: Mapping[str, int | None], own: Amounts, runs: int
) -> dict[str, int | None]:
    """What is alive besides one pod: the rest of its own run, and all of the other runs."""

    def rest(key: str) -> int | None:
        here, there = first[key], others[key] if runs > 1 else 0
        return None if here is None or there is None else max(here - own[key] + (runs - 1) * there, 0)

    return {key: rest(key) for key in first}
