"""What steps hand to each other on Argo: the URI of an artifact, and a loop's outputs as one list of typed values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.argo import target
from gpuflow.targets.target import Request, compile_with

PIPELINE = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: p
defaults: {image: i}
steps:
  make:
    for_each: {shard: [1, 2]}
    command: [make, {item: shard}]
    outputs: {value: KIND}
  read:
    command: [read, {output: make.value}]
"""


def compiled(text: str) -> dict[str, Any]:
    """The spec of the WorkflowTemplate."""
    request = Request(loads(text, "p.yaml"), Site.load("nvidia"), "team-a", "p.yaml")
    artifact = compile_with(target, request, allow_lossy=False).artifact
    found: dict[str, Any] = yaml.safe_load(artifact.text)["spec"]
    return found


def test_argo_reads_an_artifacts_uri_beside_the_artifact() -> None:
    spec = compiled(PIPELINE.replace("KIND", "{type: directory, uri: {join: [s3://models/, {item: shard}]}}"))
    (make,) = (template for template in spec["templates"] if template["name"] == "make")
    assert make["outputs"]["parameters"] == [{"name": "value", "valueFrom": {"path": "/gpuflow/outputs/value.uri"}}]


REPOSITORY = """\
apiVersion: gpuflow/v1
kind: Site
extends: nvidia
name: here
engines: {argo: {artifact_repository: SAID}}
"""


@pytest.mark.parametrize("said", ["true", "false"])
def test_a_note_about_an_artifact_is_argos_own_where_the_site_says_it_has_a_repository(
    said: str, tmp_path: Path
) -> None:
    (tmp_path / "site.yaml").write_text(REPOSITORY.replace("SAID", said))
    pipeline = loads(PIPELINE.replace("KIND", "{type: directory, uri: s3://models/x}"), "p.yaml")
    request = Request(pipeline, Site.load(str(tmp_path / "site.yaml")), "team-a", "p.yaml")
    spec = yaml.safe_load(compile_with(target, request, allow_lossy=False).artifact.text)["spec"]
    (make,) = (template for template in spec["templates"] if template["name"] == "make")
    path = "/gpuflow/outputs/value.artifact.json"
    note = {"name": "value", "path": path, "archive": {"none": {}}, "optional": True}
    assert make["outputs"].get("artifacts") == ([note] if said == "true" else None)


@pytest.mark.parametrize(
    ("kind", "expression"),
    [
        ("float", "sprig.replace('\"', '', {0})"),
        ("bool", "sprig.replace('\"', '', {0})"),
        ("json", "toJson(map(fromJSON({0}), {{type(#) == 'string' ? fromJSON(#) : #}}))"),
        ("string", "{0}"),
    ],
)
def test_what_the_copies_of_a_loop_wrote_is_read_as_values_of_their_type(kind: str, expression: str) -> None:
    spec = compiled(PIPELINE.replace("KIND", kind))
    (main,) = (template for template in spec["templates"] if template["name"] == "main")
    (read,) = (task for task in main["dag"]["tasks"] if task["name"] == "read")
    (argument,) = read["arguments"]["parameters"]
    wanted = expression.format("tasks['make'].outputs.parameters['value']")
    assert argument["value"] == f"{{{{=sprig.replace('{{', '$(GPUFLOW_BRACE)', sprig.replace('$', '$$', {wanted}))}}}}"
