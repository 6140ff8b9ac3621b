"""demand, check and show on what other tools run: files, standard input, folders, patterns; nothing is left out in
silence.

Tests gpuflow/cli/sources.py and gpuflow/formats/contents.py.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuflow.core.errors import GpuflowError
from gpuflow.formats.contents import contents_of
from tests.cli.commands import Answer, Gpuflow
from tests.readers.argo.test_events import SENSOR

OURS = """apiVersion: gpuflow/v1
kind: Pipeline
name: ours
params: {lr: {type: float, default: 0.1}}
steps:
  only: {image: i, command: [c], gpu: l4, cpu: 1, memory: 1Gi}
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: main, image: i, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
"""
WORKFLOW = """apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: sweep-}
spec:
  entrypoint: main
  arguments: {parameters: [{name: gpus, value: "1"}]}
  templates:
    - name: main
      dag:
        tasks: [{name: train, templateRef: {name: shared, template: train}}]
"""
TEMPLATE = """apiVersion: argoproj.io/v1alpha1
kind: WorkflowTemplate
metadata: {name: shared}
spec:
  templates:
    - name: train
      container: {image: i, resources: {limits: {nvidia.com/gpu: 3}}}
"""
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
HELM = """apiVersion: batch/v1
kind: Job
metadata: {name: "{{ .Release.Name }}"}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: i}]}}}
"""
CHECK = ("--cluster", "cluster", "--namespace", "team")
GPU = "requests.nvidia.com/gpu"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a cluster."""
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "quota.yaml").write_text(QUOTA)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_of_all_tools_are_answered_in_their_order(gpuflow: Gpuflow, folder: Path) -> None:
    Path("b.yaml").write_text(JOB.format(name="two", gpus=2) + "---\n" + JOB.format(name="one", gpus=1))
    Path("a.yaml").write_text(OURS)
    Path("c").write_text(JOB.format(name="three", gpus=3))
    answer = gpuflow("demand", "b.yaml", "a.yaml", "c", "--format", "json")
    assert answer.code == 0, answer.err
    told = [(each["file"], each["pipeline"], each.get("kind"), each["peak"][GPU]["value"]) for each in answer.data]
    assert told == [
        ("b.yaml", "two", "Job", "2"),
        ("b.yaml", "one", "Job", "1"),
        ("a.yaml", "ours", None, "1"),
        ("c", "three", "Job", "3"),
    ]
    checked = gpuflow("check", "b.yaml", "a.yaml", *CHECK, "--format", "json")
    assert [(each["pipeline"], each.get("kind")) for each in checked.data] == [
        ("two", "Job"), ("one", "Job"), ("ours", None),
    ]  # fmt: skip


def test_a_folder_serves_as_library_and_says_what_it_leaves_out(gpuflow: Gpuflow, folder: Path) -> None:
    Path("k8s/deep").mkdir(parents=True)
    Path("k8s/workflow.yaml").write_text(WORKFLOW)
    Path("k8s/deep/template.yaml").write_text(TEMPLATE)
    Path("k8s/ours.yaml").write_text(OURS)
    Path("k8s/quota.yaml").write_text(QUOTA)
    Path("k8s/chart.yaml").write_text(HELM)
    Path("k8s/values.json").write_text('{"a": 1}')
    Path("k8s/program.py").write_text("open('taken', 'w').close()\nimport airflow\n")
    answer = gpuflow("demand", "k8s", "--allow-python", "--format", "json")
    assert answer.code == 0, answer.err
    assert {each["pipeline"]: each["peak"][GPU]["value"] for each in answer.data} == {"sweep": "3", "ours": "1"}
    assert (
        "k8s: 1 pipeline, 2 files with workloads; must be rendered first (helm template, kubectl kustomize): "
        "k8s/chart.yaml; not workloads: k8s/quota.yaml, k8s/values.json; Python, not run unless named: k8s/program.py\n"
    ) in answer.err
    assert "not counted, because they start nothing by themselves: WorkflowTemplate shared\n" in answer.err
    assert not Path("taken").exists()


def test_a_quoted_pattern_is_expanded_and_runs_no_python(gpuflow: Gpuflow, folder: Path) -> None:
    for name in ("b", "a"):
        Path(f"{name}.yaml").write_text(JOB.format(name=name, gpus=1))
    Path("a.py").write_text("open('taken', 'w').close()\nimport airflow\n")
    answer = gpuflow("demand", "*.*", "--allow-python", "--format", "json")
    assert [each["file"] for each in answer.data] == ["a.yaml", "b.yaml"]
    assert "*.*: 2 files with workloads; Python, not run unless named: a.py" in answer.err
    assert not Path("taken").exists()
    assert "GF100 no file matches *.yml" in gpuflow("demand", "*.yml").err


def test_standard_input_holds_what_helm_or_kustomize_print(
    gpuflow: Gpuflow, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def piped(text: str, *words: str) -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return gpuflow("demand", *(words or ("-",)), "--format", "json")

    found = piped("# Source: chart/templates/job.yaml\n" + JOB.format(name="train", gpus=2) + "---\n" + QUOTA).data
    assert (found["pipeline"], found["file"], found["peak"][GPU]["value"]) == ("train", "<stdin>", "2")
    assert piped(OURS).data["pipeline"] == "ours"
    assert "GF702 standard input is empty" in piped(" \n").err
    assert "<stdin>:3:1: GF101" in piped("a:\n  - [\n").err
    template = piped("kind: Job\nspec:\n  {{- if .Values.gpu }}\n  x: 1\n")
    assert "<stdin>:3:3: GF406 <stdin> is a template, which must be rendered first" in template.err


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("job.yaml", HELM, "is a Helm template, which must be rendered first"),
        ("kustomization.yaml", "resources: [a.yaml]\n", "is a kustomization, which must be rendered first"),
        ("Chart.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\n", "is a Helm chart, which must be rendered first"),
        ("t.yaml", "a: 1\n{{- range .Values.x }}\nb: 2\n{{- end }}\n", "is a template, which must be rendered first"),
    ],
)
def test_what_must_be_rendered_first_says_so_once(
    gpuflow: Gpuflow, folder: Path, name: str, text: str, what: str
) -> None:
    Path(name).write_text(text)
    for command in (["demand"], ["show"], ["check", *CHECK]):
        answer = gpuflow(command[0], name, *command[1:])
        assert (answer.code, answer.err.count("GF406")) == (2, 1), answer.err
        assert what in answer.err and "| gpuflow check - " in answer.err


def test_scripts_may_hold_braces(gpuflow: Gpuflow, folder: Path) -> None:
    text = JOB.format(name="a", gpus=1).replace("image: i,", 'image: i, args: ["a\\n{{ .Values.x }}"],')
    Path("a.yaml").write_text(text)
    assert gpuflow("demand", "a.yaml").code == 0


def test_parameters_reach_the_documents_that_have_them(gpuflow: Gpuflow, folder: Path) -> None:
    text = WORKFLOW.replace("templateRef: {name: shared, template: train}", "template: train") + TEMPLATE.split(
        "templates:\n"
    )[1].replace("nvidia.com/gpu: 3", 'nvidia.com/gpu: "{{workflow.parameters.gpus}}"')
    Path("w.yaml").write_text(text)
    Path("ours.yaml").write_text(OURS)
    answer = gpuflow("demand", "w.yaml", "ours.yaml", "--param", "gpus=5", "--param", "lr=0.5", "--format", "json")
    assert answer.code == 0, answer.err
    assert [each["peak"][GPU]["value"] for each in answer.data] == ["5", "1"]
    unknown = gpuflow("demand", "w.yaml", "--param", "gpu=5")
    assert unknown.code == 2
    assert "GF178 --param gpu: Workflow sweep has no such parameter" in unknown.err
    assert 'did you mean "gpus"?' in unknown.err
    assert "GF903" in gpuflow("demand", "w.yaml", "--param", "gpus").err


def _git(*words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *words], check=True, capture_output=True)


def test_a_comparison_takes_documents_and_what_they_refer_to_from_the_revision(gpuflow: Gpuflow, folder: Path) -> None:
    _git("init", "-q")
    Path("w.yaml").write_text(WORKFLOW)
    Path("t.yaml").write_text(TEMPLATE)
    _git("add", "w.yaml", "t.yaml")
    _git("commit", "-qm", "a")
    Path("t.yaml").write_text(TEMPLATE.replace("nvidia.com/gpu: 3", "nvidia.com/gpu: 5"))
    Path("new.yaml").write_text(JOB.format(name="new", gpus=1))
    answer = gpuflow("check", "w.yaml", "t.yaml", "new.yaml", *CHECK, "--compare", "HEAD", "--format", "json")
    assert answer.code == 1, answer.err
    first, second = answer.data
    assert (first["before"]["verdict"], first["after"]["verdict"]) == ("always", "never")
    assert (second["before"], second["after"]["pipeline"]) == (None, "new")
    assert "GF912 new.yaml is new: HEAD does not have it" in answer.err


def test_a_comparison_with_a_file_pairs_objects_by_kind_and_name(gpuflow: Gpuflow, folder: Path) -> None:
    Path("new.yaml").write_text(JOB.format(name="a", gpus=5) + "---\n" + JOB.format(name="b", gpus=1))
    Path("old.yaml").write_text(JOB.format(name="b", gpus=5) + "---\n" + JOB.format(name="a", gpus=1))
    answer = gpuflow("check", "new.yaml", *CHECK, "--compare", "old.yaml", "--format", "json")
    pairs = [(each["before"]["verdict"], each["after"]["verdict"]) for each in answer.data]
    assert pairs == [("always", "never"), ("never", "always")]


def test_compile_says_what_to_do_with_documents_of_others(gpuflow: Gpuflow, folder: Path) -> None:
    Path("w.yaml").write_text(WORKFLOW)
    answer = gpuflow("compile", "w.yaml", "--target", "airflow")
    assert answer.code == 2
    assert "w.yaml:1:1: GF706 w.yaml is no pipeline of gpuflow: Workflow" in answer.err
    assert "gpuflow check, demand and show read it as it is" in answer.err


def test_validate_reads_documents_of_others_as_the_hook_hands_them_over(gpuflow: Gpuflow, folder: Path) -> None:
    Path("w.yaml").write_text(WORKFLOW)
    Path("a.yaml").write_text(OURS)
    Path("b.yaml").write_text(JOB.format(name="b", gpus=1).replace("containers", "container"))
    answer = gpuflow("validate", "w.yaml", "a.yaml", "--engine", "airflow")
    assert answer.code == 0, answer.err
    assert answer.out == "a.yaml: ok, pipeline ours, 1 step\nw.yaml: ok, read as it is: Workflow sweep, 0 steps\n"
    broken = gpuflow("validate", "b.yaml", "w.yaml", "--format", "json")
    assert broken.code == 2
    assert [(each["file"], each["pipeline"], each["kind"]) for each in broken.data] == [
        ("b.yaml", "b", "Job"), ("w.yaml", "sweep", "Workflow"),
    ]  # fmt: skip
    assert broken.data[0]["findings"][0]["where"]["file"] == "b.yaml"


def test_the_cluster_inside_a_folder_is_no_workload(gpuflow: Gpuflow, folder: Path) -> None:
    Path("job.yaml").write_text(JOB.format(name="a", gpus=1))
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: there}\nspec: {containers: [{name: m, image: i}]}\n"
    Path("cluster/pods.yaml").write_text(pod)
    answer = gpuflow("check", ".", *CHECK, "--format", "json")
    assert answer.data["pipeline"] == "a"
    assert answer.err == ".: 1 file with workloads; not workloads: cluster/pods.yaml, cluster/quota.yaml\n"


def test_a_broken_workload_of_a_folder_is_an_error_beside_the_answers_for_the_others(
    gpuflow: Gpuflow, folder: Path
) -> None:
    Path("k8s").mkdir()
    Path("k8s/a.yaml").write_text(JOB.format(name="a", gpus=1))
    Path("k8s/b.yaml").write_text(JOB.format(name="b", gpus=1) + "  - [")
    Path("k8s/c.yaml").write_text("a: [")
    answer = gpuflow("demand", "k8s", "--format", "json")
    assert (answer.code, answer.data["pipeline"]) == (2, "a")
    assert "k8s/b.yaml:9:3: GF101" in answer.err
    assert "cannot be read: k8s/b.yaml, k8s/c.yaml" in answer.err


def test_only_passive_documents_are_an_error_that_says_why(gpuflow: Gpuflow, folder: Path) -> None:
    Path("t.yaml").write_text(TEMPLATE)
    answer = gpuflow("demand", "t.yaml", "cluster/quota.yaml")
    assert answer.code == 2
    assert "t.yaml:1:1: GF703 WorkflowTemplate shared" in answer.err
    assert "GF703 ResourceQuota q: this kind starts no pods" in answer.err


def test_the_engine_of_another_document_is_refused(gpuflow: Gpuflow, folder: Path) -> None:
    Path("w.yaml").write_text(WORKFLOW)
    answer = gpuflow("demand", "w.yaml", "--engine", "airflow")
    assert (answer.code, "GF704" in answer.err) == (2, True)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet=st.sampled_from("apiVersonkdJb:/v1-batch{}[]\"'#&*.ls \n"), max_size=120))
def test_whatever_a_file_says_reading_it_ends_with_an_answer_or_one_refusal(tmp_path: Path, text: str) -> None:
    file = tmp_path / "any.yaml"
    file.write_text(text)
    with contextlib.suppress(GpuflowError):
        contents_of(str(file))


def test_kinds_that_may_start_pods_are_not_said_to_start_none(gpuflow: Gpuflow, folder: Path) -> None:
    run = "apiVersion: tekton.dev/v1\nkind: PipelineRun\nmetadata: {name: x}\nspec: {}\n"
    Path("run.yaml").write_text(run)
    alone = gpuflow("demand", "run.yaml")
    assert alone.code == 2
    assert "GF703 PipelineRun x: gpuflow does not know which pods this kind starts" in alone.err
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"
    Path("all.yaml").write_text("---\n".join([WORKFLOW, run, service]))
    answer = gpuflow("demand", "all.yaml")
    assert answer.code == 0
    assert "not counted, because gpuflow does not know their pods: PipelineRun x\n" in answer.err
    assert "not counted, because they start nothing by themselves: Service s\n" in answer.err


def test_a_workflow_in_a_sensor_counts_and_other_triggers_are_named(gpuflow: Gpuflow, folder: Path) -> None:
    Path("sensor.yaml").write_text(SENSOR)
    answer = gpuflow("demand", "sensor.yaml")
    assert answer.code == 0 and "train" in answer.out
    assert 'not counted, because gpuflow does not know their pods: Sensor reviews (trigger "tell")\n' in answer.err
    assert "a mutex in synchronization waits for the run before" in answer.err
    refused = gpuflow("import", "sensor.yaml")
    assert refused.code == 1 and "GF789 Sensor reviews" in refused.err


def test_a_file_that_names_no_kind_is_told_what_is_read(gpuflow: Gpuflow, folder: Path) -> None:
    Path("compose.yaml").write_text("services:\n  a: {image: x}\n")
    answer = gpuflow("demand", "compose.yaml")
    assert answer.code == 2 and "GF114" in answer.err
    assert "documents of Argo, Kubeflow and Kubernetes" in answer.err
