"""Every example compiles for Kubeflow as it stands, or says in one line which constructs are in the way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.loading import load
from gpuflow.targets.kubeflow import target
from gpuflow.targets.target import Request, compile_with

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "examples"
LINE = re.compile(r"^(?:# )?Not on Kubeflow as it is: ([a-z_., ]+?)( and more)?\. ", re.MULTILINE)
REFUSED = re.compile(r"^kubeflow does not support ([a-z_.]+)")
FOREIGN = ("others/", "import/", "why/")
"""Examples of files that gpuflow did not write."""


def examples() -> list[Path]:
    """The pipelines of gpuflow among the examples."""
    found = []
    for path in sorted((*FOLDER.rglob("*.yaml"), *FOLDER.rglob("*.py"))):
        text = path.read_text()
        ours = "kind: Pipeline\n" in text and "apiVersion: gpuflow/v1\n" in text
        if (ours or "from gpuflow import Pipeline" in text) and not path.relative_to(FOLDER).as_posix().startswith(
            FOREIGN
        ):
            found.append(path)
    return found


def site_of(path: Path) -> Site:
    own = path.parent / "site.yaml"
    return Site.load(str(own if own.exists() else FOLDER / "first" / "site.yaml"))


def refused(path: Path) -> set[str] | None:
    """The constructs that keep an example from compiling; None when it compiles."""
    try:
        compile_with(target, Request(load(path), site_of(path), None, path.name), allow_lossy=False)
    except GpuflowError as refusal:
        found = (REFUSED.match(finding.message) for finding in refusal.findings)
        return {match[1] for match in found if match is not None}
    return None


def test_all_examples_are_looked_at() -> None:
    names = {path.relative_to(FOLDER).as_posix() for path in examples()}
    assert {"nightly.yaml", "finetune.py", "first/finetune.yaml", "kubeflow/job.yaml", "quota/nightly.yaml"} <= names


@pytest.mark.parametrize("path", examples(), ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_an_example_compiles_or_says_in_one_line_why_not(path: Path) -> None:
    said, missing = LINE.findall(path.read_text()), refused(path)
    if missing is None:
        assert not said, "it compiles: drop the line"
        return
    ((names, more),) = said
    listed = set(names.split(", "))
    assert listed <= missing
    assert more or listed == missing
