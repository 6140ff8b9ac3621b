"""The IR is what kfp and its backend read: every part parses with unknown fields as errors, and kfp loads it.

Tests gpuflow/targets/kubeflow/build.py, gpuflow/targets/kubeflow/build.py and gpuflow/targets/kubeflow/document.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format
from kfp import compiler
from kfp.compiler.compiler_utils import KubernetesManifestOptions
from kfp.components import load_component_from_text
from kfp.kubernetes import kubernetes_executor_config_pb2 as platform
from kfp.pipeline_spec import pipeline_spec_pb2 as ir

from gpuflow.site import Site
from gpuflow.spec.loading import load
from gpuflow.targets.kubeflow import target
from gpuflow.targets.target import Request, compile_with
from tests.targets.kubeflow.compiling import compiled, documents
from tests.targets.kubeflow.samples import SAMPLES
from tests.targets.kubeflow.test_twins import TWINS

EXAMPLES = [
    path
    for path in sorted((Path(__file__).resolve().parents[3] / "docs" / "examples").glob("*.yaml"))
    if path.stem != "daily"  # dates in its commands, which may not be left out
]
SOURCES = {**{name: source for name, (source, _) in TWINS.items()}, **SAMPLES}
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", SOURCES)
def test_every_part_parses_as_the_backend_parses_it(name: str) -> None:
    spec, *rest = documents(SOURCES[name])
    json_format.ParseDict(spec, ir.PipelineSpec())
    json_format.ParseDict(spec["deploymentSpec"], ir.PipelineDeploymentConfig())
    json_format.ParseDict(rest[0], ir.PlatformSpec())
    executors = rest[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert executors
    for config in executors.values():
        json_format.ParseDict(config, platform.KubernetesExecutorConfig())


@pytest.mark.parametrize("name", SOURCES)
def test_kfp_loads_it_as_a_pipeline_with_its_parameters(name: str) -> None:
    loaded = load_component_from_text(compiled(SOURCES[name]))
    spec, *_ = documents(SOURCES[name])
    params = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    assert loaded.component_spec.implementation.graph is not None
    assert set(loaded.component_spec.inputs or {}) == set(params)
    assert loaded.platform_spec.platforms["kubernetes"].deployment_spec.executors


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_compiles_with_its_losses_named_and_kfp_loads_it(path: Path) -> None:
    pipeline = load(path)
    request = Request(pipeline, Site.load("nvidia"), None, path.name)
    compiled = compile_with(target, request, allow_lossy=True)
    artifact = compiled.artifact
    assert artifact.text.count("# LOST: kubeflow") == len(compiled.losses)
    spec, platform_spec = yaml.safe_load_all(artifact.text)
    json_format.ParseDict(spec, ir.PipelineSpec())
    json_format.ParseDict(spec["deploymentSpec"], ir.PipelineDeploymentConfig())
    json_format.ParseDict(platform_spec, ir.PlatformSpec())
    for component in [spec["root"], *spec["components"].values()]:
        check_dag(component, spec["components"])
    assert set(load_component_from_text(artifact.text).component_spec.inputs or {}) == set(pipeline.params)


@pytest.mark.parametrize("name", SOURCES)
def test_names_lead_somewhere(name: str) -> None:
    spec, *rest = documents(SOURCES[name])
    executors = set(spec["deploymentSpec"]["executors"])
    assert {c["executorLabel"] for c in spec["components"].values() if "executorLabel" in c} == executors
    assert set(rest[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]) <= executors
    for component in [spec["root"], *spec["components"].values()]:
        check_dag(component, spec["components"])


def check_dag(component: dict[str, Any], components: dict[str, Any]) -> None:
    """Every input comes from somewhere, has the type that is wanted, and is waited for."""
    tasks = component.get("dag", {}).get("tasks", {})
    handed = component.get("inputDefinitions", {}).get("parameters", {})
    for name, task in tasks.items():
        assert set(task.get("dependentTasks", [])) <= set(tasks) - {name}
        inner = components[task["componentRef"]["name"]]
        wanted = inner.get("inputDefinitions", {}).get("parameters", {})
        given = task.get("inputs", {}).get("parameters", {})
        item = {task["parameterIterator"]["itemInput"]} if "parameterIterator" in task else set()
        assert set(given) | item <= set(wanted)
        assert {key for key, entry in wanted.items() if not entry.get("isOptional")} <= set(given) | item
        if "parameterIterator" in task:
            check_loop(task, inner)
        for key, entry in given.items():
            # The driver turns anything into text where text is wanted, and refuses every other mismatch.
            if "componentInputParameter" in entry:
                source = handed[entry["componentInputParameter"]]["parameterType"]
                assert "parameterExpressionSelector" in entry or wanted[key]["parameterType"] in (source, "STRING")
            if "taskOutputParameter" in entry:
                made = entry["taskOutputParameter"]
                producer = components[tasks[made["producerTask"]]["componentRef"]["name"]]
                source = producer["outputDefinitions"]["parameters"][made["outputParameterKey"]]["parameterType"]
                assert wanted[key]["parameterType"] in (source, "STRING")
                assert made["producerTask"] in task["dependentTasks"]


def check_loop(task: dict[str, Any], body: dict[str, Any]) -> None:
    """The driver takes the list away from a loop's body, and writes the item over an input of the same name."""
    iterator = task["parameterIterator"]
    assert iterator["itemInput"] not in task.get("inputs", {}).get("parameters", {})
    taken = iterator["items"].get("inputParameter")
    for inner in body["dag"]["tasks"].values():
        read = [
            entry.get("componentInputParameter") for entry in inner.get("inputs", {}).get("parameters", {}).values()
        ]
        assert taken is None or taken not in read


PAIRS = """
name: pairs
defaults: {image: "registry.example.com/work:1"}
params: {names: {type: json, default: [a, b]}}
steps:
  pair: {command: [pair, {item: left}, {item: right}], for_each: {left: {param: names}, right: {param: names}}}
  rank: {command: [rank, {item: one}, --among, {param: names}], for_each: {one: {param: names}}}
"""


def test_two_variables_over_one_list_have_an_item_each_and_a_loop_may_read_its_own_list() -> None:
    spec, _ = documents(PAIRS)
    for component in [spec["root"], *spec["components"].values()]:
        check_dag(component, spec["components"])
    pair = spec["components"]["comp-for-loop-2"]["dag"]["tasks"]["pair"]["inputs"]["parameters"]
    assert pair["loop_item-left"] != pair["loop_item-right"]


def test_a_step_that_bears_the_pipelines_name_is_not_taken_for_the_pipeline() -> None:
    text = compiled('name: train\nsteps:\n  train: {command: [x], image: "i:1", cpu: 1}\n')
    assert load_component_from_text(text).component_spec.implementation.graph is not None


def test_equal_containers_with_other_inputs_are_told_apart() -> None:
    """KFP's compiler takes components with one container for one component, and one of them would lack its inputs."""
    head = "name: p\ndefaults: {image: i}\n"
    steps = "steps:\n  a: {command: [x]}\n  b: {command: [x], needs: [a]}\n  c: {command: [y]}\n"
    ends = "exit:\n  d: {command: [x], on: failure}\n  e: {command: [x]}\n"
    spec, *_ = documents(head + steps + ends)
    found: dict[str, dict[str, Any]] = {}
    for component in spec["components"].values():
        if label := component.pop("executorLabel", None):
            container = repr(spec["deploymentSpec"]["executors"][label]["container"])
            assert found.setdefault(container, component) == component
    own = [each for each in found if "GPUFLOW_COMPONENT" in each]
    assert len(found) >= 3 and own and all("comp-" in each for each in own)
    assert "# NOTE: GPUFLOW_COMPONENT tells" in compiled(head + steps + ends)
    assert "GPUFLOW_COMPONENT" not in compiled(head + steps)


def test_plain_data_is_what_protobuf_itself_writes() -> None:
    for source in SOURCES.values():
        spec, *_ = documents(source)
        assert spec == json_format.MessageToDict(json_format.ParseDict(spec, ir.PipelineSpec()))


def test_resources_for_git_hold_the_same_pipeline() -> None:
    pipeline, version = documents(SAMPLES["timed"], form="crd")
    spec, platform_spec = documents(SAMPLES["timed"])
    assert (pipeline["kind"], pipeline["metadata"]["name"]) == ("Pipeline", "timed")
    assert version["spec"]["pipelineName"] == "timed"
    assert version["spec"]["pipelineSpec"] == spec
    assert version["spec"]["platformSpec"] == platform_spec


def test_resources_for_git_have_the_fields_that_kfp_itself_writes(tmp_path: Path) -> None:
    source, function = TWINS["params"]
    path = tmp_path / "crd.yaml"
    options = KubernetesManifestOptions(namespace="team-a", include_pipeline_manifest=True)
    compiler.Compiler().compile(
        function(), str(path), kubernetes_manifest_format=True, kubernetes_manifest_options=options
    )
    theirs = list(yaml.safe_load_all(path.read_text()))
    ours = documents(source, namespace="team-a", form="crd")
    for mine, other in zip(ours, theirs, strict=True):
        assert {key: mine[key] for key in ("apiVersion", "kind")} == {key: other[key] for key in ("apiVersion", "kind")}
        assert set(mine["metadata"]) == set(other["metadata"])
        assert set(mine["spec"]) == set(other["spec"])


def test_the_supervisor_can_come_from_a_config_map() -> None:
    site = Site.model_validate({"name": "plain", "runtime": {"delivery": "config-map"}})
    spec, platform_spec = documents(
        'name: p\nsteps: {work: {image: "i:1", command: [w], outputs: {n: int}}}\n', site=site
    )
    command = spec["deploymentSpec"]["executors"]["exec-work"]["container"]["command"]
    config = platform_spec["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-work"]
    assert "--deliver=n={{$.outputs.parameters['n'].output_file}}" in command
    assert config["configMapAsVolume"][0]["mountPath"] == "/gpuflow/bin"


PROGRAM = """
import sys
from tests.targets.kubeflow.compiling import compiled
from tests.targets.kubeflow.samples import SAMPLES
text = "".join(compiled(source) for source in SAMPLES.values())
assert not {"kfp", "kfp.dsl", "kfp.client", "kubernetes"} & set(sys.modules), "compiling loaded the SDK"
sys.stdout.write(text)
"""


def test_the_same_bytes_in_every_process_and_without_the_sdk() -> None:
    texts = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, check=True
        )
        texts.add(done.stdout)
    assert texts == {"".join(compiled(source) for source in SAMPLES.values()).encode()}
