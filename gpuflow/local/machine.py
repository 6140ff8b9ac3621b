"""Placeholder: what this machine has and gives out."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from gpuflow.quantity import Quantity
from gpuflow.spec.step import Step


@dataclass(frozen=True)
class Machine:
    cpu: Quantity
    memory: Quantity
    gpus: tuple[Any, ...] = ()
    told: tuple[str, ...] = ()


def this_machine() -> Machine:
    return Machine(Quantity(str(os.cpu_count() or 1)), Quantity(str(os.sysconf("SC_PHYS_PAGES") * 4096)))


@dataclass(frozen=True)
class Wanted:
    cpu: Quantity = Quantity.zero
    memory: Quantity = Quantity.zero
    gpus: int = 0
    model: str | None = None
    mig: str | None = None


def wanted_of(step: Step) -> Wanted:
    cpu = step.cpu.request if step.cpu and step.cpu.request else Quantity.zero
    memory = step.memory.request if step.memory and step.memory.request else Quantity.zero
    return Wanted(cpu, memory, step.gpu.count if step.gpu else 0)


@dataclass(frozen=True)
class Share:
    wanted: Wanted
    devices: tuple[int, ...] = field(default=())

    def environment(self) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.devices))} if self.devices else {}


class Room:
    def __init__(self, machine: Machine, jobs: int | None, pretend_gpus: bool) -> None:
        self.machine, self.jobs, self.pretend = machine, jobs or 4, pretend_gpus
        self.taken: list[Share] = []

    def missing(self, wanted: Wanted) -> str | None:
        if wanted.gpus > len(self.machine.gpus) and not self.pretend:
            return f"it asks for {wanted.gpus} GPUs, and this machine has {len(self.machine.gpus)}"
        return None

    def take(self, wanted: Wanted) -> Share | None:
        if len(self.taken) >= self.jobs:
            return None
        share = Share(wanted)
        self.taken.append(share)
        return share

    def give_back(self, share: Share) -> None:
        self.taken.remove(share)
