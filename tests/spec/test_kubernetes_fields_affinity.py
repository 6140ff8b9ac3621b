"""The affinity of the escape hatch: a key that Kubernetes does not know is said by its place, not lost further on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.spec.loading import loads

REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
TERM = {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
POD = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}, "namespaces": ["n"]}


def pipeline(affinity: Any) -> Any:
    step = {"image": "i", "command": ["x"], "kubernetes": {"affinity": affinity}}
    return loads(json.dumps({"apiVersion": "gpuflow/v1", "kind": "Pipeline", "name": "p", "steps": {"a": step}}))


@pytest.mark.parametrize(
    "affinity",
    [
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM, {"matchFields": TERM["matchExpressions"]}]}}},
        {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": TERM}]}},
        {"podAffinity": {REQUIRED: [POD]}, "podAntiAffinity": {PREFERRED: [{"weight": 5, "podAffinityTerm": POD}]}},
    ],
)
def test_what_kubernetes_knows_is_taken_as_it_is(affinity: Any) -> None:
    assert pipeline(affinity).steps["a"].kubernetes.affinity == affinity


def test_null_is_a_key_that_is_not_there_as_in_kubernetes() -> None:
    needed = {"key": "k", "operator": "Exists"}
    given = {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{**needed, "values": None}]}]}},
        "podAffinity": None,
        "podAntiAffinity": {REQUIRED: [{**POD, "namespaceSelector": None}]},
    }
    assert pipeline(given).steps["a"].kubernetes.affinity == {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [needed]}]}},
        "podAntiAffinity": {REQUIRED: [POD]},
    }


@pytest.mark.parametrize(
    ("affinity", "words"),
    [
        ({"nodeAffinity": {"x": []}}, "nodeAffinity has no 'x'"),
        ({"nodeAffinity": {PREFERRED: [{"weight": 1, "preferences": TERM}]}}, "has no 'preferences'"),
        ({"nodeAffinity": {PREFERRED: [{"preference": TERM}]}}, "has no weight"),
        ({"nodeAffinity": {PREFERRED: [{"weight": None, "preference": TERM}]}}, "has no weight"),
        ({"nodeAffinity": {"x": None}}, "nodeAffinity has no 'x'"),
        ({"nodeAffinity": {PREFERRED: [{"weight": "{{=1}}", "preference": TERM}]}}, "weight is a whole number"),
        (
            {
                "nodeAffinity": {
                    REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "is"}]}]}
                }
            },
            "operator 'is' is none of In",
        ),
        ({"podAffinity": {REQUIRED: [{"labelSelector": {"matchLabels": {"a": 5}}, "topologyKey": "z"}]}}, "is text"),
        ({"podAffinity": {REQUIRED: {}}}, "holds a list of mappings"),
    ],
)
def test_everything_else_is_refused_by_its_name(affinity: Any, words: str) -> None:
    with pytest.raises(GpuflowError) as refusal:
        pipeline(affinity)
    assert [finding.code for finding in refusal.value.findings] == ["GF119"]
    assert words in refusal.value.findings[0].message
