"""Processor seconds to compile for Kubeflow, against kfp's own compiler: `python bench/kubeflow.py`.

The same chain of steps twice: as gpuflow YAML, read from a file and compiled into one; and as kfp code, built and
compiled into a file. Each step has a GPU, a selector, a toleration, a label, three variables, /dev/shm, a retry, a
timeout and a parameter. Both run in turn, so that a busy machine hits them alike, and the best of three runs counts.
kfp reads no file: what reading YAML takes, and what it and the checks of the document take, stands apart, and the
second line compares kfp with the rest. The last sizes are gpuflow's alone, once each: time per task stays what it was.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

from gpuflow import yaml_tree
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.frame import Request, compile_with
from gpuflow.targets.kubeflow import target

SIZES = (100, 1000)
ALONE = (5000, 10000)
RUNS = 3
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


def ours(source: Path, site: Site, path: Path) -> None:
    """gpuflow: YAML in, YAML out."""
    request = Request(loads(source.read_bytes()), site, None, "chain.yaml")
    path.write_text(compile_with(target, request, allow_lossy=False).artifact.text, encoding="utf-8")


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


def best(*works: Callable[[], object]) -> list[float]:
    """The best of three runs of each, in turn."""
    runs = [[seconds(work) for work in works] for _ in range(RUNS)]
    return [min(times) for times in zip(*runs, strict=True)]


def main() -> None:
    site = Site.load("nvidia")
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "chain.yaml"), Path(folder, "made.yaml")
        given.write_text(source(2))
        ours(given, site, made)
        theirs(2, made)
        head = ("tasks", "gpuflow", "of it YAML", "and checks", "kfp", "times faster", "KiB")
        print("{:>6}  {:>9}  {:>10}  {:>10}  {:>9}  {:>12}  {:>6}".format(*head))
        for steps in SIZES:
            text = source(steps)
            given.write_text(text)
            works = (
                partial(ours, given, site, made),
                partial(theirs, steps, made),
                partial(yaml_tree.parse, text, "chain.yaml"),
                partial(loads, text),
            )
            fast, slow, tree, reading = best(*works)
            ours(given, site, made)
            size = made.stat().st_size // 1024
            print(
                f"{steps:>6}  {fast:>8.2f}s  {tree:>9.2f}s  {reading - tree:>9.2f}s  {slow:>8.2f}s  "
                f"{slow / fast:>12.1f}  {size:>6}"
            )
            rest = fast - reading
            print(f"{'':>6}  {rest:>8.2f}s  {'without both':>22}  {'':>9}  {slow / rest:>12.1f}", flush=True)
        print("gpuflow alone, file to file:")
        for steps in (*SIZES, *ALONE):
            given.write_text(source(steps))
            taken = seconds(partial(ours, given, site, made))
            print(f"{steps:>6}  {taken:>8.2f}s  {taken / steps * 1000:>10.2f} ms a task", flush=True)


if __name__ == "__main__":
    main()
