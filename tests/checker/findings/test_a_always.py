"""Findings A: *always* that was wrong, or said more than is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.checker.findings.test_c_never_ends import counts
from tests.checker.whole_scenes import HEAD, checked, codes, line
from tests.gang_words import said

PODS = "count/pods"
RESULTS = "count/workflowtaskresults.argoproj.io"

# A3: what gpuflow cannot compile for an engine never runs there.


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("airflow", "steps: {a: {command: [x], cache: true}}"),
        ("kubeflow", "steps: {a: {command: [x], termination_grace: 5m}}"),
        ("argo", "steps: {a: {command: [x], queue_timeout: 5m}}"),
        ("kubeflow", "parallel: 1\nsteps: {a: {command: [x]}, b: {command: [x]}}"),
    ],
)
def test_a3_what_an_engine_refuses_is_never_and_named(engine: str, text: str) -> None:
    report = checked(text, engine=engine)
    assert (report.verdict, codes(report)) == ("never", ["GF301"])


@pytest.mark.parametrize("engine", ["airflow", "argo"])
@pytest.mark.parametrize("key", ["count/jobsets.jobset.x-k8s.io", "count/jobs.batch", "services", "count/services"])
def test_an_attempt_of_a_gang_is_more_than_its_pods(key: str, engine: str) -> None:
    text = "steps: {a: {command: [x], gang: {workers: 2}}}"
    assert checked(text, counts({key: 0}), engine=engine).verdict == "never"
    assert checked(text, counts({key: 1}), engine=engine).verdict == "always"


@pytest.mark.parametrize("engine", ["airflow", "argo"])
@pytest.mark.parametrize(
    ("kind", "key", "each"),
    [
        ("pytorchjob", "count/pytorchjobs.kubeflow.org", 1),
        ("pytorchjob", "services", 2),
        ("pytorchjob", "count/jobsets.jobset.x-k8s.io", 0),
        ("pytorchjob", "count/jobs.batch", 0),
        ("trainjob", "count/trainjobs.trainer.kubeflow.org", 1),
        ("trainjob", "count/trainingruntimes.trainer.kubeflow.org", 1),
        ("trainjob", "count/jobsets.jobset.x-k8s.io", 1),
        ("trainjob", "count/jobs.batch", 1),
        ("trainjob", "configmaps", 1),
        ("trainjob", "services", 1),
        ("mpijob", "count/mpijobs.kubeflow.org", 1),
        ("mpijob", "count/jobs.batch", 1),
        ("mpijob", "services", 1),
        ("mpijob", "secrets", 1),
        ("mpijob", "count/configmaps", 1),
        ("volcano", "count/jobs.batch.volcano.sh", 1),
        ("volcano", "count/podgroups.scheduling.volcano.sh", 1),
        ("volcano", "configmaps", 1),
        ("volcano", "services", 1),
        ("volcano", "count/jobsets.jobset.x-k8s.io", 0),
        ("volcano", "count/jobs.batch", 0),
        ("jobset+volcano", "count/jobsets.jobset.x-k8s.io", 1),
        ("jobset+volcano", "count/podgroups.scheduling.volcano.sh", 1),
        ("jobset+volcano", "count/jobs.batch", 1),
        ("jobset+volcano", "services", 1),
        ("jobset+volcano", "configmaps", 0),
    ],
)
def test_an_attempt_of_another_kind_counts_with_what_it_makes(kind: str, key: str, each: int, engine: str) -> None:
    leader = ", leader: true" if kind == "mpijob" else ""
    text = f"steps: {{a: {{command: [x], gang: {{workers: 2{leader}}}}}}}"
    given = Site.model_validate({**Site.load("nvidia").model_dump(), "gangs": said(kind)})
    # Whether Volcano's queue has room nobody knows.
    at_best = "unknown" if "volcano" in kind else "always"
    assert checked(text, counts({key: each}), engine=engine, site=given).verdict == at_best
    if each:
        assert checked(text, counts({key: each - 1}), engine=engine, site=given).verdict == "never"


def test_volcano_removes_what_it_made_when_a_gang_has_ended() -> None:
    gang = "command: [x], gang: {workers: 2}"
    text = f"steps: {{a: {{{gang}}}, b: {{{gang}, needs: [a]}}}}"
    given = Site.model_validate({**Site.load("nvidia").model_dump(), "gangs": {"kind": "volcano"}})
    verdicts = {
        key: checked(text, counts({key: 1}), engine="argo", site=given).verdict
        for key in ("services", "configmaps", "count/jobs.batch.volcano.sh")
    }
    assert verdicts == {"services": "unknown", "configmaps": "unknown", "count/jobs.batch.volcano.sh": "never"}


@pytest.mark.parametrize("word", ["volcano", "jobset+volcano"])
def test_a_queue_of_volcanos_is_never_sure(word: str) -> None:
    text = "steps: {a: {command: [x], gang: {workers: 2}, queue: research}}"
    given = Site.model_validate({**Site.load("nvidia").model_dump(), "gangs": said(word)})
    report = checked(text, engine="argo", site=given)
    (finding,) = [each for each in report.findings if each.code == "GF701"]
    assert report.verdict == "unknown" and "Volcano's queue research" in finding.message
    assert "queues.scheduling.volcano.sh research" in str(finding.hint)


@pytest.mark.parametrize(("engine", "verdict"), [("argo", "never"), ("airflow", "always")])
def test_a_launcher_leaves_every_gang_behind_and_an_operator_deletes_what_succeeded(engine: str, verdict: str) -> None:
    gang = "command: [x], gang: {workers: 2}"
    text = f"steps: {{a: {{{gang}}}, b: {{{gang}, needs: [a]}}}}"
    assert checked(text, counts({"count/jobsets.jobset.x-k8s.io": 1}), engine=engine).verdict == verdict


def test_a_jobset_that_failed_is_kept_beside_the_next_one() -> None:
    text = "steps: {a: {command: [x], gang: {workers: 2}, retry: {failures: 1}}}"
    verdicts = [checked(text, counts({"count/jobsets.jobset.x-k8s.io": most}), engine="airflow") for most in (1, 2)]
    assert [report.verdict for report in verdicts] == ["may-queue", "always"]


# A4: the pods that a Kubeflow run leaves behind, worked out by hand from KFP's compiler.

STEP = "a: {command: [x]}"
RUNS = {
    "one step": (f"steps: {{{STEP}}}", 3),
    "W20: a step and an exit step": (f"steps: {{{STEP}}}\nexit: {{e: {{command: [x]}}}}", 6),
    "two exit steps": (f"steps: {{{STEP}}}\nexit: {{e: {{command: [x]}}, f: {{command: [x]}}}}", 9),
    "W18: a step with a claim": (
        "claims: {c: {size: 1Gi, storage_class: fast}}\nsteps: {a: {command: [x], volumes: {/d: {new_claim: c}}}}",
        8,
    ),
    "a fan-out of three": ("steps: {a: {command: [x], for_each: {i: [1, 2, 3]}}}", 1 + 1 + 3 * (1 + 2)),
    "two lists, multiplied out": (
        "steps: {a: {command: [x], for_each: {i: [1, 2, 3], j: [1, 2]}}}",
        1 + 1 + 6 * (1 + 2),
    ),
    "a condition": ("params: {p: true}\nsteps: {a: {command: [x], when: params.p}}", 1 + 1 + 2),
    "a condition for each item": (
        "steps: {a: {command: [x], when: item.i > 1, for_each: {i: [1, 2, 3]}}}",
        1 + 1 + 3 * (1 + 1 + 2),
    ),
    "a step that is tried three times": ("steps: {a: {command: [x], retry: {failures: 2}}}", 1 + 1 + 3),
}


@pytest.mark.parametrize("name", RUNS)
def test_a4_every_driver_of_a_kubeflow_run_is_counted(name: str) -> None:
    text, pods = RUNS[name]
    for key in (PODS, RESULTS):
        report = checked(text, counts({key: pods}), engine="kubeflow")
        shown = line(report, "ResourceQuota", key)
        assert (str(shown.peak), shown.verdict) == (str(pods), "always")
        assert checked(text, counts({key: pods - 1}), engine="kubeflow").verdict != "always"


def test_a4_a_sub_pipeline_has_a_driver_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "inner.yaml").write_text(HEAD.replace("name: p", "name: inner") + f"steps: {{{STEP}}}")
    outer = loads(HEAD + "steps: {s: {pipeline: inner.yaml}}", str(tmp_path / "p.yaml"))
    drivers = demand_of(outer, Site.load("nvidia"), "kubeflow").driver_pods
    assert drivers is not None and (drivers.at_most, drivers.at_least) == (3, 3)  # the run, the sub-pipeline, the step


def test_a4_a_fan_out_that_only_the_run_knows_leaves_an_unknown_number() -> None:
    text = "params: {p: {type: json, required: true}}\nsteps: {a: {command: [x], for_each: {i: {param: p}}}}"
    assert checked(text, counts({PODS: 99}), engine="kubeflow").verdict == "unknown"


# A5: runs that overlap.

OFTEN = 'schedule: {cron: "*/5 * * * *", concurrency: allow}\nsteps: {a: {command: [x]}}'
ON_DATA = "on_data: [s3://bucket/x]\nsteps: {a: {command: [x]}}"


def test_a5_runs_that_overlap_without_a_bound_may_queue() -> None:
    """R15: a run every 5 minutes, quota for exactly one."""
    report = checked(OFTEN, counts({"pods": 1}), engine="argo", runs=None)
    assert (report.verdict, codes(report)) == ("may-queue", ["GF553"])
    assert str(line(report, "ResourceQuota", "pods").peak) == "1"
    assert checked(OFTEN, counts({"pods": 1000}), engine="argo", runs=None).verdict == "may-queue"
    assert checked(OFTEN, engine="argo", runs=None).verdict == "always"
    assert checked(OFTEN.replace("allow", "forbid"), counts({"pods": 1}), engine="argo", runs=None).verdict == "always"


def test_a5_what_is_said_with_runs_is_what_counts() -> None:
    assert checked(OFTEN, counts({"pods": 1}), engine="argo", runs=1).verdict == "always"
    assert checked(OFTEN, counts({"pods": 1}), engine="argo", runs=2).verdict == "may-queue"


@pytest.mark.parametrize(("engine", "text", "most"), [("airflow", ON_DATA, 16), ("kubeflow", OFTEN, 10)])
def test_a5_runs_are_counted_as_the_engine_bounds_them(engine: str, text: str, most: int) -> None:
    """R16: on_data on Airflow, whose max_active_runs is 16 unless somebody sets it."""
    assert checked(text, counts({"pods": most}), engine=engine, runs=None).verdict == "always"
    report = checked(text, counts({"pods": most - 1}), engine=engine, runs=None)
    assert report.verdict == "may-queue"
    assert [finding.code for finding in report.findings if finding.severity == "note"] == ["GF553"]


def test_a5_of_a_schedule_that_forbids_overlap_airflow_starts_no_run_on_data_beside_another() -> None:
    both = 'schedule: "0 3 * * *"\n' + ON_DATA
    assert checked(both, counts({"pods": 1}), engine="airflow", runs=None).verdict == "always"
    allowed = both.replace('"0 3 * * *"', '{cron: "0 3 * * *", concurrency: allow}')
    assert checked(allowed, counts({"pods": 1}), engine="airflow", runs=None).verdict == "may-queue"
    assert checked(both, counts({"pods": 1}), engine="none", runs=None).verdict == "may-queue"


# A8: a fan-out over a parameter.


def test_a8_a_fan_out_over_a_parameter_says_that_it_is_counted_with_the_default() -> None:
    text = "params: {shards: {type: json, default: [1, 2, 3]}}\n"
    report = checked(text + "steps: {a: {command: [x], for_each: {i: {param: shards}}}}", counts({"pods": 3}))
    (note,) = [finding for finding in report.findings if finding.code == "GF529"]
    assert (report.verdict, note.severity) == ("always", "note")
    assert '"shards"' in note.message and "3 items" in note.message and "--param" in (note.hint or "")
