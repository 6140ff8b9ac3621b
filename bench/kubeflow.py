"""Processor seconds to compile for Kubeflow, against kfp's own compiler: `python bench/kubeflow.py`.

The same chain of steps twice: as gpuflow YAML, read from a file and compiled into one; and as kfp code, built and
compiled into a file. Each step has a GPU, memory, a selector, a toleration, a label, three variables, /dev/shm, a user,
a retry, a timeout, a parameter, and waits for the one before. Before anything is timed, both files are read and every
task in one is compared with its fellow in the other (`facts`). Only gpuflow's own two labels and the name of a volume
differ, and kfp hands a task its number as an input, where gpuflow writes it into the command.

Both run in turn, so that a busy machine hits them alike, each time in a process of its own, as people compile: a copy
of one in which both have compiled twenty tasks before, so that neither pays for its imports, or for what the other
left in memory. What counts is the processor time of that process. kfp's takes long enough to even out what other
guests of a shared machine take from its caches; gpuflow's is over in half a second, so a turn runs it before kfp's and
after it, and has the median. The median over the turns is shown, and the median of the ratios of each turn. kfp reads
no file: what reading YAML takes, and what the checks of the document take, stands apart, and the second line compares
kfp with the rest. The last sizes are gpuflow's alone, the best of three: time per task stays what it was.
"""

import gc
import json
import os
import resource
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import yaml
from measuring import arguments

from gpuflow.core import yaml_tree
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.kubeflow import target
from gpuflow.targets.target import Request, compile_with

SIZES, FEW = (100, 1000), (2, 4)
ALONE, FEW_ALONE = (5000, 10000), (8,)
RUNS, BESIDE, AIM = 5, 3, 25
"""Turns, how often a turn runs what is short on either side of kfp's, and how many times faster than kfp at 1,000
tasks, by processor time."""
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
            task.set_retry(num_retries=2, backoff_duration="30s", backoff_factor=2, backoff_max_duration="315360000s")
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


def facts(path: Path) -> list[dict[str, Any]]:
    """What a compiled file says of each task, in the order of the chain, without the names that each side chooses."""
    spec, platform = yaml.load_all(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    executors = spec["deploymentSpec"]["executors"]
    settings = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    tasks = spec["root"]["dag"]["tasks"]
    follows = {tuple(task.get("dependentTasks", ())): name for name, task in tasks.items()}
    found, name = [], follows[()]
    while name is not None:
        label = spec["components"][tasks[name]["componentRef"]["name"]]["executorLabel"]
        container, config = dict(executors[label]["container"]), dict(settings[label])
        container["command"] = [_number(word, tasks[name]) for word in container["command"]]
        labels = config.pop("podMetadata")["labels"]
        config["labels"] = {key: value for key, value in labels.items() if not key.startswith("gpuflow.dev/")}
        config["emptyDirMounts"] = [{**each, "volumeName": "shm"} for each in config["emptyDirMounts"]]
        text = tasks[name]["inputs"]["parameters"]["text"]
        retry, cached = tasks[name]["retryPolicy"], tasks[name]["cachingOptions"]
        found.append({"container": container, "config": config, "text": text, "retry": retry, "cached": cached})
        name = follows.get((name,))
    assert len(found) == len(tasks), "not one chain"
    return found


def _number(word: str, task: dict[str, Any]) -> str:
    """kfp's tasks are handed their number as an input; gpuflow's have it in the command."""
    given = task["inputs"]["parameters"].get("number")
    return given["runtimeValue"]["constant"] if given and "'number'" in word else word


def measured(work: Callable[[], object]) -> tuple[float, float, int]:
    """Processor and wall seconds, and most MiB, of a process that does nothing else."""
    reader, writer = os.pipe()
    gc.collect()
    gc.freeze()
    child = os.fork()
    if not child:
        wall, start = perf_counter(), process_time()
        work()
        times = process_time() - start, perf_counter() - wall
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        os.write(writer, json.dumps([*times, peak]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    assert text, "it ended with an error"
    cpu, wall, peak = json.loads(text)
    return cpu, wall, peak


def in_turn(runs: int, long: Callable[[], object], *short: Callable[[], object]) -> list[list[tuple[float, float]]]:
    """The times of each, turn after turn: the long one once, each short one as often before it as after it."""
    turns = []
    for _ in range(runs):
        before = [[measured(work)[:2] for _ in range(BESIDE)] for work in short]
        once = measured(long)[:2]
        both = [times + [measured(work)[:2] for _ in range(BESIDE)] for times, work in zip(before, short, strict=True)]
        turns.append([once, *((median(cpu for cpu, _ in times), median(wall for _, wall in times)) for times in both)])
    return [list(times) for times in zip(*turns, strict=True)]


def compare(steps: int, runs: int, site: Site, given: Path, made: Path, peer: Path) -> float:
    """Two lines of the table. How many times faster it is, by processor time."""
    text = source(steps)
    given.write_text(text)
    works = (
        partial(theirs, steps, peer),
        partial(ours, given, site, made),
        partial(yaml_tree.parse, text, "chain.yaml"),
        partial(loads, text),
    )
    times = in_turn(runs, *works)
    slow, fast, tree, reading = (median(cpu for cpu, _ in each) for each in times)
    pairs = list(zip(times[1], times[0], strict=True))
    ratios = [median(slower[kind] / faster[kind] for faster, slower in pairs) for kind in (0, 1)]
    rest = fast - reading
    print(
        f"{steps:>6}  {fast:>8.3f}s  {tree:>9.3f}s  {reading - tree:>9.3f}s  {slow:>8.2f}s  {ratios[0]:>12.1f}  "
        f"{ratios[1]:>7.1f}  {made.stat().st_size // 1024:>6}  {peer.stat().st_size // 1024:>6}"
    )
    print(f"{'':>6}  {rest:>8.3f}s  {'without both':>22}  {'':>9}  {slow / rest:>12.1f}", flush=True)
    return ratios[0]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, help=f"how often each is measured ({RUNS})")
    options = parser.parse_args()
    sizes, alone = (FEW, FEW_ALONE) if options.smoke else (SIZES, ALONE)
    runs = options.runs or (1 if options.smoke else RUNS)
    site = Site.load("nvidia")
    with tempfile.TemporaryDirectory() as folder:
        given, made, peer = (Path(folder, name) for name in ("chain.yaml", "made.yaml", "peer.yaml"))
        given.write_text(source(20))
        ours(given, site, made)
        theirs(20, peer)
        assert facts(made) == facts(peer), "the two files do not hold the same tasks"
        head = ("tasks", "gpuflow", "of it YAML", "and checks", "kfp", "times faster", "by wall", "KiB", "kfp's")
        print("{:>6}  {:>9}  {:>10}  {:>10}  {:>9}  {:>12}  {:>7}  {:>6}  {:>6}".format(*head))
        for steps in sizes:
            faster = compare(steps, runs, site, given, made, peer)
        told = "not measured" if options.smoke else "met" if faster >= AIM else "NOT MET"
        print(f"aim at {sizes[-1]:,} tasks: {AIM} times faster: {told}")
        print("gpuflow alone, file to file:")
        for steps in (*sizes, *alone):
            given.write_text(source(steps))
            taken, _, peak = min(measured(partial(ours, given, site, made)) for _ in range(runs))
            each = taken / steps * 1000
            print(f"{steps:>6}  {taken:>8.2f}s  {each:>10.3f} ms a task  {peak:>6} MiB at most", flush=True)


if __name__ == "__main__":
    main()
