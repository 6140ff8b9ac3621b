"""How an attempt is judged that is no JobSet: what its controller was read to write, in its order.

Tests gpuflow/runtime/gangs/attempt_verdict.py, gpuflow/runtime/gangs/kinds.py and gpuflow/runtime/gangs/watch.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.runtime.base.outcomes import FINAL, INTERRUPTED, OUT_OF_MEMORY, RETRYABLE, SUCCEEDED, TIMED_OUT
from gpuflow.runtime.gangs import attempt_verdict
from gpuflow.runtime.gangs.attempt_object import Gang, Names
from gpuflow.runtime.gangs.attempt_verdict import Verdict, judge
from gpuflow.runtime.gangs.kinds import (
    JOBSET,
    JOBSET_BY_VOLCANO,
    KINDS,
    MPIJOB,
    PYTORCHJOB,
    TRAINJOB,
    VOLCANO,
    GangKind,
    kind_of,
)
from gpuflow.runtime.gangs.watch import Question, Watch, run_questions
from gpuflow.runtime.supervise import object_state
from gpuflow.runtime.supervise.kube_client import ApiRefusal, Misuse

from .gang_kinds import DONE, FAILED, OBJECTS, RUNS, TOO_LATE, jobs_of, object_of, pod, volcano_in

# (the state of the object, its pods as words for `pod`, those that are gone, what it was)
Row = tuple[str, list[tuple[int, int | None, dict[str, Any]]], set[str], str | None]
ROWS: dict[str, Row] = {
    "all run": (RUNS, [(0, None, {}), (1, None, {})], set(), None),
    "one has failed, and the controller has not seen it": (RUNS, [(0, None, {}), (1, 1, {})], set(), None),
    "done": (DONE, [(0, 0, {}), (1, 0, {})], set(), SUCCEEDED),
    "a rank fails": (FAILED, [(0, None, {"removed": True}), (1, 7, {})], set(), RETRYABLE),
    "a rank fails, and the others vanish": (
        FAILED, [(0, None, {"removed": True}), (1, 7, {})], {"uid-0"}, RETRYABLE),
    "a rank fails, and the others say that they were told to stop": (
        FAILED, [(0, 75, {"removed": True}), (1, 7, {})], set(), RETRYABLE),
    "a rank was deleted before, another one fails of it": (
        FAILED, [(0, None, {"asked": "-9"}), (1, 1, {})], {"uid-0"}, INTERRUPTED),
    "a rank is evicted, another one fails of it": (
        FAILED, [(0, 143, {"disrupted": "EvictionByEvictionAPI"}), (1, 1, {})], set(), INTERRUPTED),
    "a rank says that it was told to stop": (FAILED, [(0, 75, {}), (1, 75, {})], set(), INTERRUPTED),
    "a rank says final": (FAILED, [(0, 79, {}), (1, 79, {})], set(), FINAL),
    "no memory": (FAILED, [(0, 137, {"reason": "OOMKilled"}), (1, 1, {})], set(), OUT_OF_MEMORY),
    "failed, and no pod is left": (FAILED, [], set(), INTERRUPTED),
    "a rank that was done is removed": (RUNS, [(0, None, {}), (1, 0, {})], {"uid-1"}, None),
}  # fmt: skip
OF_ONE_KIND: list[tuple[GangKind, Row]] = [
    (PYTORCHJOB, (TOO_LATE, [(0, 75, {"asked": "1"}), (1, 75, {"asked": "1"})], set(), TIMED_OUT)),
    # The operator makes a lost pod anew.
    (PYTORCHJOB, (RUNS, [(0, None, {}), (1, None, {})], {"uid-1"}, INTERRUPTED)),
    # Volcano ends the Job itself, a moment later.
    (MPIJOB, (RUNS, [(0, None, {}), (1, None, {})], {"uid-1"}, INTERRUPTED)),
    (MPIJOB, (TOO_LATE, [(0, 75, {"removed": True}), (1, 75, {"removed": True})], set(), TIMED_OUT)),
    (TRAINJOB, (TOO_LATE, [(0, 75, {"removed": True}), (1, 75, {"removed": True})], set(), TIMED_OUT)),
    (VOLCANO, (RUNS, [(0, None, {}), (1, None, {})], {"uid-1"}, None)),
    # Each pod of a Job of Volcano has a deadline of its own.
    (VOLCANO, (FAILED, [(0, 137, {"status_reason": "DeadlineExceeded"}), (1, None, {"removed": True})], set(),
               TIMED_OUT)),
    # It deletes before it says so: the mark on the pod counts, and not the time.
    (VOLCANO, (FAILED, [(0, None, {"removed": True, "asked": "1"}), (1, 7, {})], {"uid-0"}, RETRYABLE)),
]  # fmt: skip


def judged(kind: GangKind, row: Row) -> Verdict | None:
    state, pods, gone, _ = row
    document = object_of(kind, state)
    made = [pod(kind, rank, code, **more) for rank, code, more in pods]
    return judge(document, jobs_of(kind, state, document), made, gone=gone, container=kind.container, kind=kind)


@pytest.mark.parametrize("kind", OBJECTS, ids=lambda kind: kind.word)
@pytest.mark.parametrize("row", ROWS)
def test_the_verdict(row: str, kind: GangKind) -> None:
    outcome = ROWS[row][3]
    verdict = judged(kind, ROWS[row])
    assert (verdict and verdict.outcome) == outcome
    assert outcome != RETRYABLE or "worker 1" in str(verdict)


@pytest.mark.parametrize(("kind", "row"), OF_ONE_KIND)
def test_the_verdict_where_kinds_differ(kind: GangKind, row: Row) -> None:
    verdict = judged(kind, row)
    assert (verdict and verdict.outcome) == row[3]


@pytest.mark.parametrize("phase", ["Aborting", "Aborted", "Terminated", "Restarting"])
def test_a_job_that_somebody_ends_in_volcano_is_interrupted(phase: str) -> None:
    document = {**object_of(VOLCANO, RUNS), **volcano_in("Pending", phase)}
    verdict = judge(document, [VOLCANO.as_job(document)], [], kind=VOLCANO)
    assert verdict is not None and verdict.outcome == INTERRUPTED and phase in verdict.because


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.word)
def test_every_kind_has_known_ends(kind: GangKind) -> None:
    assert object_state.name_of({"apiVersion": kind.api_version, "kind": kind.kind}) == kind.name
    for table in (object_state.GOOD, object_state.BAD, object_state.PODS):
        assert kind.name in table
    assert kind_of({"apiVersion": kind.api_version, "kind": kind.kind}) is kind


def _manifest(kind: GangKind, replicas: int = 1000) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": kind.container}], "terminationGracePeriodSeconds": 7}}
    job = {"parallelism": replicas, "completions": replicas, "template": template}
    jobset = {"spec": {"replicatedJobs": [{"name": "worker", "replicas": 1, "template": {"spec": job}}]}}
    specs: dict[str, dict[str, Any]] = {
        "JobSet": jobset["spec"],
        "PyTorchJob": {"pytorchReplicaSpecs": {"Worker": {"replicas": replicas, "template": template}}},
        "TrainJob": {"runtimeRef": {}},
        "MPIJob": {
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": template},
                "Worker": {"replicas": replicas, "template": template},
            }
        },
        "Volcano Job": {"tasks": [{"name": "worker", "replicas": replicas, "template": template}]},
    }
    made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "spec": specs[kind.name]}
    return {**made, **({"runtime": {"kind": "TrainingRuntime", "spec": {"template": jobset}}} if kind.through else {})}


@pytest.mark.parametrize("kind", OBJECTS, ids=lambda kind: kind.word)
def test_names_leave_room_for_the_pods(kind: GangKind) -> None:
    gang = Gang(_manifest(kind), Names("p", "r", "9" * 80), None)
    leads = kind.sets == (2,)
    assert gang.shape == (1000 + leads, kind.roles[0 if leads else 1], 7.0, kind.name)
    name = gang.name(99)
    assert len(f"{name}-worker-999") <= 63 and name[0].isalpha()


@pytest.mark.parametrize(
    "manifest",
    [
        {"apiVersion": "batch/v1", "kind": "Job"},
        {"apiVersion": "kubeflow.org/v2beta1", "kind": "JobSet"},
        {"kind": "JobSet"},
        {},
    ],
)
def test_no_other_kind(manifest: dict[str, Any]) -> None:
    with pytest.raises(Misuse, match="a gang is a JobSet or a TrainJob or"):
        Gang({**manifest, "metadata": {}, "spec": {}}, Names("p", "r", "s"), None)


@pytest.mark.parametrize("kind", OBJECTS, ids=lambda kind: kind.word)
def test_a_manifest_without_pods_is_refused(kind: GangKind) -> None:
    with pytest.raises(Misuse, match=f"not as {kind.name} wants it"):
        Gang({**_manifest(kind), "spec": {}, "runtime": {}}, Names("p", "r", "s"), None)


def test_a_runtime_stands_before_its_trainjob() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "launcher", "uid": "u"}
    manifest = _manifest(TRAINJOB)
    manifest["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research", "team": "nlp"}
    gang = Gang(manifest, Names("p", "r", "train"), owner)
    first, made = TRAINJOB.split(gang.body(1, 0, 0))
    assert first is not None and "runtime" not in made
    assert made["spec"]["runtimeRef"]["name"] == made["metadata"]["name"] == first["metadata"]["name"]
    assert gang.is_ours(first) and first["metadata"]["ownerReferences"] == [owner]
    labels, queue = first["metadata"]["labels"], "kueue.x-k8s.io/queue-name"
    assert labels["team"] == "nlp" and queue not in labels and made["metadata"]["labels"][queue] == "research"
    pods = first["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert pods["metadata"]["annotations"]["gpuflow.dev/attempt"] == "1"
    assert JOBSET.split({"metadata": {}, "spec": {}}) == (None, {"metadata": {}, "spec": {}})


def test_the_launcher_of_an_mpijob_is_the_pod_of_a_job_and_the_workers_are_its_own() -> None:
    """The Job has none of the operator's labels: it is found by its name."""
    shape = Gang(_manifest(MPIJOB, 2), Names("p", "r", "s"), None).shape
    watch = Watch(shape, "/apis/kubeflow.org/v2beta1/namespaces/ns/mpijobs/train", "ns")
    mpi = object_of(MPIJOB, RUNS)
    mpi["metadata"]["uid"], mpi["spec"] = "mpi", _manifest(MPIJOB, 2)["spec"]
    job = {
        "metadata": {"name": "train-launcher", "uid": "job", "ownerReferences": [{"uid": "mpi", "controller": True}]}
    }
    ranks = [pod(MPIJOB, rank) for rank in (0, 1, 2)]
    for each, owner in zip(ranks, ("job", "mpi", "mpi"), strict=True):
        each["metadata"]["ownerReferences"] = [{"uid": owner, "controller": True}]
    stranger = pod(MPIJOB, 7)
    stranger["metadata"]["ownerReferences"] = [{"uid": "another", "controller": True}]

    def ask(question: Question) -> dict[str, Any]:
        if question.path.endswith("/pods"):
            return {"items": [*ranks, stranger]}
        return job if question.path == "/apis/batch/v1/namespaces/ns/jobs/train-launcher" else mpi

    run_questions(watch.look(), ask)
    assert len(watch.pods) == 3 and watch.rank_0() == ranks[0]
    # The operator counts the launcher as 0 and the workers from 1: the label is the rank.
    assert MPIJOB.first_ranks(mpi) == {"launcher": 0, "worker": 0}
    assert [attempt_verdict.name_of(each) for each in ranks] == ["launcher 0", "worker 1", "worker 2"]


def test_the_ranks_of_a_trainjob_are_found_through_its_jobset() -> None:
    """Trainer makes a JobSet of the same name, that makes Jobs, that make pods; each is owned by the one before."""

    def owned(by: str, uid: str, **more: Any) -> dict[str, Any]:
        return {"metadata": {"name": more.pop("name", "train"), "uid": uid, **more,
                             "ownerReferences": [{"uid": by, "controller": True}]}}  # fmt: skip

    shape = Gang(_manifest(TRAINJOB, 2), Names("p", "r", "s"), None).shape
    watch = Watch(shape, "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/train", "ns")
    train = object_of(TRAINJOB, RUNS)
    train["metadata"]["uid"] = "train"
    inner: dict[str, Any] | None = None
    ranks = [pod(TRAINJOB, rank) for rank in (0, 1)]
    for each in ranks:
        each["metadata"]["ownerReferences"] = [{"uid": "job", "controller": True}]
        each["spec"] = {"nodeName": f"node-{each['metadata']['name']}"}

    def ask(question: Question) -> dict[str, Any]:
        if question.path.endswith("/pods"):
            return {"items": ranks}
        if question.path.endswith("/batch/v1/namespaces/ns/jobs"):
            return {"items": [owned("jobset", "job", name="train-worker-0")]}
        if question.path == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/train":
            if inner is None:
                raise ApiRefusal(404, "there is none")
            return inner
        return train

    run_questions(watch.look(), ask)
    assert not watch.pods and not watch.jobs, "Trainer has made nothing yet"
    inner = {**owned("somebody else", "jobset"), "spec": {}}
    run_questions(watch.look(), ask)
    assert not watch.pods, "a JobSet of the same name that is not its own"
    spec = _manifest(TRAINJOB, 2)["runtime"]["spec"]["template"]["spec"]
    inner = {**owned("train", "jobset"), "spec": spec}
    run_questions(watch.look(), ask)
    assert len(watch.pods) == 2 and len(watch.jobs) == 1 and watch.rank_0() == ranks[0]
    assert watch.jobset is not None and TRAINJOB.first_ranks(watch.jobset) == {"worker": 0}


def test_where_a_job_of_volcano_waits_is_said_and_why_pods_are_missing() -> None:
    """The event is as Volcano 1.14.1 prints it: `%+v` of errors that are wrapped with `%#v`."""
    shape = Gang(_manifest(VOLCANO, 2), Names("p", "r", "s"), None).shape
    watch = Watch(shape, "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs/train", "ns")
    job = {**object_of(VOLCANO, RUNS), "spec": {"queue": "research"}}
    job["metadata"]["uid"] = "u"
    event = {
        "involvedObject": {"name": "train"},
        "message": "Error creating pods: [failed to create pod train-worker-1, err: &errors.StatusError{ErrStatus:"
        'v1.Status{Status:"Failure", Message:"pods \\"train-worker-1\\" is forbidden: exceeded quota: q, requested: '
        'pods=1, used: pods=1, limited: pods=1", Reason:"Forbidden", Code:403}}]',
    }

    events: list[dict[str, Any]] = []

    def ask(question: Question) -> dict[str, Any]:
        if question.path.endswith("/events"):
            assert question.query["fieldSelector"] == "involvedObject.kind=Job,reason=FailedCreate"
            return {"items": events}
        return {"items": []} if question.path.endswith("/pods") else job

    run_questions(watch.look(), ask)
    assert run_questions(watch.situation(), ask) == "0 of 2 pods running, 0 there; it waits in the queue research"
    events.append(event)
    words = run_questions(watch.situation(), ask)
    assert "a pod is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in words
    assert "StatusError" not in words


def test_where_a_podgroup_of_volcanos_waits_is_said_and_why() -> None:
    manifest = {**_manifest(JOBSET_BY_VOLCANO, 2), "podGroup": {"spec": {"minMember": 2}}}
    gang = Gang(manifest, Names("p", "r", "s"), None)
    _, made = gang.kind.split(gang.body(1, 0, 0))
    made["metadata"]["uid"] = "u"
    group: dict[str, Any] = {"metadata": {}, "spec": {"minMember": 2, "queue": "research"}}
    groups, asked = [group], []
    watch = Watch(gang.shape, f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/{gang.name(1)}", "ns")

    def ask(question: Question) -> dict[str, Any]:
        if question.path.endswith("/podgroups"):
            asked.append(question)
            return {"items": groups}
        return made if question.path.endswith(gang.name(1)) else {"items": []}

    run_questions(watch.look(), ask)
    assert run_questions(watch.situation(), ask) == "0 of 2 pods running, 0 there; it waits in the queue research"
    assert asked[0].path == "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups"
    assert asked[0].query == {"fieldSelector": f"metadata.name={gang.name(1)}"}
    words = "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable"
    row = {"type": "Unschedulable", "status": "True", "message": words}
    group["status"] = {"phase": "Inqueue", "conditions": [row]}
    assert run_questions(watch.situation(), ask).endswith(f"it waits in the queue research: {words}")
    row["status"] = "False"
    assert run_questions(watch.situation(), ask).endswith("it waits in the queue research")
    groups.clear()
    assert "is gone, and Volcano places no pod without it" in run_questions(watch.situation(), ask)


def test_a_jobset_without_a_podgroup_asks_for_none() -> None:
    gang = Gang(_manifest(JOBSET, 2), Names("p", "r", "s"), None)
    made = gang.body(1, 0, 0)
    made["metadata"]["uid"] = "u"
    watch = Watch(gang.shape, f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/{gang.name(1)}", "ns")

    def ask(question: Question) -> dict[str, Any]:
        assert "podgroups" not in question.path
        return made if question.path.endswith(gang.name(1)) else {"items": []}

    run_questions(watch.look(), ask)
    assert run_questions(watch.situation(), ask) == "0 of 2 pods running, 0 there"
