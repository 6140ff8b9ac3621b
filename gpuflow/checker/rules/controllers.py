"""What the controllers behind an object do beside what the object asks for: they wait, they hold back, they grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuflow.checker.question import Question, check_rule
from gpuflow.checker.quota.peak import charge_of
from gpuflow.core.errors import Finding, Problem, join_names
from gpuflow.demands.model import sum_usages


@check_rule("GF830", "GF831", "GF832", verdict="may-queue")
def waits(q: Question) -> Iterable[Finding]:
    """What may keep it waiting though there is room."""
    return q.demand.waits


@check_rule("GF833", verdict="unknown")
def unsettled(q: Question) -> Iterable[Finding]:
    """What decides whether it starts, and is not known."""
    return q.demand.unsettled


@check_rule("GF834", severity="error", verdict="never")
def kept_beside(q: Question) -> Iterator[Problem]:
    """Steps for which a quota has no room beside the daemons that they wait for, which run until after them."""
    known = {one.step.name: one for one in q.admissions if one.ever.allowed}
    for *daemons, step in q.demand.beside:
        members = [known[name] for name in (*daemons, step) if name in known]
        for _, quota in q.policy.quotas if len(members) == len(daemons) + 1 else ():
            whole = sum_usages((charge_of(one.ever, quota), one.step.pods) for one in members)
            for key in sorted(key for key in whole if whole[key] > quota.hard[key]):
                text = f"{step} never starts: beside {join_names(daemons)}, which must run and end after it, that is "
                text += f"{whole[key]} of {key}, and quota {quota.name} allows at most {quota.hard[key]}"
                yield Problem(text, q.where(step), "ask for less in one of them, or have the quota raised")
                return
