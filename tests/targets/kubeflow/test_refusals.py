"""What KFP cannot carry is refused by name, with what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.loading import load
from gpuflow.targets.capabilities import NoSupport, PartialSupport
from gpuflow.targets.constructs import VOCABULARY
from gpuflow.targets.kubeflow import target
from gpuflow.targets.kubeflow.facts import CAPABILITIES
from gpuflow.targets.target import Request, compile_with, findings_of
from tests.targets.kubeflow.compiling import compiled

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def step(fields: str, top: str = "") -> str:
    return f'name: p\n{top}steps:\n  work: {{image: "i:1", command: [work], {fields}}}\n'


def refusal(source: str, *, lossy: bool = False) -> str:
    with pytest.raises(GpuflowError) as caught:
        compiled(source, lossy=lossy)
    return str(caught.value)


def test_the_table_answers_for_every_construct_and_every_gap_says_what_to_do() -> None:
    assert set(CAPABILITIES) == set(VOCABULARY)
    gaps = [entry for entry in CAPABILITIES.values() if isinstance(entry, NoSupport)]
    assert gaps
    assert all(gap.reason and gap.instead for gap in gaps)


def test_a_supervisor_never_takes_longer_than_the_pod_lives_where_its_grace_is_lost() -> None:
    kept = "checkpoint: {path: /c, store: s3://m/x, grace: %s}"
    assert "--grace" not in compiled(step(kept % "90s"), lossy=True)
    assert "--grace=20s" in compiled(step(kept % "20s"), lossy=True)
    assert "--grace" not in compiled(step("outputs: {a: int}, termination_grace: 5m"), lossy=True)


def test_braces_in_the_command_of_a_step_that_writes_xcom_are_no_crash() -> None:
    braces = 'name: p\nsteps:\n  work: {image: "i:1", command: ["{{x}}"], outputs: {a: int}, outputs_from: xcom}\n'
    assert "GF301" in refusal(braces)


@pytest.mark.parametrize("field", ["memory", "cpu"])
def test_an_amount_beyond_every_float_is_written_as_it_is(field: str) -> None:
    assert f'"{"9" * 320}"' in compiled(step(f'{field}: "{"9" * 320}"')).replace("'", '"')


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("volumes: {/a: {secret: same}, /b: {config_map: same}}", 'volume named "same"'),
        ('for_each: {word: ["{{x}}"]}', "which Argo would evaluate"),
        ('for_each: {word: ["a$$b"]}', "holds $$, which the kubelet turns into $"),
        ('for_each: {word: ["$(HOME)"]}', "holds $(HOME), which the kubelet would replace"),
        ('for_each: {word: ["$(mode)"]}, env: {mode: fast}', "holds $(mode), which the kubelet would replace"),
        ('checkpoint: {path: "/c/{{b}}", store: "s3://m"}', "/c/{{b}} holds {{"),
        ('volumes: {"/d/{{b}}": {empty_dir: 1Gi}}', "/d/{{b}} holds {{"),
        ('annotations: {example.com/note: "{{workflow.name}}"}', 'the annotation "example.com/note" holds {{'),
        ("for_each: {seed: [9007199254740993]}", "exact up to 9007199254740992 only"),
        ("volumes: {/keys: {secret: hub.keys}}", 'kubeflow cannot mount the secret "hub.keys"'),
        ("volumes: {/data: {claim: data.v1}}", 'kubeflow cannot mount the claim "data.v1"'),
        (f"volumes: {{/settings: {{config_map: {'s' * 64}}}}}", "at most 63 lower-case letters"),
    ],
)
def test_what_would_become_something_else_is_refused_even_when_losses_are_allowed(fields: str, words: str) -> None:
    assert words in refusal(step(fields), lossy=True)


@pytest.mark.parametrize(
    ("top", "words"),
    [
        ('params: {greeting: "{{x}}"}\n', 'the default of "greeting"'),
        ("params: {price: 5 $$}\n", 'the default of "price" holds $$'),
        ('params: {size: {type: string, enum: [s, "$(SIZE)"], default: s}}\n', 'a choice of "size" holds $(SIZE)'),
        ('params: {size: {type: int, default: 1, description: "{{x}}"}}\n', 'the description of "size" holds {{'),
        ("claims: {scratch: {size: 1Gi}}\n", "names no storage_class"),
        ("claims: {the-scratch-space-of-the-run: {size: 1Gi, storage_class: fast}}\n", "longer than 26 characters"),
        (
            'claims: {x: {size: 1Gi, storage_class: fast}}\nexit: {deletepvc-x: {image: "i:1", command: [x]}}\n',
            'the task of a claim is also named "deletepvc-x"',
        ),
        ("params: {any: {type: json, default: 5}}\n", "neither a list nor a map"),
        ('exit: {work-driver: {image: "i:1", command: [x]}}\n', 'KFP names its own task "work-driver"'),
    ],
)
def test_what_the_pipeline_says_is_refused_too(top: str, words: str) -> None:
    assert words in refusal(step("cpu: 1", top))


def test_a_value_is_refused_when_a_step_of_a_sub_pipeline_has_a_variable_of_its_name() -> None:
    inner = "{name: q, defaults: {image: 'i:1'}, params: {x: {type: string}}, steps: {t: {command: [t, {param: x}]%s}}}"
    source = "name: p\nparams: {a: $(mode)}\nsteps:\n  s:\n    params: {x: {param: a}}\n    pipeline: "
    compiled(source + inner % "")
    assert "holds $(mode)" in refusal(source + inner % ", env: {mode: fast}")


def test_outputs_of_loops_that_nest_are_refused_when_somebody_reads_them() -> None:
    source = step(
        "for_each: {a: {param: xs}, b: {param: ys}}, outputs: {n: int}",
        "params: {xs: {type: json}, ys: {type: json}}\n",
    )
    compiled(source)
    assert "lists of lists" in refusal(source + '  read: {image: "i:1", command: [read, {output: work.n}]}\n')


def test_outputs_of_a_fan_out_that_leaves_items_out_are_refused_when_somebody_reads_them() -> None:
    source = step("for_each: {a: [1, 2]}, when: item.a > 1, outputs: {n: int}")
    compiled(source)
    reader = '  read: {image: "i:1", command: [read, {output: work.n}], if_skipped: skip}\n'
    assert "some of its copies may be left out" in refusal(source + reader, lossy=True)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("volumes: {/d: {ephemeral: {size: 1Gi}, read_only: true}}", "the volume at /d would be mounted writable"),
        ("volumes: {/d: {claim: c, read_only: true}}", 'the claim "c" would be mounted writable'),
        ("volumes: {/d: {secret: s, sub_path: x}}", "sub_path works on claims only"),
        ("security: {user: 5, fs_group: 7}", "KFP sets user and group of the container, but no fs_group"),
        (
            f"kubernetes: {{affinity: {{podAntiAffinity: {{{REQUIRED}: [{{topologyKey: zone}}]}}}}}}",
            "podAntiAffinity is never read",
        ),
    ],
)
def test_what_is_carried_only_in_part_is_refused_and_stands_in_the_header_of_a_lossy_artifact(
    fields: str, words: str
) -> None:
    assert words in refusal(step(fields))
    text = compiled(step(f"{fields}, termination_grace: 90s"), lossy=True)
    assert f'# LOST: kubeflow: step "work": {words}' in text


ACCOUNTS = """
name: p
defaults: {image: "i:1", service_account: trainer}
steps:
  work: {command: [w]}
  inside: {pipeline: {name: q, defaults: {image: "i:1"%s}, steps: {x: {command: [x]}}}}
"""


def test_a_service_account_is_carried_by_the_call_when_all_steps_share_it_and_refused_when_they_differ() -> None:
    assert 'service_account="trainer"' in compiled(ACCOUNTS % ", service_account: trainer")
    for other, shown in (("", "none, trainer"), (", service_account: other", "other, trainer")):
        assert f"the steps name several ({shown})" in refusal(ACCOUNTS % other)
        text = compiled(ACCOUNTS % other, lossy=True)
        assert "service_account=" not in text
        assert f"# LOST: kubeflow: a run has one service account, and the steps name several ({shown})" in text


APPROVAL = """
name: p
defaults: {image: "i:1"}
params: {go: true}
steps:
  build: {command: [build]}
  ask: {approval: sure?, needs: [build], when: params.go}
  ship: {command: [ship], needs: [ask], if_skipped: skip}
"""


def test_without_an_approval_the_next_step_waits_for_what_came_before_and_keeps_the_condition() -> None:
    assert "does not support approval" in refusal(APPROVAL)
    spec, *_ = yaml.safe_load_all(compiled(APPROVAL, lossy=True))
    (name,) = [task for task in spec["root"]["dag"]["tasks"] if task.startswith("condition")]
    task = spec["root"]["dag"]["tasks"][name]
    assert task["dependentTasks"] == ["build"]
    assert task["triggerPolicy"]["condition"] == "inputs.parameter_values['pipelinechannel--go'] == true"
    assert set(spec["components"][f"comp-{name}"]["dag"]["tasks"]) == {"ship"}


def test_an_exit_step_that_reads_an_output_gets_its_default_when_losses_are_accepted() -> None:
    source = step(
        "outputs: {n: {type: int, default: 7}}", 'exit: {tell: {image: "i:1", command: [t, {output: work.n}]}}\n'
    )
    assert "names no image for a container that writes the default of work.n" in refusal(source)
    spec, *_ = yaml.safe_load_all(compiled(source, lossy=True))
    given = spec["root"]["dag"]["tasks"]["tell"]["inputs"]["parameters"]["work-n"]
    assert given == {"runtimeValue": {"constant": "7"}}


def test_the_gpu_is_kept_when_other_devices_are_lost() -> None:
    text = compiled(step("gpu: l4, kubernetes: {resources: {rdma/hca: 1}}"), lossy=True)
    assert "resourceType: nvidia.com/gpu" in text
    assert "LOST: kubeflow does not support kubernetes.resources" in text


def test_a_refusal_in_the_command_names_the_step() -> None:
    assert 'step "work": kubeflow does not support the text' in refusal(step('args: ["{{$}}"]'))


def test_no_caching_unless_asked() -> None:
    assert "enableCache" not in compiled(step("cpu: 1"))
    assert "enableCache: true" in compiled(step("cache: true"))


def test_an_unknown_form_names_the_known_ones() -> None:
    with pytest.raises(GpuflowError, match="known here: ir, crd"):
        compiled(step("cpu: 1"), form="job")


def test_the_page_on_engines_lists_every_gap_with_its_reason_and_its_way_out() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "engines.md").read_text()
    guide = page.partition("\n## Kubeflow\n")[2]
    rows = {
        f"| `{name}` | {entry.reason} | {entry.instead} |"
        for name, entry in CAPABILITIES.items()
        if isinstance(entry, NoSupport)
    }
    table = guide.partition("| construct | why | instead |\n")[2].partition("\n\n")[0]
    assert rows == {line for line in table.splitlines() if line.startswith("| `")}
    weaker = [
        f"- `{name}`: {entry.reason}" for name, entry in CAPABILITIES.items() if isinstance(entry, PartialSupport)
    ]
    assert weaker
    assert set(weaker) <= set(guide.splitlines())


KEEPER = """
  {name}:
    {loop}
    params: {{size: "1"}}
    pipeline:
      name: inner
      params: {{size: {{type: string}}}}
      steps:
        train: {{image: "i:1", command: [t], checkpoint: {{path: /kept, store: {store}}}}}
"""


def keeper(name: str, store: str = "s3://m", loop: str = "") -> str:
    return KEEPER.format(name=name, store=store, loop=loop)


def test_a_sub_pipeline_that_is_used_twice_keeps_its_checkpoints_apart() -> None:
    text = compiled("name: p\nsteps:" + keeper("one") + keeper("two"))
    assert "--step=one/train" in text
    assert "--step=two/train" in text


def test_copies_of_a_sub_pipeline_that_would_share_checkpoints_are_refused() -> None:
    loop = "for_each: {i: [1, 2]}"
    assert 'its copies would share the checkpoints of "train"' in refusal("name: p\nsteps:" + keeper("all", loop=loop))
    apart = "{join: [s3://m/, {param: size}]}"
    assert "--step=all/train" in compiled("name: p\nsteps:" + keeper("all", apart, loop))


def test_steps_of_a_sub_pipeline_from_a_file_have_one_name_and_their_own_place(tmp_path: Path) -> None:
    """Notes and refusals of the target name `call.say`, in the file and the line where it is written."""
    inner = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: inner\nparams: {who: {type: string}}\nsteps:\n"
    say = '  say: {image: "i:1", command: [say, {param: who}], outputs: {o: string}, security: {fs_group: 5}}\n'
    (tmp_path / "inner.yaml").write_text(inner + say)
    outer = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: outer\nparams: {who: {type: string}}\nsteps:\n"
    (tmp_path / "outer.yaml").write_text(outer + "  call: {pipeline: inner.yaml, params: {who: {param: who}}}\n")
    request = Request(load(tmp_path / "outer.yaml"), Site.load("nvidia"), None, "outer.yaml")
    made = findings_of(target, request, compile_with(target, request, allow_lossy=True))
    told = {found.code: found for found in made if 'step "' in found.message}
    assert set(told) == {"GF303", "GF305", "GF307"}
    for found in told.values():
        assert 'step "call.say"' in found.message
        assert (found.where.file, found.where.line) == (str(tmp_path / "inner.yaml"), 6)
