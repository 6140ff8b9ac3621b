"""The worst moment against every possible set of live steps, and in the cases users meet.

Tests gpuflow/graph/antichain.py, gpuflow/graph/peak.py and gpuflow/graph/tree.py.
"""

import random
from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.graph import Dag, Leaf, Loop, Peak, Tree, Unknown, peak
from gpuflow.graph.antichain import _flows
from gpuflow.graph.peak import CUT_SHORT
from tests.graph.every_set import can_live, expand, flat_dags, maximum, trees

MANY = settings(max_examples=400, deadline=None)


def gpu(name: str, weight: int, pods: int = 1) -> Leaf:
    return Leaf(name, {"gpu": weight}, pods)


@MANY
@given(flat_dags(max_size=9, parallel=st.none()))
def test_without_caps_the_peak_is_exact_and_its_witness_can_live(dag):
    expanded = expand(dag, "gpu")
    found = peak(dag, "gpu")
    assert (found.bound, found.value, found.because) == ("exact", maximum(expanded), None)
    assert sum(dag.nodes[name].weights["gpu"] for name in found.witness) == found.value
    assert can_live(expanded, dict(found.live))


@pytest.mark.slow
@MANY
@given(trees(caps=False))
def test_nested_pipelines_and_loops_compose_exactly(tree):
    expanded = expand(tree, "gpu")
    found = peak(tree, "gpu")
    assert (found.bound, found.value) == ("exact", maximum(expanded))
    assert can_live(expanded, dict(found.live))


@pytest.mark.slow
@MANY
@given(trees())
def test_with_caps_the_truth_lies_between_what_is_reached_and_the_bound(tree):
    expanded = expand(tree, "gpu")
    found = peak(tree, "gpu")
    assert found.reached <= maximum(expanded) <= found.value
    assert (found.bound == "exact") == (found.reached == found.value) == (found.because is None)
    weights = dict(zip(expanded.names, expanded.weights, strict=True))
    assert sum(weights[name] * copies for name, copies in found.live.items()) == found.reached
    assert can_live(expanded, dict(found.live))


@pytest.mark.slow
@MANY
@given(trees())
def test_small_pipelines_under_caps_are_decided_exactly(tree):
    found = peak(tree, "gpu")
    assert (found.bound, found.value) == ("exact", maximum(expand(tree, "gpu")))


@MANY
@given(trees())
def test_where_no_table_is_made_the_bound_still_holds_and_what_is_reached_can_live(tree):
    with patch("gpuflow.graph.peak.TABLE_WORK", 0):
        found = peak(tree, "gpu")
    expanded = expand(tree, "gpu")
    assert found.reached <= maximum(expanded) <= found.value
    assert (found.bound == "exact") == (found.reached == found.value)
    assert can_live(expanded, dict(found.live))


def hurried(tree: Tree, flow: int, question: int) -> Peak:
    """The peak when little work is allowed, and nothing is known from before."""
    _flows.cache_clear()
    with patch("gpuflow.graph.antichain.FLOW", flow), patch("gpuflow.graph.antichain.QUESTION", question):
        return peak(tree, "gpu")


@MANY
@given(trees(), st.integers(0, 60), st.integers(0, 60))
def test_a_peak_that_is_cut_short_is_never_too_low_and_what_is_reached_can_live(tree, flow, question):
    expanded, truth = expand(tree, "gpu"), peak(tree, "gpu").value
    found = hurried(tree, flow, question)
    assert found.reached <= truth <= found.value
    assert (found.bound == "exact") == (found.reached == found.value) == (found.because is None)
    assert can_live(expanded, dict(found.live))
    if found.is_cut_short:
        assert (found.bound, found.because) == ("at-most", CUT_SHORT)


def many_edges(steps: int, parallel: int | None = None) -> Dag:
    """An irregular graph: every step waits for up to three of the twenty before it."""
    dice = random.Random(7)
    edges: dict[str, list[str]] = {f"s{index}": [] for index in range(steps)}
    for index in range(1, steps):
        for before in {dice.randrange(max(0, index - 20), index) for _ in range(3)}:
            edges[f"s{before}"].append(f"s{index}")
    return Dag({name: gpu(name, dice.randrange(1, 50)) for name in edges}, edges, parallel)


@pytest.mark.parametrize("parallel", [None, 4])
def test_a_large_graph_gets_a_bound_with_its_reason_when_its_work_is_used_up(parallel):
    dag = many_edges(200, parallel)
    exact = peak(dag, "gpu")
    assert exact.bound == "exact"
    found = hurried(dag, 0, 0)
    assert (found.bound, found.because, found.is_cut_short) == ("at-most", CUT_SHORT, True)
    assert found.reached <= exact.value < found.value < 2 * exact.value
    weights = {name: leaf.weights["gpu"] for name, leaf in dag.nodes.items()}
    assert sum(weights[name] for name in found.witness) == found.reached


def test_a_graph_of_three_thousand_random_edges_is_within_the_work_that_one_flow_may_take():
    assert peak(many_edges(1000), "gpu").bound == "exact"


def test_a_gap_under_caps_is_told_with_both_numbers():
    steps = {"gang": gpu("gang", 4, pods=4), "a": gpu("a", 3), "b": gpu("b", 3)}
    with patch("gpuflow.graph.peak.TABLE_WORK", 0):
        found = peak(Dag(steps, parallel=4), "gpu")
    assert (found.value, found.bound, found.reached, found.witness) == (8, "at-most", 6, ("a", "b"))
    assert found.because == "under the parallel caps 6 can be reached and more than 8 cannot"


@MANY
@given(flat_dags(), st.randoms(use_true_random=False))
def test_the_order_in_which_steps_are_written_does_not_change_the_peak(dag, random):
    names = list(dag.nodes)
    random.shuffle(names)
    shuffled = replace(dag, nodes={name: dag.nodes[name] for name in names})
    assert peak(shuffled, "gpu").value == peak(dag, "gpu").value


@pytest.mark.slow
@MANY
@given(trees(unknown=True), st.integers(0, 3))
def test_whatever_the_run_turns_out_to_be_it_stays_within_the_bound(tree, copies):
    found = peak(tree, "gpu")
    told = _told(tree, copies)
    expanded = expand(told, "gpu")
    if len(expanded.names) > 14:
        return
    actual = maximum(expanded)
    if found.bound == "unknown":
        assert found.value is None
        assert "told at run time" in found.because
    else:
        assert actual <= found.value
    if found.bound == "exact":
        assert found.reached == found.value


def _told(node, copies):
    """The tree once the run has told every unknown number of copies."""
    match node:
        case Dag(nodes):
            return replace(node, nodes={name: _told(child, copies) for name, child in nodes.items()})
        case Loop(name, body, told, parallel):
            return Loop(name, _told(body, copies), copies if isinstance(told, Unknown) else told, parallel)
    return node


def test_a_pipeline_without_weight_peaks_at_zero_with_nobody_to_name():
    found = peak(Dag({"a": gpu("a", 0), "b": Loop("b", gpu("b", 0), Unknown("a list"))}), "gpu")
    assert (found.value, found.bound, found.witness) == (0, "exact", ())
    assert peak(Dag({}), "gpu").value == 0
    assert peak(gpu("a", 3), "cpu").value == 0


def test_the_tree_is_asked_about_each_resource_apart():
    tree = Dag({"a": Leaf("a", {"gpu": 1, "cpu": 9}), "b": Leaf("b", {"gpu": 4, "cpu": 2})}, {"a": ["b"]})
    assert peak(tree, "gpu").witness == ("b",)
    assert peak(tree, "cpu").witness == ("a",)


def test_a_fan_out_holds_as_many_copies_as_may_live():
    assert peak(Loop("eval", gpu("eval", 2), 5), "gpu").value == 10
    found = peak(Loop("eval", gpu("eval", 2), 5, parallel=3), "gpu")
    assert (found.value, found.bound, dict(found.live)) == (6, "exact", {"eval": 3})
    assert peak(Loop("eval", gpu("eval", 2), 0), "gpu").value == 0


def test_exit_steps_run_side_by_side_after_everything():
    main = Dag({"train": gpu("train", 4), "eval": gpu("eval", 3)})
    tree = Dag({"main": main, "exit": Dag({"a": gpu("a", 5), "b": gpu("b", 3)})}, {"main": ["exit"]})
    assert peak(tree, "gpu").witness == ("a", "b")


def test_an_unknown_fan_out_with_a_cap_is_at_most_the_cap():
    found = peak(Loop("eval", gpu("eval", 2), Unknown("the output of 'list'"), parallel=3), "gpu")
    assert (found.value, found.bound) == (6, "at-most")
    assert found.because == "the copies of loop 'eval' are unknown: the output of 'list'"


def test_an_unknown_fan_out_is_bounded_by_a_promise_or_by_the_pipelines_cap():
    loop = Loop("eval", gpu("eval", 2), Unknown("the output of 'list'"))
    promised = Loop("eval", gpu("eval", 2), Unknown("the output of 'list'", at_most=4))
    assert peak(promised, "gpu").value == 8
    assert peak(Dag({"eval": loop}, parallel=5), "gpu").value == 10


def test_an_unknown_fan_out_without_any_cap_is_unknown_and_the_rest_is_still_told():
    tree = Dag({"train": gpu("train", 4), "eval": Loop("eval", gpu("eval", 2), Unknown("a list"))})
    found = peak(tree, "gpu")
    assert (found.value, found.bound, found.reached) == (None, "unknown", 4)
    assert found.because == "the copies of loop 'eval' are unknown: a list"
    assert dict(found.live) == {"train": 1}


def test_an_unknown_loop_that_cannot_be_the_worst_moment_leaves_it_exact():
    loop = Loop("eval", gpu("eval", 1), Unknown("a list"), parallel=2)
    assert peak(Dag({"train": gpu("train", 4), "eval": loop}, {"train": ["eval"]}), "gpu").bound == "exact"


def test_an_unknown_weight_is_unknown_unless_somebody_promised_a_maximum():
    found = peak(Leaf("train", {"gpu": Unknown("parameter gpus")}), "gpu")
    assert (found.value, found.because) == (None, "gpu of step 'train' is unknown: parameter gpus")
    found = peak(Leaf("train", {"gpu": Unknown("parameter gpus", at_most=8)}), "gpu")
    assert (found.value, found.bound) == (8, "at-most")


def test_a_gang_counts_all_its_pods_and_one_larger_than_the_cap_lives_alone():
    steps = {"gang": gpu("gang", 4, pods=4), "a": gpu("a", 2), "b": gpu("b", 1)}
    assert peak(Dag(steps, parallel=5), "gpu").value == 6
    assert peak(Dag(steps, parallel=2), "gpu").value == 4


def test_a_step_that_no_cap_counts_is_added_to_what_the_cap_allows():
    steps = {"deferred": gpu("deferred", 4, pods=0), "a": gpu("a", 2), "b": gpu("b", 1)}
    assert peak(Dag(steps, parallel=1), "gpu").value == 6
    endless = Loop("deferred", gpu("deferred", 1, pods=0), Unknown("a list"))
    assert peak(Dag({"loop": endless}, parallel=1), "gpu").bound == "unknown"


def test_a_cap_counts_pods_of_sub_pipelines_and_a_loop_cap_counts_copies():
    body = Dag({"left": gpu("left", 1), "right": gpu("right", 1)})
    loop = Loop("each", body, 10, parallel=3)
    assert peak(loop, "gpu").value == 6
    assert peak(Dag({"each": loop}, parallel=5), "gpu").value == 5


def test_thousands_of_steps_that_all_wait_for_thousands_collapse():
    width = 300
    layers = [[f"{layer}-{i}" for i in range(width)] for layer in "abc"]
    nodes = {name: gpu(name, 1 + (name[0] == "b")) for layer in layers for name in layer}
    edges = {name: after for before, after in pairwise(layers) for name in before}
    dag = Dag(nodes, edges)
    assert len(dag.shape.core) == 1
    assert peak(dag, "gpu").value == 2 * width


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Leaf("a", {"gpu": -1}), "step 'a' weighs -1 on 'gpu'"),
        (lambda: Leaf("a", {}, pods=-1), "step 'a' has -1 pods"),
        (lambda: Loop("l", gpu("a", 1), -2), "loop 'l' has -2 copies"),
        (lambda: Loop("l", gpu("a", 1), 2, parallel=0), "loop 'l' has parallel: 0; give 1 or more"),
        (lambda: Dag({"a": gpu("a", 1)}, parallel=0), "parallel: 0; give 1 or more"),
        (lambda: Dag({"a": gpu("a", 1)}, {"a": ["b"]}), "the edges of 'a' name 'b', which is not a node"),
        (lambda: Dag({"a": gpu("a", 1)}, {"a": ["a"]}), "a -> a; remove one"),
        (lambda: Unknown("why", at_most=-1), "at_most is -1"),
    ],
)
def test_a_tree_that_makes_no_sense_is_refused_with_its_numbers(make, message):
    with pytest.raises(ValueError, match=message):
        make()
