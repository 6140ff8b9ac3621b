"""What a pipeline says to Airflow alone (`engines: {airflow: …}`), as arguments of DAG and tasks, and its assets.

Assets are locations that Airflow knows: of `on_data`, of artifacts, of `inlets` and `outlets`. Some locations Airflow
does not take as an asset; they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from gpuflow.core.errors import Finding, Where
from gpuflow.plan import Plan
from gpuflow.site import Site
from gpuflow.spec.engine_options.airflow import ROLES, TAG_LENGTH, AirflowDag, AirflowTask
from gpuflow.spec.engine_options.base import Imported
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.targets.airflow.python_source import Call, Import
from gpuflow.targets.capabilities import named_steps, refusal
from gpuflow.targets.target import Request

OWNER_LABELS = ("owner", "team")
"""Labels that say whose the pipeline is, the first one first."""
ASSETS = ("inlets", "outlets")
NOT_ARGUMENTS = ("owner", "tags", "default_args", "end_date", "timetable")
"""Words for the DAG that are not arguments by their own name and value."""


def dag_options(pipeline: Pipeline) -> AirflowDag:
    """What the pipeline says to Airflow alone."""
    return (pipeline.engines and pipeline.engines.airflow) or AirflowDag()


def task_options(step: Step) -> AirflowTask:
    """What a step says to Airflow alone."""
    return (step.engines and step.engines.airflow) or AirflowTask()


def with_engine_options(settings: dict[str, Any], pipeline: Pipeline) -> dict[str, Any]:
    """The DAG's settings with what is said to Airflow alone. Callbacks are added to those that are there."""
    words = dag_options(pipeline)
    settings = dict(settings)
    for name in AirflowDag.model_fields:
        value = getattr(words, name)
        if name in NOT_ARGUMENTS or value in (None, (), {}):
            continue
        settings[name] = [*settings.get(name, ()), *map(import_source, value)] if _is_callback(name) else value
    if words.timetable is not None:
        settings["schedule"] = replace(import_source(words.timetable), arguments=words.timetable.arguments or {})
        settings.setdefault("max_active_runs", 1)
    if words.end_date is not None:
        settings["end_date"] = _date_call(words.end_date, pipeline)
    defaults = default_args(pipeline)
    if defaults:
        settings["default_args"] = defaults
    return {**settings, "tags": tags(pipeline)}


def common_labels(pipeline: Pipeline) -> dict[str, str]:
    """Labels of every step, wherever the pipeline says them: most say them in `defaults`."""
    return {**pipeline.defaults.labels, **pipeline.labels}


def default_args(pipeline: Pipeline) -> dict[str, Any]:
    """Arguments of every task; the owner comes from a label where nothing is said."""
    words, labels = dag_options(pipeline), common_labels(pipeline)
    given = arguments(words.default_args or AirflowTask())
    owner = (
        words.owner or given.pop("owner", None) or next((labels[key] for key in OWNER_LABELS if labels.get(key)), None)
    )
    return {"owner": owner, **given} if owner else given


def tags(pipeline: Pipeline) -> list[str]:
    """One for gpuflow, one for each label, and the pipeline's own."""
    by_label = (f"{key}={value}" for key, value in common_labels(pipeline).items())
    cut = (tag if len(tag) <= TAG_LENGTH else f"{tag[: TAG_LENGTH - 1]}…" for tag in by_label)
    return list(dict.fromkeys(["gpuflow", *cut, *dag_options(pipeline).tags]))


def docs(step: Step) -> dict[str, str]:
    """What the task's page shows: Airflow renders `doc_md`, and shows `doc` as it is."""
    own, text = task_options(step).doc_md, step.description
    if own is None:
        return {"doc_md": text} if text else {}
    return {**({"doc": text} if text else {}), "doc_md": own}


def task_arguments(named: dict[str, Any], step: Step) -> dict[str, Any]:
    """A task's arguments with what its step says to Airflow alone; outlets are added to those that are there."""
    given = arguments(task_options(step))
    if "outlets" in given:
        given["outlets"] = list({each.args: each for each in (*named.get("outlets", ()), *given["outlets"])}.values())
    return {**named, **given}


def arguments(words: AirflowTask) -> dict[str, Any]:
    """Words of a task as keyword arguments, in the order of the reference."""
    found: dict[str, Any] = {}
    for name in AirflowTask.model_fields:
        value = getattr(words, name)
        if value in (None, ()) or name in ROLES:
            continue
        if _is_callback(name):
            value = list(map(import_source, value))
        elif name in ASSETS:
            value = [Call("Asset", (uri,)) for uri in value]
        found[name] = list(value) if isinstance(value, tuple) else value
    return found


def import_source(name: Imported) -> Import:
    """An object of the user's own; with arguments, what a call of it returns."""
    module, _, attribute = name.path.rpartition(".")
    return Import(module, attribute, name.arguments)


def _is_callback(name: str) -> bool:
    return name.endswith("_callback")


def _date_call(text: str, pipeline: Pipeline) -> Call:
    moment, zone = datetime.fromisoformat(text), pipeline.schedule.timezone if pipeline.schedule else "UTC"
    if moment.tzinfo is not None:
        moment, zone = moment.astimezone(UTC), "UTC"
    return datetime_call(moment, zone)


def datetime_call(moment: datetime, zone: str) -> Call:
    """A day or a time of a zone as Python writes it."""
    time = (moment.hour, moment.minute, *((moment.second,) if moment.second else ()))
    parts = (moment.year, moment.month, moment.day, *(time if any(time) else ()))
    return Call("datetime", parts, {"tzinfo": Call("ZoneInfo", (zone,))})


@refusal("GF355", "GF365")
def refused_options(request: Request) -> Iterator[Finding]:
    """Words that a step cannot have, or that two places contradict."""
    plan, defaults = request.plan, dag_options(request.pipeline).default_args or AirflowTask()
    for each in plan.steps:
        name, step, words = each.name, each.step, task_options(each.step)
        where = each.where("engines", "airflow") if each.parent is None else plan.pipeline.where("steps")
        if step.approval is not None:
            vain = [word for word in AirflowTask.OF_PODS if getattr(words, word) is not None]
            if vain:
                text = f'step "{name}" is an approval, and {", ".join(vain)} of Airflow {"are" if vain[1:] else "is"}'
                yield Finding("GF355", f"{text} about pods", where, "remove it")
        if step.runs_container:
            logs = words.container_logs or defaults.container_logs
            known = ["main", *(each.name for each in (*step.init_containers, *step.sidecars))]
            missing = [each for each in logs if each not in known] if isinstance(logs, tuple) else []
            if missing:
                text = f'step "{name}" has no container "{missing[0]}" whose log could be copied (container_logs)'
                yield Finding("GF355", text, where, f"known here: {', '.join(known)}; or write true for all of them")
    yield from _other_clusters(plan, defaults)
    yield from _roles_inside(plan)


def _roles_inside(plan: Plan) -> Iterator[Finding]:
    """Setups and teardowns of sub-pipelines: what comes after the sub-pipeline would wait for them."""
    inside = [each for each in plan.steps if each.parent is not None]
    with_roles = [each for each in inside if any(getattr(task_options(each.step), word) is not None for word in ROLES)]
    for name in dict.fromkeys(each.name.partition(".")[0] for each in with_roles):
        text = f'the sub-pipeline "{name}" has setups or teardowns'
        where = plan.pipeline.where("steps", name, "pipeline")
        yield Finding("GF365", text, where, "write these steps in the pipeline itself")


def stock_refusals(plan: Plan) -> Iterator[Finding]:
    """Words that the stock operator takes and does not keep."""
    pipeline, defaults = plan.pipeline, dag_options(plan.pipeline).default_args
    names = tuple(each.name for each in plan.steps if task_options(each.step).container_logs is not None)
    if names or (defaults is not None and defaults.container_logs is not None):
        whose = f" ({named_steps(names)})" if names else ""
        text = f"airflow --standalone does not support engines.airflow.container_logs{whose}: "
        text += "the stock operator copies the log of main alone while it waits in the triggerer"
        where = pipeline.where_step(names[0]) if names and names[0] in pipeline.steps else pipeline.where("engines")
        yield Finding("GF301", text, where, "remove container_logs, or compile without --standalone")


CLUSTER = ("kubernetes_conn_id", "in_cluster", "cluster_context", "config_file")


def _other_clusters(plan: Plan, defaults: AirflowTask) -> Iterator[Finding]:
    """Volumes of the run and its limit on pods are kept in one cluster."""
    pipeline = plan.pipeline
    if not pipeline.claims and pipeline.parallel is None:
        return
    elsewhere = tuple(
        each.name
        for each in plan.steps
        if any(getattr(task_options(each.step), word) not in (None, getattr(defaults, word)) for word in CLUSTER)
    )
    if elsewhere:
        what = "claims" if pipeline.claims else "parallel"
        text = f"{named_steps(elsewhere)}: another cluster than the pipeline's, and {what} is kept in one cluster"
        hint = "name the cluster in engines.airflow.default_args of the pipeline, for all steps"
        yield Finding("GF355", text, pipeline.where(what), hint)


LONGEST_ASSET = 1500
"""The most characters of an asset's name (Airflow 3.3)."""


def kept_assets(step: Step, site: Site | None, home: str) -> dict[str, str]:
    """The asset of each artifact, by output: what the step changes, for whoever waits for new data.

    A uri that is the same in every run is the asset. What is kept where the site says lies at another place in each
    run; its asset is the root with `home` (pipeline and step) and the output, and the place is in the asset's events.
    """
    root = None if site is None else site.runtime.artifacts
    found: dict[str, str] = {}
    for name, output in step.outputs.items():
        uri = f"{root.rstrip('/')}/{home}/{name}" if output.is_artifact and output.uri is None and root else output.uri
        if isinstance(uri, str) and "://" in uri:
            found[name] = uri
    return found


@refusal("GF355")
def asset_refusals(request: Request) -> Iterator[Finding]:
    """Locations with which Airflow would not load the DAG."""
    for uri, what, where in _assets(request.plan, request.site):
        fault = _asset_fault(uri)
        if fault is not None:
            shown = uri if len(uri) <= 60 else f"{uri[:57]}…"
            yield Finding("GF355", f'{what}: "{shown}" is no asset of Airflow: {fault[0]}', where, fault[1])


def has_assets(plan: Plan) -> bool:
    """Whether any location that the pipeline itself names becomes an asset."""
    return next(_assets(plan, None), None) is not None


def _asset_fault(uri: str) -> tuple[str, str] | None:
    """Why Airflow takes no asset of this name, and what to do."""
    if not uri.strip():
        return "it is empty", "name a location, such as s3://bucket/folder, or remove it"
    if len(uri) > LONGEST_ASSET:
        return f"it has {len(uri)} characters, and the most is {LONGEST_ASSET}", "name a location with a shorter path"
    try:
        scheme = urlsplit(uri).scheme
    except ValueError as error:
        return f"it cannot be read ({error})", "write it like s3://bucket/folder"
    return ("the scheme airflow is its own", "use another scheme") if scheme == "airflow" else None


def _assets(plan: Plan, site: Site | None) -> Iterator[tuple[str, str, Where]]:
    pipeline = plan.pipeline
    for index, uri in enumerate(pipeline.on_data):
        yield uri, "on_data", pipeline.where("on_data", index)
    defaults = dag_options(pipeline).default_args
    for word in ASSETS:
        for index, uri in enumerate(getattr(defaults, word, None) or ()):
            yield uri, f"default_args.{word}", pipeline.where("engines", "airflow", "default_args", word, index)
    for each in plan.steps:
        step, name = each.step, each.own_name
        for word in ASSETS:
            for index, uri in enumerate(getattr(task_options(step), word) or ()):
                yield uri, f'step "{name}": {word}', each.where("engines", "airflow", word, index)
        for output, uri in kept_assets(step, site, f"{pipeline.name}/{each.name.replace('.', '/')}").items():
            what = "the uri of an output" if step.outputs[output].uri is not None else "runtime.artifacts of the site"
            yield uri, f'step "{name}": {what}', each.where("outputs")
