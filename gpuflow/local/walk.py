"""The steps of one run in their order: what may start, what it waits for, what follows from how it ended.

A `Branch` is a pipeline in one place of the run: the pipeline itself, or a copy of a step that is one. A `Node` is a
step in a branch, and a `Copy` one of the copies that its fan-out makes of it; a step without a fan-out has one copy.
Copies are made when they can start, so that a long list costs nothing.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuflow.local import attempt as attempts
from gpuflow.local import gangs
from gpuflow.local.attempt import End, MappedValues, Place, Spent
from gpuflow.local.events import Events
from gpuflow.local.machine import Room, Share, Wanted
from gpuflow.local.record import FAILED, INTERRUPTED, NOT_RUN, RUNNING, SKIPPED, SUCCEEDED, WAITING, RunFolder
from gpuflow.local.values import NoValue, Outputs, RunFacts, Scope, gathered_outputs, item_at
from gpuflow.plan import Plan, PlannedStep
from gpuflow.pod.later_attempts import memory_by_attempt
from gpuflow.runtime.base import progress
from gpuflow.runtime.base.outcomes import OUT_OF_MEMORY
from gpuflow.spec import expression
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline

SETTLED = (SUCCEEDED, FAILED, SKIPPED, NOT_RUN)
Tell = Callable[[str, str, Mapping[str, Any]], None]
"""Told of each event: the step's key, the event's name, and its fields."""


class Branch:
    """A pipeline in one place of the run."""

    def __init__(self, walk: Walk, pipeline: Pipeline, params: Mapping[str, Any], above: Copy | None = None) -> None:
        self.above, self.parallel = above, pipeline.parallel
        self.scope = Scope(pipeline, params, walk.facts, self._outputs_of)
        self.prefix = "" if above is None else f"{above.key}."
        self.nodes: dict[str, Node] = {}
        self.running = 0
        """Programs that run in it now."""
        self.ended_because = ""
        """Why nothing more may start in it."""

    def _outputs_of(self, name: str) -> Outputs | None:
        node = self.nodes[name]
        return node.outputs if node.state == SUCCEEDED else None

    @property
    def around(self) -> Iterator[Branch]:
        """It, and those around it."""
        branch: Branch | None = self
        while branch is not None:
            yield branch
            branch = None if branch.above is None else branch.above.node.branch

    def every_node(self) -> Iterator[Node]:
        """Its steps, and behind each those inside it."""
        for node in self.nodes.values():
            yield node
            for branch in node.inside:
                yield from branch.every_node()

    @property
    def is_over(self) -> bool:
        return all(node.state in SETTLED for node in self.nodes.values())

    @property
    def has_failed(self) -> bool:
        return bool(self.ended_because) or any(node.state == FAILED for node in self.nodes.values())


@dataclass(eq=False)
class Node:
    """A step in a branch."""

    planned: PlannedStep
    branch: Branch
    key: str
    state: str = WAITING
    because: str = ""
    outputs: Outputs = field(default_factory=dict)
    lists: Mapping[str, Any] = field(default_factory=dict)
    total: int = 1
    next: int = 0
    """The number of the next copy."""
    open: int = 0
    """Copies that have begun and are not over."""
    attempts: int = 0
    results: dict[int, tuple[str, Outputs]] = field(default_factory=dict)
    """How each copy ended, and its outputs."""
    inside: list[Branch] = field(default_factory=list)
    """Of a step that is a pipeline: those that its copies are, as far as they have begun."""
    has_told_waiting: bool = False
    last_progress: progress.Progress | None = None
    """How far its last attempt came, of a step with one copy."""

    @property
    def has_copies_left(self) -> bool:
        return self.next < self.total


@dataclass(eq=False)
class Copy:
    """One copy of a step."""

    node: Node
    index: int
    key: str
    item: Mapping[str, Any]
    spent: Spent = field(default_factory=Spent)
    memory_failures: int = 0
    running: gangs.AttemptRun | None = None
    shares: tuple[Share, ...] = ()
    """What its program has of the machine, or each rank of it."""
    inside: Branch | None = None
    """Of a step that is a pipeline."""
    is_over: bool = False


class Walk:
    """One run from its beginning, or from where it was left, to its end."""

    def __init__(
        self, plan: Plan, run: RunFolder, room: Room, events: Events, place: Place, tell: Tell, wanted: set[str] | None
    ) -> None:
        """`wanted`: the steps of the pipeline to run; None: all, and then the exit steps."""
        facts = run.facts()
        self.plan, self.run, self.room, self.events, self.place, self.tell = plan, run, room, events, place, tell
        self.facts = RunFacts(run.id, facts.date, plan.pipeline.schedule)
        self.wanted = wanted
        self.pythons: Mapping[str, str] = {}
        self.approve: Callable[[Copy], bool | None] = lambda copy: None
        """The answer to a question that is known already."""
        self.ask: Callable[[Copy], None] = lambda copy: None
        """Ask a person; the answer comes by `answer`."""
        self.is_stopping = False
        self._copies: set[Copy] = set()
        """Those whose program runs."""
        self._queue: list[Node] = []
        """Steps with copies left to start."""
        self._again: deque[Copy] = deque()
        """Copies whose next attempt is due."""
        self._sleeping: set[Copy] = set()
        """Copies that wait for the time of their next attempt."""
        self._changed: list[Branch] = []
        """Branches in which a step was settled: others in them may begin."""
        self.questions: list[Copy] = []
        self.main = Branch(self, plan.pipeline, facts.params)
        self.exit: Branch | None = None

    # -- the whole

    def start(self) -> None:
        """Begin with the steps that wait for nothing."""
        limit = self.plan.pipeline.deadline
        if limit is not None:
            why = f"the run took longer than its deadline of {limit}"
            self.events.at(time.monotonic() + limit.seconds, lambda: self.cancel(self.main, why))
        self._fill(self.main, "")

    @property
    def is_over(self) -> bool:
        """Whether nothing runs, and nothing more will."""
        if self.is_stopping:
            return not self._copies
        return self.main.is_over and (self.exit is None or self.exit.is_over) and not self._exit_is_due()

    @property
    def state(self) -> str:
        """How the run has ended."""
        if self.is_stopping:
            return INTERRUPTED
        return (
            FAILED if any(branch.has_failed for branch in (self.main, self.exit) if branch is not None) else SUCCEEDED
        )

    def nodes(self) -> Iterator[Node]:
        """Every step in every place so far, in document order, exit steps last."""
        yield from self.main.every_node()
        if self.exit is not None:
            yield from self.exit.every_node()

    def advance(self) -> None:
        """Start what can start now."""
        while not self.is_stopping:
            while self._changed:
                branch = self._changed.pop()
                self._look(branch)
                self._close(branch)
            if self._exit_is_due():
                self.exit = Branch(self, self.plan.pipeline, self.main.scope.params)
                self.exit.scope = self.main.scope
                self._fill(self.exit, "", section="exit")
                continue
            for _ in range(len(self._again)):
                copy = self._again.popleft()
                if not self._begin(copy):
                    self._again.append(copy)
            for node in self._queue:
                self._start_copies(node)
            self._queue = [node for node in self._queue if node.has_copies_left and node.state == RUNNING]
            if not self._changed:
                return

    def stop(self) -> None:
        """An interruption: tell every program to stop, and start nothing more."""
        self.is_stopping = True
        for copy in list(self._copies):
            self._terminate(copy)

    def kill(self) -> None:
        """End every program now."""
        self.is_stopping = True
        attempts.kill_all(str(self.run.path))
        for copy in list(self._copies):
            if copy.running is not None:
                copy.running.kill()

    def cancel(self, branch: Branch, why: str) -> None:
        """End a branch as failed: nothing more of it starts, and what runs in it is told to stop."""
        if branch.is_over or branch.ended_because:
            return
        branch.ended_because = why
        inside = [
            copy
            for copy in (*self._copies, *self._sleeping, *self._again, *self.questions)
            if branch in copy.node.branch.around
        ]
        for node in [node for node in self.nodes() if branch in node.branch.around]:
            node.branch.ended_because = node.branch.ended_because or why
            node.next = node.total
            if node.state == WAITING or (node.state == RUNNING and not node.open):
                self._settle_node(node, NOT_RUN, why)
        for copy in inside:
            if copy in self._copies:
                self._terminate(copy)
            else:
                self._over(copy, FAILED, because=why)
        self._changed.append(branch)

    def answer(self, copy: Copy, *, yes: bool) -> None:
        """What a person said to a question."""
        if copy in self.questions:
            self.questions.remove(copy)
            self.run.write("answered", step=copy.key, yes=yes)
            self._over(copy, SUCCEEDED if yes else FAILED, because="approved" if yes else "rejected")

    # -- steps

    def _exit_is_due(self) -> bool:
        return self.wanted is None and self.exit is None and self.main.is_over and bool(self.plan.pipeline.exit)

    def _fill(self, branch: Branch, parent: str, section: str = "steps") -> None:
        """The nodes of a branch, and those of them that can begin."""
        for planned in self.plan.steps_by_parent.get(parent, ()):
            if planned.section == section:
                node = Node(planned, branch, branch.prefix + planned.own_name)
                branch.nodes[planned.own_name] = node
        self._changed.append(branch)

    def _look(self, branch: Branch) -> None:
        """Decide about the steps of a branch whose needs are settled."""
        for node in branch.nodes.values():
            needs = [branch.nodes[need] for need in node.planned.own_needs if need in branch.nodes]
            if node.state == WAITING and all(need.state in SETTLED for need in needs):
                self._decide(node, needs)

    def _decide(self, node: Node, needs: list[Node]) -> None:
        """Skip a step, or let its copies begin."""
        step, known = node.planned.step, self.run.step(node.key)
        is_asked_for = self.wanted is None or node.branch is not self.main or node.key in self.wanted
        # What is inside a sub-pipeline is gone through again, so that it is shown with its outputs.
        if known.state == SUCCEEDED and not (step.pipeline is not None and is_asked_for):
            node.attempts = known.attempts
            self._settle_node(node, SUCCEEDED, known.because, known.outputs, is_news=False)
            return
        if not is_asked_for:
            state = SKIPPED if known.state == SKIPPED else NOT_RUN
            self._settle_node(node, state, "it was not asked for", is_news=False)
            return
        broken = next((need for need in needs if need.state in (FAILED, NOT_RUN)), None)
        if broken is not None:
            verb = "failed" if broken.state == FAILED else "was not run"
            self._settle_node(node, NOT_RUN, f'"{broken.planned.own_name}" {verb}')
            return
        skipped = next((need for need in needs if need.state == SKIPPED), None)
        if skipped is not None and step.if_skipped != "run":
            self._settle_node(node, SKIPPED, f'"{skipped.planned.own_name}" was skipped')
            return
        if (reason := self._reason_not_to(node)) is not None:
            self._settle_node(node, SKIPPED, reason)
            return
        try:
            self._open(node)
        except NoValue as fault:
            self._settle_node(node, FAILED, str(fault))

    def _reason_not_to(self, node: Node) -> str | None:
        """Why an exit step does not run after this ending."""
        if node.planned.section != "exit" or node.planned.parent is not None:
            return None
        on, failed = node.planned.step.on, self.main.has_failed
        if on in ("failure", "success") and failed != (on == "failure"):
            return f"it runs on {on}, and the run {'failed' if failed else 'succeeded'}"
        return None

    def _open(self, node: Node) -> None:
        step, scope = node.planned.step, node.branch.scope
        if not expression.asks_item(step.when) and not scope.holds(step, {}):
            self._settle_node(node, SKIPPED, _why_not(node))
            return
        node.lists = scope.lists(step)
        node.total = math.prod(len(items) for items in node.lists.values())
        node.state = RUNNING
        if not node.total:
            self._settle_node(node, SKIPPED, "its list is empty")
            return
        self._queue.append(node)

    def _start_copies(self, node: Node) -> None:
        while node.has_copies_left and not self.is_stopping and node.state == RUNNING:
            most = node.planned.step.parallel
            if most is not None and node.open >= most:
                return
            index = node.next
            item = item_at(node.lists, index)
            copy = Copy(node, index, f"{node.key}@{index}" if node.planned.step.for_each else node.key, item)
            node.open += 1
            if not self._begin(copy):
                node.open -= 1
                return
            node.next = max(node.next, index + 1)

    def _begin(self, copy: Copy) -> bool:
        """Begin a copy, or its next attempt; False when it must wait."""
        node, known = copy.node, self.run.step(copy.key)
        step, is_first = node.planned.step, not copy.spent.failures + copy.spent.interruptions
        try:
            if is_first and known.state == SUCCEEDED and step.pipeline is None:
                self._over(copy, SUCCEEDED, known.outputs)
                return True
            if is_first and expression.asks_item(step.when) and not node.branch.scope.holds(step, copy.item):
                self._over(copy, SKIPPED, because=_why_not(node))
                return True
            if step.runs_container:
                return self._begin_program(copy, is_first=is_first)
            if step.approval is not None:
                self._begin_question(copy)
            else:
                self._begin_branch(copy)
        except NoValue as fault:
            self._over(copy, FAILED, because=str(fault))
        return True

    def _begin_branch(self, copy: Copy) -> None:
        step = copy.node.planned.step
        assert step.pipeline is not None
        params = copy.node.branch.scope.arguments(step, copy.item)
        copy.inside = Branch(self, step.pipeline, params, copy)
        copy.node.inside.append(copy.inside)
        self._limit_time(copy, copy.node.planned.step.timeout)
        self._fill(copy.inside, copy.node.planned.name)

    def _begin_question(self, copy: Copy) -> None:
        known = self.approve(copy)
        self.questions.append(copy)
        if known is not None:
            self.answer(copy, yes=known)
            return
        approval = copy.node.planned.step.approval
        assert approval is not None
        self._limit_time(copy, approval.timeout or copy.node.planned.step.timeout)
        self.ask(copy)

    def _limit_time(self, copy: Copy, limit: Any) -> None:
        if limit is None:
            return

        def end() -> None:
            if copy.is_over:
                return
            why = f"it took longer than {limit}"
            if copy.inside is not None:
                self.cancel(copy.inside, why)
            else:
                self.questions.remove(copy)
                self._over(copy, FAILED, because=why)

        self.events.at(time.monotonic() + limit.seconds, end)

    # -- programs

    def _begin_program(self, copy: Copy, *, is_first: bool) -> bool:
        node = copy.node
        if any(each.parallel is not None and each.running >= each.parallel for each in node.branch.around):
            return False
        wanted = self._wish_of(copy)
        try:
            shares = self.room.take_all(wanted)
        except ValueError as never:  # with the memory that it has grown to
            self._over(copy, FAILED, because=str(never))
            return True
        if shares is None:
            if (gpus := sum(each.gpus for each in wanted)) and not node.has_told_waiting:
                node.has_told_waiting = True
                self.tell(copy.key, "waits", {"gpus": gpus})
            return False
        try:
            copy.running = self._launch(copy, shares, is_first=is_first)
        except (NoValue, OSError) as fault:
            self._give_back(shares)
            because = str(fault) if isinstance(fault, NoValue) else f"it cannot be started: {fault}"
            self._over(copy, FAILED, because=because)
            return True
        copy.shares = shares
        self._copies.add(copy)
        for branch in node.branch.around:
            branch.running += 1
        copy.running.watch(self.events, node.planned, lambda end: self._take_end(copy, end))
        self._show_progress(copy, copy.running)
        return True

    def _show_progress(self, copy: Copy, running: gangs.AttemptRun, known: progress.Progress | None = None) -> None:
        """Tell now and then how far a program is, while it runs. `known`: what was told last."""
        if copy.running is running:
            if (found := running.last_progress()) not in (None, known):
                self.tell(copy.key, "progress", {"text": str(found)})
            due = time.monotonic() + progress.pause(running.seconds())
            self.events.at(due, lambda: self._show_progress(copy, running, found))

    def _give_back(self, shares: tuple[Share, ...]) -> None:
        for share in shares:
            self.room.give_back(share)

    def _wish_of(self, copy: Copy) -> list[Wanted]:
        """What its program asks for, or each rank of it; memory has grown with each time that it was too little."""
        wanted, retry = gangs.wanted_by(copy.node.planned.step), copy.node.planned.step.retry
        if copy.memory_failures and retry is not None and retry.more_memory is not None:
            more, times = retry.more_memory, copy.memory_failures
            return [replace(each, memory=memory_by_attempt(each.memory, more, times)[-1]) for each in wanted]
        return wanted

    def _launch(self, copy: Copy, shares: tuple[Share, ...], *, is_first: bool) -> gangs.AttemptRun:
        node, known = copy.node, self.run.step(copy.key)
        planned = attempts.local_step(node.planned, self.run)
        values = MappedValues(node.branch.scope, copy.item, known.attempts + 1)
        options = [f"--run-id={self.run.id}" + (f".{known.generation}" if known.generation else "")]
        if is_first and known.attempts:  # the user decided to go on, whatever the attempts before have spent
            options.append("--after-final=renew")
        python = self.pythons.get(node.planned.name)
        place = replace(self.place, key=copy.key, python=python, options=tuple(options))
        running = gangs.launch(planned, values, place, shares, copy.spent.interruptions)
        try:
            self.run.write("started", step=copy.key, attempt=values.attempt, supervisors=running.supervisors)
        except BaseException:
            running.terminate()  # nobody would end what nobody has written down
            raise
        node.attempts += 1
        self.tell(copy.key, "started", {"attempt": values.attempt, "item": copy.item, "is_first": is_first})
        if running.remark:
            self.tell(copy.key, "remark", {"text": running.remark})
        return running

    def _terminate(self, copy: Copy) -> None:
        """Tell a program to stop; kill it where the supervisor does not end in its time."""
        running = copy.running
        if running is None:
            return
        running.terminate()
        late = time.monotonic() + running.grace + attempts.KILL_MARGIN
        self.events.at(late, lambda: running.kill() if copy.running is running else None)

    def _take_end(self, copy: Copy, end: End) -> None:
        running, node = copy.running, copy.node
        assert running is not None
        self._give_back(copy.shares)
        copy.running, copy.shares = None, ()
        so_far = running.last_progress()
        node.last_progress = None if node.planned.step.for_each else so_far
        self._copies.discard(copy)
        for branch in node.branch.around:
            branch.running -= 1
        copy.spent = copy.spent.plus(end) if end.state != SUCCEEDED else copy.spent
        copy.memory_failures += end.outcome == OUT_OF_MEMORY
        cancelled = next((each.ended_because for each in node.branch.around if each.ended_because), "")
        seconds = round(running.seconds(), 3)
        attempts.write_end(self.run, copy.key, self.run.step(copy.key).attempts, end, seconds=seconds)
        again = end.state != SUCCEEDED and not cancelled and attempts.is_tried_again(node.planned, end, copy.spent)
        wait = attempts.wait_before(node.planned, end, copy.spent) if again else 0.0
        is_final = not again and not (self.is_stopping and end.state == INTERRUPTED)
        facts = {"end": end, "seconds": seconds, "log": running.log(end), "progress": so_far}
        self.tell(copy.key, "ended", {**facts, "again": again and not self.is_stopping, "wait": wait})
        if end.state == SUCCEEDED:
            self._over(copy, SUCCEEDED, end.outputs)
        elif is_final:
            self._over(copy, FAILED, because=cancelled or end.because)
        elif not self.is_stopping:
            self._wait(copy, wait)

    def _wait(self, copy: Copy, seconds: float) -> None:
        self._sleeping.add(copy)

        def wake() -> None:
            if copy in self._sleeping:
                self._sleeping.discard(copy)
                self._again.append(copy)

        self.events.at(time.monotonic() + seconds, wake)

    # -- ends

    def _over(self, copy: Copy, state: str, outputs: Outputs | None = None, because: str = "") -> None:
        """A copy has ended for good."""
        if copy.is_over:
            return
        copy.is_over = True
        node = copy.node
        self._sleeping.discard(copy)
        if copy in self._again:
            self._again.remove(copy)
        if copy in self.questions:
            self.questions.remove(copy)
        node.open -= 1
        node.next = max(node.next, copy.index + 1)
        node.results[copy.index] = (state, outputs or {})
        node.because = node.because or (because if state in (FAILED, SKIPPED) else "")
        if not node.planned.step.runs_container and node.planned.step.for_each:
            self.run.write("settled", step=copy.key, state=state, because=because, outputs=dict(outputs or {}))
        if not node.open and not node.has_copies_left:
            self._finish(node)

    def _finish(self, node: Node) -> None:
        """All copies of a step are over."""
        states = [state for state, _ in node.results.values()]
        if FAILED in states or len(states) < node.total:
            self._settle_node(node, FAILED, node.because)
            return
        if SUCCEEDED not in states:
            self._settle_node(node, SKIPPED, node.because)
            return
        if not node.planned.step.for_each:
            self._settle_node(node, SUCCEEDED, "", node.results[0][1])
            return
        done = [outputs for _, (state, outputs) in sorted(node.results.items()) if state == SUCCEEDED]
        try:
            self._settle_node(node, SUCCEEDED, "", gathered_outputs(node.planned.step, done))
        except NoValue as fault:
            self._settle_node(node, FAILED, str(fault))

    def _settle_node(
        self, node: Node, state: str, because: str, outputs: Outputs | None = None, *, is_news: bool = True
    ) -> None:
        node.state, node.because, node.outputs = state, because, outputs or {}
        is_news = is_news and self.run.step(node.key).state != state
        is_written = node.planned.step.runs_container and not node.planned.step.for_each and state == SUCCEEDED
        if is_news and not is_written:
            self.run.write("settled", step=node.key, state=state, because=because, outputs=dict(node.outputs))
        self.tell(node.key, "settled", {"node": node, "is_news": is_news})
        self._changed.append(node.branch)

    def _close(self, branch: Branch) -> None:
        """A branch that is over ends the copy that it is."""
        copy = branch.above
        if copy is None or copy.is_over or not branch.is_over or not branch.nodes:
            return
        if branch.has_failed:
            broken = next((node.planned.own_name for node in branch.nodes.values() if node.state == FAILED), None)
            self._over(copy, FAILED, because=branch.ended_because or f'"{broken}" in it failed')
            return
        try:
            self._over(copy, SUCCEEDED, branch.scope.results())
        except NoValue as fault:
            self._over(copy, FAILED, because=str(fault))


def _why_not(node: Node) -> str:
    when = node.planned.step.when
    return f"it runs only when {expression.render(when)}" if when is not None else ""


def item_text(item: Mapping[str, Any]) -> str:
    """`seed=1, model=small`."""
    return ", ".join(f"{name}={text_of(value)}" for name, value in item.items())
