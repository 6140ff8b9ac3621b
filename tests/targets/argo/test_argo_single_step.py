"""What Hera users get: one step as a template to call, and whole pipelines as Hera objects.

Tests gpuflow/argo.py, gpuflow/targets/argo/single_step.py and gpuflow/targets/single_step.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hera.expr import g
from hera.workflows import DAG, Parameter, Steps, Workflow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpuflow
import gpuflow.argo
from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.canonical import meaning_of
from gpuflow.spec.loading import load, loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.argo.facts import CAPABILITIES, ArgoOptions
from gpuflow.targets.argo.single_step import standalone_template
from gpuflow.targets.argo.workflow import KINDS, build
from gpuflow.targets.capabilities import construct_losses
from gpuflow.targets.target import Request
from tests.conftest import ROOT
from tests.differential.oracle import Oracle
from tests.targets.argo.test_argo import CONSTRUCTS, HEAD, SCHEDULED
from tests.targets.argo.test_argo_text import PRINTABLE, kubelet

FULL: dict[str, Any] = {
    "image": "train:1",
    "command": ["torchrun", "train.py", "--lr", {"param": "lr"}, "--shards", {"output": "prepare.shards"}],
    "args": [{"join": ["run-", {"run": "id"}]}],
    "env": {"A": "{{b}}", "S": {"secret": "s", "key": "k"}},
    "env_from": [{"config_map": "c", "prefix": "P_"}],
    "gpu": "a100-80gb x 2",
    "cpu": 4,
    "memory": "200Gi",
    "shm": "16Gi",
    "ephemeral_storage": "1Gi",
    "spot": "never",
    "queue": "research",
    "priority": {"pod": "high", "queue": "urgent"},
    "labels": {"team": "nlp"},
    "annotations": {"example.com/a": "yes"},
    "service_account": "robot",
    "timeout": "10m",
    "termination_grace": "2m",
    "image_pull_policy": "Always",
    "image_pull_secrets": ["regcred"],
    "working_dir": "/w",
    "volumes": {"/a": {"claim": "data", "read_only": True}, "/e": {"empty_dir": "1Gi"}},
    "init_containers": [{"name": "get", "image": "g", "command": ["get"]}],
    "sidecars": [{"name": "proxy", "image": "q", "command": ["serve"], "ports": [80]}],
    "probes": {"liveness": {"command": ["ok"]}, "readiness": {"tcp": 80}, "startup": {"http": {"port": 80}}},
    "security": {"user": 5, "read_only_root": True},
    "topology": {"spread": "zone"},
    "kubernetes": {"scheduler": "volcano", "runtime_class": "kata", "tolerations": [{"key": "k"}]},
    "retry": {"failures": 2, "interruptions": 3, "backoff": "10s", "final_exit_codes": [3]},
    "checkpoint": {"path": "/ckpt", "store": "s3://b/c"},
    "outputs": {"loss": {"type": "float", "default": 1}, "model": "string"},
}


def built(workflow: Workflow) -> dict[str, Any]:
    """The workflow as Hera itself writes it down and reads it back."""
    manifest: dict[str, Any] = workflow.to_dict()
    assert yaml.safe_load(workflow.to_yaml()) == manifest
    return manifest


def hand_written(step: gpuflow.Step, **arguments: Any) -> dict[str, Any]:
    with Workflow(name="wf", namespace="ns", entrypoint="main", arguments={"p": "d"}) as workflow:
        train = gpuflow.argo.container(step, "nvidia", name="train")
        with DAG(name="main"):
            train(**arguments)
    return built(workflow)


def test_a_hand_written_workflow_holds_everything_that_a_step_says() -> None:
    step = gpuflow.Step(**FULL)
    manifest = hand_written(step, lr=2e-5, shards=4)
    (found,) = [entry for entry in manifest["spec"]["templates"] if entry["name"] == "train"]
    assert found == standalone_template(step, Site.load("nvidia"), "train")
    assert sorted(found) == [
        "activeDeadlineSeconds", "affinity", "container", "initContainers", "inputs", "metadata", "name", "outputs",
        "podSpecPatch", "priorityClassName", "retryStrategy", "schedulerName", "securityContext", "serviceAccountName",
        "sidecars", "tolerations", "volumes",
    ]  # fmt: skip


def test_a_container_is_the_same_template_as_in_a_compiled_pipeline() -> None:
    fields = {"image": "i", "command": ["x", "{{a}}", "--n", "1"], "gpu": "l4", "retry": 2, "outputs": {"rows": "int"}}
    pipeline = gpuflow.Pipeline(name="train", steps={"train": fields})
    compiled = build(Request(pipeline, Site.load("nvidia"), "ns", "p.yaml"))["spec"]["templates"][1]
    assert standalone_template(gpuflow.Step(**fields), Site.load("nvidia"), "train") == compiled


def test_outputs_and_parameters_of_hera_go_in_as_keyword_arguments() -> None:
    first = gpuflow.Step(image="i", command=["a"], outputs={"rows": "int"})
    second = gpuflow.Step(image="i", command=["b", {"output": "first.rows"}, {"param": "name"}])
    with Workflow(name="wf", entrypoint="main", arguments=[Parameter(name="who", value="me")]) as workflow:
        one = gpuflow.argo.container(first, name="one")
        two = gpuflow.argo.container(second, name="two")
        with DAG(name="main"):
            made = one()
            made >> two(rows=made.get_parameter("rows"), name=workflow.get_parameter("who"))
    (task,) = [entry for entry in built(workflow)["spec"]["templates"][-1]["dag"]["tasks"] if entry["name"] == "two"]
    values = {entry["name"]: entry["value"] for entry in task["arguments"]["parameters"]}
    assert "tasks.one.outputs.parameters.rows" in values["rows"]
    assert "workflow.parameters.who" in values["name"]


def test_a_container_runs_in_steps_and_over_items_too() -> None:
    step = gpuflow.Step(image="i", command=["a", {"param": "x"}])
    with Workflow(name="wf", entrypoint="main") as workflow:
        each = gpuflow.argo.container(step, name="each")
        with Steps(name="main"):
            each(arguments={"x": "{{item}}"}, with_items=["a", "b"])
    (call,) = built(workflow)["spec"]["templates"][-1]["steps"][0]
    assert call["withItems"] == ["a", "b"]
    assert "item" in call["arguments"]["parameters"][0]["value"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({}, 'needs "x"'), ({"x": 1, "arguments": {"y": 2}}, 'takes no "y"')],
)
def test_missing_and_unknown_arguments_are_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(GpuflowError, match=words):
        hand_written(gpuflow.Step(image="i", command=["a", {"param": "x"}]), **arguments)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"needs": ["b"]}, "needs belongs to the pipeline"),
        ({"for_each": {"x": [1]}}, "for_each belongs to the pipeline"),
        ({"volumes": {"/a": {"new_claim": "c"}}}, "new_claim belongs to the pipeline"),
        ({"args": [{"item": "x"}]}, r"write \{param: x\}, and pass the loop's item as x="),
    ],
)
def test_what_the_author_of_the_workflow_writes_is_refused_on_a_step(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(GpuflowError, match=words):
        gpuflow.argo.container(gpuflow.Step(image="i", command=["a"], **fields))


def test_an_expression_of_hera_is_a_value_and_an_object_is_none() -> None:
    step = gpuflow.Step(image="i", command=["a", {"param": "x"}])
    (call,) = hand_written(step, x=g.workflow.parameters.p)["spec"]["templates"][-1]["dag"]["tasks"]
    assert "string(workflow.parameters.p)" in call["arguments"]["parameters"][0]["value"]
    for wrong in (object(), Workflow(name="wf")):
        with pytest.raises(GpuflowError, match=r'"x" is a (object|Workflow), which is not a value'):
            hand_written(step, x=wrong)
    with pytest.raises(GpuflowError, match=r"expected a gpuflow\.Step, not a dict"):
        gpuflow.argo.container({"image": "i", "command": ["a"]})  # type: ignore[arg-type]  # wrong on purpose


@pytest.fixture(scope="module")
def argo() -> Iterator[Oracle]:
    with Oracle("argo", "substitution") as oracle:
        yield oracle


@pytest.mark.go
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=PRINTABLE, before=st.sampled_from(["", "a-", "{", "$", "$(", "{{ ", "{{="]), literal=PRINTABLE)
def test_arguments_reach_the_container_unchanged(argo: Oracle, value: str, before: str, literal: str) -> None:
    """Asked of Argo's own substitution. A literal with a whole tag in it is a tag, as everywhere in Hera."""
    plain = literal.replace("}}", "")
    step = gpuflow.Step(image="i", command=["x", {"param": "a"}, {"param": "b"}])
    manifest = hand_written(step, a=before + "{{workflow.parameters.p}}", b=plain)
    manifest["metadata"] = {"name": "wf", "namespace": "ns", "uid": "0-1"}
    (answer,) = argo.ask([{"workflow": manifest, "parameters": {"p": value}, "path": ["train"], "scope": {}}])
    assert "pods" in answer, answer
    (pod,) = answer["pods"]
    variables = {entry["name"]: entry["value"] for entry in pod["container"].get("env", [])}
    _, first, second = (kubelet(word, variables) for word in pod["container"]["command"])
    assert first == before + value
    assert second == plain


CHECKPOINT = {"path": "/c", "store": "s3://m"}
KEEPS = gpuflow.Step(image="i", command=["x"], checkpoint=CHECKPOINT)
KEEPS_WITH = gpuflow.Step(image="i", command=["x", {"param": "n"}], checkpoint=CHECKPOINT)


def states(argo: Oracle, manifest: dict[str, Any], task: str) -> list[str]:
    """Under which step each pod of a task keeps its state."""
    manifest["metadata"] = {"name": "wf", "namespace": "ns", "uid": "0-1"}
    (answer,) = argo.ask([{"workflow": manifest, "parameters": {"p": "v"}, "path": [task], "scope": {}}])
    assert "pods" in answer, answer
    words = [word for pod in answer["pods"] for word in pod["container"]["command"]]
    return [word for word in words if word.startswith("--step=")]


@pytest.mark.go
def test_tasks_of_one_container_keep_their_checkpoints_apart(argo: Oracle) -> None:
    with Workflow(name="wf", namespace="ns", entrypoint="main", arguments={"p": "d"}) as workflow:
        bare = gpuflow.argo.container(KEEPS, name="bare")
        told = gpuflow.argo.container(KEEPS_WITH, name="told")
        with DAG(name="main"):
            bare(name="one")
            bare(name="each", with_items=["a", "b", 3])
            bare(name="rows", with_items=[{"k": 1}, {"k": 2}])
            told(name="other", n="{{workflow.parameters.p}}")
            told(name="same", n=5)
    manifest = built(workflow)
    found = [state for task in ("one", "each", "rows", "other", "same") for state in states(argo, manifest, task)]
    assert len(found) == len(set(found)) == 8
    assert found[0] == "--step=one/bare"
    with Oracle("argo", "lint") as oracle:
        assert [answer["errors"] for answer in oracle.ask([{"text": yaml.safe_dump(manifest)}])] == [[]]


def test_a_container_that_is_the_whole_workflow_needs_no_caller() -> None:
    template = standalone_template(KEEPS, Site.load("nvidia"), "train")
    assert template["inputs"]["parameters"] == [{"name": "pipeline--place", "value": "train"}]


@pytest.mark.go
def test_argos_own_validation_accepts_a_hand_written_workflow() -> None:
    manifest = hand_written(gpuflow.Step(**FULL), lr="{{workflow.parameters.p}}", shards=3)
    with Oracle("argo", "lint") as oracle:
        assert [answer["errors"] for answer in oracle.ask([{"text": yaml.safe_dump(manifest)}])] == [[]]


def examples() -> dict[str, Path]:
    """Every pipeline of the documentation's examples."""
    folder = ROOT / "docs" / "examples"
    marks = {".yaml": "kind: Pipeline", ".py": "Pipeline("}
    files = (path for path in sorted(folder.rglob("*")) if path.suffix in marks)
    return {path.relative_to(folder).as_posix(): path for path in files if marks[path.suffix] in path.read_text()}


EXAMPLES = examples()


def site_named(name: str) -> Site:
    """The site that an example is for: the one beside it where it keeps artifacts, else the plain one."""
    return Site.load(str(EXAMPLES[name].with_name("site.yaml")) if name.startswith("artifacts/") else "nvidia")


def pipeline_named(name: str) -> Pipeline:
    constructs = {"constructs": CONSTRUCTS, "scheduled": SCHEDULED}
    return loads(HEAD + constructs[name], "p.yaml") if name in constructs else load(EXAMPLES[name])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["constructs", "scheduled", *EXAMPLES])
def test_hera_writes_exactly_the_manifest_that_is_compiled(name: str, kind: str) -> None:
    pipeline = pipeline_named(name)
    refusal = "needs a schedule" if kind == "CronWorkflow" and pipeline.schedule is None else None
    if construct_losses(pipeline, CAPABILITIES, "argo"):
        refusal = "GF301"
    if refusal:
        with pytest.raises(GpuflowError, match=refusal):
            gpuflow.argo.to_hera(pipeline, kind=kind, site=site_named(name))
        return
    manifest = build(Request(meaning_of(pipeline), site_named(name), "ns", "p.yaml", (), ArgoOptions(kind)))
    assert built(gpuflow.argo.to_hera(pipeline, namespace="ns", kind=kind, site=site_named(name))) == manifest


@pytest.mark.parametrize("wish", [1, gpuflow.gpu(), gpuflow.gpu(1), "any", {"count": 1}], ids=str)
def test_a_step_in_hand_written_code_asks_for_any_gpu(wish: Any) -> None:
    template = standalone_template(gpuflow.Step(image="i:1", command=["train"], gpu=wish), Site.load("nvidia"), "train")
    assert template["container"]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert template["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert "nodeSelector" not in template and "affinity" not in template


def test_text_like_a_template_is_questioned_in_the_log_but_not_the_arguments_that_argo_fills_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    step = gpuflow.Step(image="i", command=["x", "{{workflow.name}}", gpuflow.text("{{ds}}"), {"param": "lr"}])
    with Workflow(name="wf", entrypoint="main", arguments={"p": "d"}) as workflow:
        called = gpuflow.argo.container(step, name="x")
        with DAG(name="main"):
            called(name="a", lr="{{workflow.parameters.p}}")
            called(name="b", lr=gpuflow.text("{{workflow.parameters.p}}"))
    said = [record.getMessage() for record in caplog.records if record.name == "gpuflow.argo"]
    assert [line.split(": GF341 ")[1].split(" is plain")[0] for line in said] == ["command: {{workflow.name}}"]
    assert __file__ in said[0]
    (main,) = [each for each in workflow.to_dict()["spec"]["templates"] if each["name"] == "main"]
    filled, literal = (each["arguments"]["parameters"][0]["value"] for each in main["dag"]["tasks"])
    assert "workflow.parameters.p" in filled
    assert literal != filled
    assert "{{workflow" not in literal


def test_a_whole_pipeline_as_hera_objects_is_questioned_too(caplog: pytest.LogCaptureFixture) -> None:
    gpuflow.argo.to_hera(loads(HEAD + 'steps: {a: {image: i, command: [x, "{{ ds }}"]}}\n', "p.yaml"))
    (said,) = [record.getMessage() for record in caplog.records if "GF341" in record.getMessage()]
    assert said.startswith("p.yaml:")
