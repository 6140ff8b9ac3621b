"""What a reviewer sees in a compiled file is what runs: names become no code, and no character of a value hides.

Runs in each environment for the targets whose SDK is there, like the table of pipelines.
"""

from __future__ import annotations

import ast
import io
import json
import os
import tokenize
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuflow.core.printable import HIDDEN_CHARACTERS, escape_literal
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets import load_target
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.argo.kustomization import kustomization
from gpuflow.targets.target import Request, compile_with, findings_of
from tests.targets.test_every_target import HERE

PLAIN = loads("{apiVersion: gpuflow/v1, kind: Pipeline, name: p, steps: {a: {image: i, command: [x]}}}", "p.yaml")
SITE = Site.load("nvidia")
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: evil}\nspec: {containers: [{name: c, image: i}]}"
NAMES = [
    "x\nimport os; os.environ['PWNED'] = '1'\n#.yaml",
    "x\r\nimport os; os.environ['PWNED'] = '1'\r\n#.yaml",
    "x\x0cimport os; os.environ['PWNED'] = '1'\x0c#.yaml",
    f"x\n---\n{POD}\n---\n#.yaml",
    f"x\x85---\x85{POD}\u2028---\u2029#.yaml",
    "x coding: utf-7 .yaml",
    "x +AAo-import os+ADs- os.environ['PWNED'] = '1'+AAo-# coding=utf-7 .yaml",
    "\u202egpj.yaml",
    "x\ud800.yaml",
]
UNSEEN = "\u202e\u2066\u061c\u180e\u3164\u115f\uffa0\u200b\u200d\ufeff\u2028\x85\x7f\xa0\U000e0041\U000e0100\U0010fffd"
TEXTS = [f"a{UNSEEN}b", "👩\u200d💻 ⚠\ufe0f שלום 日本　語", "one\ntwo\u202e\n", "::error::x\n ##[group]y\n"]


@pytest.fixture(autouse=True)
def not_pwned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("PWNED", raising=False)
    yield
    assert "PWNED" not in os.environ


def read(target: str, text: str) -> Any:
    """The file as the engine's own parser reads it."""
    if target != "airflow":
        return list(yaml.safe_load_all(text))
    assert tokenize.detect_encoding(io.BytesIO(text.encode()).readline)[0] == "utf-8"
    tree = ast.parse(text.encode())
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in ("source", "doc_md"):
            assert isinstance(node.value, ast.Constant)
            node.value = ast.Constant("where the step is written")  # a value, which may name any file
    return ast.dump(tree)


def strings(tree: Any) -> Iterator[str]:
    """Every text in it."""
    if isinstance(tree, dict):
        yield from strings([*tree, *tree.values()])
    elif isinstance(tree, list):
        for part in tree:
            yield from strings(part)
    elif isinstance(tree, str):
        yield tree


def values(target: str, text: str) -> list[str]:
    """Every text that the engine holds after reading the file."""
    if target != "airflow":
        return list(strings(list(yaml.safe_load_all(text))))
    return [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("target", HERE)
def test_a_name_in_the_header_is_a_comment_and_nothing_else(target: str, name: str) -> None:
    """The command line refuses such files and sites; Python code can still name them."""
    plain = compile_with(load_target(target), Request(PLAIN, SITE, None, "p.yaml"), allow_lossy=False).text
    odd_site = SITE.model_copy(update={"name": name})
    request = Request(PLAIN, odd_site, None, name, remarks=(name,))
    text = compile_with(load_target(target), request, allow_lossy=False).text
    assert read(target, text) == read(target, plain)
    assert not HIDDEN_CHARACTERS.search(text.replace("\n", ""))
    head = text.encode().split(b"\n\n")[0] if target == "airflow" else b""
    exec(compile(head, "<head>", "exec"), {})


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
@pytest.mark.parametrize("target", HERE)
def test_a_value_with_unseen_characters_is_the_same_value_written_visibly(target: str, text: str) -> None:
    compiled = _compiled(target, text)
    assert not HIDDEN_CHARACTERS.search(compiled.replace("\n", ""))
    held = values(target, compiled)
    assert sum(text in each for each in held) >= 3  # description, default and variable


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(
        st.sampled_from(UNSEEN + "ab \n:#'\"\\`😀") | st.characters(codec="utf-8", exclude_characters="\0"),
        min_size=1,
        max_size=20,
    )
)
@pytest.mark.parametrize("target", HERE)
def test_whatever_the_text_it_is_the_same_value_written_visibly(target: str, text: str) -> None:
    compiled = _compiled(target, text)
    assert not HIDDEN_CHARACTERS.search(compiled.replace("\n", ""))
    assert any(text in each for each in values(target, compiled))


def _compiled(target: str, text: str) -> str:
    shown = escape_literal(json.dumps(text, ensure_ascii=False))
    pipeline = loads(
        f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndescription: {shown}\n"
        f"params: {{q: {{type: string, default: {shown}}}}}\n"
        f"steps: {{a: {{image: i, command: [x, {shown}, {{param: q}}], env: {{V: {shown}}}}}}}\n"
    )
    return compile_with(load_target(target), Request(pipeline, SITE, None, "p.yaml"), allow_lossy=False).text


def test_a_kustomization_shows_its_names() -> None:
    text = kustomization(["a\u202eb.yaml"], "n\u3164")
    assert yaml.safe_load(text)["resources"] == ["a\u202eb.yaml"]
    assert not HIDDEN_CHARACTERS.search(text.replace("\n", ""))


@pytest.mark.parametrize("standalone", [False, True])
@pytest.mark.parametrize("name", ["airflow", "kubernetes", "kubernetes-asyncio", "kfp", "hera", "json", "gpuflow"])
def test_a_dag_file_that_would_be_taken_for_a_module_is_warned_of(name: str, standalone: bool) -> None:
    target = load_target("airflow")
    pipeline = loads(
        f"{{apiVersion: gpuflow/v1, kind: Pipeline, name: {name}, steps: {{a: {{image: i, command: [x]}}}}}}", "p.yaml"
    )
    request = Request(pipeline, SITE, None, "p.yaml", options=AirflowOptions(standalone=standalone))
    compiled = compile_with(target, request, allow_lossy=False)
    (found,) = [each for each in findings_of(target, request, compiled) if each.code == "GF320"]
    assert (found.severity, found.where.file, found.where.line) == ("warning", "p.yaml", 1)
    assert compiled.artifact.name in found.message
    assert f'"{name}-pipeline"' in (found.hint or "")


def test_an_ordinary_name_is_not_warned_of() -> None:
    target, request = load_target("airflow"), Request(PLAIN, SITE, None, "p.yaml")
    compiled = compile_with(target, request, allow_lossy=False)
    assert [each for each in findings_of(target, request, compiled) if each.code == "GF320"] == []
