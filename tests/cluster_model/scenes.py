"""Small clusters as files, and a pipeline to ask about."""

from __future__ import annotations

from pathlib import Path

from tests.assumed import RECORD

PIPELINE = """apiVersion: gpuflow/v1
kind: Pipeline
name: p
defaults: {image: i, cpu: 1, memory: 1Gi}
steps:
  train: {command: [x], gpu: {model: a100-80gb, count: 2}}
"""
QUEUED = PIPELINE.replace("memory: 1Gi}", "memory: 1Gi, queue: research, retry: {interruptions: 2}}")

QUOTA = """apiVersion: v1
kind: ResourceQuota
metadata: {name: gpus, namespace: ns}
spec:
  hard:
    requests.nvidia.com/gpu: "8"
status:
  hard:
    requests.nvidia.com/gpu: "8"
  used:
    requests.nvidia.com/gpu: "0"
"""
LIMITS = """apiVersion: v1
kind: LimitRange
metadata: {name: sizes, namespace: ns}
spec:
  limits:
  - type: Container
    max:
      memory: 64Gi
      cpu: "8"
"""
NODE = """apiVersion: v1
kind: Node
metadata:
  name: n
  labels:
    nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB
status:
  allocatable:
    cpu: "64"
    memory: 512Gi
    pods: "110"
    nvidia.com/gpu: "8"
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: busy, namespace: other}
spec:
  nodeName: n
  containers:
  - name: main
    image: i
    resources:
      requests: {cpu: "1", nvidia.com/gpu: "1"}
      limits: {nvidia.com/gpu: "1"}
status: {phase: Running}
"""
FLAVOR = """apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a100}
spec:
  nodeLabels:
    nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB
"""
CLUSTER_QUEUE = """apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  cohortName: all
  resourceGroups:
  - coveredResources: [cpu, memory, nvidia.com/gpu]
    flavors:
    - name: a100
      resources:
      - {name: cpu, nominalQuota: 16}
      - {name: memory, nominalQuota: 64Gi}
      - {name: nvidia.com/gpu, nominalQuota: 4}
"""
LOCAL_QUEUE = """apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: research, namespace: ns}
spec: {clusterQueue: cq}
"""
COHORT = """apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: all}
spec: {}
"""
NAMESPACE = """apiVersion: v1
kind: Namespace
metadata: {name: ns, labels: {team: nlp}}
"""
QUEUES = "---\n".join((FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, COHORT, NAMESPACE))


def written(folder: Path, *texts: str) -> Path:
    """A folder with the pipeline beside a cluster of these documents; the cluster's path."""
    (folder / "p.yaml").write_text(PIPELINE)
    file = folder / "cluster.yaml"
    text = "---\n".join(texts)
    file.write_text(f"{text}\n---\n{RECORD}" if "kind: " in text and "metadata" in text else text)
    return file
