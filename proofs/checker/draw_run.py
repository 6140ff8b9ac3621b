"""Random small pipelines."""

from __future__ import annotations

from dataclasses import dataclass, field

from proofs.checker.case import Manifest
from tests.differential.draw import Draw

GPU = "a100-80gb"


@dataclass
class Step:
    """One step, small enough to be reckoned with while a cluster is drawn around it."""

    name: str
    gpus: int
    cpus: int
    copies: int = 1
    parallel: int | None = None
    needs: tuple[str, ...] = ()
    queue: str | None = None
    priority: str | None = None
    failures: int = 0
    is_exit: bool = False
    over_param: bool = False
    more: Manifest = field(default_factory=dict)

    def written(self) -> Manifest:
        made: Manifest = {"command": ["x"], "cpu": self.cpus, **self.more}
        if self.gpus:
            made["gpu"] = f"{GPU} x {self.gpus}"
        if self.copies > 1:
            made["for_each"] = {"i": {"param": "items"} if self.over_param else list(range(self.copies))}
            if self.parallel is not None:
                made["parallel"] = self.parallel
        if self.needs:
            made["needs"] = list(self.needs)
        if self.queue is not None:
            made["queue"] = self.queue
        if self.priority is not None:
            made["priority"] = {"queue": self.priority}
        if self.failures:
            made["retry"] = {"failures": self.failures}
        return made


@dataclass
class Run:
    """A pipeline that is being drawn."""

    steps: list[Step]
    parallel: int | None = None
    more: Manifest = field(default_factory=dict)

    @property
    def pods(self) -> int:
        return sum(step.copies for step in self.steps)

    def peak(self, what: str) -> int:
        """No less than the run can use at once."""
        return sum(int(getattr(step, what)) * min(step.copies, step.parallel or 9) for step in self.steps)

    def largest(self, what: str) -> int:
        return max(int(getattr(step, what)) for step in self.steps)

    def queues(self, queue: str) -> list[Step]:
        return [step for step in self.steps if step.queue == queue]

    def written(self) -> Manifest:
        made: Manifest = {
            "apiVersion": "gpuflow/v1",
            "kind": "Pipeline",
            "name": "p",
            "defaults": {"image": "registry.example.com/x:1", "memory": "1Gi"},
            **self.more,
        }
        if any(step.over_param for step in self.steps):
            most = max(step.copies for step in self.steps)
            made["params"] = {"items": {"type": "json", "default": list(range(most))}}
        if self.parallel is not None:
            made["parallel"] = self.parallel
        made["steps"] = {step.name: step.written() for step in self.steps if not step.is_exit}
        ends = {step.name: step.written() for step in self.steps if step.is_exit}
        if ends:
            made["exit"] = ends
        return made


def drawn(draw: Draw, engine: str) -> Run:
    """One to four steps; Kubeflow's drivers double the pods, so it gets fewer."""
    count = draw.weighted({1: 3, 2: 5, 3: 2} if engine == "kubeflow" else {1: 2, 2: 4, 3: 4, 4: 2})
    steps: list[Step] = []
    for index in range(count):
        before = [step.name for step in steps]
        steps.append(
            Step(
                f"s{index}",
                draw.weighted({0: 2, 1: 4, 2: 3, 3: 1}),
                draw.number(1, 3),
                needs=tuple(draw.some(before, 0, 2)) if draw.chance(0.55) else (),
            )
        )
    if draw.chance(0.25):
        step = draw.pick(steps)
        step.copies = draw.number(2, 3) if count < 3 and engine != "kubeflow" else 2
        step.parallel = draw.pick((None, None, 1, 2))
    run = Run(steps)
    if draw.chance(0.12) and engine != "kubeflow":
        run.parallel = draw.number(1, 2)
    if draw.chance(0.08) and count < 4:
        steps.append(Step("end", 0, 1, is_exit=True))
    return run
