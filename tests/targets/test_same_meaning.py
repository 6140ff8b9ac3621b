"""The same meaning gives the same bytes: `.git`, line ends, comments and the order of keys are not in the output."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.canonical import digest, meaning_of
from gpuflow.spec.loading import load, loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import load_target
from gpuflow.targets.target import Request, compile_with
from tests.cli.commands import EXAMPLES, Gpuflow
from tests.targets.every_construct import HEAD, PIPELINES, SITE
from tests.targets.test_every_target import HERE

BARE = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
MANY = """
labels: {team: nlp, cost-center: a1}
params:
  lr: {default: 1e-4, type: float, description: rate}
  config: {type: json, default: {b: [1, {y: 2, x: 1}], a: 1}}
defaults: {env: {B: "2", A: "1"}, labels: {z: "1", a: "2"}, image: i}
steps:
  report: {command: [r, {output: train.score}], needs: [extra]}
  extra: {script: "echo 1\\n  echo 2\\n"}
  train:
    command: [t, {param: lr}, {param: config}]
    needs: [prepare]
    env: {Z: {output: prepare.n}, C: "3", A: "0"}
    outputs: {score: float, other: int}
    volumes: {/scratch/b: {empty_dir: 1Gi}, /scratch/a: {empty_dir: 2Gi}}
    kubernetes: {node_selector: {z: "1", a: "2"}}
  prepare: {command: [p], outputs: {n: int}}
  tune: {command: [s, {item: seed}, {item: rate}], for_each: {seed: [1, 2], rate: [{b: 1, a: 2}, {b: 3, a: 4}]}}
  inner:
    params: {y: "1", x: {output: prepare.n}}
    pipeline:
      apiVersion: gpuflow/v1
      kind: Pipeline
      name: inner
      params: {x: {type: int}, y: "0"}
      steps: {late: {image: i, command: [l], needs: [early]}, early: {image: i, command: [e, {param: x}]}}
exit: {z: {command: [z]}, a: {command: [a]}}
"""
BESIDE = str(EXAMPLES / "p.yaml")
"""What a pipeline of the examples is read as: sub-pipelines are found beside it."""
TEXTS = {
    "many": BARE + MANY,
    **{path.name: path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.yaml"))},
    # PyYAML, which respells them, does not read a bare question mark in a flow mapping.
    **{name: HEAD + text.replace("go?", "'go?'") for name, text in PIPELINES.items()},
}


def respelled(text: str, chance: random.Random) -> bytes:
    """The same document with its keys in another order, with comments, and perhaps with the line ends of Windows."""
    tree = yaml.compose(text)
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            chance.shuffle(node.value)
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
    again = re.sub(r"^(?=\w)", "# a comment\n", yaml.serialize(tree, allow_unicode=True), flags=re.MULTILINE)
    return again.replace("\n", chance.choice(("\n", "\r\n"))).encode()


def compiled(target: str, pipeline: Pipeline, site: Site) -> object:
    """The bytes of all files, or why there are none."""
    try:
        made = compile_with(load_target(target), Request(pipeline, site, "team-a", "p.yaml"), allow_lossy=True)
    except GpuflowError as refusal:
        return {(finding.code, finding.message) for finding in refusal.findings}
    return [(artifact.name, artifact.text) for artifact in made.artifacts]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, Site]:
    """One site, and the same with its keys in another order."""
    one, other = (tmp_path_factory.mktemp("site") / name for name in ("one.yaml", "other.yaml"))
    one.write_text(SITE)
    other.write_bytes(respelled(SITE, random.Random(7)))
    return Site.load(str(one)), Site.load(str(other))


@pytest.mark.parametrize("target", HERE)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(TEXTS)), seed=st.integers(0, 2**32))
def test_order_comments_and_line_ends_are_no_meaning(
    target: str, sites: tuple[Site, Site], name: str, seed: int
) -> None:
    text = TEXTS[name]
    one, other = loads(text, BESIDE), loads(respelled(text, random.Random(seed)), BESIDE)
    assert one == other
    assert digest(one) == digest(other)
    assert compiled(target, one, sites[0]) == compiled(target, other, sites[1])


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_steps_stand_after_what_they_wait_for_and_everything_else_by_name(seed: int) -> None:
    ordered = meaning_of(loads(respelled(TEXTS["many"], random.Random(seed)), "p.yaml"))
    assert list(ordered.steps) == ["extra", "prepare", "inner", "train", "report", "tune"]
    inner = ordered.steps["inner"].pipeline
    assert inner is not None
    assert list(inner.steps) == ["early", "late"]
    assert list(ordered.exit) == ["a", "z"]
    assert list(ordered.params) == ["config", "lr"]
    assert str(ordered.params["config"].default) == "{'a': 1, 'b': [1, {'x': 1, 'y': 2}]}"
    assert list(ordered.steps["train"].env) == ["A", "C", "Z"]
    assert list(ordered.effective("train").env) == ["A", "B", "C", "Z"]
    assert ordered.where_step("train").line == ordered.source.locate(("steps", "train"), True).line is not None


@pytest.mark.parametrize(
    ("before", "after"),
    [("[t, {param: lr}", "[t2, {param: lr}"), ("[e, {param: x}]", "[e2, {param: x}]"), ("1e-4", "2e-4")],
    ids=["step", "sub-pipeline", "default"],
)
def test_another_meaning_is_another_hash(before: str, after: str) -> None:
    text = TEXTS["many"]
    assert before in text
    assert digest(loads(text)) != digest(loads(text.replace(before, after)))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    (folder / "pipelines").mkdir(parents=True)
    (folder / "pipelines" / "part.yaml").write_text(f"{BARE}steps: {{s: {{image: i, command: [x]}}}}\n")
    (folder / "pipelines" / "whole.yaml").write_text(f"{BARE}steps:\n  a: {{pipeline: part.yaml}}\n")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    return folder


def written(gpuflow: Gpuflow, folder: Path, target: str, *more: str) -> int:
    source = folder / "pipelines" / "whole.yaml"
    return gpuflow("compile", source, "--target", target, "-o", f"{folder}/out/", *more).code


@pytest.mark.parametrize("target", HERE)
def test_a_clone_an_archive_and_another_place_give_the_same_files(
    gpuflow: Gpuflow, repository: Path, target: str
) -> None:
    archive = repository.parent / "elsewhere" / "archive"
    shutil.copytree(repository, archive, ignore=shutil.ignore_patterns(".git"))
    for folder in (repository, archive):
        assert written(gpuflow, folder, target) == 0
    files = [{path.name: path.read_bytes() for path in (each / "out").iterdir()} for each in (repository, archive)]
    assert files[0] == files[1]
    assert any(b" from pipelines/whole.yaml sha256:" in text for text in files[0].values())
    shutil.rmtree(repository / ".git")
    assert written(gpuflow, repository, target, "--check") == 0


@pytest.mark.parametrize("target", HERE)
def test_a_comment_makes_no_file_stale_and_a_change_does_also_in_a_sub_pipeline(
    gpuflow: Gpuflow, repository: Path, target: str
) -> None:
    assert written(gpuflow, repository, target) == 0
    whole, part = repository / "pipelines" / "whole.yaml", repository / "pipelines" / "part.yaml"
    for file in (whole, part):
        file.write_bytes(b"# why\r\n" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert written(gpuflow, repository, target, "--check") == 0
    part.write_bytes(part.read_bytes().replace(b"[x]", b"[y]"))
    assert written(gpuflow, repository, target, "--check") == 1


def test_a_source_that_shares_no_folder_with_the_output_is_named_without_its_path(tmp_path: Path) -> None:
    from gpuflow.cli.output import shown_source

    assert shown_source("/a/b/c/p.yaml", Path("/z/out")) == "p.yaml"
    assert shown_source("/a/b/c/p.yaml", Path("/a/b/c/p.py")) == "p.yaml"
    assert shown_source("/a/b/c/p.yaml", Path("/a/b/out/")) == "c/p.yaml"
    assert shown_source("/a/b/c/p.yaml", Path("/a/out/deep/er/p.yaml")) == "b/c/p.yaml"
    assert shown_source("/a/b/c/p.yaml", None) == "p.yaml"


def test_a_pipeline_in_python_has_the_hash_of_its_yaml() -> None:
    assert digest(load(EXAMPLES / "nightly.py")) == digest(load(EXAMPLES / "nightly.yaml"))
