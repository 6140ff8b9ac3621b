"""Seconds for starting the command, loading a pipeline and working out its demand: `python bench/spec.py`.

Start-up is compared with a bare interpreter in the same run. Loading and demand are CPU seconds, which other work on
the machine does not change, at 1,000 and 10,000 steps of the same shape: layers of a hundred, each step waiting for
eight of the layer before, every third on GPUs.
"""

import random
import subprocess
import sys
from time import perf_counter
from typing import Any

from measuring import arguments, seconds

from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.canonical import to_yaml
from gpuflow.spec.loading import loads

TRIES = 7
SIZES, FEW = (1_000, 10_000), (100, 200)
LAYER, NEEDS = 100, 8
HEAD = """apiVersion: gpuflow/v1
kind: Pipeline
name: bench
defaults: {image: registry.example.com/x:1, labels: {team: nlp}, cpu: 1, memory: 2Gi}
steps:
"""


def document(steps: int) -> str:
    """A pipeline of this many steps, as YAML."""
    dice = random.Random(1)
    lines = [HEAD]
    for index in range(steps):
        before = index // LAYER - 1
        needs = sorted({before * LAYER + dice.randrange(LAYER) for _ in range(NEEDS)}) if before >= 0 else []
        lines.append(f"  s{index}:\n    command: [python, work.py, --index, '{index}']\n    outputs: {{rows: int}}\n")
        lines.append(f"    needs: [{', '.join(f's{need}' for need in needs)}]\n" if needs else "")
        lines.append("    gpu: a100-80gb x 2\n    memory: 64Gi\n" if index % 3 == 0 else "")
    return "".join(lines)


def start_up(tries: int) -> None:
    """The best of a few tries: what the machine's other work adds is not ours."""
    commands = {
        "python -c pass": ["-c", "pass"],
        "gpuflow --version": ["-m", "gpuflow.cli.main", "--version"],
        "gpuflow --help": ["-m", "gpuflow.cli.main", "--help"],
        "gpuflow explain GF101": ["-m", "gpuflow.cli.main", "explain", "GF101"],
        "gpuflow schema": ["-m", "gpuflow.cli.main", "schema"],
    }
    bare = None
    print(f"{'start-up':<28}{'seconds':>10}{'of bare python':>16}")
    for name, words in commands.items():
        took = min(seconds(lambda words=words: _run(words), perf_counter) for _ in range(tries))
        bare = took if bare is None else bare
        print(f"{name:<28}{took:>10.3f}{took / bare:>15.1f}x")


def _run(words: list[str]) -> None:
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)


def large_pipelines(sizes: tuple[int, ...]) -> None:
    """Load, demand and canonical YAML, with how each grows when the pipeline grows tenfold."""
    site = Site.load("nvidia")
    rows: dict[int, dict[str, float]] = {}
    print(f"\n{'steps':<10}{'edges':>8}{'load':>10}{'demand':>10}{'show':>10}")
    for steps in sizes:
        text, held = document(steps), list[Any]()
        row = {
            "load": seconds(lambda text=text, held=held: held.append(loads(text, "bench.yaml"))),
            "demand": seconds(lambda held=held: demand_of(held[0], site).peak),
            "show": seconds(lambda held=held: to_yaml(held[0])),
        }
        rows[steps] = row
        edges = sum(len(step.needs) for step in held[0].steps.values())
        print(f"{steps:<10}{edges:>8}" + "".join(f"{value:>10.2f}" for value in row.values()))
    small, large = rows.values()
    print(f"{'growth':<18}" + "".join(f"{large[name] / small[name]:>9.1f}x" for name in small))


def main() -> None:
    smoke = arguments(__doc__).parse_args().smoke
    start_up(1 if smoke else TRIES)
    large_pipelines(FEW if smoke else SIZES)


if __name__ == "__main__":
    main()
