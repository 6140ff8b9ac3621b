"""Findings E7 and E10: what a report names, and a hint that fits."""

from __future__ import annotations

import pytest

from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError
from tests.checker.findings.snapshots import HOME, NODE, ONE, shown


def test_e7_the_report_names_file_pipeline_namespace_and_engine() -> None:
    document = shown(ONE, HOME, NODE).document()
    assert [document[key] for key in ("file", "pipeline", "namespace", "engine", "verdict")] == [
        "p.yaml", "p", "team-a", "none", "always",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["&a [*a]\n", "x: &a [1, *a]\n", "x: &a {b: *a}\n", "x: &a {b: [{c: *a}]}\n"])
def test_e10_an_alias_inside_its_own_anchor_is_told_to_go(text: str) -> None:
    with pytest.raises(GpuflowError) as refused:
        yaml_tree.parse(text, "p.yaml")
    (finding,) = refused.value.findings
    assert finding.message == "the alias *a contains itself"
    assert finding.hint == "a value cannot be a part of itself: write out what is meant in place of *a"


def test_e10_an_alias_of_nothing_is_told_to_be_defined() -> None:
    with pytest.raises(GpuflowError) as refused:
        yaml_tree.parse("x: *a\n", "p.yaml")
    assert refused.value.findings[0].hint == "define it with an anchor first"
