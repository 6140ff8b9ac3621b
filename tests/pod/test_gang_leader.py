"""The pods of a gang with a leader: one maker for both, ranks that follow each other, and the object that has both."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.demands import demand_of
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.plan import plan_of, planned_step
from gpuflow.pod import Engine, pod_for
from gpuflow.pod.build import leader_pod, made_pod
from gpuflow.pod.gang import gang_object
from gpuflow.pod.later_attempts import changes_of
from gpuflow.pod.notes import pod_notes
from gpuflow.pod.placement import devices_of_step
from gpuflow.runtime.gangs.attempt_object import Gang, Names
from gpuflow.runtime.gangs.later_attempts import EarlierAttempts
from gpuflow.site import Site
from gpuflow.spec.loading import loads

SITE, GKE = Site.load("nvidia"), Site.load("gke")
HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps:\n  train:\n    image: i:1\n    command: [work]\n"
GPUS = "gpu: l4 x 4\nmemory: 32Gi\nshm: 8Gi\nkubernetes: {resources: {rdma/hca: 4}}\n"
NO_GPU = "{gpu: null, shm: null, kubernetes: null, memory: 4Gi, command: [lead], env: {ROLE: head}}"


def pipeline(leader: str, more: str = GPUS, rendezvous: str = "env") -> Any:
    gang = f"gang: {{workers: 3, leader: {leader}, rendezvous: {{framework: {rendezvous}}}}}\n"
    return loads((HEAD + "".join(f"    {line}\n" for line in (gang + more).splitlines())).encode())


def both(given: Any, site: Site = SITE) -> tuple[dict[str, Any], dict[str, Any]]:
    leader = leader_pod(planned_step(given, "train", site))
    assert leader is not None
    return leader.manifest, pod_for(given, "train", site)


def main(pod: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = pod["spec"]["containers"][0]
    return container


def made(given: Any, site: Site = SITE) -> dict[str, Any]:
    leader, worker = both(given, site)
    return gang_object(given.effective("train"), worker, leader, site.gangs.kind)


def test_a_leader_without_a_gpu_asks_for_none_and_needs_no_node_that_has_one() -> None:
    leader, worker = both(pipeline(NO_GPU))
    assert main(leader)["resources"] == {"requests": {"memory": "4Gi"}, "limits": {"memory": "4Gi"}}
    assert main(worker)["resources"]["limits"].keys() == {"memory", "nvidia.com/gpu", "rdma/hca"}
    assert not {"affinity", "nodeSelector", "tolerations"} & leader["spec"].keys()
    assert {"nodeSelector", "tolerations"} <= worker["spec"].keys()
    assert "volumeMounts" not in main(leader) and main(worker)["volumeMounts"]
    assert main(leader)["command"][-1] == "lead" and main(worker)["command"][-1] == "work"


@pytest.mark.parametrize("leader", ["true", NO_GPU])
def test_the_leader_is_rank_0_and_the_workers_count_on_from_it(leader: str) -> None:
    first, worker = both(pipeline(leader, rendezvous="torchrun"))
    assert [word for word in main(first)["command"] if "rank" in word] == []
    assert [word for word in main(worker)["command"] if "rank" in word] == ["--rank-offset=1"]
    assert all("--gang=4" in main(pod)["command"] for pod in (first, worker))
    values = {entry["name"]: entry.get("value") for entry in main(worker)["env"]}
    assert (values["GPUFLOW_WORLD_SIZE"], values["PET_NNODES"], values["PET_NPROC_PER_NODE"]) == ("4", "4", "4")
    processes = {entry["name"]: entry.get("value") for entry in main(first)["env"]}["PET_NPROC_PER_NODE"]
    assert processes == ("4" if leader == "true" else "1")


def test_a_leader_like_the_workers_is_their_pod_but_for_its_number() -> None:
    leader, worker = both(pipeline("true"))
    main(worker)["command"].remove("--rank-offset=1")
    assert leader == worker


def test_without_a_leader_no_rank_is_moved() -> None:
    given = pipeline("false")
    assert leader_pod(planned_step(given, "train", SITE)) is None
    assert not any("rank" in word for word in main(pod_for(given, "train", SITE))["command"])


def test_a_jobset_has_a_job_for_the_leader_which_is_the_coordinator() -> None:
    jobset = made(pipeline(NO_GPU, GPUS + "queue: research\ntimeout: 1h\n"))
    leader, workers = jobset["spec"]["replicatedJobs"]
    assert [(each["name"], each["template"]["spec"]["completions"]) for each in (leader, workers)] == [
        ("leader", 1),
        ("worker", 3),
    ]
    assert jobset["spec"]["coordinator"] == {"replicatedJob": "leader", "jobIndex": 0, "podIndex": 0}
    assert jobset["spec"]["successPolicy"]["targetReplicatedJobs"] == ["leader", "worker"]
    assert jobset["spec"]["suspend"] is True and jobset["metadata"]["labels"][QUEUE_LABEL] == "research"
    specs = [each["template"]["spec"] for each in (leader, workers)]
    assert specs[0]["activeDeadlineSeconds"] == specs[1]["activeDeadlineSeconds"]
    assert not any(QUEUE_LABEL in each["template"]["metadata"]["labels"] for each in specs)
    gang = Gang(jobset, Names("p", "r", "train"), None)
    assert (gang.shape.size, gang.shape.first) == (4, "leader")


def test_a_pytorchjob_has_no_leader() -> None:
    with pytest.raises(GpuflowError, match=r"GF408.*init container"):
        made(pipeline(NO_GPU), Site.model_validate({**SITE.model_dump(), "gangs": {"kind": "pytorchjob"}}))


def test_both_are_one_group_for_kueue_also_when_the_leader_has_no_gpu() -> None:
    racks = {"rack": "cloud.com/rack", "queues": ["research"]}
    site = Site.model_validate({**SITE.model_dump(), "topology": racks})
    given = pipeline(NO_GPU, GPUS + "queue: research\ntopology: {same: rack}\n")
    for pod in both(given, site):
        assert pod["metadata"]["annotations"] == {
            "kueue.x-k8s.io/podset-required-topology": "cloud.com/rack",
            "kueue.x-k8s.io/podset-group-name": "gang",
        }


def test_a_patch_of_the_leader_that_overrides_something_is_said() -> None:
    given = pipeline("{kubernetes: {merge: {spec: {securityContext: {runAsUser: 7}}}}}")
    (note,) = [each for each in pod_notes(plan_of(given, SITE)) if each.code == "GF373"]
    assert note.message == 'step "train", the leader: kubernetes.merge overrides spec.securityContext.runAsUser'
    assert note.where.line == 8
    leader, worker = both(given)
    assert [pod["spec"]["securityContext"]["runAsUser"] for pod in (leader, worker)] == [7, 1000]
    assert not [each for each in pod_notes(plan_of(pipeline(NO_GPU), SITE)) if each.code == "GF373"]


@pytest.mark.parametrize(
    ("leader", "rendezvous", "said"),
    [
        ("{command: [python, lead.py]}", "torchrun", True),
        ("{script: python lead.py}", "torchrun", True),
        ("{command: [python, lead.py]}", "env", False),
        ("{command: [torchrun, lead.py]}", "torchrun", False),
        ("{command: [python, -m, torch.distributed.run, lead.py]}", "torchrun", False),
        ("{script: exec torchrun lead.py}", "torchrun", False),
        ("{args: [--lead]}", "torchrun", False),
        ("{gpu: null}", "torchrun", False),
        ("false", "torchrun", False),
    ],
)
def test_workers_that_would_wait_for_a_leader_without_torchrun_are_warned_about(
    leader: str, rendezvous: str, said: bool
) -> None:
    found = [each for each in pod_notes(plan_of(pipeline(leader, rendezvous=rendezvous), SITE)) if each.code == "GF410"]
    assert [(each.severity, each.where.line) for each in found] == ([("warning", 8)] if said else [])


@pytest.mark.parametrize(
    ("leader", "more", "slots"),
    [
        ("true", GPUS, (4, 4)),
        ("{gpu: null}", GPUS, (0, 4)),
        ("{gpu: l4}", GPUS, (1, 4)),
        ("{memory: 8Gi}", "memory: 4Gi\n", (1, 1)),
        ("{gpu: null}", "memory: 4Gi\n", (0, 1)),
    ],
)
def test_under_mpi_each_rank_takes_a_process_for_each_gpu_and_a_leader_without_one_none(
    leader: str, more: str, slots: tuple[int, int]
) -> None:
    for pod, count in zip(both(pipeline(leader, more, "mpi")), slots, strict=True):
        assert [word for word in main(pod)["command"] if word.startswith("--mpi")] == [f"--mpi={count}"]
    first, worker = both(pipeline(leader, more, "env"))
    assert not [word for pod in (first, worker) for word in main(pod)["command"] if word.startswith("--mpi")]


def test_mpirun_has_a_place_for_its_agent_where_the_image_cannot_be_written() -> None:
    for framework, mounted in (("mpi", True), ("env", False)):
        pods = both(pipeline("true", "security: {read_only_root: true}\n", framework))
        for pod in pods:
            mounts = [each["mountPath"] for each in main(pod).get("volumeMounts", ())]
            assert ("/tmp" in mounts) is mounted


@pytest.mark.parametrize(
    ("leader", "rendezvous", "said"),
    [
        ("{command: [mpirun, train]}", "mpi", True),
        ("{script: mpirun train}", "mpi", True),
        ("{gpu: null}", "mpi", False),
        ("{args: [--lead]}", "mpi", False),
        ("{command: [mpirun, train]}", "env", False),
        ("false", "mpi", False),
    ],
)
def test_a_program_that_nobody_starts_under_mpi_is_warned_about(leader: str, rendezvous: str, said: bool) -> None:
    found = [each for each in pod_notes(plan_of(pipeline(leader, rendezvous=rendezvous), SITE)) if each.code == "GF414"]
    assert [(each.severity, each.where.line) for each in found] == ([("warning", 8)] if said else [])


@pytest.mark.parametrize(
    ("leader", "more", "said"),
    [
        ("{gpu: null}", "outputs: {a: float}\n", "outputs are taken"),
        (
            "{gpu: null}",
            "checkpoint: {path: /c, store: s3://b/c}\noutputs: {a: float}\n",
            "outputs and checkpoints are taken",
        ),
        ("{gpu: null}", "checkpoint: {path: /c, store: s3://b/c, sharded: true}\n", "checkpoints are taken"),
        ("{gpu: null}", "memory: 1Gi\n", None),
        ("true", "outputs: {a: float}\n", None),
    ],
)
def test_what_a_leader_without_processes_cannot_keep_under_mpi_is_warned_about(
    leader: str, more: str, said: str | None
) -> None:
    for framework in ("mpi", "env"):
        notes = pod_notes(plan_of(pipeline(leader, more, framework), SITE))
        found = [each for each in notes if each.code == "GF415"]
        assert len(found) == (framework == "mpi" and said is not None)
        assert not found or (said or "?") in found[0].message


def test_later_attempts_change_each_in_its_own_way() -> None:
    retry = (
        "spot: {mode: require, fallback_after: 1}\n"
        "retry: {failures: 2, interruptions: 2, more_memory: {factor: 2, max: 48Gi}}\n"
    )
    given = pipeline(NO_GPU, GPUS + retry)
    leader, worker = both(given, GKE)
    off = [
        changes_of(made_pod(planned_step(given, "train", GKE), None, Engine(leads=leads))).spec(
            pod["spec"], EarlierAttempts(1, 1)
        )
        for leads, pod in ((True, leader), (False, worker))
    ]
    assert [each["containers"][0]["resources"]["limits"]["memory"] for each in off] == ["8Gi", "48Gi"]
    assert "nodeSelector" not in off[0], "on no node with GPUs, and on none that is spot"
    assert "cloud.google.com/gke-accelerator" in off[1]["nodeSelector"]
    assert "cloud.google.com/gke-spot" in json.dumps([leader["spec"], worker["spec"]])


@pytest.mark.parametrize(("leader", "gpus"), [("true", 16), (NO_GPU, 12), ("{gpu: l4}", 13)])
@pytest.mark.parametrize("engine", ["none", "argo", "airflow", "kubeflow"])
def test_the_demand_has_the_leader_as_a_pod_set_of_its_own(leader: str, gpus: int, engine: str) -> None:
    given = pipeline(leader)
    demand = demand_of(given, SITE, engine)
    (step,) = demand.steps
    assert not demand.refusals
    sets = [(each.name, each.count) for each in step.pod_sets]
    assert sets[:2] == [("leader", 1), ("worker", 3)]
    assert str(demand.peak["requests.nvidia.com/gpu"].value) == str(gpus)
    assert devices_of_step(given.effective("train"), SITE) == {"nvidia.com/gpu": gpus}


def test_the_last_attempts_of_both_are_demanded() -> None:
    given = pipeline(NO_GPU, GPUS + "retry: {failures: 1, more_memory: {factor: 2, max: 48Gi}}\n")
    (later,) = demand_of(given, SITE, "argo").later
    memory = {
        each.name: each.pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
        for each in later.pod_sets["train"]
    }
    assert memory == {"leader": "8Gi", "worker": "48Gi", "launcher": "256Mi"}
