"""What a pipeline says, run on this machine: one table of documents with how they end.

Tests gpuflow/local/walk.py, gpuflow/local/values.py, gpuflow/local/attempt.py and gpuflow/local/runner.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow.local import Console
from tests.local.programs import outputs, run_steps, states

pytestmark = pytest.mark.usefixtures("here")


CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "constructs.yaml").read_text(encoding="utf-8"))


def text_of(beginning: str) -> str:
    """The document of the case whose name begins so."""
    return next(str(case["text"]) for case in CASES if case["name"].startswith(beginning))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_pipeline_runs_as_it_says(case: dict[str, Any]) -> None:
    result = run_steps(case["text"], params=case.get("params"), **case.get("options", {}))
    assert result.state == case["state"], result.steps
    found = states(result)
    assert {name: found.get(name) for name in case.get("steps", ())} == case.get("steps", {})
    if "outputs" in case:
        assert outputs(result) == case["outputs"]
    assert result.exit_code == {"succeeded": 0, "failed": 1}[case["state"]]


def step_that_writes(words: str) -> str:
    """A step `a` that writes these words into its output v."""
    command = f"[sh, -c, 'printf %s \"$*\" > $GPUFLOW_OUTPUTS/v', x, {words}]"
    return f"steps:\n  a:\n    command: {command}\n    outputs: {{v: string}}\n"


def test_text_arrives_as_it_is_written() -> None:
    words = "'$(HOME) $$ {{x}} $HOME', {join: ['$', {param: p}, '$']}"
    result = run_steps(f"params: {{p: '$$(y)'}}\n{step_that_writes(words)}")
    assert outputs(result) == {"a": {"v": "$(HOME) $$ {{x}} $HOME $$$(y)$"}}


def test_facts_of_the_run() -> None:
    result = run_steps(step_that_writes("{run: id}, {run: attempt}, {run: date}, {run: logical_date, format: '%Y'}"))
    id, attempt, day, year = outputs(result)["a"]["v"].split()
    assert (id, attempt) == (result.run, "1")
    assert re.fullmatch(rf"{year}-\d\d-\d\d", day)


def test_inputs_are_at_their_paths() -> None:
    result = run_steps(text_of("files"))
    assert outputs(result)["b"] == {"v": "one two 5 6 "}
    assert not Path("/in").exists()


def test_attempts_are_counted_where_each_is() -> None:
    result = run_steps(text_of("exit codes"))
    assert sorted(path.name for path in Path.cwd().glob("*-[0-9]")) == ["counted-1", "final-1", "other-1"]
    assert {each.name: each.attempts for each in result.steps} == {"final": 1, "other": 1, "again": 2, "counted": 1}


def test_a_question_waits_for_its_answer_in_a_file() -> None:
    lines: list[str] = []

    def write(text: str) -> None:
        lines.append(text)
        if "echo yes > " in text:
            file = Path(text.split("echo yes > ")[1].split()[0])
            file.parent.mkdir()
            file.write_text("yes\n")

    result = run_steps("steps:\n  ask: {approval: deploy?}\n", approvals="wait", console=Console(write))
    assert result.state == "succeeded", lines
