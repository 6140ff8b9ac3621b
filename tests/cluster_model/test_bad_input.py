"""Bad input gives a finding with a code and a place: no traceback, and no *always* by accident.

Tests gpuflow/checker/snapshot/validation.py and gpuflow/cluster/manifests.py.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuflow.cluster import manifests
from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError
from tests.assumed import RECORD
from tests.cluster_model.conftest import Check
from tests.cluster_model.scenes import (
    CLUSTER_QUEUE,
    COHORT,
    LIMITS,
    LOCAL_QUEUE,
    NAMESPACE,
    NODE,
    POD,
    QUEUED,
    QUEUES,
    QUOTA,
    written,
)

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(f"k{i}: &a [{','.join(['*a'] * 10)}]\n" for i in range(7))

SETTINGS = """apiVersion: v1
kind: ConfigMap
metadata: {name: kueue-manager-config, namespace: kueue-system}
data:
  controller_manager_config.yaml: |
    apiVersion: config.kueue.x-k8s.io/v1beta2
    %s
"""

# name: (document, code, line, what the message says)
REFUSED: dict[str, tuple[str, str, int, str]] = {
    "a negative quota": (QUOTA.replace('"8"', '"-8"', 1), "GF403", 6, "-8 is negative"),
    "a negative amount in use": (QUOTA.replace('"0"', '"-1"'), "GF403", 11, "-1 is negative"),
    "a quota that is no number": (QUOTA.replace('"8"', "eight"), "GF403", 9, "eight"),
    "a quota that is a list": (
        QUOTA.replace("\n  hard:\n    requests.nvidia.com/gpu:", "\n  hard:\n    -", 1),
        "GF403",
        6,
        "must be a map",
    ),
    "a quota key that does not exist": (
        QUOTA.replace("requests.nvidia.com/gpu", "request.cpu"),
        "GF403",
        6,
        'did you mean "requests.cpu"',
    ),
    "a quota scope that does not exist": (
        QUOTA.replace("spec:\n", "spec:\n  scopes: [Terminatin]\n"),
        "GF403",
        5,
        "Terminatin",
    ),
    "a scope operator that does not exist": (
        QUOTA.replace(
            "spec:\n", "spec:\n  scopeSelector: {matchExpressions: [{scopeName: BestEffort, operator: Is}]}\n"
        ),
        "GF403",
        5,
        "'Is' is not one of",
    ),
    "half a manifest": (QUOTA[: QUOTA.index("metadata")], "GF402", 1, "has no metadata.name"),
    "a manifest without a kind": (QUOTA.replace("kind: ResourceQuota\n", ""), "GF402", 1, "no kind"),
    "a kind that is a number": (QUOTA.replace("ResourceQuota", "5"), "GF402", 2, "is not text"),
    "a name that is a number": (QUOTA.replace("name: gpus", "name: 5"), "GF402", 3, "metadata.name"),
    "a namespace that is a list": (QUOTA.replace("namespace: ns", "namespace: [ns]"), "GF402", 3, "metadata.namespace"),
    "metadata that is text": (
        QUOTA.replace("metadata: {name: gpus, namespace: ns}", "metadata: gpus"),
        "GF402",
        3,
        "not a mapping",
    ),
    "a document that is a list": ("- a\n- b\n", "GF402", 1, "a manifest is a mapping"),
    "a list whose items are text": ("apiVersion: v1\nkind: List\nitems: none\n", "GF402", 3, "are not a list"),
    "an item that is no manifest": ("apiVersion: v1\nkind: List\nitems:\n- 5\n", "GF402", 1, "a manifest is a mapping"),
    "a pipeline of gpuflow": ("apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n", "GF402", 1, "gpuflow Pipeline"),
    "a misspelled kind": (QUOTA.replace("ResourceQuota", "ResourceQuta"), "GF405", 2, "v1 has no kind ResourceQuta"),
    "a kind in lower case": (QUOTA.replace("ResourceQuota", "resourcequota"), "GF405", 2, "resourcequota"),
    "a kind of another built-in group": (QUOTA.replace("v1", "apps/v1", 1), "GF405", 2, "apps/v1 has no kind"),
    "a misspelled kind of Kueue": (CLUSTER_QUEUE.replace("ClusterQueue", "ClusterQueu"), "GF405", 2, "ClusterQueu"),
    "the same object twice": (f"{QUOTA}---\n{QUOTA}", "GF404", 13, "stands twice"),
    "a limit range of no type": (LIMITS.replace("Container", "Contaner"), "GF403", 6, "Contaner"),
    "a limit range that is negative": (LIMITS.replace("64Gi", "-64Gi"), "GF403", 8, "negative"),
    "a limit range that is text": (
        LIMITS.replace('max:\n      memory: 64Gi\n      cpu: "8"', "max: much"),
        "GF403",
        7,
        "must be a map",
    ),
    "a security level that does not exist": (
        NAMESPACE.replace("team: nlp", "pod-security.kubernetes.io/enforce: strict"),
        "GF403",
        3,
        "'strict'",
    ),
    "a node with negative room": (NODE.replace('"64"', '"-64"'), "GF403", 9, "negative"),
    "a node label that is a number": (
        NODE.replace("NVIDIA-A100-SXM4-80GB", "80"),
        "GF403",
        6,
        "nvidia.com/gpu.product",
    ),
    "a node group of a few": (
        NODE.replace("  name: n\n", '  name: n\n  annotations:\n    gpuflow.dev/node-group-max: "few"\n'),
        "GF403",
        6,
        "'few'",
    ),
    "a node group below zero": (
        NODE.replace("  name: n\n", '  name: n\n  annotations:\n    gpuflow.dev/node-group-max: "-1"\n'),
        "GF403",
        6,
        "'-1'",
    ),
    "a node group that is a bare number": (
        NODE.replace("  name: n\n", "  name: n\n  annotations:\n    gpuflow.dev/node-group-max: 8\n"),
        "GF403",
        6,
        'such as "8"',
    ),
    "a node group with its least above its most": (
        NODE.replace(
            "  name: n\n",
            '  name: n\n  annotations:\n    gpuflow.dev/node-group-max: "2"\n    gpuflow.dev/node-group-min: "3"\n',
        ),
        "GF403",
        7,
        "3 is above",
    ),
    "a pod with no list of containers": (
        POD[: POD.index("  containers")] + "  containers: none\n",
        "GF403",
        6,
        "must be a list",
    ),
    "a pod whose request is no quantity": (POD.replace('cpu: "1"', "cpu: lots"), "GF403", 10, "lots"),
    "a negative queue": (CLUSTER_QUEUE.replace("nominalQuota: 4}", "nominalQuota: -4}"), "GF403", 14, "negative"),
    "a queue quota that is text": (
        CLUSTER_QUEUE.replace("nominalQuota: 4}", "nominalQuota: four}"),
        "GF403",
        14,
        "four",
    ),
    "a resource group without flavors": (
        CLUSTER_QUEUE[: CLUSTER_QUEUE.index("    flavors")] + "    flavors: []\n",
        "GF403",
        9,
        "needs at least one",
    ),
    "a flavor that leaves out a covered resource": (
        CLUSTER_QUEUE[: CLUSTER_QUEUE.index("      - {name: nvidia.com/gpu")],
        "GF403",
        12,
        "must be of cpu, memory, nvidia.com/gpu",
    ),
    "a stop policy that does not exist": (LOCAL_QUEUE.replace("cq}", "cq, stopPolicy: Wait}"), "GF403", 4, "'Wait'"),
    "a queue of no groups but text": (
        CLUSTER_QUEUE[: CLUSTER_QUEUE.index("  resourceGroups")] + "  resourceGroups: all\n",
        "GF403",
        7,
        "must be a list",
    ),
    "broken YAML": ("kind: [\n", "GF101", 2, "not valid YAML"),
    "an alias bomb": (BOMB, "GF111", 6, "aliases expand"),
    "a tab": ("kind:\n\tPod\n", "GF104", 2, "tab"),
    "nested a hundred times": ("a: " + "[" * 200, "GF105", 1, "nested"),
    "a tag of another language": ("kind: !!python/object:os.system x\n", "GF106", 1, "tag"),
    "a Helm template": ("kind: ResourceQuota\nmetadata: {name: {{ .Values.name }}}\n", "GF406", 2, "template"),
    "a kustomization": (
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
        "GF406",
        1,
        "kustomization",
    ),
    "nothing at all": ("", "GF401", 0, "holds no manifests"),
    "comments only": ("# later\n---\n# maybe\n", "GF401", 0, "holds no manifests"),
    "a record of a snapshot that was edited": (
        f"apiVersion: gpuflow/v1\nkind: Snapshot\nlisted: all\n---\n{QUOTA}",
        "GF402",
        1,
        "record of the snapshot",
    ),
    "a record of a snapshot whose labels are no list": (
        f"apiVersion: gpuflow/v1\nkind: Snapshot\nnamespace: ns\nlisted: []\nunread: {{}}\nlabels: app\n---\n{QUOTA}",
        "GF402",
        1,
        "record of the snapshot",
    ),
    "a configuration of Kueue that is not YAML": (SETTINGS % "kind: [", "GF403", 5, "its line 3: not valid YAML"),
    "a configuration of Kueue that is wrong": (SETTINGS % "resources: all", "GF403", 5, "must be a map"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_broken_manifest_is_refused_at_its_line(name: str, check: Check, tmp_path: Path) -> None:
    document, code, line, words = REFUSED[name]
    file = written(tmp_path, document)
    answer = check(file)
    assert answer.code == 2, answer.out + answer.err
    assert answer.out == ""
    first = answer.err.splitlines()[0]
    assert f" {code} " in first, answer.err
    assert words in answer.err
    place = f"{file}:{line}:" if line else f"{file}:"
    assert first.startswith(place), answer.err


def test_every_broken_manifest_of_a_folder_is_named_at_once(check: Check, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "a.yaml").write_text(REFUSED["a negative quota"][0])
    (folder / "b.yaml").write_text(REFUSED["a limit range of no type"][0])
    (folder / "c.yaml").write_text(NODE)
    lines = [line for line in check(folder).err.splitlines() if " GF403 " in line]
    assert [line.split(":")[0] for line in lines] == [str(folder / "a.yaml"), str(folder / "b.yaml")]


def _binary(folder: Path) -> None:
    (folder / "a.yaml").write_bytes(bytes(range(256)) * 4)


def _latin(folder: Path) -> None:
    (folder / "a.yaml").write_bytes(QUOTA.replace("gpus", "größe").encode("latin-1"))


def _self_link(folder: Path) -> None:
    (folder / "a.yaml").symlink_to(folder / "a.yaml")


def _dangling_link(folder: Path) -> None:
    (folder / "a.yaml").symlink_to(folder / "gone.yaml")


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "a.yaml")


def _folder_of_that_name(folder: Path) -> None:
    (folder / "a.yaml").mkdir()


def _chart(folder: Path) -> None:
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: queues\nversion: 0.1.0\n")


def _bare_kustomization(folder: Path) -> None:
    (folder / "kustomization.yaml").write_text("resources: [quota.yaml]\n")


def _values(folder: Path) -> None:
    (folder / "values.yaml").write_text("replicas: 3\n")


def _nothing(folder: Path) -> None:
    (folder / "README.md").write_text("# Cluster\n")


FOLDERS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "a binary file": (_binary, "GF103", "is not UTF-8"),
    "text that is not UTF-8": (_latin, "GF103", "is not UTF-8"),
    "a link to itself": (_self_link, "GF100", "cannot be read"),
    "a link to nowhere": (_dangling_link, "GF100", "cannot be read"),
    "a named pipe": (_pipe, "GF100", "not an ordinary file"),
    "an empty folder": (_folder_of_that_name, "GF401", "holds no manifests"),
    "a Helm chart": (_chart, "GF406", "Helm chart"),
    "a kustomization without a kind": (_bare_kustomization, "GF406", "kustomization"),
    "values of a chart": (_values, "GF402", "no apiVersion"),
    "no manifest among the files": (_nothing, "GF401", "holds no manifests"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_cannot_be_read_in_whole_is_refused(name: str, check: Check, tmp_path: Path) -> None:
    make, code, words = FOLDERS[name]
    folder = tmp_path / "cluster"
    folder.mkdir()
    if code != "GF401":
        (folder / "quota.yaml").write_text(QUOTA)
    make(folder)
    answer = check(folder)
    assert (answer.code, answer.out) == (2, "")
    assert code in answer.err and words in answer.err


def test_folders_that_link_to_each_other_are_read_once(check: Check, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "quota.yaml").write_text(f"{QUOTA}\n---\n{RECORD}")
    (folder / "a" / "back").symlink_to(folder)
    (folder / "b").symlink_to(folder / "a")
    (folder / "same.yaml").symlink_to(folder / "a" / "quota.yaml")
    answer = check(folder)
    assert answer.code == 0, answer.err
    assert [row["name"] for row in answer.data["scopes"]] == ["gpus"]


def test_a_quota_behind_a_linked_folder_is_not_passed_over(check: Check, tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "cluster"
    elsewhere.mkdir()
    folder.mkdir()
    (elsewhere / "quota.yaml").write_text(QUOTA.replace('"8"', '"1"'))
    (folder / "namespace.yaml").write_text(NAMESPACE)
    (folder / "linked").symlink_to(elsewhere)
    answer = check(folder)
    assert answer.code == 2 and "GF140" in answer.err
    (folder / "linked").unlink()
    elsewhere.rename(folder / ".elsewhere")
    (folder / "linked").symlink_to(".elsewhere")
    assert check(folder).data["verdict"] == "never"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike those that pytest makes."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_a_file_and_a_folder_without_permission_are_named(open_folder: Path) -> None:
    (open_folder / "open.yaml").write_text(NAMESPACE)
    closed, shut = open_folder / "quota.yaml", open_folder / "shut"
    closed.write_text(QUOTA)
    closed.chmod(0)
    shut.mkdir()
    shut.chmod(0)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        _, findings = manifests.files_in(open_folder)
        with pytest.raises(GpuflowError) as refused:
            manifests.documents(closed)
    finally:
        os.seteuid(before)
    assert [(finding.code, finding.where.file) for finding in findings] == [("GF100", str(shut))]
    assert "Permission denied" in str(refused.value)


def test_a_name_that_no_file_can_have_is_bad_input(check: Check) -> None:
    for name in ("", "nowhere/at/all", "a\0b", "x" * 5000):
        answer = check(name)
        assert (answer.code, answer.out) == (2, ""), name
        assert any(code in answer.err for code in ("GF100", "GF129", "GF401"))


def test_yaml_beyond_the_limit_is_refused_with_the_way_out(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_tree, "MAX_BYTES", 1000)
    file = written(tmp_path, QUOTA + "# " + "x" * 1000)
    answer = check(file)
    assert answer.code == 2
    assert "GF102" in answer.err and "kubectl get -o json" in answer.err


def test_json_is_read_far_beyond_the_limit_of_yaml_and_not_without_end(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_tree, "MAX_BYTES", 1000)
    monkeypatch.setattr(manifests, "QUICK_JSON", 1000)
    hard = {"requests.nvidia.com/gpu": "1"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "ns", "annotations": {"note": "x" * 2000}},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": {"requests.nvidia.com/gpu": "0"}},
    }
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [quota]}))
    assert check(file).data["verdict"] == "never"
    monkeypatch.setattr(manifests, "MOST_JSON", 1500)
    answer = check(file)
    assert (answer.code, "GF102" in answer.err) == (2, True)


LARGE_JSON = {
    "a key twice": ('{"kind": "List", "kind": "List"}', "GF109"),
    "half a document": ('{"kind": "List", "items": [', "GF101"),
    "not a number": ('{"kind": "List", "items": [NaN]}', "GF101"),
    "thousands of digits": ('{"kind": "List", "items": [' + "1" * 5000 + "]}", "GF101"),
    "nested without end": ('{"kind": ' + "[" * 100_000, "GF105"),
}


@pytest.mark.parametrize("name", LARGE_JSON)
def test_a_large_json_file_is_held_to_the_same_rules(
    name: str, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "QUICK_JSON", 1)
    text, code = LARGE_JSON[name]
    file = tmp_path / "cluster.json"
    file.write_text(text)
    answer = check(file)
    assert (answer.code, f" {code} " in answer.err) == (2, True), answer.err


def test_a_stream_can_be_read_in_place_of_a_file(check: Check, tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, f"{QUOTA}\n---\n{RECORD}".encode())
    os.close(write)
    try:
        assert check(f"/dev/fd/{read}").data["verdict"] == "always"
    finally:
        os.close(read)


RINGS = {
    "one that is its own parent": ("all",),
    "two that are each other's": ("all", "b"),
    "three in a ring": ("all", "b", "c"),
}


@pytest.mark.parametrize("name", RINGS)
def test_cohorts_in_a_circle_admit_nothing_and_are_named(name: str, check: Check, tmp_path: Path) -> None:
    ring = RINGS[name]
    cohorts = [
        COHORT.replace("name: all", f"name: {cohort}").replace("spec: {}", f"spec:\n  parentName: {above}")
        for cohort, above in zip(ring, (*ring[1:], ring[0]), strict=True)
    ]
    queues = QUEUES.replace(COHORT, "---\n".join(cohorts))
    file = written(tmp_path, queues, QUOTA)
    answer = check(file, pipeline=QUEUED)
    assert (answer.code, answer.data["verdict"]) == (1, "never")
    (found,) = [row for row in answer.data["findings"] if row["code"] == "GF575"]
    assert "all -> " in found["message"]
    assert file.read_text().splitlines()[found["where"]["line"] - 1].startswith("  parentName:")


def test_two_circles_are_named_each(check: Check, tmp_path: Path) -> None:
    pairs = (("all", "b"), ("b", "all"), ("c", "d"), ("d", "c"))
    cohorts = [
        COHORT.replace("name: all", f"name: {cohort}").replace("spec: {}", f"spec: {{parentName: {above}}}")
        for cohort, above in pairs
    ]
    answer = check(written(tmp_path, QUEUES.replace(COHORT, "---\n".join(cohorts)), QUOTA), pipeline=QUEUED)
    assert answer.data["verdict"] == "never"
    assert len([row for row in answer.data["findings"] if row["code"] == "GF575"]) == 2
