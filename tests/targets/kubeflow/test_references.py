"""User text reaches the container as it was written: past Argo, the driver, both kubelets and the launcher.

Tests gpuflow/pod/spelling.py and gpuflow/targets/kubeflow/references.py.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kfp import dsl

from gpuflow.core.errors import GpuflowError
from gpuflow.plan import plan_of
from gpuflow.pod.spelling import spell_text
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.spec.template_tags import is_engines, meaning_of_tag, tags_in
from gpuflow.spec.text import Join, ParamRef
from gpuflow.targets.kubeflow.references import BRACE, KubeflowSpelling, replaced_part
from gpuflow.targets.kubeflow.refusals import run_time_text
from tests.targets.kubeflow.compiling import HEAD, compiled, documents
from tests.targets.kubeflow.kubelets import as_argument, kubelet

TEXT = st.text(alphabet=st.sampled_from("{}$()=. aB'\"\\\n%é"), max_size=30)


@given(TEXT)
def test_any_text_arrives_as_it_was_written(text: str) -> None:
    carried = spell_text(text, KubeflowSpelling())
    assert "{{" not in carried
    assert kubelet(carried, {BRACE: "{"}) == text


@given(TEXT, TEXT)
def test_text_around_a_reference_arrives_too(before: str, after: str) -> None:
    carried = spell_text(Join((before, ParamRef("who"), after)), KubeflowSpelling())
    assert re.findall(r"\{\{+", carried) == ["{{"]
    resolved = carried.replace("{{$.inputs.parameters['who']}}", "me")
    assert kubelet(resolved, {BRACE: "{"}) == before + "me" + after


@given(TEXT, st.sets(st.sampled_from(["aB", "B", "a"])))
def test_a_value_that_is_let_through_arrives_as_it_was_written(value: str, names: set[str]) -> None:
    """The driver puts values into the pod's args as they are; whatever is not refused there must survive."""
    if replaced_part(value, lambda: names) is None:
        assert "{{" not in value
        assert kubelet(value, dict.fromkeys(names, "other")) == value


@pytest.mark.parametrize("value", ["$", "5 $ 6", "$(date)", "a$(b", "{ {", "}}", "$()", "${HOME}"])
def test_plain_values_are_not_refused(value: str) -> None:
    assert replaced_part(value, lambda: {"OTHER"}) is None


def noted(source: str) -> list[str]:
    return [found.message for found in run_time_text(plan_of(loads(HEAD + source), Site.load("nvidia")))]


def test_text_of_the_run_is_named_with_the_steps_that_are_handed_it() -> None:
    source = """
name: p
params: {who: {type: string}, count: {type: int}, size: {type: string, enum: [s, l]}, all: {type: json}}
defaults: {image: "i:1"}
steps:
  plan: {command: [plan, {param: count}, {param: size}], outputs: {note: string, rows: int}}
  each: {command: [each, {item: one}], for_each: {one: {param: all}}, outputs: {loss: float}}
  sum: {command: [sum, {output: each.loss}, {output: plan.rows}]}
  say: {command: [say], env: {NOTE: {output: plan.note}}}
"""
    (message,) = noted(source)
    assert message.startswith('steps "each", "say": text that is only known in the run')
    assert noted(source.replace("{item: one}", "x").replace("plan.note", "plan.rows")) == []


def container_of(spec: dict[str, Any], name: str = "say") -> dict[str, Any]:
    container: dict[str, Any] = spec["deploymentSpec"]["executors"][f"exec-{name}"]["container"]
    return container


def one(words: str, env: str = "{}") -> str:
    return f'name: p\nparams: {{who: me}}\nsteps:\n  say: {{image: "i:1", command: {words}, env: {env}}}\n'


@pytest.mark.parametrize("text", ["{{$}}", "{{$.inputs.parameters['lr']}}"])
def test_what_the_launcher_would_take_for_its_own_is_refused_in_a_command(text: str) -> None:
    joined = f'{{join: ["a", {{param: who}}, "{text}"]}}'
    for document in (one(f'[say, "{text}"]'), one(f"[say, {joined}]"), one("[say]", f"{{TEXT: {joined}}}")):
        with pytest.raises(GpuflowError, match="its launcher reads it as a placeholder"):
            compiled(document)


def test_a_directory_is_spelled_for_the_kubelet_like_every_word_of_a_command() -> None:
    spec, *_ = documents("name: p\nsteps:\n  say: {image: i, command: [say], working_dir: /a$(id)}\n")
    word = as_argument(container_of(spec))["command"][3]
    assert kubelet(word, {"id": "a value"}) == "/a$(id)"


def test_in_a_variable_even_the_launchers_own_placeholder_is_plain_text() -> None:
    spec, *_ = documents(one("[say]", '{TEXT: "{{$}}"}'))
    brace, text = as_argument(container_of(spec))["env"]
    assert brace == {"name": BRACE, "value": "{"}
    assert kubelet(text["value"], {BRACE: "{"}) == "{{$}}"


def test_a_variable_with_a_reference_is_set_by_env() -> None:
    spec, *_ = documents(one("[say, hi]", '{WHO: {join: ["<", {param: who}, ">"]}}'))
    container = spec["deploymentSpec"]["executors"]["exec-say"]["container"]
    assert container["command"] == ["env", "WHO=<{{$.inputs.parameters['who']}}>", "say", "hi"]
    assert "env" not in container


def test_a_command_that_env_would_take_for_an_assignment_still_runs() -> None:
    spec, *_ = documents(one("[./a=b]", "{WHO: {param: who}}"))
    command = spec["deploymentSpec"]["executors"]["exec-say"]["container"]["command"]
    assert command[2:] == ["sh", "-c", 'exec "$0" "$@"', "./a=b"]


def test_no_brace_variable_where_no_brace_is() -> None:
    assert BRACE not in compiled(one('[say, "{a} }} {"x": {}}"]'.replace('"x"', "x")))


@pytest.mark.parametrize(
    "fields",
    [
        "{command: [x], checkpoint: {store: {join: [s3://b/, {param: who}]}, path: /c}}",
        "{command: [x], outputs: {m: {type: file, uri: {join: [s3://b/, {param: who}]}}}}",
    ],
    ids=["a store", "a URI"],
)
def test_text_of_the_run_in_the_supervisors_options_is_named_too(fields: str) -> None:
    source = f'name: p\nparams: {{who: {{type: string}}}}\ndefaults: {{image: "i:1"}}\nsteps:\n  a: {fields}\n'
    (message,) = noted(source)
    assert message.startswith('step "a": text that is only known in the run')


@pytest.mark.parametrize(
    "source",
    [
        'steps: {a: {image: "i:{{workflow.name}}", command: [x]}}',
        'steps: {a: {image: "i:1", command: [x], env: {E: {secret: s, key: "{{=1}}"}}}}',
        'claims: {c: {size: 1Gi, storage_class: "{{=1}}"}}\n'
        'steps: {a: {image: "i:1", command: [x], volumes: {/c: {new_claim: c}}}}',
        'steps: {a: {image: "i:1", command: [x], outputs: {o: {type: string, default: "{{=1}}"}}}}\n'
        'exit: {z: {image: "i:1", command: [z, {output: a.o}]}}',
    ],
    ids=["an image", "a key", "a storage class", "a default that an exit step reads"],
)
def test_a_tag_that_would_reach_argo_is_refused(source: str) -> None:
    with pytest.raises(GpuflowError, match="Argo would"):
        compiled("name: p\n" + source)
    compiled("name: p\n" + source.replace("{{workflow.name}}", "1").replace("{{=1}}", "k"), lossy=True)


def test_every_placeholder_of_kfp_is_questioned() -> None:
    placeholders = {name: getattr(dsl, name) for name in dir(dsl) if name.endswith("_PLACEHOLDER")}
    assert [tag for tag in placeholders.values() if not (is_engines(tag) and tags_in(tag))] == ["{{$}}"], (
        "Go's root too"
    )
    known = {name.removesuffix("_PLACEHOLDER"): meaning_of_tag(tag) for name, tag in placeholders.items()}
    assert {name: meaning.name for name, meaning in known.items() if meaning} == {
        "PIPELINE_JOB_CREATE_TIME_UTC": "logical_date",
        "PIPELINE_JOB_ID": "id",
        "PIPELINE_JOB_NAME": "name",
        "PIPELINE_JOB_RESOURCE_NAME": "name",
        "PIPELINE_JOB_SCHEDULE_TIME_UTC": "logical_date",
    }
