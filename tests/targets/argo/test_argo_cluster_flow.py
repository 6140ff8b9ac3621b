"""Flow on a running Argo: items that a condition leaves out, combinations, exit steps that read, caches, semaphores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from ...cluster import nodes
from ...cluster.cluster import Cluster
from ...cluster.conftest import argo, cluster, private_cluster, proof_ground
from ...cluster.fixtures import AnyCluster
from ...cluster.layout import REAL_NODE
from ...cluster.waiting import until
from .cluster.stage import CLAIM, MOUNT, Stage, stage

__all__ = ["argo", "cluster", "private_cluster", "proof_ground"]
pytestmark = pytest.mark.cluster

NOTE = 'it says "{{workflow.name}}" and $(HOME) for $$5'
COLOURS = ["red", "{{blue}}", "green"]
SITE = {
    "apiVersion": "gpuflow/v1",
    "kind": "Site",
    "name": "stage",
    "gpu": {"models": {"l4": {"labels": {"kubernetes.io/hostname": REAL_NODE}}}},
}
NAME = "flow"
RUNS = ("first", "second")
Ended = tuple[Stage, dict[str, dict[str, Any]]]


def pipeline(image: str) -> dict[str, Any]:
    """Every run writes into a folder of its own; the cached step writes into a file that all runs share."""
    mine = f"{MOUNT}/$RUN"
    keep = 'printf "%s" "$0" > "$GPUFLOW_OUTPUTS/size"'
    steps = {
        "make": {
            "cache": True,
            "script": {
                "run": f'echo made >> {MOUNT}/made; printf "%s" "[3, 4]" > "$GPUFLOW_OUTPUTS/sizes"\n'
                'printf "%s" "$NOTE" > "$GPUFLOW_OUTPUTS/note"'
            },
            "env": {"NOTE": NOTE},
            "outputs": {"sizes": "json", "note": {"type": "string", "default": "none"}},
        },
        "some": {
            "for_each": {"size": {"output": "make.sizes"}, "colour": {"param": "colours"}},
            "when": "item.colour != 'red'",
            "command": [
                "sh",
                "-c",
                f'mkdir -p {mine}; echo "$0 $1" >> {mine}/some; {keep}',
                {"item": "size"},
                {"item": "colour"},
            ],
            "outputs": {"size": {"type": "int", "default": 0}},
        },
        "hold": {
            "for_each": {"copy": {"range": 3}},
            "gpu": "l4",
            "command": ["sh", "-c", f"mkdir -p {mine}; echo in >> {mine}/held; sleep 3; echo out >> {mine}/held"],
        },
        "fail": {"needs": ["some", "hold"], "command": ["sh", "-c", "exit 1"]},
        "never": {"needs": ["fail"], "command": ["true"], "outputs": {"last": {"type": "string", "default": "{none}"}}},
    }
    told = [{"output": "make.note"}, {"output": "some.size"}, {"output": "never.last"}]
    tell = {
        "on": "failure",
        "when": "steps.make.note != 'none'",
        "command": ["sh", "-c", f'printf "%s\\n" "$0" "$@" > {mine}/told', *told],
    }
    return {
        "apiVersion": "gpuflow/v1",
        "kind": "Pipeline",
        "name": NAME,
        "defaults": {
            "image": image,
            "image_pull_policy": "IfNotPresent",
            "cpu": {"request": "20m"},
            "memory": {"request": "32Mi", "limit": "128Mi"},
            "volumes": {MOUNT: {"claim": CLAIM}},
            "env": {"RUN": {"run": "id"}},
        },
        "params": {"colours": {"type": "json", "default": COLOURS}},
        "steps": steps,
        "exit": {"tell": tell},
    }


@pytest.fixture(scope="module")
def ended(private_cluster: Cluster, argo: AnyCluster) -> Iterator[Ended]:
    """A stage on which the pipeline ran twice, one run after the other, and how the runs ended."""
    limits = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gpus"}, "data": {"gpu-1": "1"}}
    with stage(private_cluster) as place:
        text = json.dumps(pipeline(private_cluster.image("gpuflow")))
        nodes.add_devices(private_cluster.kube, REAL_NODE, {"nvidia.com/gpu": "4"})
        place.kube.create(limits)
        made = place.compile({NAME: text}, json.dumps(SITE), "--semaphores", "gpus")[NAME]
        found = {}
        for run in RUNS:
            place.start({**made, "metadata": {"name": run}, "spec": {"workflowSpec": made["spec"]}})
            found[run] = until(f"{run} to end", partial(_ended, place, run), timeout=300.0, every=1.0)
        yield place, found


def _ended(place: Stage, run: str) -> dict[str, Any] | None:
    workflow = place.workflows().get(run, {})
    return workflow if workflow.get("status", {}).get("finishedAt") else None


def _said(ended: Ended, run: str, file: str) -> str:
    """What the steps of a run wrote."""
    place, found = ended
    return (place.shared / found[run]["metadata"]["uid"] / file).read_text()


@pytest.mark.parametrize("run", RUNS)
def test_only_the_combinations_that_the_condition_lets_through_ran(run: str, ended: Ended) -> None:
    lines = _said(ended, run, "some").splitlines()
    assert sorted(lines) == sorted(f"{size} {colour}" for size in (3, 4) for colour in COLOURS[1:])


@pytest.mark.parametrize("run", RUNS)
def test_the_exit_step_got_outputs_as_they_were_left_and_defaults_for_the_rest(run: str, ended: Ended) -> None:
    assert ended[1][run]["status"]["phase"] == "Failed"
    note, sizes, last = _said(ended, run, "told").splitlines()
    assert (note, last) == (NOTE, "{none}")
    assert json.loads(sizes) == [3, 3, 4, 4]


def test_the_second_run_takes_the_cached_outputs_and_runs_nothing(ended: Ended) -> None:
    assert (ended[0].shared / "made").read_text().splitlines() == ["made"]
    nodes_of = ended[1]["second"]["status"]["nodes"].values()
    asked = [node["memoizationStatus"]["hit"] for node in nodes_of if "memoizationStatus" in node]
    assert asked == [True]


@pytest.mark.parametrize("run", RUNS)
def test_a_semaphore_of_one_lets_gpu_steps_run_one_by_one(run: str, ended: Ended) -> None:
    assert _said(ended, run, "held").split() == ["in", "out"] * 3
