"""Gangs of another kind than JobSet: what the site may name, what is made, counted and allowed, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from gpuflow.codes import CODES
from gpuflow.demands import demand_of
from gpuflow.errors import GpuflowError
from gpuflow.kubernetes.expansion import expanded
from gpuflow.kubernetes.labels import QUEUED_BY
from gpuflow.plan import plan_of
from gpuflow.pod import pod_notes
from gpuflow.pod.gang_account import airflow_role, gang_account, gang_role
from gpuflow.pod.gang_kinds import SPELLINGS
from gpuflow.pod.launcher import launcher_for
from gpuflow.readers.kubernetes.owner import INTEGRATIONS
from gpuflow.runtime.gang_kinds import KINDS, WORDS
from gpuflow.site import Site
from gpuflow.site.model import GangWord
from gpuflow.spec.loading import loads

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps:\n  train:\n    image: i:1\n    command: [run]\n"
TORCH = "gang: {workers: 4, rendezvous: {framework: torchrun, processes_per_worker: 8}}"


def site(kind: str, **more: Any) -> Site:
    return Site.model_validate({**Site.load("nvidia").model_dump(), "gangs": {"kind": kind, **more}})


def pipeline(text: str) -> Any:
    return loads((HEAD + "".join(f"    {line}\n" for line in text.splitlines())).encode())


def words(text: str, kind: str = "pytorchjob") -> list[str]:
    container = launcher_for(pipeline(text), "train", site(kind))["spec"]["containers"][0]
    return [expanded(word, {}) for word in container["command"]]


def manifest(text: str, kind: str = "pytorchjob") -> dict[str, Any]:
    (given,) = (word for word in words(text, kind) if word.startswith("--manifest="))
    found: dict[str, Any] = json.loads(given.partition("=")[2])
    return found


def test_one_table() -> None:
    assert set(SPELLINGS) == set(get_args(GangWord))
    assert {each.kind.name for each in SPELLINGS.values()} == set(KINDS)
    assert {word: each.kind for word, each in SPELLINGS.items()} == WORDS
    for each in SPELLINGS.values():
        assert INTEGRATIONS[each.kind.name, each.kind.group] == each.kind.integration


@pytest.mark.parametrize("kind", ["trainjob", "mpijob", "volcano", "JobSet", "job"])
def test_a_kind_that_is_not_whole_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"apiVersion: gpuflow/v1\nkind: Site\nname: s\ngangs: {{kind: {kind}}}\n")
    with pytest.raises(GpuflowError) as refused:
        Site.load(str(path))
    (finding,) = refused.value.findings
    assert finding.code == "GF408" and repr(kind) in finding.message and "jobset, pytorchjob" in str(finding.hint)
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


def test_a_helper_with_the_name_of_the_programs_container_is_refused() -> None:
    with pytest.raises(GpuflowError) as refused:
        words("gang: 2\nsidecars: [{name: pytorch, image: i:1, command: [run]}]")
    assert [each.code for each in refused.value.findings] == ["GF408"]


@pytest.mark.parametrize(
    ("kind", "resource", "jobs"), [("jobset", "jobsets", True), ("pytorchjob", "pytorchjobs", False)]
)
def test_the_role_is_for_the_kind(kind: str, resource: str, jobs: bool) -> None:
    roles = (
        gang_account("a", None, reports=False, kind=kind)[1],
        gang_role("a", None, kind)[0],
        airflow_role([("airflow", "worker")], None, kind)[0],
    )
    for role in roles:
        allowed = {name: rule["verbs"] for rule in role["rules"] for name in rule["resources"]}
        assert allowed[resource] == ["create", "get", "list", "patch", "delete"]
        assert ("jobs" in allowed) is jobs and "pods/log" in allowed


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
