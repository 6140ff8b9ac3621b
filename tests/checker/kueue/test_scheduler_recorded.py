"""Every recorded answer of Kueue's own code is given here too, word for word."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gpuflow.checker.kueue import Assignment
from tests.checker.kueue.scenes import asked

RECORDED = Path(__file__).resolve().parents[3] / ".." / "shared" / "corpora" / "oracles" / "recorded" / "kueue.jsonl.gz"


def ours(answer: Assignment) -> dict[str, Any]:
    return {
        "verdict": answer.verdict,
        "final_verdict": answer.final_verdict,
        "message": answer.message,
        "pod_sets": dict(answer.pod_sets),
        "usage": dict(answer.usage),
        "targets": sorted(target.partition("/")[2] for target in answer.targets),
    }


def theirs(output: dict[str, Any]) -> dict[str, Any]:
    final = output.get("finalVerdict")
    pod_sets = output.get("podSets", [])
    return {
        "verdict": output["verdict"].lower(),
        "final_verdict": final and final.lower(),
        "message": output["message"],
        "pod_sets": {each["name"]: _fields(each, "flavor") for each in pod_sets},
        "usage": {each["name"]: _fields(each, "usage") for each in pod_sets},
        "targets": sorted(target["name"] for target in output.get("targets", [])),
    }


def _fields(pod_set: dict[str, Any], field: str) -> dict[str, str]:
    return {resource: chosen[field] for resource, chosen in pod_set["flavors"].items()}


@pytest.mark.skipif(not RECORDED.exists(), reason=f"the recorded answers are not here: {RECORDED}")
def test_every_recorded_answer_of_kueue_is_ours_too() -> None:
    with gzip.open(RECORDED, "rt") as lines:
        cases = [json.loads(line) for line in lines]
    differing = {
        case["input"]["id"]: (mine, recorded)
        for case in cases
        if (mine := ours(asked(case["input"]))) != (recorded := theirs(case["output"]))
    }
    assert len(cases) >= 600
    assert not differing
