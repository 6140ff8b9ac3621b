"""One question for each rule a user meets, answered in Kueue's own words.

Tests gpuflow/checker/kueue/reasons.py, gpuflow/checker/kueue/flavor_assigner.py, gpuflow/checker/kueue/flavors.py,
gpuflow/checker/kueue/requests.py, gpuflow/checker/kueue/preemption.py, gpuflow/checker/kueue/workloads.py,
gpuflow/checker/kueue/scheduler.py and gpuflow/checker/kueue/snapshot.py.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checker.kueue.questions import QUESTIONS
from tests.checker.kueue.scenes import asked
from tests.differential.oracle import Oracle, OracleUnavailable

ANSWERS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "answers.yaml").read_text())


def test_every_question_has_an_answer() -> None:
    assert list(QUESTIONS) == list(ANSWERS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_kueue_says(name: str) -> None:
    answer = asked(QUESTIONS[name])
    expected = ANSWERS[name]
    assert (answer.verdict, answer.message) == (expected["verdict"], expected["message"])
    assert dict(answer.pod_sets) == expected["pod_sets"]
    assert answer.final_verdict in (None, expected.get("finally", expected["verdict"]))
    assert answer.unmodeled == ()


@pytest.mark.go
def test_the_answers_on_file_are_those_of_kueues_own_code() -> None:
    try:
        oracle = Oracle("kueue", "kueue")
    except OracleUnavailable as missing:
        pytest.skip(str(missing))
    with oracle:
        answers = dict(zip(QUESTIONS, oracle.ask(list(QUESTIONS.values())), strict=True))
    assert {name: on_file(answer) for name, answer in answers.items()} == ANSWERS


def on_file(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer of Kueue's own code as `answers.yaml` keeps it."""
    verdict, final = answer["verdict"].lower(), answer.get("finalVerdict", answer["verdict"]).lower()
    pod_sets = {
        each["name"]: {resource: chosen["flavor"] for resource, chosen in each["flavors"].items()}
        for each in answer.get("podSets", [])
    }
    kept = {"verdict": verdict, "message": answer["message"], "pod_sets": pod_sets}
    return kept if final == verdict else {**kept, "finally": final}
