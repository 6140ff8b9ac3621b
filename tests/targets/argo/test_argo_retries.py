"""Whether Argo tries a step again: the expressions that gpuflow writes, evaluated by Argo's own code.

What Argo records of an attempt is as in shared observations of a running controller (4.0.2); the kubelet's sentences
are those of pkg/kubelet/eviction/helpers.go and pkg/kubelet/nodeshutdown (1.36).

Tests gpuflow/spec/policies.py and gpuflow/targets/argo/retries.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from gpuflow.runtime.base import outcomes
from gpuflow.runtime.state.attempts import COSTS
from gpuflow.runtime.supervise import evidence
from gpuflow.spec.policies import Retry
from gpuflow.targets.argo.retries import retry_strategy
from tests.differential.oracle import Oracle
from tests.targets.argo.manifests import compiled, template

pytestmark = pytest.mark.go


class Last(NamedTuple):
    """What Argo records of an attempt."""

    phase: str
    exit_code: int | None
    message: str


def sentence(message: str, *codes: int) -> list[Last]:
    """The pod's own message, whatever the program gave on SIGTERM."""
    return [Last("Failed", code, message) for code in codes]


ANY_ANSWER = (143, 137, 1, 3)
OUT_OF_MEMORY = [
    Last("Failed", 137, "main: OOMKilled (exit code 137)"),
    Last("Failed", 137, "main: OOMKilled (exit code 137): last words"),
    Last("Failed", 143, "main: OOMKilled (exit code 143)"),
    Last("Failed", 3, "main: OOMKilled (exit code 3)"),
]
OVER_A_LIMIT = [
    *sentence("Pod was active on the node longer than the specified deadline", *ANY_ANSWER),
    *sentence('Usage of EmptyDir volume "s" exceeds the limit "1Mi". ', *ANY_ANSWER),
    *sentence("Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ", *ANY_ANSWER),
    *sentence('Container main exceeded its local ephemeral storage limit "1Gi". ', *ANY_ANSWER),
]
FAILED = [
    Last("Failed", 1, "main: Error (exit code 1)"),
    Last("Failed", 137, "main: Error (exit code 137)"),
    Last("Error", 0, "wait: Error (exit code 64): open /var/run/argo/outputs/parameters/n: no such file or directory"),
    Last("Failed", None, "fetch: OOMKilled (exit code 137)"),
]
INTERRUPTED = [
    Last("Error", None, "pod deleted"),
    Last("Failed", 143, "main: Error (exit code 143)"),
    Last("Failed", 75, "main: Error (exit code 75)"),
    Last("Error", None, "init: Error (exit code 2)"),
    Last("Failed", None, "pod failed: neither main nor wait container completed successfully"),
    *sentence("The node was low on resource: memory. Threshold quantity: 100Mi, available: 1Mi. ", *ANY_ANSWER),
    *sentence("The node had condition: [DiskPressure]. ", *ANY_ANSWER),
    *sentence("Pod was terminated in response to imminent node shutdown.", *ANY_ANSWER),
    *sentence("Preempted in order to admit critical pod", *ANY_ANSWER),
    Last("Failed", None, "Pod was rejected as the node is shutting down."),
]
FORGED = [
    "OOMKilled",
    "main: OOMKilled (exit code 137)",
    "\nmain: OOMKilled (exit code 137)",
    "Pod was active on the node longer than the specified deadline",
    'Usage of EmptyDir volume "s" exceeds the limit "1Mi". ',
    "The node was low on resource: memory",
    "Pod was terminated in response to imminent node shutdown.",
    "pod deleted",
]
"""What a program may leave as its termination message."""


@pytest.fixture(scope="module")
def argo() -> Iterator[Oracle]:
    with Oracle("argo", "retry") as oracle:
        yield oracle


def again(oracle: Oracle, retry: Retry, last: Last, retries: int = 0, *, counted: bool = False) -> bool:
    """Whether Argo starts a step again that has been started again so many times before."""
    strategy = retry_strategy(retry, counted=counted)
    assert strategy is not None and strategy["retryPolicy"] == "Always"
    if retries >= int(strategy["limit"]):
        return False
    if "expression" not in strategy:
        return True
    code = None if last.exit_code is None else str(last.exit_code)
    case = {"attempts": retries + 1, "phase": last.phase, "message": last.message, "exitCode": code}
    (answer,) = oracle.ask([{"expression": strategy["expression"], **case}])
    assert "failure" not in answer, answer
    return bool(answer["again"])


BOTH = Retry(failures=1, interruptions=3)
LISTS = (Retry(failures=1, final_exit_codes=(3, 137, 143)), Retry(failures=1, retryable_exit_codes=(4,)))


@pytest.mark.parametrize("last", [*OUT_OF_MEMORY, *OVER_A_LIMIT, *FAILED], ids=str)
def test_a_failure_is_retried_within_the_budget_of_failures(argo: Oracle, last: Last) -> None:
    assert again(argo, BOTH, last)
    assert not again(argo, BOTH, last, retries=1)
    assert again(argo, Retry(failures=2), last, retries=1)
    assert not again(argo, Retry(interruptions=3), last)


@pytest.mark.parametrize("last", INTERRUPTED, ids=str)
def test_an_interruption_is_retried_within_both_budgets_together(argo: Oracle, last: Last) -> None:
    assert again(argo, BOTH, last, retries=3)
    assert not again(argo, BOTH, last, retries=4)
    assert again(argo, Retry(interruptions=3), last)
    assert not again(argo, Retry(failures=2), last)


@pytest.mark.parametrize("last", [*OUT_OF_MEMORY, *OVER_A_LIMIT], ids=str)
@pytest.mark.parametrize("retry", LISTS, ids=["final", "retryable"])
def test_a_steps_own_exit_codes_say_nothing_about_what_kubernetes_ended(argo: Oracle, retry: Retry, last: Last) -> None:
    assert again(argo, retry, last)
    assert again(argo, Retry(any=1, **_lists(retry)), last)


@pytest.mark.parametrize("retry", LISTS, ids=["final", "retryable"])
def test_a_steps_own_exit_codes_end_it_when_it_chose_them(argo: Oracle, retry: Retry) -> None:
    last = Last("Failed", 3, "main: Error (exit code 3)")
    assert not again(argo, retry, last)
    assert not again(argo, Retry(any=1, **_lists(retry)), last)
    assert again(argo, Retry(any=1, **_lists(retry)), Last("Error", None, "pod deleted"))


def _lists(retry: Retry) -> dict[str, tuple[int, ...] | None]:
    return {"final_exit_codes": retry.final_exit_codes, "retryable_exit_codes": retry.retryable_exit_codes}


@pytest.mark.parametrize("words", FORGED)
@pytest.mark.parametrize("code", [1, 3, 137, 143])
def test_what_a_program_says_changes_nothing(argo: Oracle, words: str, code: int) -> None:
    silent = Last("Failed", code, f"main: Error (exit code {code})")
    saying = silent._replace(message=f"{silent.message}: {words}")
    policies = [BOTH, Retry(failures=2), Retry(interruptions=3), *LISTS]
    policies += [Retry(any=2, **_lists(retry)) for retry in LISTS]
    for retry in policies:
        for retries in (0, 1):
            assert again(argo, retry, saying, retries) == again(argo, retry, silent, retries)


def test_a_plain_number_of_retries_has_no_expression_and_covers_everything() -> None:
    strategy = template(compiled("steps: {a: {command: [x], retry: 2}}"), "a")["retryStrategy"]
    assert strategy == {"limit": "2", "retryPolicy": "Always"}


@pytest.mark.parametrize("care", ["outputs: {n: int}", "checkpoint: {path: /c, store: s3://b/c}"])
def test_a_plain_number_of_retries_ends_when_the_supervisor_says_that_none_can_help(care: str) -> None:
    """A command that is not there, an image without Python: it ends with 79 each time, perhaps on GPUs."""
    plain = template(compiled(f"steps: {{a: {{command: [x], retry: 2, {care}}}}}"), "a")["retryStrategy"]
    assert plain == {"limit": "2", "retryPolicy": "Always", "expression": "asInt(lastRetry.exitCode) != 79"}
    listed = compiled(f"steps: {{a: {{command: [x], retry: {{any: 2, final_exit_codes: [3]}}, {care}}}}}")
    assert template(listed, "a")["retryStrategy"]["expression"].startswith("!(asInt(lastRetry.exitCode) in [3, 79])")


@pytest.mark.parametrize("last", [*OUT_OF_MEMORY, *OVER_A_LIMIT, *FAILED, *INTERRUPTED], ids=str)
def test_where_the_supervisor_counts_only_its_own_word_ends_the_step(argo: Oracle, last: Last) -> None:
    assert again(argo, BOTH, last, counted=True)
    assert not again(argo, BOTH, last._replace(exit_code=79), counted=True)


def test_where_the_supervisor_counts_the_limit_leaves_room_for_a_last_look(argo: Oracle) -> None:
    """The pod of the last attempt may go after its program has ended well: the next one finds the success marker."""
    gone = Last("Error", None, "pod deleted")
    both = BOTH.failures + BOTH.interruptions
    assert again(argo, BOTH, gone, retries=both, counted=True)
    assert not again(argo, BOTH, gone, retries=both + 1, counted=True)
    assert not again(argo, BOTH, gone, retries=both)
    # On another node each time: one more pod would need one more node, and wait for it.
    assert not again(argo, BOTH.model_copy(update={"other_node": True}), gone, retries=both, counted=True)


@pytest.mark.parametrize("exit_codes", ["final_exit_codes: [124]", "retryable_exit_codes: [4]"])
@pytest.mark.parametrize("supervised", [True, False])
def test_a_timeout_that_the_supervisor_keeps_is_a_failure_whatever_the_steps_lists_say(
    argo: Oracle, exit_codes: str, supervised: bool
) -> None:
    more = ", outputs: {n: int}" if supervised else ""
    text = f"steps: {{a: {{command: [x], timeout: 1h, retry: {{failures: 1, {exit_codes}}}{more}}}}}"
    expression = template(compiled(text), "a")["retryStrategy"]["expression"]
    case = {"attempts": 1, "phase": "Failed", "message": "main: Error (exit code 124)", "exitCode": "124"}
    assert argo.ask([{"expression": expression, **case}]) == [{"again": supervised}]


@pytest.mark.parametrize("last", [*OUT_OF_MEMORY, *OVER_A_LIMIT, *FAILED, *INTERRUPTED], ids=str)
def test_the_one_table_counts_each_end_as_the_flat_expression_does(last: Last) -> None:
    verdict = evidence.judge(evidence.from_argo(last.phase, last.message, last.exit_code))
    assert verdict is not None
    counted = "interruptions" if verdict.outcome == outcomes.NEVER_STARTED else COSTS[verdict.outcome]
    assert counted == ("interruptions" if last in INTERRUPTED else "failures")
