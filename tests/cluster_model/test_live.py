"""A live cluster, played by a reader that answers as an API server does; the real one is asked in tests/cluster.

Tests gpuflow/cli/snapshot.py and gpuflow/cluster/live.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuflow.cli import snapshot
from gpuflow.cli.main import main
from gpuflow.cluster import live, read_cluster
from gpuflow.cluster.api_server import Answer, Reader
from gpuflow.cluster.fields import keep_checked_fields
from gpuflow.cluster.kinds import KUEUE_SETTINGS, SOURCES, rbac
from gpuflow.cluster.live import read_live
from gpuflow.cluster.model import Cluster
from gpuflow.core import yaml_tree
from gpuflow.core.errors import EnvironmentFailure

SECRET = "s3cr3t"


class Played(Reader):
    """An API server with some lists; a path that is not among them is not served."""

    def __init__(self, lists: Mapping[str, list[dict[str, Any]]], refused: Mapping[str, int] | None = None) -> None:
        self.lists = lists
        self.refused = refused or {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.forgets = False

    def get(self, path: str, query: Mapping[str, object]) -> Answer:
        self.asked.append((path, dict(query)))
        plural = path.rsplit("/", 1)[1]
        if plural in self.refused:
            return Answer(self.refused[plural], {}, f"{self.refused[plural]} Refused")
        if path not in self.lists:
            return Answer(404, {}, "404 Not Found")
        items = self.lists[path]
        if "limit" not in query:
            return Answer(200, {"items": items})
        start, size = int(str(query.get("continue", "0"))), int(str(query["limit"]))
        if start and self.forgets:
            return Answer(410, {}, "410 Gone")
        more = str(start + size) if start + size < len(items) else ""
        return Answer(200, {"items": items[start : start + size], "metadata": {"continue": more}})


OWN = ("resourcequotas", "limitranges", "persistentvolumeclaims")
SHARED = ("namespaces", "nodes", "pods", "persistentvolumes")
CORE: dict[str, list[dict[str, Any]]] = {
    path: []
    for path in (
        *(f"/api/v1/namespaces/ns/{plural}" for plural in OWN),
        *(f"/api/v1/{plural}" for plural in SHARED),
    )
}


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **more}


def test_a_long_list_is_read_page_by_page() -> None:
    nodes = [named(f"n{number}") for number in range(live.PAGE * 2 + 3)]
    reader = Played({**CORE, "/api/v1/nodes": nodes})
    cluster = read_live("ns", reader=reader)
    assert len(cluster.of("Node")) == len(nodes)
    pages = [query for path, query in reader.asked if path == "/api/v1/nodes"]
    assert [query.get("continue") for query in pages] == [None, str(live.PAGE), str(live.PAGE * 2)]


def test_a_server_that_forgets_where_it_was_is_asked_again_in_one_go() -> None:
    nodes = [named(f"n{number}") for number in range(live.PAGE + 1)]
    reader = Played({**CORE, "/api/v1/nodes": nodes})
    reader.forgets = True
    assert len(read_live("ns", reader=reader).of("Node")) == len(nodes)


def test_a_kind_that_the_cluster_does_not_have_is_none_and_one_that_is_closed_is_unknown() -> None:
    cluster = read_live("ns", reader=Played(CORE, {"nodes": 403, "priorityclasses": 500}))
    assert cluster.unread == {"Node": "403 Refused", "PriorityClass": "500 Refused"}
    assert (cluster.bodies("ClusterQueue"), cluster.bodies("Node")) == ([], None)


def test_no_quotas_no_verdict() -> None:
    with pytest.raises(EnvironmentFailure) as refused:
        read_live("ns", reader=Played(CORE, {"resourcequotas": 403, "limitranges": 403, "nodes": 403}))
    assert refused.value.exit_code == 3
    messages = [finding.message for finding in refused.value.findings]
    assert messages == ["resourcequotas cannot be listed: 403 Refused", "limitranges cannot be listed: 403 Refused"]


def test_credentials_that_are_not_accepted_end_at_once() -> None:
    with pytest.raises(EnvironmentFailure, match="401 Unauthorized"):
        read_live("ns", reader=Played(CORE, {"resourcequotas": 401}))


def test_an_older_kueue_is_read_in_the_version_it_serves() -> None:
    queues = "/apis/kueue.x-k8s.io/v1beta1/clusterqueues"
    cluster = read_live("ns", reader=Played({**CORE, queues: [named("cq", spec={"cohort": "c"})]}))
    (item,) = cluster.of("ClusterQueue")
    assert item.body["apiVersion"] == "kueue.x-k8s.io/v1beta1"


class Discovered(Played):
    """The same with a list of the API groups that it serves."""

    def get(self, path: str, query: Mapping[str, object]) -> Answer:
        if path == "/apis":
            self.asked.append((path, dict(query)))
            served = {"storage.k8s.io": ["v1"], "kueue.x-k8s.io": ["v1beta1"]}
            groups = [{"name": name, "versions": [{"version": each} for each in all]} for name, all in served.items()]
            return Answer(200, {"groups": groups})
        return super().get(path, query)


def test_kinds_of_groups_that_the_cluster_does_not_serve_are_not_asked_for() -> None:
    reader = Discovered({**CORE, "/apis/kueue.x-k8s.io/v1beta1/clusterqueues": [named("cq", spec={})]})
    cluster = read_live("ns", reader=reader)
    asked = [path for path, _ in reader.asked]
    assert [path for path in asked if "resource.k8s.io" in path or "v1beta2" in path] == []
    assert [item.name for item in cluster.of("ClusterQueue")] == ["cq"]
    assert (cluster.bodies("DeviceClass"), cluster.unread) == ([], {})
    assert len(asked) < len(SOURCES)


def test_lists_are_read_in_the_same_order_whichever_answer_comes_first() -> None:
    class Slow(Played):
        def get(self, path: str, query: Mapping[str, object]) -> Answer:
            time.sleep(0.02 if path.endswith(("resourcequotas", "nodes")) else 0)
            return super().get(path, query)

    lists = {**CORE, "/api/v1/nodes": [named("n")], "/api/v1/namespaces": [named("ns")], "/api/v1/pods": [named("p")]}
    kinds = [item.kind for item in read_live("ns", reader=Slow(lists)).objects]
    assert kinds == ["Namespace", "Node", "Pod"]


SETTINGS = "/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config"


class Configured(Played):
    """The same with Kueue's configuration."""

    def get(self, path: str, query: Mapping[str, object]) -> Answer:
        if path != SETTINGS or KUEUE_SETTINGS in self.refused:
            return super().get(path, query)
        text = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\nfairSharing: {enable: true}\n"
        return Answer(200, {"data": {"controller_manager_config.yaml": text}})


def test_the_configuration_of_kueue_is_read_by_its_name_where_kueue_is() -> None:
    served = {**CORE, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues": []}
    (settings,) = read_live("ns", reader=Configured(served)).of("Configuration")
    assert settings.body["fairSharing"] == {"enable": True}
    assert read_live("ns", reader=Configured(CORE)).of("Configuration") == []
    closed = read_live("ns", reader=Configured(served, {KUEUE_SETTINGS: 403}))
    assert closed.unread == {"Configuration": "403 Refused"}


def test_everything_that_is_asked_for_is_permitted_by_the_printed_roles() -> None:
    reader = Configured({**CORE, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues": []})
    read_live("ns", reader=reader)
    rules = [(role["kind"], rule) for role in rbac(["ns"]) for rule in role["rules"]]
    for path, _ in reader.asked:
        if path == "/apis":
            continue  # system:discovery lets everybody ask who is logged in
        words = path.strip("/").split("/")
        group = "" if words[0] == "api" else words[1]
        inside = "namespaces" in words and words[-1] != "namespaces"
        name = words[-1] if path == SETTINGS else None
        plural = words[-2] if name else words[-1]
        kind, verb = ("Role", "list") if inside and not name else ("ClusterRole", "get" if name else "list")
        assert any(
            role == kind and group in rule["apiGroups"] and plural in rule["resources"] and verb in rule["verbs"]
            and rule.get("resourceNames", [name]) == [name]
            for role, rule in rules
        ), path  # fmt: skip
    assert {verb for _, rule in rules for verb in rule["verbs"]} == {"get", "list"}
    assert not any("secrets" in rule["resources"] or "*" in rule["resources"] for _, rule in rules)


def container(**more: Any) -> dict[str, Any]:
    hidden = {"command": [SECRET], "args": [SECRET], "env": [{"name": "A", "value": SECRET}]}
    probe = {"livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}}}
    return {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}, **hidden, **probe, **more}


SPEC = {"containers": [container()], "initContainers": [container(restartPolicy="Always")], "nodeName": "n"}
WITH_SECRETS: dict[str, dict[str, Any]] = {
    "Pod": {"metadata": {"name": "p", "annotations": {"token": SECRET}}, "spec": SPEC, "status": {"phase": "Running"}},
    "Workload": {"metadata": {"name": "w"}, "spec": {"podSets": [{"name": "main", "template": {"spec": SPEC}}]}},
    "Node": {"metadata": {"name": "n", "annotations": {"token": SECRET}}, "status": {"allocatable": {"cpu": "1"}}},
    "StorageClass": {"metadata": {"name": "s"}, "parameters": {"key": SECRET}},
    "PersistentVolume": {"metadata": {"name": "v"}, "spec": {"csi": {"volumeAttributes": {"key": SECRET}}}},
    "ValidatingWebhookConfiguration": {
        "metadata": {"name": "h"},
        "webhooks": [{"name": "a", "clientConfig": {"url": f"https://{SECRET}@example.com"}}],
    },
}


@pytest.mark.parametrize("kind", WITH_SECRETS)
def test_nothing_that_may_be_a_secret_is_kept(kind: str) -> None:
    body = WITH_SECRETS[kind]
    assert SECRET in str(body)
    assert SECRET not in str(keep_checked_fields(kind, body))


def test_what_a_check_reads_of_a_pod_is_kept() -> None:
    states = [{"name": "main", "resources": {"requests": {"cpu": "2"}}, "image": "i", "imageID": "sha256:0"}]
    body = {**WITH_SECRETS["Pod"], "status": {"phase": "Running", "containerStatuses": states, "podIP": "10.0.0.1"}}
    tidy = keep_checked_fields("Pod", body)
    assert tidy["spec"]["nodeName"] == "n"
    assert [each["resources"] for each in tidy["spec"]["containers"]] == [{"requests": {"cpu": "1"}}]
    assert tidy["spec"]["initContainers"][0]["restartPolicy"] == "Always"
    sizes = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    assert tidy["status"] == {"phase": "Running", "containerStatuses": sizes}


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    """`gpuflow snapshot` against lists that the test fills."""
    lists: dict[str, list[dict[str, Any]]] = dict(CORE)
    real = read_live

    def read(namespace: str, *_: object, **__: object) -> Cluster:
        return real(namespace, reader=Played(lists))

    monkeypatch.setattr(live, "read_live", read)
    return lists


def test_a_snapshot_is_what_was_read(played: dict[str, list[dict[str, Any]]], tmp_path: Path) -> None:
    played["/api/v1/nodes"] = [named("b"), named("a")]
    assert main(["snapshot", "-o", str(tmp_path), "--namespace", "ns"]) == 0
    cluster = read_cluster(str(tmp_path))
    assert [item.name for item in cluster.of("Node")] == ["a", "b"]
    assert cluster.listed == {source.kind for source in SOURCES}
    assert (cluster.namespaces, cluster.unread) == (("ns",), {})


def test_what_may_not_be_read_is_said_on_the_console_and_in_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = {"deviceclasses": 403, "serviceaccounts": 403}
    monkeypatch.setattr(live, "read_live", lambda name, *_, **__: read_live(name, reader=Played(CORE, refused)))
    assert main(["snapshot", "-o", str(tmp_path), "--namespace", "ns"]) == 0
    said = capsys.readouterr().err
    assert "GF413 DeviceClass, ServiceAccount cannot be listed: 403 Refused" in said
    cluster = read_cluster(str(tmp_path))
    assert cluster.unread == {"DeviceClass": "403 Refused", "ServiceAccount": "403 Refused"}
    assert cluster.listed == {source.kind for source in SOURCES} - cluster.unread.keys()


def test_a_kind_of_thousands_is_written_as_json_and_read_back(
    played: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    names = [f"n{number:05}" for number in range(snapshot.MANY)]
    played["/api/v1/nodes"] = [named(name) for name in names]
    assert main(["snapshot", "-o", str(tmp_path), "--namespace", "ns"]) == 0
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["node.json", "snapshot.yaml"]
    assert [item.name for item in read_cluster(str(tmp_path)).of("Node")] == names


def test_a_new_snapshot_takes_the_place_of_the_old_one_and_of_nothing_else(
    played: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    played["/api/v1/nodes"] = [named("a")]
    (tmp_path / "mine.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine}\n")
    (tmp_path / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: mine}\n")
    assert main(["snapshot", "-o", str(tmp_path), "--namespace", "ns"]) == 0
    assert (tmp_path / "pod.yaml").exists()
    played["/api/v1/nodes"] = []
    assert main(["snapshot", "-o", str(tmp_path), "--namespace", "ns"]) == 0
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["mine.yaml", "snapshot.yaml"]


def test_the_permissions_are_printed_with_an_account_to_apply_them_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", "--rbac", "--namespace", "ns"]) == 0
    roles = capsys.readouterr().out
    assert [line for line in roles.splitlines() if line.startswith("kind:")] == ["kind: Role", "kind: ClusterRole"]
    assert main(["snapshot", "--rbac", "--service-account", "reader", "--namespace", "ns"]) == 0
    kinds = [line for line in capsys.readouterr().out.splitlines() if line.startswith("kind:")]
    assert kinds == [f"kind: {kind}" for kind in ("ServiceAccount", "Role", "ClusterRole", *BINDINGS)]


BINDINGS = ("RoleBinding", "ClusterRoleBinding")


def test_without_a_folder_and_without_a_kubeconfig_it_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["snapshot", "--namespace", "ns"]) == 2
    assert "GF903" in capsys.readouterr().err
    code = main(["snapshot", "-o", str(tmp_path), "--namespace", "ns", "--kubeconfig", str(tmp_path / "none")])
    # GF901 where the client is not installed, GF411 where it is.
    told = capsys.readouterr().err
    assert code == 3 and ("GF901" in told or "GF411" in told)


def of(namespace: str, name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, **more}


def quota_in(namespace: str, hard: str) -> dict[str, Any]:
    return of(
        namespace, "q", spec={"hard": {"requests.cpu": hard}}, status={"hard": {"requests.cpu": hard}, "used": {}}
    )


def pods_and_quotas() -> dict[str, list[dict[str, Any]]]:
    lists = {path.replace("/namespaces/ns", "/namespaces/a"): [] for path in CORE}
    lists |= {path.replace("/namespaces/ns", "/namespaces/b"): [] for path in CORE}
    lists |= {path.replace("/namespaces/ns", ""): [] for path in CORE}
    quotas = {name: quota_in(name, hard) for name, hard in (("a", "1"), ("b", "8"), ("c", "4"))}
    for name in ("a", "b"):
        lists[f"/api/v1/namespaces/{name}/resourcequotas"] = [quotas[name]]
    lists["/api/v1/resourcequotas"] = list(quotas.values())
    lists["/api/v1/namespaces"] = [named("a"), named("b"), named("c")]
    container = {"name": "main", "resources": {}}
    lists["/api/v1/pods"] = [of(each, f"{each}-secret", spec={"containers": [container]}) for each in ("a", "b", "c")]
    return lists


@pytest.mark.parametrize(
    ("words", "shown", "record"),
    [
        (["--namespace", "a"], ["a"], ("a",)),
        (["--namespace", "a,b"], ["a", "b"], ("a", "b")),
        (["--all-namespaces"], ["a", "b", "c"], ("*",)),
    ],
)
def test_a_snapshot_of_several_namespaces_shows_each_as_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], shown: list[str], record: tuple[str, ...]
) -> None:
    monkeypatch.setattr(live, "read_live", lambda names, *_, **__: read_live(names, reader=Played(pods_and_quotas())))
    assert main(["snapshot", "-o", str(tmp_path), *words]) == 0
    cluster = read_cluster(str(tmp_path))
    assert cluster.namespaces == record
    assert [item.namespace for item in cluster.of("ResourceQuota")] == shown
    assert [item.name for item in cluster.of("Pod") if "secret" in item.name] == [f"{each}-secret" for each in shown]
    for name in ("a", "b", "c", "d"):
        knows = "ResourceQuota" in cluster.seen_from(name).listed
        assert knows == (name in shown or record == ("*",))


def test_one_check_judges_each_document_in_its_namespace_of_one_snapshot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live, "read_live", lambda names, *_, **__: read_live(names, reader=Played(pods_and_quotas())))
    assert main(["snapshot", "-o", str(tmp_path / "c"), "-A"]) == 0
    job = """
apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: %s}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: i, resources: {requests: {cpu: "2"}}}]
"""
    (tmp_path / "jobs.yaml").write_text("---".join(job % name for name in ("a", "b", "c")))
    capsys.readouterr()
    assert main(["check", str(tmp_path / "jobs.yaml"), "--cluster", str(tmp_path / "c"), "--format", "json"]) == 1
    answers = json.loads(capsys.readouterr().out)
    scopes = [
        [(each["namespace"], one["hard"]) for one in each["scopes"] if one["kind"] != "Nodes"] for each in answers
    ]
    assert scopes == [[("a", "1")], [("b", "8")], [("c", "4")]]
    assert answers[0]["verdict"] == "never"
    assert not {"GF533", "GF537"} & {one["code"] for each in answers for one in each["findings"]}


def test_one_namespace_that_may_not_be_read_closes_the_kind() -> None:
    lists = pods_and_quotas()
    del lists["/api/v1/namespaces/b/limitranges"]
    with pytest.raises(EnvironmentFailure, match="limitranges cannot be listed"):
        read_live(["a", "b"], reader=Played(lists))


@pytest.mark.parametrize(
    ("words", "roles", "bindings"),
    [
        (["--namespace", "a,b"], ["Role a", "Role b", "ClusterRole None"], ["a", "b", None]),
        (["-A"], ["ClusterRole None"], [None]),
    ],
)
def test_the_permissions_are_those_of_the_namespaces(
    capsys: pytest.CaptureFixture[str], words: list[str], roles: list[str], bindings: list[str | None]
) -> None:
    assert main(["snapshot", "--rbac", "--service-account", "ops/reader", *words]) == 0
    objects = [each for each in yaml_tree.parse_all(capsys.readouterr().out, "rbac") if each]
    made = [f"{each['kind']} {each['metadata'].get('namespace')}" for each in objects if each["kind"].endswith("Role")]
    assert made == roles
    bound = [each for each in objects if each["kind"].endswith("Binding")]
    assert [each["metadata"].get("namespace") for each in bound] == bindings
    assert all(each["subjects"][0]["namespace"] == "ops" for each in bound)
    listed = {plural for each in objects if "rules" in each for rule in each["rules"] for plural in rule["resources"]}
    assert {"resourcequotas", "nodes"} <= listed


def test_an_account_for_all_namespaces_lives_in_one_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", "--rbac", "--service-account", "reader", "-A"]) == 2
    assert (
        "GF903 --service-account reader: with --all-namespaces, it is not said where it lives"
        in capsys.readouterr().err
    )
