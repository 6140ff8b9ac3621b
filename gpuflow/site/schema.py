"""The JSON Schema of `kind: Site`, for editors."""

from __future__ import annotations

from typing import Any

from gpuflow.site.loading import presets
from gpuflow.site.model import Site
from gpuflow.spec.schema import schema_of


def site_schema() -> dict[str, Any]:
    """The schema of a site as it is written: it may extend a preset or a file, and then leave everything else out."""
    schema = schema_of(Site, "gpuflow Site")
    extends = {
        "type": "string",
        "description": f"What this site extends: a preset ({', '.join(presets())}) or a file next to this one.",
        "examples": list(presets()),
    }
    properties = schema["properties"]
    schema["properties"] = {**dict(list(properties.items())[:2]), "extends": extends, **properties}
    schema["required"] = ["apiVersion", "kind"]
    return schema
