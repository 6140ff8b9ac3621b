"""The steps of a run on Kubeflow: its pipeline spec beside the Argo workflow that KFP made of it.

KFP's tasks have display names and no places. The workflow, which its API hands out too, has the places: the name of a
node is the way to it, `run.root.for-loop-1.iteration-iterations(0:0).iteration-item.train.executor(1)`.

| node | here |
|---|---|
| `train-driver` | no step: while it works, `train` waits; when it fails, `train` has failed |
| `train`, `train.executor`, `train.executor(1)` | the step, its pod, the pod of its second attempt |
| `condition-1`, `for-loop-2`, `exit-handler-3`, `exit-4`, `run-5` | groups that compilers make, no steps |
| `iteration-iterations(0:0)` below a loop | the first copy: `train@0` |
| `exit-handler-3.onExit.tell` | the exit step `tell`, which stands beside the group in the spec |

What a step gave is in ML Metadata, which no REST API reads. But the driver of a step writes down what it handed to the
step, so an output is known once another step has taken it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuflow.graph.order import order
from gpuflow.local.record import FAILED, INTERRUPTED, NOT_RUN, RUNNING, SKIPPED, SUCCEEDED, WAITING
from gpuflow.plan import Plan
from gpuflow.runs.argo_nodes import cause, nodes_of, pod_name
from gpuflow.runs.model import STEP_ENDS, StepState

Path = tuple[str, ...]
"""The way to a task in the spec; `#0` is the first turn of the loop before it."""
Data = Mapping[str, Any]
_SEGMENT = re.compile(r"(.*?)(?:\((\d+):.*\))?(?:\(\d+\))*")
_COPY = re.compile(r"@\d+")
_GROUP = re.compile(r"(condition|condition-branches|for-loop|exit-handler|exit|run)-\d+")
_HELPER = re.compile(r"(exit-defaults|run-outcome|alert-(failure|success))(-x)*|(create|delete)pvc-.*")
"""What gpuflow adds beside the steps; a plan says it better."""
_BROKEN = ("Failed", "Error")


class Steps:
    """The steps of one run, found on a walk through its spec."""

    def __init__(self, spec: Data, workflow: Data, *, is_over: bool, is_stopped: bool) -> None:
        self._spec, self._workflow, self._is_over = spec, workflow, is_over
        self._broken = INTERRUPTED if is_stopped else FAILED
        self._nodes: dict[Path, list[Data]] = {}
        nodes = nodes_of(workflow) if workflow else {}
        for node in sorted(nodes.values(), key=lambda each: (each.get("startedAt") or "", each["name"])):
            self._nodes.setdefault(_path(node["name"]), []).append(node)
        self._known: dict[Path, StepState] = {}
        """Every task that was looked at, groups too."""
        self._taken: dict[str, dict[str, str]] = {}
        """By the full name of a step: the outputs that others took of it."""

    def states(self, plan: Plan | None = None) -> tuple[StepState, ...]:
        """In the order of the pipeline: copies behind their step, what is inside a step behind it."""
        found = self._walk(self._spec["root"].get("dag") or {}, (), None, "")
        found = [replace(each, outputs=self._outputs(each)) for each in found]
        if plan is None:
            return tuple(found)
        seen, lost = {_COPY.sub("", each.name) for each in found}, "Kubeflow has no such step: it was left out"
        found += [StepState(each.name, SKIPPED, because=lost) for each in plan.steps if each.name not in seen]
        places = {each.name: index for index, each in enumerate(plan.steps)}
        kept = [each for each in found if _COPY.sub("", each.name) in places]
        return tuple(sorted(kept, key=lambda each: _rank(each.name, places)))

    def _walk(self, dag: Data, around: Path, turns: list[tuple[Path, int]] | None, prefix: str) -> list[StepState]:
        """`around`: the way to the DAG. `turns`: in a loop, the ways to its copies, and their numbers."""
        found: list[StepState] = []
        for name in _in_order(dag):
            task, path, own = dag["tasks"][name], (*around, name), self._look(dag, around, name)
            copies = [((*each, name), number, self._look(dag, each, name)) for each, number in turns or ()]
            inner, shown = self._component(task).get("dag"), f"{prefix}{name}"
            if inner is not None and _GROUP.fullmatch(name):
                inside = None if turns is None else [(way, number) for way, number, _ in copies]
                if "parameterIterator" in task:
                    inside = self._turns([(path, 0)] if inside is None else inside)
                found += self._walk(inner, path, inside, prefix)
            elif not _HELPER.fullmatch(name):
                found.append(_together(shown, own, [state for _, _, state in copies]))
                places = [(way, f"{shown}@{number}") for way, number, _ in copies] or [(path, shown)]
                for way, full in places:
                    self._take(way, full)
                    found += [replace(self._known[way], name=full)] if copies else []
                    found += self._walk(inner, way, None, f"{full}.") if inner is not None else []
        return found

    def _component(self, task: Data) -> Data:
        return dict(self._spec["components"].get(task["componentRef"]["name"]) or {})

    def _turns(self, loops: list[tuple[Path, int]]) -> list[tuple[Path, int]]:
        """The copies that a loop makes, in each copy of the loops around it; these count on."""
        found: list[tuple[Path, int]] = []
        for path, number in loops:
            count = self._values((*path, "iteration-driver")).get("iteration-count", "")
            many = int(count) if count.isdecimal() else 0
            found += [((*path, f"#{turn}"), number * many + turn) for turn in range(many)]
        return found

    def _last(self, path: Path) -> Data | None:
        """The node of a task. The one around its attempts says more than each of them."""
        nodes = self._nodes.get(path, [])
        return next((each for each in reversed(nodes) if each.get("type") == "Retry"), nodes[-1] if nodes else None)

    def _values(self, path: Path) -> dict[str, str]:
        """What a driver decided."""
        given = [(node.get("outputs") or {}).get("parameters") or () for node in self._nodes.get(path, ())]
        return {each["name"]: str(each.get("value", "")) for values in given for each in values}

    def _look(self, dag: Data, around: Path, name: str) -> StepState:
        """The state of a task at one place; its name is still to come."""
        path = (*around, name)
        node, driver = self._last(path), self._last((*around, f"{name}-driver"))
        pods = [each for each in self._nodes.get((*path, "executor"), []) if each.get("type") == "Pod"]
        state, because = self._judge(dag, path, node, driver, pods)
        shown = [*pods, node] if node and node.get("phase") not in ("Skipped", "Omitted") else pods
        started = (shown[0].get("startedAt") or "") if shown else ""
        ended = (shown[-1].get("finishedAt") or "") if shown and state in STEP_ENDS else ""
        names = tuple(pod_name(self._workflow, each) for each in pods)
        self._known[path] = StepState("", state, len(pods), {}, because, started, ended, None, names)
        return self._known[path]

    def _judge(
        self, dag: Data, path: Path, node: Data | None, driver: Data | None, pods: list[Data]
    ) -> tuple[str, str]:
        """A state, and why."""
        task = dag["tasks"][path[-1]]
        if driver is not None and driver.get("phase") in _BROKEN:
            return self._broken, f"KFP's driver, which prepares it, failed: {driver.get('message', '')}"
        if node is None:
            return self._not_begun(path[:-1], str((driver or {}).get("message") or ""))
        phase, last = node.get("phase"), pods[-1] if pods else node
        if phase == "Omitted":
            needs = [self._known[(*path[:-1], need)] for need in _needs(task) if need in dag["tasks"]]
            return (SKIPPED if all(each.state in (SUCCEEDED, SKIPPED) for each in needs) else NOT_RUN), ""
        if phase == "Skipped":
            return SKIPPED, ""
        if phase == "Succeeded":
            is_cached = (self._last((*path, "executor")) or {}).get("phase") == "Skipped"
            return SUCCEEDED, "taken from KFP's cache" if is_cached else ""
        message = str(last.get("message") or node.get("message") or "")
        if phase in _BROKEN or self._is_over:
            failed_before = pods and last.get("phase") in _BROKEN and "exceeded its deadline" not in message
            state = FAILED if failed_before else self._broken
            return state, (cause(last)[1] or message) if state == FAILED else "the run was stopped"
        if last.get("phase") in _BROKEN:
            return WAITING, f"for another attempt; the last one ended: {message}"
        is_running = "dag" in self._component(task) or (pods and last.get("phase") != "Pending")
        return (RUNNING, "") if is_running else (WAITING, message)

    def _not_begun(self, around: Path, message: str) -> tuple[str, str]:
        """What is in a group that never began ended like the group."""
        while around and around[-1].startswith("#"):
            around = around[:-1]
        group = self._known.get(around)
        if group and (group.state in (SKIPPED, NOT_RUN) or (group.state == self._broken and not group.started)):
            return group.state, group.because
        if group and group.state == SUCCEEDED and around[-1].startswith("for-loop-"):
            return SKIPPED, "its list is empty"
        return (NOT_RUN, "") if self._is_over else (WAITING, message)

    def _take(self, path: Path, name: str) -> None:
        """What a step took of others: its inputs are called `<step>-<output>`, and no output has a hyphen."""
        patch = self._values((*path[:-1], f"{path[-1]}-driver")).get("pod-spec-patch", "")
        try:
            words = json.loads(patch)["containers"][0]["command"]
            inputs = json.loads(words[words.index("--executor_input") + 1])["inputs"]["parameterValues"]
        except (ValueError, LookupError, TypeError, AttributeError):
            return
        for key, value in inputs.items():
            step, _, output = f"{name[: name.rfind('.') + 1]}{key}".rpartition("-")
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            self._taken.setdefault(step, {})[output] = text

    def _outputs(self, step: StepState) -> Mapping[str, str]:
        return self._taken.get(step.name, {}) if step.state == SUCCEEDED else {}


def _path(name: str) -> Path:
    parts: list[str] = []
    for index, segment in enumerate(name.split(".")[1:]):
        match = _SEGMENT.fullmatch(segment)
        base, turn = match.groups() if match else (segment, None)
        if base == "onExit":
            parts.pop()
        elif turn is not None:
            parts.append(f"#{turn}")
        elif base == "iteration-item" and parts and parts[-1].startswith("#"):
            continue
        elif base != "root" or index > 0:
            parts.append(base)
    return tuple(parts)


def _needs(task: Data) -> list[str]:
    sources = [source for kind in (task.get("inputs") or {}).values() for source in kind.values()]
    words = [word for source in sources for word in source.values() if isinstance(word, dict)]
    return [*task.get("dependentTasks", ()), *(word["producerTask"] for word in words if "producerTask" in word)]


def _in_order(dag: Data) -> list[str]:
    """The tasks of a DAG, each behind those that it waits for."""
    tasks = dag.get("tasks") or {}
    after: dict[str, list[str]] = {name: [] for name in tasks}
    for name, task in tasks.items():
        for need in after.keys() & _needs(task):
            after[need].append(name)
    return order(after)


def _together(name: str, own: StepState, copies: list[StepState]) -> StepState:
    """A step; where there are copies of it, what they are together."""
    if not copies:
        return replace(own, name=name)
    states = {each.state for each in copies}
    state = next((one for one in (RUNNING, INTERRUPTED, FAILED, WAITING, NOT_RUN, SUCCEEDED) if one in states), SKIPPED)
    because = next((each.because for each in copies if each.state == state), "")
    started = min((each.started for each in copies if each.started), default="")
    ended = max(each.ended for each in copies) if states <= {*STEP_ENDS} else ""
    if state == WAITING and states & {*STEP_ENDS}:
        state, because = RUNNING, ""
    return StepState(name, state, sum(each.attempts for each in copies), {}, because, started, ended)


def _rank(name: str, places: Mapping[str, int]) -> list[tuple[int, int]]:
    parts = name.split(".")
    plain = [".".join(part.partition("@")[0] for part in parts[: end + 1]) for end in range(len(parts))]
    return [(places[each], int(part.partition("@")[2] or -1)) for each, part in zip(plain, parts, strict=True)]
