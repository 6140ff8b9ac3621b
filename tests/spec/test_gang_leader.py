"""`gang.leader`: true, or what is different in the pod that leads. Null takes away what the step has."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from gpuflow import Pipeline, Step
from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.spec.canonical import digest, meaning_of, to_document, to_yaml
from gpuflow.spec.loading import loads
from gpuflow.spec.rules.remarks import remarks_on
from gpuflow.spec.schema import pipeline_schema
from gpuflow.spec.step import leader_step

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i, env: {A: a}, memory: 64Gi, cpu: 8}\n"
STEP = "steps:\n  train:\n    command: [train]\n    args: [--all]\n    gpu: l4 x 4\n    env: {B: b}\n"


def pipeline(leader: str, more: str = "") -> Pipeline:
    return loads(f"{HEAD}{STEP}{more}    gang:\n      workers: 2\n      leader: {leader}\n")


def led(leader: str, more: str = "") -> Step:
    return leader_step(pipeline(leader, more).effective("train"))


def refused(leader: str, more: str = "") -> Finding:
    with pytest.raises(GpuflowError) as refusal:
        pipeline(leader, more)
    (found,) = refusal.value.findings
    return found


@pytest.mark.parametrize(("leader", "pods"), [("true", 3), ("{}", 3), ("false", 2), ("null", 2), ("{gpu: null}", 3)])
def test_a_leader_is_one_more_pod(leader: str, pods: int) -> None:
    gang = pipeline(leader).steps["train"].gang
    assert gang is not None and gang.pods == pods


def test_a_leader_like_the_workers_is_the_step_itself() -> None:
    given = pipeline("true").effective("train")
    assert leader_step(given) == given


def test_what_the_leader_says_takes_the_place_of_what_the_step_says() -> None:
    found = led("{gpu: null, memory: {request: 8Gi}, cpu: null, env: {A: null, C: c}, command: [lead]}")
    assert (found.gpu, found.cpu, str(found.memory and found.memory.request)) == (None, None, "8Gi")
    assert (found.command, found.args, found.env) == (("lead",), (), {"B": "b", "C": "c"})


@pytest.mark.parametrize(
    ("leader", "command", "args", "script"),
    [
        ("{args: [--head]}", ("train",), ("--head",), None),
        ("{command: [lead], args: [--head]}", ("lead",), ("--head",), None),
        ("{script: echo}", (), (), "echo"),
        ("{cpu: 1}", ("train",), ("--all",), None),
    ],
)
def test_a_program_of_its_own_has_none_of_the_steps_words(
    leader: str, command: tuple[str, ...], args: tuple[str, ...], script: str | None
) -> None:
    found = led(leader)
    assert (found.command, found.args, found.script and found.script.run) == (command, args, script)


@pytest.mark.parametrize("device", ["mig: 1g.10gb of a100-80gb", "shared_gpu: l4", "device_claim: {template: t}"])
@pytest.mark.parametrize(("leader", "gpus"), [("{gpu: null}", 0), ("{gpu: l4 x 2}", 2)])
def test_no_gpu_means_no_device_of_any_kind(device: str, leader: str, gpus: int) -> None:
    text = (HEAD + STEP).replace("gpu: l4 x 4", device) + f"    gang: {{workers: 2, leader: {leader}}}\n"
    found = leader_step(loads(text).effective("train"))
    assert (found.mig, found.shared_gpu, found.device_claim) == (None, None, None)
    assert (found.gpu.count if found.gpu else 0) == gpus


def test_kubernetes_fields_are_replaced_as_a_whole() -> None:
    own = "    kubernetes: {resources: {rdma/hca: 8}, node_selector: {pool: gpu}}\n"
    assert led("{kubernetes: null}", own).kubernetes is None
    other = led("{kubernetes: {node_selector: {pool: cpu}}}", own).kubernetes
    assert other is not None and (other.node_selector, other.resources) == ({"pool": "cpu"}, {})


DIFFERENT = "{gpu: null, env: {A: null, C: {param: lr}}, memory: 8Gi, kubernetes: null}"


@pytest.mark.parametrize(
    ("leader", "written"),
    [("true", True), ("{}", True), ("{gpu: null}", {"gpu": None}), ("{env: {A: null}}", {"env": {"A": None}})],
)
def test_the_canonical_document_says_it_in_the_shortest_way(leader: str, written: Any) -> None:
    given = pipeline(leader)
    assert to_document(given)["steps"]["train"]["gang"]["leader"] == written
    assert loads(to_yaml(given)) == given == pipeline(leader)
    assert pipeline("true" if written is not True else "{gpu: null}") != given


def test_a_null_is_part_of_the_meaning() -> None:
    written = HEAD.replace("defaults", "params: {lr: x}\ndefaults") + STEP
    given = [
        loads(f"{written}    gang: {{workers: 2, leader: {each}}}\n")
        for each in (DIFFERENT, DIFFERENT.replace("gpu: null, ", ""))
    ]
    assert digest(given[0]) != digest(given[1])
    assert meaning_of(given[0]) == given[0] and loads(to_yaml(given[0])) == given[0]


def test_python_says_the_same() -> None:
    leader = {"gpu": None, "env": {"A": None}, "memory": "8Gi"}
    step = {"command": ["train"], "args": ["--all"], "gpu": "l4 x 4", "env": {"B": "b"}}
    defaults = {"image": "i", "env": {"A": "a"}, "memory": "64Gi", "cpu": 8}
    steps = {"train": {**step, "gang": {"workers": 2, "leader": leader}}}
    assert Pipeline("p", defaults=defaults, steps=steps) == pipeline("{gpu: null, env: {A: null}, memory: 8Gi}")


@pytest.mark.parametrize(
    ("leader", "code", "line", "words"),
    [
        ("yes please", "GF124", 13, "is not true or false"),
        ("3", "GF124", 13, "3 is not true or false"),
        ("{gpus: 1}", "GF113", 13, 'unknown key "gpus"'),
        ("{image: other}", "GF113", 13, 'unknown key "image"'),
        ("{gpu: l5}", "GF201", 13, "l5"),
        ("{gpu: {model: l4, form: sxm}}", "GF204", 13, "form"),
        ("{memory: much}", "GF121", 13, "much"),
        ("{command: [a], script: b}", "GF164", 13, "this has both"),
        ("{args: [a], script: b}", "GF164", 13, "not to a script"),
        ("{env: {Z: null}}", "GF374", 13, "the step has no such variable"),
        ("{env: {Z: {param: nobody}}}", "GF178", 13, 'the parameter "nobody"'),
        ("{command: [a, {output: other.x}]}", "GF180", 13, "other"),
    ],
)
def test_what_cannot_be_is_refused_where_it_stands(leader: str, code: str, line: int, words: str) -> None:
    found = refused(leader)
    assert (found.code, found.where.line) == (code, line), found
    assert words in found.message


def test_args_without_a_command_of_the_step_belong_to_nothing() -> None:
    text = HEAD + "steps:\n  a:\n    script: x\n    gang: {workers: 2, leader: {args: [y]}}\n"
    with pytest.raises(GpuflowError, match="GF164"):
        loads(text)


def test_shared_memory_is_mounted_once() -> None:
    assert refused("{shm: 1Gi}", "    volumes: {/dev/shm: {memory: 1Gi}}\n").code == "GF184"


def test_more_memory_than_the_most_is_refused_for_the_leader_too() -> None:
    retry = "    retry: {failures: 1, more_memory: {max: 128Gi}}\n"
    found = refused("{memory: 256Gi}", retry)
    assert found.code == "GF195" and "the leader" in found.message
    assert pipeline("{memory: 128Gi}", retry)


def test_a_step_that_the_leader_reads_from_comes_first() -> None:
    text = HEAD + (
        "steps:\n  z: {command: [x], outputs: {n: string}}\n"
        "  a: {command: [x], gang: {workers: 1, leader: {env: {N: {output: z.n}}}}}\n"
    )
    assert list(meaning_of(loads(text)).steps) == ["z", "a"]


def test_secrets_and_templates_are_questioned_in_the_leader_too() -> None:
    found = {
        each.code: each for each in remarks_on(pipeline("{env: {API_TOKEN: hunter2hunter2}, command: ['{{ ds }}']}"))
    }
    assert "the leader: API_TOKEN" in found["GF601"].message and found["GF601"].where.line == 13
    assert "gang.leader.command" in found["GF341"].message
    assert "GF602" in {each.code for each in remarks_on(pipeline("{command: ['http://me:secret@host/']}"))}


@pytest.mark.parametrize("leader", [True, {}, {"gpu": None, "env": {"A": None}, "kubernetes": None}, {"cpu": 1}])
def test_editors_take_what_is_taken(leader: Any) -> None:
    document = to_document(pipeline("true"))
    document["steps"]["train"]["gang"]["leader"] = leader
    jsonschema.validate(document, pipeline_schema())
    document["steps"]["train"]["gang"]["leader"] = {"command": None}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, pipeline_schema())


def test_a_step_and_its_leader_are_no_keys() -> None:
    step = Step("a", command=["x"], image="i:1", gang={"workers": 2, "leader": True})
    assert step.gang is not None and step.gang.leader is not None
    for part in (step, step.gang.leader):
        with pytest.raises(TypeError, match="unhashable"):
            hash(part)
