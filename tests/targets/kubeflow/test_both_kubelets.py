"""Any text, in every place that a person writes text, arrives byte for byte: the kubelet of the driver's pod reads it
first, the kubelet of the step's pod what is left of it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kfp import dsl

import gpuflow
from gpuflow import kubeflow
from gpuflow.core.errors import GpuflowError
from gpuflow.kubernetes.expansion import escape, expand
from gpuflow.readers.kfp.values import unquote
from gpuflow.spec.expression import compared_texts, parse
from gpuflow.targets.kubeflow.references import for_driver, replaced_part
from tests.importing.samples import import_text
from tests.targets.kubeflow.compiling import compiled, documents
from tests.targets.kubeflow.driver_model import driver_pods
from tests.targets.kubeflow.kubelets import DRIVER, as_argument, kubelet, started
from tests.targets.kubeflow.test_components import compile_by_kfp

PIECES = ["$", "$$", "$(", ")", "$(NAME)", "$$(NAME)", "$(KFP_POD_NAME)", "$(http_proxy)", "$(GPUFLOW_BRACE)", "{",
          "{{", "}}", "'", '"', "\\", "\n", "é", "a", " ", "=", "$(a$$b)", "${NAME}", "%", "/"]  # fmt: skip
TEXT = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
NO_TAGS = TEXT.filter(lambda text: "{{" not in text)
FOLDER = TEXT.map(lambda text: "/" + re.sub(r"\{+", "{", re.sub(r"[\n/:]", "", text)))
MANY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WORDS_OF_THE_BACKEND = ["$(NAME)", "$$", "$$$$", "$", "$(KFP_POD_NAME)", "$(HOME)", "pid $$", "two: $$ ref: $(NAME)"]
"""What was run on a real backend, where each of these arrived as something else."""


def source(**step: Any) -> str:
    fields = {"image": "i:1", "command": ["say"], **step}
    said = {name: value for name, value in fields.items() if value is not None}
    return written({"name": "p", "params": {"who": "me"}, "steps": {"say": said}})


def written(document: dict[str, Any]) -> str:
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in document.items())


def pod_of(text: str) -> dict[str, Any]:
    spec, platform, *_ = [*documents(text), {}]
    pod: dict[str, Any] = driver_pods(spec, platform)["exec-say"]
    return pod


def main_of(text: str) -> tuple[list[str], dict[str, str]]:
    return started(pod_of(text)["containers"][0])


def is_for_the_launcher(text: str) -> bool:
    return "{{$}}" in text or "{{$." in text


@given(st.text(max_size=40), st.dictionaries(st.sampled_from(["NAME", "a$$b", "", "X"]), st.text(max_size=3)))
def test_the_project_s_kubelet_is_the_one_that_walks(text: str, variables: dict[str, str]) -> None:
    assert expand(text, variables) == kubelet(text, variables)
    assert kubelet(escape(text), variables) == text


@pytest.mark.parametrize("text", WORDS_OF_THE_BACKEND)
def test_the_words_that_did_not_arrive_on_a_real_backend(text: str) -> None:
    words, variables = main_of(source(command=["say", text], env={"NAME": "secret-value", "OTHER": f"x {text} y"}))
    assert words == ["say", text]
    assert variables["OTHER"] == f"x {text} y"
    words, _ = main_of(source(command=None, script=f"echo '{text}'", env={"NAME": "secret-value"}))
    assert f"echo '{text}'" in words


@MANY
@given(TEXT, TEXT)
def test_words_of_a_command_a_script_and_variables(word: str, value: str) -> None:
    assume(not is_for_the_launcher(word))
    env = {"NAME": "secret-value", "VALUE": value}
    words, variables = main_of(source(command=["say", word], args=[word], env=env))
    assert words == ["say", word, word]
    assert {name: variables[name] for name in env} == env
    assume(word)
    words, _ = main_of(source(command=None, script=word))
    assert word in words


@MANY
@given(TEXT, TEXT)
def test_text_around_a_reference_in_words_and_variables(before: str, after: str) -> None:
    assume(not is_for_the_launcher(before + after) and not (before + "{{$.").count("{{{"))
    joined = {"join": [before, {"param": "who"}, after]}
    assume(not any(is_for_the_launcher(each) for each in (before, after)))
    text = source(command=["say", joined], env={"VALUE": joined})
    words, _ = main_of(text)
    assert words == ["env", f"VALUE={before}<who>{after}", "say", f"{before}<who>{after}"]


@MANY
@given(FOLDER)
def test_a_directory_and_the_paths_of_the_supervisor(folder: str) -> None:
    assume(not is_for_the_launcher(folder) and folder.strip("/"))
    words, _ = main_of(source(working_dir=folder))
    assert words[3] == folder
    words, _ = main_of(source(outputs={"o": {"type": "string", "path": f"{folder}/o"}}))
    assert f"--output=o:string={folder}/o" in words


@MANY
@given(FOLDER, FOLDER)
def test_mounts_and_what_is_below_them(path: str, below: str) -> None:
    assume(path.strip("/") and below.strip("/") and ".." not in path + below)
    pod = pod_of(source(volumes={path: {"claim": "data", "sub_path": below[1:]}}))
    (mount,) = pod["containers"][0]["volumeMounts"]
    assert (mount["mountPath"], mount["subPath"]) == (path, below[1:])


@MANY
@given(NO_TAGS)
def test_annotations_are_no_argument_of_the_driver_and_stay_as_they_are(text: str) -> None:
    _, platform = documents(source(annotations={"a": text}))
    config = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-say"]
    assert config["podMetadata"]["annotations"]["a"] == text


@MANY
@given(NO_TAGS, FOLDER)
def test_metadata_takes_no_setting_along_unless_that_is_refused(text: str, path: str) -> None:
    assume(path.strip("/"))
    whole = source(annotations={"a": text}, volumes={path: {"claim": "data"}})
    if "$(" in text and for_driver(path) != path:
        with pytest.raises(GpuflowError, match="could not tell where"):
            pod_of(whole)
        return
    pod = pod_of(whole)
    assert pod["containers"][0]["volumeMounts"][0]["mountPath"] == path


@MANY
@given(TEXT.map(lambda text: text.replace("\n", "")))
def test_a_text_of_a_condition_is_what_an_output_is_compared_with(text: str) -> None:
    whole = {
        "name": "p",
        "steps": {
            "ask": {"image": "i:1", "command": ["ask"], "outputs": {"o": "string"}},
            "say": {
                "image": "i:1",
                "command": ["say"],
                "when": f"steps.ask.o == {json.dumps(text, ensure_ascii=False)}",
            },
        },
    }
    spec, *_ = documents(written(whole))
    (task,) = [task for task in spec["root"]["dag"]["tasks"].values() if "triggerPolicy" in task]
    condition = as_argument(task)["triggerPolicy"]["condition"]
    assert "{{" not in condition
    assert unquote(condition.partition(" == ")[2]) == text


@MANY
@given(NO_TAGS)
def test_a_cache_key_is_the_key_that_the_driver_hashes(text: str) -> None:
    assume(text)
    spec, *_ = documents(source(cache=True, engines={"kubeflow": {"cache_key": text}}))
    task = as_argument(spec["root"]["dag"]["tasks"]["say"])
    assert task["cachingOptions"]["cacheKey"] == text


@MANY
@given(NO_TAGS)
def test_names_for_people_are_shown_from_the_file_as_they_are(text: str) -> None:
    assume(text)
    spec, *_ = documents(source(engines={"kubeflow": {"display_name": text}}))
    assert spec["root"]["dag"]["tasks"]["say"]["taskInfo"]["name"] == text


@MANY
@given(TEXT)
def test_a_value_that_is_known_arrives_or_is_refused(text: str) -> None:
    """Defaults and choices go through the arguments of the run's driver, items through those of the loop's."""
    document = {
        "name": "p",
        "params": {"who": {"type": "string", "default": text, "enum": [text, "other"]}},
        "steps": {
            "say": {
                "image": "i:1",
                "env": {"NAME": "secret-value"},
                "command": ["say", {"param": "who"}, {"item": "one"}],
                "for_each": {"one": [text, "x"]},
            }
        },
    }
    if replaced_part(text, lambda: ["NAME"]) is not None:
        with pytest.raises(GpuflowError, match="holds"):
            documents(written(document))
        return
    spec, *_ = documents(written(document))
    default = as_argument(spec["root"]["inputDefinitions"]["parameters"]["who"])
    assert kubelet(default["defaultValue"], {**DRIVER, "NAME": "secret-value"}) == text
    assert default["literals"][0] == text
    loop = next(task for task in spec["root"]["dag"]["tasks"].values() if "parameterIterator" in task)
    items = json.loads(as_argument(loop)["parameterIterator"]["items"]["raw"])
    assert kubelet(items[0], {**DRIVER, "NAME": "secret-value"}) == text


@pytest.mark.parametrize("text", ["a$$b", "$(NAME)", "{{x}}", "$(http_proxy)"])
def test_a_parameter_is_never_compared_with_a_text_that_it_cannot_hold(text: str) -> None:
    one = {"image": "i:1", "command": ["say"], "env": {"NAME": "x"}}
    for condition in (f"params.who == {json.dumps(text)}", f"not (params.who in ['x', {json.dumps(text)}])"):
        with pytest.raises(GpuflowError, match=r'compares "who" with .* a value of the run cannot hold'):
            compiled(written({"name": "p", "params": {"who": "me"}, "steps": {"say": {**one, "when": condition}}}))
    item = {**one, "for_each": {"each": {"param": "all"}}, "when": f"item.each == {json.dumps(text)}"}
    with pytest.raises(GpuflowError, match='compares "each" with'):
        compiled(written({"name": "p", "params": {"all": {"type": "json", "default": []}}, "steps": {"say": item}}))


def container_by_hand(made: Any, tmp_path: Path, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    @dsl.pipeline(name="by-hand")
    def by_hand() -> None:
        made(**arguments)

    spec, platform, *_ = [*compile_by_kfp(by_hand, tmp_path), {}]
    return spec, driver_pods(spec, platform)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXT)
def test_a_component_carries_the_step_s_text(text: str, tmp_path: Path) -> None:
    assume(not is_for_the_launcher(text))
    step = gpuflow.Step(image="i:1", command=["say", gpuflow.text(text)], env={"VALUE": gpuflow.text(text)})
    _, pods = container_by_hand(kubeflow.component(step, name="say"), tmp_path)
    words, variables = started(pods["exec-say"]["containers"][0])
    assert (words, variables["VALUE"]) == (["say", text], text)


def test_configure_escapes_what_is_ours_and_leaves_the_rest(tmp_path: Path) -> None:
    step = gpuflow.Step(image="x", command=["x"], env={"OURS": "$$ $(NAME)"}, volumes={"/a$$b": {"claim": "data"}})

    @dsl.container_component
    def mine() -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image="i:1", command=["say", "$$", "$(NAME)"])

    def configured() -> None:
        task = mine()
        task.set_env_variable("THEIRS", "$$ $(NAME)")
        kubeflow.configure(task, step)

    spec, pods = container_by_hand(configured, tmp_path)
    container = spec["deploymentSpec"]["executors"]["exec-mine"]["container"]
    assert container["command"] == ["say", "$$", "$(NAME)"]
    assert {"name": "THEIRS", "value": "$$ $(NAME)"} in container["env"]
    main = pods["exec-mine"]["containers"][0]
    assert started(main)[1]["OURS"] == "$$ $(NAME)"
    assert main["volumeMounts"][0]["mountPath"] == "/a$$b"


def test_a_constant_that_would_not_arrive_is_refused_where_it_is_passed(tmp_path: Path) -> None:
    made = kubeflow.component(gpuflow.Step(image="i:1", command=["say", {"param": "who"}]), name="say")
    with pytest.raises(GpuflowError, match=r"who='a\$\$b' holds \$\$, which the kubelet turns into \$"):
        container_by_hand(made, tmp_path, who="a$$b")
    container_by_hand(made, tmp_path, who=dsl.PIPELINE_JOB_ID_PLACEHOLDER)


@MANY
@given(TEXT)
def test_what_is_compiled_is_imported_as_it_was_written(text: str) -> None:
    assume(not is_for_the_launcher(text))
    env = {"NAME": "x", "VALUE": text}
    artifact = compiled(source(command=["say", text], env=env, volumes={"/a$$b": {"claim": "data"}}))
    result = import_text(artifact)
    assert result.pipeline is not None, [finding.render() for finding in result.findings]
    step = result.pipeline.steps["say"]
    assert [*step.command] == ["say", text]
    assert {name: str(value) for name, value in step.env.items()} == env
    assert list(step.volumes) == ["/a$$b"]


def test_a_condition_is_imported_with_the_text_it_had() -> None:
    whole = {
        "name": "p",
        "steps": {
            "ask": {"image": "i:1", "command": ["ask"], "outputs": {"o": "string"}},
            "say": {"image": "i:1", "command": ["say"], "when": 'steps.ask.o == "$$ {{x}} é $(NAME) it\'s"'},
        },
    }
    result = import_text(compiled(written(whole)))
    assert result.pipeline is not None, [finding.render() for finding in result.findings]
    (found,) = [step["when"] for step in yaml.safe_load(result.text())["steps"].values() if "when" in step]
    (literal,) = [text for _, text in compared_texts(parse(found))]
    assert literal == "$$ {{x}} é $(NAME) it's"
