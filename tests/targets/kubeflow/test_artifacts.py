"""Artifacts in the IR: typed outputs, lineage through groups, and both ways in hand-written pipelines."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format
from kfp import compiler, dsl
from kfp.components import load_component_from_text
from kfp.pipeline_spec import pipeline_spec_pb2 as ir

import gpuflow
from gpuflow import kubeflow
from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.site.model import Runtime
from gpuflow.targets.kubeflow.build import TITLES
from tests.targets.kubeflow.compiling import compiled, documents

DATA = "  data: {image: a, command: [a], outputs: {set: {type: directory, kind: dataset, uri: 's3://b/set'}}}\n"
MODEL = "outputs: {model: {type: directory, kind: model, uri: 's3://b/model'}}"
TRAIN = f"  train: {{image: a, command: [a, {{output: data.set}}], {MODEL}}}\n"


def spec_of(source: str) -> dict[str, Any]:
    spec = documents(source)[0]
    json_format.ParseDict(spec, ir.PipelineSpec())
    return spec


def artifacts(spec: dict[str, Any], component: str, side: str) -> dict[str, Any]:
    """The artifacts of a component's side, each with its type."""
    found = spec["components"][component].get(f"{side}Definitions", {}).get("artifacts", {})
    return {name: (one["artifactType"]["schemaTitle"], one.get("isArtifactList", False)) for name, one in found.items()}


def command_of(spec: dict[str, Any], executor: str) -> list[str]:
    words: list[str] = spec["deploymentSpec"]["executors"][executor]["container"]["command"]
    return words


@pytest.mark.parametrize("kind", TITLES)
def test_every_kind_is_the_artifact_that_kfp_has_for_it(kind: str) -> None:
    known = {one.schema_title for one in vars(dsl).values() if hasattr(one, "schema_title")}
    assert TITLES[kind] in known
    spec = spec_of(
        f"name: p\nsteps:\n  a: {{image: a, command: [a], outputs: {{o: {{type: file, kind: {kind}, uri: 's3://b/k'}}}}}}\n"
    )
    assert artifacts(spec, "comp-a", "output") == {"o": (TITLES[kind], False)}


def test_an_artifact_has_its_name_and_its_uri_is_a_parameter_beside_it() -> None:
    spec = spec_of("name: p\nsteps:\n" + DATA + TRAIN)
    assert artifacts(spec, "comp-data", "output") == {"set": ("system.Dataset", False)}
    assert list(spec["components"]["comp-data"]["outputDefinitions"]["parameters"]) == ["set-uri"]
    words = command_of(spec, "exec-data")
    assert "--deliver=set={{$.outputs.parameters['set-uri'].output_file}}" in words
    assert words[words.index("--output-kind=set=dataset") + 1] == "--kubeflow={{$}}"
    train = spec["root"]["dag"]["tasks"]["train"]["inputs"]
    assert train["parameters"]["data-set"]["taskOutputParameter"]["outputParameterKey"] == "set-uri"
    assert train["artifacts"]["data-set-artifact"] == {
        "taskOutputArtifact": {"outputArtifactKey": "set", "producerTask": "data"}
    }


def test_an_output_without_a_kind_is_a_parameter_alone() -> None:
    text = compiled("name: p\nsteps:\n  a: {image: a, command: [a], outputs: {o: {type: file, uri: 's3://b/k'}}}\n")
    assert "artifacts" not in text and "--kubeflow" not in text and "--output-kind" not in text


def test_all_items_of_a_loop_give_a_list_of_artifacts() -> None:
    loop = TRAIN.replace("{image: a,", "{image: a, for_each: {lr: [1, 2]},")
    spec = spec_of(f"name: p\nsteps:\n{DATA}{loop}  best: {{image: a, command: [a, {{output: train.model}}]}}\n")
    (group,) = (name for name in spec["components"] if name.startswith("comp-for-loop"))
    inner = "pipelinechannel--train-model-artifact"
    assert artifacts(spec, group, "output") == {inner: ("system.Model", True)}
    assert artifacts(spec, group, "input") == {"pipelinechannel--data-set-artifact": ("system.Dataset", False)}
    selectors = spec["components"][group]["dag"]["outputs"]["artifacts"][inner]["artifactSelectors"]
    assert selectors == [{"outputArtifactKey": "model", "producerSubtask": "train"}]
    assert artifacts(spec, "comp-best", "input") == {"train-model-artifact": ("system.Model", True)}


def test_a_condition_hands_artifacts_in_and_out() -> None:
    when = TRAIN.replace("{image: a,", "{image: a, when: params.go,")
    spec = spec_of(
        "name: p\nparams: {go: {type: bool, default: true}}\nsteps:\n"
        f"{DATA}{when}  eval: {{image: a, if_skipped: skip, command: [a, {{output: train.model}}]}}\n"
    )
    (group,) = (name for name in spec["components"] if name.startswith("comp-condition"))
    assert artifacts(spec, group, "input") == {"pipelinechannel--data-set-artifact": ("system.Dataset", False)}
    taken = spec["root"]["dag"]["tasks"]["eval"]["inputs"]["artifacts"]["train-model-artifact"]["taskOutputArtifact"]
    assert taken == {
        "outputArtifactKey": "pipelinechannel--train-model-artifact",
        "producerTask": group.removeprefix("comp-"),
    }


def test_a_sub_pipeline_gives_its_artifacts() -> None:
    fit = f"{{fit: {{image: a, command: [a], {MODEL}}}}}"
    inner = f"pipeline: {{name: inner, steps: {fit}, outputs: {{model: {{output: fit.model}}}}}}"
    spec = spec_of(f"name: p\nsteps:\n  sub: {{{inner}}}\n  use: {{image: a, command: [a, {{output: sub.model}}]}}\n")
    assert artifacts(spec, "comp-sub", "output") == {"model-artifact": ("system.Model", False)}
    assert artifacts(spec, "comp-use", "input") == {"sub-model-artifact": ("system.Model", False)}


def test_steps_inside_an_exit_handler_keep_their_lineage() -> None:
    spec = spec_of(f"name: p\nsteps:\n{DATA}{TRAIN}exit:\n  tell: {{image: a, command: [a]}}\n")
    (group,) = (name for name in spec["components"] if name.startswith("comp-exit-handler"))
    train = spec["components"][group]["dag"]["tasks"]["train"]["inputs"]["artifacts"]
    assert train["data-set-artifact"]["taskOutputArtifact"]["producerTask"] == "data"


def test_kubeflow_keeps_the_files_where_the_step_says_so() -> None:
    more = DATA.replace("{image: a,", "{image: a, engines: {kubeflow: {hand_over: true}},")
    assert "--hand-over=set" in command_of(spec_of("name: p\nsteps:\n" + more), "exec-data")
    assert "--hand-over=set" not in command_of(spec_of("name: p\nsteps:\n" + DATA), "exec-data")


@dsl.container_component
def evaluate(model: dsl.Input[dsl.Model]) -> dsl.ContainerSpec:
    return dsl.ContainerSpec(image="a", command=["ls"], args=[model.path])


@dsl.container_component
def prepare(data: dsl.Output[dsl.Dataset]) -> dsl.ContainerSpec:
    return dsl.ContainerSpec(image="a", command=["touch"], args=[data.path])


def step(**more: Any) -> Any:
    outputs = {"model": {"type": "directory", "kind": "model", "uri": "s3://b/m"}}
    fields = {"image": "a", "command": ["train", {"output": "prepare.data"}], "outputs": outputs}
    return gpuflow.Step(**{**fields, **more})


def by_hand(pipeline: Any, folder: Path) -> dict[str, Any]:
    compiler.Compiler().compile(pipeline, str(folder / "hand.yaml"))
    found: dict[str, Any] = next(yaml.safe_load_all((folder / "hand.yaml").read_text()))
    return found


def test_artifacts_go_both_ways_in_a_hand_written_pipeline(tmp_path: Path) -> None:
    train = kubeflow.component(step(), name="train")

    @dsl.pipeline(name="hand")
    def hand() -> None:
        made = train(data=prepare().outputs["data"])
        evaluate(model=made.outputs["model"])

    spec = by_hand(hand, tmp_path)
    assert artifacts(spec, "comp-train", "input") == {"data": ("system.Dataset", False)}
    assert artifacts(spec, "comp-train", "output") == {"model": ("system.Model", False)}
    words = command_of(spec, "exec-train")
    assert words[-1] == "{{$.inputs.artifacts['data'].path}}"
    assert "--hand-over=model" in words  # KFP's own component reads the files
    taken = spec["root"]["dag"]["tasks"]["evaluate"]["inputs"]["artifacts"]["model"]["taskOutputArtifact"]
    assert taken == {"outputArtifactKey": "model", "producerTask": "train"}


def test_a_uri_may_be_passed_instead_of_the_artifact(tmp_path: Path) -> None:
    train, use = (kubeflow.component(step(), name=name) for name in ("train", "use"))

    @dsl.pipeline(name="hand")
    def hand() -> None:
        use(data=train(data="s3://b/data/").outputs["model-uri"])

    spec = by_hand(hand, tmp_path)
    assert command_of(spec, "exec-use")[-1] == "{{$.inputs.parameters['data']}}"
    assert artifacts(spec, "comp-use", "input") == {}


def test_a_list_of_artifacts_is_refused_with_the_way_out() -> None:
    train, use = (kubeflow.component(step(), name=name) for name in ("train", "use"))

    with pytest.raises(GpuflowError, match="data is a list of artifacts") as refusal:

        @dsl.pipeline(name="hand")
        def hand() -> None:
            with dsl.ParallelFor([1, 2]):
                made = train(data="s3://b/data/")
            use(data=dsl.Collected(made.outputs["model"]))

    assert "model-uri" in str(refusal.value.findings[0].hint)


def test_a_component_file_gives_its_artifacts_to_kfps_own_loader() -> None:
    text = compiled("name: fit\nsteps:\n  fit: {image: a, command: [a], " + MODEL + "}\n", form="component")
    loaded = load_component_from_text(text)
    assert sorted(loaded.component_spec.outputs or {}) == ["model", "model-uri"]
    assert "--hand-over=model" in json.dumps(next(yaml.safe_load_all(text))["deploymentSpec"])


def test_a_step_on_its_own_gets_the_credentials_of_the_sites_artifacts() -> None:
    site = Site.load("nvidia").model_copy(
        update={"runtime": Runtime(artifacts="s3://kept/a", buckets={"s3://kept": {"env": {"AWS_PROFILE": "lab"}}})}
    )
    use = step(command=["use"], inputs={"/in/model": {"output": "train.model"}}, outputs={})
    made = kubeflow.component(use, site=site, name="use")
    (variable,) = (each for each in made._made.settings.container["env"] if each["name"] == "AWS_PROFILE")
    assert variable["value"] == "lab"
    assert "--input=/in/model={{$.inputs.parameters['model']}}" in made._made.settings.container["command"]
