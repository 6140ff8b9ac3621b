"""What a person sees of a run: one line for each change, reasons of what waits long, and a tree that moves.

Tests gpuflow/runs/watch.py and gpuflow/cli/live_tree.py.
"""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from gpuflow.runs.model import RunState, StepState
from gpuflow.runs.watch import PlainView, Reasons, tree_lines
from gpuflow.runtime.base.progress import Progress

TRAIN = StepState("train", "waiting", pods=("run-train-1",))
RUN = RunState("run", "argo", "p", "", "running", (StepState("prepare", "succeeded", 1, {"shards": "8"}), TRAIN))


def with_train(**changes: object) -> RunState:
    return replace(RUN, steps=(RUN.steps[0], replace(TRAIN, **changes)))  # type: ignore[arg-type]


def test_each_change_is_said_once() -> None:
    lines: list[str] = []
    view = PlainView(lines.append)
    view.update(replace(RUN, state="waiting", because="Argo has not begun it", steps=()))
    for state in (
        *(RUN, RUN, with_train(because="no room"), with_train(because="no room")),
        *(with_train(state="running", attempts=1), with_train(state="running", attempts=1)),
        with_train(state="running", attempts=1, progress=Progress(40, 100, "loss=0.3")),
        *(with_train(state="running", attempts=2), with_train(state="failed", attempts=2, because="exit code 3")),
    ):
        view.update(state)
    assert [each[9:] for each in lines] == [
        "run waits: Argo has not begun it",
        "run has begun",
        "prepare succeeded: shards=8",
        "train waits: no room",
        "train started",
        "train: 40 of 100, loss=0.3",
        "train is tried again (attempt 2)",
        "train failed: exit code 3",
    ]


def test_why_is_asked_only_of_what_waits_long_and_not_at_every_look() -> None:
    asked: list[str] = []

    def why(step: StepState) -> str:
        asked.append(step.name)
        return "2 nodes have no room"

    patient = Reasons(why, long=1000)
    assert patient.added_to(RUN) == RUN and asked == []
    eager = Reasons(why, long=0)
    for _ in range(3):
        assert eager.added_to(RUN).steps[1].because == "2 nodes have no room"
    assert asked == ["train"]
    assert eager.added_to(with_train(state="running")).steps[1].because == ""
    silent = Reasons(lambda _: "", long=0)
    assert silent.added_to(with_train(because="Argo's words")).steps[1].because == "Argo's words"


def test_the_tree_shows_copies_and_what_is_inside_below_their_step() -> None:
    steps = (
        StepState("tune", "failed", because="one failed"),
        StepState("tune@1", "succeeded", 1),
        StepState("tune@1.score", "succeeded", 3, {"score": "0.9"}),
        StepState("deploy", "not run", because="tune failed"),
    )
    assert list(tree_lines(replace(RUN, steps=steps))) == [
        "  x tune  failed: one failed",
        "    + tune@1  succeeded",
        "      + tune@1.score  succeeded: score=0.9",
        "  - deploy  not run: tune failed",
    ]


def test_what_a_step_wrote_is_no_order_to_the_terminal() -> None:
    lines: list[str] = []
    PlainView(lines.append).update(with_train(because="\x1b[31mred\n::error::x"))
    assert "\x1b" not in lines[-1] and "\n" not in lines[-1]


def test_a_terminal_shows_spinners_and_bars_that_fit_on_it() -> None:
    pytest.importorskip("rich")
    from rich.console import Console

    from gpuflow.cli.live_tree import LiveTree, picture

    out = io.StringIO()
    running = with_train(state="running", attempts=1, progress=Progress(40, 100, "loss=0.3"))
    Console(file=out, width=60).print(picture(running))
    assert "succeeded: shards=8" in out.getvalue()
    assert "40 of 100, loss=0.3" in out.getvalue() and max(map(len, out.getvalue().splitlines())) <= 60
    many = replace(RUN, steps=tuple(StepState(f"s{number}", "succeeded", 1) for number in range(500)))
    Console(file=out, width=60).print(picture(many))
    assert "more" in out.getvalue() and len(out.getvalue().splitlines()) < 100
    with LiveTree(out) as tree:
        tree.say("argo answers again")
        tree.update(running)
    assert "argo answers again" in out.getvalue()
