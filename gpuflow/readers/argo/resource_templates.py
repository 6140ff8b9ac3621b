"""Resource templates: what the manifest that a step creates runs itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, NamedTuple

from gpuflow.core.errors import GpuflowError, Where
from gpuflow.demands.model import Demand
from gpuflow.demands.stored import StoredObject, resource_of
from gpuflow.formats.argo import Template
from gpuflow.formats.documents import READERS, Document, Library, kind_of
from gpuflow.formats.nodes import as_plain, mapping, text_of
from gpuflow.graph import Dag, Loop, Tree, Unknown, rename
from gpuflow.readers.argo.flow import MOST_STEPS, Call, Child, TooLarge, WalkResult
from gpuflow.readers.argo.pods import BadPod, parsed_with_tags
from gpuflow.readers.argo.variables import OpenValue, merge_open
from gpuflow.readers.gang_launcher import container_command, gang_manifest, later_in, nodes_avoided_in
from gpuflow.readers.interface import Options, demand_of_manifest

CREATE_ACTIONS: Final = ("create", "apply", "replace")
FINITE_KINDS: Final = frozenset({
    "Pod", "Job", "JobSet", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob", "TrainJob", "RayJob",
    "Workflow", "Experiment",
})  # fmt: skip
"""Kinds that end by themselves: with a condition for success the step waits for that."""
SCALABLE_KINDS: Final = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "Job", "JobSet", "LeaderWorkerSet"})
"""Kinds to which a patch can give more pods."""
DEEPEST: Final = 5
"""Workflows that create workflows."""
_depth: ContextVar[int] = ContextVar("created", default=0)


class Creation(NamedTuple):
    """Where what steps create is read, and what is found of it."""

    found: WalkResult
    library: Library
    options: Options


def read_resource_template(
    creation: Creation, template: Template, tree: Mapping[str, Any], at: Call, name: str, own: Tree
) -> Child:
    """A resource template: Argo's own pod, which is in `own`, with what it creates. So is one that launches a gang."""
    gang = gang_manifest(tree.get("container"))
    if gang is not None:
        return _waited_for(creation, template, gang, at, name, own, container_command(tree.get("container")))
    resource = mapping(tree.get("resource"))
    action = text_of(resource.get("action")) or ""
    where = template.where("resource", "manifest")
    if action not in (*CREATE_ACTIONS, "patch"):
        return Child(own)
    written = text_of(resource.get("manifest"))
    if not written:
        if action != "patch" and resource.get("manifestFrom"):
            creation.found.add_unknown(
                name,
                OpenValue("resource.manifestFrom is an artifact, which only the run has"),
                template.where("resource"),
            )
        return Child(own)
    text, missing = at.scope.fill(written)
    try:
        manifest = as_plain(parsed_with_tags(text, "resource.manifest"))
    except BadPod as refusal:
        unknown = merge_open(missing) or OpenValue(str(refusal))
        creation.found.add_unknown(name, unknown, where)
        return Child(own)
    kind, group = kind_of(manifest)
    if action == "patch":
        if kind in SCALABLE_KINDS:
            creation.found.add_unknown(
                name, OpenValue(f"resource.action patches a {kind}, which may start pods"), where
            )
        return Child(own)
    if not isinstance(manifest, dict):
        return Child(own)
    if (kind, group) not in READERS:
        namespace = text_of(mapping(manifest.get("metadata")).get("namespace"))
        if kind not in ("", "PersistentVolumeClaim"):  # claims are counted by what they ask for
            _adopt_stored(creation, [StoredObject(resource_of(kind), group, namespace=namespace)], at, name)
        return Child(own)
    document = Document(manifest, template.workflow.document.file, kind, group, 0)
    if document.namespace and "{{" in document.namespace:
        creation.found.add_unknown(
            name, merge_open(missing) or OpenValue(f"metadata.namespace of its {kind} is only known in the run"), where
        )
        return Child(own)
    demand = _read(creation, document, name, merge_open(missing), where)
    if demand is None:
        return Child(own)
    inner = _adopt_steps(creation, demand, at, name, where)
    _adopt_stored(
        creation, [replace(each, namespace=each.namespace or demand.namespace) for each in demand.stored], at, name
    )
    waits = bool(text_of(resource.get("successCondition")))
    if waits and kind in FINITE_KINDS:
        # Caps count Argo's own pods, and not those of what it creates.
        return Child(Dag({"own": own, "created": inner}), is_pods=False)
    copies = Unknown(f"how often {name} creates a {kind} is only known in the run") if at.copies is None else at.copies
    creation.found.escaped.append(inner if copies == 1 else Loop(f"{name}.created", inner, copies))
    return Child(own)


def _waited_for(
    creation: Creation, template: Template, manifest: dict[str, Any], at: Call, name: str, own: Tree, words: list[str]
) -> Child:
    kind, group = kind_of(manifest)
    where = template.where("container")
    document = Document(manifest, template.workflow.document.file, kind, group, 0)
    demand = _read(creation, document, name, None, where)
    if demand is None:
        return Child(own)
    steps = tuple(replace(step, nodes_avoided=nodes_avoided_in(words)) for step in demand.steps)
    inner = _adopt_steps(creation, replace(demand, steps=steps), at, name, where)
    for step in steps:
        # A gang of ours is one step: its ranks, or a leader and its workers.
        for when, ranks in later_in(words, step.pod_sets):
            creation.found.later[f"{when} {name}.{step.name}"] = when, f"{name}.{step.name}", ranks
    return Child(Dag({"own": own, "created": inner}), is_pods=False)


def _read(creation: Creation, document: Document, name: str, missing: OpenValue | None, where: Where) -> Demand | None:
    depth = _depth.get()
    if depth >= DEEPEST:
        creation.found.add_unknown(name, OpenValue(f"workflows create workflows more than {DEEPEST} deep"), where)
        return None
    mark = _depth.set(depth + 1)
    try:
        options = replace(creation.options, params={})
        found = demand_of_manifest(document.tree, document.file, creation.library, options)
    except GpuflowError as refusal:
        because = f"{document.kind}: {refusal.findings[0].message}"
        creation.found.add_unknown(name, missing or OpenValue(because), where)
        return None
    finally:
        _depth.reset(mark)
    return None if found is None else replace(found, namespace=document.namespace)


def _adopt_stored(creation: Creation, stored: Sequence[StoredObject], at: Call, name: str) -> None:
    """What an object that a step creates stores: Argo asks once for each attempt of each copy."""
    for each in stored:
        times = None if at.copies is None else at.copies * at.tries
        most = None if each.at_most is None or times is None else each.at_most * times
        least = each.at_least if at.sure and at.copies else 0
        why = each.because or f"how often {name} creates it is decided in the run"
        made = replace(each, at_least=least, at_most=most, because=why, by_controller=True, owner=f"step {name}")
        creation.found.stored.append(made)


def _adopt_steps(creation: Creation, demand: Demand, at: Call, name: str, where: Where) -> Tree:
    """The steps of a demand as steps of this one."""
    for step in demand.steps:
        if len(creation.found.steps) >= MOST_STEPS:
            raise TooLarge
        copies = None if step.copies is None or at.copies is None else step.copies * at.copies
        creation.found.created.append(f"{name}.{step.name}")
        there = step.namespace or demand.namespace
        step = replace(step, name=f"{name}.{step.name}", copies=copies, where=where, namespace=there)
        creation.found.steps.append(replace(step, is_sure=False, is_exit=at.is_exit))
    creation.found.unseen += [replace(each, step=f"{name}.{each.step}", where=where) for each in demand.unseen]
    creation.found.findings += demand.refusals
    creation.found.claims += [
        replace(each, name=f"{name}.{each.name}", where=where, namespace=each.namespace or demand.namespace)
        for each in demand.claims
    ]
    creation.found.conditional |= {f"{name}.{key}": each for key, each in demand.conditional.items()}
    if demand.only_at_most:
        creation.found.at_most.append(demand.only_at_most)
    return rename(demand.graph, lambda each: f"{name}.{each}")
