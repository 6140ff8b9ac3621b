"""The cap that gpuflow proposes: safe, and no smaller than need be."""

from dataclasses import replace
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.graph import Dag, Leaf, Loop, Unknown, peak, safe_parallel
from gpuflow.graph.antichain import _flows
from tests.graph.every_set import expand, flat_dags, maximum, trees


def gpu(name: str, weight: int, pods: int = 1) -> Leaf:
    return Leaf(name, {"gpu": weight}, pods)


@settings(max_examples=300, deadline=None)
@given(flat_dags(parallel=st.none()), st.integers(0, 25))
def test_the_proposed_cap_is_safe_and_the_next_one_is_not_proved_so(dag, budget):
    cap = safe_parallel(dag, "gpu", budget)
    heaviest = max((leaf.weights["gpu"] for leaf in dag.nodes.values()), default=0)
    assert (cap is None) == (heaviest > budget)
    if cap is None:
        return
    assert maximum(expand(replace(dag, parallel=cap), "gpu")) <= budget
    if cap < len(dag.nodes):
        assert peak(replace(dag, parallel=cap + 1), "gpu").value > budget


@settings(max_examples=200, deadline=None)
@given(trees(), st.integers(0, 25))
def test_the_proposed_cap_is_safe_for_nested_pipelines_with_caps_of_their_own(tree, budget):
    cap = safe_parallel(tree, "gpu", budget)
    if cap is None:
        assert peak(tree, "gpu").value > budget
    elif isinstance(tree, Dag):
        own = tree.parallel or cap
        assert cap <= own
        assert maximum(expand(replace(tree, parallel=cap), "gpu")) <= budget
    else:
        assert maximum(expand(Dag({"all": tree}, parallel=cap), "gpu")) <= budget


@settings(max_examples=200, deadline=None)
@given(flat_dags(parallel=st.none()), st.integers(0, 25), st.integers(0, 60))
def test_a_cap_is_safe_when_there_is_no_work_left_to_find_a_larger_one(dag, budget, work):
    _flows.cache_clear()
    with patch("gpuflow.graph.antichain.FLOW", work), patch("gpuflow.graph.antichain.QUESTION", work):
        cap = safe_parallel(dag, "gpu", budget)
    heaviest = max((leaf.weights["gpu"] for leaf in dag.nodes.values()), default=0)
    assert (cap is None) == (heaviest > budget)
    assert cap is None or maximum(expand(replace(dag, parallel=cap), "gpu")) <= budget


def test_a_fan_out_of_slices_is_cut_to_the_free_ones():
    assert safe_parallel(Loop("evaluate", gpu("evaluate", 1), 4), "gpu", 3) == 3


def test_an_unknown_fan_out_gets_a_cap_that_is_safe_for_any_number():
    loop = Loop("evaluate", gpu("evaluate", 2), Unknown("a list"))
    assert peak(loop, "gpu").value is None
    assert safe_parallel(loop, "gpu", 101) == 50


def test_no_cap_helps_a_step_that_is_too_heavy_alone_or_unknown():
    assert safe_parallel(gpu("train", 8), "gpu", 7) is None
    assert safe_parallel(Leaf("train", {"gpu": Unknown("a parameter")}), "gpu", 100) is None


def test_a_cap_below_the_largest_gang_is_never_proposed():
    steps = {"gang": gpu("gang", 4, pods=4), "a": gpu("a", 3), "b": gpu("b", 3)}
    assert safe_parallel(Dag(steps), "gpu", 4) is None
    assert safe_parallel(Dag(steps), "gpu", 6) == 4


def test_a_pipeline_that_fits_needs_no_cap():
    assert safe_parallel(Dag({"a": gpu("a", 1), "b": gpu("b", 1)}), "gpu", 2) == 2
    assert safe_parallel(Dag({"a": gpu("a", 1), "b": gpu("b", 1)}, parallel=7), "gpu", 2) == 7
    assert safe_parallel(Dag({}), "gpu", 0) == 1
