"""The proof itself can fail: what differs is seen, and what must not be seen is red."""

from __future__ import annotations

import copy
from typing import Any

from proofs.airflow.comparing import compared, difference
from proofs.airflow.judging import EXPECTED, wrong

CONTAINER = {
    "name": "main",
    "image": "i:1",
    "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}],
    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
}
POD: dict[str, Any] = {
    "metadata": {"labels": {"task_id": "train", "team": "nlp"}},
    "spec": {"containers": [CONTAINER], "volumes": [{"name": "scratch", "emptyDir": {}}], "nodeName": "a"},
}


def changed(**main: Any) -> dict[str, Any]:
    pod = copy.deepcopy(POD)
    pod["spec"]["containers"][0] |= main
    return pod


def test_names_of_volumes_nodes_and_the_order_of_variables_do_not_count() -> None:
    other = changed(env=CONTAINER["env"][::-1], volumeMounts=[{"name": "v1", "mountPath": "/scratch"}])
    other["spec"] |= {"volumes": [{"name": "v1", "emptyDir": {}}], "nodeName": "b"}
    other["metadata"]["labels"] |= {"gpuflow.dev/run": "r1", "run_id": "x"}
    assert compared(POD, other) == {"differs": [], "written": []}


def test_every_other_difference_is_named_with_its_place() -> None:
    assert compared(POD, changed(image="i:2"))["differs"] == ["spec.containers[0].image: 'i:1' | 'i:2'"]
    labeled = copy.deepcopy(POD)
    labeled["metadata"]["labels"]["team"] = "ops"
    assert compared(POD, labeled)["differs"] == ["labels.team: 'nlp' | 'ops'"]
    assert difference({"a": [1]}, {"a": [1, 2]}) == ["spec.a: [1] | [1, 2]"]


def test_only_what_is_on_the_written_list_is_meant() -> None:
    def on(*products: str) -> dict[str, Any]:
        terms = [{"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": list(products)}]}]
        pod = copy.deepcopy(POD)
        needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        pod["spec"]["affinity"] = {"nodeAffinity": needed}
        return pod

    a100, a800 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-A800-SXM4-80GB"
    found = compared(on(a100), on(a100, a800))
    assert (found["differs"], len(found["written"])) == ([], 1)
    assert len(compared(on(a100), on(a100, "NVIDIA-H100"))["differs"]) == 1
    assert len(compared(on(a100), on(a800))["differs"]) == 1


def test_a_run_that_ends_in_another_way_is_red() -> None:
    good = copy.deepcopy(dict(EXPECTED["full quota"]))
    assert wrong("full quota", good) == []
    bad = {**good, "migrated": {**good["migrated"], "run": "failed"}}
    assert wrong("full quota", bad) == ["migrated.run: 'failed', not 'success'"]
    assert wrong("full quota", {"stock": good["stock"]}) != []
