"""Airflow's own words as arguments of the DAG and of its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from gpuflow.errors import Finding
from gpuflow.spec.engine_words.airflow import ROLES, TAG_LENGTH, AirflowDag, AirflowTask
from gpuflow.spec.engine_words.imported import Imported
from gpuflow.spec.flow import every_step
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.targets.airflow.python import Call, Import
from gpuflow.targets.losses import named_steps

OWNERS = ("owner", "team")
"""Labels that say whose the pipeline is, the first one first."""
ASSETS = ("inlets", "outlets")
ELSEWHERE = ("owner", "tags", "default_args", "end_date", "timetable")
"""Words for the DAG that are not arguments by their own name and value."""


def dag_words(pipeline: Pipeline) -> AirflowDag:
    """What the pipeline says to Airflow alone."""
    return (pipeline.engines and pipeline.engines.airflow) or AirflowDag()


def task_words(step: Step) -> AirflowTask:
    """What a step says to Airflow alone."""
    return (step.engines and step.engines.airflow) or AirflowTask()


def with_own_words(settings: dict[str, Any], pipeline: Pipeline) -> dict[str, Any]:
    """The DAG's settings with what is said to Airflow alone. Callbacks are added to those that are there."""
    words = dag_words(pipeline)
    settings = dict(settings)
    for name in AirflowDag.model_fields:
        value = getattr(words, name)
        if name in ELSEWHERE or value in (None, (), {}):
            continue
        settings[name] = [*settings.get(name, ()), *map(imported, value)] if _is_callback(name) else value
    if words.timetable is not None:
        settings["schedule"] = made(words.timetable)
        settings.setdefault("max_active_runs", 1)
    if words.end_date is not None:
        settings["end_date"] = _moment(words.end_date, pipeline)
    defaults = default_args(pipeline)
    if defaults:
        settings["default_args"] = defaults
    return {**settings, "tags": tags(pipeline)}


def common_labels(pipeline: Pipeline) -> dict[str, str]:
    """Labels of every step, wherever the pipeline says them: most say them in `defaults`."""
    return {**pipeline.defaults.labels, **pipeline.labels}


def default_args(pipeline: Pipeline) -> dict[str, Any]:
    """Arguments of every task; the owner comes from a label where nothing is said."""
    words, labels = dag_words(pipeline), common_labels(pipeline)
    given = arguments(words.default_args or AirflowTask())
    owner = words.owner or given.pop("owner", None) or next((labels[key] for key in OWNERS if labels.get(key)), None)
    return {"owner": owner, **given} if owner else given


def tags(pipeline: Pipeline) -> list[str]:
    """One for gpuflow, one for each label, and the pipeline's own."""
    by_label = (f"{key}={value}" for key, value in common_labels(pipeline).items())
    cut = (tag if len(tag) <= TAG_LENGTH else f"{tag[: TAG_LENGTH - 1]}…" for tag in by_label)
    return list(dict.fromkeys(["gpuflow", *cut, *dag_words(pipeline).tags]))


def docs(step: Step) -> dict[str, str]:
    """What the task's page shows: Airflow renders `doc_md`, and shows `doc` as it is."""
    own, text = task_words(step).doc_md, step.description
    if own is None:
        return {"doc_md": text} if text else {}
    return {**({"doc": text} if text else {}), "doc_md": own}


def task_arguments(named: dict[str, Any], step: Step) -> dict[str, Any]:
    """A task's arguments with what its step says to Airflow alone; outlets are added to those that are there."""
    given = arguments(task_words(step))
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
            value = list(map(imported, value))
        elif name in ASSETS:
            value = [Call("Asset", (uri,)) for uri in value]
        found[name] = list(value) if isinstance(value, tuple) else value
    return found


def imported(name: Imported) -> Import:
    """An object of the user's own; with arguments, what a call of it returns."""
    module, _, attribute = name.path.rpartition(".")
    return Import(module, attribute, name.arguments)


def made(name: Imported) -> Import:
    """What a call of the user's own class returns."""
    return imported(name.model_copy(update={"arguments": name.arguments or {}}))


def _is_callback(name: str) -> bool:
    return name.endswith("_callback")


def _moment(text: str, pipeline: Pipeline) -> Call:
    moment, zone = datetime.fromisoformat(text), pipeline.schedule.timezone if pipeline.schedule else "UTC"
    if moment.tzinfo is not None:
        moment, zone = moment.astimezone(UTC), "UTC"
    time = (moment.hour, moment.minute, *((moment.second,) if moment.second else ()))
    parts = (moment.year, moment.month, moment.day, *(time if any(time) else ()))
    return Call("datetime", parts, {"tzinfo": Call("ZoneInfo", (zone,))})


def refused_words(pipeline: Pipeline) -> Iterator[Finding]:
    """Words that a step cannot have, or that two places contradict."""
    defaults = dag_words(pipeline).default_args or AirflowTask()
    for name, step in every_step(pipeline):
        words = task_words(step)
        where = pipeline.where_step(name, "engines", "airflow") if name in pipeline.steps else pipeline.where("steps")
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
    yield from _other_clusters(pipeline, defaults)
    yield from _roles_inside(pipeline)


def _roles_inside(pipeline: Pipeline) -> Iterator[Finding]:
    """Setups and teardowns of sub-pipelines: what comes after the sub-pipeline would wait for them."""
    for name, step in pipeline.steps.items():
        if step.pipeline is not None and any(
            getattr(task_words(inner), word) is not None for _, inner in every_step(step.pipeline) for word in ROLES
        ):
            text = f'the sub-pipeline "{name}" has setups or teardowns'
            hint = "write these steps in the pipeline itself"
            yield Finding("GF365", text, pipeline.where("steps", name, "pipeline"), hint)


def stock_refusals(pipeline: Pipeline) -> Iterator[Finding]:
    """Words that the stock operator takes and does not keep."""
    defaults = dag_words(pipeline).default_args
    names = tuple(name for name, step in every_step(pipeline) if task_words(step).container_logs is not None)
    if names or (defaults is not None and defaults.container_logs is not None):
        whose = f" ({named_steps(names)})" if names else ""
        text = f"airflow --standalone does not support engines.airflow.container_logs{whose}: "
        text += "the stock operator copies the log of main alone while it waits in the triggerer"
        where = pipeline.where_step(names[0]) if names and names[0] in pipeline.steps else pipeline.where("engines")
        yield Finding("GF301", text, where, "remove container_logs, or compile without --standalone")


CLUSTER = ("kubernetes_conn_id", "in_cluster", "cluster_context", "config_file")


def _other_clusters(pipeline: Pipeline, defaults: AirflowTask) -> Iterator[Finding]:
    """Volumes of the run and its limit on pods are kept in one cluster."""
    if not pipeline.claims and pipeline.parallel is None:
        return
    elsewhere = tuple(
        name
        for name, step in every_step(pipeline)
        if any(getattr(task_words(step), word) not in (None, getattr(defaults, word)) for word in CLUSTER)
    )
    if elsewhere:
        what = "claims" if pipeline.claims else "parallel"
        text = f"{named_steps(elsewhere)}: another cluster than the pipeline's, and {what} is kept in one cluster"
        hint = "name the cluster in engines.airflow.default_args of the pipeline, for all steps"
        yield Finding("GF355", text, pipeline.where(what), hint)
