"""Every recorded answer of Kubernetes' own admission code is given here too, word for word."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuflow.kubernetes.admission.decision import Admission, admit

RECORDED = (
    Path(__file__).resolve().parents[2] / ".." / "shared" / "corpora" / "oracles" / "recorded" / "admission.jsonl.gz"
)


def cases() -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    with gzip.open(RECORDED, "rt") as lines:
        for number, line in enumerate(lines):
            case = json.loads(line)
            yield number, case["input"], case["output"]


def asked(case: dict[str, Any]) -> Admission:
    return admit(
        case["pod"],
        quotas=case["quotas"],
        limit_ranges=case["limitranges"],
        priority_classes=case["priorityclasses"],
        runtime_classes=case["runtimeclasses"],
        namespace={"metadata": {"name": "ns", **case["namespace"]}},
    )


def resources(holder: dict[str, Any]) -> dict[str, Any]:
    listed = holder.get("resources") or {}
    return {side: listed[side] for side in ("requests", "limits") if listed.get(side)}


def seen(pod: dict[str, Any]) -> dict[str, Any]:
    """The parts of a pod that the recordings keep."""
    spec = pod["spec"]
    view: dict[str, Any] = {
        field: {container["name"]: resources(container) for container in spec[field]}
        for field in ("containers", "initContainers")
        if spec.get(field)
    }
    if spec.get("resources") is not None:
        view["resources"] = resources(spec)
    view |= {field: spec[field] for field in ("overhead", "priorityClassName", "priority") if field in spec}
    if "status" in pod:
        view["qosClass"] = pod["status"]["qosClass"]
    note = pod["metadata"].get("annotations", {}).get("kubernetes.io/limit-ranger")
    return view | ({"limitRangerAnnotation": note} if note else {})


def as_recorded(answer: Admission) -> dict[str, Any]:
    recorded: dict[str, Any] = {
        "status": answer.status,
        "stage": answer.stage,
        "message": answer.message or "",
        "pod": seen(answer.pod),
    }
    optional = {"clauses": list(answer.clauses), "usage": answer.usage, "used": answer.used}
    return recorded | {field: value for field, value in optional.items() if value}


def in_any_order(answers: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(answer, sort_keys=True) for answer in answers)


@pytest.mark.skipif(not RECORDED.exists(), reason="the corpora folder is not beside the checkout")
def test_recorded_answers_and_their_alternatives() -> None:
    for number, case, output in cases():
        answer = asked(case)
        alternatives = output.pop("alternatives", [])
        assert as_recorded(answer) == output, f"case {number}"
        assert in_any_order([as_recorded(other) for other in answer.alternatives]) == in_any_order(alternatives), (
            f"case {number}"
        )
