"""What later attempts of a step get, asked of Argo's own substitution and patching."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from gpuflow.pod import pod_for
from gpuflow.runtime.gangs.later_attempts import EarlierAttempts
from gpuflow.site import Site
from gpuflow.spec.canonical import meaning_of
from gpuflow.spec.loading import loads
from tests.differential.oracle import Oracle
from tests.targets.argo.manifests import HEAD, compiled, substituted, template
from tests.targets.attempts import GROWING as GROWING_CASES
from tests.targets.attempts import INTERRUPTED, Growing, Interrupted, memory, pod_after

SITES = ("gke", "aks", "eks-karpenter")
OOM = {"exitCode": "137", "status": "Failed", "message": "main: OOMKilled (exit code 137)"}
NOTHING = {"exitCode": "0", "status": "", "message": ""}
DELETED = {"exitCode": "0", "status": "Error", "message": "pod deleted"}
FAILED = {"exitCode": "1", "status": "Failed", "message": "main: Error (exit code 1)"}
SAYS_OOM = {
    "exitCode": "1",
    "status": "Failed",
    "message": "main: Error (exit code 1): main: OOMKilled (exit code 137)",
}
HELPER_OOM = {"exitCode": "0", "status": "Failed", "message": "fetch: OOMKilled (exit code 137)"}
OOM_WITH_LAST_WORDS = {
    "exitCode": "1",
    "status": "Failed",
    "message": "main: OOMKilled (exit code 1): a worker is gone",
}


@pytest.fixture(scope="module")
def argo() -> Iterator[Oracle]:
    with Oracle("argo", "substitution") as oracle:
        yield oracle


def attempt(oracle: Oracle, text: str, site: str, retries: int, last: dict[str, str]) -> dict[str, Any]:
    """The pod's spec of one attempt, after Argo's patch."""
    manifest = compiled(f"steps: {{a: {{command: [x], {text}}}}}", site, kind="Workflow")
    (pod,) = substituted(oracle, manifest, ["a"], attempt={"retries": str(retries), **last})
    spec: dict[str, Any] = pod["spec"]
    return spec


def scheduling(text: str, site: str) -> dict[str, Any]:
    """Where gpuflow's own pod of such a step may run."""
    pipeline = meaning_of(loads(f"{HEAD}steps: {{a: {{command: [x], {text}}}}}", "p.yaml"))
    return where(pod_for(pipeline, "a", meaning_of(Site.load(site)))["spec"])


def where(spec: dict[str, Any]) -> dict[str, Any]:
    return {field: spec[field] for field in ("nodeSelector", "affinity", "tolerations") if spec.get(field)}


@pytest.mark.go
@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("mode", ["prefer", "require"])
@pytest.mark.parametrize("gpu", ["", "gpu: {any_of: [l4, a100-40gb]}, ", "gpu: l4, "])
def test_after_enough_retries_the_pod_is_the_on_demand_pod(argo: Oracle, site: str, mode: str, gpu: str) -> None:
    text = f"{gpu}retry: {{interruptions: 5}}, spot: {{mode: {mode}, fallback_after: 2}}"
    first, last = scheduling(f"{gpu}spot: {mode}", site), scheduling(f"{gpu}spot: never", site)
    assert first != last
    for retries, expected in ((0, first), (1, first), (2, last), (5, last)):
        assert where(attempt(argo, text, site, retries, DELETED)) == expected


@pytest.mark.go
def test_falling_back_leaves_other_affinity_and_other_patches_alone(argo: Oracle) -> None:
    own = (
        "kubernetes: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
        "[{topologyKey: kubernetes.io/hostname}]}}, node_selector: {disk: fast}}, termination_grace: 2m"
    )
    text = f"{own}, retry: {{interruptions: 5}}, spot: {{mode: require, fallback_after: 1}}"
    spec = attempt(argo, text, "gke", 1, DELETED)
    assert where(spec) == scheduling(f"{own}, spot: never", "gke")
    assert spec["terminationGracePeriodSeconds"] == 120


def test_without_a_budget_to_fall_back_in_there_is_no_patch() -> None:
    manifest = compiled("steps: {a: {command: [x], spot: {mode: prefer, fallback_after: 2}}}", "gke")
    assert "podSpecPatch" not in template(manifest, "a")
    manifest = compiled("steps: {a: {command: [x], retry: 1, spot: {mode: prefer, fallback_after: 2}}}", "gke")
    assert "podSpecPatch" not in template(manifest, "a")


GROWING = "memory: {request: 16Gi, limit: 20Gi}, retry: {failures: 3, interruptions: 9, more_memory: {max: 64Gi}}"


@pytest.mark.go
@pytest.mark.parametrize(
    ("retries", "last", "request_", "limit"),
    [
        (0, NOTHING, "16Gi", "20Gi"),
        (1, OOM, "32Gi", "40Gi"),
        (2, OOM, "64Gi", "64Gi"),
        (9, OOM, "64Gi", "64Gi"),
        (1, FAILED, "16Gi", "20Gi"),
        (1, SAYS_OOM, "16Gi", "20Gi"),
        (1, HELPER_OOM, "16Gi", "20Gi"),
        (1, OOM_WITH_LAST_WORDS, "32Gi", "40Gi"),
        (2, DELETED, "16Gi", "20Gi"),
    ],
)
def test_memory_grows_after_an_oom_up_to_the_most(
    argo: Oracle, retries: int, last: dict[str, str], request_: str, limit: str
) -> None:
    (main,) = attempt(argo, GROWING, "nvidia", retries, last)["containers"]
    assert main["resources"]["requests"]["memory"] == request_
    assert main["resources"]["limits"]["memory"] == limit


@pytest.mark.go
def test_falling_back_and_growing_memory_go_together(argo: Oracle) -> None:
    text = f"{GROWING}, spot: {{mode: prefer, fallback_after: 2}}, gpu: l4"
    spec = attempt(argo, text, "gke", 2, OOM)
    assert where(spec) == scheduling("gpu: l4, spot: never", "gke")
    (main,) = spec["containers"]
    assert main["resources"]["requests"]["memory"] == "64Gi"
    assert main["resources"]["requests"]["nvidia.com/gpu"] == "1"


TABLE = re.compile(
    r"\{\{=lastRetry\.message startsWith 'main: OOMKilled ' \? "
    r"(?P<table>\[.*\])\[min\(asInt\(retries\), (?P<last>\d+)\)\] : (?P<first>'.*')\}\}"
)
CHOICE = re.compile(r"\{\{=asInt\(retries\) < (?P<after>\d+) \? (?P<first>'.*') : (?P<then>'.*')\}\}")


def evaluated(text: str, retries: int, message: str) -> str:
    """What Argo makes of one of the two expressions that gpuflow writes into patches."""
    table = TABLE.fullmatch(text)
    if table is not None:
        amounts = ast.literal_eval(table["table"])
        index = min(retries, int(table["last"]))
        return str(amounts[index] if message.startswith("main: OOMKilled ") else ast.literal_eval(table["first"]))
    choice = CHOICE.fullmatch(text)
    assert choice is not None, text
    return str(ast.literal_eval(choice["first"] if retries < int(choice["after"]) else choice["then"]))


def patched(text: str, site: str, retries: int, message: str) -> dict[str, Any]:
    """The pod's spec of one attempt: the template's own fields and the patch, merged as Kubernetes merges them."""
    made = template(compiled(f"steps: {{a: {{{text}}}}}", site), "a")
    fields = ("nodeSelector", "affinity", "tolerations")
    spec = {field: made[field] for field in fields if field in made} | {"containers": [made["container"]]}
    patch = made.get("podSpecPatch", "")
    inner = re.sub(r"\{\{=.*?\}\}(?=[\",\n])", lambda tag: evaluated(tag[0], retries, message), patch)
    for field, value in json.loads(inner or "{}").items():
        if field == "containers":
            (main,) = value
            spec[field] = [_merged(made["container"], {"resources": main["resources"]})]
        elif field in fields:
            spec[field] = _merged(spec.get(field), value)
    return spec


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(new, dict):
        return new
    old = dict(old or {})
    for key, value in new.items():
        old[key] = None if value is None else _merged(old.get(key), value)
    return {key: value for key, value in old.items() if value is not None}


@pytest.mark.parametrize("case", GROWING_CASES.values(), ids=list(GROWING_CASES))
def test_argos_expressions_give_the_memory_that_the_one_maker_gives(case: Growing) -> None:
    for times in range(case.failures + 1):
        spec = patched(case.text, "nvidia", times, OOM["message"] if times else "")
        assert memory(spec) == memory(pod_after(case.text, EarlierAttempts(out_of_memory=times)))


@pytest.mark.parametrize("case", INTERRUPTED, ids=str)
def test_argos_expressions_leave_spot_nodes_when_the_one_maker_does(case: Interrupted) -> None:
    for times in range(case.interruptions + 1):
        spec = patched(case.text, case.site, times, DELETED["message"])
        assert where(spec) == where(pod_after(case.text, EarlierAttempts(interruptions=times), case.site))


@pytest.mark.go
@pytest.mark.parametrize("case", GROWING_CASES.values(), ids=list(GROWING_CASES))
def test_argo_itself_gives_the_memory_that_the_one_maker_gives(argo: Oracle, case: Growing) -> None:
    for times in range(case.failures + 1):
        text = case.text.removeprefix("command: [x], ")
        spec = attempt(argo, text, "nvidia", times, OOM if times else NOTHING)
        assert memory(spec) == memory(pod_after(case.text, EarlierAttempts(out_of_memory=times)))


def test_a_retry_on_another_node_keeps_off_the_nodes_that_failed() -> None:
    manifest = compiled("steps: {a: {command: [x], retry: {failures: 2, other_node: true}}}")
    assert template(manifest, "a")["retryStrategy"]["affinity"] == {"nodeAntiAffinity": {}}
    assert "affinity" not in template(compiled("steps: {a: {command: [x], retry: 2}}"), "a")["retryStrategy"]
