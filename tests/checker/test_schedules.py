"""Runs of a schedule that a deadline ends before the next start are not counted side by side.

Tests `without_overlap` of gpuflow/demands/model.py and least_gap of gpuflow/core/cron.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuflow.site import Site
from tests.checker.test_controllers import GPUS, asked, quota
from tests.checker.whole_scenes import NAMESPACE, checked

ROOM = {**quota(1), "metadata": {"name": "q", "namespace": NAMESPACE}}
OWN = """deadline: DEADLINE
schedule: {cron: "0 3 * * *", concurrency: allow, timezone: ZONE}
steps:
  t: {command: [x], gpu: a100-80gb, timeout: 10mMORE}
REST"""
LATE = Site.model_validate({**Site.load("nvidia").model_dump(), "engines": {"argo": {"starting_deadline": "1h"}}})
PROMPT = Site.model_validate({**Site.load("nvidia").model_dump(), "engines": {"argo": {"starting_deadline": None}}})


def verdict_of(text: str, site: Site = PROMPT, engine: str = "argo") -> str:
    return checked(text, ROOM, site=site, engine=engine, runs=None).verdict


def own(deadline: str, zone: str = "UTC", more: str = "", rest: str = "") -> str:
    text = OWN.replace("DEADLINE", deadline).replace("ZONE", zone)
    return text.replace("MORE", more).replace("REST", rest)


@pytest.mark.parametrize(
    ("deadline", "zone", "verdict"),
    [
        ("23h", "UTC", "always"),
        ("24h", "UTC", "may-queue"),
        ("23h", "Europe/Berlin", "may-queue"),  # the day on which the clock is set forward has 23 hours
        ("22h", "Europe/Berlin", "always"),
        ("22h", "America/Havana", "always"),
    ],
)
def test_a_deadline_of_the_run_keeps_runs_of_a_schedule_apart(deadline: str, zone: str, verdict: str) -> None:
    assert verdict_of(own(deadline, zone)) == verdict
    if verdict == "always":
        assert verdict_of(own(deadline, zone), engine="airflow") == "may-queue"  # it may start a run late


def test_a_run_may_start_as_late_as_the_site_says() -> None:
    assert (verdict_of(own("22h"), LATE), verdict_of(own("23h"), LATE)) == ("always", "may-queue")


def test_an_hour_that_the_clock_shows_twice_starts_two_runs() -> None:
    twice = own("2h", "Europe/Berlin").replace("0 3", "30 2")
    assert (verdict_of(twice), verdict_of(own("2h", "Europe/Berlin"))) == ("may-queue", "always")


@pytest.mark.parametrize(
    ("more", "rest"),
    [
        ("", "exit: {e: {command: [x]}}\n"),
        (", gang: {workers: 1}", ""),
        (", volumes: {/c: {claim: c}}", "claims: {c: {size: 1Gi}}\n"),
    ],
)
def test_what_outlives_the_deadline_keeps_runs_side_by_side(more: str, rest: str) -> None:
    assert verdict_of(own("1h", more=more, rest=rest)) == "may-queue"
    assert verdict_of(own("1h", more=more, rest=rest).replace("allow", "forbid")) == "always"


def test_the_time_limit_of_a_step_is_none_of_the_run() -> None:
    assert verdict_of(own("1h").replace("deadline: 1h\n", "")) == "may-queue"


CRON = f"""apiVersion: argoproj.io/v1alpha1
kind: CronWorkflow
metadata: {{name: w}}
spec:
  schedules: SCHEDULES
  CRON
  workflowSpec:
    entrypoint: main
    activeDeadlineSeconds: DEADLINE
    MORE
    templates:
    - {{name: main, KIND{GPUS % 1}}}
    - {{name: end, {GPUS % 0}}}
"""


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "always"),
        ({"DEADLINE": "3570"}, "may-queue"),  # and the grace of its pods
        ({"CRON": "startingDeadlineSeconds: 3500"}, "may-queue"),
        ({"CRON": "timezone: Australia/Lord_Howe"}, "always"),
        ({"CRON": "timezone: Australia/Lord_Howe", "SCHEDULES": '["45 * * * *"]'}, "may-queue"),  # half an hour again
        ({"CRON": "timezone: Nowhere/Else"}, "may-queue"),
        ({"SCHEDULES": '["0 * * * *", "30 5 * * *"]'}, "may-queue"),
        ({"SCHEDULES": '["@hourly"]'}, "may-queue"),
        ({"MORE": "onExit: end"}, "may-queue"),
        ({"MORE": "hooks: {exit: {template: end}}"}, "may-queue"),
        ({"MORE": "synchronization: {semaphores: [{configMapKeyRef: {name: c, key: k}}]}"}, "unknown"),
        ({"MORE": "artifactGC: {strategy: OnWorkflowCompletion}"}, "may-queue"),
        ({"KIND": "activeDeadlineSeconds: 600, ", "DEADLINE": "null"}, "may-queue"),
        ({"KIND": "daemon: true, "}, "may-queue"),
    ],
)
def test_the_deadline_of_a_cron_workflow_keeps_its_runs_apart(
    changes: dict[str, str], verdict: str, tmp_path: Path
) -> None:
    text = CRON
    for word, plain in {"SCHEDULES": '["0 * * * *"]', "CRON": "", "DEADLINE": "3000", "MORE": "", "KIND": ""}.items():
        text = text.replace(word, changes.get(word, plain))
    assert asked(text, tmp_path, quota(1)).verdict == verdict
