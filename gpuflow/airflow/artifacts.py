"""Files and directories that a step has kept, as Airflow shows them: in the events of their assets, and by links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from airflow.sdk import Asset

from gpuflow.airflow.references import Context
from gpuflow.runtime import outputs

KNOWN: dict[str, type] = {"uri": str, "type": str, "sha256": str, "bytes": int, "files": int}
"""What the supervisor says of an artifact."""


def told(found: Any, declared: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What return.json says of the step's artifacts, by output. A program may write that file itself, so that nothing
    is believed which is not of the right form; an older supervisor says nothing."""
    said = found.get(outputs.ABOUT) if isinstance(found, dict) else None
    if not isinstance(said, dict):
        return {}
    kept = {name: said[name] for name in declared if isinstance(said.get(name), dict)}
    return {
        name: {key: note[key] for key, kind in KNOWN.items() if type(note.get(key)) is kind}
        for name, note in kept.items()
    }


def tell_assets(context: Context, declared: Mapping[str, Mapping[str, str]], kept: Mapping[str, Any]) -> None:
    """Put into the event of each asset what this run has kept: its URI, digest, size and kind."""
    events = context.get("outlet_events")
    if events is None:
        return
    for name, note in kept.items():
        words = declared.get(name) or {}
        if "asset" in words:
            more = {"kind": words["kind"]} if "kind" in words else {}
            events[Asset(words["asset"])].extra.update({"output": name, **note, **more})


def described(name: str, note: Mapping[str, Any]) -> str:
    """A line for the log."""
    size = f"{note['files']} files, {note['bytes']} bytes" if "files" in note and "bytes" in note else "size unknown"
    return f"kept {name}: {note.get('uri')} ({size}, sha256 {note.get('sha256')})"


def link_parts(name: str, note: Mapping[str, Any]) -> dict[str, Any]:
    """What a link may name of an artifact. A path on a volume has no bucket, and gets no link that names one."""
    uri = note.get("uri")
    parts = urlsplit(uri) if isinstance(uri, str) and "://" in uri else None
    return {
        "output": name,
        "uri": uri,
        "bucket": parts.netloc if parts is not None else None,
        "key": uri.partition("://")[2].partition("/")[2] if parts is not None and uri is not None else None,
    }
