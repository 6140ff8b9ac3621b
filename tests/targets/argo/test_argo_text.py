"""What a user writes reaches the container unchanged: asked of Argo's own substitution, then of the kubelet's rule.

Tests gpuflow/targets/argo/references.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline, check
from gpuflow.spec.problems import Source
from gpuflow.targets.argo.facts import ArgoOptions
from gpuflow.targets.argo.workflow import build
from gpuflow.targets.target import Request
from tests.differential.oracle import Oracle
from tests.targets.argo.manifests import compiled, submitted

pytestmark = pytest.mark.go

TRICKS = [
    "{{workflow.name}}", "{{=1+1}}", "{{", "}}", "{{{", "{", "${{ x }}", "$(HOME)", "$$", "$", "$(", "'", '"', "\n",
    "\\", "{{inputs.parameters.p}}", "{{item}}", "{{tasks.a.outputs.parameters.x}}", "y", "1e3", "0o7", "null", "🙂",
    "$(GPUFLOW_BRACE)", "{{workflow.parameters.p}}", "{%", "\t", "a", " ",
]  # fmt: skip
TEXT = st.lists(
    st.sampled_from(TRICKS) | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5), max_size=6
).map("".join)


# Argo quotes what it replaces as Go does, which is not JSON for the unprintable: it then ends the workflow, loudly.
PRINTABLE = TEXT.map(lambda text: "".join(c for c in text if c.isprintable() or c in "\n\t\r"))


@pytest.fixture(scope="module")
def argo() -> Iterator[Oracle]:
    with Oracle("argo", "substitution") as oracle:
        yield oracle


def kubelet(text: str, variables: dict[str, str]) -> str:
    """Kubernetes' own rule: `$$` is `$`, `$(NAME)` is replaced when it is known, everything else stays."""
    result, position = "", 0
    while position < len(text):
        if text[position] != "$" or position + 1 == len(text):
            result += text[position]
            position += 1
            continue
        follows = text[position + 1]
        if follows == "$":
            result, position = result + "$", position + 2
        elif follows == "(" and (match := re.compile(r"\$\(([^)]*)\)", re.DOTALL).match(text, position)):
            result += variables.get(match[1], match[0])
            position = match.end()
        else:
            result, position = result + "$" + follows, position + 2
    return result


def container(
    oracle: Oracle,
    fields: dict[str, Any],
    *,
    step: str,
    parameters: dict[str, str] | None = None,
    scope: dict[str, str] | None = None,
    path: list[str] | None = None,
) -> list[tuple[list[str], dict[str, str]]]:
    """Commands and environments as programs receive them: compiled, substituted by Argo, expanded by the kubelet."""
    data = {"name": "p", "defaults": {"image": "i"}, **fields}
    pipeline = check(Pipeline, data, Source())
    manifest = build(Request(pipeline, Site.load("nvidia"), "ns", "p.yaml", (), ArgoOptions("Workflow")))
    manifest["metadata"] = {"name": "wf", "namespace": "ns", "uid": "0-1"}
    case = {"workflow": manifest, "parameters": parameters or {}, "path": path or [step], "scope": scope or {}}
    (answer,) = oracle.ask([case])
    assert "pods" in answer, answer
    found = []
    for pod in answer["pods"]:
        received: dict[str, str] = {}
        for entry in pod["container"].get("env", []):
            received[entry["name"]] = kubelet(entry.get("value", ""), received)
        found.append(([kubelet(word, received) for word in pod["container"]["command"]], received))
    return found


def evaluated(oracle: Oracle, fields: dict[str, Any], parameters: dict[str, str]) -> bool:
    """What Argo makes of the condition: its expression put where the oracle shows a container's text."""
    pipeline = check(Pipeline, {"name": "p", "defaults": {"image": "i"}, **fields}, Source())
    manifest = build(Request(pipeline, Site.load("nvidia"), "ns", "p.yaml", (), ArgoOptions("Workflow")))
    manifest["metadata"] = {"name": "wf", "namespace": "ns", "uid": "0-1"}
    main, leaf = manifest["spec"]["templates"]
    (task,) = main["dag"]["tasks"]
    task["arguments"] = {"parameters": [{"name": "c", "value": task.pop("when")}]}
    leaf["inputs"] = {"parameters": [{"name": "c"}]}
    leaf["container"]["command"] = ["{{inputs.parameters.c}}"]
    (answer,) = oracle.ask([{"workflow": manifest, "parameters": parameters, "path": ["a"], "scope": {}}])
    assert "pods" in answer, answer
    (word,) = answer["pods"][0]["container"]["command"]
    assert word in ("true", "false")
    return bool(word == "true")


SETTINGS = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SETTINGS
@given(word=TEXT, value=TEXT, script=TEXT)
def test_text_in_commands_variables_and_scripts_arrives_as_written(
    argo: Oracle, word: str, value: str, script: str
) -> None:
    steps: dict[str, Any] = {"a": {"command": ["x", word], "env": {"E": value}}, "b": {"script": {"run": script}}}
    (((_, got), env),) = container(argo, {"steps": steps}, step="a")
    assert got == word
    assert env["E"] == value
    ((command, _),) = container(argo, {"steps": steps}, step="b")
    assert command[3] == script


@SETTINGS
@given(value=PRINTABLE, before=TEXT, after=TEXT)
def test_parameters_arrive_as_given_also_glued_to_other_text(argo: Oracle, value: str, before: str, after: str) -> None:
    steps = {"a": {"command": ["x", {"join": [before, {"param": "p"}, after]}], "env": {"E": {"param": "p"}}}}
    fields = {"params": {"p": {"type": "string", "default": "d"}}, "steps": steps}
    (((_, got), env),) = container(argo, fields, step="a", parameters={"p": value})
    assert got == before + value + after
    assert env["E"] == value


@SETTINGS
@given(value=PRINTABLE)
def test_outputs_arrive_as_written(argo: Oracle, value: str) -> None:
    steps = {"a": {"command": ["x"], "outputs": {"o": "string"}}, "b": {"command": ["y", {"output": "a.o"}]}}
    (((_, got), _),) = container(argo, {"steps": steps}, step="b", scope={"tasks.a.outputs.parameters.o": value})
    assert got == value


@SETTINGS
@given(items=st.lists(PRINTABLE, min_size=1, max_size=4))
def test_items_of_a_list_arrive_as_written(argo: Oracle, items: list[str]) -> None:
    steps = {"a": {"for_each": {"i": items}, "command": ["x", {"join": [{"item": "i"}, "!"]}]}}
    assert [command[1] for command, _ in container(argo, {"steps": steps}, step="a")] == [f"{item}!" for item in items]


@SETTINGS
@given(first=st.lists(PRINTABLE, min_size=1, max_size=3), second=st.lists(PRINTABLE, min_size=1, max_size=3))
def test_combinations_arrive_as_written(argo: Oracle, first: list[str], second: list[str]) -> None:
    loop = {"for_each": {"i": first, "j": second}, "parallel": 2}
    steps = {"a": {**loop, "command": ["x", {"item": "i"}, {"item": "j"}]}}
    found = [tuple(command[1:]) for command, _ in container(argo, {"steps": steps}, step="a", path=["a", "a"])]
    assert found == [(one, two) for one in first for two in second]


@SETTINGS
@given(items=st.lists(PRINTABLE | st.integers() | st.booleans(), min_size=1, max_size=4))
def test_items_known_at_run_time_arrive_as_written(argo: Oracle, items: list[Any]) -> None:
    import json

    steps = {"a": {"for_each": {"i": {"param": "p"}}, "parallel": 2, "command": ["x", {"item": "i"}]}}
    fields = {"params": {"p": {"type": "json", "default": []}}, "steps": steps}
    found = container(argo, fields, step="a", parameters={"p": json.dumps(items)}, path=["a", "a"])
    expected = [item if isinstance(item, str) else json.dumps(item) for item in items]
    assert [command[1] for command, _ in found] == expected


@SETTINGS
@example(value="", other="{{=")
@given(value=PRINTABLE, other=PRINTABLE)
def test_conditions_compare_text_as_it_is(argo: Oracle, value: str, other: str) -> None:
    quoted = "'" + other.replace("\\", "\\\\").replace("'", "\\'") + "'"
    steps = {"a": {"when": f"params.p == {quoted}", "command": ["x"]}}
    fields = {"params": {"p": {"type": "string", "default": "d"}}, "steps": steps}
    for given_value in (submitted(value), submitted(other)):
        assert evaluated(argo, fields, {"p": given_value}) == (given_value == other)


@SETTINGS
@given(value=PRINTABLE)
def test_a_sub_pipeline_hands_parameters_on_unchanged(argo: Oracle, value: str) -> None:
    inner = {
        "name": "q",
        "defaults": {"image": "i"},
        "params": {"k": {"type": "string"}},
        "steps": {"b": {"command": ["y", {"param": "k"}]}},
    }
    steps = {"a": {"pipeline": inner, "params": {"k": {"param": "p"}}}}
    fields = {"params": {"p": {"type": "string", "default": "d"}}, "steps": steps}
    (((_, got), _),) = container(argo, fields, step="a", parameters={"p": value}, path=["a", "b"])
    assert got == value


@pytest.mark.parametrize(
    "text",
    [
        'params: {p: {default: "a {{= b"}}\nsteps: {s: {command: [x]}}',
        'params: {p: {default: "{{=1}} {{= b"}}\nsteps: {s: {command: [x]}}',
        'params: {p: {default: b, description: "set it to {{="}}\nsteps: {s: {command: [x]}}',
        'steps: {s: {approval: "deploy {{workflow.name}}?"}}',
    ],
    ids=["a default", "a default behind an expression", "a description", "a question"],
)
def test_text_that_argo_would_take_for_its_own_is_refused(text: str) -> None:
    with pytest.raises(GpuflowError, match="GF306"):
        compiled(text)


def test_a_default_with_whole_tags_is_no_trouble() -> None:
    manifest = compiled('params: {p: {default: "{{=1+1}} {{x}} {{"}}\nsteps: {s: {command: [x, {param: p}]}}')
    assert manifest["spec"]["arguments"]["parameters"] == [{"name": "p", "value": "{{=1+1}} {{x}} {{"}]
