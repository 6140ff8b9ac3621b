"""Gangs on Airflow: a task that makes a JobSet, and for stock operators a pod that does.

Tests gpuflow/airflow/gang_operator.py and gpuflow/airflow/gang_trigger.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow import Step
from gpuflow.airflow import GpuGangOperator, GpuPodOperator, Pod, attempts, gpu_step, to_dag
from gpuflow.airflow.gang_trigger import GpuGangTrigger
from gpuflow.airflow.refusals import refusal_hint, refusal_of
from gpuflow.airflow.trigger import GpuPodTrigger
from gpuflow.core.errors import GpuflowError
from gpuflow.demands import Demand, demand_of
from gpuflow.plan import planned_step
from gpuflow.pod import Engine
from gpuflow.pod.build import made_pod
from gpuflow.pod.gang_kinds import SPELLINGS
from gpuflow.pod.later_attempts import changes_of
from gpuflow.readers import ForeignObject, Library, Options
from gpuflow.readers.python import Pythons, read_program
from gpuflow.runtime.gangs.attempt_object import read_verdict
from gpuflow.runtime.gangs.attempt_verdict import Verdict
from gpuflow.runtime.gangs.kinds import WORDS, GangKind, kind_of
from gpuflow.runtime.gangs.later_attempts import EarlierAttempts
from gpuflow.runtime.gangs.ranks import protocol
from gpuflow.site import Site
from gpuflow.spec.canonical import meaning_of
from gpuflow.spec.loading import loads
from gpuflow.targets.airflow import target
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.airflow.operators import slots
from gpuflow.targets.target import Request, compile_with
from tests.cli.commands import Gpuflow
from tests.cli.conftest import gpuflow
from tests.gang_words import said

from .playing import Stage

__all__ = ["gpuflow"]
SITE = Site.load("nvidia")
HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
TRAIN = "steps:\n  train:\n    image: i:1\n    command: [run]\n"
RETRY = "retry: {failures: 1, interruptions: 9, final_exit_codes: [4]}"
GANG = f"gang: 4\noutputs: {{loss: float}}\nqueue: research\n{RETRY}\ntimeout: 1h"


def pipeline_of(text: str, before: str = "") -> Any:
    return loads((HEAD + before + TRAIN + "".join(f"    {line}\n" for line in text.splitlines())).encode())


def compiled(text: str, before: str = "", site: Site = SITE, **options: Any) -> str:
    pipeline = pipeline_of(text, before)
    request = Request(pipeline, site, None, "p.yaml", (), AirflowOptions(**options))
    (artifact,) = compile_with(target, request, allow_lossy=False).artifacts
    return artifact.text


def jobset_of(task: Any, ledger: attempts.Ledger) -> dict[str, Any]:
    """What the task would create in a run."""
    made: dict[str, Any] = task._manifest(Stage().context(task), ledger)
    return made


def test_a_gang_is_one_task_that_makes_one_jobset_for_each_attempt() -> None:
    task = to_dag(pipeline_of(GANG)).task_dict["train"]
    assert isinstance(task, GpuGangOperator) and task.workers == 4
    made = jobset_of(task, attempts.Ledger(epoch=0, pods=2, judged=2, failures=1, interruptions=1))
    metadata, (job,) = made["metadata"], made["spec"]["replicatedJobs"]
    assert metadata["name"].startswith("train-") and metadata["name"].endswith("-3")
    assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "research" and made["spec"]["suspend"] is True
    assert {key: metadata["labels"][key] for key in ("dag_id", "task_id")} == {"dag_id": "finetune", "task_id": "train"}
    notes = {key: metadata["annotations"][f"gpuflow.dev/{key}"] for key in ("attempt", "failures", "interruptions")}
    assert notes == {"attempt": "3", "failures": "1", "interruptions": "1"}
    ranks = job["template"]["spec"]
    assert (ranks["parallelism"], ranks["backoffLimit"], ranks["activeDeadlineSeconds"]) == (4, 0, 3600 + 3600 + 30)
    assert made["spec"]["failurePolicy"]["maxRestarts"] == 0
    pod = ranks["template"]
    assert "kueue.x-k8s.io/queue-name" not in pod["metadata"]["labels"], "Kueue admits the whole"
    assert pod["metadata"]["labels"]["task_id"] == "train"
    assert "kubernetes_pod_operator" not in pod["metadata"]["labels"]
    command = pod["spec"]["containers"][0]["command"]
    assert "--gang=4" in command and "--engine=none" in command, "outputs go into rank 0's last words, not to Airflow"


def test_the_copies_of_a_mapped_gang_are_gangs_of_their_own() -> None:
    dag = to_dag(pipeline_of("gang: 2\nfor_each: {lr: [1, 2]}"))
    mapped = dag.task_dict["train"]
    names = set()
    for index, item in enumerate(({"lr": 1}, {"lr": 2})):
        task = mapped.unmap({"item": item})
        context = Stage().context(task)
        context["ti"].map_index = index
        made: dict[str, Any] = task._manifest(context, attempts.Ledger(epoch=0))
        names.add(made["metadata"]["name"])
        assert made["metadata"]["labels"]["map_index"] == str(index)
    assert len(names) == 2


def test_a_cleared_task_begins_anew_with_a_name_of_its_own() -> None:
    task = to_dag(pipeline_of(GANG)).task_dict["train"]
    over = jobset_of(task, attempts.Ledger(epoch=3, pods=1, judged=0))
    context = Stage(store=None, max_tries=9).context(task)
    ledger = attempts.load_ledger(context, [over])
    again = jobset_of(task, ledger)
    assert (ledger.failures, ledger.interruptions) == (0, 0)
    assert again["metadata"]["annotations"]["gpuflow.dev/attempt"] == "3"
    variables = again["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "GPUFLOW_RUN_AFTER_FINAL", "value": "renew"} in variables


def test_the_trigger_goes_on_in_another_triggerer() -> None:
    gang = {"shape": [4, "worker", 30.0], "settle": 20.0, "final_exit_codes": [4], "retryable_exit_codes": None}
    made = GpuGangTrigger(gang=gang, pod_name="train-1", pod_namespace="ml", wait_for="end", queue_deadline=7.0)
    path, arguments = made.serialize()
    assert path == "gpuflow.airflow.gang_trigger.GpuGangTrigger"
    again = GpuGangTrigger(**json.loads(json.dumps(arguments)))
    assert again.serialize() == made.serialize() and again.gang == gang
    assert GpuPodTrigger(pod_name="a", pod_namespace="b", wait_for="end").serialize()[0].endswith(".GpuPodTrigger")


REFUSED = {
    "gang: 2\noutputs: {a: string}\noutputs_from: xcom": "Airflow reads no /airflow/xcom/return.json of a rank",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_a_gang_cannot_have_is_refused_by_name(text: str) -> None:
    with pytest.raises(GpuflowError) as refusal:
        compiled(text)
    (finding,) = [each for each in refusal.value.findings if each.code == "GF378"]
    assert REFUSED[text] in finding.message and finding.hint and finding.where.line


def test_mpi_is_compiled_with_a_launcher_and_without() -> None:
    text = "gang: {workers: 2, rendezvous: {framework: mpi, processes_per_worker: 4}}"
    assert '"--mpi=4"' in compiled(text)
    assert "--mpi=4" in compiled(text, standalone=True)


def test_parallel_beside_a_gang_is_refused_because_ranks_are_not_counted() -> None:
    with pytest.raises(GpuflowError, match="Airflow cannot count the ranks of a gang"):
        compiled("gang: 2", before="parallel: 8\n")
    assert "max_active_tis_per_dagrun=1" in compiled("gang: 2\nfor_each: {i: [1, 2]}\nparallel: 1")


def test_an_attempt_is_known_to_the_operator_and_not_to_a_launcher() -> None:
    text = "gang: 2\nenv: {N: {run: attempt}}"
    task = to_dag(pipeline_of(text)).task_dict["train"]
    task.template = task.template.resolve(Stage().context(task))
    made = jobset_of(task, attempts.Ledger(epoch=0, pods=4, judged=4))
    env = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "N", "value": "5"} in env
    with pytest.raises(GpuflowError, match="are not Airflow's tries"):
        compiled(text, standalone=True)


@pytest.mark.parametrize("given", ["limits", "sidecar_resources"])
def test_the_operator_refuses_what_a_gang_cannot_have(given: str) -> None:
    with pytest.raises(GpuflowError, match=f"GpuGangOperator does not take {given}"):
        GpuGangOperator(task_id="a", template=Pod(spec={"containers": [{}]}), workers=2, **{given: 1})


def test_a_step_in_a_dag_of_your_own_is_a_gang() -> None:
    task = gpu_step(Step(image="i", command=["x"], gang=3), task_id="a")
    assert isinstance(task, GpuGangOperator) and task.workers == 3
    retry = {"failures": 1, "more_memory": {"factor": 2, "max": "4Gi"}}
    greedy = gpu_step(Step(image="i", command=["x"], gang=3, memory="1Gi", retry=retry), task_id="b")
    assert isinstance(greedy, GpuGangOperator) and greedy.more_memory == {"factor": 2, "max": "4Gi"}


LATER = (
    "gang: 2\ngpu: l4\nmemory: 8Gi\nspot: {mode: require, fallback_after: 2}\n"
    "retry: {failures: 3, interruptions: 5, other_node: true, more_memory: {factor: 1.5, max: 20Gi}}"
)


def test_the_jobset_of_a_later_attempt_has_more_memory_other_nodes_and_no_spot() -> None:
    pipeline, site = meaning_of(pipeline_of(LATER)), meaning_of(Site.load("gke"))
    task = to_dag(pipeline, site=site).task_dict["train"]
    task.template = task.template.resolve(Stage().context(task))

    def ranks(**counts: Any) -> dict[str, Any]:
        context = Stage(store=None).context(task)
        made = jobset_of(task, attempts.Ledger(epoch=context["ti"].max_tries, pods=4, judged=4, **counts))
        kept = attempts.load_ledger(context, [made])
        assert kept.before() == attempts.Ledger(epoch=0, **counts).before(), "the next worker knows it too"
        found: dict[str, Any] = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        return found

    def scheduling(spec: dict[str, Any]) -> dict[str, Any]:
        return {key: spec.get(key) for key in ("affinity", "nodeSelector", "tolerations")}

    first, grown = ranks(), ranks(out_of_memory=1, failures=1)
    limits = [each["containers"][0]["resources"]["limits"]["memory"] for each in (first, grown)]
    assert limits == ["8Gi", "12Gi"] and scheduling(first) == scheduling(grown)
    assert scheduling(ranks(interruptions=1)) == scheduling(first)
    changes = changes_of(made_pod(planned_step(pipeline, "train", site)))
    fixed = changes.spec(first, EarlierAttempts(interruptions=2))
    assert scheduling(ranks(interruptions=2)) == scheduling(fixed) != scheduling(first)
    away = ranks(failures=1, failed_nodes=("node-a",))["affinity"]["nodeAffinity"]
    (term,) = away["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["node-a"]}]


LED = LATER.replace("gang: 2", "gang: {workers: 3, leader: {gpu: null, memory: 4Gi, command: [lead, {param: lr}]}}")
PARAM = "params: {lr: x}\n"


def test_a_leader_is_a_pod_of_its_own_in_the_same_task() -> None:
    pipeline, site = meaning_of(pipeline_of(LED, PARAM)), meaning_of(Site.load("gke"))
    task = to_dag(pipeline, site=site).task_dict["train"]
    assert isinstance(task, GpuGangOperator) and isinstance(task.leader, Pod)
    assert task._shape() == [4, "leader", 30.0, "JobSet"]
    context = {**Stage(store=None).context(task), "params": {"lr": "x"}}
    task.template, task.leader = task.template.resolve(context), task.leader.resolve(context)
    for counts, before in (
        ({}, EarlierAttempts()),
        ({"out_of_memory": 1, "failures": 1}, EarlierAttempts(1)),
        ({"interruptions": 2}, EarlierAttempts(interruptions=2)),
        ({"failures": 1, "failed_nodes": ("node-a",)}, EarlierAttempts(failed_nodes=("node-a",))),
    ):
        made = jobset_of(task, attempts.Ledger(epoch=0, pods=4, judged=4, **counts))
        leader, workers = (job["template"]["spec"]["template"] for job in made["spec"]["replicatedJobs"])
        assert leader["metadata"]["labels"]["task_id"] == "train"
        assert leader["spec"]["containers"][0]["command"][-2:] == ["lead", "x"]
        assert "--rank-offset=1" in workers["spec"]["containers"][0]["command"]
        for leads, pod in ((True, leader), (False, workers)):
            first = (task.leader if leads else task.template)["spec"]
            own_pod = made_pod(planned_step(pipeline, "train", site), None, Engine(leads=leads))
            expected = changes_of(own_pod).spec(first, before)
            own = {key: pod["spec"].get(key) for key in ("affinity", "nodeSelector", "tolerations")}
            assert own == {key: expected.get(key) for key in own}
            limits = [each["containers"][0]["resources"]["limits"] for each in (pod["spec"], expected)]
            assert limits[0] == limits[1]


def test_a_compiled_leader_asks_for_the_same(tmp_path: Path) -> None:
    gke = Site.load("gke")
    own = demand_of(pipeline_of(LED, PARAM), gke, "airflow")
    for standalone, launchers in ((False, 0), (True, 1)):
        text = compiled(LED, PARAM, gke, standalone=standalone)
        assert standalone or text.count("Pod(") >= 2
        folder = tmp_path / str(standalone)
        folder.mkdir()
        read = read_back(text, folder)
        assert str(read.peak["requests.nvidia.com/gpu"].value) == str(own.peak["requests.nvidia.com/gpu"].value) == "3"
        assert int(str(read.peak["pods"].value)) == 4 + launchers
    assert "--leader-on-demand=" in compiled(LED, PARAM, gke, standalone=True)


def test_a_leader_with_values_of_other_tasks_waits_for_them() -> None:
    before = "steps:\n  first: {image: i, command: [x], outputs: {n: string}}\n"
    text = (
        HEAD
        + before
        + TRAIN.replace("steps:\n", "")
        + "    gang: {workers: 1, leader: {env: {N: {output: first.n}}}}\n"
    )
    dag = to_dag(loads(text.encode()))
    assert dag.task_dict["train"].upstream_task_ids == {"first"}


def test_the_leader_of_a_mapped_gang_has_its_item() -> None:
    text = "gang: {workers: 1, leader: {command: [lead, {item: s}]}}\nfor_each: {s: [1, 2]}"
    task = to_dag(pipeline_of(text)).task_dict["train"].unmap({"item": {"s": 2}})
    jobs = jobset_of(task, attempts.Ledger(epoch=0))["spec"]["replicatedJobs"]
    leader, worker = (job["template"]["spec"]["template"]["spec"]["containers"][0]["command"] for job in jobs)
    assert leader[-2:] == ["lead", "2"] and "--item=s=2" in leader and "--item=s=2" in worker


def test_the_operator_makes_no_pytorchjob_with_a_leader() -> None:
    pod = Pod(spec={"containers": [{}]})
    with pytest.raises(GpuflowError, match=r"GF408.*init container"):
        GpuGangOperator(task_id="a", template=pod, leader=pod, workers=2, kind="pytorchjob")
    with pytest.raises(GpuflowError, match=r"GF378.*init container"):
        compiled("gang: {workers: 2, leader: true}", site=PYTORCH)


def test_a_leader_takes_its_own_slots_of_one_pool() -> None:
    assert slots(pipeline_of(LED, PARAM).effective("train"), SITE) == {"gpu": 3}
    mixed = "mig: 1g.10gb of a100-80gb\ngang: {workers: 2, leader: {gpu: l4}}"
    assert compiled(mixed)
    with pytest.raises(GpuflowError, match="a task of Airflow is in one pool"):
        compiled(mixed, pools=True)


def test_a_launcher_of_the_stock_operator_keeps_them_too() -> None:
    text = compiled(LATER, site=Site.load("gke"), standalone=True)
    for word in ("--more-memory=1.5:20Gi", "--other-node", "--fallback-after=2", "--on-demand="):
        assert word in text
    assert "fallback_after=" not in text and "more_memory=" not in text, "the stock operator has no such arguments"
    with pytest.raises(GpuflowError, match=r"retry\.more_memory"):
        compiled(LATER.replace("gang: 2\n", ""), site=Site.load("gke"), standalone=True)


# -- outputs and ends ------------------------------------------------------------------------------------------------


def rank_0(outputs: dict[str, Any] | None) -> dict[str, Any]:
    words = "" if outputs is None else "done\n" + json.dumps({"gpuflow": 1, "outputs": outputs})
    ended = {"name": "main", "state": {"terminated": {"exitCode": 0, "message": words}}}
    return {"metadata": {"name": "train-worker-0-0-abcde"}, "status": {"containerStatuses": [ended]}}


@pytest.mark.parametrize(
    ("said", "outcome", "values"),
    [
        ({"loss": "0.5", "tags": '["a"]', "model": "s3://b/m"}, "succeeded", {"loss": 0.5, "tags": ["a"]}),
        ({"loss": "none", "tags": "[]", "model": "s3://b/m"}, "failed (retryable)", {}),
        ({"tags": "[]", "model": "s3://b/m"}, "failed (retryable)", {}),
        (None, "interrupted", {}),
    ],
)
def test_outputs_are_typed_and_a_gang_without_them_has_not_succeeded(
    said: dict[str, Any] | None, outcome: str, values: dict[str, Any]
) -> None:
    kinds = {"loss": "float", "tags": "json", "model": "string"}
    task = GpuGangOperator(
        task_id="a", template=Pod(spec={"containers": [{}]}), workers=2, outputs=kinds, artifacts={"model": {}}
    )
    verdict, found = task._outputs_of(rank_0(said), Verdict("succeeded", "the JobSet is completed"))
    assert verdict.outcome == outcome
    assert found == ({**values, "model": "s3://b/m"} if values else {})
    assert task.kept == ({"model": {"uri": "s3://b/m"}} if values else {})


def test_the_message_of_a_failed_try_names_the_rank_that_was_first() -> None:
    from gpuflow.airflow.gang_operator import _sentence

    said = "gpuflow-run: attempt 1 failed (retryable): rank 3: exit code 3\n{}"
    ended = {"name": "main", "state": {"terminated": {"exitCode": 3, "message": said}}}
    assert _sentence({"status": {"containerStatuses": [ended]}}) == f" ({said.splitlines()[0]})"
    assert _sentence(rank_0(None)) == _sentence(None) == "", "the program's own text is no part of it"


def test_a_verdict_that_is_written_down_is_read_again() -> None:
    from gpuflow.runtime.gangs.attempt_object import note_verdict

    verdict = Verdict("interrupted", "worker 2: it was disrupted", None)
    assert read_verdict({"metadata": note_verdict(verdict)["metadata"]}) == verdict
    assert read_verdict({"metadata": note_verdict(Verdict("succeeded", "yes"))["metadata"]}) is None, (
        "success needs its outputs"
    )


# -- stock operators -------------------------------------------------------------------------------------------------


def test_a_standalone_file_runs_the_launcher_with_both_budgets() -> None:
    text = compiled(GANG, standalone=True)
    assert "KubernetesPodOperator(" in text and "gpuflow.airflow" not in text
    for word in ("--failures=1", "--interruptions=9", "--final-exit-codes=4", "--owner=none", "--engine=airflow"):
        assert f'"{word}"' in text
    assert "retries=3" in text and "retry_delay=timedelta(seconds=10)" in text
    older = compiled(GANG, standalone=True, airflow="2.10")
    assert "from airflow.models.dag import DAG" in older and '"--interruptions=9"' in older


def test_who_looks_after_the_gang_is_said(gpuflow: Gpuflow, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(HEAD + TRAIN + "    gang: 2\n")
    own = gpuflow("compile", path, "--target", "airflow").err
    assert "GF388" in own and "the accounts of Airflow's workers and triggerer" in own and "GF379" not in own
    stock = gpuflow("compile", path, "--target", "airflow", "--standalone").err
    assert "GF379" in stock and "a pod of the stock operator looks after the gang" in stock
    assert "train (for its gang)" in stock


def test_the_role_of_airflows_accounts(gpuflow: Gpuflow) -> None:
    words = ("site", "gang", "--engine", "airflow", "--namespace", "ml")
    role, binding = yaml.safe_load_all(gpuflow(*words, "--account", "air/worker").out)
    assert role["rules"][0]["resources"] == ["jobsets"] and "delete" in role["rules"][0]["verbs"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "worker", "namespace": "air"}]
    assert (binding["roleRef"]["name"], binding["metadata"]["namespace"]) == (role["metadata"]["name"], "ml")
    _, usual = yaml.safe_load_all(gpuflow(*words).out)
    assert [each["name"] for each in usual["subjects"]] == ["airflow-worker", "airflow-triggerer"]
    wrong = gpuflow(*words, "--account", "worker")
    assert wrong.code == 2 and "GF388" in wrong.err and "NAMESPACE/NAME" in wrong.err


# -- demand ----------------------------------------------------------------------------------------------------------


def read_back(text: str, folder: Path) -> Demand:
    (folder / "dag.py").write_text(text)
    (document,) = read_program(str(folder / "dag.py"), Pythons(sys.executable), allowed=True)
    made = ForeignObject(document, Library((document,))).demand(Options(SITE))
    assert isinstance(made, Demand)
    return made


GPUS = "gang: 4\ngpu: a100-80gb x 2\nmemory: 1Gi\ncpu: 1"


def test_airflow_itself_is_no_pod_and_all_ranks_count(tmp_path: Path) -> None:
    made = demand_of(pipeline_of(GPUS), SITE, "airflow")
    (step,) = made.steps
    assert [(each.name, each.count) for each in step.pod_sets] == [("worker", 4)]
    assert demand_of(pipeline_of(GPUS), SITE, "argo").steps[0].pods == 5, "Argo has a launcher"
    read = read_back(compiled(GPUS), tmp_path)
    for key in ("requests.nvidia.com/gpu", "pods", "requests.memory"):
        assert str(read.peak[key].value) == str(made.peak[key].value)
    assert str(read.peak["requests.nvidia.com/gpu"].value) == "8"


def test_the_ranks_behind_a_stock_operator_are_not_missed(tmp_path: Path) -> None:
    read = read_back(compiled(GPUS, standalone=True), tmp_path)
    assert str(read.peak["requests.nvidia.com/gpu"].value) == "8"
    assert str(read.peak["pods"].value) == "5", "and the launcher"


def test_a_gang_takes_the_slots_of_all_its_ranks() -> None:
    step = pipeline_of(GPUS).effective("train")
    assert slots(step, SITE) == {"gpu": 8}
    assert "pool_slots=8" in compiled(GPUS, pools=True)


def test_other_tasks_are_as_they_were() -> None:
    assert type(to_dag(pipeline_of("gpu: a100-80gb")).task_dict["train"]) is GpuPodOperator


PYTORCH = Site.model_validate({**SITE.model_dump(), "gangs": {"kind": "pytorchjob"}})


def site_of(word: str) -> Site:
    return Site.model_validate({**SITE.model_dump(), "gangs": said(word)})


def secrets_of(kind: GangKind, made: dict[str, Any]) -> str:
    """What the ranks of one attempt prove to be of it with: the same for all."""
    programs = [each["spec"]["containers"][0] for each in kind.templates(made)]
    assert all(each["name"] == kind.container for each in programs)
    (secret,) = {row["value"] for each in programs for row in each["env"] if row["name"] == protocol.SECRET}
    return str(secret)


@pytest.mark.parametrize("word", WORDS)
def test_a_gang_of_any_kind_is_made_and_followed_as_one(word: str, tmp_path: Path) -> None:
    kind = WORDS[word]
    given = GANG if 1 in kind.sets else GANG.replace("gang: 4", "gang: {workers: 3, leader: true}")
    text = compiled(given, site=site_of(word))
    for field, value in said(word).items():
        assert f"{field}='{value}'" in text.replace('"', "'") or (field, value) == ("kind", "jobset")
    dag = to_dag(pipeline_of(given), site=site_of(word))
    task = dag.get_task("train")
    made = jobset_of(task, attempts.Ledger(epoch=0))
    assert kind_of(made) is kind and task.what == kind.name
    assert made["metadata"]["annotations"]["gpuflow.dev/attempt"] == "1"
    assert all(each["metadata"]["labels"]["task_id"] == "train" for each in kind.templates(made))
    assert len(secrets_of(kind, made)) == 64 and secrets_of(kind, made) != secrets_of(
        kind, jobset_of(task, attempts.Ledger(epoch=0))
    )
    sets = kind.pod_sets(made)
    assert task._shape() == [sum(each.size for each in sets), sets[0].name, 30.0, kind.name]
    trigger = task._trigger(wait_for="end", pod_name="n", pod_namespace="ns")
    assert trigger._path == f"/apis/{kind.api_version}/namespaces/ns/{kind.plural}/n"
    assert (trigger.container, trigger.what) == (kind.container, kind.name)
    again = GpuGangTrigger(**trigger.serialize()[1])
    assert again._path == trigger._path
    own = demand_of(pipeline_of(given), site_of(word), "airflow")
    assert read_back(text, tmp_path).peak["pods"].value == own.peak["pods"].value


@pytest.mark.parametrize("kind", ["job", "JobSet", ""])
def test_the_operator_refuses_a_kind_that_gangs_cannot_be(kind: str) -> None:
    with pytest.raises(GpuflowError, match="GF408"):
        GpuGangOperator(task_id="t", template=Pod({}, spec={"containers": []}), workers=2, kind=kind)


@pytest.mark.parametrize(("kind", "scheduler"), [("jobset", "yunikorn"), ("volcano", "volcano"), ("mpijob", "volcano")])
def test_the_operator_refuses_a_scheduler_that_gangs_cannot_have(kind: str, scheduler: str) -> None:
    pod = Pod({}, spec={"containers": []})
    with pytest.raises(GpuflowError, match="GF416"):
        GpuGangOperator(task_id="t", template=pod, workers=2, kind=kind, scheduler=scheduler)
    with pytest.raises(GpuflowError, match="GF408"):
        GpuGangOperator(task_id="t", template=pod, workers=2, kind="jobset+volcano")


def test_what_is_missing_in_the_cluster_is_named_by_kind() -> None:
    for word, spelled in SPELLINGS.items():
        kind = WORDS[word]
        refusal = refusal_of(404, None, kind)
        assert all(api in refusal.words for api in kind.served_by) and f"install {spelled.needs} in" in refusal_hint(
            refusal.words
        )
        for each in (kind, kind.before):
            if each is not None:
                denied = f'{each.plural}.{each.group} is forbidden: User "x" cannot create resource "{each.plural}"'
                assert "gpuflow site gang --engine airflow" in refusal_hint(denied)
    assert "site gang" not in refusal_hint('pods "jobs-1" is forbidden: User "x" cannot create resource "pods"')
