"""The nodes of an Argo Workflow as steps of the pipeline.

The templates say which steps there are, so that steps which have not begun are known, whoever started the run. A node
is called after the tasks on the way to it: `run.tune(0:x).train(1)` is the second attempt of `train` in the first copy
of `tune`. Templates that gpuflow puts around a step (`train-loop`, `train-export`) have one task of the same name,
and are passed over.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuflow.local.record import FAILED, INTERRUPTED, NOT_RUN, RUNNING, SKIPPED, SUCCEEDED, WAITING
from gpuflow.plan import Plan
from gpuflow.runs.model import STEP_ENDS, StepState
from gpuflow.runtime.base import outcomes
from gpuflow.runtime.base.progress import Progress
from gpuflow.runtime.supervise.evidence import from_argo, judge

Node = Mapping[str, Any]
_STATES = {"Succeeded": SUCCEEDED, "Skipped": SKIPPED, "Omitted": SKIPPED, "Failed": FAILED, "Error": FAILED}
STOPPED = "gpuflow.dev/stopped"
"""An annotation of a run that `gpuflow stop` has ended: the deadline that it had before."""
_ENDED = re.compile("(workflow shutdown|Stopped) with strategy|(Step|retry) exceeded (its|workflow) deadline")
"""How Argo begins the message of a node that a stop has ended."""
_NEEDS = re.compile(r"([\w-]+)\.Succeeded")
_COPY = re.compile(r"\((\d+)[:)]")
_GROUPS = ("DAG", "TaskGroup")


def nodes_of(workflow: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The nodes by their ids, also those that the controller has packed because they are many."""
    status = workflow.get("status") or {}
    if packed := status.get("compressedNodes"):
        return dict(json.loads(zlib.decompress(base64.b64decode(packed), wbits=47)))
    return dict(status.get("nodes") or {})


def is_stopped(workflow: Mapping[str, Any]) -> bool:
    """Whether somebody has ended it."""
    return bool(workflow["spec"].get("shutdown")) or STOPPED in (workflow["metadata"].get("annotations") or {})


def pod_name(workflow: Mapping[str, Any], node: Node) -> str:
    """The pod of a node. Mirrors GeneratePodName in workflow/util/pod_name.go, 4.0.2."""
    run, annotations = workflow["metadata"]["name"], workflow["metadata"].get("annotations") or {}
    if annotations.get("workflows.argoproj.io/pod-name-format") == "v1":
        return str(node["id"])
    if node["name"] == run:
        return str(run)
    digest = 0x811C9DC5  # FNV-1a
    for byte in node["name"].encode():
        digest = (digest ^ byte) * 0x01000193 & 0xFFFFFFFF
    template = (node.get("templateRef") or {}).get("template") or node.get("templateName") or ""
    return f"{f'{run}-{template}' if template else run}"[:242] + f"-{digest}"


class Steps:
    """The steps of one workflow."""

    def __init__(self, workflow: Mapping[str, Any]) -> None:
        status = workflow.get("status") or {}
        self._workflow, self._run = workflow, str(workflow["metadata"]["name"])
        self._spec = status.get("storedWorkflowTemplateSpec") or workflow.get("spec") or {}
        self._is_stopped = is_stopped(workflow)
        self._is_over = status.get("phase") in ("Succeeded", "Failed", "Error")
        self._templates = {each["name"]: each for each in self._spec.get("templates") or ()}
        self._by_id = nodes_of(workflow)
        self._nodes = {str(node["name"]): node for node in self._by_id.values()}

    def states(self, plan: Plan | None = None) -> tuple[StepState, ...]:
        """Every step, copy and step inside, in the order of the plan, or of the templates without one."""
        found = [*self._inside(self._spec.get("entrypoint"), self._run, "", is_over=self._is_over)]
        found += self._inside(self._spec.get("onExit"), f"{self._run}.onExit", "", is_over=self._is_over)
        if plan is None:
            return tuple(found)
        order = {each.name: number for number, each in enumerate(plan.steps)}
        known = [each for each in found if each.name.partition("@")[0].partition(".")[0] in order]
        # The sort is stable: what belongs to one step of the pipeline stays together.
        return tuple(sorted(known, key=lambda each: order[each.name.partition("@")[0].partition(".")[0]]))

    def _inside(self, template: str | None, node: str, prefix: str, *, is_over: bool) -> Iterator[StepState]:
        """The steps of a DAG. `is_over`: what has no node any more gets none."""
        states: dict[str, StepState] = {}
        for task in self._tasks(template):
            if self._sends_alerts(task):
                continue
            head, *rest = self._step(task, f"{node}.{task['name']}", prefix + task["name"], is_over=is_over)
            if head.state == SKIPPED and (self._nodes.get(f"{node}.{task['name']}") or {}).get("phase") == "Omitted":
                head = _left_out(head, [states[name] for name in _NEEDS.findall(task.get("depends", ""))])
            states[task["name"]] = head
            yield head
            yield from rest

    def _tasks(self, template: str | None) -> list[dict[str, Any]]:
        dag = self._templates.get(template or "", {}).get("dag") or {}
        return list(dag.get("tasks") or ())

    def _sends_alerts(self, task: Mapping[str, Any]) -> bool:
        """Whether it is no step, but one of the alerts of the exit handler."""
        template = self._templates.get(task["template"], {})
        return "http" in template or any(self._sends_alerts(each) for each in self._tasks(task["template"]))

    def _inner_task(self, task: Mapping[str, Any]) -> dict[str, Any] | None:
        """The task inside a template that only stands around a step."""
        tasks = self._tasks(task["template"])
        alone = tasks[0] if len(tasks) == 1 and tasks[0]["name"] == task["name"] else None
        # A pipeline with one step of its own name has a template that is called after both.
        return None if alone is None or alone["template"].startswith(f"{task['template']}-") else alone

    def _step(self, task: Mapping[str, Any], name: str, key: str, *, is_over: bool) -> list[StepState]:
        outer = self._nodes.get(name)
        is_loop = "withItems" in task or "withParam" in task
        while (inner := self._inner_task(task)) is not None:
            task, name = inner, f"{name}.{inner['name']}"
            is_loop = is_loop or "withItems" in task or "withParam" in task
        if not is_loop:
            return self._one(task, name, key, outer, is_over=is_over)
        group = self._nodes.get(name)
        found = [
            self._one(task, child["name"], f"{key}@{index}", None, is_over=is_over)
            for index, child in self._copies(name, group)
        ]
        head = self._state(key, outer or group, is_over=is_over)
        return [replace(head, attempts=sum(copy[0].attempts for copy in found)), *itertools.chain(*found)]

    def _copies(self, name: str, group: Node | None) -> list[tuple[int, Node]]:
        children = [self._by_id[each] for each in (group or {}).get("children") or () if each in self._by_id]
        found = [(_COPY.match(each["name"], len(name)), each) for each in children if each["name"].startswith(name)]
        return sorted(((int(match[1]), each) for match, each in found if match), key=lambda pair: pair[0])

    def _one(
        self, task: Mapping[str, Any], name: str, key: str, outer: Node | None, *, is_over: bool
    ) -> list[StepState]:
        """A step that is no loop, or one copy; with what is inside it."""
        head = self._state(key, self._nodes.get(name) or outer, is_over=is_over)
        if head.state in (SKIPPED, NOT_RUN) or not self._tasks(task["template"]):
            return [head]
        within = self._inside(task["template"], name, f"{key}.", is_over=head.state in STEP_ENDS)
        return [replace(head, attempts=0), *within]

    def _state(self, key: str, node: Node | None, *, is_over: bool) -> StepState:
        if node is None:
            return StepState(key, NOT_RUN if is_over else WAITING)
        tries = self._attempts(node)
        last = tries[-1] if tries else node
        begun = [each for each in tries if each.get("phase") != "Pending" or each is not last]
        state, because = self._judge(node, last)
        progress = None
        if last.get("type") == "Pod" and (said := re.fullmatch(r"(\d+)/(\d+)", last.get("progress") or "")):
            progress = Progress(int(said[1]), int(said[2])) if int(said[2]) > 1 else None
        outputs = (node.get("outputs") or {}).get("parameters") or ()
        return StepState(
            key,
            state,
            len(begun),
            {each["name"]: str(each["value"]) for each in outputs if each.get("value") is not None},
            because,
            (node.get("startedAt") or "") if begun or node.get("type") in _GROUPS else "",
            node.get("finishedAt") or "",
            progress,
            tuple(pod_name(self._workflow, each) for each in tries),
        )

    def _attempts(self, node: Node) -> list[Node]:
        """The nodes of its pods, oldest first."""
        if node.get("type") == "Retry":
            numbered = [
                self._nodes.get(f"{node['name']}({number})") for number in range(len(node.get("children") or ()))
            ]
            return [each for each in numbered if each is not None]
        return [node] if node.get("type") == "Pod" else []

    def _judge(self, node: Node, last: Node) -> tuple[str, str]:
        """Its state, and why."""
        phase, message = node.get("phase"), str(last.get("message") or node.get("message") or "")
        if phase in (None, "", "Pending", "Running"):
            if node.get("type") == "Suspend":
                asked = (self._templates.get(node.get("templateName") or "", {}).get("annotations") or {}).values()
                return WAITING, f"it waits for a person: {'; '.join(asked)}; argo resume {self._run} goes on"
            return (WAITING, message) if last.get("phase") in (None, "", "Pending") else (RUNNING, "")
        state = _STATES.get(str(phase), FAILED)
        if state != FAILED:
            return state, message if state == SKIPPED else ""
        if self._is_stopped and (_ENDED.match(message) or _ENDED.match(str(node.get("message") or ""))):
            return INTERRUPTED, "the run was stopped"
        outcome, because = cause(last)
        stopped = self._is_stopped and (outcome == outcomes.INTERRUPTED or node.get("type") in _GROUPS)
        return INTERRUPTED if stopped else FAILED, because


def cause(node: Node) -> tuple[str, str]:
    """Outcome and words: what the program or its supervisor said, else what the table of evidence says."""
    message, code = str(node.get("message") or ""), (node.get("outputs") or {}).get("exitCode")
    seen = from_argo(node.get("phase"), message, int(code) if code else None)
    verdict = judge(seen)
    if verdict is None or node.get("type") in _GROUPS:
        return "", message
    if seen.said or seen.exit_code is None:
        return verdict.outcome, f"{verdict.because}: {seen.said or message}"
    return verdict.outcome, f"{verdict.because} (exit code {seen.exit_code})"


def _left_out(step: StepState, needs: list[StepState]) -> StepState:
    """Argo says `Omitted` both after a failure and after a step that was skipped."""
    bad = next((each for each in needs if each.state not in (SUCCEEDED, SKIPPED)), None)
    if bad is not None:
        return replace(step, state=NOT_RUN, because=f"{bad.name} {bad.state}")
    skipped = next((each for each in needs if each.state == SKIPPED), None)
    return replace(step, because=step.because if skipped is None else f"{skipped.name} was skipped")
