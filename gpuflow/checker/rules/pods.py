"""Rules about single pods: what refuses or hurts them, and pods that no demand holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from gpuflow.catalog.kubernetes_names import PRODUCT_KEY, profile_of_resource, read_product_label
from gpuflow.checker.hints.refusals import refusal_hint
from gpuflow.checker.nodes.node_info import Node, read_node, read_placement
from gpuflow.checker.question import Question, check_rule
from gpuflow.checker.quota.namespace import StepAdmission, driver_admission
from gpuflow.checker.report import amount
from gpuflow.checker.snapshot.missing_kinds import leaves_nodes_out
from gpuflow.cluster import Manifest
from gpuflow.core.errors import Finding, Problem, Where, join_names, list_names
from gpuflow.demands import Demand
from gpuflow.engines import facts_of, too_small_containers
from gpuflow.kubernetes.admission.pod import quality_of_service, read_pod
from gpuflow.kubernetes.labels import Toleration, read_tolerations

if TYPE_CHECKING:
    from gpuflow.checker.dra.inventory import DeviceNeeds

STAGES: Final = {
    "quota": ("GF501", "ask for less in this step, or have the quota raised"),
    "limitrange": ("GF502", "stay within the namespace's LimitRange, or have it changed"),
    "validation": ("GF503", "write that field as Kubernetes wants it; if the step has none of it, a LimitRange's "
                   "default or the site adds it"),
    "podsecurity": ("GF504", "drop what the namespace's Pod Security Standard forbids, or run in another namespace"),
    "priority": ("GF505", "use a PriorityClass that exists"),
    "runtimeclass": ("GF505", "use a RuntimeClass that exists"),
}  # fmt: skip


@check_rule("GF501", "GF502", "GF503", "GF504", "GF505", severity="error", verdict="never")
def refused_steps(q: Question) -> Iterator[Finding]:
    """Steps that the API server refuses even in an empty namespace. The same refusal of many steps is reported once."""
    groups: dict[tuple[str, str | None], list[StepAdmission]] = {}
    for one in q.admissions:
        if not one.ever.allowed:
            groups.setdefault((one.ever.stage, one.ever.reason), []).append(one)
    for (stage, _), members in groups.items():
        first = members[0]
        code, hint = STAGES.get(stage, ("GF501", None))
        yield Finding(
            code,
            f"{list_names([one.step.name for one in members])} can never be admitted",
            q.where(first.step.name),
            refusal_hint(first.ever, q.demand) or hint,
            kubernetes=first.ever.message,
        )


@check_rule("GF523", verdict="unknown")
def order_dependent_steps(q: Question) -> Iterator[Finding]:
    """Steps that are admitted or refused by the order of the namespace's LimitRanges."""
    yield from dict.fromkeys(q.undecided.values())


@check_rule("GF513")
def limit_range_gpus(q: Question) -> Iterator[Problem]:
    """GPUs that a LimitRange hands to containers which asked for none."""
    limit_ranges = q.cluster.of("LimitRange", q.namespace)
    if not limit_ranges:
        return
    given: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in q.admissions:
        before = dict(containers_of(one.step.pod))
        for name, resources in containers_of(one.ever.pod):
            for key, wanted in resources.items():
                if "/" in key and key not in before.get(name, {}):
                    given.setdefault((key, str(wanted)), {}).setdefault(one.step.name, []).append(name)
    for (key, wanted), steps in given.items():
        groups: dict[str, list[str]] = {}
        for step, names in steps.items():
            groups.setdefault(", ".join(sorted(names)), []).append(step)
        who = "; ".join(f"{names} of {join_names(members)}" for names, members in groups.items())
        yield Problem(
            f"the LimitRange gives {wanted} {key} to every container that asks for none: {who}",
            _limit_range_line(limit_ranges, key) or q.where(next(iter(steps))),
            f"in a LimitRange, max for {key} becomes the default of every container; drop it there and bound GPUs with "
            f"a quota on requests.{key}",
        )


def _limit_range_line(limit_ranges: Sequence[Manifest], key: str) -> Where | None:
    """The line of the LimitRange that names a resource for containers."""
    for item in limit_ranges:
        for index, bounds in enumerate(item.body["spec"].get("limits") or ()):
            for field in ("default", "max", "defaultRequest", "min"):
                if bounds.get("type") == "Container" and key in (bounds.get(field) or {}):
                    return item.at("spec", "limits", index, field, key, key=True)
    return None


def asked_resources(q: Question) -> set[str]:
    """The extended resources that the steps ask for."""
    return {key for one in q.admissions for _, found in containers_of(one.step.pod) for key in found if "/" in key}


def containers_of(pod: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for field in ("initContainers", "containers"):
        for container in pod["spec"].get(field, []):
            resources = container.get("resources", {})
            yield container["name"], {**resources.get("requests", {}), **resources.get("limits", {})}


@check_rule("GF701", verdict="unknown")
def unseen_parts(q: Question) -> Iterator[Problem]:
    """One for each part of a run that no file shows."""
    for part in q.demand.unseen:
        what = "what runs" if part.resource is None else f"how much {part.resource} it asks for"
        if part.is_placement:
            what = "where it may run"
        text = f"{part.step}: {what} is not known: {part.because}"
        yield Problem(text, part.where, part.hint)


@check_rule("GF546", severity="error", verdict="never")
def missing_devices(q: Question) -> Iterator[Problem]:
    """Claims, templates and classes that are not there, where nodes are left out; else the nodes are asked."""
    for one, needs in _claiming_steps(q):
        if needs.never is not None:
            hint = "create it first, or correct the name"
            text = f'step "{one.step.name}" never gets the devices of its claims'
            yield Problem(text, q.where(one.step.name), hint, kubernetes=needs.never)


@check_rule("GF547", verdict="unknown")
def devices_without_nodes(q: Question) -> Iterator[Problem]:
    """Devices that the snapshot shows, and not the nodes on which they are."""
    names = [one.step.name for one, needs in _claiming_steps(q) if needs.never is None]
    if names and q.cluster.knows("ResourceSlice"):
        text = f"{list_names(names)}: it is unknown whether a node has the devices: the snapshot leaves nodes out, and "
        hint = "show the nodes; or leave the ResourceSlices out and write assumed: [ResourceSlice]"
        yield Problem(f"{text}devices are counted on nodes", q.where(names[0]), hint)


def _claiming_steps(q: Question) -> Iterator[tuple[StepAdmission, DeviceNeeds]]:
    """The steps whose pods claim devices, with what these ask for, where the snapshot leaves nodes out."""
    claiming = [one for one in q.admissions if one.ever.allowed and one.ever.pod["spec"].get("resourceClaims")]
    if not claiming or not leaves_nodes_out(q.cluster):
        return
    from gpuflow.checker.dra.inventory import Inventory, read_device_needs  # few pods claim devices

    inventory = Inventory(q.cluster, q.namespace)
    for one in claiming:
        needs = read_device_needs(one.ever.pod, inventory, ())
        if needs is not None:
            yield one, needs


GPU: Final = "nvidia.com/gpu"
PARTITION: Final = "cloud.google.com/gke-gpu-partition-size"
"""On GKE, nodes of one slice size offer each slice as a GPU and carry this label."""


@check_rule("GF762", "GF763")
def mig_slices(q: Question) -> Iterator[Finding]:
    """Steps that get slices without asking for them, and steps that find slices only.

    Only for documents of other tools: a pipeline of ours names its GPU, and the site knows where it is.
    """
    demand, manifests = q.demand, q.cluster.of("Node")
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


@check_rule("GF548", severity="note")
def evicted_later(q: Question) -> Iterator[Problem]:
    """Steps that a taint drives off a node some time after they have started there.

    Mirrors k8s.io/kubernetes/pkg/controller/tainteviction.processPodOnNode, Kubernetes v1.36.3.
    """
    specs = [(step.name, each.pod["spec"]) for step in q.demand.steps for each in step.pod_sets]
    brief = [(name, spec) for name, spec in specs if "tolerationSeconds" in str(spec.get("tolerations"))]
    nodes = [read_node(each.body) for each in q.cluster.of("Node")] if brief else []
    groups: dict[tuple[str, int], dict[str, None]] = {}
    for name, spec in brief:
        placement, written = read_placement(spec), spec["tolerations"]
        pairs = list(zip(read_tolerations(written, "spec.tolerations"), written, strict=True))
        for node in (each for each in nodes if placement.matches(each.name, each.labels)):
            seconds = _seconds_on(node, pairs)
            if seconds is not None:
                groups.setdefault((name, seconds), {})[node.name] = None
    for (name, seconds), there in groups.items():
        text = f"{name} tolerates a NoExecute taint of {join_names(list(there), 6)} for {seconds} s: a pod there is "
        text += f"evicted {seconds} s after it was put there, however long its work takes"
        yield Problem(text, q.where(name), "leave tolerationSeconds out to stay")


def _seconds_on(node: Node, tolerations: Sequence[tuple[Toleration, Mapping[str, Any]]]) -> int | None:
    """After how long a node evicts a pod; None: never, or it takes none. Of each taint the first toleration counts."""
    found: list[int] = []
    for taint in node.taints:
        fits = (raw for one, raw in tolerations if one.tolerates(taint.key, taint.value, taint.effect, comparing=False))
        first = next(fits, None)
        if first is None:
            return None
        if taint.effect == "NoExecute" and first.get("tolerationSeconds") is not None:
            found.append(max(0, int(first["tolerationSeconds"])))
    return min(found, default=None)


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


@check_rule("GF508", severity="error", verdict="never")
def refused_driver(q: Question) -> Iterator[Problem]:
    """A namespace that refuses the engine's own pods runs none of its steps."""
    answer = driver_admission(q.demand, q.policy)
    if answer is not None and not answer.allowed:
        yield Problem(
            f"the driver pod that {facts_of(q.demand.engine).title} runs before every step can never be admitted",
            Where(q.demand.file),
            refusal_hint(answer, q.demand)
            or f"have the namespace's limits changed, or correct {_driver_settings(q.demand)} in the site",
            kubernetes=answer.message,
        )


def _driver_settings(demand: Demand) -> str:
    """Where the site says what the containers of the driver pod use."""
    spec = {} if demand.driver is None else demand.driver.pod["spec"]
    names = [each["name"] for each in (*spec.get("containers", ()), *spec.get("initContainers", ()))]
    return ", ".join(demand.engine_settings[name] for name in names if name in demand.engine_settings)


@check_rule("GF551")
def best_effort(q: Question) -> Iterator[Problem]:
    """Steps with GPUs whose pods, after the LimitRange's defaults, ask for neither cpu nor memory."""
    asking = [one for one in q.admissions if one.ever.allowed and any("/" in key for key in one.step.requests)]
    names = [one.step.name for one in asking if _is_best_effort(one)]
    if names:
        asks, pods = ("asks", "its pod is") if len(names) == 1 else ("ask", "their pods are")
        ours = q.demand.kind == "Pipeline"
        way = "set cpu and memory in the step or in defaults" if ours else "request cpu and memory too"
        text = f"{list_names(names)} {asks} for GPUs but not for cpu or memory: "
        text += f"{pods} BestEffort and the first to be evicted"
        yield Problem(text, q.where(names[0]), f"{way}; GPUs do not count here")


def _is_best_effort(one: StepAdmission) -> bool:
    if one.step.requests.keys() & {"cpu", "memory"}:
        return False  # set by the step itself: no need to read what admission made of the pod
    return quality_of_service(read_pod(one.ever.pod)) == "BestEffort"


@check_rule("GF526")
def small_containers(q: Question) -> Iterator[Problem]:
    """Containers that are killed before their own command runs, with the limits that a LimitRange gives them too."""
    facts = facts_of(q.demand.engine)
    found: dict[str, list[str]] = {}
    for one in q.admissions if facts.launcher_memory is not None else ():
        for name, limit in too_small_containers(one.ever.pod, facts):
            if name not in q.demand.engine_settings:
                found.setdefault(f'container "{name}" may use {amount(limit, "memory")} of memory', []).append(
                    one.step.name
                )
    for what, steps in found.items():
        text = f"{list_names(steps)}: {what}, and {facts.title} starts it through a program of its own that needs "
        text += f"{facts.launcher_memory}: it is killed, or hangs, before its command runs"
        yield Problem(text, q.where(steps[0]), f"give it a memory limit of {facts.launcher_memory} or more")


PROGRAM, ACTION = "gpuflow-run", "create"


@check_rule("GF326")
def created_objects(q: Question) -> Iterator[Problem]:
    """Steps whose command is `gpuflow-run create`: the pods of what they create are not counted, and that is said."""
    names = [step.name for step in q.demand.steps if any(_creates(each.pod) for each in step.pod_sets)]
    if names:
        runs = "creates an object while it runs" if len(names) == 1 else "create objects while they run"
        text = f"{list_names(names)} {runs}, and this verdict does not count the pods of what is created"
        hint = "keep its manifest in a file, and check both: gpuflow check PIPELINE MANIFEST --together"
        yield Problem(text, q.where(names[0]), hint)


def _creates(pod: Mapping[str, Any]) -> bool:
    for container in pod["spec"]["containers"]:
        words = [str(word).rsplit("/", 1)[-1] for word in (*container.get("command", ()), *container.get("args", ()))]
        if (PROGRAM, ACTION) in pairwise(words):
            return True
    return False
