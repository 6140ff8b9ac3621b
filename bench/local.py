"""What `gpuflow run` costs per step, beside kfp's own local runner: `python bench/local.py`, where kfp is installed.

The same chain of steps twice: as a gpuflow pipeline by `gpuflow run`, each step under its supervisor, and as a kfp
pipeline by kfp.local with its SubprocessRunner, without virtual environments and without pip. A step of ours starts
`python -c pass`, one of kfp's an empty function. Each run is a process of its own, and both run in turn, so that a busy
machine hits them alike. What counts is the processor time of that process and of all that it started and waited for.
Two lengths are run: their difference is what a step costs, the rest is the start. What the step's own program takes
(for both, Python that does nothing) is measured too, and taken off what is called overhead. Medians over the turns.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from measuring import arguments

ROOT = Path(__file__).resolve().parents[1]
LENGTHS, FEW = (2, 12), (1, 2)
TURNS, AIM = 5, 0.3
"""Turns, and the most CPU seconds that a step of `gpuflow run` may take beside its program."""
HEAD = """apiVersion: gpuflow/v1
kind: Pipeline
name: chain
defaults: {image: "registry.example.com/work:1", cpu: 100m}
steps:
"""
STEP = "  s{number}: {{command: [{python}, -c, pass]{needs}}}\n"
KFP = """import sys
from kfp import dsl, local
@dsl.component(install_kfp_package=False)
def nothing(number: int): pass
@dsl.pipeline
def chain():
    before = None
    for number in range(int(sys.argv[1])):
        task = nothing(number=number)
        before = task.after(before) if before else task
local.init(local.SubprocessRunner(use_venv=False), pipeline_root=sys.argv[2])
chain()
"""


def pipeline(length: int) -> str:
    needs = [f", needs: [s{number - 1}]" if number else "" for number in range(length)]
    steps = (STEP.format(number=number, python=sys.executable, needs=each) for number, each in enumerate(needs))
    return HEAD + "".join(steps)


def cost(words: list[str], folder: Path) -> tuple[float, float]:
    """CPU and wall seconds of a command with all that it waited for."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{words} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def commands(length: int, folder: Path) -> dict[str, list[str]]:
    """What is run of each, in this order in each turn."""
    (folder / f"chain{length}.yaml").write_text(pipeline(length))
    (folder / "chain.py").write_text(KFP)
    return {
        "gpuflow run": [sys.executable, "-m", "gpuflow", "run", f"chain{length}.yaml"],
        "kfp.local": [sys.executable, "chain.py", str(length), str(folder / "outputs")],
    }


def main() -> None:
    options = arguments(__doc__).parse_args()
    lengths, turns = (FEW, 1) if options.smoke else (LENGTHS, TURNS)
    few, many = lengths
    program: list[float] = []
    starts: dict[str, list[float]] = {}
    steps: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        short, long = commands(few, folder), commands(many, folder)
        for words in short.values():
            cost(words, folder)  # compiles modules and fills caches
        for _ in range(turns):
            program.append(cost([sys.executable, "-c", "pass"], folder)[0])
            for tool in short:
                (cpu, wall), (more_cpu, more_wall) = cost(short[tool], folder), cost(long[tool], folder)
                each = (more_cpu - cpu) / (many - few), (more_wall - wall) / (many - few)
                steps.setdefault(tool, []).append(each)
                starts.setdefault(tool, []).append(cpu - few * each[0])
    own = median(program)
    print(f"seconds per step, chains of {few} and {many} steps, medians of {turns} turns")
    print(f"{'':14}{'CPU':>8}{'overhead':>10}{'wall':>8}{'start, CPU':>12}")
    overheads = {}
    for tool, found in steps.items():
        cpu, wall = median(each for each, _ in found), median(each for _, each in found)
        overheads[tool] = cpu - own
        print(f"{tool:14}{cpu:8.3f}{cpu - own:10.3f}{wall:8.3f}{median(starts[tool]):12.3f}")
    print(f"{'the program':14}{own:8.3f}")
    ours, theirs = overheads.values()
    ratio = median(b / a for (a, _), (b, _) in zip(*steps.values(), strict=True))
    print(f"a step of kfp.local takes {ratio:.1f} times the CPU of one of gpuflow run, programs included")
    aim = "within" if ours <= AIM else "above"
    print(f"overhead of gpuflow run per step: {ours:.3f} s CPU, {aim} the aim of {AIM} s; of kfp.local: {theirs:.3f} s")


if __name__ == "__main__":
    main()
