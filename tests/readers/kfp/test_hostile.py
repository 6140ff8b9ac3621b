"""Whatever a document says, the reader answers or refuses: no traceback, no endless loop.

Tests gpuflow/readers/kfp/values.py.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given as having
from hypothesis import settings
from hypothesis import strategies as st

from gpuflow.core.errors import GpuflowError
from gpuflow.readers.kfp.values import Condition, KnownValue, OpenValue, condition_of
from tests.readers.kfp.documents import constant, container, given, group, loop, output, pipeline, platform, read, task

STRING = {"parameterType": "STRING"}
WHEN = {"condition": "int(inputs.parameter_values['x']) > 5 && !(inputs.parameter_values['y'] == 'a')"}
EVERYTHING = pipeline(
    {
        "make": task("create", inputs={"size": constant("1Gi"), "access_modes": constant(["ReadWriteOnce"])}),
        "each": task("loop", inputs={"l": given("list")}, **loop("l", limit=2)),
        "when": task("if", inputs={"x": given("number"), "y": output("make")}, triggerPolicy=WHEN),
        "end": task("a", after=("each",), triggerPolicy={"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}),
        "get": task("get", cachingOptions={"enableCache": True}, retryPolicy={"maxRetryCount": 2}),
        "again": task("again"),
    },
    components={
        "comp-loop": group({"a": task("a", inputs={"x": given("item")})}, l={"parameterType": "LIST"}, item=STRING),
        "comp-if": group({"a": task("a", inputs={"x": given("x")})}, x={"parameterType": "NUMBER_INTEGER"}, y=STRING),
        "comp-again": group({"a": task("a"), "b": task("again")}),
        "comp-a": {
            "executorLabel": "exec-a",
            "inputDefinitions": {"parameters": {"x": {**STRING, "isOptional": True, "defaultValue": "1Gi"}}},
            "outputDefinitions": {"artifacts": {"m": {"artifactType": {"schemaTitle": "system.Model"}}}},
        },
    },
    executors={
        "exec-a": container(
            resourceMemoryLimit="{{$.inputs.parameters['x']}}",
            cpuLimit=2.0,
            accelerator={"resourceType": "nvidia.com/gpu", "resourceCount": "1"},
        ),
        "exec-create": container("argostub/createpvc"),
        "exec-get": {"importer": {"artifactUri": {"constant": "oci://x/y"}}},
    },
    params={
        "list": {"parameterType": "LIST", "defaultValue": ["1Gi", "2Gi"]},
        "number": {"parameterType": "NUMBER_INTEGER", "defaultValue": 3.0},
    },
)
SETTINGS = platform(
    a={
        "nodeSelector": {"labels": {"k": "v"}},
        "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": "5"}],
        "pvcMount": [{"pvcNameParameter": constant("data"), "mountPath": "/d"}],
        "secretAsEnv": [{"secretName": "s", "keyToEnv": [{"secretKey": "k", "envVar": "E"}]}],
        "nodeAffinity": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}], "weight": 3}],
        "podMetadata": {"labels": {"l": "m"}},
        "genericEphemeralVolume": [
            {"volumeName": "g", "mountPath": "/g", "size": "1Gi", "accessModes": ["ReadWriteOnce"]}
        ],
        "securityContext": {"runAsUser": "1"},
        "initContainers": [{"name": "i", "image": "i", "resources": {"limits": {"cpu": "1"}}}],
    }
)
SETTINGS["platforms"]["kubernetes"]["pipelineConfig"] = {"workspace": {"size": "1Gi", "kubernetes": {}}}

TEXTS = st.sampled_from(
    (
        "",
        "x",
        "1Gi",
        "-1",
        "1e999",
        "NaN",
        "[1]",
        "{}",
        "null",
        "comp-a",
        "comp-again",
        "exec-a",
        "a",
        "[" * 2000,
        "{{$.inputs.parameters['x']}}",
        "{{$.pipeline_job_uuid}}",
        "inputs.parameter_values['x'] ==",
        "9" * 5000,
    )
)
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), TEXTS
)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=5
)


def paths(tree: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place of a document."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield (*path, key)
        yield from paths(value, (*path, key))


BOTH = [EVERYTHING, SETTINGS]
PLACES = [path for path in paths(BOTH) if len(path) > 1 and path[1] != "pipelineInfo"]


def change(tree: Any, path: tuple[str | int, ...], value: Any) -> None:
    """Put a value at a place, unless an earlier change took the place away."""
    with contextlib.suppress(KeyError, IndexError, TypeError):
        for part in path[:-1]:
            tree = tree[part]
        tree[path[-1]] = value


def test_the_document_itself_is_read() -> None:
    demand = read(EVERYTHING, SETTINGS)
    assert [step.name for step in demand.steps]


@settings(max_examples=200)
@having(
    st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3), st.sampled_from(["none", "kubeflow"])
)
def test_a_document_with_anything_anywhere_is_read_or_refused(
    changes: list[tuple[tuple[str | int, ...], Any]], engine: str
) -> None:
    documents = copy.deepcopy(BOTH)
    for path, value in changes:
        change(documents, path, value)
    documents[0]["root"] = documents[0]["root"] or {"dag": {}}
    with contextlib.suppress(GpuflowError):
        demand = read(*documents, engine=engine)
        assert demand.peak is not None
        json.dumps(demand.document())


@having(st.text(alphabet="inputs.parameter_values['x']()!&|=<>-0123456789 \"\\truefalsint,", max_size=60))
def test_any_condition_is_decided_or_open(text: str) -> None:
    known = condition_of(text, {"x": KnownValue("a"), "y": OpenValue("later", by_item=True)})
    assert known.holds in (True, False, None)


@pytest.mark.parametrize("rest", [" == 'a' == 'b'", " == unheard('a')", " && 1 @", " == 'a'" + " || !true" * 300])
def test_a_condition_that_breaks_off_still_is_by_item(rest: str) -> None:
    inputs = {"x": KnownValue("a"), "y": OpenValue("later", by_item=True)}
    assert condition_of("inputs.parameter_values['y']" + rest, inputs) == Condition(None, by_item=True)
    assert condition_of("inputs.parameter_values['x']" + rest, inputs) == Condition(None, by_item=False)


@having(st.text(max_size=40))
def test_any_text_may_be_given_for_a_parameter(text: str) -> None:
    with contextlib.suppress(GpuflowError):
        read(EVERYTHING, SETTINGS, params={"list": text, "number": text})
