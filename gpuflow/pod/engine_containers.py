"""What an engine adds to a step's pod, and the pods it runs beside it, as the site describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.engines import EngineFacts, facts_of
from gpuflow.site.model import Engine, Injected, Site

DRIVER = "driver"
RESTRICTED: dict[str, Any] = {
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
}


def engine_of(site: Site, name: str) -> Engine:
    """What the site says about an engine; `none` adds nothing, and an unknown name is an error."""
    return site.engine(facts_of(name).name)


def with_engine(pod: Mapping[str, Any], engine: Engine, *, has_outputs: bool) -> Mapping[str, Any]:
    """The pod as the engine will create it. `has_outputs`: whether the step hands values to others."""
    beside = {**engine.containers, **(engine.output_containers if has_outputs else {})}
    if not engine.init and not beside:
        return pod
    spec = pod["spec"]
    return {
        **pod,
        "spec": {
            **spec,
            "initContainers": [*_containers(engine.init), *spec.get("initContainers", [])],
            "containers": [*spec["containers"], *_containers(beside)],
        },
    }


def driver_pod(engine: Engine, facts: EngineFacts) -> dict[str, Any] | None:
    """The pod the engine runs before a step's own; Kubeflow's importers are made like it.

    Each is a container template of Argo's, which adds the same containers as to a step's pod (argocompiler:
    addContainerDriverTemplate, addDAGDriverTemplate, addImporterTemplate). Only the launcher is missing.
    """
    if engine.driver is None:
        return None
    before = {name: part for name, part in engine.init.items() if name != facts.launcher}
    spec: dict[str, Any] = {"containers": _containers({DRIVER: engine.driver, **engine.containers})}
    return {"metadata": {}, "spec": {"initContainers": _containers(before), **spec} if before else spec}


def agent_spec() -> dict[str, Any]:
    """The containers of the one pod of Argo's for a run, which sends requests and talks to plugins, as createAgentPod
    makes it (agent.go, 4.0.2) where ARGO_AGENT_CPU_LIMIT and _MEMORY_LIMIT are not set."""
    asked = {"requests": {"cpu": "10m", "memory": "64M"}, "limits": {"cpu": "100m", "memory": "256M"}}
    groups = (("initContainers", "init"), ("containers", "main"))
    return {group: [{"name": name, "image": "engine", "resources": asked, **RESTRICTED}] for group, name in groups}


def settings_of(engine: Engine, name: str) -> dict[str, str]:
    """Where the site says what each of the engine's containers uses."""
    groups = {"init": engine.init, "containers": engine.containers, "output_containers": engine.output_containers}
    paths = {each: f"engines.{name}.{group}.{each}" for group, names in groups.items() for each in names}
    return paths if engine.driver is None else {DRIVER: f"engines.{name}.{DRIVER}", **paths}


def _containers(parts: dict[str, Injected]) -> list[dict[str, Any]]:
    return [
        {"name": name, "image": "engine", "resources": resources_of(part), **(RESTRICTED if part.restricted else {})}
        for name, part in parts.items()
    ]


def resources_of(part: Injected | None) -> dict[str, Any]:
    """What a container of the engine's asks for; nothing where the site does not name it."""
    if part is None:
        return {}
    sides = {"requests": part.requests, "limits": part.limits}
    return {side: {key: str(value) for key, value in amounts.items()} for side, amounts in sides.items() if amounts}
