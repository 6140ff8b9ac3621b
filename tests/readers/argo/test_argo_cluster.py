"""On a running Argo: its controller makes the pods that the reader says, and as many at once.

The pods ask for nodes that do not exist, so that they stay and can be counted.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gpuflow.demands import Demand
from gpuflow.readers import Options, documents_of, foreign_in
from tests.cluster.conftest import argo, cluster, namespace, private_cluster, proof_ground, workflows
from tests.cluster.kube import Kube
from tests.cluster.waiting import until
from tests.readers.argo.reading import SITE

__all__ = ["argo", "cluster", "namespace", "private_cluster", "proof_ground", "workflows"]
pytestmark = pytest.mark.cluster

PODS = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: pods}
spec:
  entrypoint: main
  arguments: {parameters: [{name: gpus, value: "2"}, {name: mem, value: 3Gi}]}
  nodeSelector: {from: workflow}
  tolerations: [{key: all, operator: Exists}]
  schedulerName: mine
  podMetadata: {labels: {team: a, kind: all}}
  securityContext: {runAsUser: 5}
  hostAliases: [{ip: 10.0.0.1, hostnames: [x]}]
  templateDefaults:
    container: {imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 30m}}, env: [{name: Z, value: z}]}
  podSpecPatch: |
    {"terminationGracePeriodSeconds": 7, "containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]}
  volumes: [{name: data, emptyDir: {}}, {name: unused, emptyDir: {}}]
  templates:
  - name: main
    nodeSelector: {from: around}
    dag:
      tasks:
      - {name: plain, template: plain}
      - {name: own, template: own}
      - {name: patched, template: patched, arguments: {parameters: [{name: mem, value: "{{workflow.parameters.mem}}"}]}}
      - {name: set, template: set}
      - {name: script, template: script}
      - name: each
        template: item
        withItems: [{gpus: 1}, {gpus: 4}]
        arguments: {parameters: [{name: g, value: "{{item.gpus}}"}]}
      - {name: inner, template: inner}
      - {name: skipped, template: plain, when: "{{workflow.parameters.gpus}} == 3"}
      - {name: seq, template: plain, withSequence: {start: "3", end: "1"}}
  - name: plain
    container: {image: busybox, command: [x], volumeMounts: [{name: data, mountPath: /d}]}
  - name: own
    nodeSelector: {from: own}
    tolerations: [{key: gpu, operator: Exists}]
    schedulerName: fast
    securityContext: {runAsUser: 9}
    activeDeadlineSeconds: 500
    metadata: {labels: {kind: gpu}}
    container: {image: busybox, command: [x], env: [{name: YY, value: "y"}], resources: {limits: {nvidia.com/gpu: 1}}}
    sidecars: [{name: side, image: busybox, command: [x], resources: {requests: {cpu: 10m}}}]
    initContainers: [{name: first, image: busybox, command: [x], resources: {requests: {memory: 1Gi}}}]
  - name: patched
    inputs: {parameters: [{name: mem}]}
    retryStrategy: {limit: 2, affinity: {nodeAntiAffinity: {}}}
    podSpecPatch: |
      containers:
      - {name: main, resources: {limits: {memory: "{{inputs.parameters.mem}}"}}}
      - {name: wait, resources: {requests: {cpu: 77m}}}
      runtimeClassName: null
      tolerations: [{key: patched, operator: Exists}]
    container: {image: busybox, command: [x]}
  - name: set
    containerSet:
      volumeMounts: [{name: data, mountPath: /x}]
      containers:
      - {name: one, image: busybox, command: [x], resources: {requests: {cpu: 50m}}}
      - {name: two, image: busybox, command: [x], dependencies: [one]}
      - {name: main, image: busybox, command: [x], dependencies: [two]}
  - name: script
    script: {image: busybox, command: [sh], source: "echo", resources: {requests: {memory: 99Mi}}}
  - name: item
    inputs: {parameters: [{name: g}]}
    podSpecPatch: |
      {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "{{inputs.parameters.g}}"}}}]}
    container: {image: busybox, command: [x]}
  - name: inner
    steps:
    - - {name: deep, template: plain}
      - {name: deeper, inline: {container: {image: busybox, command: [x], resources: {limits: {memory: 5Gi}}}}}
"""
COMPARED = (
    "affinity", "hostAliases", "nodeSelector", "restartPolicy", "runtimeClassName", "schedulerName",
    "securityContext", "terminationGracePeriodSeconds",
)  # fmt: skip
OF_ARGO = ("init", "wait")
OF_KUBERNETES = ("argo-staging", "kube-api-access", "tmp-dir-argo", "var-run-argo")
"""Volumes that Argo and Kubernetes add."""
LEAF = """
  - name: a
    container: {image: busybox, command: [x]}
"""
HEAD = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: NAME}
spec:
  entrypoint: main
  nodeSelector: {nowhere: "true"}
"""
COUNTED = {
    "all-at-once": ("  templates:\n  - {name: main, steps: [[{name: s, template: a, withSequence: {count: 7}}]]}", 7),
    "pods-of-the-workflow": (
        "  parallelism: 3\n  templates:\n"
        "  - {name: main, steps: [[{name: s, template: pair, withSequence: {count: 7}}]]}\n"
        "  - {name: pair, steps: [[{name: x, template: a}, {name: y, template: a}]]}",
        3,
    ),
    "children-of-a-template": (
        "  templates:\n"
        "  - {name: main, parallelism: 2, steps: [[{name: s, template: pair, withSequence: {count: 7}}]]}\n"
        "  - {name: pair, steps: [[{name: x, template: a}, {name: y, template: a}]]}",
        4,
    ),
    "children-that-are-pods": (
        "  templates:\n  - name: main\n    parallelism: 3\n    dag:\n      tasks:\n"
        "      - {name: s, template: a, withSequence: {count: 4}}\n      - {name: t, template: a}",
        3,
    ),
    "items-left-out": (
        "  templates:\n  - name: main\n    steps:\n    - - name: s\n        template: a\n"
        "        withItems: [1, 2, 3, 4]\n        when: '{{item}} > 2'",
        2,
    ),
    "target": (
        "  templates:\n  - name: main\n    dag:\n      target: s\n      tasks:\n"
        "      - {name: s, template: a}\n      - {name: t, template: a}",
        1,
    ),
}


def demand_of(document: dict[str, Any]) -> Demand:
    (found,) = foreign_in(documents_of([document], "w.yaml"))[0]
    demand = found.demand(Options(SITE, "argo"))
    assert isinstance(demand, Demand)
    return demand


def pods_of(kube: Kube, workflow: str, count: int) -> list[dict[str, Any]]:
    """The pods of a workflow, when there are so many."""

    def listed() -> list[dict[str, Any]] | None:
        text = kube("get", "pods", "-l", f"workflows.argoproj.io/workflow={workflow}", "-o", "json")
        found: list[dict[str, Any]] = json.loads(text)["items"]
        return found if len(found) >= count else None

    found = until(f"{count} pods of {workflow}", listed)
    assert found is not None
    return found


def seen(pod: Any) -> dict[str, Any]:
    """What quota, queue and scheduler see of a pod that the controller made."""
    spec, found = pod["spec"], {}
    for field in COMPARED:
        if spec.get(field):
            found[field] = spec[field]
    found["tolerations"] = [
        each for each in spec.get("tolerations", ()) if not each.get("key", "").startswith("node.kubernetes.io/")
    ]
    found["labels"] = pod["metadata"]["labels"]
    for group in ("containers", "initContainers"):
        for container in spec.get(group, ()):
            if container["name"] not in OF_ARGO:
                resources = container.get("resources", {})
                limits = {key: str(each) for key, each in resources.get("limits", {}).items()}
                requests = {key: str(each) for key, each in resources.get("requests", {}).items()}
                found[f"{group} {container['name']}"] = limits, {**limits, **requests}
    names = [each["name"] for each in spec.get("volumes", ())]
    found["volumes"] = sorted(name for name in names if not name.startswith(OF_KUBERNETES))
    return found


def test_argo_makes_the_pods_that_are_read(workflows: Kube) -> None:
    document = yaml.safe_load(PODS)
    demand = demand_of(document)
    ours = [seen(step.pod) for step in demand.steps for _ in range(step.copies or 0)]
    workflows.apply(document)
    theirs = [seen(pod) for pod in pods_of(workflows, "pods", len(ours))]
    assert _alone(ours, theirs) == []


def _alone(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is in only one of the two lists."""
    left = list(theirs)
    alone = []
    for each in ours:
        if each in left:
            left.remove(each)
        else:
            alone.append(each)
    return [*alone, *left]


@pytest.mark.parametrize("name", sorted(COUNTED))
def test_argo_starts_as_many_at_once_as_are_read(name: str, workflows: Kube) -> None:
    text, count = COUNTED[name]
    document = yaml.safe_load(HEAD.replace("NAME", name) + text + LEAF)
    bound = demand_of(document).peak["pods"]
    assert (bound.bound, str(bound.value)) == ("exact", str(count))
    workflows.apply(document)
    pods_of(workflows, name, count)
    workflows("patch", "workflow", name, "--type=merge", "-p", '{"metadata": {"labels": {"again": "true"}}}')
    assert len(pods_of(workflows, name, count)) == count  # looked at once more, it has no more
