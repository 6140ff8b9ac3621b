"""What a user is told about retries on Kubeflow: who starts a step again after what, and what that costs.

One note for each way in which steps are retried, with the steps; none for what is kept exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpuflow.errors import Finding
from gpuflow.plan import Plan, PlannedStep
from gpuflow.pod.restarts import (
    Restarts,
    counts_budgets,
    has_place,
    names_exit_codes,
    pods_again,
    repeats_inside,
    seen_by,
)
from gpuflow.pod.supervision import is_supervised
from gpuflow.site import Site
from gpuflow.spec.duration import Duration
from gpuflow.spec.step import Step
from gpuflow.targets.kubeflow.gangs import own_pods
from gpuflow.targets.kubeflow.retries import LONGEST_WAIT, is_flattened, restarts_at
from gpuflow.targets.losses import named_steps

SET_IT_UP = (
    "set engines: {kubeflow: {retry: always}} in the site, and let an administrator paste what `gpuflow site kubeflow` "
    "prints"
)
COUNT = "give the step a checkpoint, or set runtime.state and runtime.delivery: config-map in the site"
SUPERVISE = "set runtime.delivery: config-map in the site, so that the supervisor repeats failures inside the pod"
SHIPPED = "as KFP 2.17.0 ships them, Argo starts a deleted pod again and no failed one"
BARE = "without such settings it starts a failed pod again and no deleted one"

Said = tuple[str, str, str]
"""Code, what is to be said of the steps, and the way out."""


def retry_notes(plan: Plan, restarts: Restarts) -> Iterator[Finding]:
    """One note for each thing that holds, with the steps it holds for."""
    found: dict[Said, list[PlannedStep]] = {}
    for each in own_pods(plan):
        if each.step.retry is not None and each.step.retry.attempts:
            for said in _said(each.step, seen_by(each, plan.site, restarts), restarts):
                found.setdefault(said, []).append(each)
    for (code, text, hint), steps in found.items():
        names = named_steps(tuple(each.name for each in steps))
        yield Finding(code, f"{names}: {text}", steps[0].where("retry"), hint or None, "note")


def _said(step: Step, site: Site, restarts: Restarts) -> Iterator[Said]:
    say: Callable[[Step, Site, Restarts], Iterator[Said]]
    if restarts_at(site) == "always":
        say = _idle_pods if counts_budgets(step, site, restarts) else _shared
    elif repeats_inside(step, site, restarts):
        say = _repeated
    elif counts_budgets(step, site, restarts):
        say = _interruptions_only
    else:
        say = _installation
    yield from say(step, site, restarts)
    yield from _backoff(step, site, restarts)


def _idle_pods(step: Step, site: Site, restarts: Restarts) -> Iterator[Said]:
    """KFP does not know that the end was final."""
    again = pods_again(step, site, restarts)
    yield (
        "GF391",
        f"after a final end (a final exit code, or one of its budgets spent) KFP goes on to start pods, up to {again} "
        "of them and each after its backoff; the supervisor ends each with exit code 79 before it downloads anything",
        "",
    )


def _shared(step: Step, site: Site, restarts: Restarts) -> Iterator[Said]:
    """Nobody counts but KFP."""
    assert step.retry is not None
    if step.retry.any is None:
        text = f"failures and interruptions share one budget of {step.retry.attempts} retries"
        text += ", and every exit code is retried" if names_exit_codes(step.retry) else ""
        yield "GF393", f"{text}: the supervisor has no place to count them apart", COUNT
    elif names_exit_codes(step.retry):
        text = f"every exit code is retried, {_at_most(step.retry.any)}"
        yield "GF393", f"{text}: the supervisor has no place to write that one was final", COUNT


def _repeated(step: Step, site: Site, restarts: Restarts) -> Iterator[Said]:
    """Failures inside the pod; what is left to KFP depends on its installation."""
    assert step.retry is not None
    again = pods_again(step, site, restarts)
    inside = (
        f"gpuflow-run starts a failed command again inside its pod, {_at_most(step.retry.after_failures)}. A "
        "container that is killed as a whole for its memory ends the pod, and is not repeated there"
    )
    yield "GF392", f"{inside}. {_interruptions(step, site, again)}", SET_IT_UP
    if not (step.checkpoint or step.outputs) and site.runtime.delivery == "config-map":
        needs = f"sh and {site.runtime.python} (3.8 or newer) in the image"
        yield "GF307", f"for its retries it runs under gpuflow-run, which needs {needs}", SET_IT_UP


def _interruptions(step: Step, site: Site, again: int) -> str:
    """What becomes of an interrupted pod, by the settings of Argo."""
    assert step.retry is not None
    if not has_place(step, site):
        counted = "; each new pod counts its failures from 0" if step.retry.after_failures else ""
        return (
            "An interruption is left to KFP: as 2.17.0 is shipped, it starts a deleted pod again, at most twice, "
            f"unless it sees exit code 143 first; without such settings the step ends{counted}"
        )
    if not again:
        return "An interruption ends the step; a pod that KFP starts again ends at once with exit code 79"
    return (
        f"An interruption is left to KFP, {_at_most(again)}: {SHIPPED}, unless it sees exit code 143 first; "
        f"{BARE}, and after a final end up to {again} more pods, which end at once with exit code 79"
    )


def _at_most(number: int) -> str:
    return f"up to {number} times" if number > 1 else "once"


def _interruptions_only(step: Step, site: Site, restarts: Restarts) -> Iterator[Said]:
    """No failure is allowed, and interruptions are counted."""
    yield "GF392", _interruptions(step, site, pods_again(step, site, restarts)), SET_IT_UP


def _installation(step: Step, site: Site, restarts: Restarts) -> Iterator[Said]:
    """No supervisor: all that there is, is KFP's own retry."""
    assert step.retry is not None
    codes = ". Every exit code counts alike" if names_exit_codes(step.retry) else ""
    count = pods_again(step, site, restarts)
    repeats = "KFP's one retry repeats" if count == 1 else f"KFP's {count} retries repeat"
    hint = SET_IT_UP if restarts == "left alone" or is_supervised(step, site) else f"{SET_IT_UP}; or {SUPERVISE}"
    yield (
        "GF394",
        f"what {repeats}, its installation decides: {SHIPPED}, unless it sees exit code 143 first; {BARE}{codes}",
        hint,
    )


def _backoff(step: Step, site: Site, restarts: Restarts) -> Iterator[Said]:
    """KFP has no longest wait."""
    again = pods_again(step, site, restarts)
    if step.retry is None or step.retry.backoff is None or not is_flattened(step.retry, again):
        return
    backoff = step.retry.backoff
    most = Duration(LONGEST_WAIT) if backoff.max is None else backoff.max
    yield (
        "GF305",
        f"KFP has no longest wait, and the waits before {again} pods would grow beyond {most}: every wait is "
        f"{backoff.start}, as long as the first",
        "",
    )
