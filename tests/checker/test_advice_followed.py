"""Every line of advice, on random small pipelines and clusters, followed: what is printed holds."""

from __future__ import annotations

from collections import Counter

import pytest
import yaml

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.cluster import Cluster
from gpuflow.demands import demand_of
from gpuflow.report.text import render
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.assumed import ASSUMED
from tests.checker.followed_advice import advice
from tests.checker.kueue import scenes as kueue
from tests.checker.whole_scenes import HEAD, HOME, NAMESPACE, Body, manifest, node, queues, quota, running
from tests.differential.draw import Draw

PRODUCTS = {"a100-80gb": "NVIDIA-A100-SXM4-80GB", "h100-80gb": "NVIDIA-H100-80GB-HBM3", "l4-24gb": "NVIDIA-L4"}
CASES = 120


def drawn_steps(draw: Draw, has_queues: bool) -> str:
    """A few steps, some of them after others, as the text of a pipeline."""
    steps: dict[str, Body] = {}
    for index in range(draw.number(1, 4)):
        step: Body = {"command": ["x"], "cpu": draw.number(1, 3)}
        if draw.chance(0.7):
            step["gpu"] = f"{draw.pick((*PRODUCTS, 'any', 'a100-80gb sxm'))} x {draw.number(1, 3)}"
        if has_queues and draw.chance(0.7):
            step |= {"queue": "lq", "retry": {"interruptions": 1}}
        elif draw.chance(0.3):
            memory = {"factor": 2, "max": f"{draw.pick((4, 8))}Gi"}
            step |= {"memory": "2Gi", "retry": {"failures": 2, "more_memory": memory}}
        if draw.chance(0.3):
            step["for_each"] = {"i": {"range": draw.number(2, 5)}}
        elif draw.chance(0.15):
            step["gang"] = {"workers": draw.number(2, 3)}
        if steps and draw.chance(0.4):
            step["needs"] = [draw.pick(tuple(steps))]
        steps[f"s{index}"] = step
    return yaml.safe_dump({"steps": steps}, sort_keys=False)


def drawn_cluster(draw: Draw, has_queues: bool) -> list[Body]:
    """Nodes that are about as large as the steps, and what else is in the way."""
    found = []
    for index in range(draw.number(1, 3)):
        labels = {"nvidia.com/gpu.product": draw.pick(tuple(PRODUCTS.values())), "pool": draw.pick(("f", "g"))}
        size = draw.number(1, 8)
        found.append(node(f"n{index}", size, cpu=str(draw.number(3, 12)), pods=draw.number(1, 8), labels=labels))
        if draw.chance(0.3):
            found.append(running(f"x{index}", f"n{index}", draw.number(0, size)))
    if draw.chance(0.5):
        hard = {"requests.nvidia.com/gpu": str(draw.number(1, 9)), "pods": str(draw.number(2, 9))}
        metadata = {"name": "q", "namespace": NAMESPACE}
        status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
        found.append(
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": metadata,
                "spec": {"hard": hard},
                "status": status,
            }
        )
    if draw.chance(0.4):
        bounds = {"type": "Container", "max": {"memory": f"{draw.pick((2, 3, 4, 6))}Gi"}}
        metadata = {"name": "l", "namespace": NAMESPACE}
        found.append({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": [bounds]}})
    if has_queues:
        names = ("f", "g")[: draw.number(1, 2)]
        flavors = [kueue.flavor(name, nodeLabels={"pool": name} if draw.chance(0.7) else {}) for name in names]
        strategy = draw.pick(("BestEffortFIFO", "StrictFIFO"))
        found += queues({name: quota(draw.number(1, 8)) for name in names}, flavors=flavors, queueingStrategy=strategy)
    return found


def judged(text: str, objects: list[Body], engine: str) -> Report:
    cluster = Cluster("cluster.yaml", tuple(map(manifest, (HOME, *objects))), assumed=ASSUMED)
    return check(demand_of(loads(HEAD + text, "p.yaml"), Site.load("nvidia"), engine), cluster, NAMESPACE)


@pytest.mark.parametrize("part", range(4))
def test_every_line_of_advice_holds_when_it_is_followed(part: int) -> None:
    seen: Counter[str] = Counter()
    for number in range(part, CASES * 4, 4):
        draw = Draw(f"advice {number}")
        has_queues, engine = draw.chance(0.5), draw.pick(("none", "argo", "airflow"))
        text, objects = drawn_steps(draw, has_queues), drawn_cluster(draw, has_queues)
        if engine != "none" and "gang:" in text:
            engine = "none"  # no engine has gangs
        report = judged(text, objects, engine)
        lines = list(advice(text, report))
        assert sum(each.kind == "parallel" for each in lines) <= (report.verdict in ("may-queue", "unknown"))
        for each in lines:
            after = judged(each.text, objects, engine)
            assert each.is_kept(report, after), (number, each, render(report), render(after))
            seen[each.kind] += 1
        if report.verdict != "always" and report.scopes and any(each.code == "GF515" for each in report.findings):
            assert any(scope.verdict != "always" for scope in report.scopes), (number, render(report))
    assert seen["parallel"] >= 5
    assert seen["fewer"] + seen["fits"] >= 5
