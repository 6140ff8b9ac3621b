"""The pod of a task: what Kubeflow's driver makes of its executor (driver/driver.go, initPodSpecPatch)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuflow.core.errors import Finding, Where, fail
from gpuflow.demands.model import UnseenPart
from gpuflow.formats.kfp import AMOUNTS, Message
from gpuflow.quantity import Quantity
from gpuflow.readers.kfp.values import WORKSPACE, KnownValue, OpenValue, Scope, Values, go_number, substitute

COMPONENT_MARK = {"pipelines.kubeflow.org/v2_component": "true"}
WORKSPACE_VOLUME = "kfp-workspace"
WORKSPACE_PATH = "/kfp-workspace"
RUNTIME_DEFAULT = {"seccompProfile": {"type": "RuntimeDefault"}}
"""What the compiler gives every pod (argocompiler/security_context.go)."""
CONFINED_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, **RUNTIME_DEFAULT}
"""What it gives every container of a user."""
FORWARDED_VARIABLES = ("RESOURCES", "ENV", "KUBERNETES_AFFINITY", "KUBERNETES_TOLERATIONS", "KUBERNETES_NODE_SELECTOR",
             "KUBERNETES_VOLUMES")  # fmt: skip
"""What a component may hand to a workload that its program creates, instead of setting it on its own pod."""


@dataclass
class BuiltPod:
    """A pod, and the findings about it."""

    pod: dict[str, Any]
    hidden: list[UnseenPart] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    on_pod: Mapping[str, bool] = field(default_factory=dict)
    """What of its settings the pod itself gets."""
    only_at_most: str | None = None
    """Why some copies ask for less."""

    @property
    def main(self) -> dict[str, Any]:
        main: dict[str, Any] = self.pod["spec"]["containers"][0]
        return main

    def hide(self, task: Task, what: str, value: OpenValue, where: Where, resource: str | None = None) -> None:
        """Something of it is only known in the run: the amount of a resource, or where it may run."""
        because = f"{what}: {value.because}"
        self.hidden.append(UnseenPart(task.name, because, where, resource, value.hint, resource is None))

    def add_volume(self, volume: Mapping[str, Any], path: str) -> None:
        """A volume that the main container mounts."""
        volumes = self.pod["spec"].setdefault("volumes", [])
        if all(each["name"] != volume["name"] for each in volumes):
            volumes.append(dict(volume))
        self.main.setdefault("volumeMounts", []).append({"name": volume["name"], "mountPath": path})


@dataclass(frozen=True)
class Task:
    """A task with everything that its pod is made of."""

    name: str
    executor: Message
    component: Message
    settings: Message
    """Its part of the platform document; empty where it has none."""
    inputs: Values
    scope: Scope
    """What settings refer to: inputs of the group around the task, outputs of its neighbours."""
    uris: Mapping[str, str]
    """The addresses of its input artifacts, where they are known."""


def pod_of(task: Task) -> BuiltPod:
    """The pod of a task without what its platform document says."""
    container = task.executor.message("container")
    image = substitute(container.text("image"), task.inputs)
    main: dict[str, Any] = {
        "name": "main",
        "image": image.value if isinstance(image, KnownValue) and image.value else "unknown",
        "securityContext": dict(CONFINED_SECURITY),
    }
    made = BuiltPod(
        {
            "metadata": {"labels": dict(COMPONENT_MARK), "annotations": dict(COMPONENT_MARK)},
            "spec": {"restartPolicy": "Never", "securityContext": dict(RUNTIME_DEFAULT), "containers": [main]},
        },
        on_pod=_on_pod(task.component),
    )
    env = [{"name": each.text("name"), "value": each.text("value")} for each in container.messages("env")]
    if env and made.on_pod["ENV"]:
        main["env"] = env
    resources = _resources(task, container.message("resources"), made)
    if made.on_pod["RESOURCES"]:
        main["resources"] = resources
    if any(each.text("field") == "RESOURCES" for each in task.component.messages("taskConfigPassthroughs")):
        because = "taskConfigPassthroughs hands its resources to a workload that its program creates"
        made.hidden.append(UnseenPart(task.name, because, task.component.where("taskConfigPassthroughs")))
    _model_images(task, made)
    if _uses_workspace(task):
        claim = {"persistentVolumeClaim": {"claimName": WORKSPACE_VOLUME}}
        if made.on_pod["KUBERNETES_VOLUMES"]:
            made.add_volume({"name": WORKSPACE_VOLUME, **claim}, WORKSPACE_PATH)
    return made


def _on_pod(component: Message) -> dict[str, bool]:
    found = dict.fromkeys(FORWARDED_VARIABLES, True)
    for each in component.messages("taskConfigPassthroughs"):
        found[each.text("field")] = each.flag("applyToTask")
    return found


def _resources(task: Task, spec: Message, made: BuiltPod) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for side, resource, name, old, unit in AMOUNTS:
        text = spec.text(name)
        if text:
            value, where = substitute(text, task.inputs), spec.where(name)
            if isinstance(value, OpenValue) and not value.among:
                made.hide(task, name, value, where, resource)
                continue
            if isinstance(value, OpenValue):
                written = max((quantity(task.name, name, str(each), where) for each in value.among), key=Quantity)
                made.only_at_most = f"{task.name}: {name}: {value.because}, and the largest is counted"
            else:
                written = str(value.value)
        elif spec.number(old):
            written, where = go_number(spec.number(old)) + unit, spec.where(old)
        else:
            continue
        found.setdefault(side, {})[resource] = quantity(task.name, name, written, where)
    accelerator = spec.message("accelerator")
    if accelerator.value:
        for resource, count in _accelerator(task, accelerator, made):
            found.setdefault("limits", {})[resource] = count
    return found


def quantity(task: str, field: str, text: str, where: Where) -> str:
    """A quantity as the driver writes it; where it is none, the driver fails."""
    try:
        return str(Quantity(text))
    except ValueError as problem:
        hint = (
            "Kubeflow's driver fails on it, and the task never starts: write it as Kubernetes does, such as 500m or 2Gi"
        )
        raise fail("GF730", f'task "{task}": {field} is "{text[:60]}": {problem}', where=where, hint=hint) from None


def _accelerator(task: Task, spec: Message, made: BuiltPod) -> Iterator[tuple[str, str]]:
    kind = substitute(spec.text("resourceType") or spec.text("type"), task.inputs)
    count = substitute(spec.text("resourceCount"), task.inputs)
    if not spec.text("resourceCount"):
        old = spec.integer("count")
        count = KnownValue(str(old) if old > 0 else "")
    if isinstance(kind, OpenValue) or isinstance(count, OpenValue):
        unknown, name = (kind, "resourceType") if isinstance(kind, OpenValue) else (count, "resourceCount")
        assert isinstance(unknown, OpenValue)
        # Which resource it is may not be known either: NVIDIA's is what nearly all ask for.
        resource = kind.value if isinstance(kind, KnownValue) and kind.value else "nvidia.com/gpu"
        made.hide(task, f"accelerator.{name}", unknown, spec.where(name), str(resource))
        return
    if kind.value and count.value:
        yield str(kind.value), quantity(task.name, "resourceCount", str(count.value), spec.where("resourceCount"))
        return
    missing = "resourceType" if not kind.value else "resourceCount"
    why = "has no value" if not spec.text(missing) else "is the name of an input that is no text"
    made.findings.append(
        Finding(
            "GF731",
            f'task "{task.name}" asks for an accelerator, and {missing} {why}: Kubeflow\'s driver then sets none, and '
            "says nothing",
            spec.where(),
            "call set_accelerator_type as well as set_accelerator_limit, and pass numbers as text",
            severity="warning",
        )
    )


def _model_images(task: Task, made: BuiltPod) -> None:
    """A model in an OCI image becomes a container beside the main one (driver.go, addModelcarsToPodSpec)."""
    addresses = [task.uris[name] for name in sorted(task.uris) if task.uris[name].startswith("oci://")]
    if not addresses:
        return
    spec = made.pod["spec"]
    spec["shareProcessNamespace"] = True
    for index, address in enumerate(addresses):
        image = address.removeprefix("oci://")
        volume = {"name": f"oci-{index}", "emptyDir": {}}
        made.add_volume(volume, f"/oci/{index}")
        spec.setdefault("initContainers", []).append(
            {"name": f"oci-prepull-{index}", "image": image, "securityContext": dict(CONFINED_SECURITY)}
        )
        spec["containers"].append({"name": f"oci-{index}", "image": image, "securityContext": dict(CONFINED_SECURITY)})


def _uses_workspace(task: Task) -> bool:
    """Whether an input is a path in the workspace, or an artifact that was downloaded into it."""
    known = [each.value for each in task.inputs.values() if isinstance(each, KnownValue)]
    texts = [each for each in known if isinstance(each, str)]
    return any(WORKSPACE in text or WORKSPACE_PATH in text for text in texts) or any(
        uri.startswith(WORKSPACE_PATH) for uri in task.uris.values()
    )
