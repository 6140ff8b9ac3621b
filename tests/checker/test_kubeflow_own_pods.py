"""Kubeflow's own pods, drivers and importers: pods of Argo's like the steps', so `init` and `wait` count in them too.

The numbers are counted by hand from KFP 2.17 (argocompiler: driverResources, launcherResources) and from Argo's rule
that every container template gets `init` and `wait`.

Tests gpuflow/pod/engine_containers.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.cluster import Cluster
from gpuflow.demands import Demand, demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.assumed import ASSUMED
from tests.checker.test_open_quotas import quota
from tests.checker.whole_scenes import HEAD, HOME, NAMESPACE, Body, checked, codes, line, manifest, node, text_of
from tests.readers.kfp.documents import Ir, constant, container, group, loop, output, pipeline, read, task

SMALL = {"default": {"cpu": "200m", "memory": "512Mi"}, "defaultRequest": {"cpu": "50m", "memory": "128Mi"}}
IMPORTER = {"importer": {"artifactUri": {"constant": "s3://a/b"}, "typeSchema": {"schemaTitle": "system.Dataset"}}}


def limit_range(**bounds: Any) -> Body:
    metadata = {"name": "lr", "namespace": NAMESPACE}
    spec = {"limits": [{"type": "Container", **bounds}]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": spec}


def told(demand: Demand, *objects: Body) -> Report:
    return check(demand, Cluster("cluster.yaml", tuple(map(manifest, (HOME, *objects))), assumed=ASSUMED), NAMESPACE)


def read_kfp(document: Ir, site: str = "nvidia") -> Demand:
    return read(document, engine="kubeflow", site=site)


def test_a_driver_is_refused_where_argos_wait_makes_it_too_large() -> None:
    """By hand: driver 500m + wait 200m = 700m, above 600m; each driver is refused, and no step ever starts."""
    demand = read_kfp(pipeline({"say": task("a")}))
    report = told(demand, limit_range(**SMALL), quota({"limits.cpu": "600m"}))
    assert (report.verdict, codes(report)) == ("never", ["GF508"])
    assert "requested: limits.cpu=700m" in text_of(report, "GF508")
    assert str(line(report, "ResourceQuota", "limits.cpu").peak) == "700m"
    assert told(demand, limit_range(**SMALL), quota({"limits.cpu": "700m"})).verdict == "always"


def test_a_small_step_of_ours_needs_a_driver_that_is_larger() -> None:
    text = "steps: {a: {command: [x], cpu: 100m, memory: 256Mi}}"
    report = checked(text, limit_range(**SMALL), quota({"limits.cpu": "600m"}), engine="kubeflow")
    assert (report.verdict, codes(report)) == ("never", ["GF508"])
    assert checked(text, limit_range(**SMALL), quota({"limits.cpu": "700m"}), engine="kubeflow").verdict == "always"


@pytest.mark.parametrize(("key", "peak"), [("requests.cpu", "300m"), ("limits.cpu", "1400m")])
def test_two_tasks_side_by_side_need_two_whole_drivers(key: str, peak: str) -> None:
    """By hand: 2 x (100m + 50m), and 2 x (500m + 200m)."""
    demand = read_kfp(pipeline({"say": task("a"), "say-2": task("a")}))
    report = told(demand, limit_range(**SMALL), quota({key: peak}))
    assert (report.verdict, str(line(report, "ResourceQuota", key).peak)) == ("always", peak)
    assert told(demand, limit_range(**SMALL), quota({key: "1399m" if key == "limits.cpu" else "299m"})).verdict != (
        "always"
    )


def test_the_drivers_of_branches_count_beside_what_runs() -> None:
    """By hand: three `fit` of 8 cores and 50m of wait, beside three branch drivers of 100m + 50m: 24600m."""
    branch = group({"say": task("a")}, flipped={"parameterType": "STRING"})
    tasks: Ir = {"flip": task("flip"), "each": task("fit", **loop([1, 2, 3]))}
    for number in "123":
        asked = {"condition": f"inputs.parameter_values['flipped'] == '{number}'"}
        tasks[f"branch-{number}"] = task(
            "branch", after=("flip",), inputs={"flipped": output("flip")}, triggerPolicy=asked
        )
    document = pipeline(
        tasks,
        components={"comp-branch": branch},
        executors={"exec-fit": container(cpuRequest=8.0, cpuLimit=8.0)},
    )
    report = told(read_kfp(document), limit_range(**SMALL), quota({"requests.cpu": "40"}))
    assert str(line(report, "ResourceQuota", "requests.cpu").peak) == "24600m"


def test_branches_of_which_one_runs_share_their_gpus_and_not_their_drivers() -> None:
    """By hand: 4 GPUs and 8050m for one branch; the driver of the other, 100m and 50m, may be there beside it."""
    condition = "inputs.parameter_values['flipped'] == 'heads'"
    tasks: Ir = {"flip": task("flip")}
    for name, asked in (("heads", condition), ("tails", f"!({condition})")):
        inputs = {"flipped": output("flip")}
        tasks[name] = task("branch", after=("flip",), inputs=inputs, triggerPolicy={"condition": asked})
    gpus = {"accelerator": {"resourceType": "nvidia.com/gpu", "resourceCount": "4"}}
    document = pipeline(
        tasks,
        components={"comp-branch": group({"fit": task("fit")}, flipped={"parameterType": "STRING"})},
        executors={"exec-fit": container(cpuRequest=8.0, cpuLimit=8.0, **gpus)},
    )
    hard = {"requests.nvidia.com/gpu": "4", "requests.cpu": "40"}
    report = told(read_kfp(document), limit_range(**SMALL), quota(hard))
    assert report.verdict == "always"
    assert str(line(report, "ResourceQuota", "requests.nvidia.com/gpu").peak) == "4"
    cpu = line(report, "ResourceQuota", "requests.cpu")
    assert (str(cpu.peak), cpu.witness) == ("8200m", ("tails.fit", "the driver of heads.fit or tails.fit"))
    demand = read_kfp(document)
    assert (str(demand.peak["requests.cpu"].value), str(demand.overhead["requests.cpu"].value)) == ("8100m", "100m")


def test_beside_a_branch_that_fills_a_node_the_driver_of_the_other_has_no_room() -> None:
    text = """steps:
  gen: {command: [x], cpu: 1, outputs: {acc: {type: float}}}
  a: {command: [x], needs: [gen], cpu: 10, when: steps.gen.acc > 0.5}
  b: {command: [x], needs: [gen], cpu: 10, when: steps.gen.acc <= 0.5}
"""
    small, large = (node("n", cpu=cpu) for cpu in ("10", "10100m"))
    report = checked(text, small, engine="kubeflow")
    assert (report.verdict, codes(report)) == ("may-queue", ["GF515"])
    assert "the driver of a or b together ask for up to 10100m cpu, 10 are free" in text_of(report, "GF515")
    assert checked(text, large, engine="kubeflow").verdict == "always"
    assert checked(text, small, engine="argo").verdict == "always"


def test_an_importer_is_refused_where_argos_containers_must_say_what_they_use() -> None:
    document = pipeline({"data": task("data")}, executors={"exec-data": IMPORTER})
    refused = told(read_kfp(document), quota({"limits.memory": "8Gi", "requests.cpu": "8"}))
    assert refused.verdict == "never"
    for code in ("GF501", "GF508"):
        text = text_of(refused, code)
        assert "must specify limits.memory for: init,wait; requests.cpu for: init,wait" in text
        assert "engines.kubeflow.init.init, engines.kubeflow.containers.wait" in text
    report = told(read_kfp(document), limit_range(**SMALL), quota({"limits.memory": "8Gi", "requests.cpu": "8"}))
    peaks = {each.resource: str(each.peak) for each in report.scopes}
    assert (report.verdict, peaks) == ("always", {"limits.memory": "1Gi", "requests.cpu": "150m"})


@pytest.mark.parametrize(
    ("tasks", "components"),
    [
        ({"make": task("claim", inputs={"size": constant("1Gi")})}, {}),
        ({"skip": task("a", triggerPolicy={"condition": "1 == 2"})}, {}),
        ({"none": task("a", **loop([]))}, {}),
    ],
    ids=["a claim", "a condition that never holds", "a loop over nothing"],
)
def test_a_task_that_only_its_driver_runs_for_is_a_driver_with_argos_containers(tasks: Ir, components: Ir) -> None:
    executors = {"exec-claim": container(image="argostub/createpvc")}
    demand = read_kfp(pipeline(tasks, components=components, executors=executors))
    pods = [step.pod["spec"] for step in demand.steps if step.copies]
    names = [[[each["name"] for each in pod[field]] for field in ("initContainers", "containers")] for pod in pods]
    assert names == [[["init"], ["driver", "wait"]]]


def test_what_the_site_says_of_argos_containers_holds_for_drivers_too() -> None:
    given = Site.load("nvidia").model_dump()
    kubeflow = given["engines"]["kubeflow"]
    amounts = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "50m", "memory": "64Mi"}}
    kubeflow["containers"] = {"wait": amounts, "istio-proxy": {"requests": {"cpu": "100m"}, "limits": {"cpu": "2"}}}
    kubeflow["init"]["init"] = amounts
    site = Site.model_validate(given)
    own = demand_of(loads(HEAD + "steps: {a: {command: [x], cpu: 100m}}", "p.yaml"), site, "kubeflow")
    # By hand: driver 500m + wait 50m + the mesh's 2; requests 100m + 10m + 100m.
    assert (str(own.peak["limits.cpu"].value), str(own.peak["requests.cpu"].value)) == ("2550m", "210m")
    text = "steps: {a: {command: [x], cpu: 100m, memory: 256Mi}}"
    kubeflow["containers"] = {"wait": amounts}
    report = checked(text, quota({"limits.cpu": "550m"}), site=Site.model_validate(given), engine="kubeflow")
    assert report.verdict == "always"
    assert checked(text, quota({"limits.cpu": "549m"}), site=site, engine="kubeflow").verdict == "never"


@pytest.mark.parametrize(
    ("bounds", "owners"),
    [
        ({"maxLimitRequestRatio": {"memory": "4"}}, {"GF502": "init, wait", "GF508": "driver, init, wait"}),
        ({"maxLimitRequestRatio": {"cpu": "4"}, "default": {"cpu": "1"}}, {"GF502": "kfp-launcher", "GF508": "driver"}),
        ({"max": {"cpu": "400m"}}, {"GF502": "kfp-launcher", "GF508": "driver"}),
        ({"min": {"memory": "100Mi"}}, {"GF508": "driver"}),
    ],
)
def test_a_limit_range_that_kubeflows_own_containers_break_says_whose_they_are(
    bounds: Body, owners: dict[str, str]
) -> None:
    text = "steps: {a: {command: [x], cpu: 100m, memory: 256Mi}}"
    report = checked(text, limit_range(**bounds), engine="kubeflow")
    assert report.verdict == "never" and set(codes(report)) == set(owners)
    for code, owner in owners.items():
        (finding,) = [each for each in report.findings if each.code == code]
        assert str(finding.hint).startswith(f"{owner}: added by Kubeflow; ")
        assert "LimitRange" in str(finding.hint) and "single number" not in str(finding.hint)


def test_a_step_of_the_users_that_breaks_a_ratio_is_told_how_to_keep_it() -> None:
    text = "steps: {a: {command: [x], cpu: {request: 100m, limit: 1}}}"
    (finding,) = checked(text, limit_range(maxLimitRequestRatio={"cpu": "4"}), engine="none").findings
    assert "a single number for cpu or memory sets both" in str(finding.hint)


def test_a_ratio_that_the_step_and_kubeflow_break_is_told_to_each_of_them() -> None:
    text = "steps: {a: {command: [x], cpu: {request: 100m, limit: 1}, memory: 256Mi}}"
    report = checked(text, limit_range(maxLimitRequestRatio={"cpu": "4"}, default={"cpu": "1"}), engine="kubeflow")
    (finding,) = [each for each in report.findings if each.code == "GF502"]
    own, engines, last = str(finding.hint).splitlines()
    assert own == "main: bring request and limit closer together: a single number for cpu or memory sets both"
    assert engines.startswith("kfp-launcher: added by Kubeflow; ") and "nobody can change" in engines
    assert last == "else have the namespace's LimitRange changed"
