"""Importing: what becomes of a file, and that nothing of it is dropped in silence.

Tests gpuflow/cli/import_pipeline.py, gpuflow/importing/argo/workflow.py, gpuflow/importing/argo/templates.py,
gpuflow/importing/pipelines.py, gpuflow/importing/kubeflow.py, gpuflow/importing/kubernetes.py,
gpuflow/importing/pods.py and gpuflow/importing/unsupported.py.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.cli.main import main
from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError
from gpuflow.spec.canonical import to_document
from gpuflow.spec.loading import loads
from tests.cli.commands import Gpuflow
from tests.cli.conftest import gpuflow  # noqa: F401  # a fixture
from tests.importing.samples import JOB, KFP, SAMPLES, WORKFLOW, import_text, import_trees

FREE = {
    "labels", "annotations", "nodeSelector", "requests", "limits", "withItems", "parameters", "components", "executors",
    "tasks", "item",
}  # fmt: skip
"""Maps whose keys are names that the author chooses."""


def steps_of(text: str) -> dict[str, Any]:
    result = import_text(text)
    assert result.pipeline is not None, [finding.render() for finding in result.findings]
    document = to_document(result.pipeline)
    assert loads(result.text()) == result.pipeline
    found: dict[str, Any] = document
    return found


def test_a_workflow_becomes_a_pipeline_in_the_spec_s_own_words() -> None:
    found = steps_of(WORKFLOW)
    assert found["schedule"] == {"cron": "0 2 * * *", "timezone": "Europe/Berlin"}
    assert (found["parallel"], found["deadline"], found["description"]) == (4, "1h", "Every night")
    assert found["engines"]["argo"] == {
        "pod_gc": {"strategy": "OnPodCompletion"},
        "ttl": {"success": "10m", "failure": "10m"},
        "history": {"successful": 2},
    }
    assert found["claims"] == {"scratch": {"size": "10Gi"}}
    assert found["params"]["sizes"] == {"type": "json", "default": ["1", "2"]}
    assert found["defaults"]["service_account"] == "runner"
    steps = found["steps"]
    train = steps["train"]
    assert train["for_each"] == {"item": {"param": "sizes"}}
    assert train["args"] == [
        {"join": ["--rows=n=", {"output": "prepare.row_count"}]},
        "--size",
        {"item": "item"},
        "/home",
    ]
    assert train["gpu"] == "l4-24gb"
    assert train["retry"] == {"any": 2, "backoff": "30s"}
    assert train["timeout"] == "10m"
    assert train["env"]["TOKEN"] == {"secret": "hub", "key": "token"}
    assert train["volumes"] == {"/data": {"claim": "data", "read_only": True}, "/scratch": {"new_claim": "scratch"}}
    assert train["kubernetes"]["merge"]["spec"]["enableServiceLinks"] is False
    assert steps["prepare"]["outputs"] == {"row_count": {"type": "string", "path": "/tmp/rows", "default": "0"}}
    assert steps["report"]["when"] == "steps.prepare.row_count != '0'"
    assert steps["report"]["params"] == {"title": {"output": "prepare.row_count"}}
    inner = steps["report"]["pipeline"]["steps"]
    assert inner["draw"]["args"] == [{"join": ["of ", {"param": "title"}, " ", {"item": "item"}]}]
    assert inner["draw"]["for_each"] == {"item": {"range": {"start": 1, "stop": 4}}}
    assert [name for name, step in inner.items() if step.get("needs") == ["draw"]] == ["send-0", "send-1"]
    assert steps["look"] == {"needs": ["report"], "if_skipped": "run", "approval": "Resume look?"}
    assert found["exit"]["cheer"]["on"] == "success"


ODD_NUMBERS = ("²", "٣", "9" * 320, "9" * 5000, "1.5", "-1", "{{x}}", [], {}, "", True)


def said_of(text: str) -> list[str]:
    """What is said of a file, be it that it is refused; anything else is a bug."""
    try:
        return [finding.render() for finding in import_text(text).findings]
    except GpuflowError as refusal:
        return [finding.render() for finding in refusal.findings]


@pytest.mark.parametrize("value", ODD_NUMBERS, ids=lambda value: str(value)[:6])
@pytest.mark.parametrize(
    ("before", "after"),
    [('limit: "2"', "limit: "), ('factor: "2"', "factor: "), ("parallelism: 4", "parallelism: ")],
    ids=["limit", "factor", "parallelism"],
)
def test_what_is_no_number_where_argo_wants_one_is_said_and_never_a_crash(before: str, after: str, value: Any) -> None:
    assert WORKFLOW.count(before) == 1
    assert said_of(WORKFLOW.replace(before, f"{after}{json.dumps(value)}"))


@pytest.mark.parametrize("value", ["²", "1.5"])
def test_an_odd_number_of_gpus_is_said_and_never_a_crash(value: str) -> None:
    assert JOB.count("nvidia.com/gpu: 2") == 1
    assert said_of(JOB.replace("nvidia.com/gpu: 2", f'nvidia.com/gpu: "{value}"'))


def test_a_number_of_gpus_beyond_all_reason_stays_the_amount_that_it_is() -> None:
    (step,) = steps_of(JOB.replace("nvidia.com/gpu: 2", f'nvidia.com/gpu: "{"9" * 320}"'))["steps"].values()
    assert "9" * 320 in json.dumps(step)


def test_a_list_as_the_name_of_a_volume_is_no_crash() -> None:
    """The command is the supervisor's, whose own volume is taken away."""
    text = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  entrypoint: main
  volumes: [{name: [gpuflow-outputs], emptyDir: {}}]
  templates:
  - name: main
    container:
      image: i
      command: [gpuflow-run, --output=a, --, work]
      volumeMounts: [{name: [gpuflow-outputs], mountPath: /gpuflow/outputs}]
"""
    assert steps_of(text)["steps"]["main"]["command"] == ["work"]


def test_a_job_becomes_a_step_with_copies_a_queue_and_gpus_by_name() -> None:
    found = steps_of(JOB)
    (step,) = found["steps"].values()
    assert (step["for_each"], step["parallel"]) == ({"index": {"range": 4}}, 2)
    assert step["command"][-1] == {"item": "index"}
    assert (step["gpu"], step["queue"], step["retry"]) == ("a100-80gb sxm x 2", "gpus", 1)
    assert step["kubernetes"]["merge"]["spec"]["volumes"] == [{"name": "shm", "emptyDir": {"medium": "Memory"}}]


def test_a_kubeflow_pipeline_becomes_steps_with_typed_references() -> None:
    found = steps_of(KFP)
    assert found["steps"]["say"]["command"] == ["say", {"param": "greeting"}, "/tmp/outputs/length"]
    assert found["steps"]["say"]["gpu"] == "l4-24gb"
    assert found["steps"]["loop"]["for_each"] == {"item": ["a", "b"]}
    assert found["steps"]["loop"]["params"] == {"each": {"item": "item"}}


def test_any_gpu_is_a_number_and_a_slice_is_a_slice() -> None:
    anywhere = JOB.replace("      nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}\n", "")
    assert steps_of(anywhere)["steps"]["train"]["gpu"] == 2
    slices = JOB.replace("nvidia.com/gpu: 2", "nvidia.com/mig-1g.10gb: 1")
    step = steps_of(slices)["steps"]["train"]
    assert step["mig"] == {"profile": "1g.10gb", "model": "a100-80gb"} or step["kubernetes"]["resources"]


# ----------------------------------------------------------------------- lists


def test_what_cannot_be_said_is_listed_by_line_with_the_way_out(gpuflow: Gpuflow, tmp_path: Path) -> None:  # noqa: F811  # the fixture that is imported
    file = tmp_path / "w.yaml"
    file.write_text(
        WORKFLOW.replace(
            "    - name: approve\n      suspend: {}\n", "    - name: approve\n      http: {url: x}\n"
        ).replace("          template: train\n", "          template: train\n          continueOn: {failed: true}\n")
    )
    answer = gpuflow("import", file)
    assert (answer.code, answer.out) == (1, "")
    places = [line for line in answer.err.splitlines() if "GF" in line]
    assert places == [
        f"{file}:40:11: GF786 task continueOn: a pipeline has no word for it",
        f"{file}:104:7: GF786 http: a step runs a container; it sends no requests by itself",
    ]
    assert answer.err.endswith("nightly is no pipeline: 2 things cannot be said\n")


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("{{steps.x.outputs.result}}", "GF787"),
        ("{{workflow.duration}}", "GF787"),
        ("{{=sprig.upper(workflow.parameters.sizes)}}", "GF787"),
    ],
)
def test_a_tag_without_a_reference_is_listed(tag: str, code: str) -> None:
    result = import_text(WORKFLOW.replace("value: ok}", f'value: "{tag}"}}'))
    assert [finding.code for finding in result.findings] == [code]
    assert tag in result.findings[0].message


def maps_in(tree: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(tree, dict):
        yield name, tree
        for key, value in tree.items():
            yield from maps_in(value, str(key))
    elif isinstance(tree, list):
        for value in tree:
            yield from maps_in(value, name if name != "withItems" else "item")


def with_surprise(text: str, index: int) -> tuple[str, list[Any]]:
    trees = yaml_tree.parse_all(text, "x.yaml")
    name, chosen = [pair for tree in trees for pair in maps_in(tree)][index]
    chosen["surprise"] = "one"
    if isinstance(chosen, yaml_tree.Map):
        chosen.key_at["surprise"] = chosen.value_at["surprise"] = yaml_tree.Position(1000 + index, 7)
    return name, trees


@pytest.mark.parametrize("name", SAMPLES)
def test_a_field_that_nobody_reads_is_never_dropped_in_silence(name: str) -> None:
    """Put a field into each map of each sample, one at a time: it is in the pipeline, or on the list with its line."""
    text = SAMPLES[name]
    count = sum(1 for tree in yaml_tree.parse_all(text, "x") for _ in maps_in(tree))
    lost = []
    for index in range(count):
        owner, trees = with_surprise(text, index)
        if owner in FREE:
            continue
        result = import_trees(trees)
        listed = any("surprise" in finding.message for finding in result.findings)
        if not listed and not (result.pipeline is not None and "surprise" in result.text()):
            lost.append(owner)
    assert lost == []


# ---------------------------------------------------------------------- bounds


def test_templates_that_multiply_or_call_themselves_end() -> None:
    calls = "\n".join(f"    - - {{name: a{i}, template: t%d}}\n      - {{name: b{i}, template: t%d}}" for i in range(2))
    head = (
        "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  entrypoint: t0\n  templates:\n"
    )
    many = "".join(f"  - name: t{i}\n    steps:\n{calls % ((i + 1,) * 4)}\n" for i in range(30))
    leaf = "  - name: t30\n    container: {image: i, command: [x]}\n"
    codes = {finding.code for finding in import_text(head + many + leaf).findings}
    assert codes == {"GF788"}
    loop = "  - name: t0\n    steps:\n    - - {name: a, template: t0}\n"
    (finding,) = import_text(head + loop).findings
    assert (finding.code, finding.where.line) == ("GF788", 9)


def test_a_loop_of_a_billion_is_refused_at_once() -> None:
    text = WORKFLOW.replace('end: "3"', 'end: "1000000000"')
    (finding,) = import_text(text).findings
    assert (finding.code, finding.severity) == ("GF791", "error")
    assert "GF163" in finding.message


def test_a_pod_that_breaks_a_rule_of_a_step_is_refused_with_that_rule() -> None:
    more = "          requests: {memory: 65Gi}\n          limits: {nvidia"
    (finding,) = import_text(JOB.replace("          limits: {nvidia", more)).findings
    assert (finding.code, finding.severity) == ("GF791", "error")
    assert "GF112" in finding.message


def test_what_the_import_changed_is_noted_with_its_line() -> None:
    notes = import_text(WORKFLOW).notes
    assert {(each.code, each.severity) for each in notes} == {("GF790", "note")}
    (renamed,) = [each for each in notes if each.message.startswith('the parameter "model-name" is called model_name')]
    assert renamed.where.line == 21


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "{{item}}", "{{", "/a", "1Gi"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "value", "a"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.sampled_from(sorted(SAMPLES)), st.integers(0, 10_000), values, st.data())
def test_whatever_stands_somewhere_there_is_an_answer(name: str, index: int, value: Any, data: st.DataObject) -> None:
    """A pipeline or a list, never a traceback."""
    trees = copy.deepcopy(yaml_tree.parse_all(SAMPLES[name], "x.yaml"))
    found = [chosen for tree in trees for _, chosen in maps_in(tree) if chosen]
    chosen = found[index % len(found)]
    key = data.draw(st.sampled_from(sorted(chosen)))
    chosen[key] = value
    if isinstance(trees[0], dict) and trees[0].get("kind", "x") in ("CronWorkflow", "Job", "x"):
        result = import_trees(trees)
        assert (result.pipeline is None) == bool(result.findings)


# --------------------------------------------------------------------- command


def test_the_command_writes_reads_standard_input_and_finds_templates(
    gpuflow: Gpuflow,  # noqa: F811  # the fixture that is imported
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, out = tmp_path / "job.yaml", tmp_path / "p.yaml"
    file.write_text(JOB)
    assert gpuflow("import", file, "-o", out).code == 0
    assert gpuflow("validate", out).code == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(JOB.encode())))
    assert gpuflow("import", "-").out == out.read_text()
    caller = tmp_path / "w.yaml"
    caller.write_text(
        "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\n"
        "spec: {workflowTemplateRef: {name: t}, arguments: {parameters: [{name: x, value: hi}]}}\n"
    )
    alone = gpuflow("import", caller)
    assert (alone.code, "GF788 WorkflowTemplate t: it is in none of the files given" in alone.err) == (1, True)
    other = tmp_path / "t.yaml"
    other.write_text(
        "apiVersion: argoproj.io/v1alpha1\nkind: WorkflowTemplate\nmetadata: {name: t}\n"
        "spec:\n  entrypoint: a\n  arguments: {parameters: [{name: x}]}\n  templates:\n"
        "  - {name: a, container: {image: i, command: [echo, '{{workflow.parameters.x}}']}}\n"
    )
    both = gpuflow("import", caller, other, "--name", "w")
    assert both.code == 0
    assert "default: hi" in both.out
    assert gpuflow("import", caller, "--name", "nobody").code == 2


def test_what_is_no_run_of_steps_is_refused(gpuflow: Gpuflow, tmp_path: Path) -> None:  # noqa: F811  # the fixture that is imported
    file = tmp_path / "d.yaml"
    file.write_text("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {}\n")
    answer = gpuflow("import", file)
    assert answer.code == 1
    assert f"{file}:2:7: GF789 Deployment web" in answer.err


def test_a_program_is_refused_with_the_way_to_import_what_it_makes(gpuflow: Gpuflow, tmp_path: Path) -> None:  # noqa: F811  # the fixture that is imported
    file = tmp_path / "dag.py"
    file.write_text("from airflow import DAG\nwith DAG('d'):\n    pass\n")
    answer = gpuflow("import", file)
    assert answer.code == 2
    assert "GF796" in answer.err and "import the YAML" in answer.err


def test_only_an_earlier_import_is_overwritten(gpuflow: Gpuflow, tmp_path: Path) -> None:  # noqa: F811  # the fixture that is imported
    file, out = tmp_path / "job.yaml", tmp_path / "p.yaml"
    file.write_text(JOB)
    for _ in range(2):
        assert gpuflow("import", file, "-o", out).code == 0
    answer = gpuflow("import", file, "-o", file)
    assert answer.code == 2 and "GF797" in answer.err
    assert file.read_text() == JOB


def test_of_several_objects_the_first_is_imported_and_the_others_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = "{restartPolicy: Never, containers: [{name: main, image: i, command: [x]}]}"
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: %s}}\nspec: {spec}\n"
    file = tmp_path / "two.yaml"
    file.write_text((pod % "one") + "---\n" + (pod % "two"))
    assert main(["import", str(file)]) == 0
    shown = capsys.readouterr()
    assert "name: one" in shown.out
    assert "imports Pod one, the first; not imported: Pod two (--name says which)" in shown.err
    assert main(["import", str(file), "--name", "two"]) == 0
    shown = capsys.readouterr()
    assert "name: two" in shown.out and "not imported" not in shown.err
