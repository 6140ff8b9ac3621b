"""What a pipeline asks of a cluster at its worst moment: exact, at most, or unknown because.

Tests gpuflow/demands/model.py, gpuflow/demands/of_pipeline.py and gpuflow/demands/peaks.py.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from gpuflow import GpuflowError, Pipeline, Site, load
from gpuflow.checker.report import amount
from gpuflow.demands import Demand, demand_of
from gpuflow.quantity import Quantity
from gpuflow.spec.expression import render
from gpuflow.spec.references import edges
from tests.conftest import ROOT
from tests.spec.generated import pipelines

NVIDIA = Site.load("nvidia")
GPU = "requests.nvidia.com/gpu"


def demand(steps: dict[str, dict[str, Any]], engine: str = "none", site: Site = NVIDIA, **fields: Any) -> Demand:
    filled = {name: {"image": "i", "command": ["x"], **step} for name, step in steps.items()}
    return demand_of(Pipeline("p", steps=filled, **fields), site, engine)


def peak(found: Demand, key: str) -> tuple[str, str | None, tuple[str, ...]]:
    bound = found.peak[key]
    return bound.bound, None if bound.value is None else str(bound.value), bound.witness


def test_steps_that_wait_for_each_other_never_add_up() -> None:
    found = demand({"a": {"gpu": "l4 x 2"}, "b": {"gpu": "l4 x 3", "needs": ["a"]}, "c": {"gpu": "l4", "needs": ["b"]}})
    assert peak(found, GPU) == ("exact", "3", ("b",))
    assert peak(found, "pods")[:2] == ("exact", "1")


def test_steps_side_by_side_do() -> None:
    found = demand({"a": {"gpu": "l4 x 2"}, "b": {"gpu": "l4 x 3"}, "c": {"gpu": "l4", "needs": ["a"]}})
    assert peak(found, GPU) == ("exact", "5", ("a", "b"))
    assert peak(found, "pods")[:2] == ("exact", "2")


def test_a_reference_is_an_edge_like_a_need() -> None:
    steps = {"a": {"gpu": "l4", "outputs": {"n": "int"}}, "b": {"gpu": "l4", "args": [{"output": "a.n"}]}}
    assert peak(demand(steps), GPU)[1] == "1"


@pytest.mark.parametrize(
    ("fan_out", "parallel", "expected"),
    [
        ({"i": [1, 2, 3]}, None, ("exact", "6")),
        ({"i": [1, 2, 3]}, 2, ("exact", "4")),
        ({"i": {"range": 4}, "j": ["a", "b"]}, None, ("exact", "16")),
        ({"i": {"param": "items"}}, None, ("exact", "4")),
        ({"i": {"param": "open"}}, None, ("unknown", None)),
        ({"i": {"param": "open"}}, 3, ("exact", "6")),
    ],
)
def test_a_fan_out_counts_its_copies_up_to_its_cap(
    fan_out: dict[str, Any], parallel: int | None, expected: tuple[str, str | None]
) -> None:
    step: dict[str, Any] = {"gpu": "l4 x 2", "for_each": fan_out}
    if parallel:
        step["parallel"] = parallel
    found = demand({"a": step}, params={"items": {"type": "json", "default": [1, 2]}, "open": {"type": "json"}})
    bound, value, _ = peak(found, GPU)
    assert value == expected[1]
    assert (bound == "unknown") == (expected[0] == "unknown")


def test_what_only_the_run_will_tell_is_unknown_and_says_why() -> None:
    found = demand({"list": {"outputs": {"x": "json"}}, "work": {"gpu": "l4", "for_each": {"i": {"output": "list.x"}}}})
    assert peak(found, GPU)[:2] == ("unknown", None)
    assert "list.x" in (found.peak[GPU].because or "")
    assert [step.copies for step in found.steps] == [1, None]


def test_the_pipelines_parallelism_bounds_the_whole() -> None:
    steps = {f"s{i}": {"gpu": "l4"} for i in range(6)}
    assert peak(demand(steps, parallel=4), "pods")[1] == "4"
    assert peak(demand(steps, parallel=4), GPU)[1] == "4"


def test_a_sub_pipeline_in_a_fan_out_counts_every_copy() -> None:
    inner = {"name": "q", "steps": {"x": {"image": "i", "command": ["x"], "gpu": "l4", "for_each": {"k": [1, 2]}}}}
    outer = {"a": {"pipeline": inner, "for_each": {"i": [1, 2, 3]}}}
    found = demand_of(Pipeline("p", steps=outer), NVIDIA)
    assert peak(found, GPU)[:2] == ("exact", "6")
    assert [(step.name, step.copies) for step in found.steps] == [("a.x", 6)]


def test_a_gang_is_all_its_pods() -> None:
    found = demand({"a": {"gpu": "l4 x 2", "gang": {"workers": 3, "leader": True}}})
    assert (peak(found, GPU)[1], peak(found, "pods")[1]) == ("8", "4")


def test_exit_steps_run_after_everything_else() -> None:
    found = demand_of(
        Pipeline(
            "p",
            steps={"a": {"image": "i", "command": ["x"], "gpu": "l4 x 2"}},
            exit={
                "b": {"image": "i", "command": ["x"], "gpu": "l4 x 3"},
                "c": {"image": "i", "command": ["x"], "gpu": "l4"},
            },
        ),
        NVIDIA,
    )
    assert peak(found, GPU) == ("exact", "4", ("b", "c"))


MODES = {"mode": {"type": "string", "default": "a"}, "big": {"type": "bool", "default": True}}


def test_steps_whose_conditions_may_exclude_each_other_are_at_most() -> None:
    steps = {"a": {"gpu": "l4 x 2", "when": "params.big"}, "b": {"gpu": "l4", "when": "params.mode == 'b'"}}
    found = demand(steps, params=MODES)
    assert peak(found, GPU)[:2] == ("at-most", "3")
    assert "may exclude each other" in (found.peak[GPU].because or "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("params.big", "not params.big"),
        ("params.mode == 'a'", "params.mode == 'b'"),
        ("params.mode == 'a'", "params.mode != 'a'"),
        ("params.mode in ['a', 'b']", "params.mode not in ['a', 'b', 'c']"),
        ("params.big or params.mode == 'a'", "not (params.big or params.mode == 'a')"),
        ("params.big and params.mode == 'a'", "not params.big and params.mode == 'b'"),
    ],
)
def test_steps_whose_conditions_exclude_each_other_never_meet(one: str, other: str) -> None:
    steps = {"a": {"gpu": "l4 x 2", "when": one}, "b": {"gpu": "l4", "when": other}, "c": {"gpu": "l4 x 4"}}
    assert peak(demand(steps, params=MODES), GPU) == ("exact", "6", ("a", "c"))
    # What waits for one of them is no alternative of the other.
    behind = {**steps, "d": {"gpu": "l4 x 4", "needs": ["a"]}}
    assert peak(demand(behind, params=MODES), GPU)[1] == "9"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("params.mode in ['a', 'b']", "params.mode in ['b', 'c']"),
        ("params.mode != 'a'", "params.mode != 'b'"),
        ("params.big or params.mode == 'a'", "not params.big"),
        ("not (params.big and params.mode == 'a')", "params.big"),
    ],
)
def test_conditions_that_may_both_hold_are_a_bound(one: str, other: str) -> None:
    steps = {"a": {"gpu": "l4 x 2", "when": one}, "b": {"gpu": "l4", "when": other}}
    assert peak(demand(steps, params=MODES), GPU)[:2] == ("at-most", "3")


def test_items_that_a_condition_may_leave_out_are_at_most() -> None:
    found = demand({"a": {"gpu": "l4", "for_each": {"x": [1, 2, 3]}, "when": "item.x > 1"}})
    assert peak(found, GPU)[:2] == ("at-most", "3")
    assert "the condition of a may leave items out" in (found.peak[GPU].because or "")


def test_a_condition_on_the_item_around_a_sub_pipeline_makes_it_at_most() -> None:
    inner = Pipeline("q", steps={"s": {"image": "i", "command": ["x"], "gpu": "l4"}})
    step = {"pipeline": inner, "for_each": {"x": [1, 2, 3]}, "when": "item.x > 1"}
    found = demand_of(Pipeline("p", steps={"a": step}), NVIDIA)
    assert peak(found, GPU) == ("at-most", "3", ("a.s",))


def test_exit_steps_for_success_and_for_failure_never_run_together() -> None:
    ends = {name: {"image": "i", "command": ["x"], "gpu": "l4 x 2", "on": name} for name in ("success", "failure")}
    assert peak(demand({"a": {}}, exit=ends), GPU)[:2] == ("exact", "2")


def fanned(**handed: Any) -> Demand:
    """A sub-pipeline that runs over a list which stands in its parameter's default or is handed over."""
    body = {"image": "i", "command": ["x"], "gpu": "l4", "for_each": {"i": {"param": "shards"}}}
    inner = Pipeline("q", params={"shards": {"type": "json", "default": [1, 2]}}, steps={"s": body})
    params = {"wide": {"type": "json", "default": [1, 2, 3]}, "open": {"type": "json"}}
    return demand_of(Pipeline("p", params=params, steps={"a": {"pipeline": inner, "params": handed}}), NVIDIA)


def test_a_sub_pipeline_runs_over_what_it_is_handed_not_over_its_default() -> None:
    assert peak(fanned(), GPU)[:2] == ("exact", "2")
    assert peak(fanned(shards=list(range(10))), GPU)[:2] == ("exact", "10")
    assert peak(fanned(shards={"param": "wide"}), GPU)[:2] == ("exact", "3")
    assert peak(fanned(shards={"param": "open"}), GPU)[:2] == ("unknown", None)


def test_kubeflow_keeps_the_limit_of_a_fan_out_but_not_of_a_pipeline() -> None:
    steps = {"a": {"gpu": "l4", "for_each": {"i": [1, 2, 3]}, "parallel": 2}, "b": {"gpu": "l4"}}
    assert peak(demand(steps, "argo", parallel=1), GPU)[1] == "1"
    assert peak(demand(steps, "kubeflow", parallel=1), GPU)[1] == "3"


def test_claims_of_the_run_are_counted_with_their_class() -> None:
    found = demand(
        {"a": {"volumes": {"/d": {"new_claim": "c"}}}}, claims={"c": {"size": "10Gi", "storage_class": "fast"}}
    )
    assert str(found.peak["requests.storage"].value) == "10Gi"
    assert str(found.peak["persistentvolumeclaims"].value) == "1"
    assert str(found.peak["fast.storageclass.storage.k8s.io/requests.storage"].value) == "10Gi"


def test_requests_are_filled_in_from_limits_as_the_api_server_does() -> None:
    (step,) = demand({"a": {"memory": {"limit": "4Gi"}}}).steps
    assert {key: str(value) for key, value in step.requests.items()} == {"memory": "4Gi"}


def test_an_approval_asks_for_nothing() -> None:
    pipeline = Pipeline("p", steps={"a": {"approval": "go on?"}, "b": {"image": "i", "command": ["x"], "needs": ["a"]}})
    found = demand_of(pipeline, NVIDIA)
    assert [step.name for step in found.steps] == ["b"]
    assert peak(found, "pods")[1] == "1"


def test_what_an_engine_adds_is_counted_and_listed_apart(tmp_path: Path) -> None:
    site = tmp_path / "s.yaml"
    site.write_text(
        "apiVersion: gpuflow/v1\nkind: Site\nname: s\nextends: nvidia\nengines:\n"
        "  argo: {containers: {wait: {requests: {cpu: 100m}}}}\n"
        "  kubeflow: {driver: {requests: {cpu: 4}}}\n"
    )
    steps = {"a": {"cpu": 1}, "b": {"cpu": 2}}
    for engine, total, extra in (("none", "3", None), ("argo", "3200m", "200m"), ("kubeflow", "8", "5")):
        found = demand(steps, engine, Site.load(str(site)))
        assert str(found.peak["requests.cpu"].value) == total
        overhead = found.overhead.get("requests.cpu")
        assert (None if overhead is None else str(overhead.value)) == extra


def test_what_is_the_engines_is_part_of_the_peak_beside_it(tmp_path: Path) -> None:
    site = tmp_path / "s.yaml"
    site.write_text(
        "apiVersion: gpuflow/v1\nkind: Site\nname: s\nextends: nvidia\nengines:\n"
        "  argo: {containers: {wait: {requests: {cpu: 100m, memory: 1e9}}}}\n"
    )
    small = {f"s{index}": {"cpu": 1, "memory": "256Mi", "needs": ["big"]} for index in range(5)}
    found = demand({"big": {"cpu": 32, "memory": "1Gi"}, **small}, "argo", Site.load(str(site)))
    assert (peak(found, "requests.cpu")[1], str(found.overhead["requests.cpu"].value)) == ("32100m", "100m")
    assert str(found.overhead["pods"].value) == "0" if "pods" in found.overhead else True
    memory = found.peak["requests.memory"].value
    assert memory is not None and memory.value == 5 * (10**9 + 256 * 2**20)
    assert found.overhead["requests.memory"].value == Quantity("5G")
    assert amount(memory, "requests.memory") == "~6048.4Mi" and amount(memory, "pods") == str(memory)
    assert amount(Quantity("1e9") - Quantity("1e9") + Quantity(str(2**28)), "limits.memory") == "256Mi"


def brute_force(pipeline: Pipeline, costs: dict[str, int]) -> int:
    """The heaviest set of steps of which none waits for another, by trying all of them. Of two between the same
    neighbors, one for a flag and one against it, one at most is in the set."""
    after = edges(pipeline)
    sides = {name: render(each.when) if each.when else "" for name, each in pipeline.steps.items()}
    around = {name: (set(after[name]), {each for each in after if name in after[each]}) for name in after}
    below: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in below:
            below[name] = set().union(*({target} | reach(target) for target in after[name]), set())
        return below[name]

    names, best = list(after), 0
    for chosen in range(1 << len(names)):
        group = [name for bit, name in enumerate(names) if chosen >> bit & 1]
        flags = [(one, two) for one in group for two in group if around[one] == around[two]]
        if any({sides[one], sides[two]} == {"params.flag", "not params.flag"} for one, two in flags):
            continue
        if all(two not in reach(one) for one in group for two in group if one != two):
            best = max(best, sum(costs[name] for name in group))
    return best


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(pipelines())
def test_the_peak_is_what_trying_every_moment_gives(document: dict[str, Any]) -> None:
    pipeline = Pipeline(**copy.deepcopy(document)).model_copy(update={"parallel": None, "exit": {}})
    try:
        found = demand_of(pipeline, NVIDIA)
    except GpuflowError:
        return  # the site has no word for a step: tests/pod
    if any(step.copies is None for step in found.steps):
        assert all(bound.bound == "unknown" or bound.value for bound in found.peak.values())
        return
    sizes = {step.name: min(step.copies or 0, pipeline.steps[step.name].parallel or 10**9) for step in found.steps}
    for key in ("pods", "requests.cpu", GPU):
        if key in found.peak:
            costs = {step.name: step.usage.get(key, Quantity.zero).milli * sizes[step.name] for step in found.steps}
            value = found.peak[key].value
            assert value is not None and value.milli == brute_force(pipeline, costs)


def test_the_worst_moment_of_the_demo_is_training_on_two_gpus() -> None:
    found = demand_of(load(ROOT / "gpuflow" / "demo" / "nightly.yaml"), NVIDIA)
    assert peak(found, GPU) == ("exact", "2", ("train",))
    assert peak(found, "requests.nvidia.com/mig-1g.10gb")[:2] == ("exact", "2")
