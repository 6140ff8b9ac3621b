"""Gangs that nothing starts as a whole: each can hold a part of what they share, and wait forever for the rest.

Tests gpuflow/checker/rules/deadlocks.py and gpuflow/demands/gang_scheduling.py.
"""

from __future__ import annotations

from typing import Any

import gpuflow
from gpuflow.checker.report import Report
from tests.checker.gang_scenes import STEP, check, nodes, queue_objects, running, words

FREE = STEP.replace("    queue: research\n", "").replace("    topology: {same: rack}\n", "")
"""A gang of four that names no queue, and may be anywhere."""
ACCOUNTS = [each for each in queue_objects() if each["kind"] in ("Namespace", "ServiceAccount")]


def gangs(*steps: str, step: str = FREE) -> gpuflow.Pipeline:
    text = "".join(f"  {name}:{step}" for name in steps)
    return gpuflow.loads(f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: demo\nsteps:\n{text}")


def codes(report: Report) -> set[str]:
    return {each.code for each in report.findings}


def waiting(name: str) -> dict[str, Any]:
    pod = running(name, "", 8)
    del pod["spec"]["nodeName"]
    return {**pod, "status": {"phase": "Pending"}}


def test_two_gangs_that_share_the_nodes_may_block_each_other() -> None:
    report = check(gangs("one", "two"), *nodes(a=6), *ACCOUNTS)
    assert report.verdict == "may-queue"
    assert "2 gangs at once can each take a part of the nodes and wait forever for the rest" in words(report)
    assert "Kueue queue" in words(report)
    assert "GF771" not in codes(report)


def test_copies_of_one_gang_may_block_each_other_too() -> None:
    step = FREE + "    for_each: {list: [a, b, c]}\n"
    report = check(gangs("one", step=step), *nodes(a=6), *ACCOUNTS)
    assert report.verdict == "may-queue"
    assert "3 gangs at once" in words(report)


def test_with_room_for_all_nobody_waits() -> None:
    report = check(gangs("one", "two"), *nodes(a=8), *ACCOUNTS)
    assert report.verdict == "always", words(report)
    assert not codes(report) & {"GF522", "GF771"}


def test_gangs_one_after_the_other_do_not_block_each_other() -> None:
    steps = f"  one:{FREE}  two:{FREE}    needs: [one]\n"
    given = gpuflow.loads(f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: demo\nsteps:\n{steps}")
    assert "GF522" not in codes(check(given, *nodes(a=6), *ACCOUNTS))


def test_a_queue_admits_a_gang_whole() -> None:
    step = STEP.replace("    topology: {same: rack}\n", "")
    report = check(gangs("one", "two", step=step), *nodes(a=6), *queue_objects(topology=None), queues=())
    assert not codes(report) & {"GF522", "GF771"}


def test_a_scheduler_that_starts_gangs_whole_is_taken_at_its_word() -> None:
    step = FREE + "    kubernetes: {scheduler: coscheduling}\n"
    report = check(gangs("one", "two", step=step), *nodes(a=6), *ACCOUNTS)
    assert not codes(report) & {"GF522", "GF771"}


def test_one_gang_and_pods_that_wait_already() -> None:
    others = [waiting(f"w-{number}") for number in range(3)]
    report = check(gangs("one"), *nodes(a=6), *others, *ACCOUNTS)
    assert report.verdict == "may-queue"
    assert "pods other/w-0, other/w-1 and other/w-2 wait for the same nodes; if they wait for each" in words(report)


def test_without_nodes_the_gang_itself_is_named() -> None:
    report = check(gangs("one", "two"), *ACCOUNTS)
    assert report.verdict == "unknown"
    assert [each.message for each in report.findings if each.code == "GF771"] == [
        f'step "{name}": 4 pods with GPUs wait for each other, and nothing starts all of them or none: two such gangs '
        "can each hold a part of the GPUs forever"
        for name in ("one", "two")
    ]
