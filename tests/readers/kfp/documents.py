"""Small pipelines in KFP's IR, written here, and what the reader makes of them."""

from __future__ import annotations

import json
from typing import Any

from gpuflow.core import yaml_tree
from gpuflow.demands import Demand
from gpuflow.readers import Options, PassiveObject, documents_of, foreign_in
from gpuflow.site import Site

FILE = "pipeline.yaml"
Ir = dict[str, Any]


def read(*documents: Ir, engine: str = "none", params: dict[str, str] | None = None, site: str = "nvidia") -> Demand:
    """The demand of the first pipeline of these documents, one file."""
    return read_text("\n---\n".join(json.dumps(each) for each in documents), engine=engine, params=params, site=site)


def read_text(text: str, *, engine: str = "none", params: dict[str, str] | None = None, site: str = "nvidia") -> Demand:
    """The demand of the first pipeline of a text."""
    foreign, _ = foreign_in(documents_of(yaml_tree.parse_all(text, FILE), FILE))
    found = foreign[0].demand(Options(Site.load(site), engine, params or {}))
    assert not isinstance(found, PassiveObject), found.because
    return found


def pipeline(tasks: Ir, *, components: Ir | None = None, executors: Ir | None = None, params: Ir | None = None) -> Ir:
    """A PipelineSpec of these tasks. Each component `comp-x` that is not given runs a container."""
    components = dict(components or {})
    executors = dict(executors or {})
    for name in sorted(_named({"tasks": tasks, "components": components})):
        label = "exec-" + name.removeprefix("comp-")
        components.setdefault(name, {"executorLabel": label})
    for component in components.values():
        if "executorLabel" in component:
            executors.setdefault(component["executorLabel"], container())
    root: Ir = {"dag": {"tasks": tasks}}
    if params:
        root["inputDefinitions"] = {"parameters": params}
    return {
        "pipelineInfo": {"name": "p"},
        "components": components,
        "deploymentSpec": {"executors": executors},
        "root": root,
        "schemaVersion": "2.1.0",
    }


def _named(tree: Any) -> set[str]:
    if isinstance(tree, dict):
        own = {tree["componentRef"]["name"]} if "componentRef" in tree else set()
        return own.union(*map(_named, tree.values()))
    return set().union(*map(_named, tree)) if isinstance(tree, list) else set()


def container(image: str = "i:1", **resources: Any) -> Ir:
    """An executor."""
    return {"container": {"image": image, "command": ["x"], **({"resources": resources} if resources else {})}}


def task(component: str, *, after: tuple[str, ...] = (), inputs: Ir | None = None, **fields: Any) -> Ir:
    """A task that refers to a component."""
    found: Ir = {"componentRef": {"name": f"comp-{component}"}, "taskInfo": {"name": component}, **fields}
    if after:
        found["dependentTasks"] = list(after)
    if inputs:
        found["inputs"] = {"parameters": inputs}
    return found


def group(tasks: Ir, **inputs: Ir) -> Ir:
    """A component that holds tasks."""
    found: Ir = {"dag": {"tasks": tasks}}
    return {**found, "inputDefinitions": {"parameters": inputs}} if inputs else found


def loop(items: Any, item: str = "item", limit: int | None = None) -> Ir:
    """A loop over a list that is written out, or over the input of that name."""
    source = {"inputParameter": items} if isinstance(items, str) else {"raw": json.dumps(items)}
    found: Ir = {"parameterIterator": {"items": source, "itemInput": item}}
    return found if limit is None else {**found, "iteratorPolicy": {"parallelismLimit": limit}}


def constant(value: Any) -> Ir:
    return {"runtimeValue": {"constant": value}}


def given(name: str) -> Ir:
    return {"componentInputParameter": name}


def output(producer: str, key: str = "Output") -> Ir:
    return {"taskOutputParameter": {"producerTask": producer, "outputParameterKey": key}}


def platform(**executors: Ir) -> Ir:
    """A platform document with the settings of each executor `exec-<name>`."""
    named = {f"exec-{name}": settings for name, settings in executors.items()}
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": named}}}}


def shown(demand: Demand, key: str) -> str:
    """A peak in short."""
    bound = demand.peak.get(key)
    if bound is None:
        return "exact 0"
    return bound.bound if bound.value is None else f"{bound.bound} {bound.value}"
