"""A plan: every step of a pipeline once, resolved, in its place; and no command plans a pipeline twice.

Tests gpuflow/plan.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuflow import plan as plans
from gpuflow.cli.main import main
from gpuflow.demands import demand_of
from gpuflow.graph import Unknown
from gpuflow.plan import Plan, PlannedStep, plan_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline
from tests.conftest import ROOT

TEXT = """apiVersion: gpuflow/v1
kind: Pipeline
name: outer
labels: {team: nlp}
defaults: {image: registry.example.com/i:1, cpu: 2}
params: {seeds: {type: json, default: [1, 2, 3]}}
steps:
  prepare: {command: [x], outputs: {shards: json}}
  ask: {needs: [prepare], approval: go on?}
  tune:
    needs: [ask]
    for_each: {lr: [0.1, 0.2]}
    params: {items: {param: seeds}}
    pipeline:
      apiVersion: gpuflow/v1
      kind: Pipeline
      name: inner
      defaults: {image: registry.example.com/j:1}
      params: {items: {type: json}}
      steps:
        train: {command: [x], for_each: {i: {param: items}}}
        score: {command: [x], needs: [train]}
  shard: {command: [x], for_each: {s: {output: prepare.shards}}}
exit:
  tell: {command: [x], on: failure}
"""


def plan() -> Plan:
    return plan_of(loads(TEXT, "p.yaml"), Site.load("nvidia"))


def test_every_step_stands_once_by_its_full_name_in_document_order() -> None:
    steps = plan().steps
    assert [each.name for each in steps] == [
        "prepare", "ask", "tune", "tune.train", "tune.score", "shard", "tell",
    ]  # fmt: skip
    assert [each.kind for each in steps] == [
        "container", "approval", "pipeline", "container", "container", "container", "container",
    ]  # fmt: skip
    assert [each.name for each in plan().containers] == ["prepare", "tune.train", "tune.score", "shard", "tell"]
    assert {each.name for each in steps if each.section == "exit"} == {"tell"}


def test_a_step_has_the_defaults_of_its_own_pipeline_and_the_labels_around_it() -> None:
    found = plan().by_name
    assert (found["prepare"].step.image, str(found["prepare"].step.cpu.request)) == ("registry.example.com/i:1", "2")
    assert (found["tune.train"].step.image, found["tune.train"].step.cpu) == ("registry.example.com/j:1", None)
    assert found["tune.train"].pipeline.labels == {"team": "nlp"}


def test_needs_are_full_names_and_a_reference_is_one() -> None:
    found = plan().by_name
    assert found["tune"].needs == ("ask",)
    assert found["tune.score"].needs == ("tune.train",)
    assert found["shard"].needs == ("prepare",)
    assert found["tune.score"].parent is found["tune"]


def test_copies_are_counted_with_what_is_handed_down_and_what_is_around() -> None:
    found = plan().by_name
    assert [found[name].copies for name in ("prepare", "tune", "tune.train", "tune.score")] == [1, 2, 3, 1]
    assert [found[name].copies_in_run for name in ("tune.train", "tune.score")] == [6, 2]
    assert found["shard"].copies == Unknown("shard runs over prepare.shards, which only the run will tell")
    assert found["shard"].copies_in_run is None


def test_a_place_is_that_of_the_document_and_of_the_whole_for_a_sub_pipeline() -> None:
    whole = plan()
    assert (whole.by_name["tune.score"].where().line, whole.where("tune.score").line) == (22, 10)
    assert (whole.by_name["tell"].where("on").line, whole.where("tell").line) == (25, 25)


def test_each_pipeline_comes_with_its_own_steps_from_the_outside_in() -> None:
    found = [(pipeline.name, [each.own_name for each in steps]) for pipeline, steps in plan().pipelines]
    assert found == [("outer", ["prepare", "ask", "tune", "shard", "tell"]), ("inner", ["train", "score"])]


def test_another_parallel_changes_nothing_else() -> None:
    first = plan()
    other, anew = first.with_parallel(2), plan_of(first.pipeline.model_copy(update={"parallel": 2}), first.site)
    assert other.pipeline.parallel == 2 and other.steps_by_parent[""][0].pipeline is other.pipeline
    for one, two in zip(other.steps, anew.steps, strict=True):
        assert (one.name, one.step, one.needs, one.copies, one.where()) == (
            two.name, two.step, two.needs, two.copies, two.where(),
        )  # fmt: skip
    assert [one.parallel for one, _ in other.pipelines] == [one.parallel for one, _ in anew.pipelines] == [2, None]


class Counted:
    """The pipelines that were planned; kept, so that no two of them have one identity."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.planned: list[Pipeline] = []
        steps = plans._steps

        def counting(pipeline: Pipeline, around: Pipeline, parent: PlannedStep | None) -> Iterator[PlannedStep]:
            if parent is None:
                self.planned.append(pipeline)
            return steps(pipeline, around, parent)

        patch.setattr(plans, "_steps", counting)

    def plans(self) -> int:
        """How many plans were made; none of them of a pipeline that was planned before."""
        assert len({id(each) for each in self.planned}) == len(self.planned), "a pipeline was planned twice"
        return len(self.planned)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


FIRST = ROOT / "docs" / "examples" / "first"
ON_SITE = (str(FIRST), "--site", str(FIRST / "site.yaml"))
CHECK = ("check", "--cluster", str(FIRST / "cluster"))
ENGINES = ("argo", "airflow", "kubeflow")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "words",
    [CHECK, (*CHECK, "--allow-lossy"), ("demand",), ("validate",)],
    ids=["check", "check --allow-lossy", "demand", "validate"],
)
def test_a_command_plans_a_pipeline_once(words: tuple[str, ...], engine: str, counted: Counted) -> None:
    assert main([words[0], *ON_SITE, "--engine", engine, *words[1:]]) == 0
    assert counted.plans() == 1


def test_compile_plans_the_document_and_its_meaning(counted: Counted, tmp_path: Path) -> None:
    assert main(["compile", *ON_SITE, "--target", "airflow", "-o", str(tmp_path)]) == 0
    assert counted.plans() == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_trying_values_of_parallel_plans_nothing(engine: str, counted: Counted) -> None:
    demand = demand_of(
        loads(TEXT.replace("  ask: {needs: [prepare], approval: go on?}\n", "").replace("[ask]", "[prepare]")),
        Site.load("nvidia"),
        engine,
    )
    assert [demand.with_cap(parallel).pipeline is demand.pipeline for parallel in (1, 2, 3)] == [True, True, True]
    assert counted.plans() == 1
