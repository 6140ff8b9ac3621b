"""A pod's main container as KFP's container spec."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from gpuflow.content import content_of, data_of
from gpuflow.quantity import NANO, Quantity
from gpuflow.targets.kubeflow.command import PLACEHOLDER, command_words
from gpuflow.targets.kubeflow.handover import NOTHING, Handover
from gpuflow.targets.kubeflow.messages import ir
from gpuflow.targets.kubeflow.plain import plain
from gpuflow.targets.kubeflow.text import BRACE, for_driver

_Container: Any = ir.PipelineDeploymentConfig.PipelineContainerSpec
_Resources: Any = _Container.ResourceSpec
_GIGA = 10**9


def container_spec(main: dict[str, Any], *, outputs: Handover = NOTHING) -> Any:
    """The typed container spec. `outputs`: what KFP's launcher looks for."""
    command = command_words(main, outputs)
    spec = _made(*_around(main, command))
    spec.command.extend(map(for_driver, command))
    return spec


def plain_container(main: dict[str, Any], *, outputs: Handover = NOTHING) -> dict[str, Any]:
    """The same as plain data. Many steps have all but the command alike: it is made once for each content."""
    command = command_words(main, outputs)
    said = _around(main, command)
    content = content_of(said)
    around = plain(_made(*said)) if content is None else _plain_once(content)
    return dict(sorted({"command": list(map(for_driver, command)), **around}.items()))


_BRACE = f"$({BRACE})"


def _around(main: dict[str, Any], command: list[str]) -> tuple[str, list[Any], dict[str, Any], bool]:
    """What a container has beside its command: image, variables, resources; and whether the command has braces."""
    env = [entry for entry in main.get("env", ()) if "value" in entry and PLACEHOLDER not in entry["value"]]
    return main["image"], env, main.get("resources", {}), any(_BRACE in word for word in command)


@lru_cache(maxsize=1024)
def _plain_once(content: bytes) -> dict[str, Any]:
    return plain(_made(*data_of(content)))


def _made(image: str, env: list[dict[str, str]], resources: dict[str, dict[str, str]], braces: bool) -> Any:
    if braces or any(_BRACE in entry["value"] for entry in env):
        env = [{"name": BRACE, "value": "{"}, *env]
    spec = _Container(image=for_driver(image))
    spec.env.extend(_Container.EnvVar(name=entry["name"], value=for_driver(entry["value"])) for entry in env)
    if resources:
        spec.resources.CopyFrom(_resources(resources))
    return spec


def _double(amount: str) -> float:
    """An amount as a float, and the largest one of an amount that is larger."""
    return min(Quantity(amount).nano, int(sys.float_info.max)) / NANO


def _resources(resources: dict[str, dict[str, str]]) -> Any:
    """Amounts twice: as text, which the driver reads, and as the older floats, which other readers of the IR know."""
    spec = _Resources()
    for side in ("request", "limit"):
        amounts = resources.get(f"{side}s", {})
        if "cpu" in amounts:
            setattr(spec, f"cpu_{side}", _double(amounts["cpu"]))
            setattr(spec, f"resource_cpu_{side}", amounts["cpu"])
        if "memory" in amounts:
            setattr(spec, f"memory_{side}", _double(amounts["memory"]) / _GIGA)
            setattr(spec, f"resource_memory_{side}", amounts["memory"])
    devices = [(name, count) for name, count in resources.get("limits", {}).items() if "/" in name]
    for name, count in devices[:1]:  # the GPU comes first, and KFP knows one kind
        spec.accelerator.CopyFrom(
            _Resources.AcceleratorConfig(type=name, count=int(count), resource_type=name, resource_count=count)
        )
    return spec
