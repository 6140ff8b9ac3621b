"""Pipelines and steps written in Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpuflow
from gpuflow import GpuflowError, Pipeline, Step, gpu, join, load, mig
from gpuflow.spec.canonical import to_yaml

IMAGE = {"image": "registry.example.com/x:1"}


def codes(error: pytest.ExceptionInfo[GpuflowError]) -> list[str]:
    return [finding.code for finding in error.value.findings]


def test_a_reference_is_a_dependency_by_itself() -> None:
    from gpuflow.spec.references import edges, upstream

    with Pipeline("p", defaults=IMAGE) as p:
        lr = p.param("lr", float, default=0.1)
        prepare = p.step("prepare", ["prepare"], outputs={"shards": int})
        p.step("train", ["train", "--lr", lr, "--shards", prepare.outputs.shards])
        p.step("after", ["x"], needs="train")
    assert upstream(p) == {"prepare": (), "train": ("prepare",), "after": ("train",)}
    assert edges(p) == {"prepare": ["train"], "train": ["after"], "after": []}


def test_the_block_checks_everything_at_once_and_names_the_lines() -> None:
    def build() -> None:
        with Pipeline("p", defaults=IMAGE) as p:
            p.step("a", ["x"], needs="nowhere")
            p.step("b", ["x"], gpu="a100-81gb")

    line = build.__code__.co_firstlineno + 2
    with pytest.raises(GpuflowError) as caught:
        build()
    found = [(finding.code, finding.where.file, finding.where.line) for finding in caught.value.findings]
    assert found == [("GF177", __file__, line), ("GF201", __file__, line + 1)]


def test_a_pipeline_with_all_its_steps_needs_no_block() -> None:
    p = Pipeline("p", steps={"a": {"command": ["x"], **IMAGE}})
    assert list(p.steps) == ["a"]
    with pytest.raises(GpuflowError) as caught:
        Pipeline("p", steps={"a": {"command": ["x"]}})
    assert codes(caught) == ["GF176"]
    assert caught.value.findings[0].where.file == __file__


def test_a_finished_pipeline_takes_no_more_steps_and_an_unopened_one_none_yet() -> None:
    with Pipeline("p", defaults=IMAGE) as p:
        p.step("a", ["x"])
    for act in (lambda: p.step("b", ["x"]), lambda: p.param("x"), lambda: Pipeline("q").step("a", ["x"])):
        with pytest.raises(GpuflowError) as caught:
            act()
        assert codes(caught) == ["GF191"]
    with pytest.raises(GpuflowError) as caught, p:
        pass
    assert codes(caught) == ["GF191"]


def test_an_exception_in_the_block_is_the_users_own() -> None:
    def build() -> None:
        with Pipeline("p") as p:
            p.step("a", ["x"])
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        build()


def test_a_checked_pipeline_is_frozen() -> None:
    with Pipeline("p", defaults=IMAGE) as p:
        p.step("a", ["x"])
    with pytest.raises(ValueError, match="frozen"):
        p.name = "q"  # type: ignore[misc]  # wrong on purpose


def test_an_output_that_was_not_declared_is_an_attribute_error_with_a_suggestion() -> None:
    with Pipeline("p", defaults=IMAGE) as p:
        prepare = p.step("prepare", ["x"], outputs={"shards": int})
    with pytest.raises(AttributeError, match='did you mean "shards"'):
        prepare.outputs.shard  # noqa: B018  # the access itself is the mistake


def test_shapes_are_checked_where_they_are_written() -> None:
    assert gpu("a100-80gb", 2).canonical() == "a100-80gb x 2"
    assert mig("1g.10gb", "a100-80gb", 3).count == 3
    assert gpu(memory="24Gi").canonical() == {"memory": "24Gi"}
    assert [each.canonical() for each in (gpu(), gpu(2), gpu(count=3), gpu("any", 4))] == [1, 2, 3, 4]
    assert gpu("a100-80gb", 8, form="sxm").canonical() == "a100-80gb sxm x 8"
    assert gpu(any_of=["h100", "h200"], form="sxm").canonical() == {"any_of": ["h100", "h200"], "form": "sxm"}
    for wrong in (
        lambda: gpu("a100-80gb", 0),
        lambda: gpu(0),
        lambda: gpu(2, 3),
        lambda: gpu(form="sxm"),
        lambda: gpu("a100-80gb", memory="1Gi"),
        lambda: mig("1g.10gb", "a100-80gb", 0),
    ):
        with pytest.raises(GpuflowError) as caught:
            wrong()
        assert caught.value.findings[0].where.file == __file__


def test_parts_are_joined_without_anything_between_them() -> None:
    lr = gpuflow.spec.text.ParamRef("lr")
    assert join("a", "b") == "ab"
    assert join() == ""
    assert join(lr) == lr
    assert join("", lr, "", join("x", 5)).canonical() == {"join": [{"param": "lr"}, "x5"]}


def test_a_reference_in_an_f_string_is_a_mistake_that_says_what_to_write() -> None:
    lr = gpuflow.spec.text.ParamRef("lr")
    for glued in (lambda: f"--lr={lr}", lambda: str(lr), lambda: "%s" % lr, lambda: f"{join('a', lr)}"):  # noqa: UP031  # the old way of gluing is what is tested
        with pytest.raises(TypeError, match=r"gpuflow\.join"):
            glued()
    assert repr(lr) == "ParamRef(name='lr')"


def test_a_step_stands_alone() -> None:
    step = Step("train", command=["train"], image="x", gpu="a100-80gb x 2")
    assert (step.name, step.gpu.count if step.gpu else None) == ("train", 2)
    with pytest.raises(GpuflowError) as caught:
        Step("train", command=["train"], gpu="a100-81gb", memroy="1Gi")
    assert codes(caught) == ["GF113"]
    with pytest.raises(GpuflowError) as caught:
        Step("train", command=["train"], gpu="a100-81gb")
    assert sorted(codes(caught)) == ["GF176", "GF201"]


def test_a_sub_pipeline_may_stand_in_the_same_file(tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text(
        "from gpuflow import Pipeline\n"
        "with Pipeline('inner', defaults={'image': 'i'}, outputs={'n': {'output': 's.n'}}) as inner:\n"
        "    inner.param('x', int)\n"
        "    inner.step('s', ['x'], outputs={'n': int})\n"
        "with Pipeline('outer', defaults={'image': 'i'}) as outer:\n"
        "    a = outer.step('a', pipeline=inner, params={'x': 3})\n"
        "    outer.step('b', ['x', a.outputs.n])\n"
    )
    assert load(file).name == "outer"
    assert "output: a.n" in to_yaml(load(file))


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("import sys\nsys.exit(3)\n", "GF192", 2),
        ("def f(:\n", "GF192", 1),
        ("x = 1\n", "GF193", 1),
        ("from gpuflow import Pipeline\np = Pipeline('p')\n", "GF193", 1),
        ("import no_such_module_here\n", "GF192", 1),
    ],
)
def test_whatever_a_python_file_does_the_answer_is_one_message(tmp_path: Path, text: str, code: str, line: int) -> None:
    file = tmp_path / "p.py"
    file.write_text(text)
    with pytest.raises(GpuflowError) as caught:
        load(file)
    (finding,) = caught.value.findings
    assert (finding.code, finding.where.file, finding.where.line) == (code, str(file), line)


def test_a_file_may_import_what_stands_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_this_one.py").write_text("IMAGE = 'i'\n")
    file = tmp_path / "p.py"
    file.write_text(
        "from beside_this_one import IMAGE\nfrom gpuflow import Pipeline\n"
        "p = Pipeline('p', steps={'a': {'image': IMAGE, 'command': ['x']}})\n"
    )
    assert load(file).steps["a"].image == "i"
