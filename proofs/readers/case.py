"""One workflow to run: its documents, and what the reader says of it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import yaml

from gpuflow.core import yaml_tree
from gpuflow.demands import Demand
from gpuflow.demands.peaks import ALIASES, Bound
from gpuflow.quantity import Quantity
from gpuflow.readers import Options, PassiveObject, documents_of, foreign_in
from gpuflow.site import Site
from gpuflow.site.model import Injected

Manifest = dict[str, Any]
NAME = "wf"
EXECUTOR = {"cpu": Quantity("10m"), "memory": Quantity("16Mi")}
"""What the cluster's controller is told to give its own containers: see tests/cluster/argo.py."""
OWN_CONTAINERS = {"containers": "wait", "initContainers": "init"}
ENGINES = ("none", "argo")


def site() -> Site:
    """A site whose Argo is the cluster's."""
    found = Site.load("nvidia")
    argo = found.engines["argo"].model_copy(
        update={"init": {"init": Injected(requests=EXECUTOR)}, "containers": {"wait": Injected(requests=EXECUTOR)}}
    )
    return found.model_copy(update={"engines": {**found.engines, "argo": argo}})


SITE = site()


@dataclass
class Case:
    """A workflow called `wf`, and what stands beside it."""

    name: str
    workflow: Manifest
    others: list[Manifest] = field(default_factory=list)

    @cached_property
    def demands(self) -> dict[str, Demand | PassiveObject]:
        """What the reader says, by engine."""
        text = yaml.dump_all([self.workflow, *self.others], Dumper=yaml.CSafeDumper, sort_keys=False)
        active, _ = foreign_in(documents_of(yaml_tree.parse_all(text, f"{self.name}.yaml"), f"{self.name}.yaml"))
        return {engine: active[0].demand(Options(SITE, engine)) for engine in ENGINES}

    def bounds(self, engine: str) -> dict[str, Bound]:
        """The peaks of what pods ask for, by quota key."""
        demand = self.demands[engine]
        assert isinstance(demand, Demand)
        return {key: bound for key, bound in demand.peak.items() if is_of_pods(key)}

    def steps(self, engine: str) -> list[str]:
        """What the reader calls its steps."""
        demand = self.demands[engine]
        assert isinstance(demand, Demand)
        return [step.name for step in demand.steps]

    def refusal(self) -> str | None:
        """Why the reader says that it never runs."""
        demand = self.demands["none"]
        if isinstance(demand, PassiveObject):
            return demand.because
        wrong = [each.message for each in demand.refusals if each.severity == "error"]
        return wrong[0] if wrong else None


def is_of_pods(key: str) -> bool:
    """Whether only pods count for a quota key. Claims live longer than pods, and are no part of this proof."""
    return key not in ALIASES and "storage" not in key and key != "persistentvolumeclaims"


def bare(pod: Manifest) -> Manifest:
    """A pod without the containers that Argo adds."""
    spec = dict(pod["spec"])
    for group, name in OWN_CONTAINERS.items():
        if group in spec:
            spec[group] = [each for each in spec[group] if each["name"] != name]
    return {"metadata": pod["metadata"], "spec": spec}


def prepared(manifest: Manifest) -> Manifest:
    """A workflow that can run here: it has a name, and every container a command and something that it asks for."""
    found = copy.deepcopy(manifest)
    metadata = found.setdefault("metadata", {})
    metadata.pop("generateName", None)
    metadata.pop("namespace", None)
    metadata["name"] = NAME
    for number, template in enumerate(_templates(found["spec"])):
        for container in _containers(template):
            # Without one the controller asks the image's registry.
            container.setdefault("command", ["run"])
            container.setdefault("resources", {}) or container.update(resources=_asked(number))
    return found


def _asked(number: int) -> Manifest:
    amounts = {"cpu": f"{100 * (1 + number % 3)}m", "memory": f"{64 * (1 + number % 4)}Mi"}
    if number % 2 == 0:
        amounts["nvidia.com/gpu"] = str(1 + number % 3)
    return {"requests": dict(amounts), "limits": amounts}


def _templates(spec: Manifest) -> Iterable[Manifest]:
    for template in spec.get("templates") or ():
        yield template
        calls = [step for group in template.get("steps") or () for step in group]
        calls += (template.get("dag") or {}).get("tasks") or []
        yield from (call["inline"] for call in calls if "inline" in call)
    if "templateDefaults" in spec:
        yield spec["templateDefaults"]


def _containers(template: Manifest) -> Iterable[Manifest]:
    for kind in ("container", "script"):
        if template.get(kind):
            yield template[kind]
    yield from (template.get("containerSet") or {}).get("containers") or ()
    yield from template.get("sidecars") or ()
    yield from template.get("initContainers") or ()


def leaf_of(node: str) -> tuple[str, int | None]:
    """What the reader calls the node of a pod, without its first part; and the number of its innermost item."""
    text = re.sub(r"\[\d+\]", "", node)
    items = re.findall(r"\((\d+):[^)]*\)", text)
    text = re.sub(r"\(\d+(:[^)]*)?\)", "", text)
    text = text.removeprefix(NAME).removeprefix(".").replace(".hooks.", ".hook-")
    text = re.sub(r"^hooks\.", "hook-", text)
    return text, int(items[-1]) if items else None


def leaf_read(step: str) -> tuple[str, int | None]:
    """The same of a step as the reader names it."""
    numbers = re.findall(r"\((\d+)\)", step)
    text = re.sub(r"\(\d+\)", "", step)
    if not re.match(r"onExit|hook-", text):
        text = text.partition(".")[2]
    return text, int(numbers[-1]) if numbers else None
