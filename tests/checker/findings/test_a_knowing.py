"""Findings A1, A2, A6, A8 and A9: *always* that said more than the snapshot shows."""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.checker.run import check
from gpuflow.cluster import cluster_of
from gpuflow.core.errors import GpuflowError
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.checker.findings.snapshots import A100, LIMIT, NODE, ONE, QUEUED, home, record, shown
from tests.checker.kueue.scenes import holder
from tests.checker.whole_scenes import HEAD, HOME, NAMESPACE, checked, codes, line, node, queues, quota, text_of

# A1: a snapshot that shows nothing.


def test_d9_a_namespace_alone_says_nothing_about_a_gpu() -> None:
    report = shown(A100, HOME)
    assert (report.verdict, codes(report)) == ("unknown", ["GF536"])
    assert "does not show what decides: Node (where the pods can run)" in text_of(report, "GF536")
    assert "kubectl get nodes -A -o yaml" in text_of(report, "GF536")


def test_d8_quota_without_nodes_is_not_always() -> None:
    assert shown(A100, HOME, LIMIT).verdict == "unknown"
    assert shown(A100, HOME, LIMIT, NODE).verdict == "always"


def test_d8_a_folder_can_say_that_nodes_are_not_to_be_checked() -> None:
    report = shown(A100, HOME, LIMIT, record(assumed=["Node"]))
    assert (report.verdict, report.assumed) == ("always", ("Node",))
    assert "Not checked, because the snapshot says so: Node." in report.assumes
    assert report.document()["assumed"] == ["Node"]


def test_d8_nodes_that_were_listed_and_are_not_there_do_not_exist() -> None:
    report = shown(A100, HOME, LIMIT, record("Node"))
    assert (report.verdict, codes(report)) == ("never", ["GF506"])
    assert "no nodes available to schedule pods" in text_of(report, "GF506")


def test_d11_a_queue_without_any_object_of_kueue_is_unknown() -> None:
    report = shown(QUEUED, HOME, NODE)
    assert (report.verdict, codes(report)) == ("unknown", ["GF536"])
    assert "LocalQueue, ClusterQueue, ResourceFlavor (queue lq)" in text_of(report, "GF536")


KUEUE = ("LocalQueue", "ClusterQueue", "ResourceFlavor")


def test_d11_where_kueue_was_looked_for_and_is_not_there_the_queue_is_a_label_like_any_other() -> None:
    report = shown(QUEUED, HOME, NODE, record(*KUEUE))
    assert (report.verdict, codes(report)) == ("always", ["GF537"])


def test_d11_a_kueue_without_queues_never_lets_a_pod_go() -> None:
    hook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "kueue-mutating-webhook-configuration"},
    }
    report = shown(QUEUED, HOME, NODE, hook, record(*KUEUE))
    assert (report.verdict, codes(report)) == ("never", ["GF507"])


def test_a1_nodes_alone_do_not_say_what_limits_the_namespace() -> None:
    report = shown(ONE, NODE)
    assert report.verdict == "unknown"
    assert f"ResourceQuota, LimitRange (what limits {NAMESPACE})" in text_of(report, "GF536")
    assert shown(ONE, NODE, record("ResourceQuota", "LimitRange")).verdict == "always"


def test_a1_all_that_is_missing_is_one_finding() -> None:
    text = "steps: {a: {command: [x], queue: lq, service_account: bot, priority: {pod: high, queue: vip}}}"
    report = shown(text, HOME)
    (finding,) = [each for each in report.findings if each.code == "GF536"]
    for kind in ("Node", "ServiceAccount", "PriorityClass", "WorkloadPriorityClass", *KUEUE):
        assert kind in finding.message


def test_a1_a_record_with_a_kind_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(GpuflowError) as refused:
        cluster_of([HOME, record("Nodes")])
    (finding,) = refused.value.findings
    assert (finding.code, finding.hint) == ("GF405", 'did you mean "Node" or "CSINode" or "NodePool"?')


# A2


@pytest.mark.parametrize(
    "ending", [{"status": {"phase": "Terminating"}}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}]
)
def test_n50_a_namespace_that_is_being_deleted_takes_no_pod(ending: dict[str, Any]) -> None:
    report = shown(ONE, home(**ending), NODE)
    assert (report.verdict, codes(report)) == ("never", ["GF538"])
    words = f"unable to create new content in namespace {NAMESPACE} because it is being terminated"
    assert f'pods "a" is forbidden: {words}' in text_of(report, "GF538")
    assert shown(ONE, home(status={"phase": "Active"}), NODE).verdict == "always"


def test_n50_a_namespace_that_was_looked_for_and_is_not_there_takes_no_pod() -> None:
    other = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}}
    report = shown(ONE, other, NODE, record("Namespace", "ResourceQuota"))
    assert report.verdict == "never"
    assert f'namespaces "{NAMESPACE}" not found' in text_of(report, "GF538")


# A6

PLUGIN = "scheduler.alpha.kubernetes.io/node-selector"
OPENSHIFT = "openshift.io/node-selector"


def test_n52_a_selector_of_the_namespace_that_no_node_satisfies() -> None:
    report = shown(ONE, home(annotations={PLUGIN: "pool=gpu"}), NODE)
    assert (report.verdict, codes(report)) == ("unknown", ["GF539"])
    assert "with the plug-in PodNodeSelector the verdict is never" in text_of(report, "GF539")
    report = shown(ONE, home(annotations={OPENSHIFT: "pool=gpu"}), NODE)
    assert (report.verdict, codes(report)) == ("never", ["GF506"])


def test_n52_a_selector_that_changes_nothing_is_not_spoken_of() -> None:
    pool = node("n", 8, labels={"pool": "gpu"})
    for annotation in (PLUGIN, OPENSHIFT):
        assert shown(ONE, home(annotations={annotation: "pool=gpu"}), pool).verdict == "always"
    assert shown(ONE, home(annotations={OPENSHIFT: ""}), NODE).verdict == "always"


def test_n52_a_step_that_contradicts_its_namespace_is_refused() -> None:
    step = "steps: {a: {command: [x], kubernetes: {node_selector: {pool: cpu}}}}"
    nodes = node("n", labels={"pool": "cpu"}), node("m", labels={"pool": "gpu"})
    report = shown(step, home(annotations={OPENSHIFT: "pool=gpu"}), *nodes)
    assert report.verdict == "never"
    assert "conflicts with its project node label selector" in text_of(report, "GF506")
    report = shown(step, home(annotations={PLUGIN: "pool=gpu"}), *nodes)
    assert (report.verdict, codes(report)) == ("unknown", ["GF539"])


def test_n52_a_list_of_allowed_tolerations_matters_to_steps_that_tolerate() -> None:
    listed = home(annotations={"scheduler.alpha.kubernetes.io/tolerationsWhitelist": '[{"key": "x"}]'})
    assert (shown(A100, listed, NODE).verdict, shown(ONE, listed, NODE).verdict) == ("unknown", "always")
    empty = home(annotations={"scheduler.alpha.kubernetes.io/tolerationsWhitelist": "[]"})
    assert shown(A100, empty, NODE).verdict == "always"


def account(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}


BOT = "steps: {a: {command: [x], service_account: bot}}"


def test_d12_a_service_account_that_is_not_among_those_shown() -> None:
    report = shown(BOT, HOME, NODE, account("robot"))
    assert (report.verdict, codes(report)) == ("never", ["GF540"])
    words = f'error looking up service account {NAMESPACE}/bot: serviceaccount "bot" not found'
    assert f'pods "a" is forbidden: {words}' in text_of(report, "GF540")
    assert shown(BOT, HOME, NODE, account("bot")).verdict == "always"
    assert shown(ONE, HOME, NODE, account("robot")).verdict == "always"  # every namespace has `default`


def test_d12_service_accounts_that_nobody_looked_for_are_not_known() -> None:
    report = shown(BOT, HOME, NODE)
    assert (report.verdict, codes(report)) == ("unknown", ["GF536"])
    assert shown(BOT, HOME, NODE, record("ServiceAccount")).verdict == "never"


def test_d12_the_account_of_the_engine_is_looked_for_too() -> None:
    site = Site.model_validate(
        {"apiVersion": "gpuflow/v1", "kind": "Site", "name": "s", "engines": {"argo": {"service_account": "runner"}}}
    )
    steps = "steps: {a: {command: [x]}, b: {command: [x], service_account: bot}}"
    demand = demand_of(loads(HEAD + steps, "p"), site, "argo")
    cluster = cluster_of([HOME, NODE, account("bot")])
    report = check(demand, cluster, NAMESPACE)
    assert (report.verdict, codes(report)) == ("never", ["GF540"])
    assert 'step "a": the service account runner does not exist' in text_of(report, "GF540")
    assert check(demand, cluster_of([HOME, NODE, account("bot"), account("runner")]), NAMESPACE).verdict == "always"


# A8


def reserving(gpus: int) -> list[Any]:
    flavor, queue, local = queues({"f": quota(8)})
    amounts = [{"name": "f", "resources": [{"name": "nvidia.com/gpu", "total": str(gpus)}]}]
    return [flavor, {**queue, "status": {"flavorsReservation": amounts}}, local]


def test_c4_quota_that_a_queue_has_reserved_counts_though_no_workload_is_shown() -> None:
    wide = QUEUED.replace("a100-80gb", "a100-80gb x 4")
    report = checked(wide, *reserving(6))
    assert (report.verdict, codes(report)) == ("may-queue", ["GF517"])
    assert str(line(report, "ClusterQueue", "nvidia.com/gpu").used) == "6"
    assert "has reserved 6 nvidia.com/gpu of flavor f" in text_of(report, "GF574")
    assert checked(wide, *reserving(4)).verdict == "always"


def test_c4_the_larger_of_both_numbers_counts_and_not_their_sum() -> None:
    held = holder("h", {"f": {"nvidia.com/gpu": "4"}})
    report = checked(QUEUED.replace("a100-80gb", "a100-80gb x 4"), *reserving(4), held)
    assert (report.verdict, text_of(report, "GF574")) == ("always", "")


# A9


@pytest.mark.parametrize(
    ("kind", "status"), [("Ready", "False"), ("Ready", "Unknown"), ("DiskPressure", "True"), ("MemoryPressure", "True")]
)
def test_n6_a_node_that_says_that_it_is_unwell_holds_nothing_today(kind: str, status: str) -> None:
    sick = {**NODE, "status": {**NODE["status"], "conditions": [{"type": kind, "status": status}]}}
    report = checked(ONE, sick)
    assert report.verdict == "may-queue"
    assert checked(ONE, sick, node("m", 8)).verdict == "always"
    well = {**NODE, "status": {**NODE["status"], "conditions": [{"type": "Ready", "status": "True"}]}}
    assert checked(ONE, well).verdict == "always"
