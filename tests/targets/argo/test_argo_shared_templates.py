"""Steps of one shape share one template, and every pod stays what it was, to the byte."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuflow.core.errors import GpuflowError
from gpuflow.plan import plan_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline, check
from gpuflow.spec.problems import Source
from gpuflow.targets.argo.graph import EXIT, MAIN, Templates
from gpuflow.targets.argo.shared_templates import (
    LONGEST,
    MOST_PARAMETERS,
    Names,
    common_stem,
    shape_of,
    share_templates,
)
from gpuflow.targets.argo.workflow import build
from gpuflow.targets.target import Request
from tests.differential.oracle import Oracle
from tests.targets.argo.test_argo import CONSTRUCTS, HEAD, compiled, task, template
from tests.targets.argo.test_argo_text import PRINTABLE, TEXT, container

SITE = Site.load("nvidia")


def templates(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Every template as it is before any is shared."""
    made = Templates(plan_of(pipeline, SITE))
    made.dag(None, MAIN)
    if pipeline.exit:
        made.exit()
    return made.found


def steps_of(found: list[dict[str, Any]]) -> dict[tuple[str, ...], Any]:
    """What every task under `main` and `exit` runs: its template, with the arguments of all callers in their places."""
    by_name = {entry["name"]: entry for entry in found}
    assert len(by_name) == len(found), "two templates have one name"

    def walk(name: str, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        for entry in by_name[name]["dag"]["tasks"]:
            here = (*path, entry["name"])
            called = by_name[entry["template"]]
            if "dag" in called:
                yield from walk(entry["template"], here)
            arguments = {one["name"]: one["value"] for one in entry.get("arguments", {}).get("parameters", [])}
            declared = {one["name"] for one in called.get("inputs", {}).get("parameters", [])}
            assert set(arguments) == declared, (
                f"{here}: {entry['template']} takes {declared}, is given {set(arguments)}"
            )
            rest = {key: value for key, value in entry.items() if key not in ("template", "arguments")}
            own = {} if "dag" in called else {k: v for k, v in called.items() if k not in ("name", "inputs")}
            yield here, (rest, filled(own, arguments))

    return dict(step for root in (MAIN, EXIT) if root in by_name for step in walk(root, (root,)))


def filled(value: Any, arguments: dict[str, str]) -> Any:
    """A template after Argo has put arguments where its inputs stood, which it does once."""
    if isinstance(value, dict):
        return {key: filled(item, arguments) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, arguments) for item in value]
    if isinstance(value, str):
        return re.sub(r"\{\{inputs\.parameters\.([\w-]+)\}\}", lambda match: arguments[match[1]], value)
    return value


def pipeline_of(steps: dict[str, Any], **fields: Any) -> Pipeline:
    return check(Pipeline, {"name": "p", "defaults": {"image": "i"}, "steps": steps, **fields}, Source())


def test_steps_that_differ_in_a_word_share_a_template_and_say_the_word_as_an_argument() -> None:
    manifest = compiled("steps: {part-1: {command: [cut, --part, a]}, part-2: {command: [cut, --part, b]}}")
    assert [entry["name"] for entry in manifest["spec"]["templates"]] == ["main", "part"]
    assert task(manifest, "part-2") == {
        "name": "part-2",
        "template": "part",
        "arguments": {"parameters": [{"name": "step", "value": "part-2"}, {"name": "part", "value": "b"}]},
    }
    shape = template(manifest, "part")
    assert shape["inputs"] == {"parameters": [{"name": "step"}, {"name": "part"}]}
    assert shape["container"]["command"] == ["cut", "--part", "{{inputs.parameters.part}}"]
    assert shape["metadata"]["labels"]["gpuflow.dev/step"] == "{{inputs.parameters.step}}"


def test_the_supervisors_options_and_the_label_take_the_steps_name_from_one_parameter() -> None:
    manifest = compiled("steps: {n-a: {command: [x], outputs: {n: int}}, n-b: {command: [x], outputs: {n: int}}}")
    assert "--step={{inputs.parameters.step}}" in template(manifest, "n")["container"]["command"]
    assert task(manifest, "n-b")["arguments"]["parameters"] == [{"name": "step", "value": "n-b"}]


@pytest.mark.parametrize("name", ["report", "parts", "b"])
def test_a_step_of_another_name_changes_nothing_of_what_stands_there(name: str) -> None:
    before = (
        "steps: {prepare: {command: [cut, --p, x]}, part-1: {command: [cut, --p, a]}, part-2: {command: [cut, --p, b]}"
    )
    old, *templates = compiled(before + "}")["spec"]["templates"]
    new, *others = compiled(f"{before}, {name}: {{command: [cut, --p, c]}}}}")["spec"]["templates"]
    # Steps that wait for nothing stand by their names, so the new one may stand between the others.
    assert [each["name"] for each in new["dag"]["tasks"]] == sorted(["part-1", "part-2", "prepare", name])
    assert [each for each in new["dag"]["tasks"] if each["name"] != name] == old["dag"]["tasks"]
    assert [each["name"] for each in others] == sorted(["part", "prepare", name])
    assert [each for each in others if each["name"] != name] == templates


def test_steps_of_two_sub_pipelines_share_a_template_that_is_called_like_the_steps() -> None:
    inner = "{apiVersion: gpuflow/v1, kind: Pipeline, name: q, steps: {fit: {image: i, command: [f, --n, %s]}}}"
    manifest = compiled(f"steps: {{one: {{pipeline: {inner % 'a'}}}, two: {{pipeline: {inner % 'b'}}}}}")
    assert [entry["name"] for entry in manifest["spec"]["templates"]] == ["main", "one", "fit", "two"]


def test_a_reference_in_a_word_that_differs_moves_to_the_task() -> None:
    text = """
params: {lr: 0.1, name: {type: string, default: n}}
steps:
  v-one: {command: [x, --v, {join: [a-, {param: name}]}, {param: lr}]}
  v-two: {command: [x, --v, b, {param: lr}], env: {}}
  v-six: {command: [x, --v, {join: [c-, {param: name}]}, {param: lr}]}
"""
    manifest = compiled(text)
    first, second = task(manifest, "v-one"), task(manifest, "v-six")
    assert first["template"] == second["template"] != task(manifest, "v-two")["template"]
    assert [entry["name"] for entry in first["arguments"]["parameters"]] == ["lr", "step", "v"]
    assert first["arguments"]["parameters"][2]["value"].startswith("a-{{=sprig.replace(")


def test_two_steps_that_have_little_in_common_keep_their_templates() -> None:
    manifest = compiled("steps: {get: {command: [curl, -o, f, u]}, put: {command: [aws, cp, f, v]}}")
    assert [entry["name"] for entry in manifest["spec"]["templates"]] == ["main", "get", "put"]


def test_what_is_asked_for_is_never_a_parameter() -> None:
    """Argo's schema takes no tag for an amount, and a reader looks for it in the template."""
    manifest = compiled("steps: {a: {command: [x], memory: 1Gi}, b: {command: [x], memory: 2Gi}, c: {command: [x]}}")
    assert len(manifest["spec"]["templates"]) == 4


def test_a_sub_pipeline_that_is_used_twice_is_written_once() -> None:
    inner = {"name": "q", "defaults": {"image": "i"}, "params": {"k": {"type": "int"}}, "steps": {}}
    inner["steps"] = {"x": {"command": ["x", {"param": "k"}]}, "y": {"needs": ["x"], "command": ["y", "1", "2", "3"]}}
    pipeline = pipeline_of({name: {"pipeline": inner, "params": {"k": number}} for number, name in enumerate("abc")})
    found = share_templates(templates(pipeline), (MAIN, EXIT))
    assert [entry["name"] for entry in found] == ["main", "a", "a-x", "a-y"]
    assert {entry["template"] for entry in found[0]["dag"]["tasks"]} == {"a"}


@pytest.mark.parametrize("odd", ["a\x01b", "\x7f", "😀", "x" * 300])
def test_texts_that_argo_cannot_carry_or_would_repeat_for_every_node_stay_in_templates(odd: str) -> None:
    pipeline = pipeline_of({"a1": {"command": ["x", odd]}, "a2": {"command": ["x", odd + odd]}})
    assert [entry["name"] for entry in share_templates(templates(pipeline), (MAIN, EXIT))] == ["main", "a1", "a2"]
    pipeline = pipeline_of({"a1": {"command": ["x", odd]}, "a2": {"command": ["x", odd]}})
    found = share_templates(templates(pipeline), (MAIN, EXIT))
    assert len(found) == 2
    assert steps_of(found) == steps_of(templates(pipeline))


def test_every_construct_runs_the_same_pods_shared_and_not() -> None:
    kin = "".join(f"  kin-{word}: {{needs: [first], command: [k, {word}]}}\n" for word in "ab")
    found = templates(loads(HEAD + CONSTRUCTS.replace("  ask:", f"{kin}  ask:"), "p.yaml"))
    less = share_templates(found, (MAIN, EXIT))
    assert len(less) < len(found)
    assert steps_of(less) == steps_of(found)


WORDS = st.sampled_from(["a", "b", "--n", "--n=1", "--n=2", "--", "-", "", "x=y", "$(A)", "{", "$$", "--é"])
STEPS = st.lists(
    st.fixed_dictionaries(
        {"command": st.lists(WORDS, min_size=1, max_size=5)},
        optional={
            "env": st.dictionaries(st.sampled_from(["A", "B", "step"]), WORDS, max_size=2),
            "cpu": st.sampled_from([1, 2]),
            "outputs": st.just({"n": "int"}),
            "cache": st.booleans(),
            "retry": st.sampled_from([1, 2]),
        },
    ),
    min_size=1,
    max_size=9,
)


@given(steps=STEPS, refer=st.booleans())
def test_sharing_never_changes_what_a_task_runs(steps: list[dict[str, Any]], refer: bool) -> None:
    for step in steps:
        step["cache"] = bool(step.get("cache") and step.get("outputs"))
        step["command"] = ["run", *step["command"], *([{"param": "step"}, {"run": "id"}] if refer else [])]
    named = {f"s{number}": step for number, step in enumerate(steps)}
    pipeline = pipeline_of(named, params={"step": {"type": "string", "default": "d"}})
    found = templates(pipeline)
    less = share_templates(found, (MAIN, EXIT))
    assert steps_of(less) == steps_of(found)
    assert len(less) <= len(found)
    for entry in less:
        own = {f"s{number}" for number in range(len(steps))}
        if entry["name"] not in {MAIN, EXIT, *own}:
            assert len(entry.get("inputs", {}).get("parameters", [])) <= MOST_PARAMETERS + 1


def test_a_thousand_steps_of_one_shape_are_one_template_and_few_bytes_each() -> None:
    steps = {f"s{i}": {"command": ["work", "--n", str(i)], "needs": [f"s{i - 1}"] if i else []} for i in range(1000)}
    request = Request(pipeline_of(steps), SITE, "ns", "p.yaml")
    from gpuflow.targets.argo import target

    manifest = build(request)
    assert len(manifest["spec"]["templates"]) == 2
    assert len(target.compile(request)[0].text) < 1000 * 250


@pytest.mark.go
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(TEXT, min_size=3, max_size=3), values=st.lists(TEXT, min_size=3, max_size=3))
def test_text_that_became_an_argument_arrives_as_written(argo: Oracle, words: list[str], values: list[str]) -> None:
    """Argo's own substitution, then the kubelet's rule: also for texts that look like tags, variables or options."""
    steps: dict[str, Any] = {
        f"a{number}": {
            "command": ["x", word, f"--o={word}", {"join": [word, {"param": "p"}, {"run": "id"}]}],
            "env": {"E": value},
        }
        for number, (word, value) in enumerate(zip(words, values, strict=True))
    }
    fields = {"params": {"p": {"type": "string", "default": "{{d}}$"}}, "steps": steps}
    for number, (word, value) in enumerate(zip(words, values, strict=True)):
        (((_, *got), env),) = container(argo, fields, step=f"a{number}", parameters={"p": "{{d}}$"})
        assert got == [word, f"--o={word}", word + "{{d}}$" + "0-1"]
        assert env["E"] == value


@pytest.mark.go
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(TEXT, min_size=3, max_size=3), items=st.lists(PRINTABLE, min_size=1, max_size=2))
def test_arguments_arrive_as_written_in_loops_and_sub_pipelines_too(
    argo: Oracle, words: list[str], items: list[str]
) -> None:
    """There Argo goes over the task's arguments once more for every level."""
    inner = {
        "name": "q",
        "defaults": {"image": "i"},
        "steps": {f"b{number}": {"command": ["x", word, "!"]} for number, word in enumerate(words)},
    }
    steps: dict[str, Any] = {"sub": {"pipeline": inner}}
    for number, word in enumerate(words):
        loop = {"for_each": {"i": items}, "parallel": 2}
        steps[f"a{number}"] = {**loop, "command": ["y", {"join": [word, {"item": "i"}]}, word]}
    for number, word in enumerate(words):
        ((command, _),) = container(argo, {"steps": steps}, step="sub", path=["sub", f"b{number}"])
        assert command == ["x", word, "!"]
        found = container(argo, {"steps": steps}, step=f"a{number}", path=[f"a{number}", f"a{number}"])
        assert [command for command, _ in found] == [["y", word + item, word] for item in items]


@pytest.fixture(scope="module")
def argo() -> Iterator[Oracle]:
    with Oracle("argo", "substitution") as oracle:
        yield oracle


@pytest.mark.go
def test_argos_own_validation_accepts_shared_templates() -> None:
    from gpuflow.targets.argo import target

    steps = {f"s{i}": {"command": ["work", "--n", str(i), ""], "env": {"A": str(i % 2)}} for i in range(20)}
    loop = {"for_each": {"x": [1, 2]}, "parallel": 1, "command": ["each", {"item": "x"}]}
    steps |= {"l1": loop, "l2": {**loop, "command": ["each", {"item": "x"}, "--"]}}
    text = target.compile(Request(pipeline_of(steps), SITE, "ns", "p.yaml"))[0].text
    with Oracle("argo", "lint") as oracle:
        assert [answer["errors"] for answer in oracle.ask([{"text": text}])] == [[]]


def test_names_stay_within_63_characters_and_near_collisions_stay_apart() -> None:
    long = "x" * 52
    inner = {"name": "q", "defaults": {"image": "i"}, "steps": {}}
    inner["steps"] = {long: {"command": ["a"]}, f"{long[:-1]}y": {"command": ["b", "1", "2"]}}
    steps = {
        long: {"pipeline": inner},
        "main": {"command": ["m", "1", "2", "3"]},
        "exit": {"command": ["e", "4", "5"]},
        "a": {"pipeline": {**inner, "steps": {"b-c": {"command": ["one"]}}}},
        "a-b": {"pipeline": {**inner, "steps": {"c": {"command": ["two"], "cpu": 1}}}},
        "a-b-c": {"command": ["three"], "cpu": 2},
        "d": {"command": ["d"], "for_each": {"i": [1, 2]}, "parallel": 1},
        "d-loop": {"command": ["d"], "cpu": 3},
    }
    found = templates(pipeline_of(steps, exit={"bye": {"command": ["bye"]}}))
    for some in (found, share_templates(found, (MAIN, EXIT))):
        names = [entry["name"] for entry in some]
        assert len(set(names)) == len(names)
        assert max(map(len, names)) <= LONGEST
    assert steps_of(found) == steps_of(share_templates(found, (MAIN, EXIT)))


@given(st.lists(st.text("ab-1", min_size=1, max_size=90), max_size=30))
def test_every_wish_gets_a_name_of_its_own_and_always_the_same(wishes: list[str]) -> None:
    first, second = Names(), Names()
    given_names = [first.claim(wish) for wish in wishes]
    assert given_names == [second.claim(wish) for wish in wishes]
    assert len(set(given_names)) == len(wishes)
    assert all(len(name) <= LONGEST for name in given_names)


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (["shard-10", "shard-11"], "shard"),
        (["s1", "s22"], "s"),
        (["train-bert", "train-gpt"], "train"),
        (["fetch", "fold"], ""),
        (["a", "a-b"], "a"),
    ],
)
def test_a_shared_template_is_named_after_the_whole_words_its_steps_share(names: list[str], common: str) -> None:
    assert common_stem(names) == common


def test_loops_share_the_template_of_what_they_repeat_and_keep_their_own() -> None:
    text = "steps:\n" + "".join(
        f"  a{number}: {{for_each: {{i: [x, z]}}, parallel: 2, command: [y, {{join: [w{number}, {{item: i}}]}}]}}\n"
        for number in range(3)
    )
    manifest = compiled(text)
    assert [entry["name"] for entry in manifest["spec"]["templates"]] == ["main", "a0-loop", "a", "a1-loop", "a2-loop"]
    (inner,) = template(manifest, "a1-loop")["dag"]["tasks"]
    assert inner["template"] == "a"
    assert inner["arguments"]["parameters"][-1] == {"name": "arg-1", "value": "w1{{item}}"}


def test_a_pipelines_name_leaves_room_for_what_argo_appends() -> None:
    """A CronWorkflow's runs are called after it, with eleven characters more; a Workflow's name gets six."""
    schedule = {"cron": "0 0 * * *"}
    longest = pipeline_of({"a": {"command": ["x"]}}, name="p" * 52, schedule=schedule)
    assert build(Request(longest, SITE, "ns", "p.yaml"))["metadata"]["name"] == "p" * 52
    with pytest.raises(GpuflowError, match="at most 52 characters"):
        pipeline_of({"a": {"command": ["x"]}}, name="p" * 53, schedule=schedule)


def test_a_shape_is_what_a_template_is_as_json_whatever_type_its_texts_have() -> None:
    class Word(str):
        """As a text that must be quoted in YAML is kept."""

    plain = {"name": "a", "container": {"name": "main", "image": "i", "command": ["x"]}, "metadata": {"labels": {}}}
    typed = {**plain, "name": "b", "container": {"name": "main", "image": Word("i"), "command": ["y"]}}
    other = {**plain, "name": "c", "container": {"name": "main", "image": "j", "command": ["x"]}}
    assert shape_of(plain).skeleton == shape_of(typed).skeleton != shape_of(other).skeleton
    assert shape_of({**plain, "retries": 1}).skeleton != shape_of({**plain, "retries": True}).skeleton
