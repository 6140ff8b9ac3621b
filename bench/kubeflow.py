"""Processor seconds to compile for Kubeflow, against kfp's own compiler: `python bench/kubeflow.py`.

The same chain of steps twice: as gpuflow YAML, read and compiled; and as kfp code, built and compiled. Each step has a
GPU, a selector, a toleration, a label, three variables, /dev/shm, a retry, a timeout and a parameter. The better of
two runs each. kfp reads no file: the second line compares its build and compile with gpuflow's compile alone. The last
sizes are gpuflow's alone, once each: time per task stays what it was.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.frame import Request, compile_with
from gpuflow.targets.kubeflow import target

SIZES = (100, 1000)
ALONE = (5000, 10000)
HEAD = """apiVersion: gpuflow/v1
kind: Pipeline
name: chain
params: {text: go}
defaults: {image: "registry.example.com/work:1", queue: research}
steps:
"""
STEP = """  s{number}:
    command: [work, "{number}", {{param: text}}]
    needs: [{needs}]
    gpu: l4
    memory: 16Gi
    shm: 2Gi
    env: {{A: a, B: b, C: c}}
    retry: {{failures: 2, backoff: {{start: 30s, factor: 2}}}}
    timeout: 1h
"""


def source(steps: int) -> str:
    """The chain as gpuflow reads it."""
    parts = (STEP.format(number=i, needs=f"s{i - 1}" if i else "") for i in range(steps))
    return HEAD + "".join(parts)


def ours(text: str, site: Site) -> str:
    """gpuflow: YAML in, YAML out."""
    request = Request(loads(text), site, None, "chain.yaml")
    return compile_with(target, request, allow_lossy=False).artifact.text


def theirs(steps: int, path: Path) -> None:
    """kfp: code in, YAML out."""
    from kfp import compiler, dsl
    from kfp import kubernetes as k8s

    @dsl.container_component
    def work(number: str, text: str) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image="registry.example.com/work:1", command=["work", number, text])

    @dsl.pipeline(name="chain")
    def chain(text: str = "go") -> None:
        before: Any = None
        for number in range(steps):
            task = work(number=str(number), text=text).set_caching_options(False)
            task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)
            task.set_memory_request("16Gi").set_memory_limit("16Gi")
            task.set_retry(num_retries=2, backoff_duration="30s", backoff_factor=2, backoff_max_duration="10890s")
            for name, value in {"A": "a", "B": "b", "C": "c"}.items():
                task.set_env_variable(name, value)
            k8s.add_pod_label(task, "kueue.x-k8s.io/queue-name", "research")
            k8s.add_node_selector(task, "nvidia.com/gpu.product", "NVIDIA-L4")
            k8s.add_toleration(task, key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
            k8s.empty_dir_mount(task, volume_name="shm", mount_path="/dev/shm", medium="Memory", size_limit="2Gi")
            k8s.set_timeout(task, 3600)
            k8s.set_security_context(task, run_as_user=1000, run_as_group=1000, run_as_non_root=True)
            if before is not None:
                task.after(before)
            before = task

    compiler.Compiler().compile(chain, str(path))


def seconds(work: Callable[[], object]) -> float:
    start = process_time()
    work()
    return process_time() - start


def main() -> None:
    site = Site.load("nvidia")
    ours(source(2), site)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "chain.yaml")
        theirs(2, path)
        print(f"{'tasks':>6}  {'gpuflow':>9}  {'of it reading':>13}  {'kfp':>9}  {'times faster':>12}  {'KiB':>6}")
        for steps in SIZES:
            text = source(steps)
            reading, fast, slow = (
                min(seconds(work), seconds(work))
                for work in (partial(loads, text), partial(ours, text, site), partial(theirs, steps, path))
            )
            size = len(ours(text, site)) // 1024
            print(f"{steps:>6}  {fast:>8.2f}s  {reading:>12.2f}s  {slow:>8.2f}s  {slow / fast:>12.1f}  {size:>6}")
            print(f"{'':>6}  {fast - reading:>8.2f}s  {'without it':>13}  {'':>9}  {slow / (fast - reading):>12.1f}")
    print("gpuflow alone, file to file:")
    for steps in (*SIZES, *ALONE):
        taken = seconds(partial(ours, source(steps), site))
        print(f"{steps:>6}  {taken:>8.2f}s  {taken / steps * 1000:>10.2f} ms a task")


if __name__ == "__main__":
    main()
