"""What the checker says about a snapshot that is readable and yet leaves something open.

Tests gpuflow/checker/rules/snapshot.py and gpuflow/checker/snapshot/missing_kinds.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster_model.conftest import Check
from tests.cluster_model.scenes import CLUSTER_QUEUE, LIMITS, NODE, PIPELINE, POD, QUEUED, QUEUES, QUOTA, written


def found(answer: Any, code: str) -> list[dict[str, Any]]:
    return [row for row in answer.data["findings"] if row["code"] == code]


KEYS = {
    "nvidia.com/gpu": "requests.nvidia.com/gpu",
    "limits.nvidia.com/gpu": "requests.nvidia.com/gpu",
    "limits.nvidia.com/mig-1g.10gb": "requests.nvidia.com/mig-1g.10gb",
    "requests.nvidia.com/gpus": "requests.nvidia.com/gpu",
    "requests.nvidia.con/gpu": "requests.nvidia.com/gpu",
    "request.nvidia.com/gpu": "requests.nvidia.com/gpu",
    "count/workflow.argoproj.io": "count/workflows.argoproj.io",
    "count/pod": "count/pods",
    "gold.storageclass.storage.k8s.io/request.storage": "gold.storageclass.storage.k8s.io/requests.storage",
}


@pytest.mark.parametrize("key", KEYS)
def test_a_quota_key_that_counts_nothing_is_named_at_its_line_with_the_one_that_works(
    key: str, check: Check, tmp_path: Path
) -> None:
    (row,) = found(check(written(tmp_path, QUOTA.replace("requests.nvidia.com/gpu", key))), "GF521")
    assert f'"{KEYS[key]}"' in row["hint"]
    assert (row["where"]["line"], row["where"]["column"], row["severity"]) == (6, 5, "warning")


@pytest.mark.parametrize(
    "key",
    [
        "requests.nvidia.com/gpu",
        "requests.nvidia.com/mig-1g.5gb",
        "requests.nvidia.com/gpu.shared",
        "requests.example.com/fpga",
        "count/rayjobs.ray.io",
        "count/pods",
        "gold.storageclass.storage.k8s.io/requests.storage",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims",
        "gpus.deviceclass.resource.k8s.io/devices",
        "requests.hugepages-2Mi",
        "services.loadbalancers",
        "pods",
    ],
)
def test_a_quota_key_that_counts_is_left_alone(key: str, check: Check, tmp_path: Path) -> None:
    assert found(check(written(tmp_path, QUOTA.replace("requests.nvidia.com/gpu", key))), "GF521") == []


def test_a_resource_of_the_nodes_is_known_to_quotas(check: Check, tmp_path: Path) -> None:
    quota = QUOTA.replace("requests.nvidia.com/gpu", "requests.nvidia.com/gpus")
    node = NODE.replace('    nvidia.com/gpu: "8"\n', '    nvidia.com/gpu: "8"\n    nvidia.com/gpus: "8"\n')
    assert found(check(written(tmp_path, quota, NODE)), "GF521")
    assert found(check(written(tmp_path, quota, node)), "GF521") == []


def test_a_quota_without_hard_and_one_from_git_are_named_at_their_line(check: Check, tmp_path: Path) -> None:
    empty = QUOTA.replace("spec:\n  hard:", "spec:\n  hards:")
    (row,) = found(check(written(tmp_path, empty[: empty.index("status")])), "GF534")
    assert row["where"]["line"] == 5
    from_git = QUOTA[: QUOTA.index("status")]
    answer = check(written(tmp_path, from_git))
    assert (answer.data["verdict"], found(answer, "GF532")[0]["severity"]) == ("always", "note")


def test_the_limit_range_that_hands_out_gpus_is_shown(check: Check, tmp_path: Path) -> None:
    file = written(tmp_path, QUOTA, LIMITS.replace('cpu: "8"', 'nvidia.com/gpu: "1"'))
    sidecar = PIPELINE.replace("count: 2}", "count: 1}, sidecars: [{name: s, image: i, command: [x]}]")
    (row,) = found(check(file, pipeline=sidecar), "GF513")
    assert (row["where"]["file"], row["where"]["line"]) == (str(file), 21)


def test_a_node_that_says_nothing_of_itself_is_named(check: Check, tmp_path: Path) -> None:
    silent = NODE[: NODE.index("status")]
    answer = check(written(tmp_path, silent, QUOTA))
    (row,) = found(answer, "GF572")
    assert "node n has no status.allocatable" in row["message"]
    assert answer.data["verdict"] in ("never", "unknown")
    assert found(check(written(tmp_path, NODE, QUOTA)), "GF572") == []


def test_nodes_without_pods_are_assumed_to_be_empty(check: Check, tmp_path: Path) -> None:
    (row,) = found(check(written(tmp_path, NODE, QUOTA)), "GF573")
    assert (row["severity"], "assumed to be empty" in row["message"]) == ("note", True)
    assert found(check(written(tmp_path, NODE, POD, QUOTA)), "GF573") == []


def test_queues_without_a_status_are_said_to_be_taken_as_written(check: Check, tmp_path: Path) -> None:
    (row,) = found(check(written(tmp_path, QUEUES, QUOTA), pipeline=QUEUED), "GF573")
    assert "ClusterQueue cq, LocalQueue research have no status" in row["message"]
    assert "nothing in use" in row["message"]


def test_a_queue_that_has_admitted_more_than_the_snapshot_shows_makes_unknown(check: Check, tmp_path: Path) -> None:
    busy = QUEUES.replace(CLUSTER_QUEUE, CLUSTER_QUEUE + "status: {admittedWorkloads: 3, reservingWorkloads: 4}\n")
    answer = check(written(tmp_path, busy, QUOTA), pipeline=QUEUED)
    (row,) = found(answer, "GF574")
    assert "has admitted 4 workloads; the snapshot shows 0" in row["message"]
    assert answer.data["verdict"] == "unknown"


RECORD = "apiVersion: gpuflow/v1\nkind: Snapshot\nnamespace: %s\nlisted: [%s]\nunread: {%s}\n"


def test_a_kind_that_could_not_be_listed_makes_unknown(check: Check, tmp_path: Path) -> None:
    file = written(tmp_path, RECORD % ("ns", "ResourceQuota", "Pod: 403 Forbidden, Node: 403 Forbidden"), QUOTA)
    answer = check(file)
    assert (answer.code, answer.data["verdict"]) == (1, "unknown")
    (row,) = found(answer, "GF571")
    assert "could not be listed (403 Forbidden): Node, Pod" in row["message"]


def test_a_snapshot_of_another_namespace_makes_unknown(check: Check, tmp_path: Path) -> None:
    listed = "ResourceQuota, PersistentVolumeClaim"
    both = "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n"
    answer = check(written(tmp_path, RECORD % ("team-b", listed, ""), both % "ns", both % "team-b"))
    assert answer.data["verdict"] == "unknown"
    assert 'is of namespace "team-b"' in found(answer, "GF533")[0]["message"]


def test_a_kind_that_was_listed_and_is_not_there_does_not_exist(check: Check, tmp_path: Path) -> None:
    vip = PIPELINE.replace("command: [x]", "command: [x], priority: vip")
    unlooked = check(written(tmp_path, QUOTA), pipeline=vip)
    assert (unlooked.data["verdict"], unlooked.data["assumed"]) == ("always", ["Node", "PriorityClass"])
    answer = check(written(tmp_path, RECORD % ("ns", "PriorityClass", ""), QUOTA), pipeline=vip)
    assert (answer.data["verdict"], bool(found(answer, "GF505"))) == ("never", True)


CLASS = """apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast%s}
provisioner: example.com/disk
"""
DEFAULT = CLASS % ', annotations: {storageclass.kubernetes.io/is-default-class: "true"}'
VOLUME = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\nspec: {storageClassName: %s}\n"
CLAIM = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: %s}\nspec: {}\n"


def with_claim(fields: str) -> str:
    volumes = PIPELINE.replace("command: [x]", "command: [x], volumes: {/c: {new_claim: scratch}}")
    return volumes.replace("steps:", f"claims:\n  scratch: {{size: 1Gi{fields}}}\nsteps:")


STORAGE = {
    "a class that exists": (", storage_class: fast", (CLASS % "",), "always"),
    "a class that does not exist": (", storage_class: fasst", (CLASS % "",), "never"),
    "a class of ready volumes only": (", storage_class: manual", (CLASS % "", VOLUME % "manual"), "always"),
    "the default class": ("", (DEFAULT,), "always"),
    "no default class": ("", (CLASS % "",), "never"),
    "no default class, and a volume without one": ("", (CLASS % "", VOLUME % '""'), "always"),
    "nobody said which classes there are": (", storage_class: fasst", (), "always"),
    "no class on purpose": (', storage_class: ""', (CLASS % "",), "always"),
}


@pytest.mark.parametrize("name", STORAGE)
def test_a_claim_of_the_run_needs_a_storage_class_that_exists(name: str, check: Check, tmp_path: Path) -> None:
    fields, objects, verdict = STORAGE[name]
    answer = check(written(tmp_path, QUOTA, *objects), pipeline=with_claim(fields))
    assert answer.data["verdict"] == verdict
    assert len(found(answer, "GF561")) == (verdict == "never")


def test_a_missing_class_is_named_with_the_one_that_was_meant(check: Check, tmp_path: Path) -> None:
    answer = check(written(tmp_path, QUOTA, CLASS % ""), pipeline=with_claim(", storage_class: fasst"))
    (row,) = found(answer, "GF561")
    assert (row["hint"], row["where"]["line"]) == ('did you mean "fast"?', 6)
    assert row["kubernetes"] == 'storageclass.storage.k8s.io "fasst" not found'


MOUNTS = {
    "a claim that exists": ("data", "ns", "always"),
    "a claim that does not exist": ("dat", "ns", "never"),
    "a claim of a namespace nobody looked at": ("dat", "other", "always"),
}


@pytest.mark.parametrize("name", MOUNTS)
def test_a_step_that_mounts_a_claim_needs_it_to_exist(name: str, check: Check, tmp_path: Path) -> None:
    claim, namespace, verdict = MOUNTS[name]
    mounting = PIPELINE.replace("command: [x]", f"command: [x], volumes: {{/d: {{claim: {claim}}}}}")
    answer = check(written(tmp_path, QUOTA, CLAIM % namespace), pipeline=mounting)
    assert answer.data["verdict"] == verdict
    for row in found(answer, "GF561"):
        assert row["kubernetes"] == 'persistentvolumeclaim "dat" not found'
        assert row["hint"] == 'did you mean "data"?'
    assert len(found(answer, "GF561")) == (verdict == "never")
