"""Policies that cannot do what they are for: said once for all steps, and only when the documents prove it.

Tests gpuflow/demands/of_pipeline.py.
"""

from __future__ import annotations

from gpuflow.site import Site
from gpuflow.spec.duration import Duration
from tests.checker.advice_scenes import of, only, told

BUDGET = "retry: {interruptions: 3}"
STORE = "path: /c, store: s3://b/c"


def living(hours: int) -> Site:
    """A site whose spot nodes live so long on average."""
    base = Site.load("gke")
    spot = base.spot.model_copy(update={"mean_time_between": Duration(f"{hours}h")})
    return base.model_copy(update={"spot": spot})


def test_steps_on_spot_without_a_budget_are_named_together() -> None:
    report = told(
        "steps: {a: {command: [x], spot: prefer}, b: {command: [x], spot: allow}, c: {command: [x]}}", site="gke"
    )
    finding = only(report, "GF543")
    assert finding.message.startswith("steps a, b: on spot nodes without a budget")
    assert finding.where.step == "a"


def test_a_budget_or_nodes_that_stay_leave_nothing_to_say() -> None:
    assert of(told(f"steps: {{a: {{command: [x], spot: prefer, {BUDGET}}}}}", site="gke"), "GF543") == []
    assert of(told("steps: {a: {command: [x], spot: never}}", site="gke"), "GF543") == []


def test_queued_steps_without_a_budget_are_one_note() -> None:
    report = told("steps: {a: {command: [x], queue: one}, b: {command: [x], queue: two}}")
    assert only(report, "GF542").message.startswith("steps a, b: in queue one, two without a budget")


def test_a_last_save_that_the_pods_grace_cuts_off_is_warned_about() -> None:
    text = f"steps: {{a: {{command: [x], termination_grace: %s, checkpoint: {{{STORE}, grace: 2m}}}}}}"
    finding = only(told(text % "60s"), "GF541")
    assert finding.message.endswith("its pod is killed after 1m: with the supervisor's own end that leaves 50s")
    assert (finding.severity, finding.hint) == ("warning", "raise termination_grace to 2m10s, or leave it out")
    assert of(told(text % "130s"), "GF541") == []


def test_a_last_save_that_a_spot_nodes_notice_cuts_off_is_warned_about() -> None:
    text = f"steps: {{a: {{command: [x], spot: %s, {BUDGET}, checkpoint: {{{STORE}, grace: %s}}}}}}"
    assert (
        "a spot node of this site is gone after 15s" in only(told(text % ("prefer", "1m"), site="gke"), "GF541").message
    )
    assert of(told(text % ("never", "1m"), site="gke"), "GF541") == []
    assert of(told(text % ("prefer", "10s"), site="gke"), "GF541") == []


def test_a_checkpoint_that_comes_after_the_timeout_is_warned_about() -> None:
    text = f"steps: {{a: {{command: [x], timeout: 1h, checkpoint: {{{STORE}, every: %s}}}}}}"
    assert "ended after 1h (timeout)" in only(told(text % "2h"), "GF544").message
    assert of(told(text % "30m"), "GF544") == []
    assert of(told(text % "auto"), "GF544") == []


def test_a_checkpoint_rarer_than_spot_nodes_live_is_warned_about() -> None:
    text = f"steps: {{a: {{command: [x], spot: require, {BUDGET}, checkpoint: {{{STORE}, every: 6h}}}}}}"
    assert "lives 3h on average" in only(told(text, site=living(3)), "GF544").message
    assert of(told(text, site=living(12)), "GF544") == []
    assert of(told(text.replace("require", "never"), site=living(3)), "GF544") == []


def test_a_long_spot_step_without_a_checkpoint_is_warned_about() -> None:
    text = f"steps: {{a: {{command: [x], spot: prefer, timeout: 8h, {BUDGET}}}}}"
    assert "may take 8h and has no checkpoint" in only(told(text, site=living(3)), "GF545").message
    assert of(told(text, site=living(9)), "GF545") == []
    assert of(told(text, site="gke"), "GF545") == []


def test_steps_of_sub_pipelines_are_named_with_their_way() -> None:
    inner = "{name: i, defaults: {image: i}, steps: {deep: {command: [x], spot: prefer}}}"
    report = told(f"steps: {{a: {{pipeline: {inner}}}}}", site="gke")
    assert 'step "a.deep"' in only(report, "GF543").message
