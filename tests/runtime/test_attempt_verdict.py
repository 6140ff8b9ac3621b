"""How one attempt of a gang is judged: every row of what the Job controller, JobSet and Kueue were seen to write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.runtime.base.outcomes import DISK_LIMIT, FINAL, INTERRUPTED, OUT_OF_MEMORY, RETRYABLE, SUCCEEDED, TIMED_OUT
from gpuflow.runtime.gangs import attempt_verdict
from gpuflow.runtime.gangs.attempt_verdict import Verdict, judge
from gpuflow.runtime.gangs.kinds import JOBSET

FAILED_AT = "2026-11-17T01:00:00Z"
FAILURES = (RETRYABLE, FINAL, OUT_OF_MEMORY, TIMED_OUT, DISK_LIMIT)


def jobset(*conditions: str, **metadata: Any) -> dict[str, Any]:
    rows = [{"type": each, "status": "True", "reason": "ByTest"} for each in conditions]
    workers = {"parallelism": 3, "completions": 3, "template": {}}
    spec = {"replicatedJobs": [{"name": "worker", "template": {"spec": workers}}]}
    return {"metadata": {"name": "train-1", **metadata}, "spec": spec, "status": {"conditions": rows}}


def job(reason: str = "BackoffLimitExceeded", message: str = "Job has reached the specified backoff limit") -> Any:
    row = {"type": "FailureTarget", "status": "True", "lastTransitionTime": FAILED_AT}
    return {"metadata": {"name": "w"}, "status": {"conditions": [{**row, "reason": reason, "message": message}]}}


def pod(
    rank: int, code: int | None = None, *, deleted: str = "", disrupted: str = "", reason: str = "", message: str = ""
) -> dict[str, Any]:
    """A pod as the API server shows it; `deleted` is when it was asked to go, with a grace of 30 s."""
    name = f"train-1-worker-0-{rank}-x8k2j"
    labels = {"batch.kubernetes.io/job-completion-index": str(rank), "jobset.sigs.k8s.io/replicatedjob-name": "worker"}
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{rank}", "labels": labels}
    if deleted:
        metadata.update(deletionTimestamp=deleted, deletionGracePeriodSeconds=30)
    state: dict[str, Any] = {"running": {}}
    phase = "Running"
    if code is not None:
        phase = "Failed" if code else "Succeeded"
        why = reason or ("Error" if code else "Completed")
        state = {"terminated": {"exitCode": code, "reason": why, "finishedAt": FAILED_AT}}
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": disrupted}] if disrupted else []
    status = {"phase": phase, "conditions": conditions, "containerStatuses": [{"name": "main", "state": state}]}
    return {"metadata": metadata, "status": {**status, **({"message": message} if message else {})}}


def workload(reason: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Evicted", "status": "True", "reason": reason, "message": "words"}]}}


BEFORE, AFTER = "2026-11-17T01:00:20Z", "2026-11-17T01:00:31Z"
"""The deletion timestamps of pods that were deleted before a Job failed, and after it: less 30 s of grace."""
SURVIVORS = [pod(0, 75, deleted=AFTER), pod(2, 143, deleted=AFTER)]
SENTENCE = (
    "Container main for pod nlp/train-1-worker-0-1-x8k2j failed with exit code {} matching FailJob rule at index 0"
)
GONE = "Pod nlp/train-1-worker-0-2-x8k2j has condition DisruptionTarget matching FailJob rule at index 1"

ROWS: dict[str, tuple[list[Any], list[Any], Any, str, int | None]] = {
    "rank 2 disrupted": ([job("PodFailurePolicy", GONE)], [pod(2, 143, disrupted="EvictionByEvictionAPI")], None,
                         INTERRUPTED, None),
    "disrupted, and the pods are gone": ([job("PodFailurePolicy", GONE)], [], None, INTERRUPTED, None),
    "rank 1 exits 79": ([job("PodFailurePolicy", SENTENCE.format(79))], [pod(1, 79), *SURVIVORS], None, FINAL, None),
    "79, and the pods are gone": ([job("PodFailurePolicy", SENTENCE.format(79))], [], None, FINAL, None),
    "rank 1 exits 75": ([job("PodFailurePolicy", SENTENCE.format(75))], [pod(1, 75)], None, INTERRUPTED, None),
    "rank 1 exits 78": ([job()], [pod(1, 78), *SURVIVORS], None, FINAL, None),
    "rank 1 exits 1": ([job()], [pod(1, 1), *SURVIVORS], None, RETRYABLE, 1),
    "rank 0 exits 1, then rank 2 is disrupted": (
        [job()], [pod(0, 1), pod(2, deleted=AFTER, disrupted="PreemptionByScheduler")], None, INTERRUPTED, None),
    "rank 0 exits 1 while rank 2 is being evicted": (
        [job()], [pod(0, 1), pod(2, deleted=BEFORE, disrupted="EvictionByEvictionAPI")], None, INTERRUPTED, None),
    "rank 0 exits 1 just before Kueue suspends": ([job()], [pod(0, 1)], workload("Preempted"), INTERRUPTED, None),
    "rank 2 was deleted by somebody": ([job()], [pod(0, 1), pod(2, 143, deleted=BEFORE)], None, INTERRUPTED, None),
    "rank 2 out of memory": ([job()], [pod(0, 1), pod(2, 137, reason="OOMKilled")], None, OUT_OF_MEMORY, None),
    "out of memory, seen late": (
        [job()], [pod(0, 1), pod(2, 137, reason="OOMKilled", deleted=AFTER)], None, OUT_OF_MEMORY, None),
    "over its disk limit, which is called an eviction": (
        [job("PodFailurePolicy", GONE)],
        [pod(2, 137, disrupted="TerminationByKubelet", message="Pod ephemeral local storage usage exceeds the total")],
        None, DISK_LIMIT, None),
    "too long": ([job("DeadlineExceeded", "Job was active longer than specified deadline")], SURVIVORS, None,
                 TIMED_OUT, 124),
    "the supervisor's timeout": ([job()], [pod(1, 124), *SURVIVORS], None, TIMED_OUT, 124),
    "two codes: the one that is no signal": ([job()], [pod(0, 134), pod(1, 3)], None, RETRYABLE, 3),
    "no pod is left that says why": ([job()], [], None, INTERRUPTED, None),
    "Kueue gave up": ([], [], workload("DeactivatedDueToRequeuingLimitExceeded"), FINAL, None),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_every_row(row: str) -> None:
    jobs, pods, evicted, outcome, code = ROWS[row]
    verdict = judge(jobset(), jobs, pods, evicted)
    assert verdict is not None
    assert (verdict.outcome, verdict.code) == (outcome, code), verdict


def test_what_goes_on_has_no_verdict() -> None:
    assert judge(jobset(), [], [pod(0), pod(1)]) is None
    assert judge(jobset("Suspended"), [], [], workload("Preempted")) is None
    assert judge(jobset(), [], [pod(0, 1)]) is None  # the Job controller has not said anything yet


def test_exit_0_of_all_ranks_is_no_success_until_the_jobset_says_so() -> None:
    pods = [pod(rank, 0) for rank in range(3)]
    assert judge(jobset(), [], pods) is None
    assert judge(jobset("Completed"), [], pods) == Verdict(SUCCEEDED, "the JobSet is completed")
    failed = judge(jobset("Failed"), [job()], pods)
    assert failed is not None and failed.outcome == INTERRUPTED


def test_a_jobset_that_somebody_deleted_is_an_interruption() -> None:
    for gone in (None, jobset("Failed", deletionTimestamp=FAILED_AT)):
        verdict = judge(gone, [job()], [pod(1, 1)])
        assert verdict is not None and verdict.outcome == INTERRUPTED


def test_a_pod_that_vanished_before_the_failure_is_an_interruption_and_one_after_it_is_not() -> None:
    pods = [pod(0, 1), pod(2)]
    lost = judge(jobset(), [job()], pods, gone={"uid-2"})
    assert lost is not None and (lost.outcome, lost.because) == (
        INTERRUPTED,
        "worker 2: the pod is gone, and left no word",
    )
    swept = judge(jobset(), [job()], [pod(0, 1), pod(2, deleted=AFTER)], gone={"uid-2"})
    assert swept is not None and (swept.outcome, swept.code) == (RETRYABLE, 1)


def test_the_steps_own_exit_codes() -> None:
    pods = [pod(0, 1), pod(1, 3)]
    final = judge(jobset(), [job()], pods, final_exit_codes=(3,))
    assert final is not None and (final.outcome, final.code) == (FINAL, 3)
    listed = judge(jobset(), [job()], [pod(1, 3)], retryable_exit_codes=(9,))
    assert listed is not None and (listed.outcome, listed.code) == (FINAL, 3)
    taken = judge(jobset(), [job()], [pod(1, 3), pod(2, 75)], final_exit_codes=(3,))
    assert taken is not None and taken.outcome == INTERRUPTED


ENDED = st.sampled_from([1, 2, 3, 124, 134, 137, 139])
FAILING = st.builds(
    lambda rank, code, oom, late: pod(rank, 137 if oom else code, reason="OOMKilled" if oom else "",
                                      deleted=AFTER if late else ""),
    st.integers(0, 7), ENDED, st.booleans(), st.booleans(),
)  # fmt: skip
SIGNS = st.sampled_from(["disrupted", "sentence", "workload", "75", "sentence 75", "vanished", "deleted"])


@given(st.lists(FAILING, max_size=4), SIGNS, st.randoms())
def test_no_sign_of_an_interruption_ever_becomes_a_failure(pods: list[Any], sign: str, random: Any) -> None:
    jobs, evicted, gone = [job()], None, set()
    if sign == "disrupted":
        pods.append(pod(8, random.choice([None, 1, 143]), disrupted="PreemptionByScheduler"))
    elif sign == "sentence":
        jobs = [job("PodFailurePolicy", GONE.replace("-2-", "-8-"))]
    elif sign == "sentence 75":
        jobs = [job("PodFailurePolicy", SENTENCE.format(75))]
    elif sign == "workload":
        evicted = workload("Preempted")
    elif sign == "75":
        pods.append(pod(8, 75))
    elif sign == "vanished":
        pods.append(pod(8))
        gone = {"uid-8"}
    else:
        pods.append(pod(8, random.choice([75, 137, 143]), deleted=BEFORE))
    random.shuffle(pods)
    verdict = judge(jobset(), jobs, pods, evicted, gone=gone, final_exit_codes=(1, 3), retryable_exit_codes=(2,))
    assert verdict is not None and verdict.outcome == INTERRUPTED, verdict


ANY = st.builds(
    pod, st.integers(0, 7), st.one_of(st.none(), st.sampled_from([0, 1, 2, 75, 78, 79, 124, 137, 143])),
    deleted=st.sampled_from(["", BEFORE, AFTER]), disrupted=st.sampled_from(["", "", "DeletionByPodGC"]),
)  # fmt: skip


@given(
    st.lists(ANY, max_size=5),
    st.lists(st.sampled_from([job(), job("PodFailurePolicy", GONE)]), max_size=2),
    st.randoms(),
)
def test_the_order_of_the_evidence_has_no_part(pods: list[Any], jobs: list[Any], random: Any) -> None:
    first = judge(jobset("Failed"), jobs, pods)
    random.shuffle(pods)
    random.shuffle(jobs)
    assert judge(jobset("Failed"), jobs, pods) == first


@given(st.lists(ANY, max_size=5))
def test_nothing_but_the_jobsets_own_word_is_a_success(pods: list[Any]) -> None:
    verdict = judge(jobset("Failed"), [job()], pods)
    assert verdict is not None and verdict.outcome in (INTERRUPTED, *FAILURES)


def test_an_index_of_other_digits_is_no_rank() -> None:
    labels = {JOBSET.rank: "²", JOBSET.role: "workers"}
    strange = {"metadata": {"labels": labels}, "spec": {"nodeName": "n"}}
    assert attempt_verdict._node_of_rank([strange], 2, JOBSET, {"workers": 0}) is None
