"""What happened to a pod: one table from what Kubernetes and the engines say to one of eight outcomes.

The supervisor, the Airflow operator, the Argo expressions and the checker all ask here, so that an interruption is
never counted as a failure in one place and as a success in another. Rows are tried from the top; the first that
matches decides. A row with several tests needs all of them.

A row never believes what the program can write. `messages` holds what the kubelet, the API server and the engine say;
the container's termination message is kept apart as `said`. Argo puts both into one sentence, which `from_argo` takes
apart again.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, NamedTuple  # noqa: UP035 (runs on Python 3.8)

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


class Evidence(NamedTuple):
    """What is known about a pod. Anything may be missing: engines see different parts of it."""

    phase: str | None = None
    """The pod's phase (`Failed`), or the engine's word for the node (`Error`)."""
    reason: str | None = None
    """`status.reason` of the pod: `Evicted`, `Terminated`, `DeadlineExceeded`, `OutOfcpu` …"""
    messages: tuple[str, ...] = ()
    """`status.message` of the pod, the engine's own sentence: nothing that the program can write."""
    said: str | None = None
    """The container's termination message: the program's own text, or the runtime's. Only one row looks at it."""
    conditions: tuple[str, ...] = ()
    """True conditions as `Type/Reason`: `DisruptionTarget/PreemptionByScheduler`."""
    exit_code: int | None = None
    """The main container's."""
    container_reason: str | None = None
    """Why the main container waits or ended: `OOMKilled`, `ImagePullBackOff`, `ContainerStatusUnknown` …"""
    deleted: bool = False
    """The pod object is gone (404)."""
    supervised: bool = False
    """The command ran under gpuflow-run, so 0 means that a success marker was written."""


class Row(NamedTuple):
    """One line of the table: an outcome, why, and the regular expressions that must all be found."""

    outcome: str
    because: str
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    said: str | None = None
    condition: str | None = None
    container: str | None = None
    exit_codes: tuple[int | None, ...] | None = None
    deleted: bool | None = None
    supervised: bool | None = None

    def matches(self, seen: Evidence) -> bool:
        """Whether everything this row asks for is there."""
        return (
            _matches_any(self.phase, [seen.phase])
            and _matches_any(self.reason, [seen.reason])
            and _matches_any(self.message, seen.messages)
            and _matches_any(self.said, [seen.said])
            and _matches_any(self.condition, seen.conditions)
            and _matches_any(self.container, [seen.container_reason])
            and (self.exit_codes is None or seen.exit_code in self.exit_codes)
            and (self.deleted is None or self.deleted == seen.deleted)
            and (self.supervised is None or self.supervised == seen.supervised)
        )


class Verdict(NamedTuple):
    """An outcome and the reason for it, in words for a person."""

    outcome: str
    because: str


def _matches_any(pattern: str | None, texts: Iterable[str | None]) -> bool:
    return pattern is None or any(text and re.search(pattern, text) for text in texts)


_NONE = (None,)
"""No exit code: the words are the engine's or Kubernetes', and cannot be the program's own."""

_NOT_WELL = (None, *range(1, 256))
"""Any end but 0."""

TABLE: tuple[Row, ...] = (
    # The supervisor's own codes say more than anything around them, except about who told it to stop.
    Row(FINAL, "the supervisor says: do not start it again", exit_codes=(EXIT_FINAL,)),
    Row(RETRYABLE, "the supervisor could not work", exit_codes=(EXIT_RUNTIME,)),
    Row(TIMED_OUT, "the supervisor ended it after its timeout", exit_codes=(EXIT_TIMED_OUT,), supervised=True),
    Row(SUCCEEDED, "the success marker was written", exit_codes=(0,), supervised=True),
    # Its own fault, though Kubernetes calls it an eviction or a deadline, and the supervisor was told to stop.
    Row(DISK_LIMIT, "it was over its own disk limit", message="^Usage of EmptyDir volume .* exceeds the limit"),
    Row(DISK_LIMIT, "it was over its own disk limit", message="^Pod ephemeral local storage usage exceeds"),
    Row(DISK_LIMIT, "it was over its own disk limit", message=r"^Container \S+ exceeded its local ephemeral"),
    Row(TIMED_OUT, "it ran longer than it may", reason="^DeadlineExceeded$"),
    Row(TIMED_OUT, "it ran longer than it may", message="^Pod was active on the node longer than the specified"),
    Row(TIMED_OUT, "its workflow ran longer than it may", message="^Step exceeded its deadline$"),
    Row(INTERRUPTED, "the supervisor was told to stop", exit_codes=(EXIT_INTERRUPTED,)),
    # Rejected or refused before the program ran.
    Row(NEVER_STARTED, "the node was shutting down", reason="^NodeShutdown$"),
    Row(
        NEVER_STARTED,
        "the node was shutting down",
        message="^Pod was rejected as the node is shutting down",
        exit_codes=_NONE,
    ),
    Row(NEVER_STARTED, "the kubelet refused it", reason="^(OutOf|UnexpectedAdmissionError$|NodeAffinity$)"),
    Row(NEVER_STARTED, "the quota is used up", message="is forbidden: exceeded quota", exit_codes=_NONE),
    Row(
        NEVER_STARTED,
        "a quota wants requests or limits that are missing",
        message="is forbidden: failed quota",
        exit_codes=_NONE,
    ),
    Row(
        NEVER_STARTED,
        "the API server refused it",
        message=r"is forbidden: |\(403\)\s*Reason: Forbidden",
        exit_codes=_NONE,
    ),
    Row(NEVER_STARTED, "no node fits", message=r"^Unschedulable: |\bnodes are available: ", exit_codes=_NONE),
    Row(NEVER_STARTED, "the image cannot be had", container="^(ErrImage.*|ImagePullBackOff|InvalidImageName)$"),
    Row(NEVER_STARTED, "the container cannot be made", container="^CreateContainer(Config)?Error$"),
    Row(NEVER_STARTED, "a container could not be started", message=r"^Pod failed before \S+ container starts due to "),
    Row(NEVER_STARTED, "an init container did not end well", message=r"^init: \w+ \(exit code \d+\)", exit_codes=_NONE),
    Row(
        NEVER_STARTED,
        "it waited too long for a node",
        message=r"took (too long|longer than .*) to (start|be sched)",
        exit_codes=_NONE,
    ),
    # Taken away.
    Row(INTERRUPTED, "a pod of higher priority took its place", condition="^DisruptionTarget/PreemptionByScheduler$"),
    Row(INTERRUPTED, "it was evicted or its node drained", condition="^DisruptionTarget/EvictionByEvictionAPI$"),
    Row(INTERRUPTED, "a NoExecute taint came over its node", condition="^DisruptionTarget/DeletionByTaintManager$"),
    Row(INTERRUPTED, "its node vanished", condition="^DisruptionTarget/DeletionByPodGC$"),
    Row(INTERRUPTED, "its node ran out of something or shut down", condition="^DisruptionTarget/TerminationByKubelet$"),
    Row(INTERRUPTED, "it was disrupted", condition="^DisruptionTarget/"),
    Row(INTERRUPTED, "Kueue took its quota back", condition="^(TerminationTarget|Evicted|Preempted)/"),
    Row(INTERRUPTED, "its node ran out of something", reason="^Evicted$"),
    Row(INTERRUPTED, "its node ran out of something", message="^The node (was low on resource|had condition): "),
    Row(INTERRUPTED, "its node shut down", reason="^(Terminated|Shutdown)$"),
    Row(INTERRUPTED, "its node shut down", message="^Pod was terminated in response to imminent node shutdown"),
    Row(INTERRUPTED, "a critical pod took its place", reason="^Preempting$"),
    Row(INTERRUPTED, "a critical pod took its place", message="^Preempted in order to admit critical pod"),
    Row(INTERRUPTED, "its node cannot be reached", reason="^NodeLost$"),
    Row(INTERRUPTED, "its node cannot be reached", phase="^Unknown$"),
    # The program's memory. Below the disruptions: a node that runs out of memory also kills with OOMKilled.
    # A runtime says OOMKilled also where only a child was killed: a program that then ends with 0 has coped.
    Row(OUT_OF_MEMORY, "it was over its memory limit", container="^OOMKilled$", exit_codes=_NOT_WELL),
    # Of the containers that Argo names, the other one of its own is `wait`.
    Row(OUT_OF_MEMORY, "it was over its memory limit", message=r"^(?!wait: )[-a-z0-9]+: OOMKilled \(exit code \d+\)$"),
    # The program could not be started at all: another attempt will not help.
    # Argo's executor says it in the container's place: there is nothing else to tell it by.
    Row(FINAL, "the command was not found", said="^failed to find name in PATH", exit_codes=(64,)),
    Row(FINAL, "the command could not be started", container="^(StartError|ContainerCannotRun)$"),
    # Gone without a word.
    Row(INTERRUPTED, "the pod was lost with its node", container="^ContainerStatusUnknown$"),
    Row(INTERRUPTED, "the pod was lost with its node", message=r"^[-a-z0-9]+: ContainerStatusUnknown \("),
    Row(INTERRUPTED, "the pod was lost with its node", message="^pod failed: neither main nor wait container"),
    Row(INTERRUPTED, "the pod was deleted", message="^pod deleted$"),
    Row(
        INTERRUPTED,
        "the pod was deleted",
        message=r"PodNotFoundException|\(404\)\s*Reason: Not Found",
        exit_codes=_NONE,
    ),
    Row(INTERRUPTED, "the pod was deleted", deleted=True, exit_codes=(None,)),
    Row(INTERRUPTED, "it was told to stop and stopped", exit_codes=(143,)),
    Row(INTERRUPTED, "it was told to stop and did not", deleted=True, exit_codes=(137,)),
    Row(INTERRUPTED, "it was told to stop, and 0 then proves nothing", deleted=True, exit_codes=(0,)),
    # It ended by itself.
    Row(RETRYABLE, "it left no output", message=r"^wait: Error \(exit code 64\)$"),
    Row(SUCCEEDED, "it ended well", phase="^Succeeded$", exit_codes=(0, None)),
    Row(RETRYABLE, "it was killed", exit_codes=(137,)),
    Row(RETRYABLE, "it failed", exit_codes=tuple(range(1, 256))),
    Row(RETRYABLE, "it failed", phase="^(Failed|Error)$"),
    Row(SUCCEEDED, "it ended well", exit_codes=(0,)),
    Row(NEVER_STARTED, "it waits to be admitted or scheduled", phase="^Pending$"),
)


def judge(
    seen: Evidence, *, final_exit_codes: Iterable[int] = (), retryable_exit_codes: Iterable[int] | None = None
) -> Verdict | None:
    """The verdict of the table, or None while nothing has ended. A step's own exit codes sharpen *failed*."""
    row = next((row for row in TABLE if row.matches(seen)), None)
    if row is None:
        return None
    if row.outcome == RETRYABLE and seen.exit_code not in (None, 0, EXIT_RUNTIME):
        if seen.exit_code in tuple(final_exit_codes):
            return Verdict(FINAL, f"the step calls exit code {seen.exit_code} final")
        if retryable_exit_codes is not None and seen.exit_code not in tuple(retryable_exit_codes):
            return Verdict(FINAL, f"the step does not list exit code {seen.exit_code} as retryable")
    return Verdict(row.outcome, row.because)


def from_pod(
    pod: Mapping[str, Any] | None, container: str = "main", *, messages: Iterable[str] = (), supervised: bool = False
) -> Evidence:
    """What a pod manifest says about its main container; None is a pod that the API server no longer knows."""
    if pod is None:
        return Evidence(messages=tuple(messages), deleted=True, supervised=supervised)
    status = pod.get("status") or {}
    states = [s for s in status.get("containerStatuses") or () if s.get("name") == container]
    if not states:
        states = list(status.get("containerStatuses") or ())[:1]
    state: Mapping[str, Any] = (states[0].get("state") or {}) if states else {}
    ended, waiting = state.get("terminated") or {}, state.get("waiting") or {}
    texts = (status.get("message"), waiting.get("message"), *messages)
    return Evidence(
        phase=status.get("phase"),
        reason=status.get("reason"),
        messages=tuple(text for text in texts if text),
        said=ended.get("message") or None,
        conditions=tuple(
            f"{c.get('type')}/{c.get('reason') or ''}"
            for c in status.get("conditions") or ()
            if c.get("status") == "True"
        ),
        exit_code=ended.get("exitCode"),
        container_reason=ended.get("reason") or waiting.get("reason"),
        deleted=bool((pod.get("metadata") or {}).get("deletionTimestamp")),
        supervised=supervised,
    )


_ARGO = re.compile(r"([a-z0-9](?:[-a-z0-9]*[a-z0-9])?): (\S*) \(exit code (\d+)\)(?:: (.*))?", re.DOTALL)
"""`<container>: <reason> (exit code N): <termination message>`, as Argo's inferFailedReason writes it (4.0.2)."""


def from_argo(phase: str | None, message: str | None, exit_code: int | None, *, supervised: bool = False) -> Evidence:
    """What an Argo node records. Argo writes `main: <reason> (exit code N)` where it read the container's status.

    After that comes the container's termination message, which is the program's: it is kept apart. Where the pod has
    a message of its own, Argo takes that instead, and the program has no part in it.
    """
    seen = Evidence(phase=phase, messages=(message,) if message else (), exit_code=exit_code, supervised=supervised)
    if (parts := _ARGO.fullmatch(message or "")) is None:
        return seen
    container, reason, code, said = parts.groups()
    seen = seen._replace(messages=(f"{container}: {reason} (exit code {code})",), said=said)
    if container == "main":
        seen = seen._replace(container_reason=reason or None, exit_code=exit_code or int(code))
    return seen
