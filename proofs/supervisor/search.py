"""The search: every execution within a bound, and by chance what lies beyond it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from itertools import islice

from proofs.supervisor.choices import Bounds, Choices, RandomChoices, all_choices
from proofs.supervisor.fakes import Fakes
from proofs.supervisor.saved import Saved
from proofs.supervisor.scene import Scenario, Scene


class Found:
    """An execution that violates an invariant."""

    def __init__(self, scenario: str, sentence: str, trace: list[str], path: list[int]) -> None:
        self.scenario, self.sentence, self.trace, self.path = scenario, sentence, trace, path

    def story(self) -> str:
        """The trace without what nothing depends on."""
        quiet = (": poll", ": look at the directory", ": ask whether to stop", ": begin", ": wait for the program")
        lines = [line for line in self.trace if not line.endswith(quiet)]
        return "\n".join([f"{self.scenario}: {self.sentence}", *lines])


class Report:
    """How much was explored, and what was found."""

    def __init__(self, scenario: str, bounds: Bounds) -> None:
        self.scenario, self.bounds = scenario, bounds
        self.executions = self.moves = self.points = 0
        self.states: set[int] = set()
        self.seconds = self.earlier = 0.0
        """Also before a search that was stopped went on."""
        self.complete = False
        self.found: list[Found] = []

    def add(self, other: Report) -> None:
        self.executions += other.executions
        self.moves += other.moves
        self.points += other.points
        self.states |= other.states
        self.seconds = max(self.seconds, other.seconds)
        self.complete = self.complete and other.complete
        self.found += other.found


def explore(
    scenario: Scenario,
    bounds: Bounds,
    until: float | None = None,
    *,
    share: tuple[int, int] = (0, 1),
    stop_at: int = 5,
    most: int | None = None,
    saved: Saved | None = None,
) -> Report:
    """All executions of a scenario within the bounds, unless time is up (`until` on the monotonic clock).

    With `most`, only so many of the first: the same ones on every machine. With `saved`, it goes on where it stopped.
    """
    report = Report(scenario.name, bounds)
    first, done = saved.take_up(report) if saved is not None else ([], False)
    if done:
        report.seconds, report.complete = report.earlier, True
        return report
    all_of_them = islice(all_choices(bounds, share, first or ()), most)
    return _run(scenario, report, all_of_them, until, stop_at, complete=most is None, saved=saved)


def sample(scenario: Scenario, bounds: Bounds, until: float, seed: str, stop_at: int = 5) -> Report:
    """Executions by chance, until time is up."""
    chance = random.Random(seed)

    def choices() -> Iterable[Choices]:
        while True:
            yield RandomChoices(chance, bounds, rate=chance.choice((0.01, 0.03, 0.1)))

    return _run(scenario, Report(scenario.name, bounds), choices(), until, stop_at, complete=False)


def _run(
    scenario: Scenario,
    report: Report,
    all_of_them: Iterable[Choices],
    until: float | None,
    stop_at: int,
    *,
    complete: bool,
    saved: Saved | None = None,
) -> Report:
    began = time.monotonic() - report.earlier
    sentences: set[str] = set()
    with Fakes():
        for choices in all_of_them:
            over = until is not None and time.monotonic() >= until
            if saved is not None and not report.found and (over or saved.due()):
                saved.save(report, list(choices.given), time.monotonic() - began)
            if over:
                break
            scene = Scene(scenario, choices)
            scene.world.states = report.states
            world = scene.run()
            report.executions += 1
            report.moves += world.moves
            report.points += len(choices.taken)
            for sentence in world.violations[:1]:
                if sentence not in sentences:
                    sentences.add(sentence)
                    report.found.append(Found(scenario.name, sentence, world.trace, choices.path()))
            if len(report.found) >= stop_at:
                break
        else:
            report.complete = complete
            if saved is not None and not report.found:
                saved.save(report, [], time.monotonic() - began, complete=True)
    report.seconds = time.monotonic() - began
    return report


def replay(scenario: Scenario, bounds: Bounds, path: list[int]) -> Found | None:
    """One execution again."""
    with Fakes():
        choices = Choices(path, bounds)
        world = Scene(scenario, choices).run()
    return Found(scenario.name, world.violations[0], world.trace, path) if world.violations else None
