"""What an engine's own words change about what is asked of a cluster.

Tests gpuflow/checker/run.py and gpuflow/demands/of_pipeline.py.
"""

from __future__ import annotations

import pytest

from gpuflow.checker.run import count_runs
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads

HEAD = 'apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: "i:1", cpu: 1, memory: 1Gi}\n'
STEP = "steps: {a: {command: [x]%s}}\n"
ALLOW = 'schedule: {cron: "0 3 * * *", concurrency: allow}\n'


@pytest.mark.parametrize(
    ("text", "engine", "runs"),
    [
        (ALLOW, "airflow", 16),
        (ALLOW + "engines: {airflow: {max_active_runs: 3}}\n", "airflow", 3),
        (ALLOW + "engines: {airflow: {max_active_runs: 1}}\n", "airflow", 1),
        (ALLOW + "engines: {airflow: {max_active_runs: 3}}\n", "kubeflow", 10),
        ("on_data: s3://b/new\nengines: {airflow: {max_active_runs: 2}}\n", "airflow", 2),
        ("engines: {airflow: {timetable: a.b}}\n", "airflow", 1),
        ("engines: {airflow: {timetable: a.b, max_active_runs: 4}}\n", "airflow", 4),
        ("engines: {airflow: {timetable: a.b, max_active_runs: 4}}\n", "argo", 1),
    ],
)
def test_a_check_counts_as_many_runs_as_airflows_own_words_allow(text: str, engine: str, runs: int) -> None:
    demand = demand_of(loads(HEAD + text + STEP % ""), Site.load("nvidia"), engine)
    assert count_runs(demand, None) == runs
    assert (demand.overlap is None) == (runs == 1)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (STEP % "", "failed"),
        (STEP % ", engines: {airflow: {on_finish_action: keep_pod}}", "all"),
        (STEP % ", engines: {airflow: {on_finish_action: delete_pod}}", "failed"),
        ("engines: {airflow: {default_args: {on_finish_action: keep_pod}}}\n" + STEP % "", "all"),
    ],
)
def test_pods_that_airflow_keeps_are_counted(text: str, kept: str) -> None:
    assert demand_of(loads(HEAD + text), Site.load("nvidia"), "airflow").keeps_pods == kept


def test_argos_own_words_say_when_pods_are_deleted() -> None:
    words = "engines: {argo: {pod_gc: {strategy: %s}}}\n"
    for strategy, collected in (("OnPodSuccess", True), ("OnWorkflowSuccess", False)):
        pipeline = loads(HEAD + words % strategy + STEP % "")
        assert demand_of(pipeline, Site.load("nvidia"), "argo").pods_collected is collected
