"""`gpuflow-run create` in pods of the cluster, against its own API server, with the Role of the guide's example.

Jobs are run by Kubernetes itself. The controllers of TrainJob and Experiment are not here: their definitions are, and
the tests write the status that a controller would write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow.runtime.bundle import config_map

from .faults import Faults
from .fixtures import AnyCluster
from .kube import Kube
from .pods import outcome, pod
from .waiting import until

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples" / "kubeflow"
ACCOUNT = "job-launcher"
Launch = Callable[..., str]


def manifest_of(example: str, step: str) -> dict[str, Any]:
    """The object that a step of an example creates."""
    words = yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text())["steps"][step]["command"]
    found: dict[str, Any] = json.loads(words[words.index("--manifest") + 1])
    return found


def job(name: str, image: str, script: str, **spec: Any) -> dict[str, Any]:
    """The example's Job with a program of ours."""
    made = manifest_of("job", "train")
    made["metadata"]["name"] = name
    made["spec"].update(spec)
    container = made["spec"]["template"]["spec"]["containers"][0]
    container.update(image=image, imagePullPolicy="IfNotPresent", command=["sh", "-c", script], args=[], resources={})
    made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    return made


@pytest.fixture
def launch(cluster: AnyCluster, namespace: Kube) -> Launch:
    """Start a pod that runs `gpuflow-run create`; its name."""
    runtime = config_map()
    namespace.create(runtime)
    role = [
        each for each in yaml.safe_load_all((EXAMPLES / "role.yaml").read_text()) if each["metadata"]["name"] == ACCOUNT
    ]
    for each in role:
        for subject in each.get("subjects", ()):
            subject["namespace"] = namespace.namespace
        namespace.create(each)
    until("the account", lambda: namespace.get("serviceaccount", ACCOUNT))

    def start(name: str, body: dict[str, Any], *words: str, account: str = ACCOUNT, owned: bool = False) -> str:
        command = ["python3", "/gpuflow/bin/gpuflow-run", "create", *words, "--manifest", json.dumps(body)]
        made = pod(name, cluster.image("python"), command, serviceAccountName=account, terminationGracePeriodSeconds=20)
        container = made["spec"]["containers"][0]
        container["volumeMounts"] = [{"name": "runtime", "mountPath": "/gpuflow/bin"}]
        made["spec"]["volumes"] = [{"name": "runtime", "configMap": {"name": runtime["metadata"]["name"]}}]
        container["env"] = [{"name": "GPUFLOW_OUTPUTS", "value": "/tmp"}]
        if owned:  # as KFP tells every pod
            facts = {"KFP_POD_NAME": "metadata.name", "KFP_POD_UID": "metadata.uid"}
            container["env"] += [
                {"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in facts.items()
            ]
        namespace.create(made)
        return name

    return start


def ended(kube: Kube, name: str) -> int:
    """The exit code of a pod that has ended."""
    done = kube.await_object("pod", name, "ended", lambda it: it["status"].get("phase") in ("Succeeded", "Failed"), 180)
    code = outcome(done).exit_code
    assert code is not None
    return code


def pod_of(kube: Kube, name: str, phase: str, but: str = "") -> str:
    """A pod of a Job in a phase."""

    def look() -> str | None:
        listed = kube.list("pods", f"batch.kubernetes.io/job-name={name}")
        fit = (it["metadata"]["name"] for it in listed if it["status"].get("phase") == phase)
        return next((found for found in fit if found != but), None)

    found = until(f"a pod of job {name} to be {phase}", look, timeout=120)
    assert found is not None
    return found


def test_a_job_is_created_its_log_repeated_and_its_end_is_ours(
    cluster: AnyCluster, namespace: Kube, launch: Launch
) -> None:
    good = launch("good", job("good", cluster.image("busybox"), "echo one; sleep 4; echo two"))
    bad = launch("bad", job("bad", cluster.image("busybox"), "echo broken; exit 3", backoffLimit=0))
    final = launch("final", job("final", cluster.image("busybox"), "exit 64", backoffLimit=5))
    assert (ended(namespace, good), ended(namespace, bad), ended(namespace, final)) == (0, 3, 64)
    lines = namespace("logs", good).splitlines()
    assert [line.split("] ")[1] for line in lines if line.startswith("[")] == ["one", "two"]
    assert "BackoffLimitExceeded" in namespace("logs", bad)
    assert len(namespace.list("pods", "batch.kubernetes.io/job-name=final")) == 1  # FailJob: no second try
    assert "PodFailurePolicy" in namespace("logs", final)


def test_a_pod_that_is_evicted_costs_nothing_by_the_policy(
    cluster: AnyCluster, namespace: Kube, launch: Launch, faults: Faults
) -> None:
    script = "echo started; sleep 15; echo finished"
    launch("trains", job("trains", cluster.image("busybox"), script, backoffLimit=0))
    first = pod_of(namespace, "trains", "Running")
    faults.evict(first)
    assert pod_of(namespace, "trains", "Running", but=first) != first
    assert ended(namespace, "trains") == 0
    job_now = namespace.get("job", "trains")
    assert job_now is not None and job_now["status"].get("failed", 0) == 0
    assert "finished" in namespace("logs", "trains")


def test_told_to_stop_it_deletes_what_it_created(
    cluster: AnyCluster, namespace: Kube, launch: Launch, faults: Faults
) -> None:
    launch("stops", job("stops", cluster.image("busybox"), "sleep 600"))
    pod_of(namespace, "stops", "Running")
    faults.delete("stops")
    namespace.await_gone("job", "stops", timeout=60)


def test_killed_at_once_kubernetes_deletes_it_with_the_pod(
    cluster: AnyCluster, namespace: Kube, launch: Launch, faults: Faults
) -> None:
    launch("dies", job("dies", cluster.image("busybox"), "sleep 600"), owned=True)
    pod_of(namespace, "dies", "Running")
    faults.force_delete("dies")
    namespace.await_gone("job", "dies", timeout=90)


def test_a_second_attempt_of_a_run_waits_for_the_same_job_and_makes_a_failed_one_anew(
    cluster: AnyCluster, namespace: Kube, launch: Launch
) -> None:
    slow = job("slow", cluster.image("busybox"), "sleep 12")
    first = launch("first", slow, "--run-id", "run-1")
    until("the job", lambda: namespace.list("jobs"))
    second = launch("second", slow, "--run-id", "run-1")
    other = launch("other", slow, "--run-id", "run-2")
    assert [ended(namespace, name) for name in (first, second, other)] == [0, 0, 0]
    assert "created by an earlier attempt of this run" in namespace("logs", second)
    assert len(namespace.list("jobs")) == 2
    breaks = job("breaks", cluster.image("busybox"), "exit 9", backoffLimit=0)
    assert [ended(namespace, launch(name, breaks, "--run-id", "run-3")) for name in ("try-1", "try-2")] == [9, 9]
    assert "created anew" in namespace("logs", "try-2")


def test_a_job_of_somebody_else_is_left_alone(cluster: AnyCluster, namespace: Kube, launch: Launch) -> None:
    taken = job("taken", cluster.image("busybox"), "true")
    namespace.create(taken)
    assert ended(namespace, launch("second", taken)) == 78
    assert "is there already, and this run did not create it" in namespace("logs", "second")


def test_what_the_account_may_not_do_is_said_in_the_api_servers_words(
    cluster: AnyCluster, namespace: Kube, launch: Launch
) -> None:
    made = job("x", cluster.image("busybox"), "true")
    assert ended(namespace, launch("may-not", made, account="default")) == 78
    assert 'cannot create resource "jobs"' in namespace("logs", "may-not")
    strange = {"apiVersion": "nobody.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}
    words = ("--success", "status.phase=Done", "--failure", "status.phase=Lost")
    assert ended(namespace, launch("not-there", strange, *words)) == 78
    assert "the cluster has no nobody.example.com/v1" in namespace("logs", "not-there")


def definition(group: str, version: str, kind: str) -> dict[str, Any]:
    """A definition with the group, the version and the names of a kind, which takes any content."""
    plural = f"{kind.lower()}s"
    open_schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": open_schema},
        "subresources": {"status": {}},
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


KINDS = {
    "trainjob": ("trainer.kubeflow.org", "v1alpha1", "TrainJob", "pretrain", "Complete"),
    "experiment": ("kubeflow.org", "v1beta1", "Experiment", "search", "Succeeded"),
}


@pytest.fixture
def kinds(cluster: AnyCluster) -> Iterator[None]:
    """The definitions of TrainJob and Experiment; those that were there stay."""
    made = []
    for group, version, kind, *_ in KINDS.values():
        definition_ = definition(group, version, kind)
        if cluster.kube.get("crd", definition_["metadata"]["name"]) is None:
            cluster.kube.create(definition_)
            made.append(definition_["metadata"]["name"])
    cluster.kube.await_definitions()
    yield
    for name in made:
        cluster.kube("delete", "crd", name, "--wait=false")


def write_end(kube: Kube, plural: str, name: str, condition: str, **more: Any) -> None:
    """What the kind's controller would write at the end."""
    row = {"type": condition, "status": "True", "reason": "ByTest", "message": f"it is {condition}"}
    kube.patch_status(plural, name, {"conditions": [{"type": "Running", "status": "False"}, row], **more})


@pytest.mark.usefixtures("kinds")
@pytest.mark.parametrize("example", KINDS)
def test_the_examples_objects_are_created_and_waited_for(example: str, namespace: Kube, launch: Launch) -> None:
    group, _, kind, step, good = KINDS[example]
    plural = f"{kind.lower()}s.{group}"
    best = {"parameterAssignments": [{"name": "lr", "value": "0.0002"}]}
    more = {"currentOptimalTrial": best} if kind == "Experiment" else {}
    words = ["--output", "lr=status.currentOptimalTrial.parameterAssignments[name=lr].value"] if more else []
    launch("good", manifest_of(example, step), "--run-id", "run-1", *words)
    launch("bad", manifest_of(example, step), "--run-id", "run-2")
    launch("stopped", manifest_of(example, step), "--run-id", "run-3")

    def created(run: str) -> str | None:
        return next(
            (
                it["metadata"]["name"]
                for it in namespace.list(plural)
                if it["metadata"].get("annotations", {}).get("gpuflow.dev/run") == run
            ),
            None,
        )

    names = {
        run: until(f"the object of {run}", lambda run=run: created(run), timeout=120)
        for run in ("run-1", "run-2", "run-3")
    }
    write_end(namespace, plural, str(names["run-1"]), good, **more)
    write_end(namespace, plural, str(names["run-2"]), "Failed")
    namespace("delete", "pod", "stopped", "--wait=false")
    assert (ended(namespace, "good"), ended(namespace, "bad")) == (0, 1)
    assert "Failed (ByTest: it is Failed)" in namespace("logs", "bad")
    namespace.await_gone(plural, str(names["run-3"]), timeout=60)
    assert namespace.get(plural, str(names["run-1"])) is not None
