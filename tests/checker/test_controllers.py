"""What controllers do beside what an object asks for: whole documents of other tools, and what is said of each.

Tests gpuflow/checker/rules/deadlocks.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.cluster import Cluster
from gpuflow.demands import Demand
from gpuflow.demands.combine import combine_demands
from gpuflow.formats.contents import contents_of
from gpuflow.readers import PassiveObject, foreign_in
from gpuflow.site import Site
from tests.assumed import ASSUMED
from tests.checker.whole_scenes import NAMESPACE, checked, manifest

Body = dict[str, Any]


def quota(amount: int, key: str = "requests.nvidia.com/gpu") -> Body:
    hard = {key: str(amount)}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "ml"},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": {key: "0"}},
    }


def queue(amount: int) -> list[Body]:
    """A ClusterQueue with one flavor, and its LocalQueue."""
    amounts = {"cpu": "1000", "memory": "1000Gi", "nvidia.com/gpu": str(amount)}
    flavor = {"name": "f", "resources": [{"name": name, "nominalQuota": text} for name, text in amounts.items()]}
    groups = [{"coveredResources": list(amounts), "flavors": [flavor]}]
    api, home = "kueue.x-k8s.io/v1beta2", {"name": "lq", "namespace": "ml"}
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    return [
        {"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": spec},
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {}},
        {"apiVersion": api, "kind": "LocalQueue", "metadata": home, "spec": {"clusterQueue": "cq"}},
    ]


def demands(text: str, folder: Path) -> list[Demand | PassiveObject]:
    file = folder / "objects.yaml"
    file.write_text(text)
    found, _ = foreign_in(contents_of(str(file)).documents, "ml")
    return [each.demand_on_site(Site.load("nvidia"), None, {}) for each in found]


def asked(text: str, folder: Path, *objects: Body) -> Report:
    """The report on the first object of a text."""
    demand = demands(text, folder)[0]
    assert isinstance(demand, Demand)
    kinds = {each["kind"] for each in objects}
    return check(demand, Cluster("c.yaml", tuple(map(manifest, objects)), assumed=ASSUMED - kinds), "ml")


def said(report: Report, code: str) -> str:
    return " ".join(f"{each.message} {each.hint}" for each in report.findings if each.code == code)


HEAD = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\n"
GPUS = "container: {image: i, command: [x], resources: {limits: {nvidia.com/gpu: %s}}}"
DAEMON = f"""{HEAD}spec:
  entrypoint: main
  WORKFLOW
  templates:
  - name: main
    TEMPLATE
    steps: [[{{name: d, template: d}}], [{{name: s, template: s}}]]
  - {{name: d, daemon: true, {GPUS % 1}}}
  - {{name: s, {GPUS % 4}}}
"""


@pytest.mark.parametrize(
    ("workflow", "template", "free", "verdict"),
    [
        ("", "", 5, "always"),
        ("", "", 4, "never"),  # the daemon ends after the step, which finds no room beside it
        ("parallelism: 1", "", 8, "never"),
        ("", "parallelism: 1", 8, "never"),
        ("parallelism: 2", "parallelism: 2", 8, "always"),
    ],
)
def test_a_daemon_keeps_its_place_and_its_room(
    workflow: str, template: str, free: int, verdict: str, tmp_path: Path
) -> None:
    text = DAEMON.replace("WORKFLOW", workflow).replace("TEMPLATE", template)
    report = asked(text, tmp_path, quota(free))
    assert report.verdict == verdict
    assert bool(said(report, "GF830")) == (verdict == "never" and free == 8)
    assert bool(said(report, "GF834")) == (free == 4)
    assert "always admitted" not in str(report.findings)


def test_a_daemon_that_may_take_the_place_of_what_it_does_not_wait_for_is_a_deadlock(tmp_path: Path) -> None:
    text = DAEMON.replace("steps: [[{name: d, template: d}], [", "dag: {tasks: [{name: d, template: d}, ")
    text = text.replace("template: s}]]", "template: s}]}").replace("TEMPLATE", "")
    report = asked(text.replace("WORKFLOW", "parallelism: 1"), tmp_path, quota(8))
    assert (report.verdict, report.fails(())) == ("may-queue", True) and "may take all of that" in said(report, "GF830")
    assert asked(text.replace("WORKFLOW", "parallelism: 2"), tmp_path, quota(8)).verdict == "always"


LOCKED = f"""{HEAD}spec:
  entrypoint: main
  synchronization: WORKFLOW
  templates:
  - name: main
    synchronization: OUTER
    dag: {{tasks: [{{name: s, template: s}}]}}
  - {{name: s, synchronization: INNER, {GPUS % 1}}}
"""
MUTEX = "{mutexes: [{name: m}]}"
SEMAPHORE = "{semaphores: [{configMapKeyRef: {name: limits, key: k}}]}"
LIMITS = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: limits}\ndata: {k: '%s'}\n"


@pytest.mark.parametrize(
    ("workflow", "outer", "inner", "more", "verdict", "code"),
    [
        ("{}", MUTEX, MUTEX, "", "never", "GF831"),
        (MUTEX, "{}", MUTEX, "", "never", "GF831"),
        (SEMAPHORE, SEMAPHORE, SEMAPHORE, LIMITS % 2, "never", "GF831"),
        (SEMAPHORE, "{}", SEMAPHORE, LIMITS % 2, "may-queue", "GF832"),
        ("{}", MUTEX, "{mutexes: [{name: m, namespace: other}]}", "", "may-queue", "GF832"),
        ("{}", "{mutexes: [{name: m, namespace: ml}]}", MUTEX, "", "never", "GF831"),
        ("{}", "{}", MUTEX, "", "may-queue", "GF832"),
        ("{}", "{}", "{mutexes: [{name: 'm-{{workflow.uid}}'}]}", "", "always", None),
        ("{}", "{}", SEMAPHORE, "", "unknown", "GF833"),
        ("{}", "{}", SEMAPHORE, LIMITS % 0, "unknown", "GF833"),
    ],
)
def test_a_lock_that_is_held_around_a_step_is_never_given_and_one_that_others_may_hold_is_waited_for(
    workflow: str, outer: str, inner: str, more: str, verdict: str, code: str | None, tmp_path: Path
) -> None:
    text = LOCKED.replace("WORKFLOW", workflow).replace("OUTER", outer).replace("INNER", inner)
    report = asked(text.replace("{name: w}", "{name: w, namespace: ml}") + more, tmp_path, quota(8))
    assert report.verdict == verdict
    assert code is None or said(report, code)


def test_a_step_that_may_run_into_a_held_lock_is_a_deadlock(tmp_path: Path) -> None:
    text = LOCKED.replace("WORKFLOW", "{}").replace("OUTER", MUTEX).replace("INNER", MUTEX)
    report = asked(text.replace("template: s}", "template: s, when: '{{workflow.status}} == x'}"), tmp_path, quota(8))
    assert (report.verdict, report.fails(())) == ("may-queue", True) and "holds until" in said(report, "GF831")


def test_a_parallelism_of_one_over_nested_dags_lets_one_of_them_run(tmp_path: Path) -> None:
    text = f"""{HEAD}spec:
  entrypoint: main
  templates:
  - name: main
    parallelism: 1
    dag: {{tasks: [{{name: a, template: two}}, {{name: b, template: two}}, {{name: c, template: two}}]}}
  - name: two
    dag: {{tasks: [{{name: p, template: s}}, {{name: q, template: s}}]}}
  - {{name: s, {GPUS % 4}}}
"""
    assert asked(text, tmp_path, quota(8)).verdict == "always"
    short = asked(text, tmp_path, quota(7))
    assert short.verdict == "may-queue" and "main.a.p, main.a.q together ask for 8 of" in said(short, "GF512")
    assert "always admitted with parallelism: 1" in said(short, "GF512")
    two = asked(text.replace("parallelism: 1", "parallelism: 2"), tmp_path, quota(15))
    assert "together ask for up to 24" in said(two, "GF512")


def test_hooks_of_a_pipeline_of_ours_run_what_only_the_cluster_knows() -> None:
    hooks = "{hooks: {h: {expression: 'true', template_ref: {name: shared, template: t}}}}"
    text = f"engines: {{argo: {hooks}}}\nsteps: {{a: {{command: [x]}}}}"
    report = checked(text, engine="argo")
    assert report.verdict == "unknown" and "names template t of shared" in said(report, "GF701")
    assert checked(text, engine="none").verdict == "always"


POD = """apiVersion: v1
kind: Pod
metadata:
  name: %s
  labels: {kueue.x-k8s.io/queue-name: %s, kueue.x-k8s.io/pod-group-name: g}
  annotations: {kueue.x-k8s.io/pod-group-total-count: "%s"}
spec: {containers: [{name: m, image: i, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {nvidia.com/gpu: 1}}}]}
---
"""


@pytest.mark.parametrize(
    ("pods", "room", "verdict"),
    [
        ((("a", "lq", 2), ("b", "lq", 2)), 2, "always"),
        ((("a", "lq", 2), ("b", "lq", 2)), 1, "never"),  # each alone would find room
        ((("a", "lq", 3), ("b", "lq", 3)), 8, "unknown"),
        ((("a", "lq", 2),), 8, "unknown"),
        ((("a", "lq", 2), ("b", "lq", 3)), 8, "never"),
        ((("a", "lq", 2), ("b", "other", 2)), 8, "never"),
        ((("a", "lq", 1), ("b", "lq", 1)), 8, "never"),
    ],
)
def test_the_pods_of_a_group_are_admitted_together(
    pods: tuple[tuple[str, str, int], ...], room: int, verdict: str, tmp_path: Path
) -> None:
    text = "".join(POD % each for each in pods)
    report = asked(text, tmp_path, *queue(room))
    assert report.verdict == verdict and bool(said(report, "GF835")) == (room == 8)
    for other in demands(text, tmp_path)[1:]:
        assert isinstance(other, PassiveObject) and "counted with Pod a" in other.because


JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: j, labels: {LABELS}, annotations: {NOTES}}
spec:
  FIELDS
  parallelism: 8
  completions: 8
  template: {spec: {restartPolicy: Never, containers: [{name: m, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}
"""


@pytest.mark.parametrize(
    ("manager", "verdict"), [("example.com/x", "unknown"), ("kubernetes.io/job-controller", "always"), (None, "always")]
)
def test_nobody_knows_the_pods_of_an_object_that_another_controller_manages(
    manager: str | None, verdict: str, tmp_path: Path
) -> None:
    text = JOB.replace("LABELS", "").replace("NOTES", "")
    text = text.replace("FIELDS", "" if manager is None else f"managedBy: {manager}")
    report = asked(text, tmp_path, quota(8))
    assert report.verdict == verdict and ("managedBy is example.com/x" in said(report, "GF701")) == (
        verdict != "always"
    )


@pytest.mark.parametrize(
    ("least", "room", "verdict"), [(4, 8, "always"), (4, 4, "may-queue"), (3, 3, "may-queue"), (4, 3, "never")]
)
def test_kueue_admits_a_job_with_no_fewer_pods_than_it_may(least: int, room: int, verdict: str, tmp_path: Path) -> None:
    text = JOB.replace("LABELS", "kueue.x-k8s.io/queue-name: lq").replace("FIELDS", "suspend: true")
    report = asked(text.replace("NOTES", f"kueue.x-k8s.io/job-min-parallelism: '{least}'"), tmp_path, *queue(room))
    assert report.verdict == verdict and bool(said(report, "GF838")) == (verdict == "never")


JOBSET = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: js, annotations: {NOTES}}
spec:
  replicatedJobs:
  - name: a
    replicas: 3
    template: {metadata: {annotations: {INNER}}, spec: {template: {spec: {containers: [{name: m, image: i}]}}}}
"""


@pytest.mark.parametrize("place", ["NOTES", "INNER", None])
def test_jobs_that_share_no_rack_may_not_find_one_each(place: str | None, tmp_path: Path) -> None:
    text = JOBSET if place is None else JOBSET.replace(place, "alpha.jobset.sigs.k8s.io/exclusive-topology: rack")
    report = asked(text.replace("NOTES", "").replace("INNER", ""), tmp_path, quota(8, "pods"))
    assert report.verdict == ("always" if place is None else "unknown")
    assert place is None or "a rack of its own" in said(report, "GF701")


DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 2
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: m, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
SCALER = """apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: h, namespace: ml}
spec: {minReplicas: %s, maxReplicas: %s, scaleTargetRef: {apiVersion: apps/v1, kind: %s, name: d}}
"""


@pytest.mark.parametrize(
    ("least", "most", "kind", "room", "verdict"),
    [
        (1, 10, "Deployment", 10, "always"),
        (1, 10, "Deployment", 4, "may-queue"),
        (1, 10, "Deployment", 1, "may-queue"),  # it starts with 2, and may be kept at 1
        (5, 10, "Deployment", 4, "never"),
        (0, 10, "Deployment", 0, "may-queue"),
        (1, 10, "StatefulSet", 4, "always"),  # of another object
    ],
)
def test_an_autoscaler_decides_how_many_replicas_there_are(
    least: int, most: int, kind: str, room: int, verdict: str, tmp_path: Path
) -> None:
    scaler = SCALER % (least, most, kind)
    report = asked(f"{DEPLOYMENT}---\n{scaler}", tmp_path, quota(room))
    (body,) = yaml.safe_load_all(scaler)
    shown = asked(DEPLOYMENT, tmp_path, quota(room), body)
    assert report.verdict == shown.verdict == verdict
    assert ("keeps Deployment d at" in said(report, "GF838")) == (kind == "Deployment")
    none = DEPLOYMENT.replace("replicas: 2", "replicas: 0")
    assert isinstance(demands(f"{none}---\n{scaler}", tmp_path)[0], PassiveObject)  # then it is turned off


CRON = """apiVersion: batch/v1
kind: CronJob
metadata: {name: c}
spec:
  schedule: "SCHEDULE"
  jobTemplate:
    spec: {DEADLINE, template: {spec: {restartPolicy: Never, containers: [C]}}}
""".replace("C]", "{name: m, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]")


@pytest.mark.parametrize(
    ("schedule", "deadline", "verdict"),
    [
        ("0 3 * * *", 1200, "always"),
        ("0 3 * * *", 23 * 3600, "may-queue"),  # the day on which the clock is set forward has 23 hours
        ("*/30 * * * *", 1700, "always"),
        ("*/30 * * * *", 1770, "may-queue"),  # and the grace of its pods
        ("0 3,4 * * *", 7200, "may-queue"),
        ("@daily", 1200, "may-queue"),
        ("*/0 * * * *", 10, "never"),
        ("0 3 * * *", 0, "may-queue"),
    ],
)
def test_a_deadline_that_ends_before_the_next_start_keeps_jobs_apart(
    schedule: str, deadline: int, verdict: str, tmp_path: Path
) -> None:
    said_so = f"activeDeadlineSeconds: {deadline}" if deadline else "backoffLimit: 1"
    text = CRON.replace("SCHEDULE", schedule).replace("DEADLINE", said_so)
    assert asked(text, tmp_path, quota(1)).verdict == verdict


GROUPS = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: l, labels: {LABELS}}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    workerTemplate: {spec: {containers: [{name: m, image: i, resources: {limits: {nvidia.com/gpu: 8}}}]}}
"""


def test_groups_that_serve_for_ever_need_room_at_once(tmp_path: Path) -> None:
    own, queued = GROUPS.replace("LABELS", ""), GROUPS.replace("LABELS", "kueue.x-k8s.io/queue-name: lq")
    assert asked(own, tmp_path, quota(32)).verdict == asked(queued, tmp_path, *queue(32)).verdict == "always"
    assert asked(own, tmp_path, quota(16)).verdict == "never"
    short = asked(queued, tmp_path, *queue(31))
    assert short.verdict == "never" and "serves for ever and asks for 32 nvidia.com/gpu in all" in said(short, "GF507")


@pytest.mark.parametrize(("entry", "onexit", "pods"), [("s", "h", 1), ("h", "s", 2)])
def test_the_agent_runs_from_the_first_step_that_needs_it(entry: str, onexit: str, pods: int, tmp_path: Path) -> None:
    text = f"""{HEAD}spec:
  entrypoint: {entry}
  onExit: {onexit}
  templates:
  - {{name: s, {GPUS % 1}}}
  - {{name: h, http: {{url: "http://x"}}}}
"""
    assert asked(text, tmp_path, quota(pods, "pods")).verdict == "always"
    assert asked(text, tmp_path, quota(pods - 1, "pods")).verdict != "always"


def test_a_daemon_that_is_not_surely_waited_for_is_no_never(tmp_path: Path) -> None:
    text = DAEMON.replace("steps: [[{name: d, template: d}], [{name: s, template: s}]]", "dag: {tasks: TASKS}")
    tasks = (
        "[{name: d, template: d}, {name: x, template: s}, {name: s, template: s, depends: 'd.Daemoned || x.Succeeded'}]"
    )
    text = text.replace("TASKS", tasks).replace("WORKFLOW", "parallelism: 1").replace("TEMPLATE", "")
    assert asked(text, tmp_path, quota(8)).verdict == "may-queue"


def test_what_controllers_decide_holds_side_by_side_too(tmp_path: Path) -> None:
    text = LOCKED.replace("WORKFLOW", "{}").replace("OUTER", "{}").replace("INNER", MUTEX)
    daemon = DAEMON.replace("WORKFLOW", "").replace("TEMPLATE", "")
    both = [*demands(text, tmp_path), *demands(daemon, tmp_path)]
    parts = [(each, 1, name) for each, name in zip(both, "ab", strict=True) if isinstance(each, Demand)]
    whole = combine_demands(parts)
    assert [each.code for each in whole.waits] == ["GF832"] and whole.beside == (("b.main.d", "b.main.s"),)


def test_a_daemon_set_that_no_node_takes_is_not_refused(tmp_path: Path) -> None:
    text = """apiVersion: apps/v1
kind: DaemonSet
metadata: {name: d}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec: {nodeSelector: {pool: POOL}, containers: [{name: m, image: i, resources: {limits: {cpu: "1"}}}]}
"""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"pool": "a"}}}
    node["status"] = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}}
    for pool, verdict in (("none", "unknown"), ("a", "unknown")):
        found = asked(text.replace("POOL", pool), tmp_path, quota(8), node)
        assert found.verdict == verdict
        assert ("GF803" in {each.code for each in found.findings}) == (pool == "none")


RECURSION = f"""{HEAD}spec:
  entrypoint: flip
  templates:
  - name: flip
    inputs: {{parameters: [{{name: turn, value: "1"}}, {{name: gpus, value: "0"}}]}}
    steps:
    - - {{name: toss, template: toss}}
    - - {{name: big, template: big, when: "{{{{inputs.parameters.turn}}}} == 2"}}
      - name: again
        template: AGAIN
        when: "{{{{steps.toss.outputs.result}}}} == tails"
        arguments: {{parameters: [{{name: turn, value: "{{{{steps.toss.outputs.result}}}}"}}]}}
  - name: other
    inputs: {{parameters: [{{name: turn, value: "1"}}]}}
    steps: [[{{name: back, template: flip, arguments: {{parameters: [{{name: turn, value: "2"}}]}}}}]]
  - {{name: toss, container: {{image: i, command: [x]}}}}
  - {{name: big, BIG}}
"""
PLAIN = "container: {image: i, command: [x]}"
GPU_MAX = {"type": "Container", "max": {"nvidia.com/gpu": "1"}}
GPU_LIMITS: Body = {
    "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "ml"},
    "spec": {"limits": [GPU_MAX]},
}  # fmt: skip
NODE: Body = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}},
}  # fmt: skip


@pytest.mark.parametrize("again", ["flip", "other"])
@pytest.mark.parametrize(
    ("big", "objects", "verdict"),
    [
        (PLAIN, (quota(8),), "always"),
        (PLAIN, (quota(8, "pods"),), "unknown"),
        (PLAIN, (quota(8, "count/pods"),), "unknown"),
        (PLAIN, (quota(8, "limits.cpu"),), "never"),
        (PLAIN, (quota(8), GPU_LIMITS), "unknown"),
        (PLAIN, (quota(8), NODE), "unknown"),
        (GPUS % 1, (quota(8),), "unknown"),
        (GPUS % 9, (quota(8),), "never"),
        ("resource: {action: create, manifestFrom: {artifact: {name: m}}}", (quota(8),), "unknown"),
    ],
)
def test_what_no_template_of_a_recursion_asks_for_is_certain(
    again: str, big: str, objects: tuple[Body, ...], verdict: str, tmp_path: Path
) -> None:
    report = asked(RECURSION.replace("AGAIN", again).replace("BIG", big), tmp_path, *objects)
    assert report.verdict == verdict, [each.message for each in report.findings]


def test_a_recursion_is_bounded_by_the_parallelism_of_the_workflow(tmp_path: Path) -> None:
    text = RECURSION.replace("AGAIN", "flip").replace("BIG", GPUS % 4)
    assert asked(text.replace("spec:", "spec:\n  parallelism: 2", 1), tmp_path, quota(8)).verdict == "always"
    assert asked(text.replace("spec:", "spec:\n  parallelism: 2", 1), tmp_path, quota(7)).verdict != "always"
    capped = text.replace("  - name: flip", "  - name: flip\n    parallelism: 2", 1)
    assert asked(capped, tmp_path, quota(8)).verdict == "unknown"


def test_a_template_that_calls_itself_under_its_own_lock_may_wait_for_itself(tmp_path: Path) -> None:
    text = RECURSION.replace("AGAIN", "flip").replace("BIG", PLAIN)
    locked = text.replace("  - name: flip", "  - name: flip\n    synchronization: {mutexes: [{name: m}]}", 1)
    report = asked(locked, tmp_path, quota(8))
    assert report.verdict == "may-queue"
    assert "waits for" in said(report, "GF831")


def test_a_request_above_the_pods_own_limit_is_not_said_to_be_a_limit_range_s_fault(tmp_path: Path) -> None:
    text = CRON.replace("SCHEDULE", "0 3 * * *").replace("DEADLINE", "backoffLimit: 1")
    text = text.replace("limits: {nvidia.com/gpu: 1}", "requests: {cpu: 4}, limits: {cpu: 2}")
    hint = said(asked(text, tmp_path), "GF503")
    assert "set limits.cpu to the request or more" in hint and "default limit is below" not in hint


def running(name: str, gpus: int, **status: str) -> Body:
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml"},
        "spec": {"nodeName": "n", "containers": [{"name": "m", "image": "i", "resources": limits}]},
        "status": {"phase": "Running", **status},
    }  # fmt: skip


PLAIN_JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  template:
    spec: {TOLERATIONS restartPolicy: Never, containers: [C]}
""".replace("[C]", "[{name: m, image: i, resources: {limits: {nvidia.com/gpu: 2}}}]")


@pytest.mark.parametrize(
    ("pods", "verdict"),
    [
        ([running("a", 4), running("b", 4)], "unknown"),
        ([running("a", 4)], "always"),
        ([running("a", 4), running("b", 4, phase="Succeeded")], "always"),
    ],
)
def test_a_quota_that_says_less_than_its_pods_hold_is_not_believed(
    pods: list[Body], verdict: str, tmp_path: Path
) -> None:
    report = asked(PLAIN_JOB.replace("TOLERATIONS", ""), tmp_path, quota(8), *pods)
    assert report.verdict == verdict
    words = "says that 0 of requests.nvidia.com/gpu is in use, and pods hold 8: with 2 more that is above 8"
    assert (words in said(report, "GF576")) is (verdict == "unknown")
    silent = {key: value for key, value in quota(8).items() if key != "status"}
    words = "has no status, and pods hold 8 of requests.nvidia.com/gpu: with 2 more that is above 8"
    assert (words in said(asked(PLAIN_JOB.replace("TOLERATIONS", ""), tmp_path, silent, *pods), "GF576")) is (
        verdict == "unknown"
    )


@pytest.mark.parametrize(("scope", "verdict"), [("NotTerminating", "unknown"), ("Terminating", "always")])
def test_of_a_quota_with_a_scope_the_pods_that_it_counts_are_held_against_it(
    scope: str, verdict: str, tmp_path: Path
) -> None:
    scoped = quota(8)
    scoped["spec"]["scopes"] = [scope]
    report = asked(PLAIN_JOB.replace("TOLERATIONS", ""), tmp_path, scoped, running("a", 4), running("b", 4))
    assert report.verdict == verdict


def test_steps_that_may_exclude_each_other_are_no_certain_excess_beside_an_endless_loop(tmp_path: Path) -> None:
    result = "{{steps.gen.outputs.result}}"
    text = f"""{HEAD}spec:
  entrypoint: main
  templates:
  - name: main
    steps:
    - - {{name: gen, template: gen}}
    - - {{name: a, template: train, withParam: "{result}"}}
      - {{name: b, template: train, when: "{result} == 5"}}
      - {{name: d, template: train, when: "{result} == 6 && 1 == 1"}}
  - {{name: gen, script: {{image: i, command: [x], source: x}}}}
  - {{name: train, {GPUS % 3}}}
"""
    assert "GF512" not in {each.code for each in asked(text, tmp_path, quota(4)).findings}
    either = text.replace(f' when: "{result} == 5"', "").replace(f' when: "{result} == 6 && 1 == 1"', "")
    assert "ask for 6" in said(asked(either, tmp_path, quota(4)), "GF512")


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ("{key: t, operator: Exists, tolerationSeconds: 60}", "60 s"),
        ("{key: t, operator: Exists}, {key: t, effect: NoExecute, tolerationSeconds: 60}", None),
        ("{key: t, operator: Exists, effect: NoExecute, tolerationSeconds: 5}, {operator: Exists}", "5 s"),
        ("{key: t, operator: Equal, value: x, effect: NoExecute, tolerationSeconds: 5}, {operator: Exists}", None),
    ],
)
def test_a_pod_that_a_taint_evicts_later_is_said(tolerations: str, seconds: str | None, tmp_path: Path) -> None:
    node = {**NODE, "spec": {"taints": [{"key": "t", "effect": "NoExecute"}]}}
    text = PLAIN_JOB.replace("TOLERATIONS", f"tolerations: [{tolerations}],").replace(
        "{key: t, operator: Exists, toleration", "{key: t, operator: Exists, effect: NoExecute, toleration"
    )
    report = asked(text, tmp_path, quota(8), node)
    assert report.verdict == "always", [each.message for each in report.findings]
    found = said(report, "GF548")
    assert f"NoExecute taint of n for {seconds}:" in found if seconds else not found
    elsewhere = asked(text.replace("restartPolicy", "nodeSelector: {a: b}, restartPolicy"), tmp_path, quota(8), node)
    assert not said(elsewhere, "GF548")


def test_a_gang_that_is_more_than_a_quota_says_that_the_launcher_is_one_of_its_pods() -> None:
    text = "steps: {a: {gang: 4, command: [x]}}"
    few = {**quota(4, "pods"), "metadata": {"name": "q", "namespace": NAMESPACE}}
    words = said(checked(text, few, engine="argo"), "GF501")
    assert "a gang of 5 pods, its launcher among them, asks for 5 of pods" in words
    assert "a gang of 4 pods asks for 4 of pods" in said(
        checked(text, {**few, **{key: quota(3, "pods")[key] for key in ("spec", "status")}}), "GF501"
    )


TWO_GANGS = f"""{HEAD}spec:
  entrypoint: main
  templates:
  - name: main
    dag: {{tasks: [{{name: a, template: g}}, {{name: b, template: g}}]}}
  - name: g
    resource:
      action: create
      successCondition: status.succeeded > 0
      manifest: |
        apiVersion: batch/v1
        kind: Job
        metadata: {{generateName: g-}}
        spec:
          completionMode: Indexed
          completions: 4
          parallelism: 4
          template:
            spec:
              subdomain: s
              restartPolicy: Never
              containers: [{{name: m, image: i, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
"""


def test_gangs_are_not_told_to_find_more_free_than_the_quota_has(tmp_path: Path) -> None:
    few, enough = (said(asked(TWO_GANGS, tmp_path, quota(hard)), "GF555") for hard in (6, 7))
    assert "let one run at a time, or have the quota raised to leave 7 of requests.nvidia.com/gpu free" in few
    assert not enough and "parallel" not in few


def test_no_number_is_promised_that_counts_what_a_step_creates(tmp_path: Path) -> None:
    report = asked(TWO_GANGS, tmp_path, quota(7))
    assert report.verdict == "may-queue"
    assert [line.safe_parallelism for line in report.scopes] == [None]


def test_a_kind_of_a_volume_that_is_left_out_may_need_others(tmp_path: Path) -> None:
    mounts = "volumes: [{name: v, persistentVolumeClaim: {claimName: c}}], restartPolicy"
    demand = demands(PLAIN_JOB.replace("TOLERATIONS", "").replace("restartPolicy", mounts), tmp_path)[0]
    assert isinstance(demand, Demand)
    report = check(demand, Cluster("c.yaml", (), assumed=ASSUMED - {"PersistentVolumeClaim"}), "ml")
    assert "of a volume, others may be asked for then" in said(report, "GF536")
    report = check(demand, Cluster("c.yaml", (), assumed=ASSUMED - {"ResourceQuota"}), "ml")
    assert "leaves the kind out" in said(report, "GF536") and "of a volume" not in said(report, "GF536")
