"""How one attempt of a gang ended: a pure function of what the API server shows of its object, Jobs, pods and Workload.

One rank is taken away, the others die of it with exit code 1, and who looks at them first would count a failure. So the
order is: done; a supervisor that says *final*; any sign that something was taken away; only then what ended by itself.

Once a Job has failed, its controller deletes the ranks that still run. They are told to stop and may say so (75, 143),
or vanish: that is collateral, and no interruption. Such a deletion comes with no DisruptionTarget.
"""

from __future__ import annotations

import re
from calendar import timegm
from time import strptime
from typing import Any, Collection, Iterable, Mapping, NamedTuple, Sequence  # noqa: UP035 (runs on Python 3.8)

from gpuflow.runtime.base import termination_message
from gpuflow.runtime.base.outcomes import (
    DISK_LIMIT,
    EXIT_FINAL,
    EXIT_INTERRUPTED,
    EXIT_RUNTIME,
    EXIT_TIMED_OUT,
    FINAL,
    INTERRUPTED,
    NEVER_STARTED,
    OUT_OF_MEMORY,
    RETRYABLE,
    SUCCEEDED,
    TIMED_OUT,
)
from gpuflow.runtime.gangs.kinds import JOBSET, KINDS, GangKind
from gpuflow.runtime.supervise import evidence, object_state

Object = Mapping[str, Any]
_DEADLINE_MESSAGE = "active longer than specified deadline"
_VAGUE_REASONS = ("BackoffLimitExceeded", "PyTorchJobFailed", "MPIJob", "Volcano")
"""How reasons begin that say only that a pod failed, and not why."""
_REMOVED_BY_IT = {each.removed_by_it for each in KINDS.values() if each.removed_by_it is not None}
_DISRUPTED = re.compile(r"Pod \S+/(\S+) has condition DisruptionTarget\b")
_EXITED = re.compile(r"Container \S+ for pod \S+/(\S+) failed with exit code (\d+)\b")


class Verdict(NamedTuple):
    """An outcome, why in words for a person, and the exit code of the gang's own, if it has one."""

    outcome: str
    because: str
    code: int | None = None
    node: str | None = None
    """The node of the rank that failed first; None where no rank did, or nobody knows which."""


class Sign(NamedTuple):
    """What one pod or Job shows. Signs have an order of their own, so that the order they are found in has no part."""

    when: str
    who: str
    outcome: str
    because: str
    code: int = -1
    node: str = ""


def judge(
    jobset: Object | None,
    jobs: Sequence[Object],
    pods: Sequence[Object],
    workload: Object | None = None,
    *,
    gone: Collection[str] = (),
    container: str = "main",
    final_exit_codes: Collection[int] = (),
    retryable_exit_codes: Collection[int] | None = None,
    kind: GangKind = JOBSET,
) -> Verdict | None:
    """How the attempt ended, or None while it goes on. For a kind without Jobs, `jobs` is the object itself.

    `pods` as last seen. `gone` are the uids of those that vanished before a Job had failed, or that were being deleted
    when last seen: what vanishes later without that is what the Job controller removes, too fast to be looked at.
    """
    if jobset is None or jobset["metadata"].get("deletionTimestamp"):
        return Verdict(INTERRUPTED, f"somebody deleted the {kind.name}")
    if object_state.holds(jobset, object_state.GOOD[kind.name]):
        return Verdict(SUCCEEDED, f"the {kind.name} is completed")
    if (given_up := deactivation_message(workload)) is not None:
        return Verdict(FINAL, f"Kueue will not start it any more: {given_up}")
    if not has_ended(jobset, jobs, kind):
        lost = [pod for pod in pods if kind.replaces_pods and pod["metadata"].get("uid") in gone]
        return _lost_verdict(lost, container)
    since = failed_since(jobs)
    nodes = {f"pod {pod['metadata']['name']}": _node(pod) for pod in pods}
    signs = [sign._replace(node=nodes.get(sign.who, "")) for sign in _signs_of_jobs(jobs, pods, container)]
    for pod in pods:
        found = _signs_of_pod(pod, container, since, pod["metadata"].get("uid") in gone)
        signs += [sign._replace(node=_node(pod)) for sign in found]
    if (evicted := _condition(workload or {}, "Evicted")) is not None:
        signs.append(Sign("", "Kueue", INTERRUPTED, f"Kueue took its quota back ({_words(evicted)})"))
    verdict = _verdict(jobset, jobs, signs, final_exit_codes, retryable_exit_codes)
    return _with_word_of_rank_0(verdict, jobset, pods, container, kind)


def _lost_verdict(pods: Iterable[Object], container: str) -> Verdict | None:
    """The end of an attempt whose controller goes on with a new pod in the place of one that was taken away."""
    signs = sorted(
        sign for pod in pods for sign in _signs_of_pod(pod, container, None, True) if sign.outcome == INTERRUPTED
    )
    return Verdict(INTERRUPTED, f"{signs[0].who}: {signs[0].because}") if signs else None


def has_ended(jobset: Object, jobs: Iterable[Object], kind: GangKind = JOBSET) -> bool:
    """Whether it can do no more work. `FailureTarget` of a Job comes at once, `Failed` when its last pod is gone."""
    return object_state.holds(jobset, object_state.BAD[kind.name]) or any(_failure(job) is not None for job in jobs)


def failed_since(jobs: Iterable[Object]) -> str | None:
    """When the first Job failed: what its controller deletes from then on is collateral. The training operator notes
    the time, deletes, and only then says that it failed."""
    times = []
    for job in jobs:
        if (failure := _failure(job)) is not None:
            completed = (job.get("status") or {}).get("completionTime")
            times += [str(failure.get("lastTransitionTime") or ""), *([str(completed)] if completed else [])]
    return min(times) if times else None


def deactivation_message(workload: Object | None) -> str | None:
    """Kueue's message for a Workload that was deactivated."""
    evicted = _condition(workload or {}, "Evicted")
    if evicted is not None and str(evicted.get("reason", "")).startswith("Deactivated"):
        return _words(evicted)
    if workload is not None and (workload.get("spec") or {}).get("active") is False:
        return "its Workload is not active"
    return None


def _verdict(
    jobset: Object,
    jobs: Sequence[Object],
    signs: Sequence[Sign],
    final_exit_codes: Collection[int],
    retryable_exit_codes: Collection[int] | None,
) -> Verdict:
    def first(outcome: str, *codes: int) -> Verdict | None:
        found = sorted(sign for sign in signs if sign.outcome == outcome and (not codes or sign.code in codes))
        return Verdict(outcome, f"{found[0].who}: {found[0].because}", node=_only_node(found)) if found else None

    if (taken := first(FINAL, EXIT_FINAL) or first(INTERRUPTED)) is not None:
        return taken._replace(node=None)
    for outcome in (FINAL, OUT_OF_MEMORY, DISK_LIMIT, TIMED_OUT):
        if (found := first(outcome)) is not None:
            if outcome == TIMED_OUT:  # all of them ran too long
                return found._replace(code=EXIT_TIMED_OUT, node=None)
            return found
    ended = sorted(sign for sign in signs if sign.outcome == RETRYABLE and sign.code > 0)
    for sign in ended:
        if sign.code in final_exit_codes:
            return Verdict(FINAL, f"{sign.who}: the step calls exit code {sign.code} final", sign.code)
    # A signal's code is what the end of another rank does to this one, more often than a cause.
    ended = [sign for sign in ended if sign.code < 128] or ended
    if ended:
        code, who = ended[0].code, ended[0].who
        if retryable_exit_codes is not None and code not in retryable_exit_codes:
            return Verdict(FINAL, f"{who}: the step does not list exit code {code} as retryable", code)
        return Verdict(RETRYABLE, f"{who}: {ended[0].because} with exit code {code}", code, _only_node(ended))
    failures = [failure for failure in map(_failure, jobs) if failure is not None]
    words = "; ".join(sorted(map(_words, failures))) or object_state.words_of(dict(jobset))
    if all(str(failure.get("reason")).startswith(_VAGUE_REASONS) for failure in failures):
        return Verdict(INTERRUPTED, f"no pod is left that says why it ended ({words})")
    return Verdict(RETRYABLE, words, 1)


def _with_word_of_rank_0(
    verdict: Verdict, jobset: Object, pods: Sequence[Object], container: str, kind: GangKind
) -> Verdict:
    """A failure with what the supervisors agreed on: they exit alike, and only rank 0's last words tell the first. They
    may say which failure it was, and never that it was none."""
    if verdict.outcome not in (RETRYABLE, OUT_OF_MEMORY):
        return verdict
    for pod in pods:
        ended = _terminated_state(pod, container)
        facts = termination_message.parse(ended.get("message")) or {}
        rank = facts.get("cause_rank")
        if not isinstance(rank, int) or isinstance(rank, bool) or facts.get("exit_code") != ended.get("exitCode"):
            continue
        if verdict.outcome == RETRYABLE and facts.get("outcome") == OUT_OF_MEMORY:
            verdict = Verdict(OUT_OF_MEMORY, str(facts.get("because") or f"rank {rank}: it ran out of memory"))
        elif verdict.outcome != facts.get("outcome"):
            return verdict
        return verdict._replace(node=_node_of_rank(pods, rank, kind, kind.first_ranks(jobset)))
    return verdict


def _node_of_rank(pods: Sequence[Object], rank: int, kind: GangKind, first_ranks: Mapping[str, int]) -> str | None:
    """Where a rank ran. A label has the pod's index, which in the second set of pods is not yet a rank."""
    found = set()
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        index, first = str(labels.get(kind.rank, "")), first_ranks.get(str(labels.get(kind.role)))
        if first is not None and index.isascii() and index.isdigit() and first + int(index) == rank and _node(pod):
            found.add(_node(pod))
    return found.pop() if len(found) == 1 else None


def _only_node(signs: Sequence[Sign]) -> str | None:
    """The node of the first sign; None when others came in the same second from elsewhere: one of them is no cause."""
    found = {sign.node for sign in signs if sign.when == signs[0].when}
    node = found.pop() if len(found) == 1 else ""
    return node or None


def _signs_of_jobs(jobs: Iterable[Object], pods: Iterable[Object], container: str) -> Iterable[Sign]:
    """What the Job controller wrote down: it outlives the pods."""
    own_fault = {
        pod["metadata"]["name"] for pod in pods if _sign_of_pod(pod, container).outcome == DISK_LIMIT
    }  # called an eviction too
    for job in jobs:
        if (failure := _failure(job)) is None:
            continue
        when, message = str(failure.get("lastTransitionTime") or ""), str(failure.get("message") or "")
        disrupted, exited = _DISRUPTED.search(message), _EXITED.search(message)
        if failure.get("reason") == "DeadlineExceeded" or _DEADLINE_MESSAGE in message:
            yield Sign(when, _job_name(job), TIMED_OUT, f"it ran longer than it may ({message})")
        elif disrupted is not None and disrupted.group(1) not in own_fault:
            yield Sign(when, f"pod {disrupted.group(1)}", INTERRUPTED, "it was disrupted")
        elif exited is not None:
            seen = evidence.Evidence(phase="Failed", exit_code=int(exited.group(2)), supervised=True)
            yield _sign(when, f"pod {exited.group(1)}", seen)


def _signs_of_pod(pod: Object, container: str, since: str | None, gone: bool) -> Iterable[Sign]:
    who, when = name_of(pod), _finished_at(pod, container)
    seen = evidence.from_pod(pod, container, supervised=True)
    alone = _sign_of_pod(pod, container)
    disrupted = any(condition.startswith("DisruptionTarget/") for condition in seen.conditions)
    if alone.outcome == DISK_LIMIT or alone.code in (EXIT_FINAL, EXIT_TIMED_OUT):
        yield alone
    if disrupted and alone.outcome != DISK_LIMIT:
        words = evidence.judge(seen._replace(exit_code=None, container_reason=None))
        yield Sign(when, who, INTERRUPTED, words.because if words is not None else "it was disrupted")
    if seen.container_reason == "OOMKilled" and seen.exit_code:
        yield Sign(when, who, OUT_OF_MEMORY, "it was over its memory limit")
    elif not _is_collateral(pod, since):
        ended = seen.exit_code is not None or seen.phase in ("Succeeded", "Failed")
        if gone and not ended:
            yield Sign(when, who, INTERRUPTED, "the pod is gone, and left no word")
        elif ended and alone.outcome == NEVER_STARTED:
            yield Sign(when, who, INTERRUPTED, f"it never ran: {alone.because}")
        elif ended:
            yield alone


def _sign_of_pod(pod: Object, container: str) -> Sign:
    """What the table of single pods says of this one."""
    return _sign(_finished_at(pod, container), name_of(pod), evidence.from_pod(pod, container, supervised=True))


def _sign(when: str, who: str, seen: evidence.Evidence) -> Sign:
    said = evidence.judge(seen)
    code = seen.exit_code if seen.exit_code is not None else -1
    if code == EXIT_RUNTIME:
        return Sign(when, who, FINAL, "gpuflow-run could not work in it (exit code 78)", code)
    if code == EXIT_INTERRUPTED and said is not None and said.outcome == INTERRUPTED:
        return Sign(when, who, INTERRUPTED, "it was told to stop (exit code 75)", code)
    return Sign(when, who, "", "") if said is None else Sign(when, who, said.outcome, said.because, code)


def _is_collateral(pod: Object, since: str | None) -> bool:
    """Whether it was deleted because a Job had failed already. Both times are the cluster's, in whole seconds."""
    if _REMOVED_BY_IT & set(pod["metadata"].get("annotations") or ()):
        return True
    deleted = pod["metadata"].get("deletionTimestamp")
    if not deleted or not since:
        return False
    try:
        asked = seconds(deleted) - int(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        return asked >= seconds(since)
    except ValueError:
        return False


def seconds(text: str) -> int:
    """A time of the cluster, as seconds since 1970."""
    return timegm(strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))


def _failure(job: Object) -> Object | None:
    return _condition(job, "FailureTarget") or _condition(job, "Failed")


def _condition(document: Object, kind: str) -> Object | None:
    for row in (document.get("status") or {}).get("conditions") or ():
        if row.get("type") == kind and row.get("status") == "True":
            found: Object = row
            return found
    return None


def _words(condition: Object) -> str:
    return ": ".join(str(condition[key]) for key in ("reason", "message") if condition.get(key))


def _finished_at(pod: Object, container: str) -> str:
    return str(_terminated_state(pod, container).get("finishedAt") or "")


def _terminated_state(pod: Object, container: str) -> Object:
    """How a container ended, as the kubelet says; empty while it runs."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status.get("name") == container:
            ended: Object = (status.get("state") or {}).get("terminated") or {}
            return ended
    return {}


def _node(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def name_of(pod: Object) -> str:
    """`worker 2`, or the pod's name where it has no rank."""
    labels = pod["metadata"].get("labels") or {}
    for kind in KINDS.values():
        if kind.rank in labels and kind.role in labels:
            return f"{labels[kind.role]} {labels[kind.rank]}"
    return f"pod {pod['metadata']['name']}"


def _job_name(job: Object) -> str:
    return str((job["metadata"].get("labels") or {}).get(JOBSET.role) or job["metadata"]["name"])
