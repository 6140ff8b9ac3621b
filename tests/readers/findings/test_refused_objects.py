"""Whole documents that the API server or Kueue's webhooks refuse, though their pods are right: never, with the server's
own clause at the place of the field.

Tests gpuflow/readers/findings/strictness.py, gpuflow/readers/kubernetes/queue_webhooks.py and
gpuflow/kubernetes/admission/objects.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuflow.cli.main import main
from tests.readers.findings.test_checked import QUOTA, WHOLE

POD = "containers: [{name: main, image: i}]"
NAMED = "metadata: {labels: {app: web}}"
SELECTOR = "selector: {matchLabels: {app: web}}"
INDEXED = "completionMode: Indexed, completions: 3"


def job(spec: str, pod: str = f"restartPolicy: Never, {POD}", metadata: str = "name: fit") -> str:
    return f"apiVersion: batch/v1\nkind: Job\nmetadata: {{{metadata}}}\nspec: {{{spec}template: {{spec: {{{pod}}}}}}}\n"


def cron(spec: str, name: str = "nightly") -> str:
    inner = f"jobTemplate: {{spec: {{template: {{spec: {{restartPolicy: Never, {POD}}}}}}}}}"
    return f"apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: {name}}}\nspec: {{{spec}, {inner}}}\n"


def server(kind: str, spec: str = SELECTOR, pod: str = POD) -> str:
    template = f"template: {{{NAMED}, spec: {{{pod}}}}}"
    return f"apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: web}}\nspec: {{{spec}, {template}}}\n"


NO_MATCH = 'Invalid value: {"app":"web"}: `selector` does not match template `labels`'
ROLLING = "rollingUpdate: {maxSurge: 0, maxUnavailable: 0}"
REFUSED = {
    "no restart policy": (job("", POD), 'restartPolicy: Required value: valid values: "OnFailure", "Never"'),
    "always": (job("", f"restartPolicy: Always, {POD}"), 'Required value: valid values: "OnFailure", "Never"'),
    "failure policy that restarts": (
        job(
            "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [3]}}]}, ",
            f"restartPolicy: OnFailure, {POD}",
        ),
        'Invalid value: "OnFailure": only "Never" is supported when podFailurePolicy is specified',
    ),
    "rule of nothing": (
        job("podFailurePolicy: {rules: [{action: Ignore}]}, "),
        "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
    ),
    "success policy of a plain job": (
        job("successPolicy: {rules: [{succeededCount: 1}]}, completions: 2, "),
        "spec.successPolicy: Invalid value: requires indexed completion mode",
    ),
    "success of more than there are": (
        job(f"successPolicy: {{rules: [{{succeededCount: 4}}]}}, {INDEXED}, "),
        "spec.successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 3",
    ),
    "limit per index of a plain job": (
        job("backoffLimitPerIndex: 2, "),
        "spec.backoffLimitPerIndex: Invalid value: 2: requires indexed completion mode",
    ),
    "own selector": (job("selector: {matchLabels: {a: b}}, "), "`selector` not auto-generated"),
    "long name with capitals": (job("", metadata=f"name: {'Fit' * 24}"), "must be no more than 63 bytes"),
    "no name": (job("", metadata="labels: {a: b}"), "metadata.name: Required value: name or generateName is required"),
    "label of two words": (job("", metadata="name: fit, labels: {team: a b}"), 'metadata.labels: Invalid value: "a b"'),
    "hostname that is too long": (
        job(f"{INDEXED}, ", metadata=f"name: {'f' * 62}"),
        "will not able to create pod with invalid DNS label",
    ),
    "manager": (job("managedBy: me, "), 'must be a domain-prefixed path (such as "acme.io/foo")'),
    "schedule in words": (
        cron("schedule: each morning"),
        'spec.schedule: Invalid value: "each morning": expected exactly 5 fields, found 2: [each morning]',
    ),
    "hour 24": (cron('schedule: "0 24 * * *"'), "end of range (24) above maximum (23): 24"),
    "zone in the schedule": (cron('schedule: "TZ=UTC 0 3 * * *"'), "cannot use TZ or CRON_TZ in schedule"),
    "time zone": (cron("schedule: '@daily', timeZone: Mars/Base"), "unknown time zone Mars/Base"),
    "local time": (cron("schedule: '@daily', timeZone: Local"), "timeZone must be an explicit time zone"),
    "name of 53 characters": (cron("schedule: '@daily'", "n" * 53), "must be no more than 52 characters"),
    "deployment that selects others": (server("Deployment", "selector: {matchLabels: {app: db}}"), NO_MATCH),
    "stateful set that selects others": (server("StatefulSet", "selector: {matchLabels: {app: db}}"), NO_MATCH),
    "empty selector": (server("Deployment", "selector: {}"), "empty selector is invalid for deployment"),
    "daemon set without selector": (server("DaemonSet", "minReadySeconds: 0"), NO_MATCH),
    "server that ends": (
        server("Deployment", pod=f"restartPolicy: OnFailure, {POD}"),
        'restartPolicy: Unsupported value: "OnFailure": supported values: "Always"',
    ),
    "update that cannot move": (
        server("Deployment", f"{SELECTOR}, strategy: {{{ROLLING}}}"),
        "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
    ),
    "daemon set that does both": (
        server("DaemonSet", f"{SELECTOR}, updateStrategy: {{rollingUpdate: {{maxSurge: 1}}}}"),
        "may not be set when maxUnavailable is non-zero",
    ),
    "jobs of a job set": (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: js}\n"
        "spec: {replicatedJobs: [{name: w, template: {spec: {template: {spec: "
        f"{{restartPolicy: Always, {POD}}}" + "}}}}]}\n",
        "spec.replicatedJobs[0].template.spec.template.spec.restartPolicy: Required value",
    ),
}
RIGHT = {
    "job": job("completions: 2, "),
    "indexed job without numbers": job("completionMode: Indexed, "),
    "generated name": job("", metadata="generateName: fit-"),
    "every hour": cron("schedule: '@every 1h30m', timeZone: Europe/Berlin"),
    "deployment": server("Deployment", f"{SELECTOR}, strategy: {{rollingUpdate: {{maxSurge: 0}}}}"),
    "update without surge": server(
        "Deployment", f"{SELECTOR}, strategy: {{rollingUpdate: {{maxSurge: 0, maxUnavailable: 1}}}}"
    ),
    "stateful set": server("StatefulSet", f"{SELECTOR}, serviceName: db"),
    "daemon set": server("DaemonSet"),
}


def report(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, cluster: str = QUOTA + WHOLE) -> Any:
    (tmp_path / "cluster.yaml").write_text(cluster)
    (tmp_path / "theirs.yaml").write_text(text)
    where = ["--cluster", str(tmp_path / "cluster.yaml"), "--namespace", "team", "--format", "json"]
    main(["check", str(tmp_path / "theirs.yaml"), *where])
    return json.loads(capsys.readouterr().out)


def refused(found: Any) -> list[tuple[str, str]]:
    return [(each["code"], each["kubernetes"]) for each in found["findings"] if each["code"].startswith("GF82")]


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_server_refuses_is_never_admitted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    text, clause = REFUSED[name]
    found = report(capsys, tmp_path, text)
    code = "GF821" if name == "jobs of a job set" else "GF820"
    assert found["verdict"] == "never"
    assert any(each == code and clause in said for each, said in refused(found)), refused(found)


@pytest.mark.parametrize("name", RIGHT)
def test_what_the_server_takes_is_not_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    found = report(capsys, tmp_path, RIGHT[name])
    assert refused(found) == [] and found["verdict"] != "never"


def test_a_refusal_stands_at_its_field_with_the_way_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: fit\nspec:\n  ttlSecondsAfterFinished: 5\n"
    text += "  template:\n    spec:\n      restartPolicy: Always\n      containers: [{name: a, image: b}]\n"
    (only,) = (each for each in report(capsys, tmp_path, text)["findings"] if each["code"] == "GF820")
    assert only["where"]["line"] == 9
    assert only["hint"] == "write restartPolicy: Never, or OnFailure, in the pod template"


def test_a_value_of_the_wrong_type_is_one_message(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = report(capsys, tmp_path, job("podReplacementPolicy: 5, "))
    said = [each["message"] for each in found["findings"] if each["code"] == "GF820"]
    assert said == ["the API server cannot read Job fit: spec.podReplacementPolicy: must be a string, not 5"]


KUEUE = """---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: f}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec: {namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu, memory], flavors: [{name: f, resources: [
  {name: cpu, nominalQuota: 99}, {name: memory, nominalQuota: 99Gi}]}]}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: team}
spec: {clusterQueue: cq}
"""
CONFIGURED = """---
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
metadata: {name: kueue}
integrations: {frameworks: [batch/job, pod, ray.io/rayjob, ray.io/raycluster]}
"""
QUEUE = "kueue.x-k8s.io/queue-name: lq"
RAY_POD = "{spec: {containers: [{name: r, image: ray, resources: {requests: {cpu: 1, memory: 1Gi}}}]}}"
CLUSTER = f"headGroupSpec: {{template: {RAY_POD}}}"


def ray(kind: str, spec: str, labels: str = QUEUE) -> str:
    return f"apiVersion: ray.io/v1\nkind: {kind}\nmetadata: {{name: r, labels: {{{labels}}}}}\nspec: {{{spec}}}\n"


def queued(annotations: str, labels: str = QUEUE, spec: str = "parallelism: 4, completions: 4, ") -> str:
    return job(spec, metadata=f"name: fit, labels: {{{labels}}}, annotations: {{{annotations}}}")


POD_IN_GROUP = (
    f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p, labels: {{{QUEUE}, kueue.x-k8s.io/pod-group-name: g}}}}\n"
)
TOPOLOGY = "kueue.x-k8s.io/podset-%s-topology: rack"
OF_KUEUE = {
    "ray job that stays": (
        ray("RayJob", f"rayClusterSpec: {{{CLUSTER}}}"),
        "a kueue managed job should delete the cluster after finishing",
    ),
    "ray cluster that grows": (
        ray("RayCluster", f"enableInTreeAutoscaling: true, {CLUSTER}"),
        "a kueue-managed RayCluster can use autoscaling only as an elastic job",
    ),
    "as few as all": (queued("kueue.x-k8s.io/job-min-parallelism: '4'"), "should be between 0 and 3"),
    "a few": (queued("kueue.x-k8s.io/job-min-parallelism: some"), 'strconv.Atoi: parsing "some": invalid syntax'),
    "time": (queued("a: b", f"{QUEUE}, kueue.x-k8s.io/max-exec-time-seconds: '0'"), "should be greater than 0"),
    "group without count": (
        f"{POD_IN_GROUP}spec: {{{POD}}}\n",
        "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: Required value: both the",
    ),
    "two topologies": (
        job("", f"restartPolicy: Never, {POD}", f"name: fit, labels: {{{QUEUE}}}").replace(
            "template: {",
            f"template: {{metadata: {{annotations: {{{TOPOLOGY % 'required'}, {TOPOLOGY % 'preferred'}}}}}, ",
        ),
        "must not contain more than one topology annotation",
    ),
}


@pytest.mark.parametrize("name", OF_KUEUE)
def test_what_kueue_refuses_is_never_admitted_where_it_is_configured_for_the_kind(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    text, clause = OF_KUEUE[name]
    found = report(capsys, tmp_path, text, WHOLE.removeprefix("---\n") + KUEUE + CONFIGURED)
    assert found["verdict"] == "never"
    assert any(code == "GF826" and clause in said for code, said in refused(found)), refused(found)
    unclear = report(capsys, tmp_path, text, WHOLE.removeprefix("---\n") + KUEUE)
    assert {code for code, _ in refused(unclear)} == {"GF827"} and unclear["verdict"] in ("unknown", "never")
    assert refused(report(capsys, tmp_path, text, QUOTA + WHOLE)) == []  # no Kueue, no webhook


@pytest.mark.parametrize(
    ("text", "configured"),
    [
        (ray("RayJob", f"shutdownAfterJobFinishes: true, rayClusterSpec: {{{CLUSTER}}}"), CONFIGURED),
        (ray("RayJob", f"rayClusterSpec: {{{CLUSTER}}}", "a: b"), CONFIGURED),
        (ray("RayJob", f"rayClusterSpec: {{{CLUSTER}}}"), CONFIGURED.replace("ray.io/rayjob, ", "")),
        (queued("kueue.x-k8s.io/job-min-parallelism: '3'"), CONFIGURED),
    ],
)
def test_what_kueue_takes_or_does_not_see(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, configured: str
) -> None:
    assert refused(report(capsys, tmp_path, text, WHOLE.removeprefix("---\n") + KUEUE + configured)) == []


def test_the_names_of_jobs_that_a_job_set_makes_are_judged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pods = "template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}"
    text = "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: %s}\nspec:\n  replicatedJobs:\n"
    text += f"  - {{name: workers, replicas: 2, template: {{spec: {{{pods}}}}}}}\n"
    assert report(capsys, tmp_path, text % ("b" * 40))["verdict"] != "never"
    found = report(capsys, tmp_path, text % ("b" * 53))
    assert found["verdict"] == "never"
    assert any(code == "GF821" and "will not able to create pod" in said for code, said in refused(found))


def test_a_job_set_whose_jobs_another_controller_manages_is_unknown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pods = "template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}"
    text = "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: a}\nspec:\n  replicatedJobs:\n"
    text += f"  - {{name: workers, template: {{spec: {{managedBy: example.com/other, {pods}}}}}}}\n"
    found = report(capsys, tmp_path, text)
    assert found["verdict"] == "unknown" and any("example.com/other" in each["message"] for each in found["findings"])


def test_two_templates_of_one_name_never_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    one = "  - {name: work, container: {image: i}}\n"
    text = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  entrypoint: work\n"
    found = report(capsys, tmp_path, f"{text}  templates:\n{one}{one}")
    (said,) = (each for each in found["findings"] if each["code"] == "GF713")
    assert found["verdict"] == "never" and "templates[1].name 'work' is not unique" in said["message"]


def test_an_mpi_job_has_no_fewer_than_no_slots(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    role = "{replicas: 1, template: {spec: {containers: [{name: a, image: b}]}}}"
    text = "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: m}\nspec:\n  slotsPerWorker: %d\n"
    text += f"  mpiReplicaSpecs: {{Launcher: {role}, Worker: {role}}}\n"
    assert report(capsys, tmp_path, text % 1)["verdict"] != "never"
    (tmp_path / "theirs.yaml").write_text(text % -1)
    words = ["--cluster", str(tmp_path / "cluster.yaml"), "--namespace", "team"]
    assert main(["check", str(tmp_path / "theirs.yaml"), *words]) == 2
    assert "GF736 MPIJob m: spec.slotsPerWorker" in capsys.readouterr().err
    other = "---\napiVersion: v1\nkind: Service\nmetadata: {name: m}\nspec: {clusterIP: None}\n"
    assert report(capsys, tmp_path, text % 1 + other)["verdict"] == "unknown"


def test_an_mpi_job_has_one_launcher(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    role = "{replicas: %d, template: {spec: {containers: [{name: a, image: b}]}}}"
    text = "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: m}\nspec:\n"
    text += f"  mpiReplicaSpecs: {{Launcher: {role % 2}, Worker: {role % 3}}}\n"
    (tmp_path / "theirs.yaml").write_text(text)
    (tmp_path / "cluster.yaml").write_text(QUOTA + WHOLE)
    words = ["--cluster", str(tmp_path / "cluster.yaml"), "--namespace", "team"]
    assert main(["check", str(tmp_path / "theirs.yaml"), *words]) == 2
    assert (
        "theirs.yaml:5:42: GF736 MPIJob m: spec.mpiReplicaSpecs.Launcher.replicas must be 1" in capsys.readouterr().err
    )


def test_a_train_job_stands_behind_its_runtime(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\n"
    job += "spec: {runtimeRef: {name: plain, kind: TrainingRuntime}}\n"
    pods = "{spec: {restartPolicy: Never, containers: [{name: node, image: b}]}}"
    runtime = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainingRuntime\nmetadata: {name: plain}\nspec:\n"
    runtime += (
        "  mlPolicy: {numNodes: 1}\n  template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: "
    )
    runtime += f"{pods}}}}}}}]}}}}\n"
    behind, before = (report(capsys, tmp_path, "---\n".join(each)) for each in ((job, runtime), (runtime, job)))
    assert [each["code"] for each in behind["findings"] if each["code"] == "GF800"] == ["GF800"]
    assert behind["verdict"] == "unknown" != before["verdict"]
    assert "GF800" not in {each["code"] for each in before["findings"]}
