"""Random workflows: nested steps and tasks, loops, limits at every level, hooks, daemons, retries, locks, patches."""

from __future__ import annotations

import random
from typing import Any

from proofs.readers.case import NAME, Case, Manifest, prepared

MOST_PODS = 40
HEAD = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": NAME}}


def patch(count: object) -> str:
    """A patch that sets how many GPUs the main container gets."""
    amounts = f'{{"nvidia.com/gpu": "{count}"}}'
    return f'{{"containers": [{{"name": "main", "resources": {{"requests": {amounts}, "limits": {amounts}}}}}]}}'


def case(seed: int, number: int) -> Case:
    """The workflow of that number; small enough to be played."""
    for attempt in range(1000):
        made = _Maker(random.Random(f"readers {seed} {number} {attempt}"))
        if 1 < made.pods <= MOST_PODS:
            return Case(f"generated-{seed}-{number}", prepared(made.workflow()), made.others)
    raise AssertionError("no workflow of that size")


class _Maker:
    def __init__(self, draw: random.Random) -> None:
        self.draw, self.templates, self.others = draw, [], []
        self.templates: list[Manifest] = []
        self.others: list[Manifest] = []
        self.names = 0
        self.spec: Manifest = {}
        self.root, self.pods = self._composite(0)
        self._around()

    def chance(self, part: float) -> bool:
        return self.draw.random() < part

    def workflow(self) -> Manifest:
        return {**HEAD, "spec": {"entrypoint": self.root, **self.spec, "templates": self.templates}}

    def _name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    def _around(self) -> None:
        """What stands at the workflow itself."""
        draw, spec = self.draw, self.spec
        spec["arguments"] = {"parameters": [{"name": "go", "value": "yes"}, {"name": "count", "value": "2"}]}
        if self.chance(0.3):
            spec["parallelism"] = draw.randint(1, 5)
        if self.chance(0.2):
            name, count = self._leaf(daemon=False) if self.chance(0.6) else self._composite(2)
            spec["onExit"] = name
            self.pods += count
        if self.chance(0.1):
            name, count = self._leaf(daemon=False)
            spec["hooks"] = {"running": {"expression": 'workflow.status == "Running"', "template": name}}
            self.pods += count
        if self.chance(0.15):
            spec["templateDefaults"] = draw.choice(
                [
                    {"retryStrategy": {"limit": "1"}},
                    {"container": {"resources": {"limits": {"ephemeral-storage": "1Gi"}}}},
                    {"podSpecPatch": patch(3), "activeDeadlineSeconds": 3600},
                ]
            )
        if self.chance(0.1):
            spec["podSpecPatch"] = '{"containers": [{"name": "main", "resources": {"limits": {"memory": "2Gi"}}}]}'

    def _composite(self, depth: int) -> tuple[str, int]:
        """A template of steps or tasks, and how many pods it runs."""
        template: Manifest = {"name": self._name("flow")}
        self.templates.append(template)
        if self.chance(0.25):
            template["parallelism"] = self.draw.randint(1, 3)
        if self.chance(0.06):
            template["synchronization"] = self._lock()
        total = 0
        if self.chance(0.5):
            groups = []
            for group in range(self.draw.randint(1, 3)):
                calls = []
                for index in range(self.draw.choice([1, 1, 2, 3])):
                    call, count = self._call(f"s{group}-{index}", depth)
                    calls.append(call)
                    total += count
                groups.append(calls)
            template["steps"] = groups
        else:
            tasks: list[Manifest] = []
            for index in range(self.draw.randint(1, 5)):
                call, count = self._call(f"t{index}", depth)
                before = [f"t{other}" for other in range(index) if self.chance(0.35)]
                if before and self.chance(0.2):
                    call["depends"] = " && ".join(before)
                elif before:
                    call["dependencies"] = before
                tasks.append(call)
                total += count
            if any("depends" in task for task in tasks):
                for task in tasks:
                    if "dependencies" in task:
                        task["depends"] = " && ".join(task.pop("dependencies"))
            template["dag"] = {"tasks": tasks}
        return str(template["name"]), total

    def _call(self, name: str, depth: int) -> tuple[Manifest, int]:
        call: Manifest = {"name": name}
        nested = depth < 2 and self.chance(0.3)
        copies = 1
        if self.chance(0.25):
            call["template"], count = self._sized(call)
            copies = len(call["withItems"])
        else:
            call["template"], count = self._composite(depth + 1) if nested else self._leaf(daemon=self.chance(0.08))
            if self.chance(0.3):
                copies = self._loop(call)
        if self.chance(0.15):
            call["when"] = self.draw.choice(
                ["1 == 1", "1 == 2", "{{workflow.parameters.go}} == yes", "{{workflow.parameters.go}} != yes"]
            )
        count *= copies
        if self.chance(0.08):
            hook, more = self._leaf(daemon=False)
            key, body = self.draw.choice(
                [("exit", {}), ("running", {"expression": f'{self._kind(name)}.status == "Running"'})]
            )
            call["hooks"] = {key: {**body, "template": hook}}
            count += more * copies
        return call, count

    def _kind(self, name: str) -> str:
        return f'{"steps" if name.startswith("s") else "tasks"}["{name}"]'

    def _loop(self, call: Manifest) -> int:
        count = self.draw.randint(2, 4)
        match self.draw.randrange(4):
            case 0:
                call["withItems"] = list(range(count))
            case 1:
                call["withSequence"] = {"count": str(count)}
            case 2:
                call["withSequence"] = {"start": "1", "end": "{{workflow.parameters.count}}"}
                count = 2
            case _:
                call["withParam"] = str(list(range(count)))
        return count

    def _sized(self, call: Manifest) -> tuple[str, int]:
        """A loop whose items ask for different amounts."""
        name = self._name("sized")
        sizes = [self.draw.randint(1, 4) for _ in range(self.draw.randint(2, 4))]
        call["withItems"] = [{"gpus": size} for size in sizes]
        call["arguments"] = {"parameters": [{"name": "gpus", "value": "{{item.gpus}}"}]}
        template = self._container(name)
        template["inputs"] = {"parameters": [{"name": "gpus"}]}
        template["podSpecPatch"] = patch("{{inputs.parameters.gpus}}")
        self.templates.append(template)
        return name, 1

    def _leaf(self, *, daemon: bool) -> tuple[str, int]:
        name = self._name("pod")
        template = self._container(name)
        kind = self.draw.random()
        if kind < 0.15:
            container = template.pop("container")
            template["script"] = {**container, "source": "print()"}
        elif kind < 0.3 and not daemon:
            container = template.pop("container")
            template["containerSet"] = {
                "containers": [
                    {**container, "name": "main"},
                    {**self._container("x")["container"], "name": "second", "dependencies": ["main"]},
                ]
            }
        if self.chance(0.1) and "containerSet" not in template:
            template["sidecars"] = [{**self._container("x")["container"], "name": "side"}]
        if self.chance(0.1):
            template["initContainers"] = [{**self._container("x")["container"], "name": "before"}]
        if self.chance(0.1) and "containerSet" not in template:
            template["podSpecPatch"] = patch(self.draw.randint(1, 4))
        if daemon:
            template["daemon"] = True
        elif self.chance(0.2):
            template["retryStrategy"] = {"limit": str(self.draw.randint(1, 2))}
        if self.chance(0.1) and not daemon:
            template["synchronization"] = self._lock()
        self.templates.append(template)
        return name, 1

    def _container(self, name: str) -> Manifest:
        amounts: dict[str, Any] = {"cpu": f"{self.draw.randint(1, 9)}00m", "memory": f"{self.draw.randint(1, 9)}00Mi"}
        if self.chance(0.5):
            amounts["nvidia.com/gpu"] = str(self.draw.randint(1, 4))
        resources = {"limits": amounts} if self.chance(0.5) else {"requests": amounts, "limits": amounts}
        return {"name": name, "container": {"image": "program", "command": ["run"], "resources": resources}}

    def _lock(self) -> Manifest:
        if self.chance(0.5):
            return {"mutexes": [{"name": self.draw.choice(["one", "two"])}]}
        if not self.others:
            head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "locks"}}
            self.others.append({**head, "data": {"gpus": str(self.draw.randint(1, 3))}})
        return {"semaphores": [{"configMapKeyRef": {"name": "locks", "key": "gpus"}}]}
