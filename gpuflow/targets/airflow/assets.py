"""Locations that become assets of Airflow, and those that Airflow takes for none."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from gpuflow.errors import Finding, Where
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.targets.airflow.own_words import ASSETS, dag_words, task_words

LONGEST = 1500
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


def refused_assets(pipeline: Pipeline, site: Site | None = None) -> Iterator[Finding]:
    """Locations with which Airflow would not load the DAG."""
    for uri, what, where in _assets(pipeline, site, pipeline.name):
        fault = _fault(uri)
        if fault is not None:
            shown = uri if len(uri) <= 60 else f"{uri[:57]}…"
            yield Finding("GF355", f'{what}: "{shown}" is no asset of Airflow: {fault[0]}', where, fault[1])


def has_assets(pipeline: Pipeline) -> bool:
    """Whether any location that the pipeline itself names becomes an asset."""
    return next(_assets(pipeline, None, ""), None) is not None


def _fault(uri: str) -> tuple[str, str] | None:
    """Why Airflow takes no asset of this name, and what to do."""
    if not uri.strip():
        return "it is empty", "name a location, such as s3://bucket/folder, or remove it"
    if len(uri) > LONGEST:
        return f"it has {len(uri)} characters, and the most is {LONGEST}", "name a location with a shorter path"
    try:
        scheme = urlsplit(uri).scheme
    except ValueError as error:
        return f"it cannot be read ({error})", "write it like s3://bucket/folder"
    return ("the scheme airflow is its own", "use another scheme") if scheme == "airflow" else None


def _assets(pipeline: Pipeline, site: Site | None, home: str) -> Iterator[tuple[str, str, Where]]:
    for index, uri in enumerate(pipeline.on_data):
        yield uri, "on_data", pipeline.where("on_data", index)
    defaults = dag_words(pipeline).default_args
    for word in ASSETS:
        for index, uri in enumerate(getattr(defaults, word, None) or ()):
            yield uri, f"default_args.{word}", pipeline.where("engines", "airflow", "default_args", word, index)
    for name in (*pipeline.steps, *pipeline.exit):
        step = pipeline.effective(name)
        for word in ASSETS:
            for index, uri in enumerate(getattr(task_words(step), word) or ()):
                where = pipeline.where_step(name, "engines", "airflow", word, index)
                yield uri, f'step "{name}": {word}', where
        for output, uri in kept_assets(step, site, f"{home}/{name}").items():
            what = "the uri of an output" if step.outputs[output].uri is not None else "runtime.artifacts of the site"
            yield uri, f'step "{name}": {what}', pipeline.where_step(name, "outputs")
        if step.pipeline is not None:
            yield from _assets(step.pipeline, site, f"{home}/{name}")
