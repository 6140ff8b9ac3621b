"""Random pipelines with random failures, what each must do on any engine, and what is wrong with a run of one.

A pipeline has needs, fan-outs, sub-pipelines, conditions, steps that run although others were skipped, volumes and exit
steps. Some of its pods are *held*: they end only when the engine has nothing else to do, so whatever it starts too
early, it starts while they run.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

LAST = 10_000
"""When a held pod ends that ends after all others."""
FORMS = ("compiled",) * 8 + ("to_dag", "standalone")
"""How the DAG is written; most often as a file of its own."""


@dataclass
class Node:
    """One step of a random pipeline."""

    name: str
    needs: list[str]
    items: list[str] = field(default_factory=list)
    """Of a fan-out."""
    dynamic: bool = False
    """The items are only known in the run."""
    when: bool | None = None
    anyway: bool = False
    retried: bool = False
    inner: list[Node] = field(default_factory=list)
    claim: str | None = None


@dataclass
class Graph:
    """A random pipeline, and what becomes of its pods."""

    name: str
    form: str
    nodes: list[Node]
    exits: dict[str, str]
    claims: list[str]
    codes: dict[str, list[int]] = field(default_factory=dict)
    """The exit codes of each pod's attempts."""
    held: dict[str, int] = field(default_factory=dict)
    """The pods that end late, and in which order."""

    def document(self) -> dict[str, Any]:
        params = {"yes": {"type": "bool", "default": True}, "no": {"type": "bool", "default": False}}
        lists = {f"{node.name}_items": node.items for node in self.nodes if node.dynamic}
        whole: dict[str, Any] = {
            "apiVersion": "gpuflow/v1",
            "kind": "Pipeline",
            "name": self.name,
            "defaults": {"image": "i", "retry": 0},
            "params": params | {name: {"type": "json", "default": items} for name, items in lists.items()},
            "engines": {"airflow": {"default_args": {"poll_interval": 1}}},
            "steps": {node.name: self._step(node) for node in self.nodes},
        }
        if self.form == "standalone":
            del whole["engines"], whole["params"]
        if self.claims:
            whole["claims"] = {name: {"size": "1Gi"} for name in self.claims}
        if self.exits:
            whole["exit"] = {name: {"on": on, "command": self._command(name)} for name, on in self.exits.items()}
        return whole

    def _command(self, path: str, *items: Any) -> list[Any]:
        return ["run", self.name, path, *items]

    def _step(self, node: Node, *around: Any, path: str = "") -> dict[str, Any]:
        step: dict[str, Any] = {"needs": node.needs} if node.needs else {}
        if node.items:
            step["for_each"] = {"x": {"param": f"{node.name}_items"} if node.dynamic else node.items}
        own = [{"item": "x"}] if node.items else []
        if node.inner:
            step["params"] = {"around": own[0]} if own else {}
            inner: dict[str, Any] = {"apiVersion": "gpuflow/v1", "kind": "Pipeline", "name": f"{self.name}-{node.name}"}
            inner["defaults"] = {"image": "i", "retry": 0}
            if own:
                inner["params"] = {"around": {"type": "string"}}
            reach = [{"param": "around"}] if own else []
            inner["steps"] = {each.name: self._step(each, *reach, path=f"{node.name}.") for each in node.inner}
            step["pipeline"] = inner
        else:
            step["command"] = self._command(f"{path}{node.name}", *around, *own)
        if node.when is not None:
            step["when"] = "params.yes" if node.when else "params.no"
        if node.anyway:
            step["if_skipped"] = "run"
        if node.retried:
            step["retry"] = 1
        if node.claim:
            step["volumes"] = {"/data": {"new_claim": node.claim}}
        return step

    def role(self, task_id: str, index: int, *, failed: bool) -> tuple[str, Any]:
        """What a task does: `pod` and which, `list` and how many items, `claim`, `unclaim`, `pass` or `skip`."""
        for kind, prefix in (("claim", "claim-"), ("unclaim", "delete-claim-")):
            if task_id.startswith(prefix):
                return kind, task_id.removeprefix(prefix)
        if task_id in self.exits:
            return ("skip", None) if self.exits[task_id] == "failure" and not failed else ("pod", task_id)
        node = next(node for node in self.nodes if node.name == task_id.partition(".")[0].removesuffix("-items"))
        path, is_list = task_id.removesuffix("-items"), task_id.endswith("-items")
        pods = self.pods(node)
        if node.when is False and (not node.inner or path not in pods):
            return "skip", None
        if is_list:
            return "list", len(pods.get(path, node.items))
        return ("pod", pods[path][max(index, 0)]) if path in pods else ("pass", None)

    # -- what must happen ---------------------------------------------------------------------------------------------

    def pods(self, node: Node) -> dict[str, list[str]]:
        """The pods of a node in their order, by the paths of the steps in it."""
        own = node.items or [""]
        if not node.inner:
            return {node.name: [f"{node.name} {item}".strip() for item in own]}
        return {
            f"{node.name}.{each.name}": [
                " ".join(filter(None, (f"{node.name}.{each.name}", item, inner)))
                for item in own
                for inner in each.items or [""]
            ]
            for each in node.inner
        }

    def expected(self) -> tuple[set[str], bool]:
        """The pods that run, and whether all is well in the end."""
        states: dict[str, str] = {}
        made: set[str] = set()
        for node in self.nodes:
            state = _due([states[need] for need in node.needs], node)
            if state == "success" and node.inner:
                state = self._inside(node, made)
            elif state == "success":
                made |= {*self.pods(node)[node.name]}
                state = "failed" if any(self.codes[pod][-1] for pod in self.pods(node)[node.name]) else state
            states[node.name] = state
        good = "failed" not in states.values()
        wanted = {"always": True, "failure": not good, "success": good}
        exits = {name for name, on in self.exits.items() if wanted[on]}
        return made | exits, good and not any(self.codes[name][-1] for name in exits)

    def _inside(self, node: Node, made: set[str]) -> str:
        """Each step of a sub-pipeline is mapped over all items together: one that failed stops what follows it."""
        states: dict[str, str] = {}
        for each in node.inner:
            state = _due([states[need] for need in each.needs], each)
            if state == "success":
                pods = self.pods(node)[f"{node.name}.{each.name}"]
                made |= {*pods}
                state = "failed" if any(self.codes[pod][-1] for pod in pods) else state
            states[each.name] = state
        return "failed" if {"failed", "blocked"} & {*states.values()} else "success"

    def before(self) -> dict[str, set[str]]:
        """For each pod, the pods that must have ended when it starts."""
        found: dict[str, set[str]] = {}
        whole: dict[str, set[str]] = {}
        for node in self.nodes:
            earlier = {pod for need in node.needs for pod in whole[need]}
            inside: dict[str, set[str]] = {}
            for each in node.inner or [node]:
                path = f"{node.name}.{each.name}" if node.inner else node.name
                sure = earlier | {pod for need in (each.needs if node.inner else []) for pod in inside[need]}
                pods = self.pods(node)[path]
                found |= dict.fromkeys(pods, sure)
                inside[each.name] = sure | {*pods}
            whole[node.name] = earlier.union(*inside.values())
        steps = set().union(*whole.values())
        return found | dict.fromkeys(self.exits, steps)


def _due(needs: list[str], node: Node) -> str:
    if {"failed", "blocked"} & {*needs}:
        return "blocked"
    if node.when is False or ("skipped" in needs and not node.anyway):
        return "skipped"
    return "success"


SCENES: tuple[tuple[list[Node], dict[str, str], list[str], dict[str, list[int]], tuple[str, ...]], ...] = (
    (
        # A step fails beside one that still runs, and a step needs both.
        [
            Node("prepare", [], claim="c0"),
            Node("quick", ["prepare"], claim="c0"),
            Node("long", ["prepare"], claim="c0"),
            Node("join", ["quick", "long"]),
        ],
        {"cleanup": "always"},
        ["c0"],
        {"quick": [1]},
        ("long",),
    ),
    (
        # A copy of a fan-out fails beside another.
        [Node("one", [], items=["a", "b"]), Node("after", ["one"])],
        {"bye": "failure", "always": "always", "cheer": "success"},
        [],
        {"one a": [1]},
        ("one b",),
    ),
)
"""Pipelines that went wrong once: steps, exit steps, volumes, codes that are not 0, and pods that are held."""


def _scene(number: int, form: str) -> Graph:
    nodes, exits, claims, codes, held = SCENES[number]
    if form == "standalone":  # it refuses volumes, and exit steps after failures alone
        exits, claims = {name: on for name, on in exits.items() if on != "failure"}, []
        nodes = [replace(node, claim=None) for node in nodes]
    found = Graph(f"g0-{number}-{form.replace('_', '-')}", form, nodes, exits, claims)
    pods = [pod for node in nodes for each in found.pods(node).values() for pod in each]
    found.codes = {name: [0] for name in (*pods, *exits)} | codes
    found.held = dict.fromkeys(held, LAST)
    return found


def graph_of(seed: int, number: int, form: str | None = None) -> Graph:
    """The pipeline of this number: the same for the same seed. Seed 0: one of `SCENES`, in a form."""
    if seed == 0:
        return _scene(number, form or "compiled")
    rng = random.Random(f"{seed}/{number}")
    chosen = rng.choice(FORMS)
    form = form or chosen
    stock = form == "standalone"
    claims = [] if stock else [f"c{index}" for index in range(rng.choice((0, 1, 1, 2)))]
    nodes: list[Node] = []
    for index in range(rng.randint(3, 6)):
        nodes.append(_node(rng, f"s{index}", [node.name for node in nodes], claims, stock=stock))
    beside = rng.choice((None, None, "fails", "is skipped"))
    if beside is not None:
        nodes += _race(rng, [node.name for node in nodes], claims, skipped=beside == "is skipped" and not stock)
    rules = ("always", "success") if stock else ("always", "failure", "success")
    exits = {f"e{index}": rng.choice(rules) for index in range(rng.randint(0 if claims else 1, 2))}
    found = Graph(f"g{seed}-{number}", form, nodes, exits, claims)
    for node in nodes:
        retried = {node.name if not node.inner else f"{node.name}.{each.name}": each.retried for each in node.inner}
        for path, pods in found.pods(node).items():
            again = node.retried or retried.get(path, False)
            for pod in pods:
                code = int(rng.random() < 0.1)
                found.codes[pod] = [1, code] if again and rng.random() < 0.7 else [code] if not again else [0]
                if rng.random() < 0.5:
                    found.held[pod] = rng.randrange(1000)
    found.codes |= {name: [int(rng.random() < 0.1)] for name in exits}
    if beside is not None:
        found.codes["quick"] = [1]
        slow = [pod for pods in found.pods(nodes[-2 if nodes[-1].name == "join" else -3]).values() for pod in pods]
        found.held |= dict.fromkeys(slow, LAST)
    return found


def _race(rng: random.Random, before: list[str], claims: list[str], *, skipped: bool) -> list[Node]:
    """A step that ends at once beside one that ends last, and a step that needs both. The first fails, or is skipped,
    and then a step runs all the same."""
    needs = rng.sample(before, rng.choice((0, 0, 1)))
    slow = _node(rng, "slow", [], claims, stock=skipped or not claims)
    slow.needs, slow.when, slow.anyway = needs, None, False
    quick, join = Node("quick", needs, when=False if skipped else None), Node("join", ["quick", "slow"])
    return [quick, slow, join, *([Node("anyway", ["join"], anyway=True)] if skipped else [])]


def _node(rng: random.Random, name: str, before: list[str], claims: list[str], *, stock: bool, deep: int = 0) -> Node:
    needs = sorted(rng.sample(before, min(len(before), rng.choice((0, 1, 1, 2, 2)))))
    node = Node(name, needs)
    kind = rng.choice(("plain", "plain", "plain", "fan", "dynamic", "sub", "subs"))
    if kind in ("fan", "dynamic", "subs") and not (deep and kind == "subs"):
        node.items = [f"i{index}" for index in range(rng.randint(2, 3))]
    node.dynamic = kind == "dynamic" and not stock and not deep
    if kind in ("sub", "subs") and not stock and not deep:
        for index in range(rng.randint(2, 3)):
            inner = _node(rng, f"t{index}", [each.name for each in node.inner], [], stock=True, deep=1)
            node.inner.append(inner)
    if not stock and not deep:
        node.when = rng.choice((None, None, None, None, True, False))
        node.anyway = bool(needs) and rng.random() < 0.3
    node.retried = not node.inner and rng.random() < 0.15
    if claims and not node.inner and rng.random() < 0.6:
        node.claim = rng.choice(claims)
    return node


def wrong(graph: Graph, events: Sequence[tuple[str, str]], state: str, states: Mapping[str, str | None]) -> list[str]:
    """What is wrong with a run: what happened in it, how it ended, and its tasks."""
    found: list[str] = []
    before, steps = graph.before(), {pod for node in graph.nodes for pods in graph.pods(node).values() for pod in pods}
    at_work: Counter[str] = Counter()
    started: set[str] = set()
    made: list[str] = []
    over: str | None = None
    claims: set[str] = set()
    for what, name in events:
        if what == "made":
            if early := sorted(pod for pod in before[name] if at_work[pod]):
                found.append(f"{name} started while {', '.join(early)} ran")
            if late := sorted(pod for pod in started if name in before[pod]):
                found.append(f"{name} started after {', '.join(late)}")
            if over is not None and name in steps:
                found.append(f"{name} started after {over}")
            at_work[name] += 1
            started.add(name)
            made.append(name)
            over = over or (name if name in graph.exits else None)
        elif what == "ended":
            at_work[name] -= 1
        elif what == "claim":
            claims.add(name)
            if over is not None:
                found.append(f"the volume {name} was made after {over}")
        else:
            claims.discard(name)
            over = over or f"the deletion of {name}"
            if early := sorted(pod for pod, count in at_work.items() if count):
                found.append(f"the volume {name} was deleted while {', '.join(early)} ran")
    expected, good = graph.expected()
    attempts = Counter(made)
    wanted = Counter({pod: len(graph.codes[pod]) for pod in expected})
    if attempts != wanted:
        found.append(f"pods that must not be: {dict(attempts - wanted)}; missing: {dict(wanted - attempts)}")
    if state != ("success" if good else "failed"):
        found.append(f"the run is {state}")
    if claims:
        found.append(f"left behind: {sorted(claims)}")
    if found:
        found.append(json.dumps({"events": events, "states": states, "pipeline": graph.document()}))
    return found
