"""`gpuflow why` on a running cluster says what the scheduler, Kueue and the API server say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from . import nodes
from .pods import pod
from .queues import LABEL, waiting_message
from .test_snapshot import Scene, gpu_nodes, scene
from .waiting import until

__all__ = ["gpu_nodes", "scene"]
pytestmark = pytest.mark.control_plane

TOLERATIONS = [{"key": nodes.FENCE["key"], "operator": "Exists"}]
IMAGE = "gpuflow.test/never-pulled:1"


def why(scene: Scene, subject: str, cluster: object = "live") -> tuple[int, dict[str, Any]]:
    words = ("--namespace", scene.kube.namespace, "--cluster", cluster, "--format", "json")
    answer = scene.gpuflow("why", subject, *words)
    assert answer.out, answer.err
    return answer.code, json.loads(answer.out)


def refusal(scene: Scene, name: str) -> str:
    """What the scheduler says of a pod; empty while it has said nothing."""
    item = scene.kube.get("pod", name) or {}
    conditions = item.get("status", {}).get("conditions", ())
    return next((str(row["message"]) for row in conditions if row["type"] == "PodScheduled" and "message" in row), "")


def test_the_schedulers_own_sentence_and_the_same_from_a_dump(scene: Scene, tmp_path: Path) -> None:
    # On one of the two nodes a pod holds 3 of 8 GPUs; 7 fit on the other, once.
    wide = pod("wide", IMAGE, ["x"], resources={"nvidia.com/gpu": "5"}, tolerations=TOLERATIONS)
    scene.kube("delete", "resourcequota", "gpus")
    for number in range(3):
        scene.kube.create({**wide, "metadata": {**wide["metadata"], "name": f"wide-{number}"}})
    said = until(
        "one of three pods to find no room",
        lambda: {name: text for name in ("wide-0", "wide-1", "wide-2") if (text := refusal(scene, name))},
    )
    [(name, text)] = said.items()
    code, answer = why(scene, f"pod/{name}")
    assert code == 0 and answer["state"] == "waits", answer
    assert text.startswith(answer["causes"][0]["kubernetes"].removesuffix("."))
    assert "nvidia.com/gpu free (8 in all; now held: " in answer["causes"][0]["starts_when"][0]
    file = tmp_path / "dump.json"
    file.write_text(scene.kube("get", "nodes,pods,namespaces", "--all-namespaces", "-o", "json"))
    assert why(scene, f"pod/{name}", file)[1]["causes"] == answer["causes"]


def test_kueues_own_sentence_and_who_holds_the_quota(scene: Scene) -> None:
    scene.kube("delete", "resourcequota", "gpus")
    four = {"nvidia.com/gpu": "4"}
    scene.kube.create(pod("first", IMAGE, ["x"], resources=four, labels=LABEL, tolerations=TOLERATIONS))
    until("the first pod to be admitted", lambda: not scene.kube.get("pod", "first")["spec"].get("schedulingGates"))  # type: ignore[index]  # it exists
    scene.kube.create(pod("second", IMAGE, ["x"], resources={"nvidia.com/gpu": "1"}, labels=LABEL))
    said = until("Kueue to answer the second", lambda: waiting_message(scene.kube, "second"))
    code, answer = why(scene, "pod/second")
    assert code == 0 and answer["state"] == "waits", answer
    assert answer["causes"][0]["kubernetes"] == said, answer
    assert "now held by" in answer["causes"][0]["starts_when"][0]
    assert "first" in answer["causes"][0]["starts_when"][0]
    scene.kube.create(pod("never", IMAGE, ["x"], resources={"nvidia.com/gpu": "5"}, labels=LABEL))
    until("Kueue to answer the third", lambda: waiting_message(scene.kube, "never"))
    assert why(scene, "pod/never")[0] == 1


def test_a_job_that_a_quota_refuses(scene: Scene) -> None:
    template = pod("x", IMAGE, ["x"], resources={"nvidia.com/gpu": "6"}, tolerations=TOLERATIONS)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "refused"},
        "spec": {"template": {"spec": template["spec"]}},
    }
    scene.kube.create(job)

    def events() -> list[str]:
        return [row["message"] for row in scene.kube.list("event") if row["reason"] == "FailedCreate"]

    [said, *_] = until("the job controller to be refused", events)
    code, answer = why(scene, "job/refused")
    assert code == 0 and answer["parts"][0]["causes"][0]["by"] == "quota", answer
    assert answer["parts"][0]["causes"][0]["kubernetes"].partition("exceeded quota")[2] in said
