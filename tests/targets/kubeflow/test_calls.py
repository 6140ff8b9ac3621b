"""The client calls in the header are calls that kfp's client accepts."""

from __future__ import annotations

import ast
import inspect

import pytest

pytest.importorskip("kfp", reason="kfp is not installed here; see constraints/kubeflow.txt")

import kfp

from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.kubeflow.calls import run_calls
from tests.targets.kubeflow.compiling import HEAD

BODY = (
    'name: nightly\n{top}params: {{day: {{type: string}}, size: 3}}\nsteps: {{work: {{image: "i:1", command: [w]}}}}\n'
)


def calls(top: str = "", package: str | None = "nightly.yaml") -> list[str]:
    return run_calls(loads(HEAD + BODY.format(top=top)), Site.load("nvidia"), package, "team-a")


def keywords(line: str) -> dict[str, object]:
    call = ast.parse(line).body[0].value  # type: ignore[attr-defined]
    return {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}


@pytest.mark.parametrize("top", ["", 'schedule: "30 2 * * 1-5"\n'])
@pytest.mark.parametrize("package", ["nightly.yaml", None])
def test_every_call_fits_the_clients_own_signature(top: str, package: str | None) -> None:
    for line in calls(top, package):
        call = ast.parse(line).body[0].value  # type: ignore[attr-defined]
        method = getattr(kfp.Client, call.func.attr)
        inspect.signature(method).bind(None, *call.args, **{word.arg: word.value for word in call.keywords})


def test_cron_gets_the_seconds_that_kfp_reads_first() -> None:
    assert keywords(calls('schedule: "30 2 * * 1-5"\n')[1])["cron_expression"] == "0 30 2 * * 1-5"


def test_what_a_schedule_says_is_in_the_call() -> None:
    line = calls("schedule: {cron: '0 3 * * *', catch_up: true, suspended: true, concurrency: allow}\n")[1]
    given = keywords(line)
    assert (given["no_catchup"], given["enabled"], given["max_concurrency"]) == (False, False, 10)
    assert keywords(calls("schedule: '0 3 * * *'\n")[1])["max_concurrency"] == 1


def test_required_parameters_are_left_to_fill_in() -> None:
    assert 'params={"day": ...}' in calls()[1]


def test_a_service_account_that_all_steps_share_is_given_to_the_run() -> None:
    body = BODY.format(top="defaults: {service_account: trainer}\n")
    (_, run) = run_calls(loads(HEAD + body), Site.load("nvidia"), "p.yaml", None)
    assert 'service_account="trainer"' in run
