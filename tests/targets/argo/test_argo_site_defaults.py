"""What a site says about every run on Argo, and what a user is told about pods, tokens and queues.

Tests gpuflow/targets/argo/engine_options.py, gpuflow/targets/argo/facts.py and gpuflow/targets/argo/refusals.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuflow import GpuflowError, demand
from gpuflow.core.errors import Finding
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.argo import target
from gpuflow.targets.argo.facts import FACTS, ArgoOptions
from gpuflow.targets.target import Request
from tests.differential.oracle import Oracle
from tests.targets.argo.manifests import HEAD, artifact, compiled, schema_errors, template

STEP = "steps: {a: {command: [x]}}"
NIGHTLY = f'schedule: "0 3 * * *"\n{STEP}'
EXECUTOR = "executor: {service_account: runner, token_secret: runner.service-account-token}"


@pytest.fixture
def site(tmp_path: Path) -> Any:
    def load(argo: str, more: str = "") -> Site:
        file = tmp_path / "site.yaml"
        head = "apiVersion: gpuflow/v1\nkind: Site\nname: s\nextends: nvidia\n"
        file.write_text(f"{head}{more}\nengines: {{argo: {{{argo}}}}}\n")
        return Site.load(str(file))

    return load


def told(text: str, site: str | Site = "nvidia") -> list[Finding]:
    where = site if isinstance(site, Site) else Site.load(site)
    return list(target.notes(Request(loads(HEAD + text, "p.yaml"), where, "team-a", "p.yaml", (), ArgoOptions())))


def codes(text: str, site: str | Site = "nvidia") -> list[str]:
    return [finding.code for finding in told(text, site)]


def test_failed_pods_and_failed_runs_are_kept_and_a_late_night_still_starts() -> None:
    cron = compiled(NIGHTLY)["spec"]
    assert cron["startingDeadlineSeconds"] == 3600
    assert cron["workflowSpec"]["podGC"] == {"strategy": "OnPodSuccess", "deleteDelayDuration": "3600s"}
    assert cron["workflowSpec"]["ttlStrategy"] == {"secondsAfterSuccess": 30 * 86400}
    assert compiled(STEP)["spec"]["podGC"] == cron["workflowSpec"]["podGC"]


def test_a_site_turns_each_of_them_off(site: Any) -> None:
    cron = compiled(NIGHTLY, site("pod_gc: null, ttl: null, starting_deadline: null"))["spec"]
    assert "startingDeadlineSeconds" not in cron
    assert not {"podGC", "ttlStrategy"} & set(cron["workflowSpec"])


def test_a_site_chooses_other_times(site: Any) -> None:
    chosen = "pod_gc: {strategy: OnWorkflowCompletion, delay: null}, ttl: {success: 1d, failure: 7d}"
    spec = compiled(STEP, site(chosen))["spec"]
    assert spec["podGC"] == {"strategy": "OnWorkflowCompletion"}
    assert spec["ttlStrategy"] == {"secondsAfterSuccess": 86400, "secondsAfterFailure": 7 * 86400}


def test_site_show_prints_them() -> None:
    from gpuflow.spec.canonical import to_document

    shown = to_document(Site.load("gke"))["engines"]["argo"]
    assert shown["pod_gc"] == {"strategy": "OnPodSuccess", "delay": "1h"} or shown["pod_gc"] == {"delay": "1h"}
    assert shown["ttl"] == {"success": "30d"}
    assert shown["starting_deadline"] == "1h"


def test_other_engines_have_no_such_settings(tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text("apiVersion: gpuflow/v1\nkind: Site\nname: s\nengines: {airflow: {ttl: {success: 1d}}}\n")
    with pytest.raises(GpuflowError) as refusal:
        Site.load(str(file))
    (finding,) = refusal.value.findings
    assert (finding.code, finding.where.line) == ("GF113", 4)


def test_a_demand_knows_that_pods_of_succeeded_steps_are_deleted(site: Any) -> None:
    pipeline = loads(HEAD + STEP, "p.yaml")
    assert demand(pipeline, site=site(""), engine="argo").pods_collected
    assert not demand(pipeline, site=site("pod_gc: null"), engine="argo").pods_collected
    assert not demand(pipeline, site=site("pod_gc: {strategy: OnWorkflowSuccess}"), engine="argo").pods_collected
    assert not demand(pipeline, site=site(""), engine="airflow").pods_collected


def test_no_token_is_mounted_only_where_the_site_names_the_executors_account(site: Any) -> None:
    spec = compiled(STEP, site(EXECUTOR))["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["executor"] == {"serviceAccountName": "runner"}
    plain = compiled(STEP)["spec"]
    assert not {"automountServiceAccountToken", "executor"} & set(plain)
    assert codes(STEP) == ["GF317"]
    assert codes(STEP, site(EXECUTOR)) == []


def test_who_names_no_account_at_all_is_told_that_steps_may_fail(site: Any) -> None:
    (note,) = told(STEP)
    assert "Argo fails every step, unless that account may create workflowtaskresults" in note.message
    (note,) = told(STEP, site("service_account: argo-workflow"))
    assert note.message.startswith("the programs of steps hold a token")


def test_a_step_that_names_its_own_account_keeps_that_accounts_token(site: Any) -> None:
    named = "steps: {a: {command: [x], service_account: robot}, b: {command: [y]}}"
    manifest = compiled(named, site(EXECUTOR))
    assert template(manifest, "a")["automountServiceAccountToken"] is True
    assert "automountServiceAccountToken" not in template(manifest, "b")
    assert "automountServiceAccountToken" not in template(compiled(named), "a")


@pytest.mark.parametrize("text", [STEP, NIGHTLY])
def test_argos_schema_takes_all_of_it(site: Any, corpora: Path, text: str) -> None:
    assert schema_errors(compiled(text, site(f"{EXECUTOR}, ttl: {{success: 1d, failure: 2d}}")), corpora) == []


@pytest.mark.go
def test_argos_own_validation_accepts_all_of_it(site: Any) -> None:
    named = "steps: {a: {command: [x], service_account: robot}}"
    texts = [artifact(text, site(EXECUTOR)) for text in (STEP, NIGHTLY, named)]
    with Oracle("argo", "lint") as oracle:
        assert [answer["errors"] for answer in oracle.ask([{"text": text} for text in texts])] == [[], [], []]


def test_a_fan_out_of_hundreds_in_a_queue_is_told(site: Any) -> None:
    many, few = (f"steps: {{a: {{command: [x], queue: gpus, for_each: {{n: {{range: {n}}}}}}}}}" for n in (300, 99))
    (found,) = [finding for finding in told(many) if finding.code == "GF319"]
    assert "300 Kueue Workloads" in found.message
    assert "GF319" not in codes(few)
    assert "GF319" not in codes(many.replace("queue: gpus, ", ""))
    assert "GF319" in codes(many.replace("queue: gpus, ", ""), site("", "queue: gpus"))


HELPER = "{name: side, image: i, command: [y], memory: %s}"


@pytest.mark.parametrize(
    ("step", "names"),
    [
        (f"sidecars: [{HELPER % '16Mi'}]", ["side"]),
        (f"sidecars: [{HELPER % '128Mi'}]", []),
        (f"sidecars: [{HELPER % '{request: 16Mi}'}]", []),
        (f"init_containers: [{HELPER % '16Mi'}]", []),  # the kubelet starts it, without argoexec
        ("memory: 64Mi", ["main"]),
        ("memory: 1Gi", []),
    ],
)
def test_containers_without_room_for_argos_launcher_are_told(step: str, names: list[str]) -> None:
    found = [each for each in told(f"steps: {{a: {{command: [x], {step}}}}}") if each.code == "GF321"]
    assert [each.message.split('"')[3] for each in found] == names
    assert {each.severity for each in found} <= {"warning"}


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("retry: {failures: 2}", True),
        ("retry: 2", False),
        ("retry: {failures: 1, interruptions: 2}", False),
        ("retry: {interruptions: 2}", False),
    ],
)
def test_a_budget_for_failures_alone_is_told_to_end_with_its_node(step: str, expected: bool) -> None:
    assert ("GF324" in codes(f"steps: {{a: {{command: [x], {step}}}}}")) is expected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("checkpoint: {path: /c, store: s3://b/c}", True),
        ("checkpoint: {path: /c, store: s3://b/c, scratch: 5Gi}", False),
        ("checkpoint: {path: /c, store: s3://b/c}, volumes: {/c: {empty_dir: 5Gi}}", False),
    ],
)
def test_checkpoints_on_the_nodes_disk_without_a_size_are_told(step: str, expected: bool) -> None:
    assert ("GF322" in codes(f"steps: {{a: {{command: [x], {step}}}}}")) is expected


@pytest.mark.parametrize("spot", ["{mode: prefer, fallback_after: 1}", "{mode: prefer, fallback_after: 9}"])
def test_a_way_out_can_be_taken_by_a_step_with_a_plain_number_of_retries(spot: str) -> None:
    """`retry: N` beside interruptions is refused (GF128), and N has no failures to set to 0."""
    found = told(f"steps: {{a: {{command: [x], retry: 2, spot: {spot}}}}}", "gke")
    hints = [str(each.hint) for each in found if each.code == "GF305"]
    assert hints
    assert not [hint for hint in hints if "retry.failures" in hint or "retry.interruptions" in hint]


def test_who_runs_out_of_objects_is_pointed_to_the_field_that_decides() -> None:
    """A compiled workflow has a podGC of its own, and Argo's workflowDefaults fill only what is missing."""
    assert "engines.argo.pod_gc" in FACTS.waits["objects"]
    assert "workflowDefaults" not in FACTS.waits["objects"]
    assert Site.load("nvidia").engine("argo").pod_gc is not None


SHIPPED = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "file",
    [*sorted((SHIPPED / "argo_templates" / "sources").glob("*.yaml")), SHIPPED / "gpuflow/templates/pipeline.yaml"],
    ids=lambda file: file.stem,
)
def test_shipped_pipelines_use_an_exact_form_of_retries(file: Path) -> None:
    request = Request(
        loads(file.read_text(encoding="utf-8"), str(file)), Site.load("nvidia"), None, "", (), ArgoOptions()
    )
    about = [each for each in target.notes(request) if each.code in ("GF305", "GF322", "GF324")]
    assert [each.message for each in about if "retries" in each.message or each.code != "GF305"] == []
