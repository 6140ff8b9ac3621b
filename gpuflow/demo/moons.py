"""The program of moons.yaml: a small network in plain Python learns to tell two half moons apart.

The same data and the same number of epochs give the same bits, however often the training is interrupted.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
from pathlib import Path

from gpuflow.runtime import checkpointing

Points = list[tuple[float, float, int]]  # where each is, and which moon it belongs to
Network = list[list[float]]  # of each hidden unit two weights, a bias, and its weight in the answer
RATE = 0.05


def make_moons(count: int, seed: int) -> Points:
    chance, points = random.Random(seed), Points()
    for number in range(count):
        moon, angle = number % 2, chance.uniform(0, math.pi)
        x, y = (1 - math.cos(angle), 0.5 - math.sin(angle)) if moon else (math.cos(angle), math.sin(angle))
        points.append((x + chance.gauss(0, 0.15), y + chance.gauss(0, 0.15), moon))
    return points


def answer(network: Network, x: float, y: float) -> tuple[float, list[float]]:
    """How likely it is the second moon, and what the hidden units say."""
    hidden = [math.tanh(unit[0] * x + unit[1] * y + unit[2]) for unit in network]
    return 1 / (1 + math.exp(-sum(unit[3] * said for unit, said in zip(network, hidden, strict=True)))), hidden


def learn(network: Network, points: Points, epoch: int) -> float:
    """One epoch; the mean loss."""
    loss = 0.0
    for x, y, moon in random.Random(epoch).sample(points, len(points)):
        likely, hidden = answer(network, x, y)
        loss -= math.log(max(likely if moon else 1 - likely, 1e-12))
        for unit, said in zip(network, hidden, strict=True):
            slope = RATE * (likely - moon)
            inside = slope * unit[3] * (1 - said * said)
            unit[0] -= inside * x
            unit[1] -= inside * y
            unit[2] -= inside
            unit[3] -= slope * said
    return loss / len(points)


def train(data: str, epochs: int) -> tuple[float, Network]:
    points = json.loads(Path(data).read_text())
    chance = random.Random(0)
    epoch, loss, network = 0, 0.0, [[chance.gauss(0, 1) for _ in range(4)] for _ in range(8)]

    def write_state(path: str) -> None:
        Path(path).write_text(json.dumps([epoch, loss, network]))

    with checkpointing() as ckpt:
        if ckpt.resume_from:
            epoch, loss, network = json.loads(Path(ckpt.resume_from).read_text())
        print(f"begins at epoch {epoch} of {epochs}", flush=True)
        while epoch < epochs:
            loss, epoch = learn(network, points, epoch), epoch + 1
            if ckpt.due() or epoch % 100 == 0:
                ckpt.save(write_state)
                print(f"saved epoch {epoch}, loss {loss:.4f}", flush=True)
            if ckpt.interrupted:
                sys.exit("stops as told")
    return loss, network


def main(task: str, *words: str) -> None:
    outputs = Path(os.environ["GPUFLOW_OUTPUTS"])
    if task == "prepare":
        (outputs / "data").write_text(json.dumps(make_moons(200, seed=0)))
    elif task == "train":
        loss, network = train(words[0], int(words[1]))
        (outputs / "loss").write_text(f"{loss:.6f}")
        (outputs / "model").write_text(json.dumps(network))
    elif task == "evaluate":
        network, points = json.loads(Path(words[0]).read_text()), make_moons(500, seed=int(words[1]))
        right = sum((answer(network, x, y)[0] > 0.5) == bool(moon) for x, y, moon in points)
        (outputs / "accuracy").write_text(str(right / len(points)))
    elif task == "report":
        scores = json.loads(words[0])
        (outputs / "accuracy").write_text(f"{sum(scores) / len(scores):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
