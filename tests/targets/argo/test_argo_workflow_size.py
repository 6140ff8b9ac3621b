"""What people are told when a run may be too large for Argo to keep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuflow.cli.main import main
from gpuflow.plan import plan_of
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline, check
from gpuflow.spec.problems import Source
from gpuflow.targets.argo import target
from gpuflow.targets.argo.workflow import MAX_WORKFLOW_SIZE, Nodes, nodes_of, size_findings
from gpuflow.targets.target import Request


def pipeline_of(steps: dict[str, Any], **fields: Any) -> Pipeline:
    return check(Pipeline, {"name": "p", "defaults": {"image": "i"}, "steps": steps, **fields}, Source())


def test_nodes_are_pods_retries_loops_and_dags() -> None:
    inner = {"name": "q", "defaults": {"image": "i"}, "steps": {"x": {"command": ["x"]}, "y": {"approval": "go?"}}}
    steps = {
        "a": {"command": ["a"], "retry": {"failures": 2, "interruptions": 3}},
        "b": {"command": ["b"], "for_each": {"i": {"range": 10}}},
        "c": {"pipeline": inner, "for_each": {"i": [1, 2]}},
    }
    pipeline = pipeline_of(steps, exit={"bye": {"command": ["bye"]}})
    a, b, c, bye, dag = Nodes(1, 1, 5), Nodes(10, 1), Nodes(2, 1).times(2) + Nodes(0, 1), Nodes(1, 0), Nodes(0, 1)
    assert nodes_of(plan_of(pipeline, Site.load("nvidia"))) == a + b + c + bye + dag


def test_the_pod_of_a_last_look_counts_where_the_limit_has_room_for_it() -> None:
    step = {"command": ["a"], "retry": {"failures": 2, "interruptions": 3}}
    kept = {**step, "checkpoint": {"path": "/c", "store": "s3://b/c"}}
    assert nodes_of(plan_of(pipeline_of({"a": kept}), Site.load("nvidia"))) == Nodes(1, 2, 6)
    assert nodes_of(plan_of(pipeline_of({"a": step}), Site.load("nvidia"))) == Nodes(1, 2, 5)


def test_a_small_run_is_not_mentioned() -> None:
    request = Request(pipeline_of({"a": {"command": ["a"]}}), Site.load("nvidia"), None, "p")
    assert target.compile(request)[0].findings == ()


def test_a_large_run_is_named_with_its_size_and_what_argo_does_about_it() -> None:
    pipeline = pipeline_of({"a": {"command": ["a", {"item": "i"}], "for_each": {"i": {"range": 2000}}}})
    (finding,) = target.compile(Request(pipeline, Site.load("nvidia"), None, "p"))[0].findings
    assert (finding.code, finding.severity) == ("GF311", "warning")
    assert "2,002 nodes" in finding.message
    assert "1.3 MiB" in finding.message
    assert "compresses" in (finding.hint or "")


def test_a_run_that_does_not_fit_even_when_it_is_packed_gets_the_way_out() -> None:
    retry = {"failures": 10, "interruptions": 10}
    pipeline = pipeline_of({"a": {"command": ["a", {"item": "i"}], "for_each": {"i": {"range": 2000}}, "retry": retry}})
    (finding,) = size_findings(plan_of(pipeline, Site.load("nvidia")), {})
    assert "when every retry is used" in finding.message
    assert "nodeStatusOffLoad" in (finding.hint or "")


def test_the_warning_goes_to_standard_error_and_the_manifest_to_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "p.yaml"
    steps = {"a": {"command": ["a", {"item": "i"}], "for_each": {"i": {"range": 3000}}}}
    document = {"apiVersion": "gpuflow/v1", "kind": "Pipeline", "name": "p", "defaults": {"image": "i"}, "steps": steps}
    source.write_text(json.dumps(document))
    assert main(["compile", str(source), "--target", "argo"]) == 0
    out, err = capsys.readouterr()
    assert "GF311" in err
    assert "GF311" not in out


def test_a_thousand_distinct_steps_stay_far_below_the_limit() -> None:
    steps = {f"s{i}": {"command": ["work", str(i)], "gpu": "l4", "retry": 2} for i in range(1000)}
    assert (
        len(target.compile(Request(pipeline_of(steps), Site.load("nvidia"), None, "p"))[0].text) < MAX_WORKFLOW_SIZE / 4
    )
