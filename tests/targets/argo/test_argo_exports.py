"""Exit steps that read outputs: as the step left them, or their default, whatever the text is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline, check
from gpuflow.spec.problems import Source
from gpuflow.targets.argo import target
from gpuflow.targets.argo.facts import ArgoOptions
from gpuflow.targets.argo.workflow import build
from gpuflow.targets.target import Request, accept_losses
from tests.differential.oracle import Oracle
from tests.targets.argo.manifests import compiled, substituted, task, template
from tests.targets.argo.test_argo_text import PRINTABLE, SETTINGS, kubelet

pytestmark = pytest.mark.go


@pytest.fixture(scope="module")
def argo() -> Iterator[Oracle]:
    with Oracle("argo", "substitution") as oracle:
        yield oracle


def ending(fields: dict[str, Any]) -> dict[str, Any]:
    """The workflow as its exit handler sees it."""
    pipeline = check(Pipeline, {"name": "p", "defaults": {"image": "i"}, **fields}, Source())
    request = Request(pipeline, Site.load("nvidia"), "ns", "p.yaml", (), ArgoOptions("Workflow"))
    accept_losses(target, request, allow_lossy=False)
    manifest = build(request)
    manifest["spec"]["entrypoint"] = manifest["spec"].pop("onExit")
    return manifest


def received(pod: dict[str, Any]) -> list[str]:
    variables: dict[str, str] = {}
    for entry in pod["container"].get("env", []):
        variables[entry["name"]] = kubelet(entry.get("value", ""), variables)
    return [kubelet(word, variables) for word in pod["container"]["command"]]


def said(oracle: Oracle, fields: dict[str, Any], scope: dict[str, str]) -> list[str]:
    (pod,) = substituted(oracle, ending(fields), ["tell"], scope=scope)
    return received(pod)[1:]


@SETTINGS
@given(value=PRINTABLE, default=PRINTABLE.map(lambda text: text.replace("{{", "{ ")))
def test_an_exit_step_gets_the_output_or_its_default_byte_for_byte(argo: Oracle, value: str, default: str) -> None:
    outputs = {"name": {"type": "string", "default": default}, "rows": {"type": "int", "default": 7}}
    fields = {
        "steps": {"a": {"command": ["x"], "outputs": outputs}},
        "exit": {"tell": {"command": ["y", {"output": "a.name"}, {"output": "a.rows"}]}},
    }
    assert said(argo, fields, {}) == [default, "7"]
    assert said(argo, fields, {"workflow.outputs.parameters.other": "x"}) == [default, "7"]
    left = {"workflow.outputs.parameters.a-name": value, "workflow.outputs.parameters.a-rows": "9"}
    assert said(argo, fields, left) == [value, "9"]


def test_only_what_exit_steps_read_is_exported() -> None:
    text = """
steps:
  a: {command: [x], outputs: {n: {type: int, default: 0}, m: {type: int, default: 0}}}
  each: {for_each: {i: [1, 2]}, command: [y], outputs: {score: {type: float, default: 0}}}
exit:
  tell: {command: [z, {output: a.n}, {output: each.score}]}
"""
    manifest = compiled(text)
    names = [parameter.get("globalName") for parameter in template(manifest, "a")["outputs"]["parameters"]]
    assert names == [None, "a-n"]  # m before n
    assert "globalName" not in template(manifest, "each")["outputs"]["parameters"][0]
    assert template(manifest, "each-loop")["outputs"]["parameters"][0]["globalName"] == "each-score"
    values = [parameter["value"] for parameter in task(manifest, "tell", "exit")["arguments"]["parameters"]]
    value = "(workflow.outputs?.parameters?.['a-n'] ?? \"0\")"
    check = f"{value} matches '^[-+]?[0-9]+$' ? {value} : sprig.fail('the output n of a is not an int')"
    assert values[0] == f"{{{{=({check})}}}}"
    assert '?? "[]"' in values[1]


def test_what_a_loop_gathers_or_a_cache_answers_is_exported_before_the_run_may_fail() -> None:
    """Argo exports outputs of a DAG's tasks when that DAG succeeds, so the DAG must not be the whole run."""
    text = """
params: {n: {type: int, default: 1}}
steps:
  a: {command: [x, {param: n}], cache: true, outputs: {o: {type: int, default: 0}}}
  each: {for_each: {i: [1, 2]}, command: [y, {item: i}, {param: n}], outputs: {score: {type: float, default: 0}}}
  last: {command: [z, {output: a.o}, {output: each.score}]}
exit:
  tell: {command: [z, {output: a.o}, {output: each.score}]}
"""
    manifest = compiled(text)
    for name, inner in (("a", "a"), ("each", "each-loop")):
        assert task(manifest, name)["template"] == f"{name}-export"
        assert task(manifest, name, f"{name}-export")["template"] == inner
        values = [parameter["value"] for parameter in task(manifest, name, f"{name}-export")["arguments"]["parameters"]]
        assert values == ["{{inputs.parameters.n}}"]
    assert compiled(text.replace("command: [z, {output: a.o}, {output: each.score}]}\nexit", "command: [z]}\nexit"))
    key = template(manifest, "a")["memoize"]["key"]
    assert key != template(compiled(text[: text.index("exit:")]), "a")["memoize"]["key"]


@pytest.mark.parametrize(
    ("status", "rows", "runs"),
    [("Succeeded", "9", "true"), ("Succeeded", None, "false"), ("Failed", "9", "false")],
)
def test_an_exit_step_runs_by_the_end_of_the_run_and_by_its_own_condition(
    argo: Oracle, status: str, rows: str | None, runs: str
) -> None:
    fields = {
        "steps": {"a": {"command": ["x"], "outputs": {"rows": {"type": "int", "default": 0}}}},
        "exit": {"tell": {"on": "success", "when": "steps.a.rows > 4", "command": ["y"]}},
    }
    manifest = ending(fields)
    step = task(manifest, "tell", "exit")
    step["arguments"] = {"parameters": [{"name": "c", "value": step.pop("when")}]}
    leaf = template(manifest, "tell")
    leaf["inputs"] = {"parameters": [{"name": "c"}]}
    leaf["container"] = {"image": "i", "command": ["{{inputs.parameters.c}}"]}
    scope = {"workflow.status": status} | ({} if rows is None else {"workflow.outputs.parameters.a-rows": rows})
    (pod,) = substituted(argo, manifest, ["tell"], scope=scope)
    assert pod["container"]["command"] == [runs]


def test_a_default_that_argo_would_change_is_refused() -> None:
    outputs = {"name": {"type": "string", "default": "{{workflow.name}}"}}
    with pytest.raises(GpuflowError, match="GF306"):
        ending({"steps": {"a": {"command": ["x"], "outputs": outputs}}, "exit": {"tell": {"command": ["y"]}}})
