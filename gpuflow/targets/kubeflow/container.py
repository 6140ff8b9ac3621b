"""A pod's main container as KFP's container spec.

KFP has no working directory and no references in environment variables: both are set by small programs that every image
with a shell has (`sh`, `env`) and that then become the command.
"""

from __future__ import annotations

from typing import Any

from gpuflow.quantity import NANO, Quantity
from gpuflow.targets.kubeflow.messages import ir
from gpuflow.targets.kubeflow.names import StatusRef, input_name, placeholder
from gpuflow.targets.kubeflow.text import BRACE, refuse_placeholders

_Container: Any = ir.PipelineDeploymentConfig.PipelineContainerSpec
_Resources: Any = _Container.ResourceSpec
_PLACEHOLDER = "{{$."
_GIGA = 10**9

ENTER = 'cd "$0" && exec "$@"'
"""Starts a command in a directory."""
RUN_AS_IT_IS = 'exec "$0" "$@"'
"""Starts a command whose name `env` would take for an assignment."""
WHEN_STATUS = 'case "$0" in %s) exec "$@";; esac'
"""Starts a command when KFP's final status says so; KFP has no exit step for one outcome only."""
STATES = {"failure": ("FAILED",), "success": ("SUCCEEDED", "COMPLETE")}
"""The states of KFP's tasks for each outcome; a backend that keeps them in ML Metadata has its word for success."""


def container_spec(main: dict[str, Any], *, on: str | None = None, outputs: tuple[str, ...] = ()) -> Any:
    """The typed container spec. `on`: an exit step for one outcome; `outputs`: values KFP's launcher looks for."""
    env = main.get("env", [])
    plain = [entry for entry in env if "value" in entry and _PLACEHOLDER not in entry["value"]]
    command = _command(main, env, on, outputs)
    refuse_placeholders(command)
    if any(f"$({BRACE})" in word for word in (*command, *(entry["value"] for entry in plain))):
        plain = [{"name": BRACE, "value": "{"}, *plain]
    spec = _Container(image=main["image"], command=command)
    spec.env.extend(_Container.EnvVar(name=entry["name"], value=entry["value"]) for entry in plain)
    resources = main.get("resources", {})
    if resources:
        spec.resources.CopyFrom(_resources(resources))
    return spec


def _command(main: dict[str, Any], env: list[dict[str, Any]], on: str | None, outputs: tuple[str, ...]) -> list[str]:
    command = _delivering(list(main["command"]), outputs)
    late = [f"{entry['name']}={entry['value']}" for entry in env if _PLACEHOLDER in entry.get("value", "")]
    if late:
        if "=" in command[0]:
            command = ["sh", "-c", RUN_AS_IT_IS, *command]
        command = ["env", *late, *command]
    if "workingDir" in main:
        command = ["sh", "-c", ENTER, main["workingDir"], *command]
    if on is not None and on in STATES:
        patterns = "|".join(f"""*'"state":{space}"{state}"'*""" for state in STATES[on] for space in ("", " "))
        command = ["sh", "-c", WHEN_STATUS % patterns, placeholder(input_name(StatusRef())), *command]
    return command


def _delivering(command: list[str], outputs: tuple[str, ...]) -> list[str]:
    """The supervisor's command, told where KFP's launcher looks for each output."""
    if not outputs:
        return command
    words = [f"--deliver={name}={{{{$.outputs.parameters['{name}'].output_file}}}}" for name in outputs]
    at = next(index for index, word in enumerate(command) if word.startswith("--engine="))
    return [*command[:at], *words, *command[at:]]


def _resources(resources: dict[str, dict[str, str]]) -> Any:
    """Amounts twice: as text, which the driver reads, and as the older floats, which other readers of the IR know."""
    spec = _Resources()
    for side in ("request", "limit"):
        amounts = resources.get(f"{side}s", {})
        if "cpu" in amounts:
            setattr(spec, f"cpu_{side}", Quantity(amounts["cpu"]).nano / NANO)
            setattr(spec, f"resource_cpu_{side}", amounts["cpu"])
        if "memory" in amounts:
            setattr(spec, f"memory_{side}", Quantity(amounts["memory"]).nano / NANO / _GIGA)
            setattr(spec, f"resource_memory_{side}", amounts["memory"])
    devices = [(name, count) for name, count in resources.get("limits", {}).items() if "/" in name]
    for name, count in devices[:1]:  # the GPU comes first, and KFP knows one kind
        spec.accelerator.CopyFrom(
            _Resources.AcceleratorConfig(type=name, count=int(count), resource_type=name, resource_count=count)
        )
    return spec
