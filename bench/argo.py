"""Seconds and bytes of an Argo manifest, against the same workflow hand-written in Hera: `python bench/argo.py`.

Three shapes: a chain of distinct *steps*, each with its own arguments and variable; one step over a list of *items*;
and one workflow with *both*, as many of each. Every step has a GPU, a selector, a toleration, labels, variables,
/dev/shm, a retry, a deadline and security contexts. Hera's side is what its users write: a `Container` for each
distinct step, tasks in a `DAG` with `depends` as text (`>>` is quadratic), `with_items` for the list, then
`to_yaml()`. gpuflow's side is the same workflow built in Python and compiled, so that neither reads a file; what
reading it from YAML takes instead stands beside it. Before anything is timed, the pods of both manifests are compared,
and how often and how soon they are retried; the expression that says which failures are is each side's own: Hera's is
the short one that its users write. Processor seconds, the better of two runs; of 10,000 one run, without Hera.

The last line compares `gpuflow.compile(path)` with its two halves, `load` and `compile_with`, for the steps of that
size, by the median of five turns. What is to be said about a pipeline is made when `.findings` is read, so it has both
figures, without them and with them.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from measuring import arguments, seconds

# This file has the name of what it measures, and its folder comes first where Python looks.
sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]

import yaml  # noqa: E402  # the path, or the environment, is set above
from hera.workflows import DAG, Container, Env, Parameter, RetryStrategy, Task, WorkflowTemplate, models  # noqa: E402  # the path, or the environment, is set above

import gpuflow  # noqa: E402  # the path, or the environment, is set above
from gpuflow.site import Site  # noqa: E402  # the path, or the environment, is set above
from gpuflow.spec.canonical import to_yaml  # noqa: E402  # the path, or the environment, is set above
from gpuflow.spec.loading import loads  # noqa: E402  # the path, or the environment, is set above
from gpuflow.spec.pipeline import Pipeline  # noqa: E402  # the path, or the environment, is set above
from gpuflow.targets.argo import target  # noqa: E402  # the path, or the environment, is set above
from gpuflow.targets.argo.references import BRACE_ENV  # noqa: E402  # the path, or the environment, is set above
from gpuflow.targets.target import Request, compile_with  # noqa: E402  # the path, or the environment, is set above

FASTER, SMALLER = {"steps": 8.0, "both": 5.0}, {"both": 4.0}
SIZES, SMOKE_SIZES = (100, 1_000, 10_000), (2, 3, 4)
"""The last is for gpuflow alone; the aim is for the one before."""
IMAGE = "registry.example.com/work:1"
EXPRESSION = (
    "!(lastRetry.status == 'Error' || asInt(lastRetry.exitCode) in [75, 143]) && !(asInt(lastRetry.exitCode) in [79])"
)
Shape = tuple[int, int]
"""How many distinct steps, and how many items."""
SHAPES: dict[str, Callable[[int], Shape]] = {
    "steps": lambda size: (size, 0),
    "items": lambda size: (0, size),
    "both": lambda size: (size, size),
}


def pipeline(shape: Shape) -> Pipeline:
    """The workflow in gpuflow's Python."""
    steps, items = shape
    defaults = {"image": IMAGE, "queue": "research", "labels": {"team": "nlp"}}
    asked: dict[str, Any] = {
        "cpu": 4,
        "memory": "16Gi",
        "gpu": "l4",
        "shm": "2Gi",
        "timeout": "1h",
        "retry": {"failures": 2, "backoff": {"start": "30s", "factor": 2}},
    }
    with gpuflow.Pipeline("bench", defaults=defaults) as made:
        before: Any = []
        for number in range(steps):
            env = {"PART": str(number), "A": "a", "B": "b"}
            command = ["python", "work.py", "--part", str(number), "--of", str(steps)]
            before = made.step(f"s{number}", command, needs=before, env=env, **asked)
        if items:
            loop = {"name": [f"item-{number}" for number in range(items)]}
            command = ["python", "item.py", "--name", {"item": "name"}]
            made.step("each", command, for_each=loop, env={"A": "a", "B": "b"}, **asked)
    return made


def ours(made: Pipeline, site: Site) -> str:
    """gpuflow's manifest."""
    return compile_with(target, Request(made, site, None, "bench.yaml"), allow_lossy=False).artifact.text


def theirs(shape: Shape) -> str:
    """The workflow in Hera, as its users write it."""
    steps, items = shape
    with WorkflowTemplate(name="bench", labels={"gpuflow.dev/pipeline": "bench"}, entrypoint="main") as workflow:
        containers = [
            _container(f"s{number}", ["python", "work.py", "--part", str(number), "--of", str(steps)], str(number))
            for number in range(steps)
        ]
        each = _container("each", ["python", "item.py", "--name", "{{inputs.parameters.name}}"], None)
        each.inputs = [Parameter(name="name")]
        with DAG(name="main"):
            for number, container in enumerate(containers):
                needs = f"s{number - 1}.Succeeded" if number else None
                Task(name=f"s{number}", template=container, depends=needs)
            if items:
                names = [f"item-{number}" for number in range(items)]
                Task(name="each", template=each, arguments={"name": "{{item}}"}, with_items=names)
        if not items:
            workflow.templates.remove(each)
    return str(workflow.to_yaml())


def _container(step: str, command: list[str], part: str | None) -> Container:
    amounts = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
    return Container(
        name=step,
        image=IMAGE,
        command=command,
        env=[*([Env(name="PART", value=part)] if part else []), Env(name="A", value="a"), Env(name="B", value="b")],
        labels={
            "team": "nlp",
            "gpuflow.dev/pipeline": "bench",
            "gpuflow.dev/step": step,
            "gpuflow.dev/team": "nlp",
            "kueue.x-k8s.io/queue-name": "research",
        },
        resources=models.ResourceRequirements(requests=amounts, limits=amounts),
        retry_strategy=RetryStrategy(
            limit="2",
            retry_policy="Always",
            expression=EXPRESSION,
            backoff=models.Backoff(duration="30s", factor="2"),
        ),
        active_deadline_seconds=3600,
        node_selector={"nvidia.com/gpu.product": "NVIDIA-L4"},
        pod_security_context=models.PodSecurityContext(
            run_as_non_root=True,
            run_as_user=1000,
            run_as_group=1000,
            fs_group=1000,
            seccomp_profile=models.SeccompProfile(type="RuntimeDefault"),
        ),
        security_context=models.SecurityContext(
            allow_privilege_escalation=False, capabilities=models.Capabilities(drop=["ALL"])
        ),
        tolerations=[models.Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")],
        volume_mounts=[models.VolumeMount(name="scratch-dev-shm", mount_path="/dev/shm")],
        volumes=[
            models.Volume(
                name="scratch-dev-shm", empty_dir=models.EmptyDirVolumeSource(medium="Memory", size_limit="2Gi")
            )
        ],
    )


def pods(text: str) -> dict[str, Any]:
    """What each task runs: its template with the task's arguments in their places, and variables in one order.

    Without gpuflow's own variable, and without the expression of the retry, which is each side's own.
    """
    templates = {template["name"]: template for template in yaml.safe_load(text)["spec"]["templates"]}
    result = {}
    for task in templates["main"]["dag"]["tasks"]:
        given = {entry["name"]: entry["value"] for entry in task.get("arguments", {}).get("parameters", [])}
        template = {key: value for key, value in templates[task["template"]].items() if key not in ("name", "inputs")}
        pod = _filled(template, given)
        pod["container"]["env"].sort(key=lambda variable: str(variable["name"]))
        del pod["retryStrategy"]["expression"]
        result[task["name"]] = task.get("depends"), task.get("withItems"), pod
    return result


def _filled(value: Any, given: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, given) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, given) for item in value if item != BRACE_ENV]
    if isinstance(value, str):
        return re.sub(r"\{\{inputs\.parameters\.([\w-]+)\}\}", lambda match: given[match[1]], value)
    return value


def best(work: Callable[[], object]) -> float:
    return min(seconds(work), seconds(work))


def main() -> int:
    smoke = arguments(__doc__).parse_args().smoke
    sizes, site = SMOKE_SIZES if smoke else SIZES, Site.load("nvidia")
    mine, its = pods(ours(pipeline((3, 2)), site)), pods(theirs((3, 2)))
    if mine != its:
        print("the two manifests do not run the same pods")
        print(*difflib.unified_diff(*(json.dumps(each, indent=1).splitlines() for each in (its, mine))), sep="\n")
        return 1
    print(
        f"{'':>14}  {'gpuflow':>9} {'from YAML':>10} {'Hera':>9} {'faster':>7}  {'KiB':>7} {'Hera':>7} {'smaller':>7}"
    )
    met = True
    for name, shape in SHAPES.items():
        for size in sizes:
            met &= _line(name, shape(size), size, site, sizes[-2])
    aim = f"{FASTER['steps']:g} times faster; with 1,000 items beside them {FASTER['both']:g}"
    told = "not measured" if smoke else "met" if met else "NOT MET"
    print(f"aim at 1,000 steps: {aim}, and {SMALLER['both']:g} times smaller: {told}")
    _front_door(sizes[-2], site, 1 if smoke else 9)
    return 0


def _front_door(size: int, site: Site, turns: int) -> None:
    """`gpuflow.compile(path)` against reading and compiling apart, in turns, so that a busy machine hits them alike."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "bench.yaml")
        path.write_text(to_yaml(pipeline((size, 0))))
        ways: tuple[Callable[[], object], ...] = (
            lambda: ours(gpuflow.load(path), site),
            lambda: gpuflow.compile(path, "argo", site=site).text,
            lambda: gpuflow.compile(path, "argo", site=site).findings,
        )
        for way in ways[:2]:
            way()  # its imports, and what only the first run makes, are not what is measured
        times: list[tuple[Callable[[], object], list[float]]] = [(way, []) for way in ways]
        for turn in range(turns):
            for way, took in times[:: -1 if turn % 2 else 1]:  # none of them always follows the same other
                took.append(seconds(way))
    apart, whole, told = (took for _, took in times)
    ratios = [median(each / one for each, one in zip(took, apart, strict=True)) for took in (whole, told)]
    print(
        f"{size:,} steps from a file, medians of {turns} turns: apart {median(apart):.2f}s, gpuflow.compile(path) "
        f"{median(whole):.2f}s ({ratios[0]:.2f} of that), with .findings {median(told):.2f}s ({ratios[1]:.2f})"
    )


def _line(name: str, shape: Shape, size: int, site: Site, largest: int) -> bool:
    """One line of the table; whether the aim is met where it is measured, at the largest size for Hera."""
    made = pipeline(shape)
    text, source = ours(made, site), to_yaml(made)
    measure = best if size <= largest else seconds
    fast = measure(lambda: ours(pipeline(shape), site))
    read = measure(lambda: ours(loads(source), site))
    mine = f"{name:>5} {size:>8,}  {fast:>8.2f}s {read:>9.2f}s"
    if size > largest:
        print(f"{mine} {'':>9} {'':>7}  {len(text) / 1024:>7.0f}")
        return True
    slow, long = best(partial(theirs, shape)), len(theirs(shape))
    times, ratio = slow / fast, long / len(text)
    print(f"{mine} {slow:>8.2f}s {times:>7.1f}  {len(text) / 1024:>7.0f} {long / 1024:>7.0f} {ratio:>7.1f}")
    return size != largest or (times >= FASTER.get(name, 0) and ratio >= SMALLER.get(name, 0))


if __name__ == "__main__":
    sys.exit(main())
