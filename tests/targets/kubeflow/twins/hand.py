"""What every hand-written twin needs: the labels, the identity and the caching that gpuflow gives each step."""

from __future__ import annotations

from typing import Any

from kfp import dsl
from kfp import kubernetes as k8s

IMAGE = "registry.example.com/work:1"
RUN_LABEL = "metadata.labels['pipeline/runid']"
A100 = ["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe", "NVIDIA-A800-SXM4-80GB"]


def step(task: dsl.PipelineTask, pipeline: str, name: str, **labels: str) -> dsl.PipelineTask:
    """A task as gpuflow leaves every step: labeled, not root, not cached."""
    for key, value in {**labels, "gpuflow.dev/pipeline": pipeline, "gpuflow.dev/step": name}.items():
        k8s.add_pod_label(task, key.replace("queue_name", "kueue.x-k8s.io/queue-name"), value)
    if task.container_spec.command[0] == "gpuflow-run":
        k8s.use_field_path_as_env(task, env_name="GPUFLOW_RUN_RUN_ID", field_path=RUN_LABEL)
    k8s.set_security_context(task, run_as_user=1000, run_as_group=1000, run_as_non_root=True)
    return task.set_caching_options(False)


def on_gpu_nodes(task: dsl.PipelineTask, products: list[str] | None = None) -> None:
    """Tolerate the taint of GPU nodes, and ask for one of these products."""
    k8s.add_toleration(task, key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
    if products:
        expression = {"key": "nvidia.com/gpu.product", "operator": "In", "values": products}
        k8s.add_node_affinity(task, match_expressions=[expression])


def supervised(
    pipeline: str, name: str, outputs: dict[str, tuple[str, Any]], *command: Any, item: Any = None
) -> list[Any]:
    """The supervisor's words before a step's own command, as its guide gives them."""
    words: list[Any] = ["gpuflow-run", f"--pipeline={pipeline}", f"--step={name}"]
    if item is not None:
        words.append(f"--item={item}")
    words += [f"--output={key}:{kind}" for key, (kind, _) in outputs.items()]
    words += [f"--deliver={key}={path}" for key, (_, path) in outputs.items()]
    return [*words, "--engine=kubeflow", "--outputs-dir=/tmp/gpuflow/outputs", "--", *command]
