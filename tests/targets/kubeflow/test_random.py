"""Any pipeline that compiles is sound: names lead somewhere, types fit, and the driver's pods are the steps' pods."""

from __future__ import annotations

from typing import Any

import yaml
from google.protobuf import json_format
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kfp.components import load_component_from_text
from kfp.pipeline_spec import pipeline_spec_pb2 as ir

from gpuflow.core.errors import GpuflowError
from gpuflow.spec.loading import loads
from tests.targets.kubeflow.compiling import HEAD, compiled
from tests.targets.kubeflow.test_ir import check_dag
from tests.targets.kubeflow.test_pods import check_pods

PARAMS = {"n": 3, "rate": 0.5, "word": "hi", "yes": True, "many": {"type": "json", "default": ["a", "b"]}}
OUTPUTS = ("int", "float", "string", "bool", "json")
CONDITIONS = ("params.n > 2", "params.yes", "params.word == 'hi' or params.rate < 1", "not (params.n in [1, 2])")


@st.composite
def pipelines(draw: st.DrawFn) -> dict[str, Any]:
    """A pipeline of up to five steps that read one another, repeat, and depend on conditions."""
    steps: dict[str, Any] = {}
    outputs: list[tuple[str, str, bool]] = []
    for index in range(draw(st.integers(1, 5))):
        name = f"s{index}"
        step, gives = draw(_step(outputs, list(steps)))
        steps[name] = step
        outputs += [(f"{name}.{key}", kind, "for_each" in step) for key, kind in gives.items()]
    document: dict[str, Any] = {"name": "p", "defaults": {"image": "i:1"}, "params": PARAMS, "steps": steps}
    if draw(st.booleans()):
        document["claims"] = {"scratch": {"size": "1Gi", "storage_class": "fast"}}
        for name in draw(st.lists(st.sampled_from(sorted(steps)), unique=True)):
            steps[name]["volumes"] = {"/scratch": {"new_claim": "scratch"}}
    for index in range(draw(st.integers(0, 2))):
        command = ["end", {"param": draw(st.sampled_from(sorted(PARAMS)))}]
        document.setdefault("exit", {})[f"e{index}"] = {
            "command": command,
            "on": draw(st.sampled_from(["always", "failure", "success"])),
        }
    return document


@st.composite
def _step(
    draw: st.DrawFn, outputs: list[tuple[str, str, bool]], before: list[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    words: list[Any] = [
        "run",
        *({"param": name} for name in draw(st.lists(st.sampled_from(sorted(PARAMS)), max_size=2))),
    ]
    step: dict[str, Any] = {"if_skipped": "skip"}
    if outputs:
        words += [{"output": name} for name, _, _ in draw(st.lists(st.sampled_from(outputs), max_size=2))]
    if before:
        step["needs"] = draw(st.lists(st.sampled_from(before), unique=True, max_size=2))
    lists = [{"output": name} for name, kind, fan in outputs if kind == "json" or fan]
    sources = st.sampled_from([["x", "y"], [1, 2], {"range": 3}, {"param": "many"}, *lists])
    variables = draw(st.dictionaries(st.sampled_from(["a", "b"]), sources, max_size=2))
    if variables:
        step["for_each"] = variables
        words += [{"item": name} for name in variables]
        step["parallel"] = draw(st.integers(1, 3))
    scalars = [name for name, kind, fan in outputs if kind == "int" and not fan]
    conditions = [*CONDITIONS, *(f"steps.{name} >= params.n" for name in scalars)]
    conditions += [f"item.{name} == 1" for name, source in variables.items() if source == [1, 2]]
    if draw(st.booleans()):
        step["when"] = draw(st.sampled_from(conditions))
    gives = draw(st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(OUTPUTS), max_size=2))
    return {**step, "command": words, "outputs": dict(gives)}, gives


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(pipelines())
def test_whatever_compiles_is_sound(document: dict[str, Any]) -> None:
    source = yaml.safe_dump(document, sort_keys=False)
    pipeline = loads(HEAD + source)
    try:
        text = compiled(source)
    except GpuflowError as refusal:
        assume("lists of lists" not in str(refusal) and "may be left out" not in str(refusal))
        raise
    spec, platform = yaml.safe_load_all(text)
    json_format.ParseDict(spec, ir.PipelineSpec())
    for component in [spec["root"], *spec["components"].values()]:
        check_dag(component, spec["components"])
    check_pods(pipeline, spec, platform)
    assert set(load_component_from_text(text).component_spec.inputs) == set(PARAMS)
