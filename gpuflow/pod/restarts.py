"""Who starts a step again: the engine, by another pod, or the supervisor, inside the pod.

Argo and Airflow choose by what ended an attempt, so that the supervisor counts where it can and leaves the rest to
them. Kubeflow cannot choose. Where the site says that its installation starts a pod again whatever ended it, the
supervisor splits that one number into the two budgets. Elsewhere nobody knows which ends an installation repeats: the
supervisor then repeats failures itself, and only interruptions are left to the engine.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from gpuflow.plan import PlannedStep
from gpuflow.site import Site
from gpuflow.spec.policies import Backoff, Retry
from gpuflow.spec.step import Step

Restarts = Literal["by cause", "always", "unknown", "left alone"]
"""by cause: the engine asks what ended an attempt. always: it starts a pod again whatever that was. unknown: what it
repeats depends on its installation. left alone: the same, and no supervisor can stand in front of the command."""
MOST = 2**31 - 1
"""The largest number of retries and of seconds that Kubernetes and Argo keep."""


def seen_by(planned: PlannedStep, site: Site, restarts: Restarts) -> Site:
    """The site as a step sees it. Copies of a sub-pipeline do not know their item where the engine starts pods without
    asking why, and a place that is that of all of them is none."""
    above, looped = planned.parent, False
    while above is not None:
        looped, above = looped or bool(above.step.for_each), above.parent
    return without_state(site) if looped and restarts != "by cause" else site


def without_state(site: Site) -> Site:
    """The site without the place in which steps without a checkpoint count."""
    if site.runtime.state is None:
        return site
    return site.model_copy(update={"runtime": site.runtime.model_copy(update={"state": None})})


def has_place(step: Step, site: Site) -> bool:
    """Whether there is a place that outlives the pod, in which the supervisor can count."""
    return step.checkpoint is not None or site.runtime.state is not None


def writes_xcom(step: Step) -> bool:
    """Whether the program writes its outputs as Airflow reads them, so that nobody else in the container need be."""
    return step.outputs_from == "xcom" and bool(step.outputs)


def counts_budgets(step: Step, site: Site, restarts: Restarts = "by cause") -> bool:
    """Whether the supervisor keeps the step's retry budgets over all its pods. Those of a gang its launcher keeps."""
    retry = step.retry
    if retry is None or restarts == "left alone" or not has_place(step, site):
        return False
    if not retry.attempts or step.gang is not None or writes_xcom(step):
        return False
    if restarts == "by cause" or not _can_be_supervised(step, site):
        return retry.interruptions > 0
    if restarts == "unknown":
        return True
    # A number for everything is what the engine counts itself, unless some exit codes are final.
    return retry.any is None or names_exit_codes(retry)


def repeats_inside(step: Step, site: Site, restarts: Restarts) -> bool:
    """Whether the supervisor starts a failed command again in the same pod."""
    if restarts != "unknown" or step.gang is not None or step.retry is None or not step.retry.after_failures:
        return False
    return _can_be_supervised(step, site) or counts_budgets(step, site, restarts)


def _can_be_supervised(step: Step, site: Site) -> bool:
    """Whether a supervisor is in the container, or can be put there without a change of the image."""
    if site.runtime.delivery == "config-map" or step.checkpoint is not None or step.outputs:
        return True
    return bool(step.inputs) and any(given.is_fetched for given in step.inputs.values())


def pods_again(step: Step, site: Site, restarts: Restarts) -> int:
    """How many more pods of the step the engine is asked to start."""
    retry = step.retry
    if retry is None:
        return 0
    if restarts != "unknown" or not (repeats_inside(step, site, restarts) or counts_budgets(step, site, restarts)):
        return min(MOST, retry.attempts)
    # Without a place each new pod would begin to count anew: all that the engine repeats would be multiplied.
    return min(MOST, retry.after_interruptions) if has_place(step, site) else 0


def names_exit_codes(retry: Retry) -> bool:
    """Whether some exit codes end the step at once."""
    return bool(retry.final_exit_codes) or retry.retryable_exit_codes is not None


def longest_wait(retry: Retry, times: int) -> int:
    """The seconds of the last of so many waits, or `MOST` where it would be longer."""
    if retry.backoff is None or times < 1:
        return 0
    most = retry.backoff.max
    wait = unlimited_wait(retry.backoff, times)
    return wait if most is None else min(wait, most.seconds)


def unlimited_wait(backoff: Backoff, times: int) -> int:
    """The seconds of the last of so many waits if the step named no longest one, or `MOST`."""
    return _grown(backoff.start.seconds, backoff.factor, times) if times >= 1 else 0


@lru_cache(maxsize=1024)
def _grown(wait: int, factor: int, times: int) -> int:
    if factor > 1 and wait:
        for _ in range(min(times - 1, MOST.bit_length())):  # it at least doubles, so that this is enough
            wait *= factor
            if wait > MOST:
                break
    return min(MOST, wait)


def time_in_pod(step: Step, room: int, grace: int) -> int:
    """The seconds after which a pod that repeats its command is over: every attempt, every wait, and `room` once."""
    assert step.timeout is not None and step.retry is not None
    again = step.retry.after_failures
    waits = again * longest_wait(step.retry, again)
    return min(MOST, (again + 1) * (step.timeout.seconds + grace) + waits + room)
