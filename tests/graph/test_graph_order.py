"""What a user sees of order and loops."""

from graphlib import CycleError
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.graph import find_cycle, order, reachable
from tests.graph.every_set import edges

NAMES = [f"s{i}" for i in range(7)]
ACYCLIC = edges(NAMES).map(lambda after: {name: after.get(name, []) for name in NAMES})
ANY = st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3))


def test_free_steps_keep_the_order_in_which_they_were_written():
    assert order({"b": [], "a": [], "c": ["a"]}) == ["b", "c", "a"]


def test_a_step_that_is_only_named_as_a_successor_is_a_step():
    assert order({"a": ["z", "b"]}) == ["a", "z", "b"]


def test_a_step_named_twice_as_successor_waits_once():
    assert order({"a": ["b", "b"], "b": []}) == ["a", "b"]


def test_a_loop_is_named_in_order_with_its_first_step_at_both_ends():
    assert find_cycle({"start": ["b"], "a": ["b"], "b": ["c"], "c": ["a"]}) == ["a", "b", "c", "a"]
    assert find_cycle({"a": ["a"]}) == ["a", "a"]
    assert find_cycle({"a": ["b"], "b": []}) is None


def test_ordering_a_loop_says_which_steps_wait_for_each_other():
    with pytest.raises(CycleError, match="a -> b -> a; remove one") as caught:
        order({"a": ["b"], "b": ["a"]})
    assert caught.value.args[1] == ["a", "b", "a"]


def test_a_chain_of_ten_thousand_steps_is_no_problem():
    chain = {f"s{i}": [f"s{i + 1}"] for i in range(10_000)}
    assert order(chain)[-1] == "s10000"
    assert find_cycle(chain) is None
    assert len(find_cycle({**chain, "s10000": ["s0"]}) or []) == 10_002


@given(ACYCLIC)
def test_every_step_comes_after_what_it_waits_for_and_the_earliest_free_one_is_next(after):
    ordered = order(after)
    assert sorted(ordered) == sorted(after)
    for place, name in enumerate(ordered):
        left = [n for n in after if n not in ordered[:place]]
        assert name == next(n for n in left if n not in reachable(after, left))


@given(ANY)
def test_either_there_is_an_order_or_a_named_loop_whose_every_arrow_exists(after):
    cycle = find_cycle(after)
    if cycle is None:
        assert len(order(after)) == len(set(after).union(*after.values()))
        return
    assert cycle[0] == cycle[-1]
    assert len(set(cycle)) == len(cycle) - 1
    assert all(b in after[a] for a, b in pairwise(cycle))
    with pytest.raises(CycleError):
        order(after)


@given(ACYCLIC, st.sampled_from(NAMES))
def test_what_a_step_reaches_is_what_follows_it_and_what_those_reach(after, a):
    direct = {name for child in after[a] for name in (child, *reachable(after, [child]))}
    assert reachable(after, [a]) == direct
