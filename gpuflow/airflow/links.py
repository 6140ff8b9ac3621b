"""Buttons on the page of a task: to its pipeline, and to its pod, log, queue or dashboard by patterns of the site."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseOperatorLink

from gpuflow.airflow import artifacts, watching
from gpuflow.airflow.pods import Pod

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
        return filled(self.pattern, link_values(operator, ti_key))


class ArtifactLink(PatternLink):
    """The same for a file or directory that the task has kept, from when it has."""

    def __init__(self, name: str, pattern: str, output: str) -> None:
        super().__init__(f"{name}: {output}", pattern)
        self.output = output

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        note = operator.kept.get(self.output) or {}
        return filled(self.pattern, link_values(operator, ti_key) | artifacts.link_parts(self.output, note))


def filled(pattern: str, values: Mapping[str, Any]) -> str:
    """The address; nothing while one of its values is not known, such as the pod of a task that waits for room."""
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
        "queue": (template.get("labels") or {}).get(watching.QUEUE_LABEL),
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
