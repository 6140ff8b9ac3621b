"""What the next attempt is told about the last one, asked of Argo's own substitution."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpuflow.runtime.base.outcomes import DISK_LIMIT, INTERRUPTED, OUT_OF_MEMORY, RETRYABLE, TIMED_OUT
from gpuflow.runtime.supervise import diagnosis
from gpuflow.runtime.supervise.evidence import judge
from gpuflow.targets.argo.retries import ATTEMPT, LAST
from tests.differential.oracle import Oracle
from tests.targets.argo.manifests import artifact, compiled, substituted, template

SUPERVISED = "checkpoint: {path: /c, store: s3://b/c}, retry: {failures: 1, interruptions: 20}"
OOM = {"exitCode": "137", "status": "Failed", "message": "main: OOMKilled (exit code 137)"}
HOSTILE = (
    "says \"no\", 'really' and \\ back",
    "two\nlines\tand\r\x07 bells",
    "{{workflow.name}} {{=workflow.name}} {{{{ }} {{inputs.parameters.x}} {{ {",
    "{{=",
    "100 % $(HOME) $$(HOME) ${HOME} `id` $",
    "Grüße, 世界, \U0001f600,   and <tags> & more",
    "}}",
    "",
)


@pytest.fixture(scope="module")
def argo() -> Iterator[Oracle]:
    with Oracle("argo", "substitution") as oracle:
        yield oracle


def variables(oracle: Oracle, text: str, retries: int, last: dict[str, str]) -> dict[str, Any]:
    manifest = compiled(f"steps: {{a: {{command: [x], {text}}}}}", kind="Workflow")
    (pod,) = substituted(oracle, manifest, ["a"], attempt={"retries": str(retries), **last})
    return {entry["name"]: entry.get("value", "") for entry in pod["container"].get("env", [])}


@pytest.mark.go
def test_the_next_attempt_is_told_how_the_last_one_ended(argo: Oracle) -> None:
    env = variables(argo, SUPERVISED, 2, OOM)
    assert env[ATTEMPT] == "2"
    assert json.loads(env[LAST]) == {
        "attempt": 1,
        "by": "argo",
        "phase": "Failed",
        "exit_code": "137",
        "message": "main: OOMKilled (exit code 137)",
    }


@pytest.mark.go
@pytest.mark.parametrize("words", HOSTILE)
def test_whatever_the_program_said_arrives_as_it_is_and_changes_nothing_else(argo: Oracle, words: str) -> None:
    message = f"main: Error (exit code 1): {words}"
    env = variables(argo, SUPERVISED, 1, {"exitCode": "1", "status": "Failed", "message": message})
    assert "$" not in env[LAST]  # the kubelet expands $(NAME)
    assert "{{" not in env[LAST]
    assert json.loads(env[LAST]) == {
        "attempt": 0,
        "by": "argo",
        "phase": "Failed",
        "exit_code": "1",
        "message": message,
    }


@pytest.mark.go
@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        (OOM, OUT_OF_MEMORY),
        ({**OOM, "message": "Pod was active on the node longer than the specified deadline"}, TIMED_OUT),
        ({**OOM, "message": 'Usage of EmptyDir volume "s" exceeds the limit "1Mi". '}, DISK_LIMIT),
        ({"exitCode": "0", "status": "Error", "message": "pod deleted"}, INTERRUPTED),
        ({"exitCode": "1", "status": "Failed", "message": "main: Error (exit code 1): OOMKilled"}, RETRYABLE),
    ],
)
def test_the_supervisor_judges_what_argo_hands_over(argo: Oracle, last: dict[str, str], outcome: str) -> None:
    read = diagnosis.read_last(variables(argo, SUPERVISED, 1, last)[LAST], pytest.fail)
    assert read is not None
    assert (read.attempt, read.by) == (0, "argo")
    verdict = judge(read.evidence)
    assert verdict is not None and verdict.outcome == outcome


@pytest.mark.go
def test_nothing_is_handed_to_the_first_attempt(argo: Oracle) -> None:
    env = variables(argo, SUPERVISED, 0, {"exitCode": "0", "status": "", "message": ""})
    assert env[LAST] == ""
    assert env[ATTEMPT] == "0"


@pytest.mark.go
def test_an_attempt_that_waits_for_quota_is_not_told_about_itself(argo: Oracle) -> None:
    waiting = {"exitCode": "0", "status": "Pending", "message": 'pods "p" is forbidden: exceeded quota: q'}
    assert variables(argo, SUPERVISED, 1, waiting)[LAST] == ""


@pytest.mark.parametrize(
    "text",
    ["retry: 2", "retry: {failures: 1, interruptions: 2}", "checkpoint: {path: /c, store: s3://b/c}", "cpu: 1"],
)
def test_steps_without_state_or_without_retries_get_no_such_variable(text: str) -> None:
    container = template(compiled(f"steps: {{a: {{command: [x], {text}}}}}"), "a")["container"]
    assert not {LAST, ATTEMPT} & {entry["name"] for entry in container.get("env", [])}


def test_a_cached_step_has_the_same_key_with_and_without_retries() -> None:
    step = "steps: {a: {command: [x], cache: true, outputs: {n: int}, checkpoint: {path: /c, store: s3://b/c}"
    keys = {
        template(compiled(f"{step}{retry}}}}}"), "a")["memoize"]["key"]
        for retry in ("", ", retry: 2", ", retry: {failures: 2}")
    }
    assert len(keys) == 1


@pytest.mark.go
def test_argos_own_validation_accepts_the_variables() -> None:
    texts = [
        artifact(f"steps: {{a: {{command: [x], {SUPERVISED}}}}}", kind=kind)
        for kind in ("Workflow", "WorkflowTemplate")
    ]
    with Oracle("argo", "lint") as oracle:
        assert [answer["errors"] for answer in oracle.ask([{"text": text} for text in texts])] == [[], []]
