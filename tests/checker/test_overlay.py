"""What the files of a check bring is part of the cluster while they are checked, and says nothing of what else is.

Tests gpuflow/cluster/overlay.py and what the rules make of it. Expected answers are reasoned by hand from
Kubernetes 1.36 and Kueue 0.19.
"""

from __future__ import annotations

import copy
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuflow
from gpuflow.checker.report import Report
from gpuflow.checker.snapshot.validation import PreparedCluster
from gpuflow.cluster import cluster_of
from gpuflow.cluster.overlay import lay_over, objects_of
from gpuflow.core.codes import CODES
from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.quantity import Quantity
from tests.cli.commands import Gpuflow
from tests.cli.conftest import gpuflow as gpuflow_fixture

Body = dict[str, Any]
command = gpuflow_fixture
SPACE = "nlp"
LISTED = [
    "ClusterQueue", "Cohort", "LimitRange", "LocalQueue", "Namespace", "Node", "PersistentVolume",
    "PersistentVolumeClaim", "Pod", "PriorityClass", "ResourceFlavor", "ResourceQuota", "RuntimeClass",
    "DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceTaintRule", "ServiceAccount",
    "StorageClass", "Workload", "WorkloadPriorityClass", "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
]  # fmt: skip


def item(kind: str, name: str, api: str = "v1", space: str | None = SPACE, **rest: Any) -> Body:
    metadata = {"name": name, **({"namespace": space} if space else {}), **rest.pop("metadata", {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


def pod_spec(**rest: Any) -> Body:
    limits = {"cpu": "1", "memory": "1Gi"}
    main = {"name": "main", "image": "i", "resources": {"limits": limits, "requests": limits}, **rest.pop("main", {})}
    return {"restartPolicy": "Never", "containers": [main], **rest}


def job(labels: Body | None = None, space: str | None = SPACE, **rest: Any) -> Body:
    metadata = {"labels": labels} if labels else {}
    return item("Job", "j", "batch/v1", space, metadata=metadata, spec={"template": {"spec": pod_spec(**rest)}})


def node() -> Body:
    room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return item("Node", "n", space=None, status={"allocatable": room, "capacity": room})


def record(*without: str, **rest: Any) -> Body:
    listed = [kind for kind in LISTED if kind not in without]
    return {"apiVersion": "gpuflow/v1", "kind": "Snapshot", "listed": listed, **rest}


def cluster(*more: Body, without: tuple[str, ...] = (), **rest: Any) -> list[Body]:
    shown = [item("Namespace", SPACE, space=None), item("ServiceAccount", "default"), node()]
    return [*(each for each in shown if each["kind"] not in without), *more, record(*without, **rest)]


def check(files: list[Body], world: list[Body], namespace: str | None = SPACE) -> Report:
    return gpuflow.check(files, world, namespace=namespace)


def codes(report: Report) -> list[str]:
    return [each.code for each in report.findings]


def quota(hard: Body, name: str = "q", space: str | None = SPACE, **rest: Any) -> Body:
    return item("ResourceQuota", name, space=space, spec={"hard": hard}, **rest)


ACCOUNT = item("ServiceAccount", "sa")
CLAIM = item(
    "PersistentVolumeClaim",
    "data",
    spec={"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "10Gi"}}},
)
FAST = item(
    "StorageClass", "fast", "storage.k8s.io/v1", None, provisioner="x", volumeBindingMode="WaitForFirstConsumer"
)
DRIVER = item("CSINode", "n", "storage.k8s.io/v1", None, spec={"drivers": [{"name": "x", "nodeID": "n"}]})
DRA = "resource.k8s.io/v1"
REQUEST = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
DEVICES = item("ResourceClaimTemplate", "gpus", DRA, spec={"spec": {"devices": {"requests": [REQUEST]}}})
GPUS = [
    item("DeviceClass", "gpu", DRA, None, spec={}),
    item("ResourceSlice", "s", DRA, None, spec={
        "driver": "d", "nodeName": "n", "devices": [{"name": "one"}],
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
    }),
]  # fmt: skip
HIGH = item("PriorityClass", "high", "scheduling.k8s.io/v1", None, value=1000)
KUEUE = "kueue.x-k8s.io/v1beta2"
FLAVOR = item("ResourceFlavor", "f", KUEUE, None, spec={})
ROOM = [{"name": name, "nominalQuota": "8"} for name in ("cpu",)] + [{"name": "memory", "nominalQuota": "32Gi"}]
QUEUE = item(
    "ClusterQueue",
    "cq",
    KUEUE,
    None,
    spec={
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "f", "resources": ROOM}]}],
    },
)
LOCAL = item("LocalQueue", "lq", KUEUE, spec={"clusterQueue": "cq"})
MOUNT = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
STORAGE = {"requests.storage": "15Gi"}
SMALL_CLAIMS = item("LimitRange", "l", spec={"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]})
QUEUED = {"kueue.x-k8s.io/queue-name": "lq"}
RUNTIME = item("RuntimeClass", "gvisor", "node.k8s.io/v1", None, handler="runsc")

BRINGS = {
    "account": ([ACCOUNT], job(serviceAccountName="sa"), [], "GF540"),
    "priority": ([HIGH], job(priorityClassName="high"), [], "GF505"),
    "runtime": ([RUNTIME], job(runtimeClassName="gvisor"), [], "GF516"),
    "queue": ([LOCAL], job(QUEUED), [FLAVOR, QUEUE], "GF507"),
    "queues": ([LOCAL, FLAVOR, QUEUE], job(QUEUED), [], "GF537"),
    "claim": ([CLAIM], job(volumes=MOUNT), [FAST, DRIVER], "GF561"),
    "devices": ([DEVICES], job(resourceClaims=[{"name": "d", "resourceClaimTemplateName": "gpus"}]), GPUS, "GF546"),
    "claim and class": ([CLAIM, FAST], job(volumes=MOUNT), [DRIVER], "GF561"),
}


@pytest.mark.parametrize("name", BRINGS)
def test_what_the_same_file_brings_is_there(name: str) -> None:
    brought, workload, world, missing = BRINGS[name]
    without = check([workload], cluster(*world))
    assert without.verdict != "always" or missing in codes(without)
    for files in ([*brought, workload], [workload, *brought]):
        report = check(files, cluster(*world))
        assert missing not in codes(report), report.findings
        assert report.verdict == "always", report.findings
        assert [(each.kind, each.name) for each in report.brought] == [
            (each["kind"], each["metadata"]["name"]) for each in brought
        ]


CLAIMING = job(resourceClaims=[{"name": "d", "resourceClaimTemplateName": "gpus"}])
DEVICE_KINDS = ("ResourceSlice", "DeviceClass", "ResourceClaimTemplate")


@pytest.mark.parametrize(
    ("brought", "shown", "not_listed", "assumed", "verdict", "code"),
    [
        ([], [], DEVICE_KINDS, [], "unknown", "GF536"),
        ([], [], DEVICE_KINDS, DEVICE_KINDS[:2], "unknown", "GF536"),  # the template
        ([DEVICES], [], DEVICE_KINDS, DEVICE_KINDS[:2], "always", None),
        ([], [], DEVICE_KINDS, DEVICE_KINDS, "always", None),
        ([], [], DEVICE_KINDS[:2], DEVICE_KINDS[:2], "never", "GF546"),
        ([DEVICES], [], DEVICE_KINDS[:1], DEVICE_KINDS[:1], "never", "GF546"),  # its class
        ([DEVICES], GPUS, (), [], "unknown", "GF547"),
    ],
)
def test_who_leaves_nodes_out_is_asked_about_the_devices_of_claims(
    brought: list[Body],
    shown: list[Body],
    not_listed: tuple[str, ...],
    assumed: tuple[str, ...],
    verdict: str,
    code: str | None,
) -> None:
    world = cluster(*shown, without=("Node", *not_listed), assumed=["Node", *assumed])
    report = check([*brought, CLAIMING], world)
    assert report.verdict == verdict, report.findings
    assert code is None or code in codes(report)
    assert set(report.assumed) == {"Node", *assumed} - ({"ResourceClaimTemplate"} if brought else set())


REFUSES = {
    "quota": (quota({"pods": "0"}), "never"),
    "compute": (quota({"requests.cpu": "500m"}), "never"),
    "limit range": (item("LimitRange", "l", spec={"limits": [{"type": "Container", "max": {"cpu": "100m"}}]}), "never"),
    "webhook": (
        item(
            "ValidatingWebhookConfiguration",
            "w",
            "admissionregistration.k8s.io/v1",
            None,
            webhooks=[
                {
                    "name": "a.b.c",
                    "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["pods"]}],
                }
            ],
        ),
        "unknown",
    ),
    "policy of another tool": (item("ClusterPolicy", "p", "kyverno.io/v1", None), "unknown"),
    "policy of a tool, elsewhere": (item("Policy", "p", "kyverno.io/v1", "other"), "always"),
    "restricted": (
        item("Namespace", SPACE, space=None, metadata={"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}),
        "never",
    ),
    "elsewhere": (quota({"pods": "0"}, space="other"), "always"),
    "no namespace": (quota({"pods": "0"}, space=None), "never"),
    "enough": (quota({"pods": "5"}), "always"),
}


@pytest.mark.parametrize("name", REFUSES)
def test_what_the_same_file_brings_holds_back(name: str) -> None:
    brought, verdict = REFUSES[name]
    assert check([job()], cluster()).verdict == "always"
    report = check([job(), brought], cluster())
    assert report.verdict == verdict, report.findings
    if verdict == "unknown":
        assert next(each.where.line for each in report.findings if each.code == "GF531") is not None


def test_an_object_of_a_file_says_nothing_of_others_of_its_kind() -> None:
    """A folder that shows no account and no queue: one of a file does not mean that there are no others."""
    kinds = ("ServiceAccount", "PersistentVolumeClaim", "PriorityClass", "StorageClass", "LocalQueue", "RuntimeClass")
    world = cluster(without=kinds)
    shown = [ACCOUNT, CLAIM, HIGH, FAST, LOCAL, RUNTIME]
    for wanted in (
        job(serviceAccountName="other"), job(volumes=[{"name": "o", "persistentVolumeClaim": {"claimName": "other"}}]),
        job(priorityClassName="other"), job({"kueue.x-k8s.io/queue-name": "other"}), job(runtimeClassName="other"),
    ):  # fmt: skip
        assert check([wanted, *shown], world).verdict == "unknown"
    assert check([job(serviceAccountName="sa"), ACCOUNT], world).verdict == "always"
    # The claim may be there, with a volume that only some nodes reach, and a quota may count it already.
    world = cluster(FAST, DRIVER, quota({"persistentvolumeclaims": "0"}), without=kinds[1:2])
    assert check([job(volumes=MOUNT), CLAIM], world).verdict == "unknown"


def test_a_quota_of_a_file_does_not_make_a_namespace_known() -> None:
    """What limits a namespace of which the snapshot has nothing is not known, whatever a file brings into it."""
    world = [
        item("Namespace", "elsewhere", space=None),
        node(),
        {**record("Namespace", "ResourceQuota", "LimitRange"), "assumed": ["Pod"]},
    ]
    for files in ([job()], [job(), quota({"pods": "9"})], [job(), item("Namespace", SPACE, space=None), ACCOUNT]):
        report = check(files, world)
        assert report.verdict == "unknown", report
        assert {"GF533", "GF536"} & set(codes(report))


def test_a_namespace_that_is_certainly_new_holds_what_the_files_bring_and_nothing_else() -> None:
    """The snapshot is of another namespace, and lists all namespaces: this one is not there yet."""
    world = cluster(namespace=SPACE)
    new = item("Namespace", "fresh", space=None)
    mine = job(space="fresh", serviceAccountName="sa")
    account = item("ServiceAccount", "sa", space="fresh")
    assert "GF538" in codes(check([mine], world, None))
    assert check([new, account, mine], world, None).verdict == "always"
    other = check([new, mine], world, None)
    assert (other.verdict, "GF540" in codes(other)) == ("never", True)
    assert check([new, account, quota({"pods": "0"}, space="fresh"), mine], world, None).verdict == "never"
    behind = check([mine, new, account], world, None)
    assert behind.verdict == "always"
    assert "GF800" not in codes(behind)  # a document in memory has no order of lines


def test_an_object_that_the_cluster_has_is_replaced_and_keeps_what_only_the_cluster_knows() -> None:
    """A quota keeps what is in use, a claim its volume, a namespace the labels that others gave it."""
    there = quota({"pods": "4"}, status={"hard": {"pods": "4"}, "used": {"pods": "3"}})
    assert used_of(check([job()], cluster(there))) == ["3"]
    more = check([job(), quota({"pods": "9"})], cluster(there))
    assert (used_of(more), more.scopes[0].hard) == (["3"], Quantity("9"))
    wider = check([job(), quota({"pods": "9", "requests.cpu": "2"})], cluster(there))
    assert (used_of(wider), wider.verdict) == (["3", "0"], "always")
    full = check([job(), quota({"pods": "3"})], cluster(there))
    assert (full.verdict, "GF576" in codes(full)) == ("may-queue", False)
    strict = item(
        "Namespace", SPACE, space=None, metadata={"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    )
    world = [strict if each["metadata"]["name"] == SPACE else each for each in cluster()[:-1]]
    assert check([job(), item("Namespace", SPACE, space=None)], [*world, record()]).verdict == "never"
    holder = {"namespace": SPACE, "name": "data"}
    spec = {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}
    volume = item("PersistentVolume", "pv", space=None, spec={**spec, "claimRef": holder})
    bound = {**CLAIM, "spec": {**CLAIM["spec"], "volumeName": "pv"}, "status": {"phase": "Bound"}}
    plain = {**CLAIM, "spec": {key: value for key, value in CLAIM["spec"].items() if key != "storageClassName"}}
    assert check([job(volumes=MOUNT)], cluster(FAST, volume, bound)).verdict == "always"
    assert check([job(volumes=MOUNT), plain], cluster(FAST, volume, bound)).verdict == "always"


def used_of(report: Report) -> list[str]:
    return [str(each.used) for each in report.scopes if each.kind == "ResourceQuota"]


def running(name: str, **status: str) -> Body:
    return item("Pod", name, spec=pod_spec(nodeName="n"), status={"phase": "Running", **status})


def test_a_new_quota_counts_the_pods_that_are_there() -> None:
    """Kubernetes counts them before it enforces the quota; a pod that has ended is not among them."""
    world = cluster(running("a"), running("b"), running("c", phase="Succeeded"))
    for hard, verdict in (("2", "may-queue"), ("3", "always")):
        report = check([job(), quota({"pods": hard, "requests.cpu": "9"})], world)
        assert (report.verdict, "GF532" in codes(report)) == (verdict, False), report.findings
        assert used_of(report) == ["2", "2"]
    low = item("ResourceQuota", "q", spec={"hard": {"pods": "2"}, "scopes": ["BestEffort"]})
    assert check([job(), low], world).verdict == "always"
    alone = check([job(), quota({"pods": "1"})], cluster())
    assert (alone.verdict, "GF532" in codes(alone)) == ("always", True)


def test_a_status_in_a_file_is_not_what_the_cluster_says() -> None:
    """The API server drops it: the quota of the file is new, whatever it says of its use."""
    written = quota({"pods": "1"}, status={"hard": {"pods": "9"}, "used": {"pods": "8"}})
    report = check([job(), written], cluster())
    assert used_of(report) == ["0"]


@pytest.mark.parametrize(
    ("more", "verdict", "code"),
    [
        (quota({"persistentvolumeclaims": "0"}), "never", "GF501"),
        (quota({"requests.storage": "5Gi"}), "never", "GF501"),
        (quota({"fast.storageclass.storage.k8s.io/requests.storage": "5Gi"}), "never", "GF501"),
        (SMALL_CLAIMS, "never", "GF502"),
        (quota(STORAGE, status={"hard": STORAGE, "used": {"requests.storage": "10Gi"}}), "may-queue", "GF512"),
    ],
)  # fmt: skip
def test_a_claim_of_the_files_is_admitted_too(more: Body, verdict: str, code: str) -> None:
    immediate = {**FAST, "volumeBindingMode": "Immediate"}
    world = cluster(immediate, DRIVER, more)
    report = check([CLAIM, job(volumes=MOUNT)], world)
    assert (report.verdict, code in codes(report)) == (verdict, True), report.findings
    assert all(each.where.file for each in report.findings if each.code in ("GF501", "GF502"))
    assert code not in codes(check([CLAIM, job()], world))  # nothing of this document mounts it


def test_a_prepared_cluster_takes_files_too_and_stays_as_it_is() -> None:
    ready = PreparedCluster(cluster_of(cluster()), SPACE)
    mine = job(serviceAccountName="sa")
    assert gpuflow.check([ACCOUNT, mine], ready, namespace=SPACE).verdict == "always"
    assert gpuflow.check([mine], ready, namespace=SPACE).verdict == "never"


# Through the command line.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cluster").mkdir()
    write(tmp_path / "cluster" / "all.yaml", *cluster())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, *documents: Body) -> str:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    return str(path)


CHECK = ("--cluster", "cluster", "--namespace", SPACE)


def bare(body: Body) -> Body:
    """An object as charts write it: without a namespace."""
    return {**body, "metadata": {key: value for key, value in body["metadata"].items() if key != "namespace"}}


def test_a_chart_brings_its_account(command: Gpuflow, folder: Path) -> None:
    service = bare(item("Service", "s", spec={}))
    hook = item("ConfigMap", "c", space=None, metadata={"annotations": {"helm.sh/hook": "pre-install"}}, data={})
    write(folder / "chart.yaml", bare(ACCOUNT), service, hook, bare(job(serviceAccountName="sa")))
    answer = command("check", "chart.yaml", *CHECK)
    assert answer.code == 0, answer.out + answer.err
    assert answer.out.endswith(
        "Checked against cluster, with 3 objects of the files: ServiceAccount sa, Service s, ConfigMap c. "
        "Assumes no other workload grows.\n"
    )
    assert answer.err == ""
    (first, _, second) = command("check", "chart.yaml", *CHECK, "--format", "json").data["brought"]
    assert first == {
        "kind": "ServiceAccount",
        "name": "sa",
        "namespace": SPACE,
        "where": {"file": "chart.yaml", "line": 1},
    }
    assert second["name"] == "c"
    marked = command("check", "chart.yaml", *CHECK, "--format", "markdown")
    assert (
        "Checked against `cluster`, with 3 objects of the files: ServiceAccount sa, Service s, ConfigMap c."
        in marked.out
    )
    # What is asked without a cluster is not laid over one.
    assert "ServiceAccount sa" in command("demand", "chart.yaml").err


def test_objects_of_other_files_count_and_each_in_its_namespace(command: Gpuflow, folder: Path) -> None:
    two = item("Namespace", "cv", space=None), item("ServiceAccount", "default", space="cv")
    write(folder / "cluster" / "cv.yaml", *two)
    write(folder / "app/job.yaml", job(serviceAccountName="sa"))
    write(folder / "app/beside.yaml", ACCOUNT, quota({"pods": "0"}, space="cv"), item("Namespace", "x", space=None))
    write(folder / "app/other.yaml", {**job(space="cv"), "metadata": {"name": "k", "namespace": "cv"}})
    answer = command("check", "app", "--cluster", "cluster", "--format", "json")
    verdicts = [(each["pipeline"], each["verdict"], [it["name"] for it in each["brought"]]) for each in answer.data]
    assert verdicts == [("j", "always", ["sa"]), ("k", "never", ["q"])]
    together = command("check", "app", "--cluster", "cluster", "--format", "json", "--together").data[-1]["together"]
    assert [it["name"] for it in together["brought"]] == ["sa", "q"]
    # The cluster's own files are no files of the check.
    (folder / "app/beside.yaml").rename(folder / "cluster/beside.yaml")
    inside = command("check", ".", "--cluster", "cluster", "--format", "json").data
    assert [each["verdict"] for each in inside] == ["always", "never"]
    assert not any("brought" in each for each in inside)


def test_a_pod_before_what_it_names_is_told_and_a_job_is_not(command: Gpuflow, folder: Path) -> None:
    pod = item("Pod", "p", spec=pod_spec(serviceAccountName="sa", priorityClassName="high"))
    write(folder / "late.yaml", pod, ACCOUNT, HIGH)
    data = command("check", "late.yaml", *CHECK, "--format", "json").data
    late = [(each["code"], each["where"]["line"]) for each in data["findings"] if each["code"] == "GF800"]
    lines = Path("late.yaml").read_text().splitlines()
    assert late == [("GF800", lines.index("kind: ServiceAccount")), ("GF800", lines.index("kind: PriorityClass"))]
    assert data["verdict"] == "unknown"
    write(folder / "early.yaml", ACCOUNT, HIGH, pod)
    write(folder / "job.yaml", job(serviceAccountName="sa"), ACCOUNT)
    for name in ("early.yaml", "job.yaml"):
        assert "GF800" not in command("check", name, *CHECK).out
    write(folder / "space.yaml", job(space="fresh"), item("Namespace", "fresh", space=None))
    answer = command("check", "space.yaml", "--cluster", "cluster")
    assert "GF800 Job j stands before Namespace fresh" in answer.out


def test_an_object_that_stands_twice_is_told_and_the_last_one_counts(command: Gpuflow, folder: Path) -> None:
    write(folder / "two.yaml", job(), quota({"pods": "0"}), quota({"pods": "7"}))
    answer = command("check", "two.yaml", *CHECK)
    assert answer.code == 0, answer.out
    assert "GF801 ResourceQuota q stands twice in the files" in answer.out
    assert "hard 7" in answer.out


def test_an_object_that_cannot_be_read_is_one_finding_at_its_place(command: Gpuflow, folder: Path) -> None:
    write(folder / "bad.yaml", job(), quota({"pods": "many"}))
    answer = command("check", "bad.yaml", *CHECK)
    assert answer.code == 2
    assert answer.err.startswith("bad.yaml:"), answer.err
    assert "GF403 ResourceQuota q: spec.hard[pods]" in answer.err
    write(folder / "bad.yaml", job(), {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "Q q"}})
    nameless = command("check", "bad.yaml", *CHECK)
    assert (nameless.code, "GF138" in nameless.err) == (2, True)
    with pytest.raises(GpuflowError, match="GF402"):
        check([job(), {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {}}], cluster())


def counted(key: str, hard: str, used: str) -> Body:
    return quota({key: hard}, status={"hard": {key: hard}, "used": {key: used}})


BESIDE = [
    (item("Service", "s", spec={}), "services"),
    (item("Secret", "s", data={}), "count/secrets"),
    (item("ConfigMap", "s", data={}), "configmaps"),
    (item("ServiceAccount", "s"), "count/serviceaccounts"),
    (item("Role", "s", "rbac.authorization.k8s.io/v1", rules=[]), "count/roles.rbac.authorization.k8s.io"),
    (item("NetworkPolicy", "s", "networking.k8s.io/v1", spec={}), "count/networkpolicies.networking.k8s.io"),
]


@pytest.mark.parametrize(("beside", "key"), BESIDE, ids=[key for _, key in BESIDE])
def test_objects_beside_the_workload_count_in_object_quotas(beside: Body, key: str) -> None:
    assert (
        check([job(), beside], cluster(quota({key: "3"}, status={"hard": {key: "3"}, "used": {key: "2"}}))).verdict
        == "always"
    )
    full = cluster(quota({key: "3"}, status={"hard": {key: "3"}, "used": {key: "3"}}))
    assert check([job()], full).verdict == "always"
    report = check([job(), beside], full)
    assert report.verdict == "unknown"
    (found,) = [each.message for each in report.findings if each.code == "GF514"]
    assert f"{beside['kind']} s comes with it" in found
    elsewhere = {**beside, "metadata": {"name": "s", "namespace": "cv"}}
    assert check([job(), elsewhere], full).verdict == "always"
    assert check([job(), beside], [*full, beside]).verdict == "always"  # it is there, and counted


def test_an_object_of_the_files_may_be_the_one_that_a_controller_makes() -> None:
    """JobSet's controller takes the Service of its name that is there already."""
    jobs = [{"name": "a", "template": {"spec": {"template": {"spec": pod_spec()}}}}]
    workload = item("JobSet", "js", "jobset.x-k8s.io/v1alpha2", spec={"replicatedJobs": jobs})

    def verdict(hard: str, *files: Body) -> str:
        return check([workload, *files], cluster(counted("services", hard, "0"))).verdict

    service = item("Service", "js", spec={"clusterIP": "None"})
    assert [verdict("2", service), verdict("1"), verdict("1", service)] == ["always", "always", "unknown"]
    assert verdict("0", service) == "never"


def test_a_webhook_on_what_stands_beside_the_workload_leaves_the_verdict_unknown() -> None:
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["services"]}
    hook = item(
        "ValidatingWebhookConfiguration", "w", "admissionregistration.k8s.io/v1", None,
        webhooks=[{"name": "a.b.c", "rules": [rule]}],
    )  # fmt: skip
    assert check([job()], cluster(hook)).verdict == "always"
    report = check([job(), item("Service", "s", spec={})], cluster(hook))
    assert (report.verdict, "GF531" in codes(report)) == ("unknown", True)


VOLCANOS = item("Queue", "default", "scheduling.volcano.sh/v1beta1", None, spec={"weight": 1})


@pytest.mark.parametrize(
    ("workload", "verdict"),
    [
        (job(), "always"),
        (job(schedulerName="default-scheduler"), "always"),
        (job(schedulerName="volcano"), "unknown"),
        (
            item("PyTorchJob", "p", "kubeflow.org/v1", spec={
                "pytorchReplicaSpecs": {"Master": {"template": {"spec": {
                    "containers": [{"name": "pytorch", "image": "i"}],
                }}}},
            }),
            "unknown",
        ),  # its operator may be told to hand pods to Volcano
    ],
)  # fmt: skip
def test_queues_of_volcano_hold_back_what_volcano_may_schedule(workload: Body, verdict: str) -> None:
    report = check([workload], cluster(VOLCANOS))
    assert report.verdict == verdict
    assert any("Queue" in each.message for each in report.findings if each.code == "GF531") == (verdict == "unknown")


def test_files_that_bring_nothing_change_no_byte(command: Gpuflow, folder: Path) -> None:
    write(folder / "one.yaml", job())
    lease = item("Lease", "s", "coordination.k8s.io/v1", spec={})
    write(folder / "two.yaml", job(), lease, item("CronTab", "x", "stable.example.com/v1"))
    for form in ("text", "json", "markdown", "sarif"):
        one, two = (command("check", name, *CHECK, "--format", form) for name in ("one.yaml", "two.yaml"))
        assert one.out == two.out.replace("two.yaml", "one.yaml")
        assert "brought" not in one.out


def test_a_pipeline_of_ours_meets_what_stands_beside_it(command: Gpuflow, folder: Path) -> None:
    own = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: ours\nsteps:\n"
    (folder / "p.yaml").write_text(f"{own}  a: {{image: i, command: [x], cpu: 1, memory: 1Gi}}\n")
    assert command("check", "p.yaml", *CHECK).code == 0
    write(folder / "quota.yaml", bare(quota({"pods": "0"})))
    answer = command("check", "p.yaml", "quota.yaml", *CHECK, "--format", "json")
    assert (answer.code, json.loads(answer.out)["verdict"]) == (1, "never")


def test_what_is_compared_with_meets_the_files_as_they_were(command: Gpuflow, folder: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], check=True, capture_output=True)

    git("init", "-q")
    write(folder / "job.yaml", job(serviceAccountName="sa"))
    write(folder / "beside.yaml", quota({"pods": "0"}))
    git("add", ".")
    git("commit", "-qm", "before")
    write(folder / "beside.yaml", quota({"pods": "5"}), ACCOUNT)
    answer = command("check", "job.yaml", "beside.yaml", *CHECK, "--compare", "HEAD", "--format", "json")
    assert (answer.data["before"]["verdict"], answer.data["after"]["verdict"]) == ("never", "always")
    assert [len(answer.data[time]["brought"]) for time in ("before", "after")] == [1, 2]


def test_a_revision_is_compared_with_the_cluster_that_it_had(command: Gpuflow, folder: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], check=True, capture_output=True)

    words = ("check", "job.yaml", *CHECK, "--compare", "HEAD", "--format", "json")
    git("init", "-q")
    write(folder / "job.yaml", job())
    git("add", "job.yaml")
    git("commit", "-qm", "before")
    answer = command(*words)
    assert "GF912 HEAD does not have cluster" in answer.err and "as it is now" in answer.err
    assert (answer.data["before"]["verdict"], answer.data["after"]["verdict"]) == ("always", "always")
    (folder / "cluster" / ".hidden").mkdir()
    write(folder / "cluster" / ".hidden" / "other.yaml", quota({"pods": "0"}, name="other"))
    (folder / "cluster" / "link.yaml").symlink_to(folder / "job.yaml")
    write(folder / "cluster" / "quota.yaml", quota({"pods": "0"}))
    git("add", ".")
    git("commit", "-qm", "none")
    (folder / "cluster" / "link.yaml").unlink()
    write(folder / "cluster" / "quota.yaml", quota({"pods": "5"}))
    answer = command(*words)
    assert "GF912" not in answer.err
    assert (answer.data["before"]["verdict"], answer.data["after"]["verdict"]) == ("never", "always")
    assert "other" not in {each["name"] for each in answer.data["before"]["scopes"]}


PLACES = st.sampled_from(
    [ACCOUNT, CLAIM, FAST, HIGH, FLAVOR, QUEUE, LOCAL, RUNTIME, quota({"pods": "3"}, scopes=["BestEffort"])]
)
VALUES = st.sampled_from([None, "", "x", "-1", 0, -3, 1.5, True, [], {}, ["x"], [None], {"x": None}, {"x": ["y"]}])


@settings(max_examples=100, deadline=None)
@given(PLACES, VALUES, st.data())
def test_any_value_in_an_object_of_a_file_is_an_answer_or_a_finding(
    body: Body, value: Any, data: st.DataObject
) -> None:
    changed = copy.deepcopy(body)
    holder: Any = changed
    while True:
        key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
        inner = holder[key]
        if not inner or not isinstance(inner, dict | list) or data.draw(st.booleans()):
            break
        holder = inner
    holder[key] = value
    files = [job(QUEUED, volumes=MOUNT, serviceAccountName="sa", priorityClassName="high"), changed]
    for there in ([], [body]):
        found: list[Finding] = []
        try:
            found += check(files, cluster(*there)).findings
        except GpuflowError as refusal:
            found += refusal.findings
        assert all(each.code in CODES and each.message for each in found)


def test_standard_input_may_be_a_list(command: Gpuflow, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`helm template CHART | gpuflow check -`, `kubectl kustomize DIR | gpuflow check -`."""
    files = [bare(job(serviceAccountName="sa", priorityClassName="high")), bare(ACCOUNT), HIGH]
    for text in (yaml.safe_dump_all(files), json.dumps({"apiVersion": "v1", "kind": "List", "items": files})):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        answer = command("check", "-", *CHECK, "--format", "json")
        assert (answer.code, answer.data["verdict"]) == (0, "always"), answer.err
        assert {each["where"]["file"] for each in answer.data["brought"]} == {"<stdin>"}


def test_an_object_without_a_namespace_is_where_the_documents_without_one_are(command: Gpuflow, folder: Path) -> None:
    """The option is for all that name none; a Job that names another namespace does not see them."""
    write(folder / "cluster" / "cv.yaml", item("Namespace", "cv", space=None), item("ServiceAccount", "d", space="cv"))
    mine, other = bare(job(serviceAccountName="sa")), job(space="cv", serviceAccountName="sa")
    write(folder / "mine.yaml", mine, bare(ACCOUNT))
    write(folder / "other.yaml", other)
    assert command("check", "mine.yaml", *CHECK).code == 0
    site = write(
        folder / "site.yaml", {"apiVersion": "gpuflow/v1", "kind": "Site", "extends": "nvidia", "namespace": SPACE}
    )
    answer = command("check", "mine.yaml", "other.yaml", "--cluster", "cluster", "--site", site, "--format", "json")
    assert [each["verdict"] for each in answer.data] == ["always", "never"], answer.err


LIMIT = item("LimitRange", "own", spec={"limits": [{"type": "Container", "max": {"cpu": "1"}}]})


def test_a_limit_behind_the_workload_may_come_too_late(command: Gpuflow, folder: Path) -> None:
    big = job(containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}])
    write(folder / "behind.yaml", big, LIMIT)
    behind = command("check", "behind.yaml", *CHECK, "--format", "json").data
    assert behind["verdict"] == "unknown" and "GF802" in {each["code"] for each in behind["findings"]}
    write(folder / "before.yaml", LIMIT, big)
    before = command("check", "before.yaml", *CHECK, "--format", "json").data
    assert before["verdict"] == "never" and "GF802" not in {each["code"] for each in before["findings"]}


def test_a_claim_of_the_files_gets_the_default_storage_class(command: Gpuflow, folder: Path) -> None:
    marks = {"storageclass.kubernetes.io/is-default-class": "true"}
    fast = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "x.example.com"}
    fast["metadata"] = {"name": "fast", "annotations": marks}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster = lay_over(cluster_of([fast]), objects_of([(item("PersistentVolumeClaim", "data", spec=spec), "f")]), "ns")
    (claim,) = cluster.of("PersistentVolumeClaim")
    assert claim.body["spec"]["storageClassName"] == "fast"
