"""Runs over time: deadlines, later attempts, and runs of one pipeline that overlap.

Argo gives every pod of a run with a deadline what is left of it as `activeDeadlineSeconds`, except those of exit
steps. Such pods are Terminating to a quota with scopes. Kubeflow runs on Argo and does the same; Airflow does not.

The pods of later attempts may differ from the first: with more memory after running out of it, off spot nodes after
losing some. The worst moment is that of the first attempts; those that follow must find room as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gpuflow.checker.report import LimitLine, Outcome, Verdict, worst_verdict
from gpuflow.core.errors import Finding, Severity, list_names, warning
from gpuflow.demands import Demand
from gpuflow.demands.model import LaterAttempts, Pod
from gpuflow.engines import facts_of
from gpuflow.kubernetes.labels import QUEUE_LABEL


def with_deadline(demand: Demand) -> Demand:
    """The demand with the pods as the engine will create them."""
    deadline = demand.deadline
    if deadline is None or not facts_of(demand.engine).writes_active_deadline:
        return demand

    def pod_with_deadline(pod: Pod) -> Pod:
        return {**pod, "spec": {"activeDeadlineSeconds": deadline.seconds, **pod["spec"]}}

    return demand.with_pods(pod_with_deadline, but_exit=True)


def deadline_counts_waiting(demand: Demand, lines: Sequence[LimitLine]) -> Iterator[Finding]:
    """A deadline while something may wait: it runs on in the queue, on every engine.

    A step's own timeout is the pod's activeDeadlineSeconds, which the kubelet counts from the start of the pod.
    """
    deadline = demand.deadline
    queued = [step.name for step in demand.steps if QUEUE_LABEL in step.pod["metadata"].get("labels", {})]
    short = [scope for scope in lines if scope.verdict == "may-queue"]
    if deadline is None or not (queued or short):
        return
    held = list(dict.fromkeys(name for scope in short for name in scope.witness))
    who = f"{list_names(held)} may have to wait" if held else f"{list_names(queued)} may wait in a queue"
    yield Finding(
        "GF552",
        f"the deadline of {deadline.text} keeps running while {who}",
        deadline.where,
        "allow for waiting in the deadline, or limit the steps with timeout, which counts only while a pod runs",
        severity="warning" if short else "note",
    )


LATER_OUTCOMES: dict[Verdict, str] = {
    "may-queue": "may have to wait",
    "unknown": "is not known to find room",
    "never": "can never be admitted",
}

LATER_HINT: Final = "make room for that attempt too, or take the policy out of retry or spot"


def later_outcome(
    first: Outcome,
    demand: Demand,
    check: Callable[[Demand], Outcome],
    hint: Callable[[LaterAttempts], str | None] = lambda _: None,
) -> Outcome:
    """What later attempts add to the outcome of the first. None of them is sure to come, so that none means *never*."""
    verdicts: list[Verdict] = []
    findings = []
    for later in demand.later:
        outcome = check(demand.at_later(later))
        if worst_verdict((first.verdict, outcome.verdict)) == first.verdict:
            continue
        verdicts.append("unknown" if outcome.verdict == "unknown" else "may-queue")
        known = {(each.code, each.message) for each in first.findings}
        new = [each for each in outcome.findings if (each.code, each.message) not in known and each.severity != "note"]
        reasons = [f"{each.code} {each.message}" for each in new]
        findings.append(
            warning(
                "GF525",
                f"{list_names(later.steps)}: {later.when}, a later attempt {LATER_OUTCOMES[outcome.verdict]}",
                demand.where(later.steps[0]),
                "\n".join((*reasons[:2], hint(later) or LATER_HINT)),
                kubernetes=next((each.kubernetes for each in new if each.kubernetes), None),
            )
        )
    return Outcome(worst_verdict(verdicts), findings=tuple(findings))


def avoided_node_counts(demand: Demand) -> dict[str, int]:
    """Of each step that tries again on another node, how many nodes its last attempt keeps away from."""
    return {step.name: step.nodes_avoided for step in demand.steps if step.nodes_avoided}


UNBOUNDED_RUNS: Final = 2**20
"""So many runs stand for any number of them."""
OVERLAP_HINT: Final = "{one} allows one only; --runs N says how many there really are at once"


def count_runs(demand: Demand, asked: int | None) -> int:
    """How many runs a check counts: as many as were asked for, else as many as the engine has active at once.

    Where nothing bounds them it is one, and `overlap_outcome` says what more would meet.
    """
    if asked is not None:
        return asked
    return (demand.overlap.at_most if demand.overlap is not None else None) or 1


def overlap_outcome(first: Outcome, demand: Demand, asked: int | None, check: Callable[[int], Outcome]) -> Outcome:
    """What the overlap of runs adds to the outcome of those that were counted."""
    overlap = demand.overlap
    if overlap is None or (asked is not None and asked > 1):
        return Outcome()
    if asked is not None:
        text = f"runs may overlap ({overlap.because}), and this check counts one run"
        return _overlap_finding(demand, "always", text, "--runs N counts N runs at once; {one} allows one only")
    title = facts_of(demand.engine).title
    if overlap.at_most is not None:
        text = f"runs may overlap ({overlap.because}): {overlap.at_most} at once are counted, the most that {title} has"
        return _overlap_finding(demand, "always", f"{text} active", OVERLAP_HINT)
    many = check(UNBOUNDED_RUNS)
    if worst_verdict((first.verdict, many.verdict)) == first.verdict:
        text = f"runs may overlap ({overlap.because}), and any number of them gets the same answer"
        return _overlap_finding(demand, "always", text, "--runs N shows the peak of N runs at once")
    text = f"runs may overlap ({overlap.because}), in any number: the lines count one run, and others may have to wait"
    return _overlap_finding(demand, "unknown" if many.verdict == "unknown" else "may-queue", text, OVERLAP_HINT)


def _overlap_finding(demand: Demand, verdict: Verdict, text: str, hint: str) -> Outcome:
    assert demand.overlap is not None
    severity: Severity = "note" if verdict == "always" else "warning"
    words = {"Pipeline": "concurrency: forbid", "DAG": "max_active_runs=1"}
    one = words.get(demand.kind, "concurrencyPolicy: Forbid")
    hint = hint.format(one=one)
    return Outcome(verdict, findings=(Finding("GF553", text, demand.overlap.where, hint, severity=severity),))
