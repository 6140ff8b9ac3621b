"""From a file to a pipeline: every error in one go, suggestions, and other files that a pipeline includes.

Tests gpuflow/spec/loading.py, gpuflow/spec/pipeline.py, gpuflow/spec/references.py,
gpuflow/spec/rules/pipeline_rules.py and gpuflow/spec/rules/step_rules.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import gpuflow
from gpuflow import GpuflowError, Pipeline, Step, load, loads
from gpuflow.core.errors import Finding
from gpuflow.spec import loading
from gpuflow.spec.canonical import to_yaml
from tests.conftest import ROOT

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
INNER = HEAD.replace("name: p", "name: inner")


def findings(text: str, file: str = "p.yaml") -> tuple[Finding, ...]:
    with pytest.raises(GpuflowError) as caught:
        loads(text, file)
    return caught.value.findings


def test_every_error_of_a_document_is_said_in_one_go_and_in_its_order() -> None:
    text = f"""{HEAD}
params: {{lr: {{type: flaot}}}}
steps:
  train:
    image: i
    comand: [x]
    memory: 16GB
    gpu: {{model: a100-80gb, cuont: 2}}
  Bad_Name:
    image: i
    command: [x]
"""
    found = findings(text)
    assert [(finding.code, finding.where.line) for finding in found] == [
        ("GF115", 5),
        ("GF113", 9),
        ("GF121", 10),
        ("GF113", 11),
        ("GF131", 12),
    ]


def test_every_problem_of_meaning_is_said_in_one_go() -> None:
    text = f"""{HEAD}
steps:
  a: {{image: i, command: [{{param: lr}}], needs: [c], gpu: a100}}
  b: {{command: [{{output: a.x}}], when: steps.c.x > 1}}
"""
    codes = sorted(finding.code for finding in findings(text))
    assert codes == ["GF176", "GF177", "GF178", "GF180", "GF181", "GF201"]


@pytest.mark.parametrize(
    ("broken", "also"),
    [
        ("b: {image: i, comand: [x]}", ["GF113", "GF201"]),
        ("b: {image: i, command: [x], retry: {failure: 1}}", ["GF113", "GF178", "GF177", "GF201"]),
        ("b: {image: i, command: [x], ouputs: {n: int}}", ["GF113", "GF201"]),
        ("b: {image: i, command: [x], memory: 1Gb}", ["GF121", "GF178", "GF177", "GF201"]),
        ("b: {image: 5, command: [x]}", ["GF126", "GF178", "GF177", "GF201"]),
        ("b: {image: i, command: [x], outputs: {n: whole}}", ["GF115", "GF201"]),
        ("b: 5", ["GF116", "GF201"]),
    ],
)
def test_an_error_of_shape_does_not_hide_the_rest_and_makes_nothing_up(broken: str, also: list[str]) -> None:
    text = f"""{HEAD}
steps:
  {broken}
  c: {{image: i, command: [x, {{param: lr}}], needs: [nowhere], gpu: a1000}}
  d: {{image: i, command: [x], needs: [b]}}
"""
    assert [finding.code for finding in findings(text)] == also


def test_a_misspelled_section_is_not_taken_for_a_missing_one() -> None:
    steps = "steps:\n  a: {image: i, command: [x, {param: lr}], gpu: a1000}\n"
    assert [finding.code for finding in findings(f"{HEAD}parms: {{lr: 0.1}}\n{steps}")] == ["GF113", "GF201"]


def test_nothing_is_made_up_about_a_sub_pipeline_with_an_error_of_shape() -> None:
    def inner(steps: str) -> list[str]:
        other = "b: {image: i, command: [x], gpu: a1000}"
        text = f"{HEAD}steps:\n  a: {{pipeline: {{name: q, steps: {{{steps}}}}}}}\n  {other}\n"
        return [finding.code for finding in findings(text)]

    sound = "t: {image: i, command: [x], needs: [s]}"
    assert inner(f"s: {{image: i, command: 5}}, {sound}") == ["GF117", "GF201"]
    assert inner(f"s: {{image: 5, command: [x]}}, {sound}") == ["GF126", "GF201"]
    assert inner("s: {image: i, command: [x], shm: 5x}, t: {image: i, command: [x], needs: [u]}") == [
        "GF121",
        "GF177",
        "GF201",
    ]


@pytest.mark.parametrize(
    ("step", "hint"),
    [
        ("{image: i, comand: [x]}", 'did you mean "command"?'),
        ("{image: i, command: [x], retry: {failure: 3}}", 'did you mean "failures"?'),
        ("{image: i, command: [x], retry: {any: 2, failures: 1}}", "any counts both together"),
        ("{image: i, command: [x], needs: [prepar]}", 'did you mean "prepare"?'),
        ("{image: i, command: [{output: prepare.shard}]}", 'did you mean "shards"?'),
        ("{image: i, command: [{param: lrr}]}", 'did you mean "lr"?'),
        ("{image: i, command: [x], spot: require_}", 'did you mean "require"?'),
        ("{image: i, command: [x], gpu: a100-8Ogb}", "or a100-80gb or"),
        ("{image: i, command: [x], mig: 1g.11gb of a100-80gb}", "did you mean 1g.10gb"),
        ("{image: i, command: [x], checkpoint: {path: /c, store: s4://x}}", "known here: abfs, az, gs, s3"),
        ("{image: i, command: [x], for_each: {sede: [1]}, args: [{item: seed}]}", 'did you mean "sede"?'),
        ("{image: i, command: [{otuput: prepare.shards}]}", 'did you mean "output"?'),
        ("{image: i, command: [x], volumes: {/d: {new_claim: corpsu}}}", 'did you mean "corpus"?'),
    ],
)
def test_a_misspelled_word_comes_with_the_right_one(step: str, hint: str) -> None:
    text = f"""{HEAD}params: {{lr: 0.1}}
claims: {{corpus: {{size: 1Gi}}}}
steps:
  prepare: {{image: i, command: [x], outputs: {{shards: int}}}}
  b: {step}
"""
    hints = [finding.hint or "" for finding in findings(text)]
    assert any(hint in given for given in hints), hints


def test_a_reference_that_leads_nowhere_in_a_condition_is_one_finding() -> None:
    (finding,) = findings(f"{HEAD}steps:\n  a: {{image: i, command: [x], when: steps.evaluate.accuracy > 0.9}}\n")
    assert finding.code == "GF180"


def test_a_loop_is_named_step_by_step() -> None:
    text = f"""{HEAD}steps:
  a: {{image: i, command: [{{output: c.x}}], outputs: {{x: int}}}}
  b: {{image: i, command: [x], needs: [a]}}
  c: {{image: i, command: [x], needs: [b], outputs: {{x: int}}}}
"""
    (finding,) = findings(text)
    assert "a -> b -> c -> a" in finding.message


def test_an_empty_file_and_a_list_are_told_what_to_begin_with() -> None:
    for text in ("", "[]", "just text", "# only a comment\n"):
        (finding,) = findings(text)
        assert finding.code == "GF116"
        assert finding.hint == "begin with apiVersion: gpuflow/v1, kind: Pipeline"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / "outer.yaml"


def test_a_sub_pipeline_is_found_beside_the_file_and_equals_one_written_in_place(tmp_path: Path) -> None:
    inner = "steps:\n  s: {image: i, command: [x]}\n"
    outer = write(tmp_path, outer=HEAD + "steps:\n  a: {pipeline: inner.yaml}\n", inner=INNER + inner)
    written = f"{HEAD}steps:\n  a: {{pipeline: {{name: inner, steps: {{s: {{image: i, command: [x]}}}}}}}}\n"
    assert load(outer) == loads(written)


def test_an_error_inside_an_included_file_names_that_file_and_its_line(tmp_path: Path) -> None:
    outer = write(
        tmp_path,
        outer=HEAD + "steps:\n  a: {pipeline: inner.yaml}\n",
        inner=INNER + "steps:\n  s:\n    image: i\n    command: [x]\n    needs: [nowhere]\n    memroy: 1Gi\n",
    )
    with pytest.raises(GpuflowError) as caught:
        load(outer)
    (finding,) = caught.value.findings
    assert (finding.code, finding.where.file, finding.where.line) == ("GF113", str(tmp_path / "inner.yaml"), 9)
    write(tmp_path, inner=INNER + "steps:\n  s:\n    image: i\n    command: [x]\n    needs: [nowhere]\n")
    with pytest.raises(GpuflowError) as caught:
        load(outer)
    (finding,) = caught.value.findings
    assert (finding.code, finding.where.file, finding.where.line) == ("GF177", str(tmp_path / "inner.yaml"), 8)


def test_what_a_site_cannot_say_about_an_inner_step_is_placed_in_the_inner_file(tmp_path: Path) -> None:
    from gpuflow.pod import pod_for
    from gpuflow.site import Site

    outer = write(
        tmp_path,
        outer=HEAD + "steps:\n  a: {pipeline: inner.yaml}\n",
        inner=INNER + "steps:\n  s: {image: i, command: [x], topology: {same: rack}}\n",
    )
    inner = load(outer).steps["a"].pipeline
    assert inner is not None
    with pytest.raises(GpuflowError) as caught:
        pod_for(inner, "s", Site.load("nvidia"))
    where = caught.value.findings[0].where
    assert (where.file, where.line) == (str(tmp_path / "inner.yaml"), 5)


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("missing.yaml", "GF100", "does not exist"),
        ("/etc/passwd", "GF100", "is an absolute path"),
        ("outer.yaml", "GF172", "include each other"),
        ("../{folder}/outer.yaml", "GF172", "include each other"),
        ("inner.py", "GF100", "is a Python file"),
    ],
)
def test_what_cannot_be_included_is_refused_where_it_is_named(tmp_path: Path, name: str, code: str, words: str) -> None:
    outer = write(tmp_path, outer=HEAD + f"steps:\n  a: {{pipeline: {name.format(folder=tmp_path.name)}}}\n")
    with pytest.raises(GpuflowError, match=words) as caught:
        load(outer)
    (finding,) = caught.value.findings
    assert (finding.code, finding.where.file, finding.where.line) == (code, str(outer), 5)


@pytest.mark.slow
def test_files_that_double_at_every_level_are_refused_not_followed(tmp_path: Path) -> None:
    for level in range(20):
        steps = f"steps:\n  a: {{pipeline: f{level + 1}.yaml}}\n  b: {{pipeline: f{level + 1}.yaml}}\n"
        (tmp_path / f"f{level}.yaml").write_text(HEAD + steps)
    (tmp_path / "f20.yaml").write_text(HEAD + "steps:\n  s: {image: i, command: [x]}\n")
    with pytest.raises(GpuflowError, match=f"more than {loading.MOST_INCLUDES:,} pipelines are included"):
        load(tmp_path / "f0.yaml")


def test_the_source_knows_its_file_and_is_no_part_of_equality(tmp_path: Path) -> None:
    raw = (ROOT / "docs" / "examples" / "nightly.yaml").read_bytes()
    one, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    one.write_bytes(raw)
    other.write_bytes(raw + b"# a comment\n")
    assert load(one) == load(other)
    assert load(one).source.file == str(one)


def test_an_output_of_a_step_that_may_be_skipped_asks_for_a_decision() -> None:
    def text(reader: str, output: str = "int") -> str:
        return (
            f"{HEAD}params: {{go: false}}\nsteps:\n"
            f"  a: {{image: i, command: [x], when: params.go, outputs: {{n: {output}}}}}\n"
            f"  b: {{image: i, command: [x], needs: [a], outputs: {{m: int}}}}\n"
            f"  c: {{image: i, command: [{{output: a.n}}, {{output: b.m}}]{reader}}}\n"
        )

    found = findings(text(""))
    assert [finding.code for finding in found] == ["GF190", "GF190"]
    assert "it runs only when params.go" in found[0].message
    assert 'it is skipped with "a"' in found[1].message
    assert loads(text(", if_skipped: skip")).steps["c"].if_skipped == "skip"
    assert [f.message for f in findings(text("", "{type: int, default: 0}"))] == [found[1].message]


FAN = """apiVersion: gpuflow/v1
kind: Pipeline
name: p
params: {seeds: {type: json, default: [7, 8, 7]}}
steps:
  a: {image: i, command: [c, {item: x}], for_each: {x: %s}, %s}
"""
KEPT = "checkpoint: {path: /c, store: s3://b/c}"
INSIDE = (
    "{pipeline: {apiVersion: gpuflow/v1, kind: Pipeline, name: q, "
    f"steps: {{b: {{image: i, command: [c], {KEPT}}}}}}}, for_each: {{x: [u, u]}}}}"
)


@pytest.mark.parametrize(("items", "twice"), [("[u, v, u]", '"u"'), ('[1, "1"]', '"1"'), ("{param: seeds}", '"7"')])
def test_equal_items_that_would_share_a_checkpoint_are_refused(items: str, twice: str) -> None:
    (finding,) = findings(FAN % (items, KEPT))
    assert (finding.code, finding.where.line if finding.where else 0) == ("GF194", 6)
    assert f"runs twice over {twice}" in finding.message


def test_equal_items_around_a_sub_pipeline_that_keeps_state_are_refused() -> None:
    (finding,) = findings(f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps:\n  a: {INSIDE}\n")
    assert finding.code == "GF194"


@pytest.mark.parametrize(
    ("items", "policy"), [("[u, u]", "retry: {failures: 3}"), ("[u, v]", KEPT), ("[[1], [1, 1]]", KEPT)]
)
def test_items_without_anything_to_share_may_be_equal(items: str, policy: str) -> None:
    assert loads(FAN % (items, policy)).steps["a"].for_each is not None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("deadline: 0s\nsteps: {a: {image: i, command: [x]}}", 4),
        ("steps:\n  a: {image: i, command: [x], timeout: 0m}", 5),
        ("steps:\n  a: {image: i, command: [x], queue_timeout: 0s}", 5),
        ("steps:\n  a: {approval: {message: go?, timeout: 0h}}", 5),
        ("claims: {c: {size: 0}}\nsteps: {a: {image: i, command: [x]}}", 4),
    ],
)
def test_a_limit_of_no_time_and_a_claim_of_no_size_are_refused(text: str, line: int) -> None:
    (finding,) = findings(f"{HEAD}{text}\n")
    assert (finding.code, finding.where.line) == ("GF127", line)


@pytest.mark.parametrize("path", ["/abs", "../up", "a/../../b", '""'])
def test_a_part_of_a_volume_lies_in_the_volume(path: str) -> None:
    head = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps: {a: {image: i, command: [x], "
    with pytest.raises(GpuflowError) as refusal:
        loads(head + f"volumes: {{/d: {{claim: c, sub_path: {path}}}}}}}}}")
    assert [finding.code for finding in refusal.value.findings] == ["GF133"]
    assert loads(head + "volumes: {/d: {claim: c, sub_path: ..data/x}}}}")


def test_a_part_of_a_volume_from_literal_text_reads_back() -> None:
    step = Step("a", image="i:1", command=["x"], volumes={"/d": {"claim": "c", "sub_path": gpuflow.text("a/{{x}}")}})
    pipeline = Pipeline("p", steps={"a": step})
    assert loads(to_yaml(pipeline)) == pipeline
