"""A manifest that a step creates: read from a file or an argument, changed by `--set`, and where its kind lives."""

from __future__ import annotations

import json

from gpuflow.runtime import object_state
from gpuflow.runtime.api_server import ApiServer, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class Misuse(Exception):
    """What was asked cannot be done; exit code 78."""


def from_file(path: str, changes: Sequence[str]) -> dict[str, Any]:
    """The manifest in a file, with what `--set` puts into it."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError) as failure:
        raise Misuse(f"{path}: {failure}") from None
    return from_text(text, path, changes)


def from_text(text: str, where: str, changes: Sequence[str]) -> dict[str, Any]:
    """The manifest that a text holds, with what `--set` puts into it."""
    document = _read(text, where)
    for key in ("apiVersion", "kind", "metadata"):
        if not (isinstance(document, dict) and document.get(key)):
            raise Misuse(f"{where}: the manifest has no {key}")
    for change in changes:
        try:
            place, value = object_state.split(change)
            object_state.put(document, place, value)
        except ValueError as refusal:
            raise Misuse(f"--set: {refusal}") from None
    found: dict[str, Any] = document
    return found


def _read(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as wrong:
        try:
            import yaml  # type: ignore[import-untyped,unused-ignore]  # in the image, or not
        except ImportError:
            raise Misuse(f"{where}: {wrong}; write JSON, or install PyYAML in the image") from None
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as refusal:
            raise Misuse(f"{where}: {refusal}") from None


def folder(api: ApiServer, body: dict[str, Any]) -> str:
    """The address of all objects of a manifest's kind in its namespace: what the API server calls them."""
    version, kind = str(body["apiVersion"]), str(body["kind"])
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    try:
        listed = api.patiently(lambda: api.get(root)).get("resources", [])
    except Refused as refusal:
        if refusal.status == 404:
            raise Misuse(f"the cluster has no {version}: {kind} is not installed") from None
        raise
    names = [entry["name"] for entry in listed if entry.get("kind") == kind and "/" not in entry["name"]]
    if not names:
        raise Misuse(f"the cluster has no {kind} in {version}")
    return f"{root}/namespaces/{body['metadata']['namespace']}/{names[0]}"
