"""A pod's main container as KFP's container spec."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from gpuflow.content import content_of, data_of
from gpuflow.quantity import NANO, Quantity
from gpuflow.targets.kubeflow.command import PLACEHOLDER, command_words
from gpuflow.targets.kubeflow.handover import Handover
from gpuflow.targets.kubeflow.messages import ir
from gpuflow.targets.kubeflow.text import BRACE, for_driver

_Container: Any = ir.PipelineDeploymentConfig.PipelineContainerSpec
_Resources: Any = _Container.ResourceSpec
_GIGA = 10**9
NOTHING = Handover()


def container_spec(main: dict[str, Any], *, outputs: Handover = NOTHING) -> Any:
    """The typed container spec. `outputs`: what KFP's launcher looks for."""
    command = command_words(main, outputs)
    spec = _Container()
    spec.CopyFrom(_around(main, any(_BRACE in word for word in command)))
    spec.command.extend(map(for_driver, command))
    return spec


_BRACE = f"$({BRACE})"


def _around(main: dict[str, Any], braces: bool) -> Any:
    """All but the command, in which there may be `braces`. Many steps have the same: it is made once per content."""
    env = [entry for entry in main.get("env", ()) if "value" in entry and PLACEHOLDER not in entry["value"]]
    said = (main["image"], env, main.get("resources", {}), braces)
    content = content_of(said)
    return _made(*said) if content is None else _made_once(content)


@lru_cache(maxsize=1024)
def _made_once(content: bytes) -> Any:
    return _made(*data_of(content))


def _made(image: str, env: list[dict[str, str]], resources: dict[str, dict[str, str]], braces: bool) -> Any:
    if braces or any(_BRACE in entry["value"] for entry in env):
        env = [{"name": BRACE, "value": "{"}, *env]
    spec = _Container(image=for_driver(image))
    spec.env.extend(_Container.EnvVar(name=entry["name"], value=for_driver(entry["value"])) for entry in env)
    if resources:
        spec.resources.CopyFrom(_resources(resources))
    return spec


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
