"""Gangs that must be in one rack: judged as Kueue places them, or, in other queues, as the scheduler would.

Tests gpuflow/checker/kueue/tas_flavor_snapshot.py and gpuflow/checker/pipeline/queues/setup.py.
"""

from __future__ import annotations

import pytest

import gpuflow
from tests.checker.gang_scenes import HOST, STEP, check, nodes, pipeline, queue_objects, running, words


def test_a_rack_with_room_for_all_ranks_is_enough_although_the_launcher_takes_some_of_it() -> None:
    report = check(pipeline("train"), *nodes(a=4, b=2), *queue_objects())
    assert report.verdict == "always", words(report)


def test_racks_that_are_each_too_small_never_take_the_gang_and_kueue_says_so() -> None:
    report = check(pipeline("train"), *nodes(a=3, b=3), *queue_objects())
    assert report.verdict == "never"
    assert 'topology "racks" allows to fit only 3 out of 4 pod(s)' in words(report)
    assert "wider level" in words(report)


def test_pods_without_a_place_take_room_until_they_end() -> None:
    report = check(pipeline("train"), *nodes(a=4, b=3), running("other", "a-0", 1), *queue_objects())
    assert report.verdict == "may-queue"
    assert 'allows to fit only 3 out of 4 pod(s). Total nodes: 7; excluded: resource "nvidia.com/gpu": 1' in words(
        report
    )
    assert "until others release nodes of its topology" in words(report)


def test_pods_of_a_daemonset_stay() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    held = running("daemon", "a-0", 1, ownerReferences=[owner])
    assert check(pipeline("train"), *nodes(a=4, b=3), held, *queue_objects()).verdict == "never"


def test_a_queue_whose_flavors_have_no_topology_never_takes_what_asks_for_one() -> None:
    report = check(pipeline("train"), *nodes(a=4), *queue_objects(topology=None))
    assert report.verdict == "never"
    assert 'Flavor "h100" does not support TopologyAwareScheduling' in words(report)
    assert "topology.queues in the site" in words(report)


def test_in_a_queue_that_the_site_does_not_name_the_scheduler_is_asked() -> None:
    objects = queue_objects(topology=None)
    assert check(pipeline("train"), *nodes(a=3, b=3), *objects, queues=()).verdict == "never"
    report = check(pipeline("train"), *nodes(a=4, b=3), *objects, queues=())
    assert "TopologyAwareScheduling" not in words(report)
    assert report.verdict != "never"


def test_a_level_that_the_topology_does_not_have_is_never() -> None:
    report = check(pipeline("train"), *nodes(a=4), *queue_objects(levels=(HOST,)))
    assert report.verdict == "never"
    assert 'Flavor "h100" does not contain the requested level' in words(report)


@pytest.mark.parametrize("missing", ["Topology", "ResourceFlavor", "Node"])
def test_what_the_snapshot_does_not_show_is_unknown(missing: str) -> None:
    objects = [each for each in (*nodes(a=4), *queue_objects()) if each["kind"] != missing]
    report = check(pipeline("train"), *objects)
    assert report.verdict == "unknown", words(report)


def test_two_gangs_at_once_may_wait_for_the_only_rack() -> None:
    report = check(pipeline("one", "two"), *nodes(a=4, b=3), *queue_objects())
    assert report.verdict == "may-queue"
    assert "other pods can take the nodes that its topology leaves it" in words(report)


def test_gangs_that_are_each_in_one_rack_leave_the_other_racks_alone() -> None:
    assert check(pipeline("one", "two"), *nodes(a=4, b=4), *queue_objects()).verdict == "always"
    assert check(pipeline("one", "two", "three"), *nodes(a=4, b=4), *queue_objects()).verdict == "may-queue"
    assert check(pipeline("one", "two", "three"), *nodes(a=4, b=4, c=5), *queue_objects()).verdict == "always"


def test_pods_that_may_be_anywhere_can_be_in_every_rack() -> None:
    loose = STEP.replace("    topology: {same: rack}\n", "").replace("workers: 4", "workers: 2")
    steps = f"  one:{STEP}  two:{loose}"
    given = gpuflow.loads(f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: demo\nsteps:\n{steps}")
    assert check(given, *nodes(a=4, b=4), *queue_objects()).verdict == "may-queue"
    assert check(given, *nodes(a=4, b=4, c=4), *queue_objects()).verdict == "always"


def test_gangs_one_after_the_other_do_not_wait() -> None:
    steps = f"  one:{STEP}  two:{STEP}    needs: [one]\n"
    given = gpuflow.loads(f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: demo\nsteps:\n{steps}")
    report = check(given, *nodes(a=4), *queue_objects())
    assert report.verdict == "always", words(report)
