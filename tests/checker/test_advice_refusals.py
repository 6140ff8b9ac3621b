"""The way out of what the API server refuses: whose containers, and where their resources are set.

Tests gpuflow/checker/hints/refusals.py.
"""

from __future__ import annotations

from gpuflow.site import Site
from tests.checker.advice_scenes import BARE, limit_range, of, only, quota, told

ONE = "steps: {a: {command: [x]}}"
WITH_OUTPUT = "steps: {a: {command: [x], outputs: {n: int}}}"


def test_containers_that_argo_adds_are_named_with_argos_own_setting_and_the_place_in_the_site() -> None:
    hint = only(told(ONE, quota({"limits.cpu": "9"}), engine="argo"), "GF501").hint or ""
    assert "init, wait: added by Argo; set executor.resources in the ConfigMap workflow-controller-configmap" in hint
    assert "the same limits.cpu in the site: engines.argo.init.init, engines.argo.containers.wait" in hint
    assert "main" not in hint


def test_once_the_site_says_what_argos_containers_use_nothing_is_refused() -> None:
    parts = {"limits": {"cpu": "1"}}
    base = Site.load("nvidia")
    argo = base.engine("argo").model_validate({"init": {"init": parts}, "containers": {"wait": parts}})
    site = base.model_copy(update={"engines": {**base.engines, "argo": argo}})
    assert told(ONE, quota({"limits.cpu": "9"}), engine="argo", site=site).verdict == "always"


def test_the_sidecar_of_airflow_is_named_with_the_connections_extra() -> None:
    hint = only(told(WITH_OUTPUT, quota({"limits.memory": "9Gi"}), engine="airflow"), "GF501").hint or ""
    assert "airflow-xcom-sidecar: added by Airflow" in hint
    assert "xcom_sidecar_container_resources in the connection's extra" in hint
    assert "engines.airflow.output_containers.airflow-xcom-sidecar" in hint
    assert told(ONE, quota({"limits.memory": "9Gi"}), engine="airflow").verdict == "always"


def test_argos_containers_under_kubeflow_are_named_with_kubeflows_own_configuration() -> None:
    base = Site.load("nvidia")
    kubeflow = base.engine("kubeflow").model_validate({"containers": {"wait": {}}})
    site = base.model_copy(update={"engines": {**base.engines, "kubeflow": kubeflow}})
    hint = only(told(ONE, quota({"limits.cpu": "9"}), engine="kubeflow", site=site), "GF501").hint or ""
    assert "wait: added by Kubeflow; for Argo's own, set executor.resources" in hint
    assert "engines.kubeflow.containers.wait" in hint


def test_a_step_that_says_no_amounts_is_told_which_to_say() -> None:
    report = told(ONE, quota({"requests.cpu": "9", "limits.memory": "9Gi"}), defaults=BARE)
    assert (only(report, "GF501").hint or "").startswith("main: set cpu and memory in the step or in defaults")


def test_a_sidecar_of_the_step_is_not_taken_for_the_engines() -> None:
    text = "steps: {a: {command: [x], sidecars: [{name: wait-for-it, image: i, command: [y]}]}}"
    hint = only(told(text, quota({"limits.cpu": "9"}), engine="argo"), "GF501").hint or ""
    assert "wait-for-it: set cpu on that init container or sidecar" in hint
    assert "init, wait: added by Argo" in hint


def test_a_limit_range_for_whole_pods_with_gpus_is_known_as_the_trap_it_is() -> None:
    report = told(ONE, limit_range(type="Pod", max={"nvidia.com/gpu": "8"}))
    assert report.verdict == "never"
    assert "refuses every pod that asks for none" in (only(report, "GF502").hint or "")


def test_a_minimum_of_gpus_in_a_limit_range_is_known_as_the_trap_it_is() -> None:
    report = told(ONE, limit_range(type="Container", min={"nvidia.com/gpu": "1"}))
    assert "a LimitRange with min for a GPU" in (only(report, "GF503").hint or "")


def test_a_default_limit_below_the_request_asks_for_the_limit_to_be_said() -> None:
    report = told("steps: {a: {command: [x], cpu: {request: 2}}}", limit_range(type="Container", default={"cpu": "1"}))
    assert "set the limit too, cpu: {request: …, limit: …}" in (only(report, "GF503").hint or "")


def test_kubeflows_driver_is_judged_too_and_its_refusal_means_never() -> None:
    ratio = limit_range(type="Container", maxLimitRequestRatio={"memory": "4"})
    refused = told(ONE, ratio, engine="kubeflow")
    assert refused.verdict == "never"
    finding = only(refused, "GF508")
    assert "driver pod that Kubeflow runs" in finding.message
    assert "memory max limit to request ratio per Container is 4, but provided ratio is 8" in (finding.kubernetes or "")


def test_a_driver_that_is_admitted_is_not_spoken_of() -> None:
    assert of(told(ONE, quota({"pods": "9"}), engine="kubeflow"), "GF508") == []
    assert (
        of(told(ONE, limit_range(type="Container", maxLimitRequestRatio={"memory": "4"}), engine="argo"), "GF508") == []
    )


def test_a_quota_that_counts_cpu_by_its_short_name_is_a_line_like_any_other() -> None:
    both = "steps: {a: {command: [x]}, b: {command: [x]}}"
    report = told(both, quota({"cpu": "1", "memory": "9Gi"}))
    assert report.verdict == "may-queue"
    assert [(line.resource, line.verdict, line.safe_parallelism) for line in report.scopes] == [
        ("cpu", "may-queue", 1),
        ("memory", "always", None),
    ]
    assert told(both, quota({"cpu": "2"})).verdict == "always"
