"""What Airflow shows of a task: buttons on its page, and the files and directories that it has kept.

Buttons lead to the pipeline's source, and to pod, log, queue or dashboard by patterns of the site. What a step has kept
is in the events of its assets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import Asset, BaseOperatorLink

from gpuflow.airflow import pod_status
from gpuflow.airflow.pods import Pod
from gpuflow.airflow.references import Context
from gpuflow.runtime.artifacts import outputs

ARTIFACT_FIELDS: dict[str, type] = {"uri": str, "type": str, "sha256": str, "bytes": int, "files": int}
"""What the supervisor says of an artifact."""


def reported_artifacts(found: Any, declared: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What return.json says of the step's artifacts, by output. A program may write that file itself, so that nothing
    is believed which is not of the right form; an older supervisor says nothing."""
    said = found.get(outputs.ARTIFACTS_ENTRY) if isinstance(found, dict) else None
    if not isinstance(said, dict):
        return {}
    kept = {name: said[name] for name in declared if isinstance(said.get(name), dict)}
    return {
        name: {key: note[key] for key, kind in ARTIFACT_FIELDS.items() if type(note.get(key)) is kind}
        for name, note in kept.items()
    }


def describe_assets(context: Context, declared: Mapping[str, Mapping[str, str]], kept: Mapping[str, Any]) -> None:
    """Put into the event of each asset what this run has kept: its URI, digest, size and kind."""
    if (events := context.get("outlet_events")) is None:
        return
    for name, note in kept.items():
        words = declared.get(name) or {}
        if "asset" in words:
            more = {"kind": words["kind"]} if "kind" in words else {}
            events[Asset(words["asset"])].extra.update({"output": name, **note, **more})


def artifact_line(name: str, note: Mapping[str, Any]) -> str:
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


OF_ARTIFACTS = ("output", "uri", "bucket", "key")
"""What only a link to an artifact names. The site has the same names; a DAG file need not read it for them."""


class SourceLink(BaseOperatorLink):  # type: ignore[misc]  # Airflow is not installed where types are checked
    """`[gpuflow] source_url` in airflow.cfg is where the repository can be browsed; without it there is no link."""

    name = "Pipeline source"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        base = conf.get("gpuflow", "source_url", fallback="")
        source = getattr(operator, "source", None)
        return f"{base.rstrip('/')}/{quote(source, safe='/#')}" if base and source else ""


class PatternLink(BaseOperatorLink):  # type: ignore[misc]  # as above
    """An address of the site with the names of this task's pod in it. Airflow keeps it as an XCom of the task."""

    name = ""

    def __init__(self, name: str, pattern: str) -> None:
        self.name, self.pattern = name, pattern

    @property
    def xcom_key(self) -> str:
        return f"_link_gpuflow_{re.sub(r'[^A-Za-z0-9]+', '_', self.name)}"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return fill_pattern(self.pattern, link_values(operator, ti_key))


class ArtifactLink(PatternLink):
    """The same for a file or directory that the task has kept, from when it has."""

    def __init__(self, name: str, pattern: str, output: str) -> None:
        super().__init__(f"{name}: {output}", pattern)
        self.output = output

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        note = operator.kept.get(self.output) or {}
        return fill_pattern(self.pattern, link_values(operator, ti_key) | link_parts(self.output, note))


def fill_pattern(pattern: str, values: Mapping[str, Any]) -> str:
    """The address; empty while one of its values is unknown, such as the pod of a task that waits for quota."""
    names = re.findall(r"\{(\w+)\}", pattern)
    if any(values.get(name) in (None, "") for name in names):
        return ""
    # A key is a path: its slashes stay, as the addresses of stores have them.
    return re.sub(r"\{(\w+)\}", lambda m: quote(str(values[m[1]]), safe="/" if m[1] == "key" else ""), pattern)


def link_values(operator: Any, ti: Any) -> dict[str, Any]:
    """What the patterns of links may name. The pod is known from when it is made."""
    template = operator.template.metadata if isinstance(operator.template, Pod) else operator.template["metadata"]
    began = getattr(ti, "start_date", None)
    return {
        "namespace": operator._namespace() if operator._seen else operator.namespace,
        "pod": operator._seen,
        "queue": (template.get("labels") or {}).get(pod_status.QUEUE_LABEL),
        "dag_id": ti.dag_id,
        "task_id": ti.task_id,
        "run_id": ti.run_id,
        "map_index": ti.map_index,
        "try_number": ti.try_number,
        "start": began and int(began.timestamp() * 1000),
    }


SOURCE = SourceLink()


def links_of(operator: Any) -> tuple[Any, ...]:
    """The links of a task. A mapped one has its arguments still in its hands."""
    given = getattr(operator, "partial_kwargs", None)
    words = given if given is not None else {name: getattr(operator, name, None) for name in ("links", "artifacts")}
    found: list[Any] = [SOURCE]
    for name, pattern in (words.get("links") or {}).items():
        if any(f"{{{value}}}" in pattern for value in OF_ARTIFACTS):
            found += [ArtifactLink(name, pattern, output) for output in words.get("artifacts") or ()]
        else:
            found.append(PatternLink(name, pattern))
    return tuple(found)
