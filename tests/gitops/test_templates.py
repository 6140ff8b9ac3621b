"""argo_templates/: what is committed is what its sources compile to, and Argo takes it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow.spec.loading import load
from gpuflow.targets.argo import target
from gpuflow.targets.capabilities import construct_losses
from tests.cli.commands import EXAMPLES, Gpuflow
from tests.conftest import ROOT

FOLDER = ROOT / "argo_templates"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
NOT_A_TEMPLATE = ("gang.yaml",)
"""It has nothing to choose for a run; docs/examples/multi-node has a gang with its site."""
CARRIED = [
    path
    for path in sorted(EXAMPLES.glob("*.yaml"))
    if path.name not in NOT_A_TEMPLATE and not construct_losses(load(path), target.capabilities, "argo")
]
SOURCES = [*sorted((FOLDER / "sources").glob("*.yaml")), *CARRIED]
AGAIN = f"compile again: gpuflow compile {' '.join(str(path.relative_to(ROOT)) for path in SOURCES)}"
AGAIN += " --target argo -o argo_templates/ --kustomization"


def manifest(source: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{load(source).name}.yaml").read_text(encoding="utf-8"))
    return found


def parameters(source: Path) -> dict[str, dict[str, Any]]:
    """The parameters of a run, by name."""
    spec = manifest(source)["spec"]
    return {entry["name"]: entry for entry in spec.get("workflowSpec", spec)["arguments"]["parameters"]}


def test_the_sources_and_every_example_argo_can_carry_are_compiled_and_up_to_date(gpuflow: Gpuflow) -> None:
    answer = gpuflow("compile", *SOURCES, "--target", "argo", "-o", f"{FOLDER}/", "--kustomization", "--check")
    assert answer.code == 0, f"{AGAIN}\n{answer.err}{answer.out[:2000]}"
    assert "GF316" not in answer.err
    made = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert made == {f"{load(source).name}.yaml" for source in SOURCES}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_argos_schema_takes_it(source: Path, corpora: Path) -> None:
    import jsonschema

    schema = json.loads((corpora / "schemas" / "argo-workflows-jsonschema.json").read_text())
    for name, definition in schema["definitions"].items():
        if name.endswith("IntOrString"):
            definition["type"] = ["string", "integer"]
        if "properties" in definition:
            definition.setdefault("additionalProperties", False)
    document = manifest(source)
    root = {
        "$ref": f"#/definitions/io.argoproj.workflow.v1alpha1.{document['kind']}",
        "definitions": schema["definitions"],
    }
    errors = [
        f"{'/'.join(map(str, e.absolute_path))}: {e.message[:120]}"
        for e in jsonschema.Draft7Validator(root).iter_errors(document)
    ]
    assert errors == []


@pytest.mark.go
def test_argos_own_validation_takes_all_of_them() -> None:
    from tests.differential.oracle import Oracle

    names = [load(source).name for source in SOURCES]
    texts = [{"text": (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")} for name in names]
    with Oracle("argo", "lint") as oracle:
        answers = oracle.ask(texts)
    assert {name: answer["errors"] for name, answer in zip(names, answers, strict=True)} == {name: [] for name in names}


@pytest.mark.parametrize("source", sorted((FOLDER / "sources").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_reusable_template_runs_without_any_value_and_says_what_each_is_for(source: Path) -> None:
    document = manifest(source)
    assert document["kind"] == "WorkflowTemplate"
    assert "namespace" not in document["metadata"]
    for entry in parameters(source).values():
        assert entry["value"]
        assert entry["description"]


def section(name: str) -> str:
    """What the README says under a template's name."""
    found = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found, f"argo_templates/README.md has no section {name}"
    return found[1]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_readme_tells_every_parameter_with_its_default(source: Path) -> None:
    told = dict(re.findall(r"^\| `([^`]+)` \| `?(.+?)`? \|", section(load(source).name), re.MULTILINE))
    assert told == {name: entry.get("value", "none: required") for name, entry in parameters(source).items()}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_readmes_submit_command_gives_existing_parameters_and_all_that_are_needed(source: Path) -> None:
    pipeline = load(source)
    (line,) = re.findall(r"^argo submit .*$", section(pipeline.name), re.MULTILINE)
    words = shlex.split(line)
    kind = {"WorkflowTemplate": "workflowtemplate", "CronWorkflow": "cronwf"}[manifest(source)["kind"]]
    assert words[:4] == ["argo", "submit", "--from", f"{kind}/{pipeline.name}"]
    given = dict(value.split("=", 1) for flag, value in zip(words[4::2], words[5::2], strict=True) if flag == "-p")
    assert given.keys() <= pipeline.params.keys()
    assert {name for name, param in pipeline.params.items() if param.required} <= given.keys()
    for name, text in given.items():
        param = pipeline.params[name]
        param.accept(text if param.type == "string" else json.loads(text))
