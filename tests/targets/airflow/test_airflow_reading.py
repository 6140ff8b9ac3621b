"""DAG files that gpuflow did not write, read by a real Airflow: their pods are those that the operators would send.

Tests gpuflow/readers/python/dags.py, gpuflow/readers/python/inside_engine.py and gpuflow/formats/airflow.py.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuflow.api import check
from gpuflow.checker.report import Report
from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.demands import Demand
from gpuflow.readers import ForeignObject, Library, Options
from gpuflow.readers.python import Pythons, read_program
from gpuflow.site import Site
from tests.cli.commands import Gpuflow
from tests.cli.conftest import gpuflow
from tests.conftest import ROOT

__all__ = ["gpuflow"]
HEAD = """
from datetime import datetime
from airflow.sdk import DAG, TaskGroup, task, task_group, dag
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator
from airflow.providers.cncf.kubernetes.operators.resource import KubernetesCreateResourceOperator
from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.python import BranchPythonOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from kubernetes.client import models as k8s

def gpus(number):
    return k8s.V1ResourceRequirements(requests={"cpu": "1"}, limits={"nvidia.com/gpu": str(number)})

def pod(name, number=1, **more):
    return KubernetesPodOperator(task_id=name, image="i", container_resources=gpus(number), **more)

"""
DAGS = {
    "chain": "a, b = pod('a', 2), pod('b', 3)\n    a >> b",
    "side_by_side": "pod('a', 2), pod('b', 3)",
    "mapped": "KubernetesPodOperator.partial(task_id='a', image='i', container_resources=gpus(2)).expand("
    "arguments=[['x'], ['y'], ['z']])",
    "mapped_at_once": "KubernetesPodOperator.partial(task_id='a', image='i', container_resources=gpus(2),"
    " max_active_tis_per_dagrun=2).expand(arguments=[['x'], ['y'], ['z']])",
    "mapped_resources": "KubernetesPodOperator.partial(task_id='a', image='i').expand("
    "container_resources=[gpus(1), gpus(2), gpus(4)])",
    "mapped_kwargs": "KubernetesPodOperator.partial(task_id='a', image='i', container_resources=gpus(2)).expand_kwargs("
    "[{'arguments': ['x'], 'env_vars': {}}, {'arguments': ['y']}])",
    "mapped_pairs": "KubernetesPodOperator.partial(task_id='a', image='i', container_resources=gpus(1)).expand("
    "arguments=[['x'], ['y']], cmds=[['a'], ['b'], ['c']])",
    "mapped_unknown": "@task\n    def items(): return [1]\n"
    "    KubernetesPodOperator.partial(task_id='a', image='i', container_resources=gpus(1)).expand(arguments=items())",
    "mapped_unknown_pods": "@task\n    def items(): return [1]\n"
    "    KubernetesPodOperator.partial(task_id='a', image='i').expand(container_resources=items())",
    "group": "@task_group\n    def g(x):\n        pod('a', 1) >> pod('b', 2)\n    g.expand(x=[1, 2, 3])",
    "plain_group": "with TaskGroup('g'):\n        KubernetesPodOperator.partial(task_id='a', image='i', "
    "container_resources=gpus(2), max_active_tis_per_dag=2, max_active_tis_per_dagrun=4)"
    ".expand(arguments=[['x'], ['y'], ['z']])",
    "group_at_once": "@task_group\n    def g(x):\n        pod('a', 2, max_active_tis_per_dagrun=2)\n"
    "    g.expand(x=[1, 2, 3])",
    "group_mixes": "@task_group\n    def g(x):\n        pod('a', 10, max_active_tis_per_dag=1) >> pod('b', 2)\n"
    "    g.expand(x=[1, 2, 3])",
    "group_unknown": "@task\n    def items(): return [1]\n    @task_group\n    def g(x):\n"
    "        pod('a', 2, max_active_tis_per_dagrun=2)\n    g.expand(x=items())",
    "job_at_once": "KubernetesJobOperator.partial(task_id='a', image='i', container_resources=gpus(2),"
    " max_active_tis_per_dag=1).expand(arguments=[['x'], ['y']])",
    "different_at_once": "KubernetesPodOperator.partial(task_id='a', image='i', max_active_tis_per_dagrun=1).expand("
    "container_resources=[gpus(1), gpus(2), gpus(4)])",
    "wide_jobs": "KubernetesJobOperator(task_id='a', image='i', container_resources=gpus(1), parallelism=3,"
    " completions=3, wait_until_job_complete=True), KubernetesJobOperator(task_id='b', image='i', parallelism=3,"
    " completions=3, container_resources=gpus(1), wait_until_job_complete=True)",
    "decorated": "@task.kubernetes(image='i', container_resources=gpus(3))\n    def f(x): ...\n    f.expand(x=[1, 2])",
    "branches": "b = BranchPythonOperator(task_id='c', python_callable=lambda: 'a')\n"
    "    b >> [pod('a', 2), pod('b', 3)]",
    "early": "a, b, c = pod('a', 2), pod('b', 3), pod('c', 4, trigger_rule='one_success')\n    [a, b] >> c",
    "always": "pod('a', 2) >> pod('b', 3, trigger_rule='always')",
    "teardown": "a, b, c = pod('a', 1).as_setup(), pod('b', 2), pod('c', 1)\n    a >> b >> c.as_teardown(setups=a)",
    "job": "KubernetesJobOperator(task_id='a', image='i', container_resources=gpus(2), parallelism=2, completions=4,"
    " wait_until_job_complete=True) >> pod('b', 1)",
    "job_not_awaited": "pod('z', 8) >> KubernetesJobOperator(task_id='a', image='i', container_resources=gpus(2))"
    " >> pod('b', 1)",
    "objects": "KubernetesCreateResourceOperator(task_id='a', yaml_conf='''\n{apiVersion: v1, kind: Pod, "
    "metadata: {name: x}, spec: {containers: [{name: m, image: i, resources: {limits: {nvidia.com/gpu: 5}}}]}}''')",
    "pool": "pod('a', 2, pool='gpus')",
    "template": "KubernetesPodOperator(task_id='a', image='i', container_resources=k8s.V1ResourceRequirements("
    "limits={'nvidia.com/gpu': '{{ params.n }}'}))",
    "full_pod": "KubernetesPodOperator(task_id='a', full_pod_spec=k8s.V1Pod(spec=k8s.V1PodSpec(containers=["
    "k8s.V1Container(name='base', image='i', resources=gpus(2)), k8s.V1Container(name='side', resources=gpus(1))])))",
    "template_dict": "KubernetesPodOperator(task_id='a', image='i', pod_template_dict={'spec': {'containers': ["
    "{'name': 'base', 'resources': {'limits': {'nvidia.com/gpu': 4}}}]}})",
    "template_file": "KubernetesPodOperator(task_id='a', image='i', pod_template_file='pod.yaml')",
    "init": "pod('a', 1, init_containers=[k8s.V1Container(name='i', image='i', resources=gpus(6))])",
    "spark": "SparkKubernetesOperator(task_id='a', template_spec={'spark': {}})",
    "starts": "TriggerDagRunOperator(task_id='a', trigger_dag_id='other') >> pod('b')",
    "spaces": "pod('a', namespace='one'), pod('b', namespace='two')",
    "own_pod": "pod('a', executor_config={'pod_override': k8s.V1Pod(metadata=k8s.V1ObjectMeta(labels={'x': 'y'}))})",
    "empty": "EmptyOperator(task_id='a')",
}
PEAKS = {
    "chain": "3", "side_by_side": "5", "mapped": "6", "mapped_at_once": "4", "mapped_resources": "7",
    "mapped_kwargs": "4", "mapped_pairs": "6", "mapped_unknown": "unknown", "mapped_unknown_pods": "unknown",
    "group": "6", "plain_group": "4", "group_at_once": "at-most 4", "group_mixes": "at-most 30",
    "group_unknown": "at-most 4", "job_at_once": "4", "different_at_once": "4", "wide_jobs": "6",
    "decorated": "6", "branches": "at-most 5", "early": "at-most 9", "always": "5", "teardown": "2",
    "job": "4", "job_not_awaited": "8", "objects": "5", "pool": "at-most 2", "template": "unknown", "full_pod": "3",
    "template_dict": "4", "template_file": "7", "init": "6", "spark": "unknown", "starts": "1",
    "spaces": "2", "own_pod": "1", "empty": None,
}  # fmt: skip
POD_FILE = """apiVersion: v1
kind: Pod
spec: {containers: [{name: base, resources: {limits: {nvidia.com/gpu: 7}}}]}
"""
OWN_CLASS = """
class Patient(KubernetesPodOperator):
    def execute(self, context):
        return super().execute(context)

with DAG('patient', schedule=None):
    [Patient(task_id=str(n), image='i', container_resources=gpus(1)) for n in range(5)]

with DAG('open', schedule=None):
    @task
    def items(): return [1]
    dyn = KubernetesPodOperator.partial(task_id='dyn', image='i', container_resources=gpus(1))
    [pod(str(n)) for n in range(5)] >> dyn.expand(arguments=items())

"""
ARGUMENTS = {"limited": "max_active_tasks=2", "overlapping": "schedule='@daily', max_active_runs=3"}


@pytest.fixture(scope="module")
def demands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Demand]:
    """Every DAG above in one file, so that Airflow starts once."""
    folder = tmp_path_factory.mktemp("dags")
    parts = [f"with DAG('{name}', schedule=None):\n    {body}\n" for name, body in DAGS.items()]
    parts += [
        f"with DAG('{name}', {given}):\n    [pod(str(n)) for n in range(5)]\n" for name, given in ARGUMENTS.items()
    ]
    parts.append(
        "with DAG('jobs', max_active_tasks=2):\n    [KubernetesJobOperator(task_id=str(n), image='i', "
        "container_resources=gpus(1), parallelism=2, completions=2, wait_until_job_complete=True) for n in range(3)]\n"
    )
    parts.append(
        "with DAG('mixing', max_active_tasks=3):\n    @task_group\n    def g(x):\n"
        "        pod('a', 10) >> [pod('b', 8), pod('c', 8)]\n    g.expand(x=[1, 2])\n"
    )
    parts.append(OWN_CLASS)
    parts.append("with DAG('deferred', max_active_tasks=2):\n    [pod(str(n), deferrable=True) for n in range(5)]\n")
    (folder / "pod.yaml").write_text(POD_FILE)
    (folder / "dags.py").write_text(HEAD + "\n".join(parts))
    found = {}
    for document in read_program(str(folder / "dags.py"), Pythons(sys.executable), allowed=True):
        demand = ForeignObject(document, Library((document,))).demand(Options(Site.load("nvidia")))
        assert isinstance(demand, Demand)
        found[document.name] = demand
    return found


def gpus(demand: Demand) -> str | None:
    peak = demand.peak.get("requests.nvidia.com/gpu")
    if peak is None:
        return None
    return peak.bound if peak.value is None else f"{'at-most ' if peak.bound == 'at-most' else ''}{peak.value}"


@pytest.mark.parametrize("name", DAGS)
def test_the_peak_of_a_dag(name: str, demands: dict[str, Demand]) -> None:
    assert gpus(demands[name]) == PEAKS[name], demands[name].peak


def test_what_is_not_known_names_task_reason_and_line(demands: dict[str, Demand]) -> None:
    told = {name: [f"{part.step}: {part.because}" for part in demands[name].unseen] for name in demands}
    assert told["mapped_unknown_pods"] == ["a: container_resources of each copy is only known in the run"]
    assert told["spark"] == ["a: it creates a SparkApplication, whose driver and executors Spark makes"]
    assert told["template"] == ['a: limits.nvidia.com/gpu is "{{ params.n }}", which only the run fills in']
    (part,) = demands["spark"].unseen
    assert part.where.file is not None and "dags.py" in part.where.file and (part.where.line or 0) > 10
    because = demands["mapped_unknown"].peak["pods"].because
    assert because == "the copies of loop 'a' are unknown: a is mapped over arguments, what task items returns"


def test_limits_of_the_dag_count_where_airflow_keeps_them(demands: dict[str, Demand]) -> None:
    assert gpus(demands["limited"]) == "2"
    # Airflow does not count tasks that wait in a trigger, and their pods run.
    assert gpus(demands["deferred"]) == "at-most 5"
    # It counts tasks: one of a Job has two pods; and of two items one may be at a (10) while the other is at b (8).
    assert gpus(demands["jobs"]) == "at-most 6"
    assert gpus(demands["mixing"]) == "at-most 32"
    assert demands["overlapping"].overlap is not None
    assert demands["overlapping"].overlap.at_most == 3
    assert demands["chain"].overlap is None


def test_what_the_author_may_not_know_is_said(demands: dict[str, Demand]) -> None:
    def codes(name: str) -> set[str]:
        source: Any = demands[name].source
        return {each.code for each in source.warnings()}

    assert "GF754" in codes("job_not_awaited")
    assert "GF754" not in codes("job")
    assert {"GF752", "GF755"} <= codes("starts")
    assert "GF752" not in codes("empty")
    assert "GF756" in codes("spaces")
    assert "GF756" not in codes("side_by_side")
    assert "GF753" in codes("own_pod")
    assert "GF753" not in codes("chain")


QUOTA = """apiVersion: v1
kind: ResourceQuota
metadata: {name: q, namespace: team}
spec: {hard: {requests.nvidia.com/gpu: "4"}}
status: {hard: {requests.nvidia.com/gpu: "4"}, used: {requests.nvidia.com/gpu: "0"}}
---
apiVersion: gpuflow/v1
kind: Snapshot
assumed: [Node]
"""


def test_a_check_counts_the_pods_in_the_namespace_that_is_checked(demands: dict[str, Demand], tmp_path: Path) -> None:
    (tmp_path / "quota.yaml").write_text(QUOTA)
    verdicts = {}
    for name in ("chain", "side_by_side", "job", "init"):
        report = check(demands[name], str(tmp_path), namespace="team")
        verdicts[name] = (report.verdict, [str(line.peak) for line in report.scopes])
    assert verdicts == {
        "chain": ("always", ["3"]), "side_by_side": ("may-queue", ["5"]), "job": ("always", ["4"]),
        "init": ("never", ["6"]),
    }  # fmt: skip


def finding(demand: Demand, cluster: Path, code: str) -> tuple[Report, Finding]:
    report = check(replace(demand, engine="airflow"), str(cluster), namespace="team")
    (found,) = [each for each in report.findings if each.code == code]
    return report, found


def test_a_stock_operator_that_a_full_quota_fails_is_an_error(demands: dict[str, Demand], tmp_path: Path) -> None:
    (tmp_path / "quota.yaml").write_text(QUOTA)
    for name, words in (("side_by_side", None), ("mapped", "max_active_tis_per_dagrun=2")):
        report, found = finding(demands[name], tmp_path, "GF512")
        assert (report.verdict, found.severity, report.fails({"never"})) == ("may-queue", "error", True)
        assert "the stock KubernetesPodOperator does not wait" in str(found.hint) and "GpuPod" not in str(found.hint)
        assert words is None or f"always admitted with {words}" in str(found.hint)
    # A controller asks again for the pods of a Job, and nobody knows what an operator of one's own does.
    for name in ("wide_jobs", "patient"):
        report, found = finding(demands[name], tmp_path, "GF512")
        assert (report.verdict, found.severity, report.fails({"never"})) == ("may-queue", "warning", False)


def test_the_number_in_the_words_of_airflow_makes_it_always(gpuflow: Gpuflow, tmp_path: Path) -> None:
    (tmp_path / "quota.yaml").write_text(QUOTA)
    bodies = {
        "max_active_tasks=4": "with DAG('d', schedule=None{}):\n    [pod(str(n)) for n in range(6)]\n",
        "max_active_tis_per_dagrun=4": "with DAG('d', schedule=None):\n    KubernetesPodOperator.partial(task_id='a', "
        "image='i', container_resources=gpus(1){}).expand(arguments=[[str(n)] for n in range(6)])\n",
    }
    for words, body in bodies.items():
        for given, verdict in (("", "may-queue"), (f", {words}", "always")):
            file = tmp_path / "dag.py"
            file.write_text(HEAD + body.format(given))
            report = gpuflow(
                "check", file, "--allow-python", "--cluster", tmp_path / "quota.yaml", "--namespace", "team",
                "--fail-on", "never", "--format", "json",
            )  # fmt: skip
            assert (report.data["verdict"], report.code) == (verdict, int(not given))
            assert given or f"always admitted with {words}" in report.out


def test_a_known_excess_is_said_beside_an_unknown_loop(demands: dict[str, Demand], tmp_path: Path) -> None:
    (tmp_path / "quota.yaml").write_text(
        QUOTA.replace('gpu: "4"', 'gpu: "4", pods: "90"').replace('"0"}', '"0", pods: "0"}')
    )
    report, known = finding(demands["open"], tmp_path, "GF512")
    assert (
        "together ask for 5 of requests.nvidia.com/gpu, without what is unknown; quota q leaves 4 of 4" in known.message
    )
    verdicts = {line.resource: (line.verdict, line.peak) for line in report.scopes}
    assert verdicts == {"pods": ("unknown", None), "requests.nvidia.com/gpu": ("may-queue", None)}
    _, unknown = finding(demands["open"], tmp_path, "GF514")
    assert unknown.message.startswith(
        "pods, requests.nvidia.com/gpu: the worst moment is unknown: the copies of loop 'dyn'"
    )
    assert unknown.where == demands["open"].where("dyn") != known.where
    assert 'give "dyn" max_active_tis_per_dagrun' in str(unknown.hint)


def test_the_hint_for_a_refused_pod_names_the_task_s_own_container(demands: dict[str, Demand], tmp_path: Path) -> None:
    hard = 'hard: {requests.memory: "4"}'
    quota = QUOTA.replace('hard: {requests.nvidia.com/gpu: "4"}', hard).replace(
        '{requests.nvidia.com/gpu: "0"}', '{requests.memory: "0"}'
    )
    (tmp_path / "quota.yaml").write_text(quota)
    _, found = finding(demands["init"], tmp_path, "GF501")
    assert "base: set memory in container_resources of the task\ni: set memory on that" in str(found.hint)


def test_a_dag_is_checked_where_its_tasks_run_and_on_airflow(gpuflow: Gpuflow, tmp_path: Path) -> None:
    (tmp_path / "quota.yaml").write_text(QUOTA)
    file = tmp_path / "dag.py"
    file.write_text(f"{HEAD}with DAG('d'):\n    pod('a', 1, namespace='team')\n    pod('b', 1)\n")
    words = ("--allow-python", "--airflow-python", sys.executable, "--cluster", tmp_path)
    report = gpuflow("check", file, *words, "--format", "json").data
    assert (report["namespace"], report["engine"], report["verdict"]) == ("team", "airflow", "always")
    answer = gpuflow("check", file, *words, "--namespace", "other")
    assert answer.code == 2 and "dag.py:" in answer.err
    assert 'GF745 DAG d names the namespace "team", and --namespace says "other"' in answer.err


def test_pods_carry_what_the_operator_would_send(demands: dict[str, Demand]) -> None:
    pod = demands["full_pod"].steps[0].pod
    assert [each["name"] for each in pod["spec"]["containers"]] == ["base", "side"]
    assert pod["spec"]["restartPolicy"] == "Never"
    assert "airflow_version" in pod["metadata"]["labels"]


def test_an_old_snippet_gets_its_finding_though_the_operator_refuses_it(gpuflow: Gpuflow, tmp_path: Path) -> None:
    file = tmp_path / "old.py"
    file.write_text(
        "from airflow.sdk import DAG\n"
        "from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator\n"
        "with DAG('old'):\n"
        "    KubernetesPodOperator(task_id='a', image='i', resources={'limit_gpu': 1})\n"
    )
    answer = gpuflow("check", file, "--allow-python", "--cluster", tmp_path, "--namespace", "x")
    assert answer.code == 2
    assert "old.py:4:1: GF708" in answer.err
    assert "old.py:4:61: GF751 resources= with limit_gpu is an old spelling that asks for nothing" in answer.err


def test_the_command_line_reads_checks_and_draws_a_dag(gpuflow: Gpuflow, tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    body = "def made_in_a_function():\n    pod('a', 2) >> pod('b', 1)\nmade_in_a_function()\n"
    file.write_text(f"{HEAD}@dag(schedule=None, params={{'n': 1}})\n{body}")
    words = ("--allow-python", "--airflow-python", sys.executable)
    found = gpuflow("demand", file, *words, "--format", "json").data
    assert (found["pipeline"], found["kind"], found["peak"]["requests.nvidia.com/gpu"]["value"]) == (
        "made_in_a_function", "DAG", "2",
    )  # fmt: skip
    shown = gpuflow("show", file, *words)
    assert "DAG made_in_a_function" in shown.out and "nvidia.com/gpu 2" in shown.out
    counted = gpuflow("demand", file, *words, "--engine", "airflow", "--format", "json")
    assert counted.code == 0, counted.err
    unknown = gpuflow("demand", file, *words, "--param", "m=1")
    assert "GF178" in unknown.err


def test_a_parameter_of_a_compiled_dag_changes_its_fan_out(gpuflow: Gpuflow) -> None:
    words = ("demand", ROOT / "dags" / "nightly.py", "--allow-python", "--format", "json")
    assert [each["copies"] for each in gpuflow(*words).data["steps"] if each["name"] == "evaluate"] == [3]
    fewer = gpuflow(*words, "--param", 'suites=["mmlu"]').data
    assert [each["copies"] for each in fewer["steps"] if each["name"] == "evaluate"] == [1]


def test_reading_sees_the_dags_folder_and_given_variables(
    gpuflow: Gpuflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "from common.words import NAME\nfrom airflow.sdk import Variable\nNUMBER = int(Variable.get(\n    'gpus'))\n"
    body += "with DAG(NAME):\n    pod('a', NUMBER)\n"
    for folder, given in (("dags", None), ("else", "else")):
        root = tmp_path / folder
        for each in (root / "team", root / "common"):
            each.mkdir(parents=True)
        (root / "common" / "words.py").write_text(f"NAME = 'of_{folder}'\n")
        (root / "team" / "dag.py").write_text(HEAD + body)
        if given is not None:
            monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(root))
        words = ("demand", root / "team" / "dag.py", "--allow-python", "--format", "json")
        monkeypatch.delenv("AIRFLOW_VAR_GPUS", raising=False)
        refused = gpuflow(*words)
        assert "GF708" in refused.err and "Variable gpus has no value here" in refused.err
        assert "or set AIRFLOW_VAR_GPUS" in refused.err
        monkeypatch.setenv("AIRFLOW_VAR_GPUS", "3")
        found = gpuflow(*words).data
        assert (found["pipeline"], found["peak"]["requests.nvidia.com/gpu"]["value"]) == (f"of_{folder}", "3")


def test_a_file_without_a_dag_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    file.write_text("import airflow\n")
    with pytest.raises(GpuflowError, match=r"GF709 .* makes no DAG"):
        read_program(str(file), Pythons(sys.executable), allowed=True)
