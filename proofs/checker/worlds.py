"""From a case to what the judge is asked: the pods of the run in their order, and the objects that they meet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuflow.demands.of_pipeline import demand_of_plan
from gpuflow.engines import NO_ENGINE, load_engine
from gpuflow.plan import Plan, PlannedStep, plan_of
from gpuflow.site import Site
from proofs.checker.case import NAMESPACE, Case, Manifest

BOUND = 12_000
OBJECTS = {engine: {"count/workflows.argoproj.io": 1} for engine in ("argo", "kubeflow")}
"""What an engine creates once for a run, before its first pod."""
KEEPS_PARALLEL = {"none": True, "argo": True, "airflow": True, "kubeflow": False}
LISTS = {
    "Namespace": "namespaces",
    "ResourceQuota": "quotas",
    "LimitRange": "limitranges",
    "Node": "nodes",
    "ResourceFlavor": "flavors",
    "Cohort": "cohorts",
    "ClusterQueue": "clusterQueues",
    "LocalQueue": "localQueues",
}
HERE = {"ResourceQuota", "LimitRange", "LocalQueue"}
"""Of these only the namespace's own count."""
SITE = Site.load("nvidia")
COLLECTED = ("OnPodSuccess", "OnPodCompletion")


def keeps(engine: str) -> str:
    """What becomes of pods that succeeded.

    GpuPodOperator deletes them before the task ends. Argo keeps them, unless the site's podGC collects them some time
    later; Kubeflow's Argo is not ours to set up.
    """
    if engine == "airflow":
        return "deleted"
    policy = getattr(SITE.engine("argo"), "pod_gc", None) if engine == "argo" else None
    return "collected" if policy is not None and policy.strategy in COLLECTED else "kept"


_DECIDES = (
    "activeDeadlineSeconds", "affinity", "nodeName", "nodeSelector", "overhead", "priorityClassName", "resourceClaims",
    "resources", "runtimeClassName", "schedulingGates", "tolerations", "topologySpreadConstraints",
)  # fmt: skip
"""The fields of a pod that quotas, Kueue or the scheduler look at."""


def refusals(case: Case) -> list[str]:
    """Why the engine does not take the pipeline at all: the compiler's own answer."""
    if case.engine == NO_ENGINE:
        return []
    found = [each for spec in case.specs for each in load_engine(case.engine).refusals(plan_of(spec, SITE))]
    return [each.message for each in found if each.severity == "error"]


def questions(case: Case) -> list[dict[str, Any]]:
    """One question for each world."""
    worlds = case.worlds or (case.shown,)
    runs = case.world_runs or (case.runs,) * len(worlds)
    kept = case.kept or (keeps(case.engine),) * len(worlds)
    return [
        {
            **_objects(objects),
            **_run(case, many, case.selector if number == len(worlds) - 1 else {}),
            "keeps": stay,
            "objects": OBJECTS.get(case.engine, {}),
            "bound": BOUND,
        }
        for number, (objects, many, stay) in enumerate(zip(worlds, runs, kept, strict=True))
    ]


def _objects(objects: Sequence[Manifest]) -> dict[str, Any]:
    lists: dict[str, list[Manifest]] = {name: [] for name in LISTS.values()}
    priorities = {}
    for each in objects:
        kind, home = each["kind"], each["metadata"].get("namespace")
        if kind in LISTS and (kind not in HERE or home == NAMESPACE):
            lists[LISTS[kind]].append(each)
        elif kind == "LocalQueue":
            lists["localQueues"].append(each)
        elif kind == "WorkloadPriorityClass":
            priorities[each["metadata"]["name"]] = each["value"]
    quotas = [_enforced(each) for each in lists.pop("quotas")]
    return {**lists, "quotas": quotas, "priorities": priorities, "others": list(_others(objects))}


def _enforced(quota: Manifest) -> Manifest:
    """A quota as written in Git is enforced when its controller has seen it."""
    if "status" in quota:
        return quota
    hard = quota["spec"]["hard"]
    return {**quota, "status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}


def _others(objects: Sequence[Manifest]) -> Iterator[dict[str, Any]]:
    """Pods of others with their Workloads; a Workload without a pod holds or wants quota only."""
    pods = {each["metadata"]["uid"]: each for each in objects if each["kind"] == "Pod"}
    for each in objects:
        if each["kind"] == "Workload":
            owners = [owner["uid"] for owner in each["metadata"].get("ownerReferences", ())]
            yield {"pod": pods.pop(owners[0], None) if owners else None, "workload": each}
    for pod in pods.values():
        owners = [owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())]
        yield {"pod": pod, "workload": None, "stays": "DaemonSet" in owners}


def fingerprint(asked: Sequence[Mapping[str, Any]]) -> str:
    """The same for questions that have the same answer: what pods run and mount has no say in it."""
    told = [{**world, "units": [{**unit, "pod": _decisive(unit["pod"])} for unit in world["units"]]} for world in asked]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _decisive(pod: Mapping[str, Any]) -> dict[str, Any]:
    spec = pod["spec"]
    kept = {key: spec[key] for key in _DECIDES if key in spec}
    for field in ("initContainers", "containers"):
        kept[field] = [
            {key: each[key] for key in ("resources", "restartPolicy") if key in each} for each in spec.get(field, ())
        ]
    labels = pod["metadata"].get("labels", {})
    queued = {key: value for key, value in labels.items() if key.startswith("kueue.x-k8s.io/")}
    return {"labels": queued, "spec": kept}


def _without_claims(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod without the volumes of the run: they are drawn so that they bind wherever the pod goes."""
    names = {each["name"] for each in spec.get("volumes", ()) if "persistentVolumeClaim" in each}
    if not names:
        return spec
    kept = [each for each in spec["volumes"] if each["name"] not in names]
    made = {**spec, "volumes": kept}
    for field in ("initContainers", "containers"):
        if field in spec:
            made[field] = [
                {**each, "volumeMounts": [one for one in each.get("volumeMounts", ()) if one["name"] not in names]}
                for each in spec[field]
            ]
    return made


class _Units:
    """The pods of a run as they are created one after the other."""

    def __init__(self, selector: Mapping[str, str]) -> None:
        self.units: list[dict[str, Any]] = []
        self.caps: list[dict[str, Any]] = []
        self._classes = 0
        self._selector = selector

    def new_class(self) -> int:
        self._classes += 1
        return self._classes

    def add(self, name: str, pod: Mapping[str, Any], after: Sequence[int], kind: int, tries: int = 1) -> int:
        spec = _without_claims(pod["spec"])
        if self._selector:
            spec = {**spec, "nodeSelector": {**spec.get("nodeSelector", {}), **self._selector}}
        metadata = {**pod["metadata"], "name": f"{name}-{len(self.units)}", "namespace": NAMESPACE}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.units.append({"name": metadata["name"], "pod": made, "after": list(after), "class": kind, "tries": tries})
        return len(self.units) - 1

    def cap(self, groups: Sequence[Sequence[int]], most: int | None) -> None:
        if most is not None and len(groups) > most:
            self.caps.append({"groups": [list(each) for each in groups], "max": most})


def _run(case: Case, runs: int, selector: Mapping[str, str]) -> dict[str, Any]:
    made = _Units(selector)
    for spec in case.specs:
        plan = plan_of(spec, SITE)
        demand = demand_of_plan(plan, case.engine)
        pods = {step.name: step for step in demand.steps}
        for _ in range(runs):
            _one_run(made, plan, pods, demand.driver, case.engine)
    return {"units": made.units, "caps": made.caps}


def _one_run(made: _Units, plan: Plan, pods: Mapping[str, Any], driver: Any, engine: str) -> None:
    """The pods of one run. Kubeflow: a driver for the run, for each group, and before each pod."""
    first: list[int] = []
    if driver is not None:
        first = [made.add("root-driver", driver.pod, (), made.new_class())]
    group = first
    exits = [each for each in plan.containers if each.section == "exit"]
    if driver is not None and exits:
        group = [made.add("exit-handler-driver", driver.pod, first, made.new_class())]
    last: dict[str, list[int]] = {}
    alive: list[list[int]] = []
    for each in plan.containers:
        if each.section == "steps":
            after = [number for need in each.needs for number in last[need]] or group
            last[each.name] = _step(made, each, pods[each.name], driver, after, alive, engine)
    everything = [number for numbers in last.values() for number in numbers]
    ends: list[list[int]] = []
    for each in exits:
        _step(made, each, pods[each.name], driver, everything, ends, engine)
    if KEEPS_PARALLEL[engine]:
        made.cap(alive, plan.pipeline.parallel)
        made.cap(ends, plan.pipeline.parallel)


def _step(
    made: _Units,
    planned: PlannedStep,
    step: Any,
    driver: Any,
    after: Sequence[int],
    alive: list[list[int]],
    engine: str,
) -> list[int]:
    """All copies of a step; returns what a later step waits for."""
    name, copies = step.object_name, step.copies
    looped = planned.step.for_each is not None
    if driver is not None and looped:
        after = [made.add(f"{name}-loop-driver", driver.pod, after, made.new_class())]
    kinds = [made.new_class() for _ in range(3)]
    groups: list[list[int]] = []
    ends: list[int] = []
    for _ in range(copies):
        chain, before = [], after
        if driver is not None:
            if looped:
                chain.append(made.add(f"{name}-item-driver", driver.pod, before, kinds[0]))
                before = chain[-1:]
            chain.append(made.add(f"{name}-driver", driver.pod, before, _own(kinds, 1, chain, made)))
            before = chain[-1:]
        chain.append(made.add(name, step.pod, before, _own(kinds, 2, chain, made), step.tries))
        groups.append(chain)
        alive.append(chain[-1:])
        ends.append(chain[-1])
    made.cap(groups, planned.step.parallel if looped else None)
    return ends


def _own(kinds: list[int], at: int, chain: list[int], made: _Units) -> int:
    """Copies are alike until the first of their pods is there; a later pod of a chain is nobody's twin."""
    return made.new_class() if chain else kinds[at]
