"""Pods that a run leaves in the namespace besides those of its steps, and the steps that a run surely starts.

Kubeflow runs a driver pod for every task and for every group of tasks. Which groups there are follows from the
compiled pipeline (`gpuflow.targets.kubeflow`), and which drivers a group has from KFP 2.17's compiler,
backend/src/v2/compiler/argocompiler/dag.go:

- one for the run (`DAG`, the entry point);
- one for each container, in each of its copies (`task`, `containerDriverTask`);
- one for each sub-pipeline, condition and exit handler (`task`, `dagDriverTask`);
- one for each loop, and one for each of its items (`iterationItemTask`);
- one to create a claim and one to delete it, without an executor (`dummyImages`).
"""

from __future__ import annotations

from gpuflow.demands.model import DriverPods
from gpuflow.graph import Unknown
from gpuflow.plan import Plan, PlannedStep
from gpuflow.spec.expression import asks_item
from gpuflow.spec.fan_out import Range


def driver_pods(plan: Plan) -> DriverPods:
    """The drivers that Kubeflow runs for a pipeline."""
    count = _Count(plan, sure_steps(plan))
    pipeline = plan.pipeline
    groups = 1  # the run itself
    if pipeline.exit or pipeline.claims:
        groups += 1  # the steps stand in an exit handler
    if pipeline.claims:
        groups += 1 + 2 * len(pipeline.claims)  # all of that in a group, claims created before it and deleted after
    if pipeline.claims or len(pipeline.exit) > 1 or any(each.step.when for each in plan.steps if _is_exit(each)):
        groups += 1  # exit steps, and what deletes claims, in a group of their own
    most, least = count.inside("")
    return DriverPods(None if most is None else groups + most, groups + least, count.because)


def sure_steps(plan: Plan) -> frozenset[str]:
    """The steps that every run starts which succeeds: no condition, and no result from a cache, can leave them out."""
    open_ended = {
        each.name
        for each in plan.steps
        if each.step.when is not None or each.step.on in ("success", "failure") or each.step.cache
    }
    return frozenset(each.name for each in plan.steps) - _with_followers(plan, open_ended)


def _with_followers(plan: Plan, names: set[str]) -> set[str]:
    """These steps, those that wait for one of them, and everything inside them."""
    after: dict[str, list[str]] = {}
    for each in plan.steps:
        for before in (*each.needs, *(() if each.parent is None else (each.parent.name,))):
            after.setdefault(before, []).append(each.name)
    found, left = set(names), list(names)
    while left:
        for name in after.get(left.pop(), ()):
            if name not in found:
                found.add(name)
                left.append(name)
    return found


def _is_exit(each: PlannedStep) -> bool:
    return each.section == "exit" and each.parent is None


class _Count:
    """Drivers of the steps of a plan."""

    def __init__(self, plan: Plan, sure: frozenset[str]) -> None:
        self.plan, self.sure = plan, sure
        self.because: str | None = None

    def inside(self, within: str) -> tuple[int | None, int]:
        """Those of one pipeline's steps: the most, and the least."""
        most: int | None = 0
        least = 0
        for each in self.plan.inside.get(within, ()):
            more, fewer = self._around(each)
            most = None if most is None or more is None else most + more
            least += fewer if each.name in self.sure else 0
        return most, least

    def _around(self, each: PlannedStep) -> tuple[int | None, int]:
        """A step with its loops and its condition."""
        most, least = self._body(each)
        when = each.step.when
        if when is not None and asks_item(when):
            most, least = None if most is None else most + 1, least + 1
        if each.step.for_each is not None:
            most, least = self._looped(each, most, least)
        if when is not None and not asks_item(when):
            most, least = None if most is None else most + 1, least + 1
        return most, least

    def _looped(self, each: PlannedStep, most: int | None, least: int) -> tuple[int | None, int]:
        """Lists that are written out are one loop together; others nest, each in a loop of its own."""
        if isinstance(each.copies, Unknown):
            self.because = self.because or each.copies.because
            return None, 1
        copies, sources = each.copies, list((each.step.for_each or {}).values())
        nested = 1 if all(isinstance(source, Range | tuple) for source in sources) else len(sources)
        # Of nested loops only the number of all copies is known here: no loop has more drivers than twice that.
        drivers = 1 + copies if nested == 1 else 2 * nested * max(copies, 1)
        return None if most is None else drivers + copies * most, 1 + copies * (1 + least)

    def _body(self, each: PlannedStep) -> tuple[int | None, int]:
        if each.kind == "approval":
            return 0, 0
        if each.kind == "container":
            return 1, 1
        most, least = self.inside(each.name)
        return None if most is None else most + 1, least + 1
