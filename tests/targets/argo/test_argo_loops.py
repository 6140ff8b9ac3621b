"""Fan-out as Argo's own code expands it: conditions on the item, and combinations of lists that only the run knows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline, check
from gpuflow.spec.problems import Source
from gpuflow.targets.argo import target
from gpuflow.targets.argo.facts import ArgoOptions
from gpuflow.targets.argo.workflow import build
from gpuflow.targets.target import Request, accept_losses
from tests.differential.oracle import Oracle
from tests.targets.argo.manifests import compiled, submitted, substituted, task, template
from tests.targets.argo.test_argo_text import PRINTABLE, SETTINGS, container

pytestmark = pytest.mark.go


@pytest.fixture(scope="module")
def argo() -> Iterator[Oracle]:
    with Oracle("argo", "substitution") as oracle:
        yield oracle


def manifest(fields: dict[str, Any]) -> dict[str, Any]:
    pipeline = check(Pipeline, {"name": "p", "defaults": {"image": "i"}, **fields}, Source())
    request = Request(pipeline, Site.load("nvidia"), "ns", "p.yaml", (), ArgoOptions("Workflow"))
    accept_losses(target, request, allow_lossy=False)
    return build(request)


def answers(oracle: Oracle, fields: dict[str, Any], path: list[str], **case: Any) -> list[bool]:
    """What the condition says for each copy: its text put where the oracle shows a container's command."""
    whole = manifest(fields)
    *above, name = path
    dag = task(whole, above[-1])["template"] if above else "main"
    step = task(whole, name, dag)
    step["arguments"] = {"parameters": [{"name": "c", "value": step.pop("when")}]}
    leaf = template(whole, step["template"])
    leaf["inputs"] = {"parameters": [{"name": "c"}]}
    leaf["container"] = {"image": "i", "command": ["{{inputs.parameters.c}}"]}
    words = [pod["container"]["command"][0] for pod in substituted(oracle, whole, path, **case)]
    assert set(words) <= {"true", "false"}
    return [word == "true" for word in words]


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@SETTINGS
@given(items=st.lists(PRINTABLE, min_size=1, max_size=4), other=PRINTABLE)
def test_a_condition_on_a_text_item_is_answered_for_each_item(argo: Oracle, items: list[str], other: str) -> None:
    for wanted in (items[0], other):
        step = {"for_each": {"i": items}, "when": f"item.i == {quoted(wanted)}", "command": ["x", {"item": "i"}]}
        assert answers(argo, {"steps": {"a": step}}, ["a"]) == [item == wanted for item in items]
        assert [command[1] for command, _ in container(argo, {"steps": {"a": step}}, step="a")] == items


@SETTINGS
@given(
    first=st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=3),
    second=st.lists(PRINTABLE, min_size=1, max_size=3),
    limit=st.integers(-(10**6), 10**6),
)
def test_a_condition_on_several_items_reads_each_as_its_type(
    argo: Oracle, first: list[int], second: list[str], limit: int
) -> None:
    when = f"item.i > {limit} or item.j == {quoted(second[0])}"
    step = {"for_each": {"i": first, "j": second}, "when": when, "command": ["x", {"item": "i"}, {"item": "j"}]}
    rows = list(itertools.product(first, second))
    assert answers(argo, {"steps": {"a": step}}, ["a"]) == [i > limit or j == second[0] for i, j in rows]
    found = [tuple(command[1:]) for command, _ in container(argo, {"steps": {"a": step}}, step="a")]
    assert found == [(str(i), j) for i, j in rows]


@SETTINGS
@given(value=PRINTABLE.map(submitted), items=st.lists(PRINTABLE, min_size=1, max_size=3), rows=st.integers(0, 9))
def test_inside_a_loop_of_its_own_a_condition_still_sees_parameters_and_outputs(
    argo: Oracle, value: str, items: list[str], rows: int
) -> None:
    when = "(item.i == params.p or item.i == steps.b.name) and steps.b.rows > 4"
    steps = {
        "b": {"command": ["y"], "outputs": {"rows": "int", "name": "string"}},
        "a": {"for_each": {"i": items}, "parallel": 2, "when": when, "command": ["x"]},
    }
    fields = {"params": {"p": {"type": "string", "default": "d"}}, "steps": steps}
    scope = {"tasks.b.outputs.parameters.rows": str(rows), "tasks.b.outputs.parameters.name": items[-1]}
    found = answers(argo, fields, ["a", "a"], parameters={"p": value}, scope=scope)
    assert found == [item in (value, items[-1]) and rows > 4 for item in items]


ITEMS = st.lists(
    PRINTABLE.map(submitted) | st.just("{{=1+1}}") | st.integers(-(2**53), 2**53) | st.booleans(),
    min_size=1,
    max_size=3,
)


def shown(item: Any) -> str:
    return item if isinstance(item, str) else json.dumps(item)


@SETTINGS
@given(first=ITEMS, second=ITEMS, third=st.lists(PRINTABLE, min_size=1, max_size=2), capped=st.booleans())
def test_every_combination_of_lists_that_only_the_run_knows_arrives_as_written(
    argo: Oracle, first: list[Any], second: list[Any], third: list[str], capped: bool
) -> None:
    step = {
        "for_each": {"i": {"param": "p"}, "j": {"param": "q"}, "k": third},
        "command": ["x", {"item": "i"}, {"item": "j"}, {"item": "k"}],
        **({"parallel": 2} if capped else {}),
    }
    params = {name: {"type": "json", "default": []} for name in "pq"}
    given_ = {"p": json.dumps(first), "q": json.dumps(second)}
    found = container(
        argo, {"params": params, "steps": {"a": step}}, step="a", parameters=given_, path=["a", "a"] if capped else None
    )
    expected = [tuple(map(shown, row)) for row in itertools.product(first, second, third)]
    assert [tuple(command[1:]) for command, _ in found] == expected


def test_a_fan_out_whose_items_may_all_be_left_out_gives_an_empty_list() -> None:
    text = """
params: {go: {type: int, default: 1}}
steps:
  each: {for_each: {x: [1, 2]}, when: item.x > params.go, command: [y], outputs: {score: float}}
  sum: {if_skipped: skip, command: [z, {output: each.score}]}
"""
    whole = compiled(text)
    (output,) = template(whole, "each-loop")["outputs"]["parameters"]
    assert output["valueFrom"] == {"parameter": "{{tasks.each.outputs.parameters.score}}", "default": "[]"}
    assert "parallelism" not in template(whole, "each-loop")


def test_an_item_that_argo_cannot_carry_is_refused_also_with_a_condition() -> None:
    step = {"for_each": {"i": ["\x07"]}, "when": "item.i == 'a'", "command": ["x"]}
    with pytest.raises(GpuflowError, match="GF306"):
        manifest({"steps": {"a": step}})


def test_a_parameter_called_items_does_not_meet_the_list_of_the_loop(argo: Oracle) -> None:
    fields = {
        "params": {"items": {"type": "json", "default": ["a", "b"]}},
        "steps": {
            "each": {
                "for_each": {"items": {"param": "items"}},
                "parallel": 1,
                "command": ["c", {"item": "items"}, {"param": "items"}],
            }
        },
    }
    pods = substituted(argo, manifest(fields), ["each", "each"])
    assert [pod["container"]["command"] for pod in pods] == [["c", "a", '["a","b"]'], ["c", "b", '["a","b"]']]
