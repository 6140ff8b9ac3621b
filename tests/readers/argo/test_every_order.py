"""Small random workflows run in every order that Argo's controller allows: no moment exceeds the peak that is read.

The model keeps what checkParallelism, executeSteps and executeDAG of Argo v4.0.2 keep: groups and dependencies, the
number of active children of each template, the number of pods of the workflow, daemons that live as long as the
template around them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.readers import Options, documents_of, foreign_in
from tests.readers.argo.reading import SITE

MOST_PODS = 8
GPU = "requests.nvidia.com/gpu"


@dataclass
class Node:
    """One node of a run: a pod, or what a template of steps or tasks becomes."""

    weight: int = 0
    daemon: bool = False
    children: list[Node] = field(default_factory=list)
    after: list[list[int]] = field(default_factory=list)
    """For each child, the numbers of those that it waits for."""
    cap: int | None = None
    pods: list[int] = field(default_factory=list)
    """The numbers of the pods in it."""


class Made:
    """A workflow, as a document and as nodes."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.templates: list[dict[str, Any]] = []
        self.root = self.composite(0)
        self.cap = draw(st.sampled_from([None, None, 1, 2, 3]))

    def integer(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def composite(self, depth: int) -> Node:
        number = len(self.templates)
        template: dict[str, Any] = {"name": f"t{number}"}
        self.templates.append(template)
        node = Node(cap=self.draw(st.sampled_from([None, None, 1, 2])))
        if node.cap is not None:
            template["parallelism"] = node.cap
        if self.draw(st.booleans()):
            groups = []
            now: list[int] = []
            before: list[int] = []
            for group in range(self.integer(1, 3)):
                calls: list[Any] = []
                now = []
                for index in range(self.integer(1, 2)):
                    calls.append(self.call(node, depth, f"s{group}-{index}", before, now))
                groups.append(calls)
                before = now
            template["steps"] = groups
        else:
            tasks: list[dict[str, Any]] = []
            numbers: list[list[int]] = []
            for index in range(self.integer(1, 4)):
                chosen = [other for other in range(index) if self.draw(st.booleans())]
                now = []
                waits = [each for other in chosen for each in numbers[other]]
                task = self.call(node, depth, f"k{index}", waits, now)
                tasks.append({**task, "dependencies": [f"k{other}" for other in chosen]})
                numbers.append(now)
            template["dag"] = {"tasks": tasks}
        return node

    def call(self, node: Node, depth: int, name: str, waits: list[int], now: list[int]) -> dict[str, Any]:
        """One step, perhaps in a loop; `now` gets the numbers of its copies."""
        copies = self.draw(st.sampled_from([1, 1, 2, 3]))
        nested = depth < 2 and self.draw(st.booleans())
        call: dict[str, Any] = {"name": name}
        if copies > 1:
            call["withSequence"] = {"count": copies}
        if nested:
            mark = len(self.templates)
            child = self.composite(depth + 1)
            call["template"] = f"t{mark}"
        else:
            child = Node(weight=self.integer(1, 3), daemon=self.draw(st.sampled_from([False, False, False, True])))
            call["template"] = f"w{child.weight}{'d' if child.daemon else ''}"
        for _ in range(copies):
            now.append(len(node.children))
            node.children.append(child)
            node.after.append(list(waits))
        return call

    def document(self) -> dict[str, Any]:
        leaves: list[dict[str, Any]] = []
        for weight in (1, 2, 3):
            resources = {"limits": {"nvidia.com/gpu": weight}}
            container: dict[str, Any] = {"image": "i", "command": ["x"], "resources": resources}
            leaves.append({"name": f"w{weight}", "container": container})
            leaves.append({"name": f"w{weight}d", "daemon": True, "container": container})
        spec: dict[str, Any] = {"entrypoint": "t0", "templates": [*self.templates, *leaves]}
        if self.cap is not None:
            spec["parallelism"] = self.cap
        head = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}}
        return {**head, "spec": spec}


class Run:
    """The nodes of one run, every copy for itself, and all states that they can be in."""

    def __init__(self, root: Node, cap: int | None) -> None:
        self.leaves: list[Node] = []
        self.cap = cap
        self.root = self._copied(root)

    def _copied(self, node: Node) -> Node:
        made = Node(node.weight, node.daemon, [], node.after, node.cap)
        if not node.children:
            made.pods = [len(self.leaves)]
            self.leaves.append(made)
            if len(self.leaves) > MOST_PODS:
                raise OverflowError
        for child in node.children:
            inner = self._copied(child)
            made.children.append(inner)
            made.pods += inner.pods
        return made

    def heaviest(self) -> int:
        start = (0,) * len(self.leaves)
        seen, waiting, most = {start}, [start], 0
        while waiting:
            state = waiting.pop()
            active = self.active(state)
            most = max(most, sum(self.leaves[pod].weight for pod in active))
            for following in self.following(state, active):
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
        return most

    def done(self, node: Node, state: tuple[int, ...]) -> bool:
        if not node.children:
            return state[node.pods[0]] == 2  # of a daemon: it is ready
        return all(self.done(child, state) for child in node.children)

    def active(self, state: tuple[int, ...]) -> list[int]:
        """The pods that live; a daemon ends with the template around it."""
        found: list[int] = []

        def visit(node: Node, ended: bool) -> None:
            if not node.children:
                if state[node.pods[0]] == 1 or (state[node.pods[0]] == 2 and node.daemon and not ended):
                    found.append(node.pods[0])
                return
            over = self.done(node, state)
            for child in node.children:
                visit(child, over)

        visit(self.root, False)
        return found

    def is_active(self, node: Node, state: tuple[int, ...], active: list[int]) -> bool:
        """Whether its template's parallelism counts it."""
        if not node.children:
            return node.pods[0] in active
        return any(state[pod] for pod in node.pods) and not self.done(node, state)

    def following(self, state: tuple[int, ...], active: list[int]) -> list[tuple[int, ...]]:
        found = [(*state[:pod], 2, *state[pod + 1 :]) for pod in active if state[pod] == 1]
        if self.cap is None or len(active) < self.cap:
            for pod in self.startable(self.root, state, active):
                found.append((*state[:pod], 1, *state[pod + 1 :]))
        return found

    def startable(self, node: Node, state: tuple[int, ...], active: list[int]) -> list[int]:
        if not node.children:
            return node.pods if state[node.pods[0]] == 0 else []
        counted = [self.is_active(child, state, active) for child in node.children]
        found: list[int] = []
        for number, child in enumerate(node.children):
            if not all(self.done(node.children[other], state) for other in node.after[number]):
                continue
            if node.cap is None or counted[number] or sum(counted) < node.cap:
                found += self.startable(child, state, active)
        return found


@pytest.mark.slow
@settings(max_examples=200)
@given(st.data())
def test_no_order_exceeds_the_peak_and_an_exact_one_is_reached(data: st.DataObject) -> None:
    made = Made(data.draw)
    try:
        run = Run(made.root, made.cap)
    except OverflowError:
        return
    active, _ = foreign_in(documents_of([made.document()], "w.yaml"))
    demand = active[0].demand(Options(SITE))
    bound = demand.peak[GPU]  # type: ignore[union-attr]  # it is there in this case
    assert bound.value is not None
    value, most = bound.value.milli // 1000, run.heaviest()
    shown = [made.document()["spec"].get("parallelism"), made.templates, bound.bound, value, most]
    assert value >= most, shown
    if bound.bound == "exact":
        assert value == most, shown
