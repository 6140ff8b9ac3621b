"""Room for many copies: counted, it is what placing them one by one finds.

Tests gpuflow/checker/nodes/capacity.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.checker.nodes import fit_nodes
from gpuflow.checker.nodes.capacity import (
    Capacity,
    NodePools,
    Space,
    Table,
    capacity_hint,
    capacity_in,
    fragmentation,
    led_room,
    room,
)
from gpuflow.checker.nodes.filters import read_pending
from gpuflow.checker.nodes.node_info import read_node_list
from tests.checker.nodes import strategies as some
from tests.checker.nodes.scenes import GPU, HOST, ZONE, apart, bound, group, node, pod, spread

Manifest = dict[str, Any]


def read_node_pools(nodes: list[Manifest], running: list[Manifest] | None = None) -> NodePools:
    return NodePools(read_node_list(nodes, running or []))


def capacity(asking: Manifest, nodes: list[Manifest], running: list[Manifest] | None = None) -> Capacity:
    return capacity_in(read_node_pools(nodes, running), read_pending(asking))


def owned_by(kind: str, manifest: Manifest) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [{"kind": kind, "name": "x"}]}}


def placed_one_by_one(asking: Manifest, nodes: list[Manifest], running: list[Manifest]) -> dict[str, int]:
    """Bind copies wherever the scheduler would let them until it lets no more."""
    counts: dict[str, int] = {}
    taken = list(running)
    while feasible := fit_nodes(asking, nodes, taken).feasible:
        name = feasible[0]
        counts[name] = counts.get(name, 0) + 1
        taken.append(some.placed(asking, name))
    return counts


@some.UNHURRIED
@given(st.data(), some.pods())
def test_capacity_is_what_placing_copies_one_by_one_finds(data: st.DataObject, asking: Manifest) -> None:
    nodes = data.draw(some.nodes())
    running = data.draw(some.running(nodes))
    answer = capacity(asking, nodes, running)
    assert answer.now == placed_one_by_one(asking, nodes, running)
    well = [{**each, "spec": {**each["spec"], "unschedulable": False}} for each in nodes]
    assert answer.empty == placed_one_by_one(asking, well, [])


@some.UNHURRIED
@given(st.data(), some.pods(), st.integers(1, 8))
def test_a_gang_fits_when_placing_it_finds_room(data: st.DataObject, asking: Manifest, copies: int) -> None:
    nodes = data.draw(some.nodes())
    running = data.draw(some.running(nodes))
    node_pools, waiting = read_node_pools(nodes, running), read_pending(asking)
    answer = room(node_pools, waiting, copies)
    assert answer.now == min(copies, sum(placed_one_by_one(asking, nodes, running).values()))
    assert (answer.verdict == "now") == (answer.now == copies)
    held = capacity_in(node_pools, waiting)
    ever = sum(held.empty.values()) + sum(held.new.values())
    assert answer.verdict == ("now" if answer.now == copies else "wait" if ever >= copies else "never")


@some.UNHURRIED
@given(st.data(), some.pods(), some.pods(), st.integers(0, 6))
def test_a_leader_and_its_workers_fit_when_some_place_for_the_leader_leaves_room(
    data: st.DataObject, leader: Manifest, worker: Manifest, workers: int
) -> None:
    nodes = data.draw(some.nodes())
    running = data.draw(some.running(nodes))
    beside = [
        sum(placed_one_by_one(worker, nodes, [*running, some.placed(leader, name)]).values())
        for name in fit_nodes(leader, nodes, running).feasible
    ]
    answer = led_room(read_node_pools(nodes, running), read_pending(leader), read_pending(worker), workers)
    assert (answer.verdict == "now") == any(count >= workers for count in beside)
    assert answer.now == min(workers, max(beside, default=0))


@some.UNHURRIED
@given(st.data(), some.pods())
def test_an_empty_copy_of_a_node_takes_no_room_away(data: st.DataObject, asking: Manifest) -> None:
    nodes = data.draw(some.nodes())
    running = data.draw(some.running(nodes))
    before = fit_nodes(asking, nodes, running).feasible
    for each in nodes:
        copy = {**each, "metadata": {**each["metadata"], "name": "copy"}}
        after = fit_nodes(asking, [*nodes, copy], running).feasible
        assert set(before) <= set(after)
        assert each["metadata"]["name"] not in before or "copy" in after


@some.UNHURRIED
@given(
    st.lists(st.tuples(st.integers(-1, 6), st.integers(0, 6), st.integers(0, 4), st.integers(1, 3)), max_size=8),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.sampled_from([None, 1]),
)
def test_a_table_counts_what_its_spaces_hold(
    spaces: list[tuple[int, int, int, int]], amounts: tuple[int, int], most: int | None
) -> None:
    listed = [(Space({"a": a, "b": b}, slots), nodes) for a, b, slots, nodes in spaces]
    asked = dict(zip("ab", amounts, strict=True))
    table, held = Table(("a", "b"), listed), sum(space.holds(asked, most) * nodes for space, nodes in listed)
    assert table.count(amounts, most) == held
    assert (table.count(amounts, most, enough=3) >= 3) == (held >= 3)
    assert table.count(amounts, most, enough=1) == min(held, 1)


def verdict(asking: Manifest, nodes: list[Manifest], running: list[Manifest] | None = None, copies: int = 1) -> str:
    return room(read_node_pools(nodes, running), read_pending(asking), copies).verdict


def test_busy_nodes_mean_waiting_and_small_ones_never() -> None:
    nodes, busy = [node("a", gpu="4"), node("b", gpu="8")], [bound("b", {"gpu": "6"})]
    assert verdict(pod({"gpu": "4"}), nodes, busy) == "now"
    assert verdict(pod({"gpu": "8"}), nodes, busy) == "wait"
    assert verdict(pod({"gpu": "9"}), nodes, busy) == "never"
    assert verdict(pod({"gpu": "4"}), nodes, busy, copies=3) == "wait"
    assert verdict(pod({"gpu": "4"}), nodes, busy, copies=4) == "never"


def test_a_node_group_can_grow_up_to_its_maximum() -> None:
    nodes = [node("a", gpu="4"), group("big", 2, gpu="8")]
    answer = room(read_node_pools(nodes), read_pending(pod({"gpu": "8"})), 2)
    assert (answer.verdict, answer.now, answer.empty, answer.new) == ("wait", 0, 0, 2)
    assert verdict(pod({"gpu": "8"}), nodes, copies=3) == "never"
    assert capacity(pod({"gpu": "4"}), nodes).new == {"big": 4}
    leader = read_pending(pod({"cpu": "1"}))
    assert led_room(read_node_pools(nodes), leader, read_pending(pod({"gpu": "8"})), 2).verdict == "wait"
    assert led_room(read_node_pools(nodes), leader, read_pending(pod({"gpu": "8"})), 3).verdict == "never"


@pytest.mark.parametrize(
    "spec",
    [
        {"unschedulable": True},
        {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]},
    ],
)
def test_a_node_that_is_cordoned_or_unwell_may_come_back(spec: Manifest) -> None:
    assert verdict(pod({"gpu": "1"}), [node("a", spec=spec, gpu="8")]) == "wait"


def test_a_taint_that_says_whom_a_node_is_for_stays() -> None:
    kept = {"taints": [{"key": "team", "value": "other", "effect": "NoSchedule"}]}
    assert verdict(pod({"gpu": "1"}), [node("a", spec=kept, gpu="8")]) == "never"


def test_daemons_and_static_pods_stay_on_an_empty_node() -> None:
    nodes = [node("a")]
    assert verdict(pod({"cpu": "16"}), nodes, [bound("a", {"cpu": "1"})]) == "wait"
    for kind in ("DaemonSet", "Node"):
        assert verdict(pod({"cpu": "16"}), nodes, [owned_by(kind, bound("a", {"cpu": "1"}))]) == "never"


def test_pods_that_keep_apart_take_a_node_each() -> None:
    asking = pod(labels={"app": "x"}, affinity=apart(HOST, matchLabels={"app": "x"}))
    nodes = [node("a"), node("b"), node("c")]
    others = [bound("c", labels={"app": "x"})]
    answer = room(read_node_pools(nodes, others), read_pending(asking), 3)
    assert (answer.verdict, answer.now, answer.empty) == ("wait", 2, 3)
    assert answer.unknown == ("what the copies' affinity and anti-affinity leave to each other",)


def test_a_bound_pod_that_keeps_this_one_away_takes_its_domain() -> None:
    nodes = [node("a", {ZONE: "1"}), node("b", {ZONE: "1"}), node("c", {ZONE: "2"})]
    shy = bound("a", affinity=apart(ZONE, matchLabels={"app": "x"}))
    assert capacity(pod({"cpu": "16"}, {"app": "x"}), nodes, [shy]).now == {"c": 1}
    assert capacity(pod({"cpu": "16"}, {"app": "y"}), nodes, [shy]).now == {"a": 1, "b": 1, "c": 1}


def test_spreading_is_weighed_for_one_pod_and_named_for_many() -> None:
    asking = pod(
        labels={"app": "x"},
        topologySpreadConstraints=[spread(HOST, labelSelector={"matchLabels": {"app": "x"}})],
    )
    node_pools = read_node_pools([node("a"), node("b")], [bound("a", labels={"app": "x"})])
    assert capacity_in(node_pools, read_pending(asking)).now.keys() == {"b"}
    assert room(node_pools, read_pending(asking)).unknown == ()
    assert room(node_pools, read_pending(asking), 2).unknown == (
        "what topology spread constraints leave to the copies",
    )


def test_fragmentation_tells_what_lies_in_pieces() -> None:
    nodes = [node(name, gpu="8") for name in "abc"]
    running = [bound(name, {"gpu": "6"}) for name in "abc"]
    node_pools = read_node_pools(nodes, running)
    found = fragmentation(node_pools, read_pending(pod({"gpu": "4"})), GPU)
    assert (found.placeable, found.whole) == (0, 1)
    with pytest.raises(ValueError, match=f"asks for no {GPU}; it asks for cpu"):
        fragmentation(node_pools, read_pending(pod({"cpu": "1"})), GPU)


def test_the_way_out_names_the_closest_node_and_what_it_lacks() -> None:
    nodes = [
        node("a", {"pool": "gpu"}, gpu="4", cpu="64"),
        node("b", {"pool": "gpu"}, gpu="8", cpu="32"),
        node("c", {"pool": "cpu"}, cpu="128"),
        group("d", 3, {"pool": "gpu"}, gpu="2"),
    ]
    out = capacity_hint(
        read_node_pools(nodes), read_pending(pod({"gpu": "8", "cpu": "48"}, nodeSelector={"pool": "gpu"}))
    )
    assert out.eligible == ("a", "b", "d")
    assert out.refusals == {"node(s) didn't match Pod's node affinity/selector": 1}
    assert out.closest == "a"
    lacks = {name: (str(each.asked), str(each.largest), each.node) for name, each in out.shortfalls.items()}
    assert lacks == {GPU: ("8", "4", "a")}


def test_the_way_out_when_no_node_is_eligible() -> None:
    out = capacity_hint(read_node_pools([node("a")]), read_pending(pod({"gpu": "1"}, nodeSelector={"pool": "gpu"})))
    assert (out.eligible, out.closest, out.shortfalls) == ((), None, {})
    assert out.refusals == {"node(s) didn't match Pod's node affinity/selector": 1}
