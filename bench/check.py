"""Seconds and memory for checking a large pipeline against a large cluster: `python bench/check.py`.

The cluster is a folder of YAML as `kubectl get -o yaml` writes it: nodes of five kinds with labels, taints and MIG
slices, four bound pods on each, fifty queues in ten cohorts, quota and limit range. The pipeline has layers of a
hundred steps, each waiting for eight of the layer before, on whole GPUs, on slices and on none. `prepare` is what comes
after reading the files and before the first step is checked: every object decoded, nodes and volumes held together.
A second row of the last size has the same objects as `gpuflow snapshot` writes them (JSON). Each row runs in a process
of its own; seconds are CPU seconds, which other work on the machine changes little. The peer reads the same files with
PyYAML's C loader and forgets where everything stands.

`--case NAME` measures one whole command (`gpuflow check`), beside the seconds that it should take at most: the least of
several runs, with compiled modules as an installed package has them.
"""

import gc
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import yaml
from measuring import arguments

from gpuflow.checker.run import check
from gpuflow.checker.snapshot.validation import PreparedCluster
from gpuflow.cli.snapshot import snapshot_files
from gpuflow.cluster import Cluster, read_cluster
from gpuflow.cluster.fields import keep_checked_fields
from gpuflow.cluster.manifests import cluster_of
from gpuflow.demands import Demand, demand_of
from gpuflow.kubernetes.admission.decision import admit
from gpuflow.site import Site
from gpuflow.spec.loading import load

Rows = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
ROWS: Rows = ((1_000, 5_000), (10_000, 500), (10_000, 5_000))
"""Steps and nodes: the last has ten times the steps of the first, and ten times the nodes of the second."""
FEW: Rows = ((12, 20), (120, 2), (120, 20))
PODS, FEW_PODS = 2_000, 20
PARTS = ("load", "demand", "read", "prepare", "check")
ROOT = Path(__file__).resolve().parent.parent
YAML, JSON = "cluster", "snapshot"
LAYER, NEEDS = 100, 8
PODS_PER_NODE, QUEUES, COHORTS = 4, 50, 10
NAMESPACE = "team-0"
RARELY = (200_000, 50, 1_000)
ROUNDS = 5
PATIENCE = 30

HEAD = """apiVersion: gpuflow/v1
kind: Pipeline
name: bench
defaults: {image: registry.example.com/x:1, queue: research, cpu: 1, memory: 2Gi}
steps:
"""
KINDS = {
    "a100": ("NVIDIA-A100-SXM4-80GB", {"nvidia.com/gpu": 8}),
    "h100": ("NVIDIA-H100-80GB-HBM3", {"nvidia.com/gpu": 8}),
    "l4": ("NVIDIA-L4", {"nvidia.com/gpu": 4}),
    "slices": ("NVIDIA-A100-SXM4-80GB", {"nvidia.com/mig-1g.10gb": 28, "nvidia.com/mig-3g.40gb": 8}),
    "cpu": ("", {}),
}
DEVICES = ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb")


def layered(index: int, dice: random.Random) -> list[int]:
    before = index // LAYER - 1
    return [before * LAYER + dice.randrange(LAYER) for _ in range(NEEDS)] if before >= 0 else []


def any_earlier(index: int, dice: random.Random) -> list[int]:
    return [dice.randrange(index) for _ in range(3)] if index else []


def nearest(index: int, dice: random.Random) -> list[int]:
    return [dice.randrange(max(0, index - 200), index) for _ in range(4)] if index else []


def dense(index: int, dice: random.Random) -> list[int]:
    return [dice.randrange(max(0, index - 1000), index) for _ in range(20)] if index else []


def tree(index: int, dice: random.Random) -> list[int]:
    return [dice.randrange(max(0, index - 500), index)] if index else []


def chains(index: int, dice: random.Random) -> list[int]:
    """Short chains, some of which wait for a step of another."""
    return [index - 1] * bool(index % 8) + [dice.randrange(max(index, 1))] * (index > 0 and dice.random() < 0.1)


def forks(index: int, dice: random.Random) -> list[int]:
    """Twenty steps that fork into four branches, one after another, with a few edges across."""
    within = index % 20
    last = [index - 1] if index and within not in (1, 6, 11, 16) else [index - within] if within else []
    return last + [dice.randrange(max(index, 1))] * (index > 0 and dice.random() < 0.2)


Needs = Callable[[int, random.Random], list[int]]
IRREGULAR: tuple[Needs, ...] = (any_earlier, nearest, dense, tree, chains, forks)
CAP = 200


def pipeline(steps: int, needs_of: Needs = layered, parallel: int | None = None) -> str:
    """A pipeline of this many steps, as YAML. Those of irregular graphs ask for various amounts."""
    dice, amounts = random.Random(1), random.Random(2)
    lines = [HEAD if parallel is None else HEAD.replace("steps:", f"parallel: {parallel}\nsteps:")]
    various = needs_of is not layered
    for index in range(steps):
        needs = sorted(set(needs_of(index, dice)))
        lines.append(f"  s{index}:\n    command: [python, work.py, --index, '{index}']\n")
        lines.append(f"    needs: [{', '.join(f's{need}' for need in needs)}]\n" if needs else "")
        if index % 3 == 0:
            count, memory = (amounts.choice((1, 2, 4)), amounts.choice((64, 96, 200))) if various else (2, 64)
            lines.append(f"    gpu: a100-80gb x {count}\n    memory: {memory}Gi\n")
        elif index % 7 == 0:
            lines.append("    mig: {profile: 1g.10gb, model: a100-80gb}\n    memory: 12Gi\n")
        elif various:
            lines.append(f"    cpu: {amounts.choice((1, 2, 3))}\n    memory: {amounts.choice((3, 5, 9, 17))}Gi\n")
    return "".join(lines)


def nodes(count: int) -> Iterator[dict[str, Any]]:
    kinds = list(KINDS.items())
    for index in range(count):
        kind, (product, offers) = kinds[index % len(kinds)]
        labels = {"kubernetes.io/hostname": f"node-{index}", "topology.kubernetes.io/zone": f"z{index % 3}"}
        labels |= {"example.com/pool": kind} | ({"nvidia.com/gpu.product": product} if product else {})
        amounts = {"cpu": "96", "memory": "1000Gi", "pods": "110", "ephemeral-storage": "1700Gi"}
        amounts |= {name: str(amount) for name, amount in offers.items()}
        taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{index}", "labels": labels},
            "spec": {"podCIDR": f"10.{index // 256}.{index % 256}.0/24", "taints": [taint] if product else []},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }


def pods(count: int) -> Iterator[dict[str, Any]]:
    kinds = list(KINDS.values())
    for index in range(count * PODS_PER_NODE):
        node = index // PODS_PER_NODE
        offers = kinds[node % len(kinds)][1]
        wanted = {"cpu": "8", "memory": "64Gi"}
        if offers and index % PODS_PER_NODE < 2:
            wanted |= {next(iter(offers)): "1"}
        container = {
            "name": "main",
            "image": "registry.example.com/serve:2",
            "command": ["python", "-m", "serve"],
            "resources": {"requests": wanted, "limits": wanted},
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/token", "readOnly": True}],
        }
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{index}", "namespace": f"team-{index % QUEUES}", "labels": {"app": "serve"}},
            "spec": {"nodeName": f"node-{node}", "containers": [container], "schedulerName": "default-scheduler"},
            "status": {"phase": "Running", "qosClass": "Guaranteed"},
        }


def queues() -> Iterator[dict[str, Any]]:
    """A namespace, a queue and a cluster queue for every team; the teams of a cohort lend to each other."""
    kueue = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    for kind, (product, _) in KINDS.items():
        labels = {"nvidia.com/gpu.product": product} if product else {"example.com/pool": kind}
        spec = {"nodeLabels": labels, "nodeTaints": taints if product else []}
        yield {**kueue, "kind": "ResourceFlavor", "metadata": {"name": kind}, "spec": spec}
    for team in range(QUEUES):
        flavors = [
            {
                "name": kind,
                "resources": [
                    {"name": "cpu", "nominalQuota": "800"},
                    {"name": "memory", "nominalQuota": "8000Gi"},
                    *({"name": name, "nominalQuota": "32" if name in offers else "0"} for name in DEVICES),
                ],
            }
            for kind, (_, offers) in reversed(KINDS.items())
        ]
        groups = [{"coveredResources": ["cpu", "memory", *DEVICES], "flavors": flavors}]
        cohort = {"cohortName": f"cohort-{team % COHORTS}", "namespaceSelector": {}, "resourceGroups": groups}
        home = {"metadata": {"name": "research", "namespace": f"team-{team}"}}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{team}"}}
        yield {**kueue, "kind": "ClusterQueue", "metadata": {"name": f"team-{team}"}, "spec": cohort}
        yield {**kueue, "kind": "LocalQueue", **home, "spec": {"clusterQueue": f"team-{team}"}}


HARD = {
    "pods": "1000",
    "requests.cpu": "4000",
    "requests.memory": "40000Gi",
    "limits.cpu": "8000",
    "limits.memory": "80000Gi",
    "requests.nvidia.com/gpu": "256",
    "requests.nvidia.com/mig-1g.10gb": "100",
    "persistentvolumeclaims": "50",
}
USED = dict.fromkeys(HARD, "4")


def rules() -> list[dict[str, Any]]:
    """Two quotas and a limit range of the team's namespace."""
    item = {
        "type": "Container",
        "default": {"cpu": "1", "memory": "1Gi"},
        "defaultRequest": {"cpu": "100m", "memory": "128Mi"},
        "max": {"cpu": "64", "memory": "512Gi"},
        "min": {"cpu": "10m", "memory": "4Mi"},
    }
    whole = {"type": "Pod", "max": {"cpu": "96", "memory": "1Ti"}}
    head = {"apiVersion": "v1", "kind": "ResourceQuota"}
    said = {"spec": {"hard": HARD}, "status": {"hard": HARD, "used": USED}}
    quotas = [{**head, "metadata": {"name": name, "namespace": NAMESPACE}, **said} for name in ("compute", "gpus")]
    bounds = {"metadata": {"name": "bounds", "namespace": NAMESPACE}, "spec": {"limits": [item, whole]}}
    return [*quotas, {"apiVersion": "v1", "kind": "LimitRange", **bounds}]


def write_cluster(folder: Path, count: int) -> None:
    for name, objects in {
        "nodes": list(nodes(count)),
        "pods": list(pods(count)),
        "queues": list(queues()),
        "rules": rules(),
    }.items():
        text = yaml.dump({"apiVersion": "v1", "kind": "List", "items": objects}, Dumper=dumper())
        (folder / f"{name}.yaml").write_text(text)


def write_snapshot(folder: Path, count: int) -> None:
    """The same objects as `gpuflow snapshot` writes those of a live cluster."""
    objects = (*nodes(count), *pods(count), *queues(), *rules())
    whole = cluster_of(keep_checked_fields(body["kind"], body) for body in objects)
    for name, text in snapshot_files(whole).items():
        (folder / name).write_text(text)


def dumper() -> Any:
    """PyYAML's C dumper without anchors, as kubectl writes."""

    class Plain(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # a base chosen at run time
        def ignore_aliases(self, data: object) -> bool:
            return True

    return Plain


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    start = process_time()
    result = work()
    return process_time() - start, result


def measure(folder: Path, objects: str) -> dict[str, Any]:
    """One row, in this process, which looks for garbage as rarely as the command does."""
    gc.set_threshold(*RARELY)
    site = Site.load("nvidia")
    loading, found = seconds(lambda: load(str(folder / "pipeline.yaml")))
    demanding, demand = seconds(lambda: _counted(demand_of(found, site, "argo")))
    reading, cluster = seconds(lambda: read_cluster(str(folder / objects)))
    preparing, prepared = seconds(lambda: _prepared(cluster))
    checking, report = seconds(lambda: check(demand, prepared, NAMESPACE))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row = dict(zip(PARTS, (loading, demanding, reading, preparing, checking), strict=True))
    bounds = sum(bound.reached is not None for bound in demand.peak.values())
    told = {"verdict": report.verdict, "lines": len(report.scopes), "bounds": bounds}
    return {**row, "all": sum(row.values()), "MiB": peak, **told}


def _counted(demand: Demand) -> Demand:
    """The demand with its peaks, which are worked out when somebody asks."""
    assert demand.peak and demand.overhead is not None
    return demand


def _prepared(cluster: Cluster) -> PreparedCluster:
    """The cluster with its nodes and volumes, which are held together when somebody asks."""
    prepared = PreparedCluster(cluster, NAMESPACE)
    assert prepared.node_pools is not None and prepared.storage is not None
    return prepared


def peer(folder: Path) -> dict[str, float]:
    """The same manifests, read by PyYAML alone."""
    gc.set_threshold(*RARELY)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    texts = [file.read_text() for file in sorted((folder / YAML).iterdir())]
    took, _ = seconds(lambda: [yaml.load(text, Loader=loader) for text in texts])
    return {"read": took, "MB": sum(map(len, texts)) / 1e6}


def in_its_own_process(*words: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, *words], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def whole_checks(sizes: Rows, shapes: tuple[Needs, ...]) -> None:
    columns = (*PARTS, "all", "MiB")
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    print(f"{'steps':<8}{'nodes':>7}{'pods':>8}" + "".join(f"{name:>9}" for name in columns) + "  verdict")
    with tempfile.TemporaryDirectory() as name:
        for steps, count in sizes:
            folder = Path(name) / f"{steps}-{count}"
            (folder / YAML).mkdir(parents=True)
            write_cluster(folder / YAML, count)
            (folder / "pipeline.yaml").write_text(pipeline(steps))
            rows[steps, count] = told(steps, count, in_its_own_process("row", str(folder), YAML), columns)
        (folder / JSON).mkdir()
        write_snapshot(folder / JSON, count)
        told(steps, count, in_its_own_process("row", str(folder), JSON), columns, " (a snapshot's JSON)")
        plain = in_its_own_process("peer", str(folder))
        irregular(folder, shapes, steps, rows[sizes[-1]]["all"], columns)
    few_steps, few_nodes, large = (rows[size] for size in sizes)
    for what, small in (("10 x steps", few_steps), ("10 x nodes", few_nodes)):
        print(f"{what:<23}" + "".join(f"{large[name] / small[name]:>8.1f}x" for name in columns))
    print(
        f"PyYAML's C loader alone, {plain['MB']:.0f} MB of manifests: {plain['read']:.1f} s; "
        f"with positions and checks: {large['read'] / plain['read']:.2f} times as long"
    )


def told(steps: int, count: int, row: dict[str, Any], columns: tuple[str, ...], what: str = "") -> dict[str, Any]:
    """Print a row."""
    figures = "".join(f"{row[name]:>9.1f}" for name in columns)
    ends = f"{row['verdict']}, {row['lines']} lines{what}"
    print(f"{steps:<8}{count:>7}{count * PODS_PER_NODE:>8}{figures}  {ends}", flush=True)
    return row


def irregular(folder: Path, shapes: tuple[Needs, ...], steps: int, layers: float, columns: tuple[str, ...]) -> None:
    """Graphs with random edges against the largest cluster, and how much longer they take than layers."""
    print(f"\n{'irregular, parallel':<23}" + "".join(f"{name:>9}" for name in columns) + "  to layers  verdict")
    for needs_of in shapes:
        for parallel in (None, CAP):
            (folder / "pipeline.yaml").write_text(pipeline(steps, needs_of, parallel))
            row = in_its_own_process("row", str(folder), YAML)
            figures = "".join(f"{row[name]:>9.1f}" for name in columns)
            what = f"{needs_of.__name__}, {parallel or 'any'}"
            ends = f"{row['all'] / layers:>9.1f}x  {row['verdict']}, {row['bounds']} of the peaks are bounds"
            print(f"{what:<23}{figures}{ends}", flush=True)


def simple_pod(index: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": str(index % 8 + 1), "memory": "16Gi"}, "limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": "registry.example.com/x:1", "resources": resources}
    return {"metadata": {"name": f"train-{index}"}, "spec": {"containers": [container]}}


def full_pod(index: int) -> dict[str, Any]:
    """A pod as an engine makes it: init container, sidecar, volumes, labels, node selector."""

    def container(name: str, cpu: str, memory: str, **more: Any) -> dict[str, Any]:
        amounts = {"cpu": cpu, "memory": memory}
        limits = {**amounts, **more.pop("devices", {})}
        resources = {"requests": amounts, "limits": limits}
        return {"name": name, "image": "registry.example.com/x:1", "resources": resources, **more}

    main = container(
        "main",
        str(index % 8 + 1),
        f"{index % 30 + 8}Gi",
        devices={"nvidia.com/gpu": "1"},
        env=[{"name": "INDEX", "value": str(index)}, {"name": "MODE", "value": "train"}],
        volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}, {"name": "data", "mountPath": "/data"}],
    )
    spec = {
        "restartPolicy": "Never",
        "serviceAccountName": "runner",
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "data", "emptyDir": {}}],
        "initContainers": [
            container("init", "500m", "512Mi"),
            container("logs", "100m", "256Mi", restartPolicy="Always"),
        ],
        "containers": [main],
    }
    labels = {"team": "nlp", "step": f"train-{index}"}
    return {"metadata": {"name": f"train-{index}", "namespace": NAMESPACE, "labels": labels}, "spec": spec}


def admissions(count: int) -> None:
    """How many pods a second are judged, every one of them another, all given as plain maps."""
    *quotas, limits = rules()
    small = {"metadata": {"name": "gpus"}, "spec": {"hard": {"requests.nvidia.com/gpu": "8"}}}
    print(f"\n{'admit':<58}{'a second':>10}")
    for what, make, surroundings in (
        ("one container, one quota of one key", simple_pod, {"quotas": [small]}),
        (
            "GPU, init and sidecar, two quotas of 8 keys, LimitRange",
            full_pod,
            {"quotas": quotas, "limit_ranges": [limits]},
        ),
    ):
        pods_ = [make(index) for index in range(count)]

        def every(pods_: Any = pods_, given: Any = surroundings) -> bool:
            return all(admit(pod, **given).allowed for pod in pods_)

        runs = [seconds(every) for _ in range(ROUNDS)]
        assert all(allowed for _, allowed in runs)
        print(f"{what:<58}{len(pods_) / min(took for took, _ in runs):>10,.0f}")


DRA = {"apiVersion": "resource.k8s.io/v1"}
GPU = "gpu.nvidia.com"
CLAIMED = HEAD.replace("queue: research, ", "") + (
    "  a: {command: [x], device_claim: {template: gpus}, for_each: {i: [0, 1, 2, 3]}}\n"
)


def device_objects(count: int, devices: int = 8) -> Iterator[dict[str, Any]]:
    """Nodes whose GPUs come through dynamic resource allocation, and a claim for two below one PCIe root."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    of_driver = [{"cel": {"expression": f"device.driver == '{GPU}' && device.attributes['{GPU}'].type == 'gpu'"}}]
    yield {**DRA, "kind": "DeviceClass", "metadata": {"name": GPU}, "spec": {"selectors": of_driver}}
    request = {"name": "r", "exactly": {"deviceClassName": GPU, "count": 2}}
    root = "resource.kubernetes.io/pcieRoot"
    spec = {"devices": {"requests": [request], "constraints": [{"requests": ["r"], "matchAttribute": root}]}}
    home = {"name": "gpus", "namespace": NAMESPACE}
    yield {**DRA, "kind": "ResourceClaimTemplate", "metadata": home, "spec": {"spec": spec}}
    for index in range(count):
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110"}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{index}"},
            "status": {"allocatable": amounts},
        }
        found = [
            {
                "name": f"gpu-{number}",
                "attributes": {"type": {"string": "gpu"}, root: {"string": f"pci0000:0{number // 2}"}},
                "capacity": {"memory": {"value": "80Gi"}},
            }
            for number in range(devices)
        ]
        pool = {"name": f"node-{index}", "generation": 1, "resourceSliceCount": 1}
        there = {"driver": GPU, "pool": pool, "nodeName": f"node-{index}", "devices": found}
        yield {**DRA, "kind": "ResourceSlice", "metadata": {"name": f"node-{index}"}, "spec": there}


class Case(NamedTuple):
    limit: float | None
    """CPU seconds of the whole command, start and imports too."""
    nodes: int
    pipelines: Callable[[bool], list[str]]
    """Their texts; `True`: the smallest sizes."""
    what: str
    form: str = JSON


def many_pipelines(smoke: bool) -> list[str]:
    dice = random.Random(3)
    texts = [pipeline(dice.randrange(2, 13), IRREGULAR[i % len(IRREGULAR)]) for i in range(3 if smoke else 200)]
    return [text.replace("name: bench", f"name: bench-{index}") for index, text in enumerate(texts)]


def graph_of(steps: int, needs_of: Needs) -> Callable[[bool], list[str]]:
    return lambda smoke: [pipeline(30 if smoke else steps, needs_of)]


CASES = {
    "small": Case(2, 5_000, lambda _: [pipeline(3)], "a pipeline of 3 steps"),
    "small-yaml": Case(None, 5_000, lambda _: [pipeline(3)], "the same, manifests as YAML", YAML),
    "pipelines": Case(20, 5_000, many_pipelines, "200 pipelines of 2 to 12 steps"),
    "devices": Case(None, 1_000, lambda _: [CLAIMED], "4 pods that claim 2 of 8 devices", "devices"),
    **{
        f"irregular-{steps}-{shape.__name__}": Case(
            30 if steps == 10_000 else None, 5_000, graph_of(steps, shape), f"{steps:,} steps, {shape.__name__}"
        )
        for steps in (1_000, 10_000)
        for shape in IRREGULAR
    },
}


def measure_case(case: Case, smoke: bool) -> None:
    """The case as a command, several times; the least of its CPU seconds, and the share of its limit."""
    count = 20 if smoke else case.nodes
    with tempfile.TemporaryDirectory() as name:
        cluster, files = Path(name, "cluster"), Path(name, "pipelines")
        cluster.mkdir()
        files.mkdir()
        if case.form == "devices":
            items = {"apiVersion": "v1", "kind": "List", "items": list(device_objects(count))}
            (cluster / "all.json").write_text(json.dumps(items))
        else:
            {JSON: write_snapshot, YAML: write_cluster}[case.form](cluster, count)
        for index, text in enumerate(case.pipelines(smoke)):
            (files / f"{index}.yaml").write_text(text)
        command = [sys.executable, "-m", "gpuflow", "check", *map(str, sorted(files.iterdir())), "--engine", "argo"]
        command += ["--cluster", str(cluster), "--namespace", NAMESPACE, "--format", "json"]
        command_seconds(command, Path(name))  # compiles the modules
        took = [command_seconds(command, Path(name))]
        while not smoke and len(took) < ROUNDS and sum(took) < PATIENCE:
            took.append(command_seconds(command, Path(name)))
    least = min(took)
    share = "" if case.limit is None else f"{case.limit:>8.0f}{least / case.limit:>8.2f}"
    print(f"{case.what:<40}{count:>7}{least:>8.2f}{share}", flush=True)


def command_seconds(command: list[str], folder: Path) -> float:
    """The CPU seconds of a command that answers."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONPATH": str(ROOT)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, 1) and json.loads(done.stdout), done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    if sys.argv[1:2] in (["row"], ["peer"]):
        what, folder = sys.argv[1], Path(sys.argv[2])
        print(json.dumps(measure(folder, sys.argv[3]) if what == "row" else peer(folder)))
        return
    parser = arguments(__doc__)
    parser.add_argument("--case", choices=CASES, action="append", default=[], help="only this one; may be repeated")
    options = parser.parse_args()
    smoke = options.smoke
    print(f"{'gpuflow check':<40}{'nodes':>7}{'s':>8}{'limit':>8}{'share':>8}")
    for case in options.case or (list(CASES)[:5] if smoke else CASES):  # the other shapes are the same code
        measure_case(CASES[case], smoke)
    if options.case:
        return
    admissions(FEW_PODS if smoke else PODS)
    # Each shape is two more processes, and the code is the same.
    whole_checks(FEW if smoke else ROWS, IRREGULAR[:1] if smoke else IRREGULAR)


if __name__ == "__main__":
    main()
