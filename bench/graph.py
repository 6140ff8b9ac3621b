"""Processor seconds for the worst moment of large pipelines: `python bench/graph.py`.

Three shapes at 1,000 and 10,000 steps. `build` makes the tree, `first` solves one key and reduces the structure,
`eight` solves eight more keys, `cap` solves one key under a cap on pods. Weights are memory sizes people write.
"""

import random
from collections.abc import Callable

from measuring import arguments, seconds

from gpuflow.graph import Dag, Leaf, peak

STEPS, FEW_STEPS = (1_000, 10_000), (100, 200)
KEYS = [f"key-{number}" for number in range(9)]
SIZES = [0, 1, 2, 4, 8, 16, 32, 64, 128, 200]
CAP = 64
Graph = dict[str, list[str]]


def layered(steps: int) -> Graph:
    """Layers of a hundred; every step is needed by eight random ones of the next: no reduction helps."""
    dice = random.Random(1)
    width = 100
    graph: Graph = {}
    for step in range(steps):
        first = (step // width + 1) * width
        later = sorted({first + dice.randrange(width) for _ in range(8)})
        graph[f"s{step}"] = [f"s{other}" for other in later if other < steps]
    return graph


def fans(steps: int) -> Graph:
    """Over and over: a step, sixteen chains of two after it, and a step that waits for all of them."""
    graph: Graph = {f"s{step}": [] for step in range(steps)}
    names = list(graph)
    turn = 33
    for start in range(0, steps, turn):
        heads, tails = names[start + 1 : start + 17], names[start + 17 : start + turn]
        graph[names[start]] = heads
        for head, tail in zip(heads, tails, strict=False):
            graph[head] = [tail]
        for tail in tails:
            graph[tail] = names[start + turn : start + turn + 1]
    return graph


def dense(steps: int) -> Graph:
    """Lists of thirty, each step of one needed by every step of the next."""
    width = 30
    return {
        f"s{i}": [f"s{j}" for j in range((i // width + 1) * width, min(steps, (i // width + 2) * width))]
        for i in range(steps)
    }


def measure(shape: Callable[[int], Graph], steps: int) -> list[float]:
    graph = shape(steps)
    dice = random.Random(2)
    leaves = {name: Leaf(name, {key: dice.choice(SIZES) for key in KEYS}) for name in graph}
    capped = Dag(leaves, graph, parallel=CAP)
    dag: list[Dag] = []
    return [
        seconds(lambda: dag.append(Dag(leaves, graph))),
        seconds(lambda: peak(dag[0], KEYS[0])),
        seconds(lambda: [peak(dag[0], key) for key in KEYS[1:]]),
        seconds(lambda: peak(capped, KEYS[0])),
    ]


def main() -> None:
    sizes = FEW_STEPS if arguments(__doc__).parse_args().smoke else STEPS
    print(f"{'shape':<9}{'steps':>7}{'edges':>8}{'build':>8}{'first':>8}{'eight':>8}{'cap':>8}")
    for shape in (layered, fans, dense):
        rows = {steps: measure(shape, steps) for steps in sizes}
        for steps, row in rows.items():
            edges = sum(map(len, shape(steps).values()))
            print(f"{shape.__name__:<9}{steps:>7}{edges:>8}" + "".join(f"{value:>8.2f}" for value in row))
        growth = [large / small for small, large in zip(*rows.values(), strict=True)]
        print(f"{'':<9}{'growth':>15}" + "".join(f"{value:>7.1f}x" for value in growth))


if __name__ == "__main__":
    main()
