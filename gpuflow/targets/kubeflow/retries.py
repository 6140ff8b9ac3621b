"""How often KFP starts the pod of a step again, for how long it goes on doing so, and what a user is told about it.

KFP's retry has a limit and a backoff, and no policy: which ends of a pod are repeated, Argo's settings decide. What the
supervisor does beside it stands in `gpuflow.pod.supervision`. There is one note for each way in which steps are
retried, with the steps; none for what is kept exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from gpuflow.core.errors import Finding, rule
from gpuflow.plan import MAX_INT32, Plan, PlannedStep, Restarts, names_exit_codes, supervision_of
from gpuflow.pod.supervision import active_deadline, longest_wait, unlimited_wait
from gpuflow.site import Site
from gpuflow.spec.duration import Duration
from gpuflow.spec.policies import Backoff, Retry
from gpuflow.spec.step import Step
from gpuflow.targets.capabilities import named_steps
from gpuflow.targets.kubeflow.gangs import own_pods

DAY = 86400
LONGEST_ATTEMPT = 30 * DAY
"""How long an attempt without a timeout is given."""
LEAST_DURATION = 3650 * DAY
"""How long a step is retried at least, counted from when its first pod was made: pods wait for quota and for nodes."""
LONGEST_WAIT = 365 * DAY
"""No wait that grows is longer than this."""


def restarts_at(site: Site) -> Restarts:
    """How the Kubeflow of a site starts a step again."""
    return "always" if site.engine("kubeflow").retry == "always" else "unknown"


def retry_policy(each: PlannedStep) -> dict[str, Any] | None:
    """The task's retry policy; None: KFP is not asked for another pod.

    `backoffMaxDuration` counts from the moment at which the first pod was made, not from its failure: whatever KFP's
    own hour has passed is never retried, and a retry is killed when it ends. So it is always written, long enough for
    every attempt to wait for its node and to reach the kubelet's deadline.
    """
    step, again = each.step, each.supervision.pods_again
    if step.retry is None or not again or step.gang is not None:
        return None  # attempts of a gang are its launcher's
    start, factor = written_backoff(step.retry, again)
    longest = (active_deadline(each) or LONGEST_ATTEMPT) + min(LONGEST_WAIT, longest_wait(step.retry, again))
    total = min(MAX_INT32, max(LEAST_DURATION, (again + 1) * longest))
    return {
        "maxRetryCount": again,
        "backoffDuration": f"{start}s",
        "backoffFactor": float(factor),
        "backoffMaxDuration": f"{total}s",
    }


def written_backoff(retry: Retry, again: int) -> tuple[int, int]:
    """The first wait in seconds, and the factor by which waits grow. KFP knows no longest wait.

    Where the waits would grow beyond the longest that the step allows, all of them are as long as the first: that no
    wait is longer is what the step promises, and how fast they grow is not.
    """
    backoff = retry.backoff
    if backoff is None:
        return 0, Backoff().factor
    return backoff.start.seconds, 1 if is_flattened(retry, again) else backoff.factor


def is_flattened(retry: Retry, again: int) -> bool:
    """Whether the waits before so many pods would grow beyond the longest that is allowed."""
    backoff = retry.backoff
    if backoff is None or backoff.factor == 1:
        return False
    most = LONGEST_WAIT if backoff.max is None else min(LONGEST_WAIT, backoff.max.seconds)
    return unlimited_wait(backoff, again) > most


SET_IT_UP = (
    "set engines: {kubeflow: {retry: always}} in the site, and let an administrator paste what `gpuflow site kubeflow` "
    "prints"
)
COUNT = "give the step a checkpoint, or set runtime.state and runtime.delivery: config-map in the site"
SUPERVISE = "set runtime.delivery: config-map in the site, so that the supervisor repeats failures inside the pod"
DEFAULT_RETRY_NOTE = "as KFP 2.17.0 ships them, Argo starts a deleted pod again and no failed one"
IDLE_PODS = (
    "after a final end (a final exit code, or one of its budgets spent) KFP goes on to start pods, up to {again} "
    "of them and each after its backoff; the supervisor ends each with exit code 79 before it downloads anything"
)
NO_SETTINGS_NOTE = "without such settings it starts a failed pod again and no deleted one"

RetryNote = tuple[str, str, str]
"""Code, what is to be said of the steps, and the way out."""


@rule("GF305", "GF307", "GF391", "GF392", "GF393", "GF394", severity="note")
def retries(plan: Plan) -> Iterator[Finding]:
    return retry_notes(plan, restarts_at(plan.site))


def retry_notes(plan: Plan, restarts: Restarts) -> Iterator[Finding]:
    """One note for each thing that holds, with the steps it holds for."""
    found: dict[RetryNote, list[PlannedStep]] = {}
    for each in own_pods(plan.under(restarts)):
        if each.step.retry is not None and each.step.retry.attempts:
            for said in _notes_of_step(each):
                found.setdefault(said, []).append(each)
    for (code, text, hint), steps in found.items():
        names = named_steps(tuple(each.name for each in steps))
        yield Finding(code, f"{names}: {text}", steps[0].where("retry"), hint or None, "note")


def _notes_of_step(each: PlannedStep) -> Iterator[RetryNote]:
    step, site, known = each.step, each.site, each.supervision
    again, counted = known.pods_again, known.counts_budgets
    if restarts_at(site) == "always":
        # KFP does not know that an end was final.
        yield from [("GF391", IDLE_PODS.format(again=again), "")] if counted else _shared_budget_notes(step)
    elif known.repeats_inside:
        yield from _in_pod_retry_notes(each)
    elif counted:
        # No failure is allowed, and interruptions are counted.
        yield "GF392", _interruptions(each), SET_IT_UP
    else:
        yield _installation(each)
    yield from _backoff(step, again)


def _shared_budget_notes(step: Step) -> Iterator[RetryNote]:
    """Notes for steps whose retries only KFP counts."""
    assert step.retry is not None
    if step.retry.any is None:
        text = f"failures and interruptions share one budget of {step.retry.attempts} retries"
        text += ", and every exit code is retried" if names_exit_codes(step.retry) else ""
        yield "GF393", f"{text}: the supervisor has no place to count them apart", COUNT
    elif names_exit_codes(step.retry):
        text = f"every exit code is retried, {_at_most(step.retry.any)}"
        yield "GF393", f"{text}: the supervisor has no place to write that one was final", COUNT


def _in_pod_retry_notes(each: PlannedStep) -> Iterator[RetryNote]:
    """Failures inside the pod; what is left to KFP depends on its installation."""
    step, site = each.step, each.site
    assert step.retry is not None
    inside = (
        f"gpuflow-run starts a failed command again inside its pod, {_at_most(step.retry.after_failures)}. A "
        "container that is killed as a whole for its memory ends the pod, and is not repeated there"
    )
    yield "GF392", f"{inside}. {_interruptions(each)}", SET_IT_UP
    if not (step.checkpoint or step.outputs) and site.runtime.delivery == "config-map":
        needs = f"sh and {site.runtime.python} (3.8 or newer) in the image"
        yield "GF307", f"for its retries it runs under gpuflow-run, which needs {needs}", SET_IT_UP


def _interruptions(each: PlannedStep) -> str:
    """What becomes of an interrupted pod, by the settings of Argo."""
    retry, again = each.step.retry, each.supervision.pods_again
    if not each.supervision.has_place:
        counted = "; each new pod counts its failures from 0" if retry is not None and retry.after_failures else ""
        return (
            "An interruption is left to KFP: as 2.17.0 is shipped, it starts a deleted pod again, at most twice, "
            f"unless it sees exit code 143 first; without such settings the step ends{counted}"
        )
    if not again:
        return "An interruption ends the step; a pod that KFP starts again ends at once with exit code 79"
    return (
        f"An interruption is left to KFP, {_at_most(again)}: {DEFAULT_RETRY_NOTE}, unless it sees exit code 143 first; "
        f"{NO_SETTINGS_NOTE}, and after a final end up to {again} more pods, which end at once with exit code 79"
    )


def _at_most(number: int) -> str:
    return f"up to {number} times" if number > 1 else "once"


def _installation(each: PlannedStep) -> RetryNote:
    """No supervisor: all that there is, is KFP's own retry."""
    step, known = each.step, each.supervision
    assert step.retry is not None
    # A supervisor that counts needs a place; without one it is there for other reasons, on any engine.
    alone = each.restarts == "left alone" or known.is_supervised
    alone = alone or (known.has_place and supervision_of(step, each.site).is_supervised)
    return _installation_note(known.pods_again, names_exit_codes(step.retry), alone)


@lru_cache(maxsize=64)
def _installation_note(count: int, names_codes: bool, alone: bool) -> RetryNote:
    codes = ". Every exit code counts alike" if names_codes else ""
    repeats = "KFP's one retry repeats" if count == 1 else f"KFP's {count} retries repeat"
    hint = SET_IT_UP if alone else f"{SET_IT_UP}; or {SUPERVISE}"
    decides = f"what {repeats}, its installation decides: {DEFAULT_RETRY_NOTE}, unless it sees exit code 143 first"
    return "GF394", f"{decides}; {NO_SETTINGS_NOTE}{codes}", hint


def _backoff(step: Step, again: int) -> Iterator[RetryNote]:
    """KFP has no longest wait."""
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
