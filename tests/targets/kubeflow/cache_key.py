"""What KFP's cache compares, read from a compiled pipeline: a model of `GenerateCacheKey` in backend/src/v2/cacheutils.

The driver fills in the inputs of a task first, so a fact of the run counts by its value. The live tests ask the real
cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

RUN_FACTS = ("{{$.pipeline_job_", "{{$.pipeline_task_uuid")


def keys_of(text: str, run: str) -> dict[str, Any]:
    """The key of every task with a container that may be cached, in the run of that id."""
    spec, platform, *_ = [*yaml.safe_load_all(text), {}]
    configs = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    found: dict[str, Any] = {}
    for component in (spec["root"], *spec["components"].values()):
        for name, task in component.get("dag", {}).get("tasks", {}).items():
            inner = spec["components"][task["componentRef"]["name"]]
            if "executorLabel" in inner and task.get("cachingOptions", {}).get("enableCache"):
                found[name] = _key(spec, inner, task, configs.get(inner["executorLabel"], {}), run)
    return found


def _key(
    spec: Mapping[str, Any], component: Mapping[str, Any], task: Mapping[str, Any], config: Mapping[str, Any], run: str
) -> dict[str, Any]:
    container = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]
    inputs = task.get("inputs", {}).get("parameters", {})
    return {
        "inputs": {name: _value(source, run) for name, source in inputs.items()},
        "outputs": component.get("outputDefinitions", {}).get("parameters", {}),
        "image": container["image"],
        "words": [*container.get("command", []), *container.get("args", [])],
        "claims": sorted(_claim(mount, run) for mount in config.get("pvcMount", [])),
        "cache_key": task["cachingOptions"].get("cacheKey"),
    }


def _value(source: Mapping[str, Any], run: str) -> Any:
    constant = source.get("runtimeValue", {}).get("constant")
    if isinstance(constant, str) and constant.startswith(RUN_FACTS):
        return f"{constant} of {run}"
    return dict(source)


def _claim(mount: Mapping[str, Any], run: str) -> str:
    """The name of a claim; one that is made for each run has another name each time."""
    return str(mount.get("constant") or f"{mount['componentInputParameter']} of {run}")
