"""Who starts a step again on Kubeflow, and what a user is told about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow.cli.main import main
from gpuflow.core.errors import Finding
from gpuflow.demands import demand_of
from gpuflow.plan import plan_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.kubeflow import target
from gpuflow.targets.kubeflow.retries import restarts_at, retry_notes
from gpuflow.targets.target import Compiled, Request, remarks_of
from tests.conftest import ROOT
from tests.targets.kubeflow.compiling import HEAD, compiled

PLAIN = Site.load("nvidia")
STORE = "checkpoint: {path: /c, store: s3://m/x}"
OUTPUTS = "outputs: {loss: float}"
BOTH = "retry: {failures: 2, interruptions: 5}"


def at(**fields: Any) -> Site:
    """The plain site with these settings of the runtime, and of Kubeflow under `kubeflow`."""
    engine = fields.pop("kubeflow", {})
    document = PLAIN.model_dump(mode="json", exclude_none=True)
    document["runtime"] = {**document.get("runtime", {}), **fields}
    document["engines"] = {**document["engines"], "kubeflow": {**document["engines"].get("kubeflow", {}), **engine}}
    return Site.model_validate(document)


MOUNTED = at(delivery="config-map")
STATE = at(delivery="config-map", state="s3://state")
ALWAYS = at(kubeflow={"retry": "always"})
ALWAYS_STATE = at(delivery="config-map", state="s3://state", kubeflow={"retry": "always"})


def step(fields: str) -> str:
    return f'name: p\nsteps:\n  work: {{image: "i:1", command: [work], {fields}}}\n'


def made(fields: str, site: Site) -> tuple[dict[str, Any], list[str], dict[str, Any], str]:
    """The task, the command, the Kubernetes settings and the header of one step."""
    text = compiled(step(fields), site=site)
    spec, *rest = yaml.safe_load_all(text)
    executor = spec["deploymentSpec"]["executors"]["exec-work"]["container"]
    settings = rest[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-work"]
    header = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    return spec["root"]["dag"]["tasks"]["work"], executor["command"], settings, header


def options(command: list[str]) -> set[str]:
    """The supervisor's options; none: there is no supervisor."""
    words = command[: command.index("--")] if "--" in command else []
    return {word for word in words if word.startswith(("--repeat", "--fail", "--inter", "--retr", "--final", "--back"))}


def said(fields: str, site: Site) -> list[Finding]:
    pipeline = loads(HEAD + step(fields))
    return list(retry_notes(plan_of(pipeline, site), restarts_at(site)))


@pytest.mark.parametrize(
    ("fields", "site", "limit", "supervised", "codes"),
    [
        # The site's key: KFP has the shared limit, and the ledger splits it.
        (f"{BOTH}, {STORE}", ALWAYS, 7, {"--failures=2", "--interruptions=5"}, ["GF391"]),
        (f"retry: {{failures: 2}}, {STORE}", ALWAYS, 2, {"--failures=2", "--interruptions=0"}, ["GF391"]),
        (f"retry: {{interruptions: 5}}, {STORE}", ALWAYS, 5, {"--failures=0", "--interruptions=5"}, ["GF391"]),
        (BOTH, ALWAYS_STATE, 7, {"--failures=2", "--interruptions=5"}, ["GF391"]),
        (f"retry: 3, {STORE}", ALWAYS, 3, set(), []),
        ("retry: 3", ALWAYS_STATE, 3, set(), []),
        (
            f"retry: {{any: 3, final_exit_codes: [2]}}, {STORE}", ALWAYS, 3,
            {"--retries=3", "--final-exit-codes=2"}, ["GF391"],
        ),
        # The key and no place to count: one budget.
        ("retry: 3", ALWAYS, 3, set(), []),
        (BOTH, ALWAYS, 7, set(), ["GF393"]),
        (f"{BOTH}, {OUTPUTS}", ALWAYS, 7, set(), ["GF393"]),
        ("retry: {any: 3, final_exit_codes: [2]}", ALWAYS, 3, set(), ["GF393"]),
        # No key: failures inside the pod, interruptions by KFP.
        (f"{BOTH}, {STORE}", PLAIN, 5, {"--repeat", "--failures=2", "--interruptions=5"}, ["GF392"]),
        (f"retry: 3, {STORE}", PLAIN, 3, {"--repeat", "--retries=3"}, ["GF392"]),
        (f"retry: {{failures: 2}}, {STORE}", PLAIN, None, {"--repeat", "--failures=2", "--interruptions=0"}, ["GF392"]),
        (f"retry: {{interruptions: 5}}, {STORE}", PLAIN, 5, {"--failures=0", "--interruptions=5"}, ["GF392"]),
        (BOTH, STATE, 5, {"--repeat", "--failures=2", "--interruptions=5"}, ["GF392", "GF307"]),
        # No place: what KFP repeats must not be multiplied.
        (f"{BOTH}, {OUTPUTS}", PLAIN, None, {"--repeat", "--failures=2"}, ["GF392"]),
        ("retry: 3", MOUNTED, None, {"--repeat", "--retries=3"}, ["GF392", "GF307"]),
        (
            "retry: {failures: 2, retryable_exit_codes: [1], backoff: {start: 10s, factor: 3, max: 1m}}", MOUNTED, None,
            {"--repeat", "--failures=2", "--retryable-exit-codes=1", "--backoff=10s", "--backoff-factor=3",
             "--backoff-max=1m"},
            ["GF392", "GF307"],
        ),
        # No supervisor: what KFP does by itself.
        ("retry: 3", PLAIN, 3, set(), ["GF394"]),
        (BOTH, PLAIN, 7, set(), ["GF394"]),
        ("retry: {interruptions: 5}", PLAIN, 5, set(), ["GF394"]),
    ],
)  # fmt: skip
def test_who_starts_a_step_again(
    fields: str, site: Site, limit: int | None, supervised: set[str], codes: list[str]
) -> None:
    task, command, _, header = made(fields, site)
    assert task.get("retryPolicy", {}).get("maxRetryCount") == limit
    assert options(command) == supervised
    notes = said(fields, site)
    assert [note.code for note in notes] == codes
    assert all(note.severity == "note" for note in notes)
    assert all(f"# WEAKER: {note.message}" in header for note in notes), "the reader of the artifact is told too"


def test_the_pods_after_a_final_end_are_counted() -> None:
    (note,) = said(f"{BOTH}, {STORE}", ALWAYS)
    assert "KFP goes on to start pods, up to 7 of them" in note.message
    assert "exit code 79 before it downloads anything" in note.message


def test_what_a_stock_installation_does_is_said_step_by_step() -> None:
    (kept,) = said(f"{BOTH}, {STORE}", PLAIN)
    assert "starts a failed command again inside its pod, up to 2 times" in kept.message
    assert "An interruption is left to KFP, up to 5 times" in kept.message
    assert "gpuflow site kubeflow" in (kept.hint or "")
    (counted_nowhere,) = said(f"{BOTH}, {OUTPUTS}", PLAIN)
    assert "at most twice, unless it sees exit code 143 first" in counted_nowhere.message
    assert "each new pod counts its failures from 0" in counted_nowhere.message
    (plain,) = said("retry: {any: 2, final_exit_codes: [3]}", PLAIN)
    assert "what KFP's 2 retries repeat, its installation decides" in plain.message
    assert "Every exit code counts alike" in plain.message
    assert "runtime.delivery: config-map" in (plain.hint or "")


def test_steps_that_are_retried_alike_share_one_note() -> None:
    inner = '{name: q, defaults: {image: "i:1"}, steps: {x: {command: [x], retry: 2}}}'
    source = (
        f'name: p\ndefaults: {{image: "i:1", retry: 2}}\nsteps:\n  a: {{command: [a]}}\n  s: {{pipeline: {inner}}}\n'
    )
    (note,) = retry_notes(plan_of(loads(HEAD + source), PLAIN), "unknown")
    assert note.message.startswith('steps "a", "s.x": ')


def test_copies_of_a_sub_pipeline_never_count_in_one_place() -> None:
    """They do not know their item: the second would find the success of the first, and do nothing."""
    inner = f'{{name: q, defaults: {{image: "i:1"}}, steps: {{x: {{command: [x], {BOTH}}}}}}}'
    source = "name: p\nsteps:\n  s: {%spipeline: " + inner + "}\n"
    for site in (STATE, ALWAYS_STATE):
        assert "--state=s3://state" in compiled(source % "", site=site)
        looped = compiled(source % "for_each: {i: [1, 2]}, ", site=site)
        assert "--state" not in looped and "--interruptions" not in looped
        assert "WEAKER" in looped


def test_validate_and_check_tell_the_same(tmp_path: Path) -> None:
    pipeline = loads(HEAD + step(BOTH))
    told = remarks_of(target, Request(pipeline, PLAIN, None, ""), Compiled(()))
    assert [each.code for each in told if each.code.startswith("GF39")] == ["GF394"]


@pytest.mark.parametrize(
    ("fields", "site", "pods"),
    [
        (f"{BOTH}, {STORE}", ALWAYS, 8),
        (f"{BOTH}, {STORE}", PLAIN, 6),
        (f"{BOTH}, {OUTPUTS}", PLAIN, 1),
        (BOTH, PLAIN, 8),
        ("retry: 3", MOUNTED, 1),
    ],
)
def test_a_demand_counts_the_pods_that_kfp_is_asked_for(fields: str, site: Site, pods: int) -> None:
    assert demand_of(loads(HEAD + step(fields)), site, "kubeflow").steps[0].tries == pods


def test_on_other_engines_nothing_is_repeated_inside() -> None:
    for engine in ("argo", "airflow", "none"):
        demand = demand_of(loads(HEAD + step(BOTH)), STATE, engine)
        words = demand.steps[0].pod["spec"]["containers"][0]["command"]
        assert demand.steps[0].tries == 8
        assert "--repeat" not in words


def test_a_pod_that_repeats_its_command_has_time_for_every_attempt() -> None:
    fields = f"retry: {{failures: 2, backoff: {{start: 10s, factor: 3, max: 20s}}}}, timeout: 10m, {OUTPUTS}"
    _, command, settings, _ = made(fields, PLAIN)
    assert "--timeout=10m" in command
    assert settings["activeDeadlineSeconds"] == str(3 * (600 + 30) + 2 * 20 + 3600)
    _, _, settings, _ = made("retry: 2, timeout: 10m", PLAIN)
    assert settings["activeDeadlineSeconds"] == "600", "a plain step is one attempt in its pod"


@pytest.mark.parametrize("number", [2**31 - 1, 10**6])
@pytest.mark.parametrize("site", [PLAIN, ALWAYS, MOUNTED])
def test_a_huge_number_is_no_huge_list_and_overflows_nothing(number: int, site: Site) -> None:
    backoff = "backoff: {start: 30s, factor: 2147483647}"
    text = compiled(step(f"retry: {{failures: {number}, interruptions: {number}, {backoff}}}, timeout: 1d"), site=site)
    spec, platform = yaml.safe_load_all(text)
    policy = spec["root"]["dag"]["tasks"]["work"].get("retryPolicy")
    if policy is not None:
        assert policy["maxRetryCount"] == min(2 * number, 2**31 - 1)
        assert int(policy["backoffMaxDuration"][:-1]) < 2**31
        assert policy["backoffFactor"] == 1
    (settings,) = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values()
    assert int(settings["activeDeadlineSeconds"]) < 2**31


def test_a_retry_is_never_cut_off_by_a_long_wait_for_quota() -> None:
    """KFP counts from the moment at which the first pod was made."""
    task, *_ = made("retry: 1, timeout: 1h", ALWAYS)
    assert task["retryPolicy"]["backoffMaxDuration"] == f"{3650 * 86400}s"


def test_waits_that_would_grow_beyond_the_longest_are_all_as_long_as_the_first() -> None:
    growing = "retry: {any: 6, backoff: {start: 1m, factor: 3, max: %s}}"
    task, _, _, header = made(growing % "10m", ALWAYS)
    assert task["retryPolicy"] | {"backoffMaxDuration": ""} == {
        "maxRetryCount": 6, "backoffDuration": "60s", "backoffFactor": 1, "backoffMaxDuration": ""
    }  # fmt: skip
    assert "would grow beyond 10m: every wait is 1m, as long as the first" in header
    task, _, _, header = made(growing % "5h", ALWAYS)
    assert task["retryPolicy"]["backoffFactor"] == 3
    assert "WEAKER" not in header


def test_the_patch_of_the_installation_is_ready_to_paste(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["site", "kubeflow", "--namespace", "ml"]) == 0
    text = capsys.readouterr().out
    retries = '"retryStrategy":{"limit":"0","retryPolicy":"Always"}'
    patch = f'{{"templateDefaults":{{{retries},"securityContext":{{"fsGroup":1000}}}}}}'
    line = "kubectl -n ml set env deployment/ml-pipeline -c ml-pipeline-api-server COMPILED_PIPELINE_SPEC_PATCH="
    assert f"{line}'{patch}'\n" in text
    assert "engines: {kubeflow: {retry: always, fs_group: 1000}}" in text
    said_already = tmp_path / "site.yaml"
    head = "apiVersion: gpuflow/v1\nkind: Site\nname: s\n"
    said_already.write_text(head + "engines: {kubeflow: {retry: always, fs_group: 1000}}\n")
    assert main(["site", "kubeflow", str(said_already)]) == 0
    assert "Site s says so" in capsys.readouterr().out
    assert main(["site", "kubeflow", "--format", "env"]) == 0
    assert capsys.readouterr().out == f"COMPILED_PIPELINE_SPEC_PATCH={patch}\n"
    assert main(["site", "kubeflow", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(patch)
    assert main(["site", "kubeflow", str(tmp_path / "no.yaml")]) == 2


def test_the_first_example_compiles_and_says_what_is_weaker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = ROOT / "docs" / "examples" / "first"
    words = ["compile", str(first), "--site", str(first / "site.yaml"), "--target", "kubeflow", "-o", str(tmp_path)]
    assert main(words) == 0
    console = capsys.readouterr().err
    assert 'GF392 step "train": gpuflow-run starts a failed command again inside its pod, up to 3 times' in console
    assert '# WEAKER: step "train": gpuflow-run starts' in (tmp_path / "finetune.yaml").read_text()


def test_two_budgets_compile_from_the_command_line_without_a_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "p.yaml"
    source.write_text(HEAD + step(f"{BOTH}, final_exit_codes: [2]".replace("}, final", ", final") + "}"))
    assert main(["compile", str(source), "--target", "kubeflow"]) == 0
    assert "GF394" in capsys.readouterr().err


def test_all_losses_come_in_one_go_with_and_without_the_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "p.yaml"
    lost = "volumes: {/d: {claim: c, read_only: true}}, termination_grace: 90s"
    source.write_text(HEAD + step(lost))
    words = ["compile", str(source), "--target", "kubeflow"]
    part, whole = "would be mounted writable", "does not support termination_grace"
    assert main(words) == 2
    console = capsys.readouterr().err
    assert part in console and whole in console
    assert main([*words, "--allow-lossy"]) == 0
    done = capsys.readouterr()
    assert part in done.err and whole in done.err
    assert f"LOST: kubeflow {whole}" in done.out and part in done.out
    # A part that may not be left out stops it, and what may is said in the same go.
    source.write_text(HEAD + step(f"{lost}, for_each: {{seed: [9007199254740993]}}"))
    assert main([*words, "--allow-lossy"]) == 2
    console = capsys.readouterr().err
    assert "exact up to 9007199254740992 only" in console and part in console and whole in console
