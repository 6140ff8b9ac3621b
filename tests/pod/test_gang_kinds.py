"""Gangs of another kind than JobSet: what the site may name, what is made, counted and allowed, and what is refused.

Each kind has a row in every table here.

Tests gpuflow/kubernetes/labels.py, gpuflow/pod/gang_kinds.py, gpuflow/pod/launcher.py and gpuflow/site/model.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from gpuflow.core.codes import CODES
from gpuflow.core.errors import GpuflowError
from gpuflow.demands import demand_of
from gpuflow.kubernetes.expansion import expand
from gpuflow.kubernetes.labels import MADE_BY, QUEUED_BY
from gpuflow.plan import plan_of, planned_step
from gpuflow.pod import pod_notes
from gpuflow.pod.gang_kinds import SPELLINGS, refusals_of
from gpuflow.pod.launcher import airflow_role, gang_account, gang_role, launcher_for
from gpuflow.readers.kubernetes.pods import INTEGRATIONS
from gpuflow.runtime.gangs.attempt_object import Gang, Names
from gpuflow.runtime.gangs.kinds import GROUP, KINDS, WORDS, kind_of, word_of
from gpuflow.runtime.gangs.later_attempts import Changes, EarlierAttempts
from gpuflow.site import Site
from gpuflow.site.model import GangWord, SchedulerWord
from gpuflow.spec.loading import loads

from ..gang_words import said

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps:\n  train:\n    image: i:1\n    command: [run]\n"
TORCH = "gang: {workers: 4, rendezvous: {framework: torchrun, processes_per_worker: 8}}"


def site(kind: str, **more: Any) -> Site:
    return Site.model_validate({**Site.load("nvidia").model_dump(), "gangs": {**said(kind), **more}})


def pipeline(text: str) -> Any:
    return loads((HEAD + "".join(f"    {line}\n" for line in text.splitlines())).encode())


def words(text: str, kind: str = "pytorchjob") -> list[str]:
    container = launcher_for(planned_step(pipeline(text), "train", site(kind)))["spec"]["containers"][0]
    return [expand(word, {}) for word in container["command"]]


def manifest(text: str, kind: str = "pytorchjob") -> dict[str, Any]:
    (given,) = (word for word in words(text, kind) if word.startswith("--manifest="))
    found: dict[str, Any] = json.loads(given.partition("=")[2])
    return found


def test_one_table() -> None:
    assert {word for word in SPELLINGS if "+" not in word} == set(get_args(GangWord))
    assert {each.kind.name for each in SPELLINGS.values()} == set(KINDS)
    scheduled = {word: each.kind.scheduler for word, each in SPELLINGS.items() if "+" in word}
    assert {word_of(said(word)["kind"], scheduler): scheduler for word, scheduler in scheduled.items()} == scheduled
    assert set(scheduled.values()) == set(get_args(SchedulerWord)), "each scheduler is one of some kind"
    assert {word: each.kind for word, each in SPELLINGS.items()} == WORDS
    for each in SPELLINGS.values():
        assert INTEGRATIONS.get((each.kind.kind, each.kind.group)) == each.kind.integration


def containers(made: dict[str, Any]) -> list[dict[str, Any]]:
    """The program's container in each set of pods."""
    kind = kind_of(made)
    assert kind is not None
    return [each["spec"]["containers"][0] for each in kind.templates(made)]


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("word", SPELLINGS)
def test_every_pod_of_every_kind_is_named_as_the_launcher_looks_for_it(word: str, leads: bool) -> None:
    text = "gang: {workers: 4, leader: {command: [lead]}}" if leads else "gang: 4"
    kind = WORDS[word]
    if (2 if leads else 1) not in kind.sets:
        (refusal,) = refusals_of(pipeline(text).effective("train"), word)
        assert refusal[0] == ("gang", "leader") and kind.name in refusal[1]
        with pytest.raises(GpuflowError, match="GF408"):
            manifest(text, word)
        return
    assert not list(refusals_of(pipeline(text).effective("train"), word))
    made = manifest(text, word)
    assert kind_of(made) is kind
    sizes = [each.size for each in kind.pod_sets(made)]
    assert sizes == ([1, 4] if leads else [4])
    for each in containers(made):
        assert each["name"] == kind.container
        names = [variable["name"] for variable in each["env"]]
        # The kubelet fills in only what stands further up.
        host = next(variable for variable in each["env"] if variable["name"] == "GPUFLOW_LEADER")
        assert "value" not in host or names.index("GPUFLOW_GANG") < names.index("GPUFLOW_LEADER")
    assert all(each.template["spec"].get("restartPolicy") in (None, "Never") for each in kind.pod_sets(made))
    gang = Gang(made, Names("p", "r", "train"), None)
    assert gang.shape.first == kind.pod_sets(made)[0].name and gang.shape.size == sum(sizes)


@pytest.mark.parametrize("word", SPELLINGS)
def test_later_attempts_change_every_set_of_pods(word: str) -> None:
    leads = 2 in WORDS[word].sets
    gang = Gang(
        manifest(f"gang: {{workers: 2, leader: {'true' if leads else 'null'}}}\nmemory: 8Gi", word),
        Names("p", "r", "train", container=WORDS[word].container),
        None,
    )
    gang.changes = Changes("2", "64Gi", 1, {"nodeSelector": {"spot": "no"}}, True)
    made = gang.body(3, 1, 1, EarlierAttempts(1, 1, ("node-7",)))
    sets = WORDS[word].pod_sets(made)
    assert len(sets) == (2 if leads else 1)
    for each in sets:
        spec = each.template["spec"]
        assert spec["containers"][0]["resources"]["requests"]["memory"] == "16Gi"
        assert spec["nodeSelector"] == {"spot": "no"} and "node-7" in json.dumps(spec["affinity"])
        assert each.template["metadata"]["annotations"]["gpuflow.dev/attempt"] == "3"
        assert each.template["metadata"]["labels"]["gpuflow.dev/gang"] == gang.digest


NOT_KINDS = ["tfjob", "JobSet", "job"]


@pytest.mark.parametrize("kind", NOT_KINDS)
def test_a_kind_that_is_not_known_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"apiVersion: gpuflow/v1\nkind: Site\nname: s\ngangs: {{kind: {kind}}}\n")
    with pytest.raises(GpuflowError) as refused:
        Site.load(str(path))
    (finding,) = refused.value.findings
    assert finding.code == "GF408" and repr(kind) in finding.message and "jobset, trainjob" in str(finding.hint)
    assert finding.where.line == 4


def test_every_rank_is_a_worker_that_is_never_started_again() -> None:
    made = manifest(TORCH + "\nqueue: research\ntimeout: 1h")
    assert (made["apiVersion"], made["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    policy = made["spec"]["runPolicy"]
    assert policy["suspend"] is True and policy["cleanPodPolicy"] == "Running" and "backoffLimit" not in policy
    assert policy["activeDeadlineSeconds"] > 3600
    ((role, ranks),) = made["spec"]["pytorchReplicaSpecs"].items()
    assert (role, ranks["replicas"], ranks["restartPolicy"]) == ("Worker", 4, "Never")
    spec = ranks["template"]["spec"]
    assert "activeDeadlineSeconds" not in spec and "restartPolicy" not in spec
    assert "kueue.x-k8s.io/queue-name" not in ranks["template"]["metadata"]["labels"]
    assert [each["name"] for each in spec["containers"]] == ["pytorch"]
    # The operator's own value comes after ours.
    assert made["spec"]["nprocPerNode"] == "8"
    assert "--container=pytorch" in words(TORCH)


def test_a_jobset_is_as_it_was() -> None:
    assert not any(word.startswith("--container") for word in words(TORCH, "jobset"))
    assert manifest(TORCH, "jobset")["kind"] == "JobSet"


def test_without_torchrun_the_operator_decides_nothing_for_us() -> None:
    assert "nprocPerNode" not in manifest("gang: 2")["spec"]
    assert "suspend" not in manifest("gang: 2")["spec"]["runPolicy"]


@pytest.mark.parametrize(
    ("kind", "resource", "jobs"),
    [
        ("jobset", "jobsets.jobset.x-k8s.io", True),
        ("pytorchjob", "pytorchjobs.kubeflow.org", False),
        ("trainjob", "trainjobs.trainer.kubeflow.org", True),
        ("trainjob", "trainingruntimes.trainer.kubeflow.org", True),
        ("mpijob", "mpijobs.kubeflow.org", True),
        ("volcano", "jobs.batch.volcano.sh", False),
        ("jobset+volcano", "jobsets.jobset.x-k8s.io", True),
        ("jobset+volcano", "podgroups.scheduling.volcano.sh", True),
    ],
)
def test_the_role_is_for_the_kind(kind: str, resource: str, jobs: bool) -> None:
    roles = (
        gang_account("a", None, reports=False, kind=kind)[1],
        gang_role("a", None, kind)[0],
        airflow_role([("airflow", "worker")], None, kind)[0],
    )
    for role in roles:
        allowed = {
            f"{name}.{group}": rule["verbs"]
            for rule in role["rules"]
            for name in rule["resources"]
            for group in rule["apiGroups"]
        }
        assert allowed[resource] == ["create", "get", "list", "patch", "delete"]
        assert ("jobs.batch" in allowed) is jobs and "pods/log." in allowed


def test_the_demand_says_what_kueue_queues() -> None:
    plan = plan_of(pipeline("gang: 4\nqueue: research"), site("pytorchjob"))
    (step,) = demand_of(plan.pipeline, plan.site).steps
    assert step.pod_sets[0].pod["metadata"]["annotations"][QUEUED_BY] == "kubeflow.org/pytorchjob"
    assert step.pod_sets[0].count == 4


def test_a_gang_that_is_no_jobset_is_said_with_what_it_needs() -> None:
    def notes(kind: str, text: str = "gang: 4\nqueue: research") -> list[Any]:
        return [each for each in pod_notes(plan_of(pipeline(text), site(kind))) if each.code == "GF409"]

    assert "GF409" in CODES and not notes("jobset") and not notes("pytorchjob", "queue: research")
    (note,) = notes("pytorchjob")
    assert note.severity == "note" and "PyTorchJob" in note.message and "kubeflow.org/pytorchjob" in str(note.hint)
    (note,) = notes("pytorchjob", "gang: 4")
    assert "Kueue" not in str(note.hint)
    (note,) = notes("volcano")
    assert "Volcano Job" in note.message and "Volcano 1.14" in str(note.hint) and "integration" not in str(note.hint)
    (note,) = notes("jobset+volcano")
    assert "a JobSet" in note.message and "PodGroup" in note.message
    assert "JobSet 0.12 and Volcano 1.14" in str(note.hint) and "integration" not in str(note.hint)


# -- TrainJob --------------------------------------------------------------------------------------------------------


def test_a_trainjob_has_the_whole_jobset_in_its_runtime() -> None:
    text = (
        "gang: {workers: 4, leader: {command: [lead]}, rendezvous: {framework: torchrun}}\nqueue: research\ntimeout: 1h"
    )
    made, jobset = manifest(text, "trainjob"), manifest(text, "jobset")
    assert (made["apiVersion"], made["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    runtime = made["runtime"]
    # Without a policy Trainer changes neither the number of pods nor their variables.
    assert runtime["kind"] == made["spec"]["runtimeRef"]["kind"] == "TrainingRuntime"
    assert "mlPolicy" not in runtime["spec"]
    spec = runtime["spec"]["template"]["spec"]
    assert "suspend" not in spec, "the TrainJob says it"
    labels = [job["template"].pop("metadata", None) for job in spec["replicatedJobs"]]
    assert labels == [None, {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}]
    # All else is the JobSet, but for the name of a container.
    same = json.loads(json.dumps(jobset["spec"]).replace('"main"', '"node"'))
    del same["suspend"]
    assert spec == same


@pytest.mark.parametrize("word", ["trainjob", "pytorchjob"])
def test_no_helper_has_the_name_of_the_programs_container(word: str) -> None:
    with pytest.raises(GpuflowError) as refused:
        words(f"gang: 2\nsidecars: [{{name: {WORDS[word].container}, image: i:1, command: [run]}}]", word)
    (finding,) = refused.value.findings
    assert finding.code == "GF408" and finding.hint == "give the helper another name"


# -- MPIJob ----------------------------------------------------------------------------------------------------------


def test_the_launcher_of_an_mpijob_is_the_leader_and_no_sshd_runs() -> None:
    text = "gang: {workers: 4, leader: {command: [lead]}, rendezvous: {framework: torchrun}}\nqueue: research\n"
    made = manifest(text + "timeout: 1h", "mpijob")
    assert (made["apiVersion"], made["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    spec = made["spec"]
    policy = spec["runPolicy"]
    assert policy["suspend"] is True and (policy["backoffLimit"], policy["cleanPodPolicy"]) == (0, "Running")
    assert policy["activeDeadlineSeconds"] > 3600
    assert spec["runLauncherAsWorker"] is True and spec["sshAuthMountPath"] == "/etc/gpuflow-ssh"
    launcher, workers = spec["mpiReplicaSpecs"]["Launcher"], spec["mpiReplicaSpecs"]["Worker"]
    assert [(each["replicas"], each["restartPolicy"]) for each in (launcher, workers)] == [(1, "Never"), (4, "Never")]
    commands = [each["template"]["spec"]["containers"][0]["command"] for each in (launcher, workers)]
    assert [each[0] for each in commands] == ["gpuflow-run"] * 2 and commands[0][-1] == "lead"
    assert not any(word.startswith("--rank-offset") for each in commands for word in each), "the label is the rank"
    for each in (launcher, workers):
        env = {variable["name"]: variable.get("value") for variable in each["template"]["spec"]["containers"][0]["env"]}
        assert env["GPUFLOW_LEADER"] == env["PET_MASTER_ADDR"] == "$(GPUFLOW_GANG)-launcher.$(GPUFLOW_GANG)"
        assert not any(key.startswith("kueue") for key in each["template"]["metadata"]["labels"])
    # Of every other kind the workers are counted from 0.
    assert any("--rank-offset=1" in word for word in words(text, "jobset"))


# -- Volcano ---------------------------------------------------------------------------------------------------------


def test_a_job_of_volcano_starts_whole_and_restarts_nothing() -> None:
    text = "gang: {workers: 4, leader: {command: [lead]}, rendezvous: {framework: torchrun}}\ntimeout: 1h\n"
    made = manifest(text + "queue: research\npriority: {pod: training}", "volcano")
    spec = made["spec"]
    assert (made["apiVersion"], made["kind"]) == ("batch.volcano.sh/v1alpha1", "Job")
    assert (spec["schedulerName"], spec["queue"], spec["priorityClassName"]) == ("volcano", "research", "training")
    assert (spec["minAvailable"], spec["maxRetry"]) == (5, 1)
    assert spec["policies"] == [{"events": ["PodEvicted", "PodFailed"], "action": "TerminateJob"}]
    assert [(task["name"], task["replicas"], task["minAvailable"]) for task in spec["tasks"]] == [
        ("leader", 1, 1),
        ("worker", 4, 4),
    ]
    assert not any(label.startswith("kueue") for label in made["metadata"]["labels"])
    for task in spec["tasks"]:
        assert task["template"]["spec"]["activeDeadlineSeconds"] > 3600, "Volcano has no deadline for a whole Job"
        assert not any(label.startswith("kueue") for label in task["template"]["metadata"]["labels"])
        env = {each["name"]: each.get("value") for each in task["template"]["spec"]["containers"][0]["env"]}
        assert env["GPUFLOW_LEADER"] == env["PET_MASTER_ADDR"] == "$(GPUFLOW_GANG)-leader-0.$(GPUFLOW_GANG)"
    alone = manifest("gang: 2", "volcano")["spec"]
    assert "queue" not in alone and "priorityClassName" not in alone
    env = {each["name"]: each.get("value") for each in alone["tasks"][0]["template"]["spec"]["containers"][0]["env"]}
    assert env["GPUFLOW_LEADER"] == "$(GPUFLOW_GANG)-worker-0.$(GPUFLOW_GANG)"


def test_a_scheduler_that_the_step_names_is_the_whole_jobs() -> None:
    text = "gang: 2\nkubernetes: {scheduler: volcano-gpu}"
    assert manifest(text, "volcano")["spec"]["schedulerName"] == "volcano-gpu"


@pytest.mark.parametrize("word", ["volcano", "jobset+volcano"])
def test_a_priority_of_kueues_is_not_lost_on_volcano(word: str) -> None:
    text = "gang: 2\nqueue: research\npriority: {queue: high}"
    ((field, problem, hint),) = refusals_of(pipeline(text).effective("train"), word)
    assert field == ("priority", "queue") and "priority.queue" in problem and "priority.pod" in hint
    assert not list(refusals_of(pipeline(text).effective("train"), "jobset"))
    with pytest.raises(GpuflowError, match="GF408"):
        manifest(text, word)


@pytest.mark.parametrize("word", ["volcano", "jobset+volcano"])
def test_racks_are_kept_by_affinity_where_kueue_has_no_part(word: str) -> None:
    given = Site.model_validate({
        **site(word).model_dump(), "topology": {"rack": "example.com/rack", "queues": ["research"]},
    })  # fmt: skip
    made = launcher_for(planned_step(pipeline("gang: 2\nqueue: research\ntopology: {same: rack}"), "train", given))
    text = json.dumps(made)
    assert "podset-required-topology" not in text and "podAffinity" in text


# -- A JobSet that Volcano places ------------------------------------------------------------------------------------


@pytest.mark.parametrize("leads", [False, True])
def test_a_jobset_that_volcano_places_is_a_jobset_with_one_podgroup(leads: bool) -> None:
    text = f"gang: {{workers: 4, leader: {'{command: [lead]}' if leads else 'null'}}}\ntimeout: 1h\n"
    made = manifest(text + "queue: research\npriority: {pod: training}", "jobset+volcano")
    plain = manifest(text + "priority: {pod: training}", "jobset")
    # Without resources: see gpuflow/pod/gang_kinds.py.
    assert made.pop("podGroup") == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "spec": {"minMember": 5 if leads else 4, "queue": "research", "priorityClassName": "training"},
    }
    for each in gang_templates(made):
        assert each["spec"].pop("schedulerName") == "volcano"
    # All else is the JobSet of a step without a queue: Kueue has no part in it.
    assert made == plain and "kueue" not in json.dumps(made) and "suspend" not in made["spec"]


def gang_templates(made: dict[str, Any]) -> list[dict[str, Any]]:
    kind = kind_of(made)
    assert kind is not None
    return kind.templates(made)


def test_a_podgroup_says_only_what_is_said() -> None:
    spec = manifest("gang: 2", "jobset+volcano")["podGroup"]["spec"]
    assert spec == {"minMember": 2}, "Volcano's queue is default then"
    text = "gang: 2\nkubernetes: {scheduler: volcano-gpu}"
    (template,) = gang_templates(manifest(text, "jobset+volcano"))
    assert template["spec"]["schedulerName"] == "volcano-gpu"


def test_the_pods_of_each_attempt_are_of_the_podgroup_of_that_attempt() -> None:
    kind = WORDS["jobset+volcano"]
    gang = Gang(manifest("gang: {workers: 2, leader: true}", kind.word), Names("p", "r", "train"), None)
    bodies = [gang.body(attempt, 0, 0) for attempt in (1, 2)]
    for body in bodies:
        first, made = kind.split(body)
        assert first is not None and "podGroup" not in made and "podGroup" in body
        name = made["metadata"]["name"]
        assert first["metadata"]["name"] == name and gang.is_ours(first) and first["spec"]["minMember"] == 3
        groups = [each["metadata"]["annotations"][GROUP] for each in kind.templates(made)]
        assert groups == [name, name], "the leader and its workers start together"
        assert GROUP not in json.dumps(body), "what is taken apart stays as it was"


@pytest.mark.parametrize(
    ("gangs", "message", "hint"),
    [
        ("scheduler: yunikorn", "'yunikorn'", "write volcano"),
        ("kind: volcano, scheduler: volcano", "volcano schedules its own Jobs anyway", "remove gangs.scheduler"),
        ("kind: trainjob, scheduler: volcano", "of a trainjob", "write kind: jobset"),
        ("scheduler: volcano, kind: mpijob", "of a mpijob", "write kind: jobset"),
    ],
)
def test_a_scheduler_that_a_gang_cannot_have_is_refused_by_name(
    gangs: str, message: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"apiVersion: gpuflow/v1\nkind: Site\nname: s\ngangs: {{{gangs}}}\n")
    with pytest.raises(GpuflowError) as refused:
        Site.load(str(path))
    (finding,) = refused.value.findings
    assert finding.code == "GF416" and message in finding.message and hint in str(finding.hint)
    assert (finding.where.line, finding.where.column) == (4, 9 + f"{{{gangs}}}".index("scheduler: ") + 10)


def test_the_demand_says_that_volcano_queues_it_and_what_kueue_would() -> None:
    plan = plan_of(pipeline("gang: 4\nqueue: research"), site("jobset+volcano"))
    demand = demand_of(plan.pipeline, plan.site)
    (step,) = demand.steps
    metadata = step.pod_sets[0].pod["metadata"]
    assert metadata["annotations"][MADE_BY] == "jobset+volcano"
    # A LocalQueue called default would take the JobSet in.
    assert metadata["annotations"][QUEUED_BY] == "jobset.x-k8s.io/jobset"
    assert not any(label.startswith("kueue") for label in metadata["labels"])
    assert step.pod_sets[0].pod["spec"]["schedulerName"] == "volcano"
    (unseen,) = demand.unseen
    assert unseen.is_placement and "Volcano's queue research" in unseen.because
