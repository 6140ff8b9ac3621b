"""A step that reads what a skipped one would have left gets the default; Argo itself would wait for it forever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from tests.differential.oracle import Oracle
from tests.targets.argo.manifests import compiled, substituted, task, template

PIPELINE = """
params: {go: {type: bool, default: false}}
steps:
  a:
    when: params.go
    command: [a]
    outputs:
      o: {type: string, default: "none {yet} $(HOME)"}
      n: {type: int, default: 7}
      l: {type: json, default: [x, y]}
  after: {if_skipped: run, command: [b, {output: a.o}, {output: a.n}]}
  asked: {if_skipped: run, when: steps.a.n > 5, command: [c]}
  each: {if_skipped: run, for_each: {i: {output: a.l}}, command: [d, {item: i}]}
  pairs: {if_skipped: run, for_each: {i: {output: a.l}, j: [1, 2]}, command: [e, {item: i}, {item: j}]}
  some:
    if_skipped: run
    for_each: {i: [1, 9]}
    when: item.i > steps.a.n and steps.a.o != 'x'
    command: [f, {item: i}]
    parallel: 1
  sub:
    if_skipped: run
    params: {t: {output: a.o}, n: {output: a.n}}
    pipeline:
      apiVersion: gpuflow/v1
      kind: Pipeline
      name: s
      params: {t: {}, n: {type: int}}
      steps: {inner: {image: i, command: [g, {param: t}, {param: n}]}}
"""
SKIPPED = {"tasks.a.status": "Skipped"}
DONE = {
    "tasks.a.status": "Succeeded",
    "tasks.a.outputs.parameters.o": "it's {{here}}",
    "tasks.a.outputs.parameters.n": "3",
    "tasks.a.outputs.parameters.l": '["z"]',
}


@pytest.fixture(scope="module")
def argo() -> Iterator[Oracle]:
    with Oracle("argo", "substitution") as oracle:
        yield oracle


def plain(words: list[str]) -> list[str]:
    """What the program gets: what the kubelet makes of the words."""
    return [word.replace("$(GPUFLOW_BRACE)", "{").replace("$$", "$") for word in words]


@pytest.mark.go
@pytest.mark.parametrize(
    ("path", "skipped", "done"),
    [
        (["after"], [["b", "none {yet} $(HOME)", "7"]], [["b", "it's {{here}}", "3"]]),
        (["each"], [["d", "x"], ["d", "y"]], [["d", "z"]]),
        (
            ["pairs"],
            [["e", "x", "1"], ["e", "x", "2"], ["e", "y", "1"], ["e", "y", "2"]],
            [["e", "z", "1"], ["e", "z", "2"]],
        ),
        (["sub", "inner"], [["g", "none {yet} $(HOME)", "7"]], [["g", "it's {{here}}", "3"]]),
    ],
    ids=["a step", "a fan-out", "every combination", "a sub-pipeline"],
)
def test_the_default_is_read_where_the_step_was_skipped(
    argo: Oracle, path: list[str], skipped: list[list[str]], done: list[list[str]]
) -> None:
    manifest = compiled(PIPELINE, kind="Workflow")
    for scope, expected in ((SKIPPED, skipped), (DONE, done)):
        pods = substituted(argo, manifest, path, scope=scope)
        assert [plain(pod["container"]["command"]) for pod in pods] == expected


@pytest.mark.go
@pytest.mark.parametrize(("path", "dag"), [(["asked"], "main"), (["some", "some"], "some-loop")])
@pytest.mark.parametrize(("scope", "number"), [(SKIPPED, 7), (DONE, 3)], ids=["skipped", "done"])
def test_a_condition_is_asked_about_the_default(
    argo: Oracle, path: list[str], dag: str, scope: dict[str, str], number: int
) -> None:
    manifest = compiled(PIPELINE, kind="Workflow")
    expected = [number > 5] if path == ["asked"] else [item > number for item in (1, 9)]
    assert _answers(argo, manifest, path, dag, scope) == expected


def _answers(argo: Oracle, manifest: dict[str, Any], path: list[str], dag: str, scope: dict[str, str]) -> list[bool]:
    """The condition's text put where the oracle shows a container's command."""
    step = task(manifest, path[-1], dag)
    step["arguments"] = {"parameters": [{"name": "c", "value": step.pop("when")}]}
    leaf = template(manifest, step["template"])
    leaf["inputs"] = {"parameters": [{"name": "c"}]}
    leaf["container"] = {"image": "i", "command": ["{{inputs.parameters.c}}"]}
    words = [pod["container"]["command"][0] for pod in substituted(argo, manifest, path, scope=scope)]
    assert set(words) <= {"true", "false"}
    return [word == "true" for word in words]


def test_a_step_that_is_skipped_with_the_other_reads_it_plainly() -> None:
    manifest = compiled(PIPELINE.replace("if_skipped: run", "if_skipped: skip"))
    (number, _) = task(manifest, "after")["arguments"]["parameters"]
    value = "tasks['a'].outputs.parameters['n']"
    check = f"{value} matches '^[-+]?[0-9]+$' ? {value} : sprig.fail('the output n of a is not an int')"
    assert number == {"name": "a-n", "value": f"{{{{=({check})}}}}"}


def test_the_output_of_a_sub_pipeline_has_the_default_of_the_step_that_may_be_skipped() -> None:
    manifest = compiled("""
steps:
  s:
    pipeline:
      apiVersion: gpuflow/v1
      kind: Pipeline
      name: s
      params: {go: {type: bool, default: false}}
      steps:
        a: {image: i, when: params.go, command: [a], outputs: {o: {type: int, default: 7}}}
        l: {image: i, when: params.go, for_each: {i: [1, 2]}, command: [a], outputs: {o: {type: int, default: 7}}}
        b: {image: i, command: [a], outputs: {o: int}}
      outputs: {a: {output: a.o}, l: {output: l.o}, b: {output: b.o}}
""")
    outputs = template(manifest, "s")["outputs"]["parameters"]
    assert {one["name"]: one["valueFrom"].get("default") for one in outputs} == {"a": "7", "l": "[]", "b": None}


EMPTY = """
steps:
  plan: {command: [p], outputs: {shards: json}}
  each: {for_each: {s: {output: plan.shards}}, command: [e, {item: s}], outputs: {score: float}}
  few: {for_each: {s: {output: plan.shards}}, parallel: 2, command: [f, {item: s}], outputs: {score: float}}
  sum: {if_skipped: run, command: [s, {output: each.score}]}
"""


@pytest.mark.go
def test_a_fan_out_over_an_empty_list_leaves_an_empty_list(argo: Oracle) -> None:
    manifest = compiled(EMPTY, kind="Workflow")
    (pod,) = substituted(argo, manifest, ["sum"], scope={"tasks.each.status": "Skipped"})
    assert pod["container"]["command"] == ["s", "[]"]
    (output,) = template(manifest, "few-loop")["outputs"]["parameters"]
    assert output["valueFrom"]["default"] == "[]"


def test_an_output_of_a_sub_pipeline_that_may_be_missing_is_refused() -> None:
    inner = "{name: s, params: {go: {type: bool}}, steps: {a: {image: i, command: [a], when: params.go, "
    outputs = "outputs: {o: OUTPUT}}}, outputs: {o: {output: a.o}}}"
    text = f"steps: {{sub: {{params: {{go: true}}, pipeline: {inner}{outputs}}}}}"
    with pytest.raises(GpuflowError, match=r'GF190 the output "o" would be missing when "a" is skipped'):
        compiled(text.replace("OUTPUT", "string"))
    manifest = compiled(text.replace("OUTPUT", "{type: string, default: none}"))
    (output,) = template(manifest, "sub")["outputs"]["parameters"]
    assert output["valueFrom"]["default"] == "none"
