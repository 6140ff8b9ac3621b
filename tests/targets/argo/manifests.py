"""Small pipelines compiled for Argo, and what Argo's own code makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.argo import target
from gpuflow.targets.argo.facts import ArgoOptions
from gpuflow.targets.target import Request, compile_with
from tests.differential.oracle import Oracle

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i}\n"
SCHEMA = "io.argoproj.workflow.v1alpha1."


def artifact(text: str, site: str | Site = "nvidia", **options: str) -> str:
    """The YAML a pipeline compiles to."""
    where = site if isinstance(site, Site) else Site.load(site)
    request = Request(loads(HEAD + text, "p.yaml"), where, "team-a", "p.yaml", (), ArgoOptions(**options))
    return compile_with(target, request, allow_lossy=False).artifact.text


def compiled(text: str, site: str | Site = "nvidia", **options: str) -> dict[str, Any]:
    """The manifest a pipeline compiles to, read back from its YAML."""
    document: dict[str, Any] = yaml.safe_load(artifact(text, site, **options))
    return document


def template(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    spec = manifest["spec"].get("workflowSpec", manifest["spec"])
    found: dict[str, Any] = next(entry for entry in spec["templates"] if entry["name"] == name)
    return found


def task(manifest: dict[str, Any], name: str, dag: str = "main") -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in template(manifest, dag)["dag"]["tasks"] if entry["name"] == name)
    return found


def schema_errors(manifest: dict[str, Any], corpora: Path) -> list[str]:
    """What Argo's full schema has against a manifest. Unknown fields are errors, IntOrString is as wide as Argo's."""
    import jsonschema

    schema = json.loads((corpora / "schemas" / "argo-workflows-jsonschema.json").read_text())
    for name, definition in schema["definitions"].items():
        if name.endswith("IntOrString"):
            definition.pop("type", None)
            definition["type"] = ["string", "integer"]
        if "properties" in definition:
            definition.setdefault("additionalProperties", False)
    root = {"$ref": f"#/definitions/{SCHEMA}{manifest['kind']}", "definitions": schema["definitions"]}
    return [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message[:120]}"
        for error in jsonschema.Draft7Validator(root).iter_errors(manifest)
    ]


def substituted(oracle: Oracle, manifest: dict[str, Any], path: list[str], **case: Any) -> list[dict[str, Any]]:
    """The pods that Argo's own code makes of the task at a path, one for each item of a loop."""
    spec = manifest["spec"]
    workflow = {**manifest, "metadata": {"name": "wf", "namespace": "ns", "uid": "0-1"}, "spec": spec}
    (answer,) = oracle.ask([{"workflow": workflow, "parameters": {}, "path": path, "scope": {}, **case}])
    assert "pods" in answer, answer
    pods: list[dict[str, Any]] = answer["pods"]
    return pods


def submitted(text: str) -> str:
    """The text as a parameter that Argo accepts: it refuses to start a run whose parameter opens `{{=` for good."""
    return text.replace("{{=", "{{ =")
