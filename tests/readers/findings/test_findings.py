"""What authors of other tools' documents may not know: each finding where it is due, and nowhere else.

Tests gpuflow/readers/findings/rules.py and gpuflow/readers/findings/subject.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from gpuflow.core import yaml_tree
from gpuflow.core.codes import CODES
from gpuflow.core.errors import Finding, Where
from gpuflow.demands import Demand, PodSet, StepDemand, graph_of
from gpuflow.formats.airflow import Dag, Task
from gpuflow.formats.documents import DAG, Document, silenced_in
from gpuflow.readers import Library, documents_of, foreign_in
from gpuflow.readers.findings import ForeignSource, Subject
from gpuflow.readers.interface import ForeignObject, Options
from gpuflow.site import Site
from gpuflow.spec.problems import is_always_error
from tests.readers.kubernetes.reading import demand, findings
from tests.readers.kubernetes.samples import SAMPLES

SPOT = "nodeSelector: {cloud.google.com/gke-spot: 'true'}"


def job(pod: str, of_job: str = "", metadata: str = "name: j") -> str:
    return f"""apiVersion: batch/v1
kind: Job
metadata: {{{metadata}}}
spec:
  backoffLimit: 4
  {of_job}
  template:
    spec:
      {pod}
"""


def torch(gpus: int, more: str = "", pod: str = "restartPolicy: Never") -> str:
    container = (
        f"""{{name: train, image: pytorch/pytorch:2.9, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}{more}}}"""
    )
    return job(f"{pod}\n      containers:\n      - {container}")


class Case(NamedTuple):
    fires: str
    line: int
    silent: str
    """Nearly the same, where nothing is to be said."""


NEVER, ON_FAILURE = "restartPolicy: Never", "restartPolicy: OnFailure"
SHM = ", volumeMounts: [{name: shm, mountPath: /dev/shm}]"
CHECKPOINTS = ", volumeMounts: [{name: data, mountPath: /ckpt}]"
CLAIM = "volumes: [{name: data, persistentVolumeClaim: {claimName: c}}]"
EMPTY = "volumes: [{name: data, emptyDir: {}}]"
IGNORE = "podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: 'True'}]}]}"
QUEUE = "kueue.x-k8s.io/queue-name: gpus"
RING = SAMPLES["job set"].text
PASSED_BY = f"""apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {{name: w, labels: {{{QUEUE}}}}}
spec:
  entrypoint: a
  templates: [{{name: a, container: {{image: i, command: [x]}}}}]
"""
CASES: dict[str, Case] = {
    "GF761": Case(torch(1).replace("limits", "requests"), 11, torch(1)),
    "GF764": Case(
        torch(1, pod=f"{NEVER}\n      {SPOT}"),
        5,
        torch(1, pod=f"{NEVER}\n      {SPOT}").replace("backoffLimit: 4", IGNORE),
    ),
    "GF766": Case(
        torch(1, CHECKPOINTS, f"{ON_FAILURE}\n      {CLAIM}"), 7, torch(1, CHECKPOINTS, f"{NEVER}\n      {CLAIM}")
    ),
    "GF767": Case(
        torch(1, CHECKPOINTS, f"{NEVER}\n      {EMPTY}"), 12, torch(1, CHECKPOINTS, f"{NEVER}\n      {CLAIM}")
    ),
    "GF768": Case(
        SAMPLES["pytorch job"].text.replace(NEVER, ON_FAILURE).replace("name: pt", f"name: pt, labels: {{{QUEUE}}}"),
        14,
        SAMPLES["pytorch job"].text.replace("name: pt", f"name: pt, labels: {{{QUEUE}}}"),
    ),
    "GF769": Case(
        torch(2), 11, torch(2, SHM, f"{NEVER}\n      volumes: [{{name: shm, emptyDir: {{medium: Memory}}}}]")
    ),
    "GF771": Case(RING, 11, RING.replace("name: js", f"name: js, labels: {{{QUEUE}}}")),
    "GF772": Case(
        SAMPLES["cron job"].text,
        6,
        SAMPLES["cron job"].text.replace("  jobTemplate:", "  concurrencyPolicy: Forbid\n  jobTemplate:"),
    ),
    "GF773": Case(
        SAMPLES["deployment"].text,
        4,
        SAMPLES["deployment"].text.replace("  template:", "  strategy: {type: Recreate}\n  template:"),
    ),
    "GF775": Case(PASSED_BY, 3, PASSED_BY.replace("spec:", f"spec:\n  podMetadata: {{labels: {{{QUEUE}}}}}")),
    "GF774": Case(
        RING.replace("          spec:", f"          metadata: {{labels: {{{QUEUE}}}}}\n          spec:"),
        11,
        RING.replace("name: js", f"name: js, labels: {{{QUEUE}}}"),
    ),
}


@pytest.mark.parametrize("code", CASES)
def test_it_is_said_once_with_its_line_and_a_way_out(code: str) -> None:
    (finding,) = [each for each in findings(CASES[code].fires) if each.code == code]
    assert (finding.where.file, finding.where.line) == ("theirs.yaml", CASES[code].line)
    assert finding.hint and finding.severity in ("warning", "note")


@pytest.mark.parametrize("code", CASES)
def test_it_is_not_said_where_it_is_not_so(code: str) -> None:
    assert code not in [each.code for each in findings(CASES[code].silent)]


SUPERVISED = "command: [gpuflow-run, %s--checkpoint-path=/ckpt, --, python, train.py]"


@pytest.mark.parametrize(("store", "said"), [("", True), ("--store=s3://bucket/runs, ", False)])
def test_checkpoints_that_the_supervisor_carries_to_a_store_are_not_lost(store: str, said: bool) -> None:
    text = torch(1, f"{CHECKPOINTS}, {SUPERVISED % store}", f"{NEVER}\n      {EMPTY}")
    assert ("GF767" in [each.code for each in findings(text)]) is said


def counted(text: str, code: str, site: Site | None = None) -> Where:
    """Where the one line stands that counts what is silenced."""
    said = findings(text, site)
    assert code not in [each.code for each in said]
    (line,) = [each for each in said if each.code == "GF343"]
    assert code in line.message
    return line.where


@pytest.mark.parametrize("code", CASES)
def test_a_comment_an_annotation_or_the_site_silences_it(code: str) -> None:
    text = CASES[code].fires
    assert counted(f"# gpuflow: silence GF999, {code}\n{text}", code).line == 1
    assert counted(f"{text}\n# gpuflow: silence {code} GF701", code).line == text.count("\n") + 2
    annotated = text.replace("metadata: {name:", f"metadata: {{annotations: {{gpuflow.dev/silence: {code}}}, name:", 1)
    assert counted(annotated, code).line in (3, 4)
    site = Site.model_validate({"name": "s", "silence": [code]})
    assert counted(text, code, site).file is None


def test_text_that_only_looks_like_a_comment_silences_nothing() -> None:
    assert silenced_in("a: x#gpuflow: silence GF761") == ()
    assert [each.code for each in silenced_in("a: x #gpuflow: silence: GF761,GF769")] == ["GF761", "GF769"]


@pytest.mark.parametrize(
    ("word", "said"), [("GF999x", "not a code"), ("GF736", "cannot be silenced"), ("x", "not a code")]
)
def test_a_silence_without_effect_is_said(word: str, said: str) -> None:
    (finding,) = [each for each in findings(f"# gpuflow: silence {word}\n{torch(1)}") if each.code == "GF783"]
    assert said in finding.message and finding.where.line == 1


def test_errors_are_never_silenced() -> None:
    text = "# gpuflow: silence GF761 GF503\n" + torch(1)
    source = demand(text).source
    assert source is not None
    refusals = [Finding("GF503", "refused"), Finding("GF761", "refused")]
    assert source.unsilenced_findings(refusals) == refusals


def test_a_check_says_of_overlapping_runs_once() -> None:
    source = demand(SAMPLES["cron job"].text).source
    assert source is not None
    said = [*source.warnings(), Finding("GF553", "runs may overlap", severity="note")]
    assert [each.code for each in source.unsilenced_findings(said)] == ["GF553"]


WORKFLOW = """apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {{name: w}}
spec:
  entrypoint: train
  {spec}
  templates:
  - name: train
    {template}
    container: {{image: x, command: [train]}}
"""


def source_of(text: str, pod: Mapping[str, Any], tries: int) -> ForeignSource:
    (document,) = documents_of(yaml_tree.parse_all(text, "theirs.yaml"), "theirs.yaml")
    step = StepDemand("train", (PodSet("main", 1, {"metadata": {}, "spec": pod}),), tries=tries)
    return ForeignSource(Subject(document, Demand("w", (step,), graph_of((step,))), Site.load("nvidia")))


@pytest.mark.parametrize(
    ("retry", "said"),
    [
        ("{limit: 3}", ["GF765"]),
        ("{limit: 3, retryPolicy: OnFailure}", ["GF765"]),
        ("{limit: 3, retryPolicy: Always}", ["GF764"]),
        ("{limit: 3, retryPolicy: OnError}", ["GF764"]),
        ("{retryPolicy: Always}", []),
        ("{limit: 3, expression: 'true'}", []),
    ],
)
def test_retries_of_argo_on_spot_nodes(retry: str, said: list[str]) -> None:
    own = WORKFLOW.format(spec=SPOT, template=f"retryStrategy: {retry}")
    default = WORKFLOW.format(spec=f"templateDefaults: {{retryStrategy: {retry}}}", template=SPOT)
    patched = WORKFLOW.format(
        spec='podSpecPatch: \'{"nodeSelector": {"cloud.google.com/gke-spot": "true"}}\'',
        template=f"retryStrategy: {retry}",
    )
    for text, line in ((own, 9), (default, 6), (patched, 9)):
        found = findings(text)
        assert [each.code for each in found] == said
        assert [each.where.line for each in found] == [line] * len(said)
    assert not findings(WORKFLOW.format(spec="nodeSelector: {pool: a}", template=f"retryStrategy: {retry}"))


@pytest.mark.parametrize("said", ["templateDefaults: {retryStrategy: {limit: 3}}", "retryStrategy: {limit: 3}"])
def test_retries_that_the_workflow_or_what_it_names_says_for_all_templates_count(said: str) -> None:
    (own,) = findings(WORKFLOW.format(spec=said, template=SPOT))
    assert (own.code, own.where.line) == ("GF765", 6)
    shared = WORKFLOW.format(spec=said, template=SPOT).replace("kind: Workflow", "kind: WorkflowTemplate")
    head = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: run}\n"
    text = f"{head}spec: {{workflowTemplateRef: {{name: w}}}}\n---\n{shared}"
    active, _ = foreign_in(documents_of(yaml_tree.parse_all(text, "theirs.yaml"), "theirs.yaml"))
    demand = active[0].demand(Options(Site.load("nvidia")))
    assert isinstance(demand, Demand) and demand.source is not None
    assert [(each.code, each.where.line) for each in demand.source.warnings()] == [("GF765", 6 + 5)]


def test_an_affinity_asks_for_spot_nodes_too() -> None:
    wanted = "{key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}"
    term = f"nodeSelectorTerms: [{{matchExpressions: [{wanted}]}}]"
    affinity = f"affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{{term}}}}}}}"
    text = WORKFLOW.format(spec=affinity, template="retryStrategy: {limit: 1}")
    assert [each.code for each in findings(text)] == ["GF765"]


def test_retries_of_kubeflow_on_spot_nodes() -> None:
    text = "pipelineInfo: {name: p}\nroot: {dag: {tasks: {}}}\n"
    pod = {"nodeSelector": {"cloud.google.com/gke-spot": "true"}, "containers": [{"name": "main"}]}
    assert [each.code for each in source_of(text, pod, tries=3).warnings()] == ["GF765"]
    assert not list(source_of(text, pod, tries=1).warnings())


def test_a_cron_workflow_that_overlaps_itself() -> None:
    text = """apiVersion: argoproj.io/v1alpha1
kind: CronWorkflow
metadata: {name: w}
spec:
  schedules: ["0 * * * *"]
  workflowSpec:
    entrypoint: train
    templates: [{name: train, container: {image: x, command: [train]}}]
"""
    (finding,) = findings(text)
    assert (finding.code, finding.where.line) == ("GF772", 5)
    assert not findings(text.replace("  workflowSpec", "  concurrencyPolicy: Forbid\n  workflowSpec"))


def test_every_code_of_these_can_be_silenced_and_those_of_errors_cannot() -> None:
    remarks = [code for code in CODES if "GF761" <= code <= "GF784"]
    assert remarks and not any(map(is_always_error, remarks))
    assert all(is_always_error(code) for code in ("GF736", "GF737"))


def test_what_is_not_counted_of_a_dag_is_said_before_the_rest_and_task_by_task() -> None:
    """As Airflow describes it; tests/targets/airflow has a real one do so."""
    usual = ("all_success", "default_pool")
    tasks = [
        Task("a", "PythonOperator", *usual, line=(3, 5), executor_config={"metadata": {}}),
        Task("b", "TriggerDagRunOperator", *usual, line=(4, 5), starts="other"),
        Task("c", "EmptyOperator", *usual, line=(5, 5)),
    ]
    old = [("GF751", "resources= is an old spelling", 3, 9, "write it otherwise")]
    dag = Dag("d", None, None, None, False, None, {}, {}, tasks, old=old)
    document = Document({"dag_id": "d"}, "d.py", *DAG, 0, dag=dag)
    found = ForeignObject(document, Library((document,))).demand(Options(Site.load("nvidia")))
    assert isinstance(found, Demand) and isinstance(found.source, ForeignSource)
    said = [(each.code, each.severity, each.where.line) for each in found.source.warnings()]
    assert said == [
        ("GF751", "warning", 3),
        ("GF752", "note", 1),
        ("GF753", "note", 3),
        ("GF755", "note", 4),
    ]


def test_the_advice_about_an_update_leaves_nothing_to_say() -> None:
    """That the API server takes it is in test_refused_objects.py."""

    def said(strategy: str) -> dict[str, str | None]:
        text = SAMPLES["deployment"].text.replace("  template:", f"  strategy: {strategy}\n  template:")
        return {each.code: each.hint for each in findings(text)}

    advice = "{rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"
    assert f"set strategy: {advice}" in (said("{rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}")["GF773"] or "")
    assert "GF773" not in said(advice)
