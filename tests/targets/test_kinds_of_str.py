"""A str of somebody's own kind (`gpuflow.text`, a StrEnum's member) is compiled and checked as its text."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum, StrEnum
from pathlib import Path

import pytest

import gpuflow
from gpuflow import Pipeline
from tests.targets.test_every_target import HERE


class Loud(str):
    """A str that marshal, pickle and `type(…) is str` tell from a plain one."""


def member(text: str) -> str:
    return StrEnum("Words", {"WORD": text}).WORD  # type: ignore[attr-defined]  # made from a map


def older_member(text: str) -> str:
    """As people write them for Python before 3.11; its own `str(…)` is the name."""
    return Enum("Words", {"WORD": text}, type=str).WORD  # type: ignore[attr-defined,no-any-return]  # made from a map


KINDS = [gpuflow.text, Loud, member, older_member]


class Count(IntEnum):
    TWO = 2


class Rate(float):
    """As numpy's float64: a float whose repr is not a number."""

    def __repr__(self) -> str:
        return f"np.float64({float(self)!r})"


def pipeline_of(kind: Callable[[str], str]) -> Pipeline:
    with Pipeline("kinds", description=kind("of text")) as pipeline:
        pipeline.param("greeting", str, default=kind("hi"))
        pipeline.step(
            "say",
            [kind("echo"), kind("plain"), kind("a { b } c }}"), kind("$x $"), kind("two\nlines")],
            image=kind("registry.example.com/say:1"),
            cpu=kind("1"),
            memory=kind("1Gi"),
            env={kind("PLAIN"): kind("plain"), "END": kind("}}"), "TOKEN": {"secret": kind("s"), "key": kind("k")}},
            labels={kind("team"): kind("nlp")},
            annotations={kind("why"): kind("so")},
            kubernetes={"node_selector": {kind("disk"): kind("ssd")}},
            volumes={kind("/data"): {"claim": kind("data")}},
        )
    return pipeline


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", HERE)
def test_every_target_writes_it_as_plain_text(target: str, kind: Callable[[str], str]) -> None:
    assert gpuflow.compile(pipeline_of(kind), target).text == gpuflow.compile(pipeline_of(str), target).text


@pytest.mark.parametrize("target", HERE)
def test_every_target_writes_a_number_of_any_kind_as_its_digits(target: str) -> None:
    def compiled(count: int, rate: float) -> str:
        with Pipeline("kinds") as pipeline:
            pipeline.param("rate", float, default=rate)
            pipeline.step(
                "s", ["train", count, rate], image="registry.example.com/say:1", cpu=count, env={"N": count, "LR": rate}
            )
        return gpuflow.compile(pipeline, target).text

    assert compiled(Count.TWO, Rate(2e-05)) == compiled(2, 2e-05)


@pytest.mark.parametrize("kind", KINDS)
def test_check_and_demand_judge_it_as_plain_text(kind: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "quota.yaml").write_text(
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: ml}\nspec: {hard: {requests.cpu: 500m}}\n"
    )
    odd, plain = pipeline_of(kind), pipeline_of(str)
    assert gpuflow.demand(odd).document() == gpuflow.demand(plain).document()
    found = gpuflow.check(odd, str(tmp_path), namespace="ml").document()
    assert found == gpuflow.check(plain, str(tmp_path), namespace="ml").document()
    assert found["verdict"] == "never"
