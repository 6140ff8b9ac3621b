"""Pipelines that share a claim, on small clusters, played in every order and on every node that the engines allow.

The player imports nothing of the checker. A pod is put on any node with room that reaches the volume; the volume comes
to the first pod and may stay in its part of the cluster; a disk is on one node at a time.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import pytest

from tests.checker.findings.snapshots import HOME, shown
from tests.checker.findings.test_d_volumes import (
    GPU,
    HOST,
    ZONE,
    csi_nodes,
    driver,
    host,
    pipeline,
    step,
    storage_class,
)

MODES = ("WaitForFirstConsumer", "Immediate")
CASES = 60
"""For each seed."""


class Scene(NamedTuple):
    nodes: tuple[tuple[str, int, str], ...]
    """Name, GPUs and zone."""
    steps: tuple[tuple[bool, bool, frozenset[int]], ...]
    """Whether it asks for a GPU, whether it mounts the claim, and the steps that it waits for."""
    keys: tuple[str, ...]
    is_disk: bool
    mode: str

    @property
    def text(self) -> str:
        made = []
        for number, (gpu, mounts, needs) in enumerate(self.steps):
            more = (GPU if gpu else "") + (
                f", needs: [{', '.join(f's{each}' for each in sorted(needs))}]" if needs else ""
            )
            made.append(step(f"s{number}", more) if mounts else f"s{number}: {{command: [x]{more}}}")
        return pipeline(", ".join(made), "ReadWriteOnce" if self.is_disk else "ReadWriteMany")

    @property
    def verdict(self) -> str:
        nodes = [host(name, gpus, zone) for name, gpus, zone in self.nodes]
        names = [name for name, _, _ in self.nodes]
        return shown(
            self.text, HOME, *nodes, storage_class(self.mode), driver(), *csi_nodes(*names, keys=self.keys)
        ).verdict


def scene(draw: random.Random) -> Scene:
    nodes = tuple(
        (f"n{index}", draw.choice((0, 1, 1, 2)), draw.choice("ab")) for index in range(draw.choice((1, 2, 2, 3)))
    )
    steps = []
    for number in range(draw.choice((2, 2, 3))):
        needs = frozenset(each for each in range(number) if draw.random() < 0.5)
        steps.append((draw.random() < 0.6, number == 0 or draw.random() < 0.8, needs))
    return Scene(nodes, tuple(steps), draw.choice(((), (HOST,), (ZONE,))), draw.random() < 0.4, draw.choice(MODES))


class Player:
    """Everything that can happen: whether a pod ever waits, whether one waits forever, whether a run ends well."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.waits = self.sticks = self.ends = False
        self._seen: set[object] = set()
        parts = {self._part(node) for node in range(len(scene.nodes))}
        for part in [None] if scene.mode == MODES[0] else parts:  # made at once, it is anywhere
            self._play({}, frozenset(), part)

    def _part(self, node: int) -> object:
        name, _, zone = self.scene.nodes[node]
        return {(): None, (HOST,): name, (ZONE,): zone}[self.scene.keys]

    def _play(self, running: dict[int, int], done: frozenset[int], part: object) -> None:
        state = frozenset(running.items()), done, part
        if state in self._seen:
            return
        self._seen.add(state)
        steps = self.scene.steps
        if len(done) == len(steps):
            self.ends = True
            return
        ready = [
            each for each, (_, _, needs) in enumerate(steps) if needs <= done and each not in done | running.keys()
        ]
        moved = False
        for each in ready:
            places = [node for node in range(len(self.scene.nodes)) if self._fits(each, node, running, part)]
            self.waits |= not places
            for node in places:
                moved = True
                if self._is_elsewhere(each, node, running):
                    self.waits = True  # it is put there, and waits until the disk is free
                    continue
                tied = self._part(node) if steps[each][1] and part is None else part
                self._play({**running, each: node}, done, tied)
        for each in running:
            rest = {other: node for other, node in running.items() if other != each}
            self._play(rest, done | {each}, part)
        self.sticks |= not moved and not running

    def _fits(self, each: int, node: int, running: dict[int, int], part: object) -> bool:
        gpu, mounts, _ = self.scene.steps[each]
        if mounts and part is not None and self._part(node) != part:
            return False
        used = sum(self.scene.steps[other][0] for other, where in running.items() if where == node)
        return not gpu or used < self.scene.nodes[node][1]

    def _is_elsewhere(self, each: int, node: int, running: dict[int, int]) -> bool:
        steps = self.scene.steps
        shares = steps[each][1] and self.scene.is_disk
        return shares and any(steps[other][1] and where != node for other, where in running.items())


@pytest.mark.parametrize("seed", range(5))
def test_the_verdict_holds_in_every_order(seed: int) -> None:
    draw = random.Random(f"volumes {seed}")
    verdicts: Counter[tuple[str, str]] = Counter()
    for _ in range(CASES):
        drawn = scene(draw)
        player, verdict = Player(drawn), drawn.verdict
        truth = "never" if not player.ends else "stuck" if player.sticks else "waits" if player.waits else "always"
        verdicts[verdict, truth] += 1
        assert verdict != "always" or truth == "always", drawn
        assert verdict != "never" or truth == "never", drawn
        assert verdict != "may-queue" or truth in ("waits", "always"), drawn
        assert verdict != "unknown" or truth in ("stuck", "never"), drawn
    assert {verdict for verdict, _ in verdicts} >= {"always", "may-queue", "never"}
    assert verdicts["may-queue", "always"] <= 1, verdicts
