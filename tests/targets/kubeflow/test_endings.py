"""Exit steps for one outcome: the shell that looks at KFP's final status, run as the launcher runs it."""

from __future__ import annotations

import json
import subprocess

import pytest

from gpuflow.targets.kubeflow.names import placeholder
from tests.targets.kubeflow.compiling import documents

SOURCE = """
name: ending
defaults: {image: "i:1"}
steps: {work: {command: [work]}}
exit:
  cheer: {command: [echo, cheer], on: success}
  warn: {command: [echo, warn], on: failure}
  tell: {command: [echo, tell]}
"""


def started(state: str, separators: tuple[str, str]) -> set[str]:
    """What the exit steps print after a run that ended in a state."""
    spec, *_ = documents(SOURCE)
    status = json.dumps({"error": {}, "pipelineTaskName": "exit-handler-1", "state": state}, separators=separators)
    printed = ""
    for name in ("cheer", "warn", "tell"):
        words = spec["deploymentSpec"]["executors"][f"exec-{name}"]["container"]["command"]
        filled = [word.replace(placeholder("pipeline_run-status"), status) for word in words]
        printed += subprocess.run(filled, check=True, capture_output=True, text=True, timeout=60).stdout
    return set(printed.split())


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")], ids=["dense", "spaced"])
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("COMPLETE", {"cheer", "tell"}),
        ("SUCCEEDED", {"cheer", "tell"}),
        ("FAILED", {"warn", "tell"}),
        ("RUNNING", {"tell"}),
    ],
)
def test_an_exit_step_starts_for_its_outcome_in_the_words_of_every_backend(
    state: str, expected: set[str], separators: tuple[str, str]
) -> None:
    assert started(state, separators) == expected
