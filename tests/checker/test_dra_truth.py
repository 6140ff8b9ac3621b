"""Random pipelines that claim devices, played in random orders: what is always never waits, what is never never runs.

The allocator that plays is the one that is held against the scheduler's own (`tests/differential`).

Tests gpuflow/checker/dra/allocator.py and gpuflow/checker/dra/objects.py.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from gpuflow.checker.dra.allocator import AllocatedState, AllocationError, Allocator
from gpuflow.checker.dra.objects import Claim, DeviceId, read_claim, read_device_class, read_slice
from tests.checker.dra_scenes import (
    GPU,
    PARTITION,
    Body,
    device_class,
    gpu,
    holding,
    judged,
    partitions,
    slice_of,
    steps,
    template,
)
from tests.checker.whole_scenes import A100, node

PRODUCTS = ("NVIDIA H100 80GB HBM3", "NVIDIA L4")
MIG = "mig.nvidia.com"
SELECTORS = (
    f"device.attributes['{GPU}'].productName == 'NVIDIA L4'",
    f"device.attributes['{GPU}'].uuid in ['GPU-0', 'GPU-1']",
    f"device.attributes['{GPU}'].uuid == 'GPU-0'",
)
CONSTRAINTS: tuple[list[Body], ...] = (
    [],
    [],
    [],
    [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}],
    [{"matchAttribute": f"{GPU}/productName"}],
)
CASES = 150
PLAYS = 12


class Step(NamedTuple):
    name: str
    claim: Claim
    copies: int
    needs: tuple[str, ...]


class Scene(NamedTuple):
    text: str
    objects: list[Body]
    steps: list[Step]
    nodes: list[str]


def scene(seed: int) -> Scene:
    draw = random.Random(f"dra {seed}")
    nodes = [f"n{index}" for index in range(draw.randint(1, 3))]
    mig = draw.random() < 0.3
    objects: list[Body] = [device_class(resource="nvidia.com/gpu"), device_class(MIG, PARTITION)]
    for name in nodes:
        objects.append(node(name, labels=A100))
        if mig:
            profile, places, size = draw.choice([("1g.10gb", [0, 1, 2, 3], 1), ("4g.40gb", [0, 2, 4], 4)])
            objects += partitions(name, profile, places, size)
        elif count := draw.randint(0, 5):
            objects.append(slice_of(name, [gpu(index, draw.choice(PRODUCTS)) for index in range(count)]))
    devices = [
        (each["metadata"]["name"], device["name"])
        for each in objects
        if each["kind"] == "ResourceSlice"
        for device in each["spec"].get("devices", ())
    ]
    for index, (owner, device) in enumerate(devices):
        if not mig and draw.random() < 0.15:
            objects.append(holding(owner.partition("-")[0], device, name=f"held{index}"))
    templates = []
    for index in range(draw.randint(1, 3)):
        made = template(*_requests(draw, mig), name=f"t{index}", constraints=draw.choice(CONSTRAINTS))
        templates.append(made)
    objects += templates
    found: list[Step] = []
    lines: list[str] = []
    for index in range(draw.randint(1, 4)):
        name, copies = f"s{index}", draw.choice([1, 1, 1, 2, 3])
        needs = tuple(each.name for each in found if draw.random() < 0.35)
        over = f", for_each: {{i: [{', '.join(map(str, range(copies)))}]}}" if copies > 1 else ""
        after = f", needs: [{', '.join(needs)}]" if needs else ""
        count = draw.choice([1, 1, 2, 3])
        if not mig and draw.random() < 0.3:
            wants = f"gpu: a100-80gb x {count}"
            body: Body = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": GPU, "count": count}}]}}
        else:
            chosen = draw.choice(templates)
            wants, body = f"device_claim: {{template: {chosen['metadata']['name']}}}", chosen["spec"]["spec"]
        found.append(Step(name, read_claim(name, body), copies, needs))
        lines.append(f"  {name}: {{command: [x], {wants}{over}{after}}}\n")
    return Scene(steps(*lines), objects, found, nodes)


def _requests(draw: random.Random, mig: bool) -> list[Body]:
    def one() -> Body:
        body: dict[str, Any] = {"deviceClassName": MIG if mig else GPU}
        if draw.random() < 0.1:
            body["allocationMode"] = "All"
        else:
            body["count"] = draw.choice([1, 1, 1, 1, 2, 3])
        if not mig and draw.random() < 0.2:
            body["selectors"] = [{"cel": {"expression": draw.choice(SELECTORS)}}]
        return body

    requests: list[Body] = []
    for index in range(draw.choice([1, 1, 1, 2])):
        if draw.random() < 0.2:
            requests.append({"name": f"r{index}", "firstAvailable": [{"name": f"x{at}", **one()} for at in range(2)]})
        else:
            requests.append({"name": f"r{index}", "exactly": one()})
    return requests


class Player:
    """A cluster in which pods come, take devices, and go."""

    def __init__(self, played: Scene) -> None:
        self.nodes = played.nodes
        self.slices = [read_slice(each) for each in played.objects if each["kind"] == "ResourceSlice"]
        classes = [read_device_class(each) for each in played.objects if each["kind"] == "DeviceClass"]
        self.classes = {each.name: each for each in classes}
        self.held = [each for each in played.objects if each["kind"] == "ResourceClaim"]

    def places(self, claim: Claim, taken: Sequence[DeviceId], *, empty: bool = False) -> list[tuple[DeviceId, ...]]:
        """For each node that can take a pod, the devices that it gives."""
        state = AllocatedState()
        for each in () if empty else self.held:
            state.add_claim(each)
        state.devices.update(taken)
        found = []
        for name in self.nodes:
            try:
                given = Allocator(self.slices, self.classes, state).allocate(name, A100, [claim])
            except AllocationError:
                return []  # it ends the attempt on all nodes
            if given.status == "allocated":
                found.append(tuple(picked.device for one in given.claims for picked in one))
        return found

    def waits(self, played: Scene, draw: random.Random) -> bool:
        """Whether a pod finds no place in one random order of starts and ends."""
        done: Counter[str] = Counter()
        started: Counter[str] = Counter()
        alive: list[tuple[str, tuple[DeviceId, ...]]] = []
        while True:
            ready = [
                each
                for each in played.steps
                if started[each.name] < each.copies
                and all(
                    done[need] == other.copies for need in each.needs for other in played.steps if other.name == need
                )
            ]
            if not ready and not alive:
                return False
            if ready and (not alive or draw.random() < 0.6):
                chosen = draw.choice(ready)
                places = self.places(chosen.claim, [device for _, devices in alive for device in devices])
                if not places:
                    return True
                alive.append((chosen.name, draw.choice(places)))
                started[chosen.name] += 1
            else:
                name, _ = alive.pop(draw.randrange(len(alive)))
                done[name] += 1


def test_random_pipelines_are_judged_as_they_run() -> None:
    verdicts: Counter[str] = Counter()
    for seed in range(CASES):
        played = scene(seed)
        verdict = judged(played.text, *played.objects).verdict
        verdicts[verdict] += 1
        player = Player(played)
        if verdict == "always":
            for number in range(PLAYS):
                assert not player.waits(played, random.Random(f"{seed} {number}")), f"seed {seed}: a wrong always"
        if verdict == "never":
            stuck = [each.name for each in played.steps if not player.places(each.claim, (), empty=True)]
            assert stuck, f"seed {seed}: a wrong never"
    assert verdicts["always"] > CASES / 10 and verdicts["may-queue"] > CASES / 10 and verdicts["never"] > CASES / 10
    assert verdicts["unknown"] < CASES / 20


@pytest.mark.parametrize("seed", range(3))
def test_a_scene_is_the_same_each_time(seed: int) -> None:
    assert scene(seed) == scene(seed)
