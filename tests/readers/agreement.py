"""Two readings of one pipeline: Kubeflow's IR, and the Argo workflow that Kubeflow's backend compiles of it.

The workflow has more nodes than the IR has tasks: a driver before each task and each group, an `executor` inside each
task, two nodes for each loop. `tasks_of_workflow` takes them away, so that what is left can be compared. What the
driver hands to a task at run time, the patch of its pod, is put in from a recording of Kubeflow's own driver.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuflow.demands import Demand
from gpuflow.graph import Dag, Leaf, Loop, Tree, Unknown
from gpuflow.graph.order import reachable
from gpuflow.readers import Document, Options, PassiveObject, foreign_in, read_documents
from gpuflow.site import Site

PATCH = re.compile(r"\{\{tasks\.(.+)-driver\.outputs\.parameters\.pod-spec-patch\}\}")
DRIVERS = ("system-dag-driver", "system-container-driver")
FOLDER = "kubeflow-pipelines"


@dataclass(frozen=True)
class Looped:
    """A loop around a task."""

    name: str
    copies: int | None
    limit: int | None


@dataclass
class Reading:
    """What a reader found, in the words of both."""

    tasks: set[str] = field(default_factory=set)
    before: set[tuple[str, str]] = field(default_factory=set)
    """Each task, and one that waits for it."""
    loops: dict[str, tuple[Looped, ...]] = field(default_factory=dict)


def pairs(corpora: Path) -> Iterator[tuple[str, Path, Path]]:
    """The pipelines that are there as IR and as workflow."""
    found = {path.stem: path for path in sorted((corpora / FOLDER / "ir").rglob("*.yaml"))}
    for workflow in sorted((corpora / FOLDER / "compiled-workflows").glob("*.yaml")):
        if workflow.stem in found:
            yield workflow.stem, found[workflow.stem], workflow


def demand_of(documents: list[Document], engine: str) -> Demand:
    """The demand of the one object that runs."""
    active, _ = foreign_in(documents)
    (demand,) = [each.demand(Options(Site.load("nvidia"), engine)) for each in active]
    assert not isinstance(demand, PassiveObject)
    return demand


def read_ir(path: Path) -> Demand:
    """With Kubeflow's own pods, which the workflow has too."""
    return demand_of(read_documents(str(path)), "kubeflow")


def read_workflow(path: Path, recorded: Mapping[str, Any], labels: Mapping[str, str]) -> Demand:
    """With the patches that Kubeflow's driver was recorded to make. `labels`: the executor of each component."""
    documents = read_documents(str(path))
    for each in documents:
        for template in each.tree["spec"]["templates"]:
            _put_patches(template, recorded, labels)
    return demand_of(documents, "none")


def _put_patches(template: Mapping[str, Any], recorded: Mapping[str, Any], labels: Mapping[str, str]) -> None:
    tasks = (template.get("dag") or {}).get("tasks") or []
    specs = {task["name"]: _argument(task, "task") for task in tasks}
    for task in tasks:
        for parameter in (task.get("arguments") or {}).get("parameters") or []:
            asked = PATCH.fullmatch(str(parameter.get("value")))
            if asked is not None:
                component = json.loads(specs[f"{asked[1]}-driver"])["componentRef"]["name"]
                patch = recorded.get(labels[component], {"error": "not recorded"})
                if "error" not in patch:
                    parameter["value"] = json.dumps(_asked(patch))


def _asked(patch: Mapping[str, Any]) -> dict[str, Any]:
    """A patch without what containers run, in which Kubeflow's own placeholders stand."""
    containers = [
        {key: value for key, value in each.items() if key not in ("args", "command", "env")}
        for each in patch["containers"]
    ]
    return {**patch, "containers": containers}


def _argument(task: Mapping[str, Any], name: str) -> str:
    given = (task.get("arguments") or {}).get("parameters") or []
    return next((str(each.get("value")) for each in given if each["name"] == name), "{}")


def tasks_of_ir(demand: Demand) -> Reading:
    """The tasks of the IR, as they are."""
    return _reading(demand.graph, {step.name: step.name for step in demand.steps})


def tasks_of_workflow(demand: Demand) -> Reading:
    """The tasks of the workflow, called as the IR calls them; drivers that only go before a task are left out."""
    names: dict[str, str] = {}
    steps = {step.name for step in demand.steps}
    for name in steps:
        plain = _plain(name)
        if plain is not None:
            names[name] = plain
    return _reading(demand.graph, names)


def _plain(name: str) -> str | None:
    """`entrypoint.root.for-loop-1.iteration-iterations.iteration-item.a.executor` is `for-loop-1.a`."""
    if name.endswith("-driver"):
        return None
    name = name.removeprefix("entrypoint.").removeprefix("root.").removesuffix(".executor")
    name = name.replace(".iteration-iterations.iteration-item", "").replace(".iteration-iterations", "")
    parts = name.split(".")
    while "onExit" in parts:  # the exit task of a group stands beside the group
        at = parts.index("onExit")
        parts = parts[: at - 1] + parts[at + 1 :]
    return ".".join(parts)


def _reading(graph: Tree, names: Mapping[str, str]) -> Reading:
    found = Reading(set(names.values()))

    def leaves(node: Tree, around: tuple[Looped, ...]) -> set[str]:
        match node:
            case Leaf():
                if node.name not in names:
                    return set()
                found.loops[names[node.name]] = around
                return {names[node.name]}
            case Loop():
                copies = None if isinstance(node.copies, Unknown) else node.copies
                # An exit task that runs once for each of the tasks it names is no loop of the pipeline.
                return leaves(node.body, (*around, Looped(_plain(node.name) or node.name, copies, node.parallel)))
            case Dag():
                inside = {name: leaves(each, around) for name, each in node.nodes.items()}
                for name, first in inside.items():
                    for later in reachable(node.edges, [name]) if name in node.edges else ():
                        found.before |= {(one, other) for one in first for other in inside[later]}
                return set().union(*inside.values())

    leaves(graph, ())
    return found
