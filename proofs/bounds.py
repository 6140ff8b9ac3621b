"""Does every check end? `python -m proofs bounds --count 1000 --seed 1`

Draws documents and clusters that are made to keep a checker busy, and ordinary ones among them. Each check is a
process of its own, forked from one that has everything loaded, with 20 CPU seconds and 1 GiB beyond what was there
before. Prints the worst of both, and how often something was decided. Goes on where it was stopped: the answers are
kept in `build/adversarial-SEED.jsonl`. Exit codes: 0 every check ended with an answer and every ordinary one was
decided; 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from gpuflow.cli.main import main as gpuflow
from tests.conftest import ROOT

SECONDS: Final = 20
BYTES: Final = 1024**3
NAMESPACE: Final = "nlp"
GPU: Final = "gpu.nvidia.com"
API: Final = "resource.k8s.io/v1"
HEAD: Final = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: registry.example.com/x:1}\n"
DECIDED: Final = ("always", "may-queue", "never")

Body = dict[str, Any]
Draw = random.Random


class Case(NamedTuple):
    """A document and a cluster as the texts of files."""

    document: str
    cluster: str
    is_ordinary: bool = False
    document_name: str = "document.yaml"
    cluster_name: str = "cluster.json"


# Clusters -------------------------------------------------------------------------------------------------


def named(kind: str, name: str, api: str = "v1", namespace: str | None = None, **body: Any) -> Body:
    metadata: Body = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **body}


SHAPES = (
    ("64", "512Gi", 8), ("96", "1000Gi", 8), ("128", "2000Gi", 8), ("48", "384Gi", 4),
    ("32", "128Gi", 0), ("64", "256Gi", 0), ("96", "384Gi", 4), ("16", "64Gi", 0),
)  # fmt: skip


def node(draw: Draw, index: int, *, hostile: bool = False) -> Body:
    cpu, memory, gpus = SHAPES[index % len(SHAPES)]
    if hostile:
        cpu, memory = f"{draw.randrange(1000, 200_000)}m", str(draw.randrange(10**9, 10**12))
    amounts = {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "1000Gi"}
    labels = {"kubernetes.io/hostname": f"n{index}", "topology.kubernetes.io/zone": f"z{index % 3}"}
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
        labels["nvidia.com/gpu.product"] = "NVIDIA-A100-SXM4-80GB"
    found = named("Node", f"n{index}", status={"capacity": amounts, "allocatable": amounts})
    found["metadata"]["labels"] = labels
    found["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    found["spec"] = {}
    if hostile and draw.random() < 0.3:
        found["spec"]["taints"] = [
            {"key": f"t{draw.randrange(9)}", "value": "x", "effect": "NoSchedule"} for _ in range(3)
        ]
    return found


def bound(draw: Draw, index: int, nodes: int) -> Body:
    asked = {"cpu": str(draw.choice((1, 2, 4))), "memory": f"{draw.choice((1, 2, 4, 8))}Gi"}
    container = {"name": "m", "image": "x", "resources": {"requests": asked, "limits": asked}}
    spec = {"nodeName": f"n{index % nodes}", "containers": [container]}
    return named("Pod", f"b{index}", namespace=f"t{index % 50}", spec=spec, status={"phase": "Running"})


def quota(draw: Draw, index: int = 0, scale: int = 1) -> Body:
    hard = {"requests.cpu": str(draw.choice((40, 4000)) * scale), "pods": str(draw.choice((50, 1000)) * scale)}
    hard["requests.nvidia.com/gpu"] = str(draw.choice((8, 400)) * scale)
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    return named("ResourceQuota", f"q{index}", namespace=NAMESPACE, spec={"hard": hard}, status=status)


def cluster(draw: Draw, nodes: int, pods: int = 0, *more: Body, hostile: bool = False) -> list[Body]:
    items = [named("Namespace", NAMESPACE), *(node(draw, index, hostile=hostile) for index in range(nodes))]
    return [*items, *(bound(draw, index, nodes) for index in range(pods)), *more]


def as_json(items: list[Body]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


T = TypeVar("T")


def size_of(draw: Draw, *sizes: T) -> T:
    """One of some sizes, each half as often as the one before it: the extreme ones are rare, and never missing."""
    return draw.choices(sizes, [0.5**number for number in range(len(sizes))])[0]


def some_nodes(draw: Draw) -> tuple[int, int]:
    return size_of(draw, (20, 40), (200, 800), (1000, 3000), (5000, 20000))


# Graphs ---------------------------------------------------------------------------------------------------


def irregular(draw: Draw, count: int, window: int = 400, needs: int = 3, sizes: int = 20) -> str:
    """Each step with 1 to 3 needs among the 400 before it, 20 sizes, GPUs for 40 of a hundred."""
    shapes = [(draw.randint(1, 16), draw.choice((1, 2, 4, 8, 16, 24, 32, 64, 96))) for _ in range(sizes)]
    lines = ["steps:\n"]
    for index in range(count):
        before = sorted(
            {draw.randrange(max(0, index - window), index) for _ in range(draw.randint(1, needs))} if index else ()
        )
        cpu, memory = draw.choice(shapes)
        gpu = f", gpu: a100-80gb x {draw.choice((1, 2, 4, 8))}" if draw.random() < 0.4 else ""
        needed = ", ".join(f"s{each}" for each in before)
        lines.append(f"  s{index}: {{command: [x], cpu: {cpu}, memory: {memory}Gi{gpu}, needs: [{needed}]}}\n")
    return "".join(lines)


def graph_case(draw: Draw) -> Case:
    count = size_of(draw, 300, 1000, 2000, 3000, 10_000)
    kind = draw.choice(("irregular", "dense", "near", "any", "sizes"))
    given: dict[str, tuple[int, int, int]] = {
        "irregular": (400, 3, 20), "dense": (1000, 20, 20), "near": (5, 3, 20), "any": (10**6, 3, 5),
        "sizes": (400, 3, 2000),
    }  # fmt: skip
    window, needs, sizes = given[kind]
    if kind == "dense":
        count = min(count, 3000)
    cap = f"parallel: {draw.choice((3, 50, 200))}\n" if draw.random() < 0.3 else ""
    nodes, pods = some_nodes(draw)
    items = cluster(draw, nodes, pods, quota(draw), hostile=draw.random() < 0.3)
    return Case(HEAD + cap + irregular(draw, count, window, needs, sizes), as_json(items))


def fanout_case(draw: Draw) -> Case:
    """Wide fan-outs, within each other's needs, with caps of their own."""
    lines = ["steps:\n"]
    for index in range(size_of(draw, 3, 30, 200)):
        items = ", ".join(map(str, range(size_of(draw, 2, 50, 2000))))
        cap = f", parallel: {draw.randint(1, 20)}" if draw.random() < 0.5 else ""
        needs = f", needs: [s{draw.randrange(index)}]" if index and draw.random() < 0.6 else ""
        lines.append(
            f"  s{index}: {{command: [x], cpu: {draw.randint(1, 9)}, for_each: {{i: [{items}]}}{cap}{needs}}}\n"
        )
    cap = f"parallel: {draw.randint(1, 500)}\n" if draw.random() < 0.5 else ""
    nodes, pods = some_nodes(draw)
    return Case(HEAD + cap + "".join(lines), as_json(cluster(draw, nodes, pods, quota(draw))))


# Queues ---------------------------------------------------------------------------------------------------

KUEUE: Final = "kueue.x-k8s.io/v1beta2"


def queue_case(draw: Draw) -> Case:
    """Many flavors, queues and workloads, in deep trees of cohorts."""
    flavors, queues, depth = size_of(draw, 2, 8, 16), size_of(draw, 3, 40, 200), size_of(draw, 1, 10, 60)
    items: list[Body] = [named("ResourceFlavor", f"f{index}", KUEUE, spec={}) for index in range(flavors)]
    for index in range(depth):
        parent = {"parentName": f"c{index - 1}"} if index else {}
        items.append(named("Cohort", f"c{index}", KUEUE, spec=parent))
    covered = ["cpu", "memory", "nvidia.com/gpu"]
    for index in range(queues):
        rows = [
            {
                "name": f"f{number}",
                "resources": [
                    {"name": name, "nominalQuota": f"{draw.randint(1, 90)}{'Gi' if name == 'memory' else ''}"}
                    for name in covered
                ],
            }
            for number in range(flavors)
        ]
        spec = {"cohortName": f"c{draw.randrange(depth)}", "namespaceSelector": {}}
        groups = [{"coveredResources": covered, "flavors": rows}]
        preemption = {"preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}}
        items.append(named("ClusterQueue", f"q{index}", KUEUE, spec={**spec, **preemption, "resourceGroups": groups}))
    items.append(named("LocalQueue", "research", KUEUE, NAMESPACE, spec={"clusterQueue": "q0"}))
    for index in range(size_of(draw, 0, 50, 1000)):
        pod = {"containers": [{"name": "m", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}
        sets = [{"name": "main", "count": draw.randint(1, 4), "template": {"spec": pod}}]
        items.append(named("Workload", f"w{index}", KUEUE, NAMESPACE, spec={"queueName": "research", "podSets": sets}))
    head = HEAD.replace("x:1}", "x:1, queue: research}")
    nodes, pods = some_nodes(draw)
    return Case(head + irregular(draw, size_of(draw, 20, 300, 1000)), as_json(cluster(draw, nodes, pods, *items)))


# Devices --------------------------------------------------------------------------------------------------

PATTERNS = ("((.+)+)+Q$", "(a+)+$", "(a|aa)+$", "a*" * 40 + "b", "(.*)*" * 300 + "x", "(" * 45 + "a" + ")*" * 45 + "b")


def selector(draw: Draw, depth: int = 3) -> str:
    name = f"device.attributes['{GPU}'].productName"
    if depth and draw.random() < 0.7:
        left, right = selector(draw, depth - 1), selector(draw, depth - 1)
        return draw.choice((f"({left}) && ({right})", f"({left}) || ({right})", f"!({left})"))
    return draw.choice(
        (
            f"{name}.matches('{draw.choice(PATTERNS)}')",
            f"device.attributes['{GPU}'].index {draw.choice(('==', '!=', '<', '>='))} {draw.randrange(4)}",
            f"{name}.startsWith('a')",
            "(" * 55 + f"{name} == 'a'" + ")" * 55,
        )
    )


def device(draw: Draw, index: int, counters: bool) -> Body:
    attributes: Body = {"type": {"string": "gpu"}, "productName": {"string": "a" * draw.randint(1, 64) + "!"}}
    attributes |= {"index": {"int": index}, "numa": {"int": draw.randrange(3)}}
    found: Body = {"name": f"d{index}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}
    if counters:
        found["consumesCounters"] = [
            {"counterSet": f"set{index % 4}", "counters": {f"m{draw.randrange(8)}": {"value": "1"}}} for _ in range(1)
        ]
    elif draw.random() < 0.1:
        found["allowMultipleAllocations"] = True
    return found


def device_case(draw: Draw) -> Case:
    """Claims that are hard to satisfy: constraints, alternatives, counters, administrators, hostile selectors."""
    nodes, each = size_of(draw, (2, 4), (3, 128), (40, 16), (500, 8))
    counters = draw.random() < 0.3
    items = cluster(draw, nodes)
    if draw.random() < 0.8:
        items[0]["metadata"]["labels"] = {"resource.kubernetes.io/admin-access": "true"}
    expression = f"device.attributes['{GPU}'].type == 'gpu'"
    items.append(named("DeviceClass", GPU, API, spec={"selectors": [{"cel": {"expression": expression}}]}))
    for index in range(nodes):
        devices = [device(draw, number, counters) for number in range(each)]
        pool = {"name": f"n{index}", "generation": 1, "resourceSliceCount": 2 if counters else 1}
        spec: Body = {"driver": GPU, "pool": pool}
        where: Body = {"allNodes": True} if draw.random() < 0.1 else {"nodeName": f"n{index}"}
        items.append(named("ResourceSlice", f"s{index}", API, spec={**spec, **where, "devices": devices}))
        if counters:
            sets = [
                {"name": f"set{number}", "counters": {f"m{slot}": {"value": "2"} for slot in range(8)}}
                for number in range(4)
            ]
            items.append(named("ResourceSlice", f"c{index}", API, spec={**spec, **where, "sharedCounters": sets}))
    lines = ["steps:\n"]
    for number in range(size_of(draw, 1, 4, 12)):
        requests: list[Body] = []
        for index in range(draw.choice((1, 2, 6))):
            asked: Body = {"deviceClassName": GPU, "count": draw.choice((1, 2, 5, 16))}
            if draw.random() < 0.5:
                asked["selectors"] = [{"cel": {"expression": selector(draw)}}]
            if draw.random() < 0.3:
                choices = [{"name": f"a{way}", **asked, "count": way + 1} for way in range(8)]
                requests.append({"name": f"r{index}", "firstAvailable": choices})
                continue
            if draw.random() < 0.3:
                asked["adminAccess"] = True
            requests.append({"name": f"r{index}", "exactly": asked})
        constraint = draw.choice(("matchAttribute", "distinctAttribute"))
        more = {"constraints": [{constraint: f"{GPU}/{draw.choice(('numa', 'index'))}"}]} if draw.random() < 0.5 else {}
        claim: Body = {"spec": {"devices": {"requests": requests, **more}}}
        items.append(named("ResourceClaimTemplate", f"t{number}", API, NAMESPACE, spec=claim))
        over = f", for_each: {{i: [{', '.join(map(str, range(draw.choice((2, 40)))))}]}}" if draw.random() < 0.5 else ""
        lines.append(f"  s{number}: {{command: [x], device_claim: {{template: t{number}}}{over}}}\n")
    held = {"allocation": {"devices": {"results": [{"request": "r", "driver": GPU, "pool": "n0", "device": "d0"}]}}}
    items.append(named("ResourceClaim", "held", API, "others", spec={"devices": {"requests": []}}, status=held))
    return Case(HEAD + "".join(lines), as_json(items))


# Sizes ----------------------------------------------------------------------------------------------------


def size_case(draw: Draw) -> Case:
    """Files that are as large as they may be, with values as small as they get."""
    part, close = draw.choice(
        (
            ("1,", "]"),
            ("{},", "]"),
            ("[],", "]"),
            ("{a: 1},", "]"),
            ("a: 1\n", ""),
            ("- 1\n", ""),
            ("- a: 1\n", ""),
            ("<<: *m\n", ""),
        )
    )
    size = size_of(draw, 100_000, 4_000_000, 33_000_000)
    head = "m: &m {a: 1}\n" if part.startswith("<<") else ""
    body = part * (size // len(part))
    if part == "a: 1\n":
        body = "".join(f"k{number}: 1\n" for number in range(size // 11))
    text = head + ("x: [" if close else "" if head or body[0] == "k" else "x:\n") + body.rstrip(",") + close + "\n"
    ordinary = HEAD + "steps: {a: {command: [x], cpu: 1}}\n"
    where = draw.choice(("document", "manifest", "cluster", "json"))
    nodes = as_json(cluster(draw, 5))
    if where == "json":
        value = {"1,": "1", "{},": "{}", "[],": "[]"}.get(part, '{"a":"b"}')
        items = ",".join([value] * min(size * 3 // (len(value) + 1), 60_000_000))
        return Case(ordinary, f'{{"apiVersion":"v1","kind":"List","items":[{items}]}}')
    if where == "cluster":
        return Case(
            ordinary, f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n{text}", cluster_name="c.yaml"
        )
    if where == "manifest":
        text = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\n" + text
    return Case(HEAD + text if where == "document" else text, nodes)


# Other people's documents ---------------------------------------------------------------------------------


def argo_case(draw: Draw) -> Case:
    """A Workflow whose templates call each other: deep, wide, in a circle, over lists."""
    kind = draw.choice(("deep", "wide", "doubling", "circle", "list"))
    pod = {"image": "x", "command": ["x"], "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    templates: list[Body] = [{"name": "leaf", "container": pod}]
    depth = draw.choice((5, 20, 90, 400))

    def dag(name: str, *calls: str, **more: Any) -> Body:
        return {
            "name": name,
            "dag": {"tasks": [{"name": f"k{i}", "template": to, **more} for i, to in enumerate(calls)]},
        }

    if kind == "wide":
        templates.append(dag("t0", *["leaf"] * size_of(draw, 10, 500, 5000)))
    elif kind == "list":
        templates.append(dag("t0", "leaf", "leaf", withItems=list(range(draw.choice((10, 20_000))))))
        templates.append(dag("t1", "t0", withParam="{{workflow.parameters.list}}"))
    else:
        calls = 2 if kind == "doubling" else 1
        for index in range(depth):
            last = "t0" if kind == "circle" else "leaf"
            templates.append(dag(f"t{index}", *[f"t{index + 1}" if index + 1 < depth else last] * calls))
    spec: Body = {"entrypoint": "t1" if kind == "list" else "t0", "templates": templates}
    spec["arguments"] = {"parameters": [{"name": "list", "value": json.dumps(list(range(draw.choice((3, 5000)))))}]}
    if draw.random() < 0.4:
        spec["parallelism"] = draw.randint(1, 50)
    flow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": spec}
    nodes, pods = some_nodes(draw)
    return Case(json.dumps(flow), as_json(cluster(draw, nodes, pods, quota(draw))), document_name="w.json")


def placement_case(draw: Draw) -> Case:
    """A Job or Deployment with many terms of affinity, tolerations and spread constraints."""
    terms = [
        {
            "matchExpressions": [
                {"key": f"k{draw.randrange(20)}", "operator": draw.choice(("NotIn", "DoesNotExist")), **extra}
                for extra in ({"values": [f"v{draw.randrange(9)}" for _ in range(20)]},)
                for _ in range(20)
            ]
        }
        for _ in range(draw.choice((1, 20, 100)))
    ]
    for term in terms:
        for each in term["matchExpressions"]:
            if each["operator"] == "DoesNotExist":
                del each["values"]
    apart = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}} for _ in range(20)]
    spec: Body = {
        "restartPolicy": "Never",
        "containers": [{"name": "m", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        "tolerations": [{"key": f"t{index}", "operator": "Exists"} for index in range(draw.choice((1, 200)))],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
    }
    if draw.random() < 0.5:
        spec["affinity"]["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": apart}
    if draw.random() < 0.5:
        spec["topologySpreadConstraints"] = [
            {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
            for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
        ]
    count = size_of(draw, 1, 100, 10_000)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    job = named("Job", "j", "batch/v1", spec={"completions": count, "parallelism": count, "template": template})
    nodes, pods = some_nodes(draw)
    return Case(json.dumps(job), as_json(cluster(draw, nodes, pods, quota(draw), hostile=True)), document_name="j.json")


def mig_case(draw: Draw) -> Case:
    """Mixes of MIG profiles on nodes whose GPUs are cut in many ways."""
    profiles = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
    lines = ["steps:\n"]
    for index in range(size_of(draw, 5, 100, 800)):
        profile = draw.choice(profiles)
        needs = f", needs: [s{draw.randrange(index)}]" if index and draw.random() < 0.7 else ""
        lines.append(
            f"  s{index}: {{command: [x], mig: {{profile: {profile}, model: a100-80gb}}, memory: 4Gi{needs}}}\n"
        )
    items = cluster(draw, size_of(draw, 4, 300, 2000))
    for each in items[1:]:
        offers = {f"nvidia.com/mig-{profile}": str(draw.randrange(20)) for profile in profiles}
        each["status"]["allocatable"] |= offers
        each["status"]["capacity"] |= offers
        each["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-A100-SXM4-80GB"
    return Case(HEAD + "".join(lines), as_json(items))


def ordinary_case(draw: Draw) -> Case:
    """What people write: a dozen steps, a cluster as it is. It must be decided."""
    kind = draw.choice(("pipeline", "job", "devices"))
    nodes, pods = size_of(draw, (5, 20), (50, 200), (5000, 20000))
    items = cluster(draw, nodes, pods, quota(draw))
    if kind == "job":
        resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "1"}}
        spec = {"restartPolicy": "Never", "containers": [{"name": "m", "image": "x", "resources": resources}]}
        job = named("Job", "j", "batch/v1", spec={"completions": 3, "parallelism": 3, "template": {"spec": spec}})
        return Case(json.dumps(job), as_json(items), is_ordinary=True, document_name="j.json")
    if kind == "devices":
        items.append(
            named("DeviceClass", GPU, API, spec={"selectors": [{"cel": {"expression": f"device.driver == '{GPU}'"}}]})
        )
        for index in range(min(nodes, 50)):
            pool = {"name": f"n{index}", "generation": 1, "resourceSliceCount": 1}
            devices = [
                device(Draw(1), number, counters=False) | {"allowMultipleAllocations": False} for number in range(4)
            ]
            items.append(
                named(
                    "ResourceSlice",
                    f"s{index}",
                    API,
                    spec={"driver": GPU, "pool": pool, "nodeName": f"n{index}", "devices": devices},
                )
            )
        asked = {
            "deviceClassName": GPU,
            "count": 2,
            "selectors": [{"cel": {"expression": f"device.attributes['{GPU}'].index < 3"}}],
        }
        claim = {"spec": {"devices": {"requests": [{"name": "r", "exactly": asked}]}}}
        items.append(named("ResourceClaimTemplate", "t0", API, NAMESPACE, spec=claim))
        held: Body = {"allocation": {"devices": {"results": []}}}
        items.append(named("ResourceClaim", "held", API, "others", spec={"devices": {"requests": []}}, status=held))
        return Case(
            HEAD + "steps: {a: {command: [x], device_claim: {template: t0}}}\n", as_json(items), is_ordinary=True
        )
    return Case(HEAD + irregular(draw, draw.randint(2, 40), window=5), as_json(items), is_ordinary=True)


FAMILIES: dict[str, tuple[Callable[[Draw], Case], int]] = {
    "graphs": (graph_case, 5),
    "fan-outs": (fanout_case, 3),
    "queues": (queue_case, 3),
    "devices": (device_case, 5),
    "sizes": (size_case, 3),
    "Argo": (argo_case, 3),
    "placement": (placement_case, 2),
    "MIG": (mig_case, 2),
    "ordinary": (ordinary_case, 4),
}


def case_of(seed: int, number: int) -> tuple[str, Case]:
    draw = random.Random(f"{seed} {number}")
    family = draw.choices(list(FAMILIES), [weight for _, weight in FAMILIES.values()])[0]
    return family, FAMILIES[family][0](draw)


# One check ------------------------------------------------------------------------------------------------


def answer_of(number: int, family: str, case: Case) -> Body:
    """What a check in a child of this process says, and what it took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / case.document_name).write_text(case.document, encoding="utf-8")
        (folder / case.cluster_name).write_text(case.cluster, encoding="utf-8")
        is_ordinary = case.is_ordinary
        words = ["check", str(folder / case.document_name), "--cluster", str(folder / case.cluster_name)]
        words += [
            "--namespace",
            NAMESPACE,
            "--format",
            "json",
            *(["--site", "nvidia"] if case.document.startswith(HEAD[:20]) else []),
        ]
        del case
        out = folder / "answer.json"
        child = os.fork()
        if child == 0:
            _be_the_check(words, out)
        _, status, used = os.wait4(child, 0)
        said = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    answer = {"number": number, "family": family, "ordinary": is_ordinary, **said}
    answer["seconds"] = round(used.ru_utime + used.ru_stime, 2)
    answer["MiB"] = used.ru_maxrss // 1024
    if not said:
        answer["outcome"] = f"ended by the limits, status {status}"
    return answer


def _be_the_check(words: list[str], out: Path) -> None:
    """The child: the command within its limits, and its answer in a file."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (2 * BYTES, 2 * BYTES))
    said, errors = StringIO(), StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(errors):
            try:
                code: object = gpuflow(words)
            except SystemExit as end:
                code = end.code
        try:
            found = json.loads(said.getvalue())
            reports = found.get("reports", [found]) if isinstance(found, dict) else found
            outcome = ",".join(sorted({each["verdict"] for each in reports}))
        except (ValueError, KeyError, TypeError):
            words = [word.strip(":[]") for word in (errors.getvalue() + said.getvalue()).split()]
            outcome = next((f"refused {word}" for word in words if word.startswith("GF")), f"nothing, exit {code}")
        out.write_text(json.dumps({"outcome": outcome, "code": code}), encoding="utf-8")
    finally:
        os._exit(0)


# All of them ----------------------------------------------------------------------------------------------


def faults(answer: Body) -> Iterator[str]:
    """What is wrong with an answer."""
    if answer["outcome"].startswith(("ended", "nothing")) or "GF999" in answer["outcome"]:
        yield answer["outcome"]
    if answer["seconds"] > SECONDS:
        yield f"{answer['seconds']} CPU seconds"
    if answer["MiB"] * 1024**2 > BYTES:
        yield f"{answer['MiB']} MiB"
    if answer["ordinary"] and answer["outcome"] not in DECIDED:
        yield f"ordinary, and {answer['outcome']}"


def warm_up() -> None:
    """Load all that a check loads, so that each child begins with it."""
    with tempfile.TemporaryDirectory() as name:
        document, around = Path(name, "p.yaml"), Path(name, "c.json")
        document.write_text(HEAD + "steps: {a: {command: [x], cpu: 1}}\n", encoding="utf-8")
        around.write_text(as_json(cluster(random.Random(1), 2)), encoding="utf-8")
        words = ["check", str(document), "--site", "nvidia", "--cluster", str(around), "--namespace", NAMESPACE]
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            gpuflow(words)


def prove(count: int, seed: int, kept: Path) -> int:
    warm_up()
    kept.parent.mkdir(parents=True, exist_ok=True)
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
    answers = {each["number"]: each for each in map(json.loads, lines)}
    for number in range(count):
        if number in answers:
            continue
        answers[number] = answer_of(number, *case_of(seed, number))
        with kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(answers[number]) + "\n")
        for fault in faults(answers[number]):
            print(f"check {number} ({answers[number]['family']}): {fault}", flush=True)
    chosen = [answers[number] for number in range(count)]
    wrong = sum(any(faults(each)) for each in chosen)
    for family in FAMILIES:
        own = [each for each in chosen if each["family"] == family]
        if own:
            kinds = Counter(_kind(each["outcome"]) for each in own)
            worst = f"worst {max(each['seconds'] for each in own):.1f} CPU s, {max(each['MiB'] for each in own)} MiB"
            print(
                f"{family:<10} {len(own):>4}: "
                + ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds))
                + f"; {worst}"
            )
    kinds = Counter(_kind(each["outcome"]) for each in chosen)
    seconds, memory = max(each["seconds"] for each in chosen), max(each["MiB"] for each in chosen)
    told = ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds))
    print(f"{count} checks, seed {seed}: {told}; worst {seconds:.1f} CPU s and {memory} MiB; {wrong} wrong")
    return 1 if wrong else 0


def _kind(outcome: str) -> str:
    return "decided" if outcome in DECIDED else outcome.split()[0].rstrip(",")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs bounds", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="one check by its number, whatever is kept")
    chosen = parser.parse_args(arguments)
    if chosen.only is not None:
        print(json.dumps(answer_of(chosen.only, *case_of(chosen.seed, chosen.only))))
        return 0
    return prove(chosen.count, chosen.seed, ROOT / "build" / f"adversarial-{chosen.seed}.jsonl")


if __name__ == "__main__":
    sys.exit(main())
