"""The way out of a refusal of the API server, from its own words: whose containers, and where they are set up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gpuflow.pod.injected import engine_of
from gpuflow.site import Site

MAIN: Final = "main"
_MUST_SPECIFY: Final = re.compile(r"must specify (?P<missing>.+)$")
_EXECUTOR: Final = "executor.resources in the ConfigMap workflow-controller-configmap"
_SETTINGS: Final = {
    "argo": f"set {_EXECUTOR}",
    "kubeflow": f"for Argo's own, set {_EXECUTOR} of the kubeflow namespace; kfp-launcher is fixed, so give the "
    "namespace a LimitRange with defaults",
    "airflow": "gpuflow compile hands the site's limits on; a stock KubernetesPodOperator reads them from "
    "xcom_sidecar_container_resources in the connection's extra",
}
"""Where the people who run an engine say what its own containers may use."""
_PATTERNS: Final = (
    (
        re.compile(r"maximum (?P<key>\S+/\S+) usage per Pod is \S+  No limit is specified"),
        "a LimitRange of type Pod with max for {key} refuses every pod that asks for none; drop it there and bound it "
        "with a quota on requests.{key}",
    ),
    (
        re.compile(r"max limit to request ratio per"),
        "bring request and limit closer together: one number in cpu and memory is both",
    ),
    (
        re.compile(r"Limit must be set for non overcommitable resources"),
        "a LimitRange with min for a GPU gives containers a request without a limit; drop the key from the LimitRange",
    ),
    (
        re.compile(r"must be less than or equal to (?P<key>cpu|memory) limit"),
        "the LimitRange's default limit is below what the step requests: say the limit too, {key}: {{request: …, "
        "limit: …}}",
    ),
)


def refusal_hint(message: str | None, site: Site, engine: str) -> str | None:
    """What to change, and where; None when the sentence asks for nothing that this knows."""
    text = message or ""
    found = _MUST_SPECIFY.search(text)
    if found:
        return "\n".join(_must_specify(found["missing"], site, engine))
    for pattern, hint in _PATTERNS:
        match = pattern.search(text)
        if match:
            return hint.format(**match.groupdict())
    return None


def _must_specify(missing: str, site: Site, engine: str) -> Iterator[str]:
    """One line for the step's own command, one for its other containers, one for those of the engine."""
    wanted: dict[str, set[str]] = {}
    for clause in missing.split("; "):
        key, _, names = clause.partition(" for: ")
        for name in names.split(","):
            wanted.setdefault(name, set()).add(key)
    paths = _paths(site, engine)
    helpers = [name for name in wanted if name != MAIN and name not in paths]
    if MAIN in wanted:
        yield f"{MAIN}: {_fields(wanted[MAIN])} in the step or in defaults; one number is request and limit"
    if helpers:
        keys = set().union(*(wanted[name] for name in helpers))
        yield f"{', '.join(sorted(helpers))}: {_fields(keys)} of that init container or sidecar"
    injected = sorted(name for name in wanted if name in paths)
    if injected:
        keys_text = ", ".join(sorted(set().union(*(wanted[name] for name in injected))))
        yield f"{', '.join(injected)}: added by {engine.capitalize()}; {_SETTINGS[engine]}"
        yield f"then say the same {keys_text} in the site: {', '.join(paths[name] for name in injected)}"
    yield "or have the namespace's LimitRange give defaults"


def _fields(keys: set[str]) -> str:
    names = sorted({key.rpartition(".")[2] for key in keys})
    return f"say {' and '.join(names)}"


def _paths(site: Site, engine: str) -> dict[str, str]:
    """Where the site says what each of the engine's containers uses."""
    parts = engine_of(site, engine)
    groups = {"init": parts.init, "containers": parts.containers, "output_containers": parts.output_containers}
    return {name: f"engines.{engine}.{group}.{name}" for group, names in groups.items() for name in names}
