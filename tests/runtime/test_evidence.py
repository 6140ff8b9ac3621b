"""The evidence table against what Kubernetes, Argo and Airflow were really seen to say.

Tests gpuflow/runtime/base/outcomes.py and gpuflow/runtime/supervise/evidence.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.runtime.base import outcomes
from gpuflow.runtime.base.outcomes import (
    DISK_LIMIT,
    FINAL,
    INTERRUPTED,
    NEVER_STARTED,
    OUT_OF_MEMORY,
    OUTCOMES,
    RETRYABLE,
    SUCCEEDED,
    TIMED_OUT,
)
from gpuflow.runtime.supervise import evidence
from gpuflow.runtime.supervise.evidence import Evidence, from_argo, from_pod, judge

INIT_LOST = (
    "init: ContainerStatusUnknown (exit code 137): The container could not be located when the pod was terminated"
)
ARGO = [
    ("exit 1", "Failed", 1, "main: Error (exit code 1)", RETRYABLE),
    ("exit 75", "Failed", 75, "main: Error (exit code 75)", INTERRUPTED),
    ("exit 79", "Failed", 79, "main: Error (exit code 79)", FINAL),
    ("exit 78", "Failed", 78, "main: Error (exit code 78)", RETRYABLE),
    ("own SIGKILL", "Failed", 137, "main: Error (exit code 137)", RETRYABLE),
    ("memory limit", "Failed", 137, "main: OOMKilled (exit code 137)", OUT_OF_MEMORY),
    ("graceful delete, captured", "Failed", 143, "main: Error (exit code 143)", INTERRUPTED),
    ("graceful delete, not captured", "Error", None, "pod deleted", INTERRUPTED),
    ("deleted during init", "Error", None, "init: Error (exit code 2)", NEVER_STARTED),
    ("lost during init", "Error", None, INIT_LOST, NEVER_STARTED),
    ("emptyDir limit", "Failed", 143, 'Usage of EmptyDir volume "s" exceeds the limit "1Mi". ', DISK_LIMIT),
    (
        "container's disk limit",
        "Failed",
        137,
        'Container main exceeded its local ephemeral storage limit "1Gi". ',
        DISK_LIMIT,
    ),
    ("deadline", "Failed", 143, "Pod was active on the node longer than the specified deadline", TIMED_OUT),
    ("deadline, supervised", "Failed", 75, "Pod was active on the node longer than the specified deadline", TIMED_OUT),
    ("disk limit, supervised", "Failed", 75, 'Usage of EmptyDir volume "s" exceeds the limit "1Mi". ', DISK_LIMIT),
    ("the workflow's deadline", "Failed", None, "Step exceeded its deadline", TIMED_OUT),
    ("out of memory, with last words", "Failed", 137, "main: OOMKilled (exit code 137): epoch 3", OUT_OF_MEMORY),
    ("out of memory, exit code unknown", "Failed", None, "main: OOMKilled (exit code 137)", OUT_OF_MEMORY),
    ("the executor's own memory", "Error", 0, "wait: OOMKilled (exit code 137)", RETRYABLE),
    (
        "virtual kubelet",
        "Error",
        None,
        "Pod failed before main container starts due to CreateContainerError: x",
        NEVER_STARTED,
    ),
    (
        "node loss, captured",
        "Failed",
        None,
        "pod failed: neither main nor wait container completed successfully",
        INTERRUPTED,
    ),
    (
        "missing output",
        "Error",
        0,
        "wait: Error (exit code 64): open /var/run/argo/outputs/parameters/loss: no such file or directory",
        RETRYABLE,
    ),
    ("command not found", "Failed", 64, "main: Error (exit code 64): failed to find name in PATH: exec: trian", FINAL),
    (
        "unschedulable",
        "Pending",
        None,
        "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: none",
        NEVER_STARTED,
    ),
    (
        "quota",
        "Pending",
        None,
        'pods "p" is forbidden: exceeded quota: gpuq, requested: requests.nvidia.com/gpu=1, used: 1, limited: 1',
        NEVER_STARTED,
    ),
    (
        "quota wants a limit",
        "Error",
        None,
        'pods "p" is forbidden: failed quota: q3: must specify limits.memory for: main',
        NEVER_STARTED,
    ),
    ("Kueue gate", "Pending", None, None, NEVER_STARTED),
    ("node shutdown", "Failed", None, "Pod was terminated in response to imminent node shutdown.", INTERRUPTED),
    ("critical pod", "Failed", 137, "Preempted in order to admit critical pod", INTERRUPTED),
    ("node pressure", "Failed", None, "The node was low on resource: memory. Container main was using", INTERRUPTED),
    ("node condition", "Failed", None, "The node had condition: [DiskPressure]. ", INTERRUPTED),
    ("ended well", "Succeeded", 0, None, SUCCEEDED),
]


@pytest.mark.parametrize(("phase", "code", "message", "outcome"), [row[1:] for row in ARGO], ids=[r[0] for r in ARGO])
def test_what_argo_records_gets_its_outcome(phase: str, code: int | None, message: str | None, outcome: str) -> None:
    verdict = judge(from_argo(phase, message, code))
    assert verdict is not None
    assert verdict.outcome == outcome


def _pod(
    phase: str = "Failed",
    reason: str | None = None,
    message: str | None = None,
    disruption: str | None = None,
    exit_code: int | None = None,
    container: str | None = None,
    deleted: bool = False,
) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": phase, "reason": reason, "message": message, "conditions": []}
    if disruption:
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": disruption}]
    state: dict[str, Any] = {}
    if exit_code is not None:
        state = {"terminated": {"exitCode": exit_code, "reason": container or "Error"}}
    elif container is not None:
        state = {"waiting": {"reason": container}}
    status["containerStatuses"] = [
        {"name": "helper", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        {"name": "main", "state": state},
    ]
    return {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}, "status": status}


SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
PODS = [
    ("scheduler preemption", _pod(disruption="PreemptionByScheduler", exit_code=143, deleted=True), INTERRUPTED),
    ("drain, TERM ignored", _pod(disruption="EvictionByEvictionAPI", exit_code=137, deleted=True), INTERRUPTED),
    ("taint", _pod(disruption="DeletionByTaintManager", exit_code=143, deleted=True), INTERRUPTED),
    ("node vanished", _pod(disruption="DeletionByPodGC"), INTERRUPTED),
    (
        "node pressure",
        _pod(
            reason="Evicted",
            message="The node was low on resource: memory.",
            disruption="TerminationByKubelet",
            exit_code=137,
        ),
        INTERRUPTED,
    ),
    (
        "node shutdown",
        _pod(reason="Terminated", message=SHUTDOWN, disruption="TerminationByKubelet", exit_code=143),
        INTERRUPTED,
    ),
    (
        "node pressure that also kills for memory",
        _pod(reason="Evicted", disruption="TerminationByKubelet", exit_code=137, container="OOMKilled"),
        INTERRUPTED,
    ),
    (
        "rejected by a node that shuts down",
        _pod(reason="NodeShutdown", message="Pod was rejected as the node is shutting down."),
        NEVER_STARTED,
    ),
    ("no cpu left", _pod(reason="OutOfcpu"), NEVER_STARTED),
    ("no gpu left", _pod(reason="OutOfnvidia.com/gpu"), NEVER_STARTED),
    ("admission", _pod(reason="UnexpectedAdmissionError"), NEVER_STARTED),
    ("affinity", _pod(reason="NodeAffinity"), NEVER_STARTED),
    ("unreachable", _pod(phase="Unknown", reason="NodeLost"), INTERRUPTED),
    ("memory limit", _pod(exit_code=137, container="OOMKilled"), OUT_OF_MEMORY),
    ("deadline", _pod(reason="DeadlineExceeded", exit_code=143), TIMED_OUT),
    (
        "own disk limit",
        _pod(
            reason="Evicted",
            exit_code=137,
            message="Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
        ),
        DISK_LIMIT,
    ),
    ("Kueue deleted it", _pod(exit_code=143, deleted=True), INTERRUPTED),
    ("TERM caught, exit 0, deleted", _pod(phase="Succeeded", exit_code=0, deleted=True), INTERRUPTED),
    (
        "TERM caught, exit 0, preempted",
        _pod(phase="Succeeded", exit_code=0, disruption="PreemptionByScheduler"),
        INTERRUPTED,
    ),
    ("image", _pod(phase="Pending", container="ImagePullBackOff"), NEVER_STARTED),
    ("no such program", _pod(exit_code=128, container="StartError"), FINAL),
    ("status lost", _pod(exit_code=137, container="ContainerStatusUnknown"), INTERRUPTED),
    ("ended well", _pod(phase="Succeeded", exit_code=0), SUCCEEDED),
    ("gone", None, INTERRUPTED),
]


@pytest.mark.parametrize(("pod", "outcome"), [row[1:] for row in PODS], ids=[row[0] for row in PODS])
def test_what_a_pod_says_gets_its_outcome(pod: dict[str, Any] | None, outcome: str) -> None:
    verdict = judge(from_pod(pod))
    assert verdict is not None
    assert verdict.outcome == outcome


def test_zero_after_a_deletion_is_success_only_when_a_supervisor_vouches_for_it() -> None:
    pod = _pod(phase="Succeeded", exit_code=0, deleted=True)
    plain, supervised = judge(from_pod(pod)), judge(from_pod(pod, supervised=True))
    assert plain is not None
    assert supervised is not None
    assert (plain.outcome, supervised.outcome) == (INTERRUPTED, SUCCEEDED)


AIRFLOW = [
    ("PodNotFoundException: Pod not found", INTERRUPTED),
    ("(404)\nReason: Not Found\nHTTP response headers: …", INTERRUPTED),
    ("Pod took longer than 120 seconds to start.", NEVER_STARTED),
    ('(403)\nReason: Forbidden\npods "t" is forbidden: exceeded quota: gpuq, requested: pods=1', NEVER_STARTED),
]


@pytest.mark.parametrize(("message", "outcome"), AIRFLOW)
def test_what_airflow_raises_gets_its_outcome(message: str, outcome: str) -> None:
    verdict = judge(Evidence(messages=(message,)))
    assert verdict is not None
    assert verdict.outcome == outcome


def test_a_running_pod_has_no_outcome_yet() -> None:
    assert judge(from_pod(_pod(phase="Running"))) is None


def test_exit_codes_the_step_calls_final_are_final() -> None:
    verdict = judge(from_pod(_pod(exit_code=2)), final_exit_codes=(2, 3))
    assert verdict == (FINAL, "the step calls exit code 2 final")


def test_exit_codes_outside_the_retryable_list_are_final() -> None:
    listed = judge(from_pod(_pod(exit_code=9)), retryable_exit_codes=(9,))
    unlisted = judge(from_pod(_pod(exit_code=8)), retryable_exit_codes=(9,))
    assert listed is not None
    assert unlisted is not None
    assert (listed.outcome, unlisted.outcome) == (RETRYABLE, FINAL)


def test_a_final_exit_code_does_not_hide_an_interruption() -> None:
    pod = _pod(exit_code=143, disruption="PreemptionByScheduler")
    verdict = judge(from_pod(pod), final_exit_codes=(143,))
    assert verdict is not None
    assert verdict.outcome == INTERRUPTED


@given(
    st.sampled_from(["Failed", "Error"]),
    st.one_of(st.none(), st.integers(1, 255)),
    st.one_of(st.none(), st.text(max_size=60)),
    st.booleans(),
)
def test_what_did_not_succeed_is_never_green(
    phase: str, code: int | None, message: str | None, supervised: bool
) -> None:
    verdict = judge(from_argo(phase, message, code, supervised=supervised))
    assert verdict is not None
    assert verdict.outcome in OUTCOMES
    assert verdict.outcome != SUCCEEDED


def test_the_timeout_of_the_supervisor_is_a_failure_that_no_exit_code_of_the_step_makes_final() -> None:
    pod = _pod(exit_code=124)
    verdict = judge(from_pod(pod, supervised=True), final_exit_codes=(124,), retryable_exit_codes=(1,))
    assert verdict is not None
    assert verdict.outcome == TIMED_OUT
    plain = judge(from_pod(pod))
    assert plain is not None
    assert plain.outcome == RETRYABLE


# -- what the program can write

WORDS = [
    "OOMKilled",
    "main: OOMKilled (exit code 137)",
    "Evicted",
    "DeadlineExceeded",
    "pod deleted",
    "Step exceeded its deadline",
    "Pod was active on the node longer than the specified deadline",
    'Usage of EmptyDir volume "s" exceeds the limit "1Mi". ',
    "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
    'Container main exceeded its local ephemeral storage limit "1Gi". ',
    "The node was low on resource: memory. ",
    "Pod was terminated in response to imminent node shutdown.",
    "Pod was rejected as the node is shutting down.",
    'pods "p" is forbidden: exceeded quota: q',
    "(403)\nReason: Forbidden",
    "(404)\nReason: Not Found",
    "PodNotFoundException",
    "Unschedulable: 0/1 nodes are available: 1",
    "Pod took longer than 120 seconds to start.",
    "init: Error (exit code 2)",
    "wait: Error (exit code 64)",
    "main: ContainerStatusUnknown (exit code 137)",
    "pod failed: neither main nor wait container completed successfully",
    "Pod failed before main container starts due to CreateContainerError: x",
]
HOSTILE = st.lists(
    st.one_of(st.sampled_from([*WORDS, "\n", ": ", " (exit code 137)", "\r"]), st.text(max_size=8)), max_size=5
)
REASONS = st.sampled_from(["Error", "OOMKilled", "ContainerStatusUnknown", ""])
CODES = st.sampled_from([1, 2, 75, 78, 79, 124, 137, 139, 143, 255])


@given(st.sampled_from(["Failed", "Error"]), REASONS, CODES, st.booleans(), st.booleans(), HOSTILE.map("".join))
def test_a_termination_message_changes_nothing_that_argo_says(
    phase: str, reason: str, code: int, known: bool, supervised: bool, said: str
) -> None:
    sentence, exit_code = f"main: {reason} (exit code {code})", code if known else None
    quiet = judge(from_argo(phase, sentence, exit_code, supervised=supervised))
    loud = judge(from_argo(phase, f"{sentence}: {said}", exit_code, supervised=supervised))
    assert quiet is not None
    assert loud == quiet


@given(st.sampled_from(["Failed", "Succeeded"]), REASONS, CODES, st.booleans(), st.booleans(), HOSTILE.map("".join))
def test_a_termination_message_changes_nothing_that_a_pod_says(
    phase: str, reason: str, code: int, deleted: bool, supervised: bool, said: str
) -> None:
    pod = _pod(phase=phase, exit_code=code, container=reason, deleted=deleted)
    quiet = judge(from_pod(pod, supervised=supervised))
    pod["status"]["containerStatuses"][1]["state"]["terminated"]["message"] = said
    assert judge(from_pod(pod, supervised=supervised)) == quiet


@pytest.mark.parametrize("word", WORDS)
def test_each_sentence_of_the_kubelet_means_nothing_in_a_programs_mouth(word: str) -> None:
    verdict = judge(from_argo("Failed", f"main: Error (exit code 1): {word}", None, supervised=True))
    assert verdict == (RETRYABLE, "it failed")


def test_every_row_names_a_known_outcome_and_asks_for_something() -> None:
    for row in evidence.TABLE:
        assert row.outcome in OUTCOMES
        assert any(value is not None for value in row[2:]), row


def test_a_program_that_outlives_a_killed_child_has_ended_well() -> None:
    state = {"terminated": {"exitCode": 0, "reason": "OOMKilled"}}
    pod = {"status": {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": state}]}}
    verdict = evidence.judge(evidence.from_pod(pod))
    assert verdict is not None and verdict.outcome == outcomes.SUCCEEDED
