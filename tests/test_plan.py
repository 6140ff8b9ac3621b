"""A plan: every step of a pipeline once, resolved, in its place; and no command plans a pipeline twice.

Tests gpuflow/plan.py.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gpuflow import plan as plans
from gpuflow.cli.main import main
from gpuflow.demands import demand_of
from gpuflow.graph import Unknown
from gpuflow.plan import Plan, PlannedStep, Restarts, Supervision, plan_of, supervision_of
from gpuflow.pod import Engine, Spelling, build
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
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


RETRIES: tuple[Any, ...] = (
    None,
    2,
    {"failures": 2},
    {"interruptions": 5},
    {"failures": 1, "interruptions": 5},
    {"failures": 2, "final_exit_codes": [3]},
    {"any": 3, "retryable_exit_codes": [4]},
    {"failures": 2, "interruptions": 1, "final_exit_codes": [3]},
    {"any": 0},
)
PARTS: tuple[tuple[dict[str, Any], ...], ...] = (
    ({}, {"checkpoint": {"path": "/c", "store": "s3://b"}}),
    ({}, {"outputs": {"o": "int"}}, {"outputs": {"o": "int"}, "outputs_from": "xcom"}),
    ({}, {"inputs": {"/in": {"uri": "s3://b/i"}}}),
    ({}, {"gang": {"workers": 2}}),
)
TABLES: dict[Restarts, str] = {
    "by cause": "3a1afe74c7763003",
    "always": "ca221a6fcc575274",
    "unknown": "92edd52a08d6d1e7",
    "left alone": "22e332d2dd2c0810",
}
"""A hash of all answers for each way in which an engine starts pods again."""


def sites() -> list[Site]:
    site = Site.load("nvidia")
    ways = product(("image", "config-map"), (None, "s3://state"))
    return [
        site.model_copy(update={"runtime": site.runtime.model_copy(update={"delivery": delivery, "state": state})})
        for delivery, state in ways
    ]


@pytest.mark.parametrize("restarts", TABLES)
def test_what_the_supervisor_does_is_what_it_always_did(restarts: Restarts) -> None:
    rows = []
    for retry, *parts in product(RETRIES, *PARTS):
        fields = {key: value for part in parts for key, value in part.items()}
        step = Step.model_validate({"image": "i:1", "command": ["x"], "retry": retry, **fields})
        for site in sites():
            known = supervision_of(step, site, restarts)
            rows.append(tuple(int(getattr(known, field.name)) for field in dataclasses.fields(Supervision)))
    assert hashlib.sha256(repr(rows).encode()).hexdigest()[:16] == TABLES[restarts], f"{len(rows)} rows"


BUDGETS = {"image": "i:1", "command": ["x"], "retry": {"failures": 1, "interruptions": 5}}


@pytest.mark.parametrize(
    ("fields", "state", "restarts", "expected"),
    [
        ({}, None, "by cause", Supervision(False, False, False, False, False, 6)),
        ({}, "s3://state", "by cause", Supervision(True, True, False, True, True, 6)),
        ({"retry": {"failures": 1}}, "s3://state", "by cause", Supervision(True, False, False, False, False, 1)),
        ({"retry": 2}, "s3://state", "always", Supervision(True, False, False, False, False, 2)),
        ({}, None, "unknown", Supervision(False, False, False, False, False, 6)),
        ({"outputs": {"o": "int"}}, None, "unknown", Supervision(False, False, True, True, False, 0)),
        ({"outputs": {"o": "int"}}, "s3://state", "unknown", Supervision(True, True, True, True, True, 5)),
        ({"outputs": {"o": "int"}}, "s3://state", "left alone", Supervision(True, False, False, True, False, 6)),
        ({"gang": {"workers": 2}}, "s3://state", "unknown", Supervision(True, False, False, True, True, 6)),
    ],
)
def test_what_the_supervisor_does_for_a_step(
    fields: dict[str, Any], state: str | None, restarts: Restarts, expected: Supervision
) -> None:
    site = next(each for each in sites() if each.runtime.delivery == "image" and each.runtime.state == state)
    assert supervision_of(Step.model_validate({**BUDGETS, **fields}), site, restarts) == expected


def test_copies_of_a_sub_pipeline_share_no_place_where_the_engine_asks_nobody_why() -> None:
    site = next(each for each in sites() if each.runtime.state)
    first = plan_of(loads(TEXT, "p.yaml"), site)
    assert first.under("by cause") is first and first.under("unknown") is first.under("unknown")
    other = first.under("unknown")
    states = {each.name: each.site.runtime.state for each in other.steps}
    assert {name for name, state in states.items() if state is None} == {"tune.train", "tune.score"}
    assert all(each.site is site for each in first.steps)
    inside = [other.by_name[name] for name in ("tune.train", "tune.score")]
    assert inside[0].site is inside[1].site and inside[0].parent is other.by_name["tune"]
    assert [each.step for each in other.steps] == [each.step for each in first.steps]


class Counted:
    """The pipelines that were planned, and the pods that were made; kept, so that no two have one identity."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.planned: list[Pipeline] = []
        self.made: list[tuple[Any, ...]] = []
        steps, pod = plans._steps, build._pod

        def counting(
            pipeline: Pipeline, around: Pipeline, site: Site, parent: PlannedStep | None
        ) -> Iterator[PlannedStep]:
            if parent is None:
                self.planned.append(pipeline)
            return steps(pipeline, around, site, parent)

        def counting_pods(planned: PlannedStep, spelling: Spelling, engine: Engine) -> dict[str, Any]:
            self.made.append((planned.name, repr(planned.step), planned.restarts, type(spelling), engine))
            return pod(planned, spelling, engine)

        patch.setattr(plans, "_steps", counting)
        patch.setattr(build, "_pod", counting_pods)

    def plans(self) -> int:
        """How many plans were made; none of them of a pipeline that was planned before."""
        assert len({id(each) for each in self.planned}) == len(self.planned), "a pipeline was planned twice"
        return len(self.planned)

    def pods(self) -> int:
        """How many pods were made; none of them twice: of one step, in one spelling, for one engine."""
        assert not [each[0] for each, times in Counter(self.made).items() if times > 1], "a pod was made twice"
        return len(self.made)


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
    assert counted.pods() == 3  # one for each step


def test_compile_plans_the_document_and_its_meaning_and_makes_a_pod_once(counted: Counted, tmp_path: Path) -> None:
    assert main(["compile", *ON_SITE, "--target", "airflow", "-o", str(tmp_path)]) == 0
    assert (counted.plans(), counted.pods()) == (2, 3)


PATCHED = """
apiVersion: gpuflow/v1
kind: Pipeline
name: p
steps:
  train:
    image: "i:1"
    command: [x]
    memory: 1Gi
    gpu: a100-80gb
    spot: {mode: prefer, fallback_after: 1}
    retry: {failures: 1, interruptions: 2, more_memory: {factor: 2, max: 4Gi}}
    kubernetes: {merge: {spec: {priorityClassName: high, tolerations: [{key: mine, operator: Exists}]}}}
"""


@pytest.mark.parametrize(
    ("words", "pods"),
    [
        (("validate", "--engine", "airflow"), 1),
        (("demand", "--engine", "airflow"), 1),
        (("compile", "--target", "airflow"), 2),  # in Airflow's words, and in plain ones for the notes on the patch
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_a_patched_pod_that_leaves_spot_nodes_is_made_once(
    words: tuple[str, ...], pods: int, counted: Counted, tmp_path: Path
) -> None:
    (tmp_path / "p.yaml").write_text(PATCHED)
    assert main([words[0], str(tmp_path / "p.yaml"), "--site", "gke", *words[1:]]) == 0
    assert counted.pods() == pods


@pytest.mark.parametrize("engine", ENGINES)
def test_trying_values_of_parallel_plans_nothing(engine: str, counted: Counted) -> None:
    demand = demand_of(
        loads(TEXT.replace("  ask: {needs: [prepare], approval: go on?}\n", "").replace("[ask]", "[prepare]")),
        Site.load("nvidia"),
        engine,
    )
    assert [demand.with_cap(parallel).pipeline is demand.pipeline for parallel in (1, 2, 3)] == [True, True, True]
    assert counted.plans() == 1
