"""Going round Hera's own slow path changes nothing: the same content, always the same bytes, work that grows evenly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import yaml
from hera.workflows import models

from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline, check
from gpuflow.spec.problems import Source
from gpuflow.targets.argo import target
from gpuflow.targets.argo.facts import CAPABILITIES, ArgoOptions
from gpuflow.targets.argo.workflow import KINDS, check_against_hera, differences
from gpuflow.targets.capabilities import construct_losses
from gpuflow.targets.target import Request
from tests.conftest import ROOT
from tests.targets.argo.test_argo_single_step import EXAMPLES, pipeline_named, site_named

COMPILE_ALL = """
import hashlib, sys
from gpuflow.site import Site
from gpuflow.targets.argo import target
from gpuflow.targets.argo.facts import CAPABILITIES
from gpuflow.targets.argo.workflow import KINDS
from gpuflow.targets.argo.facts import ArgoOptions
from gpuflow.targets.target import Request
from gpuflow.targets.capabilities import construct_losses
from tests.targets.argo.test_argo_single_step import EXAMPLES, pipeline_named, site_named

for name in ("constructs", "scheduled", *EXAMPLES):
    pipeline = pipeline_named(name)
    if construct_losses(pipeline, CAPABILITIES, "argo"):
        continue
    for kind in KINDS:
        if kind == "CronWorkflow" and pipeline.schedule is None:
            continue
        (artifact,) = target.compile(Request(pipeline, site_named(name), "ns", name, (), ArgoOptions(kind)))
        print(name, kind, hashlib.sha256(artifact.text.encode()).hexdigest())
"""


def test_every_example_and_kind_has_the_same_bytes_in_every_process() -> None:
    def hashes(seed: str) -> list[str]:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", COMPILE_ALL], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    first = hashes("0")
    assert len(first) > len(EXAMPLES)
    assert first == hashes("4242") == hashes("random")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["constructs", "scheduled", *EXAMPLES])
def test_the_text_is_what_heras_models_hold(name: str, kind: str) -> None:
    """Read back from our YAML, through Hera's models, and out again: nothing is lost, changed or added."""
    pipeline = pipeline_named(name)
    if construct_losses(pipeline, CAPABILITIES, "argo") or (kind == "CronWorkflow" and pipeline.schedule is None):
        kind = "WorkflowTemplate"
    request = Request(pipeline, site_named(name), "ns", "p.yaml", (), ArgoOptions(kind))
    manifest = yaml.safe_load(target.compile(request)[0].text)
    held = KINDS[kind].model_validate(manifest).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert held == manifest


@pytest.mark.parametrize(
    ("path", "value"),
    [(("pendingTimeout",), "1m"), (("container", "resources", "claims"), [{"name": "g", "requests": "r"}])],
)
def test_a_field_that_hera_would_drop_in_silence_stops_the_compiler(path: tuple[str, ...], value: Any) -> None:
    template: dict[str, Any] = {"name": "main", "container": {"image": "i", "resources": {}}}
    inside = template
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    manifest = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {}, "spec": {}}
    manifest["spec"] = {"templates": [template]}
    with pytest.raises(GpuflowError, match=rf"GF301 .*{path[-1]}"):
        check_against_hera(manifest)


def test_a_value_that_hera_would_change_is_a_difference() -> None:
    given = {"name": "x", "parallelism": "3"}
    held = models.Template.model_validate(given).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert differences(given, held) == [".parallelism: '3' became 3"]


def test_work_grows_with_the_steps_and_not_with_their_square() -> None:
    """Counted in function calls, which no busy machine changes."""

    def calls(steps: int) -> int:
        chain = {f"s{i}": {"command": ["x", str(i)], "needs": [f"s{i - 1}"] if i else []} for i in range(steps)}
        data = {"name": "p", "defaults": {"image": "i"}, "steps": chain}
        request = Request(check(Pipeline, data, Source()), Site.load("nvidia"), None, "p.yaml")
        counted = 0

        def count(*_: Any) -> None:
            nonlocal counted
            counted += 1

        sys.setprofile(count)
        try:
            target.compile(request)
        finally:
            sys.setprofile(None)
        return counted

    calls(2)
    assert calls(800) < 4.4 * calls(200)


def test_what_is_stored_is_plain_json() -> None:
    """The API server keeps JSON: nothing in the manifest may need more than that."""
    manifest = yaml.safe_load(
        target.compile(Request(pipeline_named("constructs"), Site.load("nvidia"), None, "p"))[0].text
    )
    assert json.loads(json.dumps(manifest)) == manifest
