"""From a task in the UI to the line of the pipeline it was compiled from."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseOperatorLink


class SourceLink(BaseOperatorLink):  # type: ignore[misc]  # Airflow is not installed where types are checked
    """`[gpuflow] source_url` in airflow.cfg is where the repository can be browsed; without it there is no link."""

    name = "Pipeline source"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        base = conf.get("gpuflow", "source_url", fallback="")
        source = getattr(operator, "source", None)
        return f"{base.rstrip('/')}/{quote(source, safe='/#')}" if base and source else ""
