"""Starts a run of a pipeline on an engine: compiled, checked against the live cluster, and only then started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpuflow.core.errors import EnvironmentFailure, Finding, GpuflowError, Where, fail
from gpuflow.local.runner import with_values
from gpuflow.plan import Plan, plan_of
from gpuflow.runs.model import Connection, RunClient, Started, Submission
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import load_target
from gpuflow.targets.target import Request, compile_with, findings_of


class NeverAdmitted(GpuflowError):
    """The check says never, so nothing was started. Exit code 1."""

    exit_code = 1


@dataclass(frozen=True)
class Order:
    """What somebody wants to be started, and how carefully."""

    params: Mapping[str, Any]
    """Values of parameters, as their types."""
    name: str | None = None
    check: bool = True
    apply: bool = False
    allow_lossy: bool = False


def start(
    client: RunClient, connection: Connection, pipeline: Pipeline, site: Site, order: Order
) -> tuple[Plan, Started, list[Finding]]:
    """The run, the plan that it follows, and all that there is to say about it."""
    given = with_values(pipeline, order.params)
    if required := [name for name, param in given.params.items() if param.required]:
        text = f"the parameter{'s' if len(required) > 1 else ''} {', '.join(required)} must be given"
        hint = " ".join(f"--param {name}=…" for name in required)
        raise fail("GF931", text, where=pipeline.where("params", required[0], key=True), hint=hint)
    target, plan = load_target(client.engine), plan_of(pipeline, site)
    shown = Path(pipeline.source.file).name if pipeline.source.file else pipeline.name
    request = Request(pipeline, site, connection.namespace, shown, known=plan)
    compiled = compile_with(target, request, allow_lossy=order.allow_lossy)
    findings = findings_of(target, request, compiled)
    where = Where(pipeline.source.file)
    if order.check:
        findings += verdict(client.engine, connection, given, site, where)
    else:
        findings.append(Finding("GF947", "not checked: somebody said so", where, "leave --no-check out", "note"))
    submission = Submission(plan, compiled, connection.namespace, order.params, order.name, order.apply)
    return plan, client.submit(submission), findings


def verdict(engine: str, connection: Connection, pipeline: Pipeline, site: Site, where: Where) -> list[Finding]:
    """What `gpuflow check` says of it on the live cluster, in a line; GF942 where that is never."""
    from gpuflow.checker.run import check
    from gpuflow.checker.snapshot.prepared import PreparedCluster
    from gpuflow.cluster.api_server import Reader
    from gpuflow.cluster.live import read_live
    from gpuflow.demands import demand_of

    if connection.namespace is None:
        return [_not_checked_note("no namespace is given", where)]

    try:
        reader = Reader(connection.context, connection.kubeconfig, connection.timeout)
        read = partial(read_live, context=connection.context, reader=reader)
        cluster = PreparedCluster(read(connection.namespace), connection.namespace, read=read)
    except EnvironmentFailure as trouble:
        return [_not_checked_note(trouble.findings[0].message, where)]
    report = check(demand_of(pipeline, site, engine), cluster, connection.namespace)
    grave = [each for each in report.findings if each.severity == "error"]
    if report.verdict == "never":
        text = f"not started: namespace {connection.namespace} will never admit it as it is"
        hint = "change the pipeline or the cluster; --no-check starts it all the same"
        raise NeverAdmitted([*grave, Finding("GF942", text, where, hint)])
    if report.verdict == "always":
        return []
    # The first line of a message says what is wrong; the rest, how it was counted.
    first = (grave or [each for each in report.findings if each.severity == "warning"])[:1]
    told = "".join(f": {each.message.splitlines()[0]}" for each in first)
    hint = f"gpuflow check --engine {engine} --cluster live says all"
    return [Finding("GF947", f"the check says {report.verdict}{told}", where, hint, "note")]


def _not_checked_note(why: str, where: Where) -> Finding:
    hint = "gpuflow check says whether the cluster admits it, from a snapshot too"
    return Finding("GF947", f"not checked against the cluster: {why}", where, hint, "note")
