"""The client calls that start a compiled pipeline: once, and on its schedule.

KFP's IR holds no schedule. Its clock reads six fields, seconds first: five would be taken for seconds, minutes and so
on, and "0 3 * * *" would run every hour.
"""

from __future__ import annotations

import json
from datetime import UTC, timedelta
from typing import Any

from gpuflow.core.date_format import format_date
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import every_step
from gpuflow.spec.schedule import Schedule
from gpuflow.targets.cron import go_cron
from gpuflow.targets.kubeflow.facts import FACTS

MOST_RUNS = FACTS.most_runs
"""The largest max_concurrency KFP accepts."""


class Code(str):
    """Text that is written as it is."""

    __slots__ = ()


def run_calls(
    pipeline: Pipeline, site: Site, package: str | None, namespace: str | None, version: str | None = None
) -> list[str]:
    """Python lines to paste after `client = kfp.Client(...)`. They run a package, or a version in the cluster.

    Every parameter stands in the call: those that a run must give as `...`, the others with their default.
    """
    params = {name: ... if param.required else param.default for name, param in pipeline.params.items()}
    given = {name: value for name, value in params.items() if value is not None} or None
    account = account_of(pipeline, site)
    source: dict[str, Any] = {"pipeline_package_path": package}
    lines = [_call("experiment = client.create_experiment", pipeline.name, namespace=namespace)]
    if package is None:
        source = {"pipeline_id": Code("pipeline"), "version_id": Code("version")}
        lines += [
            _call("pipeline = client.get_pipeline_id", pipeline.name),
            _call("found = client.list_pipeline_versions", Code("pipeline"), page_size=100, sort_by="created_at desc"),
            "version = next(one.pipeline_version_id for one in found.pipeline_versions"
            f" if one.display_name == {_python_source(version)})",
        ]
    common = {"job_name": pipeline.name, **source, "params": given}
    schedule = pipeline.schedule
    if schedule is None:
        run = _call("client.run_pipeline", Code("experiment.experiment_id"), **common, service_account=account)
        return [*lines, run]
    recurring: dict[str, Any] = {
        "cron_expression": f"0 {go_cron(schedule.cron)}",
        "start_time": _start_time(schedule),
        "max_concurrency": MOST_RUNS if schedule.concurrency == "allow" else 1,
        "no_catchup": not schedule.catch_up,
        "enabled": False if schedule.suspended else None,
        "service_account": account,
    }
    return [*lines, _call("client.create_recurring_run", Code("experiment.experiment_id"), **common, **recurring)]


def client_line(site: Site) -> str:
    """How the client is made: where KFP is, and in a Kubeflow with users, who asks."""
    host = site.engine(FACTS.name).url
    call = _call("client = kfp.Client", host=host.rstrip("/") if host else ...)
    return f"First, once: {call}; where KFP has users, also existing_token=..."


def _start_time(schedule: Schedule) -> str | None:
    """The second before the start: KFP takes the first time after it."""
    if schedule.begins is None:
        return None
    return format_date((schedule.begins - timedelta(seconds=1)).astimezone(UTC), "%Y-%m-%dT%H:%M:%SZ")


def account_of(pipeline: Pipeline, site: Site) -> str | None:
    """The service account of a run: that of all its steps, else that of the site."""
    wanted = accounts(pipeline)
    return (next(iter(wanted)) if len(wanted) == 1 else None) or site.engine(FACTS.name).service_account


def accounts(pipeline: Pipeline) -> set[str | None]:
    """The service accounts that steps ask for, those of sub-pipelines too; KFP gives a run one.

    The account of a gang is that of its ranks, which are no pods of KFP's.
    """
    return {step.service_account for _, step in every_step(pipeline) if step.runs_container and step.gang is None}


def _call(function: str, *arguments: Any, **named: Any) -> str:
    shown = [_python_source(argument) for argument in arguments]
    shown += [f"{name}={_python_source(value)}" for name, value in named.items() if value is not None]
    return f"{function}({', '.join(shown)})"


def _python_source(value: Any) -> str:
    if isinstance(value, Code):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_python_source(key)}: {_python_source(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_python_source, value)) + "]"
    return "..." if value is ... else json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
