"""The table of constructs as pipelines that can run on the proof ground's node, many steps in one pipeline."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.core import yaml_tree
from gpuflow.targets.capabilities import NoSupport
from gpuflow.targets.kubeflow.facts import CAPABILITIES
from tests.targets.argo.cluster.examples import fitted
from tests.targets.every_construct import HEAD, PIPELINES

from .case import Case

BATCH = 12
"""So many steps share one pipeline, and one of KFP's drivers for the whole of it."""
ELSEWHERE = {
    "gang": "tests/cluster/test_kubeflow_gangs.py, which needs JobSet too",
    "exit.outputs": "scenes.py, after success and after failure",
    "schedule": "scenes.py, as recurring runs",
    "schedule.catch_up": "scenes.py, as recurring runs",
    "schedule.start": "scenes.py, as recurring runs",
    "schedule.suspended": "scenes.py, as recurring runs",
    "retry.any": "scenes.py, under three settings",
    "retry.backoff": "scenes.py, under three settings",
    "retry.failures": "scenes.py, under three settings",
    "retry.interruptions": "acting.py, where pods are taken away",
    "notify.webhook": "scenes.py, with a server that takes it",
    "notify.slack": "the program of notify.webhook, to an address outside",
    "notify.pagerduty": "the program of notify.webhook, to an address outside",
}
"""Constructs whose pipeline of the table shows nothing here, and where they are shown."""
OTHER_WORDS: Mapping[str, Mapping[str, Any]] = {
    # There is no registry to ask.
    "image_pull_policy": {"image_pull_policy": "Never"},
    # The small image has no such folder, and KFP's `cd` makes none.
    "working_dir": {"working_dir": "/tmp"},
    # The one node shares its GPUs in one way, which is that of the examples.
    "shared_gpu": {"shared_gpu": {"model": "l4", "by": "mps"}},
}


def _document(construct: str) -> dict[str, Any]:
    text = HEAD + PIPELINES[construct]
    document: dict[str, Any] = json.loads(json.dumps(yaml_tree.parse(text.encode(), construct)))
    return _named(copy.deepcopy(document), construct.replace("_", "-").replace(".", "-"))


def _named(document: dict[str, Any], slug: str) -> dict[str, Any]:
    """Programs of its own, since a stand-in writes the outputs of every step that starts it."""
    document["name"] = slug
    for section in ("steps", "exit"):
        for step in document.get(section, {}).values():
            if "command" in step:
                step["command"] = [f"{step['command'][0]}-{slug}", *step["command"][1:]]
            if "pipeline" in step:
                _named(step["pipeline"], f"{slug}-inner")
    return document


def shown() -> list[str]:
    """What the table calls carried or weaker, and what a pipeline of its own shows."""
    return [name for name in PIPELINES if not isinstance(CAPABILITIES[name], NoSupport) and name not in ELSEWHERE]


def cases() -> Iterator[Case]:
    """A pipeline for each construct that needs one to itself; the rest in batches."""
    alone: dict[str, dict[str, Any]] = {}
    steps: dict[str, dict[str, Any]] = {}
    for construct in shown():
        document = fitted(_document(construct))
        only = document["steps"].get("a", {})
        only.update(OTHER_WORDS.get(construct, {}))
        bare = set(document) == {"apiVersion", "kind", "name", "defaults", "steps"} and list(document["steps"]) == ["a"]
        if bare and not only.keys() & {"service_account", "cache"}:
            steps[construct] = only
        else:
            alone[construct] = document
    for construct, document in alone.items():
        yield _alone(construct, document)
    names = list(steps)
    for start in range(0, len(names), BATCH):
        batch = names[start : start + BATCH]
        document = {
            **{key: value for key, value in _head().items() if key != "name"},
            "name": f"fields-{start // BATCH}",
            "steps": {name.replace("_", "-").replace(".", "-"): steps[name] for name in batch},
        }
        yield Case(document["name"], document, constructs=tuple(batch), leaves_out=_small_items)


def _head() -> dict[str, Any]:
    return fitted({**json.loads(json.dumps(yaml_tree.parse(HEAD.encode(), "head"))), "steps": {}})


def _small_items(name: str, item: Mapping[str, Any]) -> bool:
    return name == "when-item" and item["i"] <= 1


def _alone(construct: str, document: dict[str, Any]) -> Case:
    name = document["name"]
    if construct == "when":
        return Case(name, document, leaves_out=lambda step, item: step == "a", constructs=(construct,))
    if construct == "when.item":
        return Case(name, document, leaves_out=lambda step, item: item.get("i") == 1, constructs=(construct,))
    account = document["steps"].get("a", {}).get("service_account")
    return Case(name, document, constructs=(construct,), service_account=account)
