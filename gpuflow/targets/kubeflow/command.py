"""The command of a KFP container.

KFP has no working directory and no references in environment variables: both are set by small programs that every image
with a shell has (`sh`, `env`) and that then become the command.
"""

from __future__ import annotations

from typing import Any

from gpuflow.kubernetes.expansion import escaped
from gpuflow.targets.kubeflow.handover import Handover
from gpuflow.targets.kubeflow.text import without_double_braces

PLACEHOLDER = "{{$."
"""How a value begins that KFP's launcher fills in."""
ENTER = 'cd "$0" && exec "$@"'
"""Starts a command in a directory."""
RUN_AS_IT_IS = 'exec "$0" "$@"'
"""Starts a command whose name `env` would take for an assignment."""


def command_words(main: dict[str, Any], outputs: Handover) -> list[str]:
    """The container's command. `outputs`: what KFP's launcher looks for."""
    command = _delivering(list(main["command"]), outputs)
    env = main.get("env", [])
    late = [f"{entry['name']}={entry['value']}" for entry in env if PLACEHOLDER in entry.get("value", "")]
    if late:
        if "=" in command[0]:
            command = ["sh", "-c", RUN_AS_IT_IS, *command]
        command = ["env", *late, *command]
    if "workingDir" in main:
        # Kubernetes takes a container's own directory as it is; a word of a command is read on the way.
        command = ["sh", "-c", ENTER, without_double_braces(escaped(main["workingDir"])), *command]
    return command


def _delivering(command: list[str], outputs: Handover) -> list[str]:
    """The supervisor's command, told where KFP's launcher looks for each output; without a supervisor, as it is."""
    at = next((index for index, word in enumerate(command) if word.startswith("--engine=")), 0)
    return [*command[:at], *outputs.words(), *command[at:]] if at else command
