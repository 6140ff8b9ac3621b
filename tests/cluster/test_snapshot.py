"""`gpuflow snapshot` and `--cluster live` against a real API server, with Kueue and its objects in it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from .. import bounds
from . import nodes
from .cluster import Cluster
from .fixtures import AnyCluster, lacking
from .kube import Kube, KubeError
from .pods import pod
from .queues import QUEUE, queue
from .waiting import until

pytestmark = pytest.mark.control_plane

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venvs" / "airflow"
"""The environment that has the Kubernetes client."""
SECRET = "s3cr3t-t0k3n"
PIPELINE = """apiVersion: gpuflow/v1
kind: Pipeline
name: p
defaults:
  image: i
  cpu: 1
  memory: 1Gi
  queue: %s
  retry: {interruptions: 3}
  kubernetes: {tolerations: [{key: %s, operator: Exists}]}
steps:
  prepare: {command: [x]}
  train: {command: [x], needs: [prepare], gpu: {model: a100-80gb, count: 2}}
  evaluate: {command: [x], needs: [train], for_each: {i: [1, 2, 3]}, gpu: {model: a100-80gb, count: 1}}
"""
LABELS = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


class Scene(NamedTuple):
    """A namespace with a quota, a limit range, a queue, a pod and nodes, and a pipeline to ask about."""

    cluster: AnyCluster
    kube: Kube
    pipeline: Path

    def gpuflow(self, *words: object, kubeconfig: Path | None = None, python: Path | None = None) -> Answer:
        python = python or ENVIRONMENT / "bin" / "python"
        if not python.exists():
            lacking("reading a live cluster needs .venvs/airflow with the Kubernetes client")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(kubeconfig or self.kube.kubeconfig)}
        done = subprocess.run(
            [*self.cluster.enter, python, "-m", "gpuflow.cli.main", *map(str, words)],
            env=environment,
            text=True,
            capture_output=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Answer(done.returncode, done.stdout, done.stderr)

    def check(self, source: object, *words: object, kubeconfig: Path | None = None) -> Answer:
        place = ("--namespace", self.kube.namespace, "--cluster", source, "--format", "json", *words)
        return self.gpuflow("check", self.pipeline, *place, kubeconfig=kubeconfig)

    def snapshot(self, folder: Path, *words: object, kubeconfig: Path | None = None) -> Answer:
        return self.gpuflow("snapshot", "-o", folder, "--namespace", self.kube.namespace, *words, kubeconfig=kubeconfig)


@pytest.fixture
def gpu_nodes(private_cluster: Cluster, namespace: Kube) -> Iterator[list[str]]:
    """Two simulated nodes, fenced off from pods that are meant to run."""
    names = [f"{namespace.namespace}-{number}" for number in range(2)]
    try:
        namespace.apply(*(nodes.simulated(name, labels=LABELS, taints=[nodes.FENCE]) for name in names))
        for name in names:
            nodes.await_ready(namespace, name)
        yield names
    finally:
        namespace("delete", "node", *names, "--ignore-not-found", "--wait=false")


@pytest.fixture
def scene(kueue: AnyCluster, gpu_nodes: list[str], namespace: Kube, tmp_path: Path) -> Iterator[Scene]:
    hard = {"requests.nvidia.com/gpu": "8", "pods": "20"}
    namespace.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}, "spec": {"hard": hard}},
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "sizes"},
            "spec": {"limits": [{"type": "Container", "max": {"memory": "900Gi"}}]},
        },
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"token": SECRET}},
    )
    namespace.await_object("resourcequota", "gpus", "counted", lambda item: bool(item.get("status", {}).get("used")))
    running = pod(
        "busy",
        "gpuflow.test/never-pulled:1",
        ["train", SECRET],
        resources={"nvidia.com/gpu": "3"},
        keep=True,
        nodeName=gpu_nodes[0],
    )
    running["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": SECRET}]
    running["metadata"]["annotations"] = {"example.com/token": SECRET}
    namespace.create(running)
    namespace.await_pod("busy", "Running")
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE % (QUEUE, nodes.FENCE["key"]))
    with queue(namespace, {"cpu": "9", "memory": "90Gi", "nvidia.com/gpu": "4"}):
        namespace.await_object("clusterqueue", namespace.namespace, "active", _is_active)
        yield Scene(kueue, namespace, file)


def _is_active(item: dict[str, Any]) -> bool:
    return any(row["type"] == "Active" and row["status"] == "True" for row in item["status"].get("conditions", ()))


def told(report: dict[str, Any]) -> tuple[Any, ...]:
    """What a report says, without where it was read from."""
    findings = [(row["code"], row["message"], row["kubernetes"]) for row in report["findings"]]
    return report["verdict"], report["scopes"], findings


def kubeconfig_of(scene: Scene, account: str, folder: Path) -> Path:
    """A kubeconfig with the token of a service account in place of the administrator's key."""
    document = yaml.safe_load(scene.kube.kubeconfig.read_text())
    token = scene.kube("create", "token", account).strip()
    document["users"] = [{"name": user["name"], "user": {"token": token}} for user in document["users"]]
    file = folder / f"{account}.kubeconfig"
    file.write_text(yaml.safe_dump(document))
    return file


def test_a_snapshot_gives_the_verdict_of_the_live_cluster(scene: Scene, tmp_path: Path) -> None:
    live = scene.check("live")
    assert live.code in (0, 1), live.err
    taken = scene.snapshot(tmp_path / "cluster")
    assert (taken.code, taken.err) == (0, "")
    from_files = scene.check(tmp_path / "cluster")
    assert told(from_files.report) == told(live.report)
    quotas = {row["resource"]: row for row in live.report["scopes"] if row["kind"] == "ResourceQuota"}
    assert (quotas["requests.nvidia.com/gpu"]["used"], quotas["requests.nvidia.com/gpu"]["hard"]) == ("3", "8")
    kinds = {path.stem for path in (tmp_path / "cluster").iterdir()}
    assert {"resourcequota", "limitrange", "node", "pod", "clusterqueue", "localqueue", "resourceflavor"} <= kinds
    assert "GF571" not in live.out


def test_a_second_snapshot_of_the_unchanged_cluster_is_equal_to_the_byte(scene: Scene, tmp_path: Path) -> None:
    until(
        "namespaces of earlier tests to be gone",
        lambda: not any(each["metadata"].get("deletionTimestamp") for each in scene.kube.list("namespace")),
        timeout=180,
    )
    for name in ("first", "second"):
        assert scene.snapshot(tmp_path / name).code == 0

    def texts(name: str) -> dict[str, str]:
        return {path.name: path.read_text() for path in (tmp_path / name).iterdir()}

    # Leases of other controllers may move pods of the system; what this test made stays as it is.
    first, second = texts("first"), texts("second")
    assert first.keys() == second.keys()
    for kind in ("resourcequota", "limitrange", "node", "clusterqueue", "localqueue", "snapshot"):
        assert first[f"{kind}.yaml"] == second[f"{kind}.yaml"]


@pytest.mark.parametrize("end", ["oldest", "newest"])
def test_both_ends_of_the_client_take_the_same_snapshot(scene: Scene, tmp_path: Path, end: str) -> None:
    try:
        python = bounds.prepare(end, "cluster")
    except subprocess.CalledProcessError:
        lacking(f"the {end} Kubernetes client cannot be installed from the package index")
    print(f"kubernetes {bounds.versions(python)['kubernetes']}")
    place = ("--namespace", scene.kube.namespace)
    taken = scene.gpuflow("snapshot", "-o", tmp_path / end, *place, python=python)
    assert (taken.code, taken.err) == (0, "")
    assert scene.snapshot(tmp_path / "usual").code == 0
    for kind in ("resourcequota", "limitrange", "node", "clusterqueue", "localqueue", "snapshot"):
        assert (tmp_path / end / f"{kind}.yaml").read_text() == (tmp_path / "usual" / f"{kind}.yaml").read_text()
    live = scene.gpuflow("check", scene.pipeline, *place, "--cluster", "live", "--format", "json", python=python)
    assert told(live.report) == told(scene.check(tmp_path / end).report)


def test_no_secret_reaches_a_snapshot(scene: Scene, tmp_path: Path) -> None:
    assert scene.snapshot(tmp_path / "cluster").code == 0
    encoded = base64.b64encode(SECRET.encode()).decode()
    for path in (tmp_path / "cluster").iterdir():
        assert SECRET not in path.read_text(), path.name
        assert encoded not in path.read_text(), path.name
    assert not (tmp_path / "cluster" / "secret.yaml").exists()
    assert "busy" in (tmp_path / "cluster" / "pod.yaml").read_text()


def test_the_printed_permissions_suffice_and_are_needed(scene: Scene, tmp_path: Path) -> None:
    account, place = "reader", ("--namespace", scene.kube.namespace)
    manifests = scene.gpuflow("snapshot", "--rbac", "--service-account", account, *place)
    assert manifests.code == 0
    documents = list(yaml.safe_load_all(manifests.out))
    try:
        scene.kube("apply", "-f", "-", given=manifests.out)
        own = kubeconfig_of(scene, account, tmp_path)
        taken = scene.snapshot(tmp_path / "reader", kubeconfig=own)
        assert (taken.code, taken.err) == (0, "")
        assert told(scene.check("live", kubeconfig=own).report) == told(scene.check("live").report)
        with pytest.raises(KubeError, match="cannot list resource"):
            replace(scene.kube, kubeconfig=own)("get", "secrets")
    finally:
        for kind in ("clusterrole", "clusterrolebinding"):
            names = [row["metadata"]["name"] for row in documents if row["kind"].lower() == kind]
            scene.kube("delete", kind, *names, "--ignore-not-found")


def test_without_any_permission_it_ends_with_3_and_names_the_kinds(scene: Scene, tmp_path: Path) -> None:
    scene.kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}})
    own = kubeconfig_of(scene, "nobody", tmp_path)
    answer = scene.check("live", kubeconfig=own)
    assert answer.code == 3
    assert "GF413 resourcequotas cannot be listed: 403 Forbidden" in answer.err
    assert scene.snapshot(tmp_path / "nothing", kubeconfig=own).code == 3
    assert not (tmp_path / "nothing").exists()


def test_what_a_tenant_may_not_see_makes_unknown_live_and_from_the_snapshot(scene: Scene, tmp_path: Path) -> None:
    rules = [{"apiGroups": [""], "resources": ["resourcequotas", "limitranges"], "verbs": ["list"]}]
    group = "rbac.authorization.k8s.io"
    scene.kube.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant"}},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "tenant"}, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "tenant"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "tenant"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": scene.kube.namespace}],
        },
    )
    own = kubeconfig_of(scene, "tenant", tmp_path)
    live = scene.check("live", kubeconfig=own)
    assert (live.code, live.report["verdict"]) == (1, "unknown")
    (closed,) = [row["message"] for row in live.report["findings"] if row["code"] == "GF571"]
    unread = set(closed.partition("(403 Forbidden): ")[2].split(", "))
    assert {"Node", "Pod", "ClusterQueue", "Workload"} <= unread
    assert "PriorityClass" not in unread  # no step names one
    assert [row["verdict"] for row in live.report["scopes"] if row["kind"] == "ResourceQuota"]
    taken = scene.snapshot(tmp_path / "cluster", kubeconfig=own)
    assert taken.code == 0
    assert "cannot be listed: 403 Forbidden" in taken.err and "Node" in taken.err
    assert told(scene.check(tmp_path / "cluster").report) == told(live.report)


def test_a_wrong_token_a_wrong_context_and_a_dead_address_end_with_3(scene: Scene, tmp_path: Path) -> None:
    document = yaml.safe_load(scene.kube.kubeconfig.read_text())

    def answer(change: dict[str, Any], *words: str) -> Answer:
        file = tmp_path / "changed"
        file.write_text(yaml.safe_dump({**document, **change}))
        return scene.check("live", "--kubeconfig", file, *words)

    users = [{"name": user["name"], "user": {"token": "wrong"}} for user in document["users"]]
    refused = answer({"users": users})
    assert (refused.code, "401 Unauthorized" in refused.err) == (3, True)
    missing = answer({}, "--context", "nowhere")
    assert (missing.code, "GF411" in missing.err) == (3, True)
    dead = [{"name": row["name"], "cluster": {"server": "https://127.0.0.1:1"}} for row in document["clusters"]]
    silent = answer({"clusters": dead}, "--timeout", "2")
    assert (silent.code, "GF412" in silent.err) == (3, True)
    assert len(silent.err.splitlines()) <= 2


def test_a_list_of_more_than_one_page_is_read_in_whole(scene: Scene, tmp_path: Path) -> None:
    many = 603  # a page has 500
    classes: list[dict[str, Any]] = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"{scene.kube.namespace}-{number:04}"},
            "value": number,
        }
        for number in range(many)
    ]
    try:
        whole = {"apiVersion": "v1", "kind": "List", "items": classes}
        scene.kube("create", "-f", "-", given=json.dumps(whole), timeout=240)
        assert scene.snapshot(tmp_path / "cluster").code == 0
        text = (tmp_path / "cluster" / "priorityclass.yaml").read_text()
        assert text.count(f"name: {scene.kube.namespace}-") == many
    finally:
        names = [item["metadata"]["name"] for item in classes]
        scene.kube("delete", "priorityclass", *names, "--ignore-not-found", "--wait=false", timeout=240)
