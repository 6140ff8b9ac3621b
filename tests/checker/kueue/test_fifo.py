"""In a StrictFIFO queue one workload that cannot be admitted is an outage for all behind it."""

from typing import Any

from gpuflow.checker.kueue import Kueue, blocker_ahead
from tests.checker.kueue.questions import GPU, SMALL
from tests.checker.kueue.scenes import NAMESPACE, cluster_queue, flavor, local_queue, pod_set, workload

NEVER = workload(pod_set(gpu="9"), name="never", minute=10)
SMALLER = workload(pod_set(gpu="1"), name="smaller", minute=15)
LATE = workload(pod_set(gpu="1"), name="late", minute=50)


def kueue(strategy: str = "StrictFIFO", **spec: Any) -> Kueue:
    return Kueue(
        flavors=[flavor("a")],
        cluster_queues=[cluster_queue(SMALL, queueingStrategy=strategy, **spec)],
        local_queues=[local_queue()],
        namespaces=[{"metadata": {"name": NAMESPACE}}],
    )


def test_a_workload_that_never_fits_blocks_those_behind_it() -> None:
    found = blocker_ahead(kueue(), LATE, [SMALLER, NEVER, LATE])
    assert found is not None
    assert (found.name, found.assignment.verdict) == ("never", "never")


def test_it_does_not_in_a_best_effort_queue() -> None:
    assert blocker_ahead(kueue("BestEffortFIFO"), LATE, [NEVER]) is None


def test_a_higher_priority_passes_it() -> None:
    urgent = workload(pod_set(gpu="1"), name="urgent", priority=5, minute=50)
    assert blocker_ahead(kueue(), urgent, [NEVER]) is None


def test_those_ahead_that_fit_are_admitted_first() -> None:
    one, two = (workload(pod_set(gpu="1"), name=name, minute=minute) for name, minute in (("one", 10), ("two", 20)))
    three = workload(pod_set(gpu="1"), name="three", minute=30)
    queues = kueue()
    found = blocker_ahead(queues, LATE, [three, two, one])
    assert found is not None
    assert (found.name, found.assignment.verdict) == ("three", "wait")
    assert blocker_ahead(queues, LATE, [one, two]) is None
    assert queues.assign(LATE).fits, "the trial gave everything back"


def test_a_namespace_the_queue_does_not_serve_is_passed_over() -> None:
    foreign = workload(pod_set(gpu="9"), name="foreign", minute=10, metadata={"namespace": "team-b"})
    queues = Kueue(
        flavors=[flavor("a")],
        cluster_queues=[
            cluster_queue(
                SMALL,
                queueingStrategy="StrictFIFO",
                namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
            )
        ],
        local_queues=[local_queue(), {**local_queue(), "metadata": {"name": "lq", "namespace": "team-b"}}],
    )
    assert blocker_ahead(queues, LATE, [foreign]) is None


def test_requests_above_limits_block_too() -> None:
    wrong = workload(pod_set(limits={"cpu": "1"}, cpu="2"), name="wrong", minute=10)
    found = blocker_ahead(kueue(), LATE, [wrong])
    assert found is not None and found.assignment.message.startswith("resources validation failed: ")


def test_a_deactivated_workload_does_not_stand_in_the_queue() -> None:
    resting = workload(pod_set(gpu="9"), name="resting", minute=10, spec={"active": False})
    assert blocker_ahead(kueue(), LATE, [resting]) is None


def test_in_a_stopped_queue_nobody_waits_for_anybody() -> None:
    assert blocker_ahead(kueue(stopPolicy="Hold"), LATE, [NEVER]) is None


def test_a_quota_of_gpus_is_named_in_the_blockers_message() -> None:
    found = blocker_ahead(kueue(), LATE, [NEVER])
    assert found is not None and f"insufficient quota for {GPU} in flavor a" in found.assignment.message
