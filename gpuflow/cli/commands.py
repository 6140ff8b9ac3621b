"""The table of commands: name, one line, module. Kept free of imports so that `gpuflow --help` starts at once."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    summary: str
    module: str


COMMANDS: dict[str, Entry] = {
    "init": Entry("Write a small working pipeline, a site and a CI snippet", "gpuflow.cli.init"),
    "validate": Entry("Load and validate pipelines", "gpuflow.cli.validate"),
    "show": Entry("Show a pipeline as gpuflow understands it", "gpuflow.cli.show"),
    "demand": Entry("Show what a pipeline needs from the cluster at its peak", "gpuflow.cli.demand"),
    "check": Entry(
        "Check whether the cluster will admit a pipeline: always, after queueing, or never", "gpuflow.cli.check"
    ),
    "why": Entry("Say why a pod, workload, workflow or job waits now, and what would let it start", "gpuflow.cli.why"),
    "snapshot": Entry("Save what the checker needs from a live cluster to files; read-only", "gpuflow.cli.snapshot"),
    "compile": Entry("Compile pipelines for Argo, Airflow or Kubeflow", "gpuflow.cli.compile"),
    "argo": Entry("Print the ConfigMap of GPU semaphores that pipelines need in Argo", "gpuflow.cli.argo"),
    "airflow": Entry("Print the GPU pools that pipelines need in Airflow", "gpuflow.cli.airflow"),
    "import": Entry("Make a pipeline of an Argo, Kubeflow or Kubernetes file", "gpuflow.cli.importing"),
    "normalize": Entry("Write a file of another tool back, equal in content", "gpuflow.cli.normalize"),
    "gpus": Entry("List GPUs, MIG profiles and instance types; try MIG geometries", "gpuflow.cli.gpus"),
    "site": Entry("Show a site: what a cluster calls its GPUs, queues and labels", "gpuflow.cli.site"),
    "schema": Entry("Print the JSON Schema of a document, for editors", "gpuflow.cli.schema"),
    "explain": Entry("Explain an error or finding code", "gpuflow.cli.explain"),
    "demo": Entry("Compile and check a built-in example", "gpuflow.cli.demo"),
    "completion": Entry("Print a completion script for bash, zsh or fish", "gpuflow.cli.completion"),
}
