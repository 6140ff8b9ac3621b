"""Twins about one step's pod: devices, volumes, environment, placement, retries, time limits."""

from typing import Any

from kfp import dsl
from kfp import kubernetes as k8s

from tests.targets.kubeflow.twins.hand import A100, IMAGE, on_gpu_nodes, step


def _one(pipeline: str, name: str, *, config: Any = None) -> tuple[Any, Any]:
    """A component without inputs, and a decorator for the pipeline around it."""

    def body() -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=[name])

    body.__name__ = name
    return dsl.container_component(body), dsl.pipeline(name=pipeline, pipeline_config=config)


GPU = """
name: whole-gpus
defaults: {image: "registry.example.com/work:1"}
steps:
  train: {command: [train], gpu: a100-80gb x 2, memory: 200Gi, cpu: 16, shm: 16Gi}
"""


def gpu() -> Any:
    train, decorate = _one("whole-gpus", "train")

    @decorate
    def pipeline() -> None:
        task = step(train(), "whole-gpus", "train").set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(2)
        task.set_memory_request("200Gi").set_memory_limit("200Gi").set_cpu_request("16").set_cpu_limit("16")
        k8s.empty_dir_mount(task, volume_name="shm", mount_path="/dev/shm", medium="Memory", size_limit="16Gi")
        on_gpu_nodes(task, A100)

    return pipeline


MIG = """
name: slices
defaults: {image: "registry.example.com/work:1"}
steps:
  infer: {command: [infer], mig: 1g.10gb of a100-80gb x 2}
"""


def mig() -> Any:
    infer, decorate = _one("slices", "infer")

    @decorate
    def pipeline() -> None:
        task = step(infer(), "slices", "infer").set_accelerator_type("nvidia.com/mig-1g.10gb").set_accelerator_limit(2)
        on_gpu_nodes(task, A100)

    return pipeline


SHARED = """
name: shares
defaults: {image: "registry.example.com/work:1"}
steps:
  serve: {command: [serve], shared_gpu: {by: mps}}
"""


def shared() -> Any:
    serve, decorate = _one("shares", "serve")

    @decorate
    def pipeline() -> None:
        task = step(serve(), "shares", "serve").set_accelerator_type("nvidia.com/gpu.shared").set_accelerator_limit(1)
        k8s.add_node_selector(task, "nvidia.com/gpu.sharing-strategy", "mps")
        on_gpu_nodes(task)

    return pipeline


TRIES = """
name: tries
deadline: 2d
defaults: {image: "registry.example.com/work:1"}
steps:
  work: {command: [work], timeout: 1h, retry: {failures: 3, backoff: {start: 30s, factor: 2, max: 10m}}}
"""


def tries() -> Any:
    work, decorate = _one("tries", "work", config=dsl.PipelineConfig(active_deadline_seconds=2 * 86400))

    @decorate
    def pipeline() -> None:
        task = step(work(), "tries", "work")
        # KFP counts from when the first pod was made, the wait for its node included: ten years cut no retry off.
        task.set_retry(num_retries=3, backoff_duration="30s", backoff_factor=2, backoff_max_duration=f"{3650 * 86400}s")
        k8s.set_timeout(task, 3600)

    return pipeline


QUEUED = """
name: queued
labels: {team: nlp}
defaults: {image: "registry.example.com/work:1", queue: research}
steps:
  work: {command: [work], priority: {queue: high}, annotations: {example.com/note: "as it is"}, cache: true}
"""


def queued() -> Any:
    work, decorate = _one("queued", "work")

    @decorate
    def pipeline() -> None:
        task = step(work(), "queued", "work", queue_name="research", team="nlp").set_caching_options(True)
        k8s.add_pod_label(task, "gpuflow.dev/team", "nlp")
        k8s.add_pod_label(task, "kueue.x-k8s.io/priority-class", "high")
        k8s.add_pod_annotation(task, "example.com/note", "as it is")

    return pipeline


FILES = """
name: files
defaults: {image: "registry.example.com/work:1"}
steps:
  work:
    command: [work]
    volumes:
      /data: {claim: datasets, sub_path: train}
      /settings: {config_map: settings}
      /keys: {secret: keys}
      /scratch: {empty_dir: 50Gi}
      /fast: {memory: 4Gi}
"""


def files() -> Any:
    work, decorate = _one("files", "work")

    @decorate
    def pipeline() -> None:
        task = step(work(), "files", "work")
        k8s.mount_pvc(task, pvc_name="datasets", mount_path="/data", sub_path="train")
        k8s.use_config_map_as_volume(task, config_map_name="settings", mount_path="/settings")
        k8s.use_secret_as_volume(task, secret_name="keys", mount_path="/keys")
        k8s.empty_dir_mount(task, volume_name="fast", mount_path="/fast", medium="Memory", size_limit="4Gi")
        k8s.empty_dir_mount(task, volume_name="scratch", mount_path="/scratch", size_limit="50Gi")

    return pipeline


VARIABLES = """
name: variables
defaults: {image: "registry.example.com/work:1", image_pull_policy: Always, image_pull_secrets: [registry, mirror]}
steps:
  work:
    command: [work]
    env:
      MODE: fast
      TOKEN: {secret: hub, key: token}
      LEVEL: {config_map: settings, key: level, optional: true}
"""


def variables() -> Any:
    work, decorate = _one("variables", "work")

    @decorate
    def pipeline() -> None:
        task = step(work(), "variables", "work").set_env_variable("MODE", "fast")
        k8s.use_secret_as_env(task, secret_name="hub", secret_key_to_env={"token": "TOKEN"})
        k8s.use_config_map_as_env(
            task, config_map_name="settings", config_map_key_to_env={"level": "LEVEL"}, optional=True
        )
        k8s.set_image_pull_policy(task, "Always")
        k8s.set_image_pull_secrets(task, ["registry", "mirror"])

    return pipeline


PLACED = """
name: placed
defaults: {image: "registry.example.com/work:1"}
steps:
  work:
    command: [work]
    security: {user: 7, group: 8}
    kubernetes:
      node_selector: {disk: ssd}
      tolerations: [{key: dedicated, value: batch, effect: NoExecute, toleration_seconds: 60}]
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - {weight: 50, preference: {matchExpressions: [{key: zone, operator: In, values: [a]}]}}
"""


def placed() -> Any:
    work, decorate = _one("placed", "work")

    @decorate
    def pipeline() -> None:
        task = step(work(), "placed", "work")
        k8s.set_security_context(task, run_as_user=7, run_as_group=8, run_as_non_root=True)
        k8s.add_node_selector(task, "disk", "ssd")
        k8s.add_toleration(
            task, key="dedicated", operator="Equal", value="batch", effect="NoExecute", toleration_seconds=60
        )
        zone = {"key": "zone", "operator": "In", "values": ["a"]}
        k8s.add_node_affinity(task, match_expressions=[zone], weight=50)

    return pipeline
