"""Rules about single pods: what hurts or refuses them, and pods that no demand holds.

- GPU pods that the kubelet ranks last: Kubernetes looks at cpu and memory alone.
- Containers that are too small for the program through which their engine starts them: Argo's executor.
- Whether the API server admits the pods that an engine adds to a run: Kubeflow's driver.
- Steps whose admission depends on the order in which the API server reads the namespace's LimitRanges.
- `nvidia.com/gpu` asked of nodes whose GPUs are cut into MIG slices. Only for documents of other tools: a pipeline of
  ours names its GPU, and the site knows where it is.
- Steps that create objects of the cluster while they run, and parts of a run that no file shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from gpuflow.catalog.kubernetes_names import PRODUCT_KEY, profile_of_resource, read_product_label
from gpuflow.checker.hints.refusals import refusal_hint
from gpuflow.checker.nodes.node_info import Node, read_node
from gpuflow.checker.nodes.node_selection import read_placement
from gpuflow.checker.quota.namespace import NamespacePolicy, StepAdmission, driver_admission
from gpuflow.cluster import Manifest
from gpuflow.core.errors import Finding, Where, join_names, list_names, warning
from gpuflow.demands import Demand
from gpuflow.engines import facts_of, too_small_containers
from gpuflow.kubernetes.admission.decision import Admission
from gpuflow.kubernetes.admission.limit_range import LimitRange, read_limit_range
from gpuflow.kubernetes.admission.pod import quality_of_service, read_pod
from gpuflow.quantity import Quantity

_BEST_EFFORT_HINT = "set cpu and memory in the step or in defaults; GPUs do not count here"


def best_effort(demand: Demand, admissions: Sequence[StepAdmission]) -> Iterator[Finding]:
    """Steps with GPUs whose pods, after the LimitRange's defaults, ask for neither cpu nor memory."""
    names = [one.step.name for one in admissions if one.ever.allowed and _has_devices(one) and _is_best_effort(one)]
    if names:
        asks, pods = ("asks", "its pod is") if len(names) == 1 else ("ask", "their pods are")
        yield warning(
            "GF551",
            f"{list_names(names)} {asks} for GPUs but not for cpu or memory: "
            f"{pods} BestEffort and the first to be evicted",
            demand.where(names[0]),
            _BEST_EFFORT_HINT if demand.kind == "Pipeline" else "request cpu and memory too; GPUs do not count here",
        )


def _has_devices(one: StepAdmission) -> bool:
    return any("/" in key for key in one.step.requests)


def _is_best_effort(one: StepAdmission) -> bool:
    if one.step.requests.keys() & {"cpu", "memory"}:
        return False  # set by the step itself: no need to read what admission made of the pod
    return quality_of_service(read_pod(one.ever.pod)) == "BestEffort"


def small_containers(demand: Demand, admissions: Sequence[StepAdmission]) -> Iterator[Finding]:
    """Containers that are killed before their own command runs, with the limits that a LimitRange gives them too."""
    facts = facts_of(demand.engine)
    found: dict[str, list[str]] = {}
    for one in admissions if facts.launcher_memory is not None else ():
        for name, limit in too_small_containers(one.ever.pod, facts):
            if name not in demand.engine_settings:
                found.setdefault(f'container "{name}" may use {limit} of memory', []).append(one.step.name)
    for what, steps in found.items():
        yield warning(
            "GF526",
            f"{list_names(steps)}: {what}, and {facts.title} starts it through a program of its own that needs "
            f"{facts.launcher_memory}: it is killed, or hangs, before its command runs",
            demand.where(steps[0]),
            f"give it a memory limit of {facts.launcher_memory} or more",
        )


def refused_driver(demand: Demand, policy: NamespacePolicy) -> Iterator[Finding]:
    """A namespace that refuses the engine's own pods runs none of its steps."""
    answer = driver_admission(demand, policy)
    if answer is not None and not answer.allowed:
        yield Finding(
            "GF508",
            f"the driver pod that {facts_of(demand.engine).title} runs before every step can never be admitted",
            Where(demand.file),
            refusal_hint(answer, demand)
            or f"have the namespace's limits changed, or correct {_driver_settings(demand)} in the site",
            kubernetes=answer.message,
        )


def _driver_settings(demand: Demand) -> str:
    """Where the site says what the containers of the driver pod use."""
    spec = {} if demand.driver is None else demand.driver.pod["spec"]
    names = [each["name"] for each in (*spec.get("containers", ()), *spec.get("initContainers", ()))]
    return ", ".join(demand.engine_settings[name] for name in names if name in demand.engine_settings)


def order_dependent(
    demand: Demand, limit_ranges: Sequence[Mapping[str, Any]], admissions: Sequence[StepAdmission]
) -> dict[str, Finding]:
    """One finding for all such steps, under the name of each of them."""
    conflicts = _conflicting_defaults(
        sorted((read_limit_range(each) for each in limit_ranges), key=lambda each: each.name)
    )
    undecided = [one.step.name for one in admissions if _is_order_dependent(one)] if conflicts else []
    if not undecided:
        return {}
    key, names = conflicts[0]
    others = [one.ever for one in admissions if one.step.name == undecided[0]]
    words = next((each.message for one in others for each in (one, *one.alternatives) if each.message), None)
    what = "is admitted or refused" if words else "gets more or less"
    verb = what if len(undecided) == 1 else what.replace("is ", "are ").replace("gets", "get")
    finding = warning(
        "GF523",
        f"{list_names(undecided)} {verb} by chance: limit ranges {' and '.join(names)} give different defaults for "
        f"{key}, and Kubernetes reads them in no particular order",
        demand.where(undecided[0]),
        f"set the request and the limit of {key} in the step, or have one of the defaults removed",
        kubernetes=words,
    )
    return dict.fromkeys(undecided, finding)


def most_expensive(one: StepAdmission) -> StepAdmission:
    """The step with the admission that the rest of the report counts: the most expensive of those that admit it."""
    allowed = [each for each in (one.ever, *one.ever.alternatives) if each.allowed]
    return replace(one, ever=max(allowed, key=_cost)) if allowed else one


def _cost(answer: Admission) -> list[tuple[str, Quantity]]:
    return [(key, Quantity(value)) for key, value in sorted(answer.usage.items())]


def _conflicting_defaults(limit_ranges: Sequence[LimitRange]) -> list[tuple[str, tuple[str, str]]]:
    """Resources for which two limit ranges give different defaults, with the names of the two."""
    found = []
    for index, first in enumerate(limit_ranges):
        for second in limit_ranges[index + 1 :]:
            for side in ("default_requests", "default_limits"):
                one, other = getattr(first, side), getattr(second, side)
                found += [
                    (key, (first.name, second.name)) for key in sorted(one.keys() & other) if one[key] != other[key]
                ]
    return found


def _is_order_dependent(one: StepAdmission) -> bool:
    """Whether another order of the limit ranges gives another answer, or another charge."""
    answer = one.ever
    return any(
        each.allowed != answer.allowed or (answer.allowed and each.usage != answer.usage)
        for each in answer.alternatives
    )


GPU: Final = "nvidia.com/gpu"
PARTITION: Final = "cloud.google.com/gke-gpu-partition-size"
"""On GKE, nodes of one slice size offer each slice as a GPU and carry this label."""


def mig_nodes(demand: Demand, manifests: Sequence[Manifest]) -> Iterator[Finding]:
    """GF762, GF763: steps that get slices without asking for them, and steps that find slices only."""
    asking = [step for step in demand.steps if any(_asks_for_gpu(each.pod) for each in step.pod_sets)]
    if demand.pipeline is not None or not asking or not manifests:
        return
    nodes = [node for node in (read_node(each.body) for each in manifests) if _mig_slices(node) or _has_gpus(node)]
    known: dict[object, list[Node]] = {}
    groups: dict[tuple[str, str], list[str]] = {}
    for step in asking:
        placement = read_placement(step.pod["spec"])
        if placement.identity not in known:
            known[placement.identity] = [node for node in nodes if placement.matches(node.name, node.labels)]
        open_to = known[placement.identity]
        cut = [node for node in open_to if _is_cut(node)]
        if open_to and not any(map(_has_gpus, open_to)):
            offered = sorted({name for node in open_to for name in _mig_slices(node)})
            groups.setdefault(("GF763", join_names(offered)), []).append(step.name)
        elif cut:
            groups.setdefault(("GF762", join_names([node.name for node in cut])), []).append(step.name)
    for (code, what), steps in groups.items():
        yield _mig_finding(code, what, steps, demand)


def _mig_finding(code: str, what: str, steps: list[str], demand: Demand) -> Finding:
    if code == "GF763":
        text = f"{list_names(steps)} asks for {GPU}, and the GPU nodes open to it offer slices only: {what}"
        hint = "ask for one of them instead, or select nodes with whole GPUs"
    else:
        text = f"{list_names(steps)} asks for {GPU}, and on {what} that is a MIG slice, not a GPU"
        hint = f"select nodes by {PRODUCT_KEY}, or take the slice on purpose and silence {code}"
    return Finding(code, text, demand.where(steps[0]), hint, severity="warning")


def _asks_for_gpu(pod: Mapping[str, Any]) -> bool:
    return any(
        GPU in (container.get("resources", {}).get(side) or {})
        for group in ("initContainers", "containers")
        for container in pod["spec"].get(group) or ()
        for side in ("requests", "limits")
    )


def _has_gpus(node: Node) -> bool:
    return node.allocatable.get(GPU, 0) > 0


def _mig_slices(node: Node) -> list[str]:
    return [name for name, amount in node.allocatable.items() if amount > 0 and profile_of_resource(name)]


def _is_cut(node: Node) -> bool:
    """Whether one `nvidia.com/gpu` of the node is a slice."""
    profile = read_product_label(node.labels.get(PRODUCT_KEY, "")).profile
    return _has_gpus(node) and (profile is not None or PARTITION in node.labels)


PROGRAM, ACTION = "gpuflow-run", "create"


def created_objects(demand: Demand) -> Iterator[Finding]:
    """Steps whose command is `gpuflow-run create`: the pods of what they create are not counted, and that is said."""
    names = [step.name for step in demand.steps if any(_creates(each.pod) for each in step.pod_sets)]
    if names:
        runs = "creates an object while it runs" if len(names) == 1 else "create objects while they run"
        yield warning(
            "GF326",
            f"{list_names(names)} {runs}, and this verdict does not count the pods of what is created",
            demand.where(names[0]),
            "keep its manifest in a file, and check both: gpuflow check PIPELINE MANIFEST --together",
        )


def _creates(pod: Mapping[str, Any]) -> bool:
    for container in pod["spec"]["containers"]:
        words = [str(word).rsplit("/", 1)[-1] for word in (*container.get("command", ()), *container.get("args", ()))]
        if (PROGRAM, ACTION) in pairwise(words):
            return True
    return False


def unseen_parts(demand: Demand) -> Iterator[Finding]:
    """GF701: one for each part that is not known."""
    for part in demand.unseen:
        what = "what runs" if part.resource is None else f"how much {part.resource} it asks for"
        if part.is_placement:
            what = "where it may run"
        text = f"{part.step}: {what} is not known: {part.because}"
        yield Finding("GF701", text, part.where, part.hint, severity="warning")
