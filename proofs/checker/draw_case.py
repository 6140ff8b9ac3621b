"""Random cases: a pipeline, a small cluster that is about as large as the pipeline needs, and a twist for a family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from proofs.checker import manifests as m
from proofs.checker.case import ENGINES, NAMESPACE, OTHERS, Case, Manifest
from proofs.checker.draw_run import Run, Step, drawn
from tests.differential.draw import Draw

ENGINE_WEIGHTS = {"none": 2.0, "argo": 4.0, "airflow": 3.0, "kubeflow": 3.0}
GPU_KEY = "requests.nvidia.com/gpu"


@dataclass
class Scene:
    """A case that is being drawn."""

    draw: Draw
    engine: str
    run: Run
    families: set[str] = field(default_factory=set)
    nodes: list[Manifest] = field(default_factory=list)
    objects: list[Manifest] = field(default_factory=list)
    """Everything but nodes."""
    hidden: tuple[str, ...] = ()
    """Kinds that nobody listed and that are not shown."""
    worlds: list[list[Manifest]] = field(default_factory=list)
    runs: int = 1
    world_runs: tuple[int, ...] = ()
    kept: tuple[str, ...] = ()
    selector: Manifest = field(default_factory=dict)
    has_queues: bool = False
    more_worlds: bool = False
    beside: Manifest = field(default_factory=dict)
    flavor_labels: dict[str, Manifest] = field(default_factory=dict)

    def everything(self) -> list[Manifest]:
        return [*self.nodes, *self.objects]

    def of(self, kind: str) -> list[Manifest]:
        return [each for each in self.everything() if each["kind"] == kind]

    def tight(self, least: int, most: int) -> int:
        """An amount around what is needed: too little for one, enough for one, for some, for all, for more."""
        kind = self.draw.weighted({"short": 0.55, "one": 2.2, "between": 2.2, "all": 3, "more": 3})
        if kind == "short":
            return max(least - 1, 0)
        if kind == "one":
            return least
        if kind == "between":
            return self.draw.number(least, max(most, least))
        return most if kind == "all" else most + self.draw.number(1, 4)


def case(seed: str, family: str | None = None) -> Case:
    """The case of a seed."""
    draw = Draw(seed)
    twist = family or draw.pick(tuple(TWISTS))
    engine = _engine(draw, twist)
    scene = Scene(draw, engine, drawn(draw, engine))
    scene.objects += [m.namespace(), m.namespace(OTHERS), _account()]
    TWISTS[twist](scene)
    scene.families.add(twist)
    counted = [key for each in scene.of("ResourceQuota") for key in each["spec"]["hard"] if key.startswith("count/")]
    if scene.engine == "none" and counted:
        # Who runs the pods is open, and with it whether they stay.
        both = scene.worlds or [scene.everything()]
        scene.worlds, scene.kept = [*both, *both], ("kept",) * len(both) + ("deleted",) * len(both)
        scene.world_runs *= 2
    shown = [each for each in scene.everything() if each["kind"] not in scene.hidden]
    worlds = tuple(map(tuple, scene.worlds)) or ((tuple(scene.everything()),) if scene.hidden else ())
    return Case(
        seed,
        tuple(sorted(scene.families)),
        scene.run.written(),
        scene.engine,
        tuple(shown),
        worlds,
        scene.runs,
        scene.world_runs,
        scene.kept,
        scene.selector,
        scene.hidden,
        scene.more_worlds,
        scene.beside,
    )


def _engine(draw: Draw, twist: str) -> str:
    only: dict[str, dict[str, float]] = {
        "E5": {"argo": 2.0, "kubeflow": 1.0},
        "A3": {"argo": 1.0, "kubeflow": 1.0, "airflow": 1.0},
        "A4": {"kubeflow": 1.0},
        "D1": {"argo": 1.0, "airflow": 1.0},
        "E6": {"airflow": 1.0},
    }
    return draw.weighted(only.get(twist, ENGINE_WEIGHTS))


def _account() -> Manifest:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}


# --- parts -----------------------------------------------------------------------------------------------------------


def nodes(scene: Scene, *, roomy: bool | None = None, most: int = 3) -> None:
    """One to three nodes; together about what the run needs, or plenty."""
    draw, run = scene.draw, scene.run
    count = draw.weighted({1: 3, 2: 4, 3: 2})
    count = min(count, most)
    roomy = draw.chance(0.5) if roomy is None else roomy
    drivers = 2 if scene.engine == "kubeflow" else 0
    if roomy:
        gpus, cpus = run.peak("gpus") + run.largest("gpus") * count, run.peak("cpus") + 3 * count + drivers
        amounts = [(gpus, cpus)] * count
    else:
        gpus = scene.tight(run.largest("gpus"), run.peak("gpus"))
        cpus = scene.tight(run.largest("cpus") + 1, run.peak("cpus") + 1) + drivers + 1
        amounts = [(gpus, cpus)]
        for _ in range(count - 1):
            amounts.append((draw.number(0, max(gpus, 1)), draw.number(1, cpus)))
    for index, (gpus, cpus) in enumerate(amounts):
        more: Manifest = {}
        if draw.chance(0.05):
            more["taints"] = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]
        scene.nodes.append(m.node(f"n{index}", gpus, cpus, **more))


def bound_pods(scene: Scene, most: int = 2) -> None:
    """Pods of others that run somewhere and may end."""
    for index in range(scene.draw.number(1, most)):
        node = scene.draw.pick(scene.nodes)
        offers = node["status"]["allocatable"]
        gpus = scene.draw.number(0, min(int(offers.get("nvidia.com/gpu", 0)), 2))
        if int(offers["cpu"]) < 2:
            continue
        scene.objects.append(m.pod(f"busy-{index}", gpus, 1, node["metadata"]["name"]))
        _take(scene, node, gpus, 1)


def _take(scene: Scene, node: Manifest, gpus: int, cpus: int) -> None:
    """Nobody runs more on a node than it has: others that would not fit get a larger node."""
    here = [each for each in scene.of("Pod") if each["spec"].get("nodeName") == node["metadata"]["name"]]
    for resource in ("nvidia.com/gpu", "cpu"):
        used = sum(
            int(container["resources"]["requests"].get(resource, 0))
            for each in here
            for container in each["spec"]["containers"]
        )
        for field_name in ("allocatable", "capacity"):
            have = node["status"][field_name]
            if int(have.get(resource, 0)) < used:
                have[resource] = str(used)


def quotas(scene: Scene, keys: tuple[str, ...] | None = None, used: float = 0.35) -> None:
    """One or two quotas around what the run needs."""
    draw, run = scene.draw, scene.run
    drivers = 1 if scene.engine == "kubeflow" else 0
    needs = {
        GPU_KEY: (run.largest("gpus"), run.peak("gpus")),
        "requests.cpu": (run.largest("cpus") + drivers, run.peak("cpus") + drivers),
        "cpu": (run.largest("cpus") + drivers, run.peak("cpus") + drivers),
        "limits.cpu": (run.largest("cpus") + drivers, run.peak("cpus") + drivers),
        "pods": (1, run.pods),
        "count/pods": (1, run.pods * (2 if drivers else 1) + drivers),
    }
    names = list(keys or draw.some(tuple(needs), 1, 3))
    if any("cpu" in name for name in names):
        # Engines' own containers ask for nothing unless the namespace says what.
        scene.objects.append(m.limit_range("defaults", default={"cpu": "100m"}, defaultRequest={"cpu": "100m"}))
    taken: dict[str, str] = {}
    hard: dict[str, str] = {}
    for name in names:
        least, most = needs[name]
        if "cpu" in name:
            most += run.pods  # what defaults and rounding may add
        hard[name] = str(scene.tight(least, most))
        if draw.chance(used):
            taken[name] = str(draw.number(0, max(int(hard[name]) // 2, 1)))
            hard[name] = str(int(hard[name]) + (int(taken[name]) if draw.chance(0.7) else 0))
    scene.objects.append(m.quota("q", hard, taken))


def queues(
    scene: Scene,
    *,
    cohort: bool | None = None,
    lending: bool = False,
    strict: float = 0.25,
    preemption: float = 0.12,
    flavors: int | None = None,
    labels: float = 0.35,
) -> None:
    """One or two ClusterQueues with about the quota that the run needs, its steps sent to them."""
    draw, run = scene.draw, scene.run
    scene.has_queues = True
    together = draw.chance(0.5) if cohort is None else cohort
    count = 2 if together or draw.chance(0.3) else 1
    names = ["fa", "fb"][: flavors or draw.weighted({1: 3, 2: 1})]
    labelled = draw.chance(labels)
    for index, name in enumerate(names):
        scene.flavor_labels[name] = {"pool": name} if labelled else {}
        scene.objects.append(m.flavor(name, **({"nodeLabels": {"pool": name}} if labelled else {})))
        if labelled:
            for number, node in enumerate(scene.nodes):
                if number % len(names) == index or len(scene.nodes) == 1:
                    node["metadata"]["labels"].setdefault("pool", name)
    for step in run.steps:
        if not draw.chance(0.12) and not step.is_exit:
            step.queue = "lq0" if count == 1 or draw.chance(0.75) else "lq1"
    for number in range(count):
        amounts = {}
        for name in names:
            gpus, cpus = _nominal(scene, number)
            numbers: dict[str, Manifest] = {
                "cpu": {"nominalQuota": str(cpus)},
                "memory": {"nominalQuota": "500Gi"},
                "nvidia.com/gpu": {"nominalQuota": str(gpus)},
            }
            if together:
                for resource, value in (("nvidia.com/gpu", gpus), ("cpu", cpus)):
                    if draw.chance(0.25):
                        numbers[resource]["borrowingLimit"] = str(draw.number(0, 3))
                    if draw.chance(0.8 if lending and resource != "cpu" else 0.15):
                        numbers[resource]["lendingLimit"] = str(draw.number(0, max(value, 0)))
            amounts[name] = numbers
        spec: Manifest = {"cohortName": "co"} if together else {}
        if draw.chance(strict):
            spec["queueingStrategy"] = "StrictFIFO"
        if draw.chance(preemption):
            spec["preemption"] = {
                "withinClusterQueue": draw.pick(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
                "reclaimWithinCohort": draw.pick(("Never", "LowerPriority", "Any")) if together else "Never",
                "borrowWithinCohort": {"policy": "Never"},
            }
        if draw.chance(0.2):
            spec["flavorFungibility"] = {
                "whenCanBorrow": draw.pick(("MayStopSearch", "TryNextFlavor")),
                "whenCanPreempt": draw.pick(("MayStopSearch", "TryNextFlavor")),
            }
        scene.objects.append(m.cluster_queue(f"cq{number}", amounts, **spec))
        scene.objects.append(m.local_queue(f"lq{number}", f"cq{number}"))
        scene.objects.append(m.local_queue(f"lq{number}", f"cq{number}", OTHERS))


def _nominal(scene: Scene, number: int) -> tuple[int, int]:
    sent = scene.run.queues(f"lq{number}")
    if not sent:
        return scene.draw.number(0, 3), scene.draw.number(1, 6)
    own = Run(sent)
    gpus = scene.tight(own.largest("gpus"), own.peak("gpus"))
    return gpus, max(scene.tight(own.largest("cpus") + 1, own.peak("cpus") + own.pods), 1) + 1


def holders(scene: Scene, most: int = 2, *, on_nodes: float = 0.7) -> None:
    """Workloads of others that hold quota, with their pods on nodes, or on their way there."""
    draw = scene.draw
    for index in range(draw.number(1, most)):
        target = draw.pick(scene.of("ClusterQueue"))["metadata"]["name"]
        flavor = draw.pick(scene.of("ResourceFlavor"))["metadata"]["name"]
        gpus = draw.number(0, 2)
        made = m.workload(f"held-{index}", f"lq{target[-1]}", gpus, 1, 10 + index, (target, flavor))
        where = [
            each for each in scene.nodes if scene.flavor_labels[flavor].items() <= each["metadata"]["labels"].items()
        ]
        if where and draw.chance(on_nodes):
            node = draw.pick(where)
            scene.objects.append(m.pod_of(made, node["metadata"]["name"], False, scene.flavor_labels[flavor]))
            _take(scene, node, gpus, 1)
        else:
            scene.objects.append(m.pod_of(made, None, False, scene.flavor_labels[flavor]))
        scene.objects.append(made)


def waiting_workloads(scene: Scene, most: int = 2, *, large: float = 0.15) -> None:
    """Workloads of others that wait already, with their gated pods."""
    draw = scene.draw
    for index in range(draw.number(1, most)):
        target = draw.pick(scene.of("ClusterQueue"))["metadata"]["name"]
        gpus = 40 if draw.chance(large) else draw.number(0, 2)
        made = m.workload(f"wants-{index}", f"lq{target[-1]}", gpus, 1, 30 + index)
        scene.objects += [m.pod_of(made, None, True), made]


def pending_pods(scene: Scene) -> None:
    """Pods of others that wait for a node."""
    for index in range(scene.draw.number(1, 2)):
        scene.objects.append(m.pod(f"pending-{index}", scene.draw.number(0, 2), scene.draw.number(1, 2)))


def base(scene: Scene) -> None:
    """A little of everything."""
    draw = scene.draw
    nodes(scene)
    if draw.chance(0.3):
        bound_pods(scene)
    if draw.chance(0.4):
        quotas(scene)
    if draw.chance(0.45):
        queues(scene)
        if draw.chance(0.3):
            holders(scene)
        if draw.chance(0.15):
            waiting_workloads(scene)
    if draw.chance(0.1):
        pending_pods(scene)


# --- twists ----------------------------------------------------------------------------------------------------------

Twist = Callable[[Scene], None]


def a1_nothing_shown(scene: Scene) -> None:
    """Kinds that matter are neither shown nor listed."""
    base(scene)
    scene.hidden = scene.draw.pick((("Node", "Pod"), ("Node",), ("ClusterQueue", "LocalQueue", "ResourceFlavor")))
    if "LocalQueue" in scene.hidden:
        scene.hidden += ("Cohort", "Workload")
        if not scene.has_queues:
            queues(scene)


def a2_terminating(scene: Scene) -> None:
    base(scene)
    if scene.draw.chance(0.7):
        scene.objects[0] = m.namespace(
            metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, status={"phase": "Terminating"}
        )


def a3_not_compiled(scene: Scene) -> None:
    """What an engine cannot run is never run by it."""
    nodes(scene, roomy=True)
    step = scene.draw.pick(scene.run.steps)
    kind = scene.draw.pick(("queue_timeout", "gang", "parallel", "none"))
    if kind == "queue_timeout" and not step.is_exit:
        queues(scene)
        step.queue = "lq0"
        step.more["queue_timeout"] = "1h"
    elif kind == "gang":
        step.more |= {"gang": 2, "cache": True}  # no engine looks for the results of ranks
        step.copies, step.parallel = 1, None
    elif kind == "parallel":
        scene.run.parallel = 1


def a4_stored_drivers(scene: Scene) -> None:
    """Kubeflow leaves the pods of its drivers behind."""
    nodes(scene, roomy=True)
    draw, run = scene.draw, scene.run
    exits = any(step.is_exit for step in run.steps)
    left = 1 + exits
    for step in run.steps:
        left += 2 * step.copies + (1 + step.copies if step.copies > 1 else 0)
    hard = left + draw.pick((-2, -1, -1, 0, 0, 1))
    scene.objects.append(m.quota("q", {"count/pods": str(max(hard, 1))}))


def a5_runs_overlap(scene: Scene) -> None:
    """Two runs at once, said by --runs or by the schedule."""
    draw, run = scene.draw, scene.run
    run.steps = run.steps[:2]
    for step in run.steps:
        step.copies = min(step.copies, 2 if len(run.steps) == 1 else 1)
        step.needs = tuple(need for need in step.needs if need in {each.name for each in run.steps})
    if scene.engine == "kubeflow":
        run.steps, run.steps[0].copies, run.steps[0].needs = run.steps[:1], 1, ()
    twice = Run(run.steps * 2)
    nodes(scene, roomy=True)
    key = draw.pick((GPU_KEY, "pods"))
    least, most = (twice.largest("gpus"), twice.peak("gpus")) if key == GPU_KEY else (1, twice.pods)
    scene.objects.append(m.quota("q", {key: str(scene.tight(least, most))}))
    if draw.chance(0.5):
        scene.runs = 2
    else:
        run.more["schedule"] = {"cron": "*/5 * * * *", "concurrency": "allow"}
        scene.worlds, scene.world_runs = [scene.everything()] * 2, (1, 2)
        scene.more_worlds = True


def a6_admission_plugins(scene: Scene) -> None:
    """The namespace's annotation for node selectors, with and without the plug-in that reads it."""
    nodes(scene)
    key = scene.draw.pick(("scheduler.alpha.kubernetes.io/node-selector", "openshift.io/node-selector"))
    chosen = {"pool": "research"}
    for node in scene.nodes:
        if scene.draw.chance(0.5):
            node["metadata"]["labels"] |= chosen
    scene.objects[0] = m.namespace(metadata={"annotations": {key: "pool=research"}})
    # OpenShift's plug-in is always on, and nobody else writes its annotation.
    scene.worlds, scene.selector = [scene.everything()] * (1 if key.startswith("openshift") else 2), chosen


def a7_admitted_not_placed(scene: Scene) -> None:
    """Workloads that hold quota and whose pods are on no node yet."""
    nodes(scene, roomy=False)
    queues(scene)
    holders(scene, on_nodes=0.1)


def a8_fan_out_over_parameter(scene: Scene) -> None:
    """A run may hand over another list than the default."""
    base(scene)
    step = scene.run.steps[0]
    step.copies, step.over_param = 2, True


def a9_not_ready(scene: Scene) -> None:
    """A node that is not ready and not tainted yet, or cordoned: it may come back, or stay away."""
    nodes(scene)
    if scene.draw.chance(0.6):
        bound_pods(scene, 1)
    sick = scene.draw.pick(scene.nodes)
    if scene.draw.chance(0.3):
        sick["spec"]["unschedulable"] = True
        free = {key: value for key, value in sick["spec"].items() if key != "unschedulable"}
        back = [{**each, "spec": free} if each is sick else each for each in scene.everything()]
        scene.worlds = [scene.everything(), back]
        return
    sick["status"]["conditions"][0]["status"] = "False"
    taints = [*sick["spec"].get("taints", ()), {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    tainted = [
        {**each, "spec": {**each["spec"], "taints": taints}} if each is sick else each for each in scene.everything()
    ]
    scene.worlds = [scene.everything(), tainted]


def b1_devices(scene: Scene) -> None:
    """GPUs that a DRA driver offers under the name of the extended resource; no device plug-in counts them."""
    nodes(scene)
    scene.run.parallel = None
    real = scene.everything()
    scene.objects.append(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu.nvidia.com"},
            "spec": {
                "extendedResourceName": "nvidia.com/gpu",
                "selectors": [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}],
            },
        }
    )
    bare = []
    for node in scene.nodes:
        offers = dict(node["status"]["allocatable"])
        count = int(offers.pop("nvidia.com/gpu", 0))
        bare.append({**node, "status": {**node["status"], "allocatable": offers, "capacity": offers}})
        if count:
            name = node["metadata"]["name"]
            spec = {
                "driver": "gpu.nvidia.com",
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"gpu-{number}"} for number in range(count)],
            }
            slices = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{name}-gpus"}}
            scene.objects.append({**slices, "spec": spec})
    scene.nodes = bare
    # Devices that are alike are as good as so many of a resource, which is how the judge counts them.
    scene.worlds = [real]


def d1_claims(scene: Scene) -> None:
    """Volumes that are claimed for each run, of a class that binds wherever the pod goes."""
    nodes(scene, most=3)
    access = "ReadWriteMany" if len(scene.nodes) > 1 or scene.draw.chance(0.5) else "ReadWriteOnce"
    scene.run.more["claims"] = {"work": {"size": "10Gi", "storage_class": "fast", "access": access}}
    for step in scene.run.steps:
        if not step.is_exit and scene.draw.chance(0.7):
            step.more["volumes"] = {"/work": {"new_claim": "work"}}
    scene.objects.append(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "fast"},
            "provisioner": "csi.example.com",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )
    driver = {"attachRequired": False, "storageCapacity": False}
    scene.objects.append(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": "csi.example.com"},
            "spec": driver,
        }
    )
    if scene.draw.chance(0.4):
        quotas(scene)


def e6_queue_timeout(scene: Scene) -> None:
    """Steps that wait in a queue for a limited time."""
    nodes(scene, roomy=True)
    queues(scene)
    for step in scene.run.steps:
        if step.queue:
            step.more["queue_timeout"] = "1m"


def b2_objects_elsewhere(scene: Scene) -> None:
    """Queues and namespaces live in two repositories."""
    nodes(scene, roomy=scene.draw.chance(0.7))
    queues(scene)
    scene.hidden = scene.draw.pick((("LocalQueue",), ("ResourceFlavor",), ("Namespace",)))


def b3_quota_changes(scene: Scene) -> None:
    """A quota that is being raised or lowered: what is enforced now, and what will be."""
    nodes(scene, roomy=True)
    quotas(scene, ("pods",) if scene.draw.chance(0.4) else (GPU_KEY,), used=0.1)
    quota = scene.of("ResourceQuota")[0]
    ((key, now),) = quota["status"]["hard"].items()
    later = str(scene.draw.number(0, int(now) + 2))
    quota["spec"]["hard"] = {key: later}
    raised = {**quota, "status": {**quota["status"], "hard": {key: later}}}
    scene.worlds = [scene.everything(), [raised if each is quota else each for each in scene.everything()]]


def c1_stored_pods(scene: Scene) -> None:
    """Steps in a row under a quota that counts what has ended."""
    nodes(scene, roomy=True)
    scene.run.steps = [step for step in scene.run.steps if not step.is_exit]
    for before, step in zip(scene.run.steps, scene.run.steps[1:], strict=False):
        if scene.draw.chance(0.7):
            step.needs = (before.name,)
    if scene.draw.chance(0.35):
        scene.draw.pick(scene.run.steps).failures = 1
    drivers = scene.engine == "kubeflow"
    most = scene.run.pods * (2 if drivers else 1) + drivers
    hard = scene.draw.pick((most - 2, most - 1, most - 1, most, most, most + 2))
    used = {"count/pods": str(scene.draw.number(0, 2))} if scene.draw.chance(0.3) else {}
    scene.objects.append(m.quota("q", {"count/pods": str(max(hard, 1))}, used))


def c2_daemon_sets(scene: Scene) -> None:
    """Nodes that carry the pods of a DaemonSet, shown with them or before they are there."""
    nodes(scene, roomy=False)
    shown = scene.draw.chance(0.5)
    labels = {"app": "exporter"}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": m.requests(0, 1)}],
            "tolerations": [{"operator": "Exists"}],
        },
    }
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "exporter", "namespace": "monitoring", "uid": "uid-ds"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    owner = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "uid": "uid-ds", "controller": True}]
    there = []
    for node in scene.nodes:
        for field_name in ("allocatable", "capacity"):
            node["status"][field_name]["cpu"] = str(int(node["status"][field_name]["cpu"]) + 1)
        name = node["metadata"]["name"]
        there.append(
            m.pod(
                f"exporter-{name}", 0, 1, name, namespace="monitoring",
                metadata={"ownerReferences": owner, "labels": labels}, spec={"tolerations": [{"operator": "Exists"}]},
            )
        )  # fmt: skip
    scene.objects += [m.namespace("monitoring"), daemon_set]
    if shown:
        scene.objects += there
    else:
        # A DaemonSet whose pods are not there yet may be a moment away from them.
        scene.worlds = [scene.everything(), [*scene.everything(), *there]]


def c3_flavor_without_nodes(scene: Scene) -> None:
    """The flavor with room has no nodes."""
    nodes(scene, roomy=scene.draw.chance(0.6))
    queues(scene, flavors=2, labels=1.0)
    if scene.draw.chance(0.6):
        for node in scene.nodes:
            node["metadata"]["labels"]["pool"] = "fb" if scene.draw.chance(0.8) else "fa"


def c3_behind_a_giant(scene: Scene) -> None:
    """A StrictFIFO queue behind a workload that no quota can hold."""
    nodes(scene, roomy=True)
    queues(scene, strict=0.8, cohort=False)
    waiting_workloads(scene, 1, large=0.7)


def d3_other_kinds(scene: Scene) -> None:
    """Kinds that stand in the cluster and have no say."""
    base(scene)
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
    }
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-latest"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "validations": [{"expression": "false"}],
        },
    }
    scene.objects += scene.draw.some([device_class, policy], 1)


OTHER_GPUS = ("NVIDIA-H100-80GB-HBM3", "NVIDIA-L4", "NVIDIA-A100-SXM4-40GB", "Tesla-T4", "NVIDIA-H200")


def e1_other_gpus(scene: Scene) -> None:
    """Nodes with other GPUs than the steps ask for, or with fewer of them: the report says what would fit."""
    draw = scene.draw
    nodes(scene, roomy=draw.chance(0.5))
    for step in scene.run.steps:
        if not step.is_exit and draw.chance(0.6):
            step.gpus = draw.number(1, 8)
    for node in scene.nodes:
        if draw.chance(0.7):
            node["metadata"]["labels"]["nvidia.com/gpu.product"] = draw.pick(OTHER_GPUS)
        for field_name in ("allocatable", "capacity"):
            node["status"][field_name]["nvidia.com/gpu"] = str(draw.pick((1, 2, 4, 8)))
    if draw.chance(0.4):
        queues(scene)
    if draw.chance(0.4):
        quotas(scene, (GPU_KEY,))


def e5_counted_runs(scene: Scene) -> None:
    """A quota that counts the engine's own objects."""
    nodes(scene, roomy=True)
    hard = scene.draw.number(0, 2)
    used = scene.draw.number(0, hard)
    key = "count/workflows.argoproj.io"
    scene.objects.append(m.quota("q", {key: str(hard)}, {key: str(used)}))


def d2_decidable(scene: Scene) -> None:
    """Queues that admit nothing, and priorities that nobody defined: no order helps."""
    nodes(scene, roomy=True)
    queues(scene)
    draw = scene.draw
    kind = draw.pick(("priority", "flavor", "stopped", "none"))
    queue = draw.pick(scene.of("ClusterQueue"))
    if kind == "priority":
        for step in scene.run.steps:
            if step.queue and draw.chance(0.7):
                step.priority = draw.pick(("high", "gone"))
        scene.objects.append(m.priority_class("high", 100))
    elif kind == "flavor":
        group = queue["spec"]["resourceGroups"][0]
        group["flavors"].append({**group["flavors"][0], "name": "gone"})
        message = "Can't admit new workloads: references missing ResourceFlavor(s): gone."
        queue["status"] = {
            "conditions": [{"type": "Active", "status": "False", "reason": "FlavorNotFound", "message": message}]
        }
    elif kind == "stopped":
        queue["spec"]["stopPolicy"] = "Hold"


def e2_pod_slots(scene: Scene) -> None:
    """Nodes whose number of pods is what is short: no other line of the report is."""
    scene.families |= {"E3", "E4"}
    nodes(scene, roomy=True)
    for node in scene.nodes:
        slots = str(scene.draw.number(1, 3))
        for field_name in ("allocatable", "capacity"):
            node["status"][field_name]["pods"] = slots


def e8_together(scene: Scene) -> None:
    """Two pipelines at the same time, checked together."""
    draw = scene.draw
    few = 1 if scene.engine == "kubeflow" else 2
    runs = [scene.run, drawn(draw, scene.engine)]
    for run in runs:
        run.steps = [step for step in run.steps if not step.is_exit][:few]
        names = {step.name for step in run.steps}
        for step in run.steps:
            step.copies, step.needs = 1, tuple(need for need in step.needs if need in names)
    both = Run([step for run in runs for step in run.steps])
    scene.run = both
    nodes(scene, most=2)
    if draw.chance(0.5):
        quotas(scene, draw.pick(((GPU_KEY,), ("pods",), ("requests.cpu",))))
    if draw.chance(0.3):
        queues(scene)
    scene.run = runs[0]
    scene.beside = {**runs[1].written(), "name": "q"}


def e9_defaults(scene: Scene) -> None:
    """LimitRanges that give, bound and refuse."""
    nodes(scene, roomy=scene.draw.chance(0.7))
    draw = scene.draw
    kind = draw.pick(("max", "default", "min", "gpu"))
    top = scene.run.largest("cpus")
    if kind == "max":
        bound = str(draw.pick((top - 1, top, top + 1)) or 1)
        scene.objects.append(m.limit_range("lr", max={"cpu": bound}))
    elif kind == "min":
        scene.objects.append(m.limit_range("lr", min={"cpu": str(draw.number(1, 2))}))
    elif kind == "gpu":
        most = str(draw.number(0, 2))
        scene.objects.append(m.limit_range("lr", max={"nvidia.com/gpu": most}))
    else:
        scene.objects.append(m.limit_range("lr", default={"cpu": "1"}, defaultRequest={"cpu": "500m"}))
    if draw.chance(0.5):
        scene.objects.append(m.quota("q2", {"pods": str(scene.tight(1, scene.run.pods))}))


def g1_lending_limit(scene: Scene) -> None:
    """A cohort in which a queue lends only a part of its quota, and the run takes from both sides of that line."""
    nodes(scene, roomy=True)
    queues(scene, cohort=True, lending=True, flavors=1 if scene.draw.chance(0.7) else None)
    if scene.draw.chance(0.6):
        for step in scene.run.steps:
            if not step.is_exit:
                step.queue = "lq0" if scene.draw.chance(0.6) else "lq1"
                step.gpus = max(step.gpus, 1)
    if scene.draw.chance(0.5):
        _lowered(scene)
    elif scene.draw.chance(0.4):
        holders(scene, 1)


def _lowered(scene: Scene) -> None:
    """Others hold more than their quota, since it was lowered: the cohort is overdrawn, and our kept part shrinks."""
    draw = scene.draw
    for step in scene.run.steps:
        if not step.is_exit:
            step.queue = "lq0"
    ours, theirs = scene.of("ClusterQueue")
    peak = scene.run.peak("gpus")
    for queue, nominal in ((ours, draw.number(max(peak - 1, 0), peak + 1)), (theirs, draw.number(0, 2))):
        for flavor in queue["spec"]["resourceGroups"][0]["flavors"]:
            gpus = next(each for each in flavor["resources"] if each["name"] == "nvidia.com/gpu")
            limits = {"lendingLimit": str(draw.number(0, nominal))} if queue is ours else {}
            flavor["resources"] = [each for each in flavor["resources"] if each is not gpus]
            flavor["resources"].append({"name": "nvidia.com/gpu", "nominalQuota": str(nominal), **limits})
        queue["spec"]["resourceGroups"][0]["coveredResources"] = ["cpu", "memory", "nvidia.com/gpu"]
    flavor = scene.of("ResourceFlavor")[0]["metadata"]["name"]
    made = m.workload("held-0", "lq1", draw.number(1, 4), 1, 10, ("cq1", flavor))
    node = draw.pick(scene.nodes)
    scene.objects += [m.pod_of(made, node["metadata"]["name"], False, scene.flavor_labels[flavor]), made]
    _take(scene, node, 4, 1)


def g2_counted_workloads(scene: Scene) -> None:
    """A quota that counts Kueue's own objects."""
    nodes(scene, roomy=True)
    queues(scene, cohort=False)
    queued = sum(step.copies for step in scene.run.steps if step.queue)
    hard = scene.draw.pick((max(queued - 1, 0), max(queued - 1, 0), queued, queued + 1))
    scene.objects.append(m.quota("q", {"count/workloads.kueue.x-k8s.io": str(hard)}))


def g3_oversubscribed(scene: Scene) -> None:
    """Queues whose quota is more than the nodes have, and others who wait already."""
    nodes(scene, roomy=False)
    queues(scene, cohort=scene.draw.chance(0.3))
    if scene.draw.chance(0.4):
        holders(scene, 1)
    waiting_workloads(scene)


def g4_own_preemption(scene: Scene) -> None:
    """Steps of different priority in a queue that evicts."""
    nodes(scene, roomy=True)
    queues(scene, preemption=0.9)
    scene.objects += [m.priority_class("high", 100), m.priority_class("low", 10)]
    for step in scene.run.steps:
        if step.queue and scene.draw.chance(0.7):
            step.priority = scene.draw.pick(("high", "low"))


def f_irregular(scene: Scene) -> None:
    """More steps than elsewhere, with edges at random."""
    draw = scene.draw
    if scene.engine != "kubeflow":
        for index in range(len(scene.run.steps), 5):
            names = [step.name for step in scene.run.steps if not step.is_exit]
            scene.run.steps.append(Step(f"t{index}", draw.number(0, 2), 1, needs=tuple(draw.some(names, 0, 2))))
    for step in scene.run.steps:
        step.copies = 1
    nodes(scene, most=2)
    if draw.chance(0.5):
        quotas(scene, (GPU_KEY,))


TWISTS: dict[str, Twist] = {
    "A1": a1_nothing_shown,
    "A2": a2_terminating,
    "A3": a3_not_compiled,
    "A4": a4_stored_drivers,
    "A5": a5_runs_overlap,
    "A6": a6_admission_plugins,
    "A7": a7_admitted_not_placed,
    "A8": a8_fan_out_over_parameter,
    "A9": a9_not_ready,
    "B1": b1_devices,
    "B2": b2_objects_elsewhere,
    "B3": b3_quota_changes,
    "C1": c1_stored_pods,
    "C2": c2_daemon_sets,
    "C3-flavor": c3_flavor_without_nodes,
    "C3-giant": c3_behind_a_giant,
    "D1": d1_claims,
    "D2": d2_decidable,
    "D3": d3_other_kinds,
    "E1": e1_other_gpus,
    "E2": e2_pod_slots,
    "E5": e5_counted_runs,
    "E6": e6_queue_timeout,
    "E8": e8_together,
    "E9": e9_defaults,
    "F": f_irregular,
    "G1": g1_lending_limit,
    "G2": g2_counted_workloads,
    "G3": g3_oversubscribed,
    "G4": g4_own_preemption,
    "plain": base,
}
assert set(ENGINES) == set(ENGINE_WEIGHTS)
