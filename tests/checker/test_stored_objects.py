"""The objects that a document and its controllers store: object quotas, kept history, webhooks and policies.

Tests gpuflow/demands/stored.py, gpuflow/readers/kubernetes/kinds.py, gpuflow/checker/quota/peak.py and what
gpuflow/checker/snapshot/missing_kinds.py says of rules.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.checker.several_pipelines import check_together
from gpuflow.cluster import Cluster
from gpuflow.core import yaml_tree
from gpuflow.demands import Demand, demand_of
from gpuflow.demands.stored import resource_of
from gpuflow.engines import ARGO, NO_ENGINE
from gpuflow.formats.documents import documents_of
from gpuflow.readers.interface import foreign_in
from gpuflow.readers.kubernetes.kinds import KINDS
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.assumed import ASSUMED
from tests.checker.test_verdict import HEAD, quota
from tests.checker.whole_scenes import manifest
from tests.conftest import ROOT

POD = "{metadata: {labels: {a: b}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}"
SERVER = POD.replace("Never", "Always")
JOB = f"{{parallelism: 2, completions: 8, template: {POD}}}"
DOCUMENTS = {
    "Job": f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j, labels: {{team: nlp}}}}\nspec: {JOB}\n",
    "CronJob": "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c}\nspec: {schedule: '0 3 * * *', "
    f"concurrencyPolicy: Forbid, jobTemplate: {{spec: {{template: {POD}}}}}}}\n",
    "Deployment": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 2, "
    f"selector: {{matchLabels: {{a: b}}}}, template: {SERVER}}}\n",
    "StatefulSet": "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: s}\nspec: {serviceName: s, "
    f"selector: {{matchLabels: {{a: b}}}}, template: {SERVER}}}\n",
    "DaemonSet": "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: s}\nspec: {"
    f"selector: {{matchLabels: {{a: b}}}}, template: {SERVER}}}\n",
    "ReplicaSet": "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: s}\nspec: {"
    f"selector: {{matchLabels: {{a: b}}}}, template: {SERVER}}}\n",
    "JobSet": "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: js}\nspec: {replicatedJobs: ["
    f"{{name: a, replicas: 3, template: {{spec: {JOB}}}}}, {{name: b, template: {{spec: {JOB}}}}}]}}\n",
    "PyTorchJob": "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: p}\nspec: {pytorchReplicaSpecs: {"
    f"Master: {{template: {POD}}}, Worker: {{replicas: 3, template: {POD}}}}}}}\n",
    "MPIJob": "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: m}\nspec: {mpiReplicaSpecs: {"
    f"Launcher: {{template: {POD}}}, Worker: {{replicas: 2, template: {POD}}}}}}}\n",
    "TrainJob": "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\n"
    "spec: {runtimeRef: {name: r}, trainer: {numNodes: 2}}\n---\n"
    "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {name: r}\n"
    "spec: {mlPolicy: {mpi: {}}, template: {spec: {replicatedJobs: ["
    f"{{name: node, template: {{spec: {JOB}}}}}, {{name: launcher, template: {{spec: {JOB}}}}}]}}}}}}\n",
    "RayCluster": "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: r}\nspec: {headGroupSpec: "
    f"{{template: {SERVER}}}, workerGroupSpecs: [{{groupName: w, replicas: 1, numOfHosts: 2, template: {SERVER}}}]}}\n",
    "RayJob": "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: r}\nspec: {rayClusterSpec: {headGroupSpec: "
    f"{{serviceType: LoadBalancer, template: {SERVER}}}}}}}\n",
    "RayService": "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {name: r}\nspec: {rayClusterConfig: "
    f"{{headGroupSpec: {{template: {SERVER}}}}}}}\n",
    "LeaderWorkerSet": "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: l}\nspec: "
    f"{{replicas: 2, leaderWorkerTemplate: {{size: 3, workerTemplate: {SERVER}}}}}\n",
    "Volcano Job": "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: v}\nspec: {plugins: {svc: [], "
    f"ssh: []}}, tasks: [{{name: t, replicas: 2, template: {POD}}}]}}\n",
    "Experiment": "apiVersion: kubeflow.org/v1beta1\nkind: Experiment\nmetadata: {name: e}\nspec: {maxTrialCount: 4, "
    f"trialTemplate: {{trialSpec: {{apiVersion: batch/v1, kind: Job, spec: {JOB}}}}}}}\n",
    "Workflow": "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec: {entrypoint: a, "
    "podDisruptionBudget: {minAvailable: 1}, templates: [{name: a, container: {image: i}}]}\n",
    "CronWorkflow": "apiVersion: argoproj.io/v1alpha1\nkind: CronWorkflow\nmetadata: {name: w}\nspec: {schedules: "
    "['0 3 * * *'], concurrencyPolicy: Forbid, workflowSpec: {entrypoint: a, templates: [{name: a, "
    "container: {image: i}}]}}\n",
    "resource": "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec: {entrypoint: a, "
    "templates: [{name: a, resource: {action: create, successCondition: status.succeeded > 0, manifest: '"
    + f"{{apiVersion: batch/v1, kind: Job, metadata: {{generateName: x-}}, spec: {JOB}}}"
    + "'}}]}\n",
    "memoize": "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec: {entrypoint: a, "
    "templates: [{name: a, memoize: {key: k, cache: {configMap: {name: c}}}, container: {image: i}}]}\n",
}


def demand(kind: str, text: str | None = None) -> Demand:
    given = documents_of(yaml_tree.parse_all(text or DOCUMENTS[kind], "d.yaml"), "d.yaml")
    found = foreign_in(given)[0][0].demand_on_site(Site.load("nvidia"), None, {})
    assert isinstance(found, Demand)
    return found


def report(of: str | Demand, *objects: dict[str, Any], runs: int | None = None) -> Report:
    cluster = Cluster("cluster.yaml", tuple(map(manifest, objects)), assumed=ASSUMED)
    return check(demand(of) if isinstance(of, str) else of, cluster, "ns", runs=runs)


def line(of: str | Demand, key: str, hard: int, used: int = 0, runs: int | None = None) -> str:
    """The verdict of one key of a quota; `-` where it is not about the document."""
    found = report(of, quota({key: str(hard)}, {key: str(used)}), runs=runs)
    return next((each.verdict for each in found.scopes if each.resource == key), "-")


A, M, N, U = "always", "may-queue", "never", "unknown"
TABLE = [
    ("Job", "count/jobs.batch", 0, N), ("Job", "count/jobs.batch", 1, A), ("Job", "count/services", 0, "-"),
    ("CronJob", "count/cronjobs.batch", 0, N), ("CronJob", "count/cronjobs.batch", 1, A),
    ("CronJob", "count/jobs.batch", 0, N), ("CronJob", "count/jobs.batch", 2, M), ("CronJob", "count/jobs.batch", 3, M),
    ("CronJob", "count/jobs.batch", 4, U), ("CronJob", "count/jobs.batch", 5, A),
    ("Deployment", "count/deployments.apps", 0, N), ("Deployment", "count/deployments.apps", 1, A),
    ("Deployment", "count/replicasets.apps", 0, N), ("Deployment", "count/replicasets.apps", 1, A),
    ("StatefulSet", "count/statefulsets.apps", 0, N), ("StatefulSet", "count/controllerrevisions.apps", 0, N),
    ("StatefulSet", "count/controllerrevisions.apps", 1, A), ("DaemonSet", "count/controllerrevisions.apps", 0, N),
    ("DaemonSet", "count/daemonsets.apps", 0, N), ("ReplicaSet", "count/replicasets.apps", 0, N),
    ("JobSet", "count/jobsets.jobset.x-k8s.io", 0, N), ("JobSet", "count/jobs.batch", 3, N),
    ("JobSet", "count/jobs.batch", 4, A), ("JobSet", "services", 0, N), ("JobSet", "count/services", 1, A),
    ("PyTorchJob", "count/pytorchjobs.kubeflow.org", 0, N), ("PyTorchJob", "services", 3, N),
    ("PyTorchJob", "services", 4, A), ("PyTorchJob", "count/podgroups.scheduling.volcano.sh", 0, U),
    ("PyTorchJob", "count/podgroups.scheduling.volcano.sh", 1, A),
    ("MPIJob", "count/jobs.batch", 0, N), ("MPIJob", "secrets", 0, N), ("MPIJob", "configmaps", 1, A),
    ("MPIJob", "count/services", 0, N),
    ("TrainJob", "count/jobsets.jobset.x-k8s.io", 0, N), ("TrainJob", "count/jobs.batch", 1, N),
    ("TrainJob", "count/jobs.batch", 2, A), ("TrainJob", "count/secrets", 0, N), ("TrainJob", "services", 0, N),
    ("TrainJob", "configmaps", 0, N), ("TrainJob", "configmaps", 1, U), ("TrainJob", "configmaps", 2, A),
    ("RayCluster", "services", 1, N), ("RayCluster", "services", 2, A), ("RayCluster", "services.nodeports", 0, "-"),
    ("RayJob", "count/rayclusters.ray.io", 0, N), ("RayJob", "count/jobs.batch", 0, N),
    ("RayJob", "services", 1, N), ("RayJob", "services", 2, A), ("RayJob", "services.loadbalancers", 0, N),
    ("RayJob", "services.loadbalancers", 1, A), ("RayJob", "services.nodeports", 9, U),
    ("RayService", "count/rayclusters.ray.io", 1, U), ("RayService", "services", 2, N),
    ("RayService", "services", 4, A),
    ("LeaderWorkerSet", "count/statefulsets.apps", 2, N), ("LeaderWorkerSet", "count/statefulsets.apps", 3, A),
    ("LeaderWorkerSet", "count/controllerrevisions.apps", 3, N), ("LeaderWorkerSet", "services", 1, A),
    ("Volcano Job", "count/jobs.batch.volcano.sh", 0, N), ("Volcano Job", "count/jobs.batch", 0, "-"),
    ("Volcano Job", "secrets", 0, N), ("Volcano Job", "services", 0, N),
    ("Experiment", "count/experiments.kubeflow.org", 0, N), ("Experiment", "count/suggestions.kubeflow.org", 0, N),
    ("Experiment", "count/trials.kubeflow.org", 3, U), ("Experiment", "count/jobs.batch", 3, U),
    ("Experiment", "count/jobs.batch", 4, A),
    ("Workflow", "count/workflows.argoproj.io", 0, N), ("Workflow", "count/poddisruptionbudgets.policy", 0, N),
    ("CronWorkflow", "count/cronworkflows.argoproj.io", 0, N),
    ("CronWorkflow", "count/cronworkflows.argoproj.io", 1, A),
    ("CronWorkflow", "count/workflows.argoproj.io", 2, M), ("CronWorkflow", "count/workflows.argoproj.io", 4, U),
    ("CronWorkflow", "count/workflows.argoproj.io", 5, A),
    ("resource", "count/jobs.batch", 0, N), ("resource", "count/jobs.batch", 1, A),
    ("memoize", "count/configmaps", 0, U), ("memoize", "count/configmaps", 1, A),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "key", "hard", "verdict"), TABLE, ids=[f"{k} {q} {h}" for k, q, h, _ in TABLE])
def test_a_quota_of_objects(kind: str, key: str, hard: int, verdict: str) -> None:
    assert line(kind, key, hard) == verdict


MADE = [key for key, each in KINDS.items() if each.stores is not None]


def test_every_kind_that_makes_more_than_pods_is_in_the_table() -> None:
    kinds = {demand(kind).kind for kind in DOCUMENTS}
    assert {kind for kind, _ in MADE} - kinds == {"TFJob", "XGBoostJob", "PaddleJob", "JAXJob"}  # as PyTorchJob


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_room_for_everything_refuses_nothing_and_no_room_is_never(kind: str) -> None:
    one = demand(kind)
    for each in one.stored:
        for key in each.keys:
            rows = [row for row in one.stored if key in row.keys]
            if all(row.at_most is not None for row in rows):
                most = sum((row.at_most or 0) + row.kept[1] for row in rows)
                assert line(one, key, most + 9, used=9 - 1) == A
            if any(row.at_least for row in rows):
                assert line(one, key, 0) == N
            verdicts = [line(one, key, hard) for hard in range(12)]
            order = [N, M, U, A] if U in verdicts and M in verdicts else [N, U, M, A]
            assert verdicts == sorted(verdicts, key=order.index)  # more room is never worse


def test_the_page_names_every_kind() -> None:
    page = (ROOT / "docs" / "reference" / "admission-model.md").read_text()
    table = page.partition("### Objects before their pods")[2].partition("\n- ")[0]
    assert {kind for kind, _ in MADE} <= set(re.findall(r"[A-Z][A-Za-z]+", table))


def codes(found: Report) -> set[str]:
    return {each.code for each in found.findings}


def said(found: Report, code: str) -> str:
    return next(f"{each.message} | {each.hint}" for each in found.findings if each.code == code)


def test_what_is_refused_for_ever_names_the_object_and_who_makes_it() -> None:
    found = report("Job", quota({"count/jobs.batch": "0"}))
    assert found.verdict == N
    assert said(found, "GF805").startswith("Job j can never be created: quota q allows 0 of count/jobs.batch")
    text = said(report("JobSet", quota({"count/jobs.batch": "3"})), "GF805")
    assert "JobSet js never gets all that it needs: its controller makes 4 of count/jobs.batch" in text


def test_a_full_quota_says_who_asks_again() -> None:
    found = report("Job", quota({"count/jobs.batch": "5"}, {"count/jobs.batch": "5"}))
    assert found.verdict == M and "kubectl apply does not ask again" in said(found, "GF512")
    found = report("Deployment", quota({"count/replicasets.apps": "5"}, {"count/replicasets.apps": "5"}))
    assert found.verdict == M and "its controller asks again" in said(found, "GF512")


def test_kept_history_that_fills_a_quota_fails_the_check() -> None:
    found = report("CronJob", quota({"count/jobs.batch": "2"}))
    assert found.verdict == M and found.fails([N])
    assert "CronJob c keeps 3 of count/jobs.batch" in said(found, "GF806")
    few = DOCUMENTS["CronJob"].replace("Forbid,", "Forbid, successfulJobsHistoryLimit: 1, failedJobsHistoryLimit: 0,")
    assert line(demand("CronJob", few), "count/jobs.batch", 2) == A
    assert line(demand("CronJob", few), "count/jobs.batch", 1) == M


def test_pods_of_kept_jobs_fill_a_quota_too() -> None:
    assert "GF806" in codes(report("CronJob", quota({"count/pods": "3"})))
    assert line("CronJob", "count/pods", 34) == U and line("CronJob", "count/pods", 35) == A


def test_runs_that_overlap_may_need_more_jobs() -> None:
    one = demand("CronJob", DOCUMENTS["CronJob"].replace("Forbid", "Allow"))
    found = report(one, quota({"count/jobs.batch": "8"}))
    assert (found.verdict, found.scopes[0].verdict) == (M, A) and "GF553" in codes(found)
    assert line(one, "count/jobs.batch", 7, runs=4) == U and line(one, "count/jobs.batch", 8, runs=4) == A
    assert line(one, "count/cronjobs.batch", 1, runs=4) == A  # one CronJob starts them all


def test_a_suspended_schedule_starts_nothing() -> None:
    one = demand("CronJob", DOCUMENTS["CronJob"].replace("Forbid,", "Forbid, suspend: true,"))
    assert line(one, "count/jobs.batch", 0) != A and line(one, "count/cronjobs.batch", 0) == N


def test_an_update_needs_more_than_the_first_start() -> None:
    found = report("Deployment", quota({"count/replicasets.apps": "5"}))
    assert found.verdict == A and "after updates" in said(found, "GF807")
    assert "GF807" not in codes(report("Deployment", quota({"count/replicasets.apps": "12"})))


def job(**spec: Any) -> Demand:
    fields = "".join(f", {key}: {value}" for key, value in spec.items())
    return demand("Job", DOCUMENTS["Job"].replace("completions: 8", f"completions: 8{fields}"))


@pytest.mark.parametrize(
    ("one", "hard", "verdict"),
    [
        (job(), 14, A),  # backoffLimit 6 is the whole Job's
        (job(), 13, M),
        (job(), 8, M),
        (job(), 7, N),  # finished pods stay until the Job is deleted
        (job(backoffLimit=0), 8, A),
        (job(completionMode="Indexed", backoffLimitPerIndex=2), 24, A),
        (job(completionMode="Indexed", backoffLimitPerIndex=2), 23, M),
        (job(completionMode="Indexed", backoffLimitPerIndex=2, backoffLimit=3), 11, A),
        (job(podFailurePolicy="{rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}"), 99, U),
    ],
)
def test_pods_of_a_job_are_counted_as_its_controller_makes_them(one: Demand, hard: int, verdict: str) -> None:
    assert line(one, "count/pods", hard) == verdict


def own(text: str = "", engine: str = ARGO) -> Demand:
    return demand_of(loads(f"{HEAD}{text}\nsteps: {{a: {{command: [x]}}}}", "p.yaml"), Site.load("nvidia"), engine)


def test_an_own_schedule_on_argo_is_a_cronworkflow_that_keeps_its_runs() -> None:
    one = own('schedule: {cron: "0 3 * * *", concurrency: forbid}')
    assert line(one, "count/cronworkflows.argoproj.io", 0) == N
    assert line(one, "count/cronworkflows.argoproj.io", 1) == A
    assert [line(one, "count/workflows.argoproj.io", hard) for hard in (0, 2, 4, 5)] == [N, M, U, A]
    few = own(
        'schedule: {cron: "0 3 * * *", concurrency: forbid}\nengines: {argo: {history: {successful: 0, failed: 0}}}'
    )
    assert line(few, "count/workflows.argoproj.io", 1) == A
    assert line(own(), "count/cronworkflows.argoproj.io", 0) == "-"
    assert line(own(engine=NO_ENGINE), "count/workflowtemplates.argoproj.io", 0) == "-"


def test_side_by_side_the_objects_are_added_up() -> None:
    cluster = Cluster("cluster.yaml", (manifest(quota({"count/jobs.batch": "5"})),), assumed=ASSUMED)
    both = [demand("Job"), demand("JobSet")]
    alone = [check(each, cluster, "ns") for each in both]
    assert [each.verdict for each in alone] == [A, A]
    assert check_together(both, alone, cluster, None).verdict == A
    cluster = Cluster("cluster.yaml", (manifest(quota({"count/jobs.batch": "4"})),), assumed=ASSUMED)
    assert check_together(both, alone, cluster, None).verdict != A


def test_a_quota_with_scopes_counts_no_objects() -> None:
    assert report("Job", quota({"count/jobs.batch": "0", "pods": "9"}, scopes=["NotTerminating"])).verdict == A


def webhook(groups: list[str], resources: list[str], name: str = "hook", **more: Any) -> dict[str, Any]:
    rule = {"operations": ["CREATE"], "apiGroups": groups, "apiVersions": ["v1"], "resources": resources}
    rule |= more.pop("rule", {})
    hook = {"name": "h.example.com", "rules": [rule], **more}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [hook],
    }


JOBS = (["batch"], ["jobs"])
NLP, CV = ({"matchLabels": {"team": team}} for team in ("nlp", "cv"))
SEEN = [
    ("Job", webhook(*JOBS)),
    ("Job", webhook(*JOBS, failurePolicy="Ignore")),
    ("Job", webhook(["*"], ["*/*"])),
    ("Job", webhook([""], ["pods/*"])),
    ("Job", webhook(["batch"], ["jobs/*"], objectSelector=NLP)),
    ("Job", webhook(*JOBS, matchConditions=[{"name": "m", "expression": "false"}])),
    ("Job", webhook(*JOBS, name="jobset-validating-webhook-configuration")),
    ("CronJob", webhook(*JOBS, objectSelector=CV)),  # the labels of what a controller makes are not known
    ("Deployment", webhook(["apps"], ["replicasets"])),
    ("JobSet", webhook([""], ["services"])),
    ("CronWorkflow", webhook(["argoproj.io"], ["workflows"])),
    ("Workflow", webhook(["argoproj.io"], ["workflowtaskresults"])),
    ("resource", webhook(*JOBS)),
    ("PyTorchJob", webhook(["kubeflow.org"], ["pytorchjobs"])),
]
PASSED = [
    ("Job", webhook(["apps"], ["deployments"])),
    ("Job", webhook(["batch"], ["jobs/status"])),
    ("Job", webhook(["batch"], ["cronjobs"])),
    ("Job", webhook(*JOBS, rule={"operations": ["DELETE", "CONNECT"]})),
    ("Job", webhook(*JOBS, rule={"scope": "Cluster"})),
    ("Job", webhook(*JOBS, objectSelector=CV)),
    ("Job", webhook(*JOBS, namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "other"}})),
    ("Job", webhook(["batch.volcano.sh"], ["jobs"])),
    ("Job", webhook(*JOBS, name="kueue-validating-webhook-configuration")),
    ("JobSet", webhook(["jobset.x-k8s.io"], ["jobsets"], name="jobset-validating-webhook-configuration")),
    ("Pod", webhook(*JOBS)),
]
DOCUMENTS["Pod"] = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"
HOME = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}


@pytest.mark.parametrize(("kind", "hook"), SEEN)
def test_a_webhook_on_one_of_the_objects_leaves_the_verdict_unknown(kind: str, hook: dict[str, Any]) -> None:
    found = report(kind, HOME, hook)
    assert found.verdict == U and hook["metadata"]["name"] in said(found, "GF531")


@pytest.mark.parametrize(("kind", "hook"), PASSED)
def test_a_webhook_on_something_else_does_not_matter(kind: str, hook: dict[str, Any]) -> None:
    assert report(kind, HOME, hook).verdict == A


@pytest.mark.parametrize("engine", [ARGO, NO_ENGINE])
def test_objects_of_an_engine_are_asked_about_where_it_runs(engine: str) -> None:
    found = report(own(engine=engine), HOME, webhook(["argoproj.io"], ["workflows"]))
    assert found.verdict == (U if engine == ARGO else A)


@pytest.mark.parametrize(("resource", "verdict"), [("jobs", U), ("cronjobs", A)])
@pytest.mark.parametrize("kind", ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"])
def test_a_bound_policy_on_the_object(kind: str, resource: str, verdict: str) -> None:
    rule = {"operations": ["CREATE"], "apiGroups": ["batch"], "apiVersions": ["v1"], "resources": [resource]}
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "p"}}
    policy = {**head, "kind": kind, "spec": {"matchConstraints": {"resourceRules": [rule]}}}
    actions = {"validationActions": ["Deny"]} if kind.startswith("Validating") else {}
    binding = {**head, "kind": f"{kind}Binding", "spec": {"policyName": "p", **actions}}
    assert report("Job", HOME, policy, binding).verdict == verdict
    assert report("Job", HOME, policy).verdict == A  # nothing binds it


@pytest.mark.parametrize(
    ("kind", "resource"), [("Job", "jobs"), ("NetworkPolicy", "networkpolicies"), ("Ingress", "ingresses")]
)
def test_the_resource_of_a_kind(kind: str, resource: str) -> None:
    assert resource_of(kind) == resource
