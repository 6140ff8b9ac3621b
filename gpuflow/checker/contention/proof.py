"""One kind of pod among all that may take its place: is there always room for it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuflow.checker.contention.bins import Amounts, Bin, Question, refusing
from gpuflow.checker.contention.competitors import Gathering
from gpuflow.checker.contention.concurrency import Crowd
from gpuflow.checker.contention.pending import Rival, Rivals
from gpuflow.checker.report import Verdict


@dataclass(frozen=True, slots=True)
class Contest:
    """A pod of one kind, its bins, and everything that may lie in them, its own kind included."""

    steps: tuple[str, ...]
    asked: Amounts
    bins: Sequence[Bin]
    company: Gathering
    count: str
    """The key under which every pod weighs one."""
    ceilings: Mapping[str, int] = field(default_factory=dict)
    """The most of a key that is ever alive in the bins, whatever the pipeline asks for: what a queue lets through."""
    rivals: Rivals | None = None
    """Others who may take places in the bins first."""
    avoided: int = 0
    """How many of the bins a later attempt keeps away from, because an earlier one failed there."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Whether there is always room."""

    verdict: Verdict
    resources: tuple[str, ...] = ()
    """Through which it may be refused; empty when the bins as they are have no room for it."""
    because: str | None = None
    """Why it is not known."""
    rivals: tuple[Rival, ...] = ()
    """Others who may take its place first, where without them there would always be room."""
    avoided: int = 0
    """How many bins a later attempt keeps away from, where with them there would always be room."""


def settle(contest: Contest, crowd: Crowd, runs: int = 1) -> Settled:
    """Decide with ever sharper bounds on what else is alive: everything at once, the worst moment, and the worst
    moment of those that may be alive beside this kind."""
    last = Settled("may-queue")
    for company, bounds, because in _rounds(contest, crowd, runs):
        budgets = {**bounds, **_under(contest, bounds)}
        refused = refusing(_question(contest, company, budgets))
        if refused is None:
            return Settled("always")
        if not refused:
            return Settled("may-queue")
        last = Settled("unknown" if because else "may-queue", refused, because)
    return last


def settle_with(rivals: Rivals | None, contest: Contest, crowd: Crowd, runs: int = 1) -> Settled:
    """Decide for a first attempt; where there is always room, whether those who wait too can take it; and where there
    still is, whether a later attempt finds room elsewhere."""
    settled = settle(replace(contest, avoided=0), crowd, runs)
    if rivals is not None and settled.verdict == "always":
        beaten = settle(replace(contest, rivals=rivals, avoided=0), crowd, runs)
        settled = settled if beaten.verdict == "always" else lost_to(rivals, beaten, contest.asked)
    if contest.avoided and settled.verdict == "always":
        kept_off = settle(replace(contest, rivals=rivals), crowd, runs)
        if kept_off.verdict != "always":
            return Settled("may-queue", kept_off.resources or tuple(contest.asked), avoided=contest.avoided)
    return settled


def lost_to(rivals: Rivals, beaten: Settled, asked: Amounts) -> Settled:
    """There is always room but for those who wait too."""
    return Settled("may-queue", beaten.resources, rivals=rivals.asking(beaten.resources or asked))


def _question(contest: Contest, company: Gathering, budgets: Mapping[str, int | None]) -> Question:
    rivals = contest.rivals
    if rivals is None:
        return Question(contest.asked, contest.bins, company.others, budgets, avoided=contest.avoided)
    more = {key: None if most is None else most + rivals.total(key) for key, most in budgets.items()}
    others = company.others_with(rivals)
    return Question(contest.asked, contest.bins, others, more, rivals.largest(contest.asked), contest.avoided)


def _rounds(contest: Contest, crowd: Crowd, runs: int) -> Iterator[tuple[Gathering, dict[str, int | None], str | None]]:
    keys = list(dict.fromkeys((contest.count, *contest.asked)))
    own = {**contest.asked, contest.count: 1}
    everything = {key: contest.company.total(key, crowd) for key in keys}
    if all(total is not None for total in everything.values()):
        yield contest.company, _less(everything, everything, own, runs), None
    whole, reasons = _moments(contest.company, keys, crowd)
    yield contest.company, _less(whole, whole, own, runs), "; ".join(reasons) or None
    near = crowd.beside(frozenset(contest.steps))
    if near.issuperset(crowd.pods):
        return
    beside = contest.company.beside(near)
    sharper, own_reasons = _moments(beside, keys, crowd)
    if runs == 1:
        yield beside, _less(sharper, whole, own, runs), "; ".join(own_reasons) or None
    else:  # other runs go at their own pace: of them anything may be alive
        yield contest.company, _less(sharper, whole, own, runs), "; ".join(reasons) or None


def _under(contest: Contest, bounds: Mapping[str, int | None]) -> dict[str, int]:
    """The budgets that a ceiling makes smaller; the pod itself is one of those below it."""
    under = {key: max(most - contest.asked.get(key, 0), 0) for key, most in contest.ceilings.items() if key in bounds}
    return {key: min(most, most if (bound := bounds[key]) is None else bound) for key, most in under.items()}


def _moments(company: Gathering, keys: Sequence[str], crowd: Crowd) -> tuple[dict[str, int | None], list[str]]:
    """The worst moment for each key, and what keeps it from being known."""
    found = {key: company.worst(key, crowd) for key in keys}
    reasons = dict.fromkeys(each.because for each in found.values() if each.because)
    return {key: each.value for key, each in found.items()}, list(reasons)


def _less(
    first: Mapping[str, int | None], others: Mapping[str, int | None], own: Amounts, runs: int
) -> dict[str, int | None]:
    """What is alive besides one pod: the rest of its own run, and all of the other runs."""

    def rest(key: str) -> int | None:
        here, there = first[key], others[key] if runs > 1 else 0
        return None if here is None or there is None else max(here - own[key] + (runs - 1) * there, 0)

    return {key: rest(key) for key in first}
