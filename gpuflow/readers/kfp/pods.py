"""The pod of a task: what Kubeflow's driver makes of its executor (driver/driver.go, initPodSpecPatch), what the
platform document adds to it (driver/k8s.go, extendPodSpecPatch; argocompiler for metadata), and the claims that tasks
create: the driver creates and deletes them itself, without a pod of the task's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuflow.core.errors import Finding, Where, fail
from gpuflow.demands.model import ClaimDemand, UnseenPart
from gpuflow.formats.kfp import (
    CREATE_CLAIM,
    DELETE_CLAIM,
    VARIABLES,
    VOLUMES,
    Message,
    accelerator_of,
    amounts_of,
    snake,
)
from gpuflow.pod.placement import PREFERRED_AFFINITY, REQUIRED_AFFINITY
from gpuflow.pod.volumes import volume_name
from gpuflow.quantity import Quantity
from gpuflow.readers.kfp.values import WORKSPACE, KnownValue, OpenValue, Scope, Value, Values, substitute

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

    def note_default(self, task: Task, what: str, value: Value, where: Where) -> None:
        """Say that an amount is a parameter's default."""
        if isinstance(value, KnownValue) and value.is_default:
            text = f'task "{task.name}": {what} is {value.value}, the default of a parameter that a run may set'
            self.findings.append(Finding("GF529", text, where, "--param NAME=VALUE checks another run", "note"))

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
    for side, resource, name, text, where in amounts_of(spec):
        value = substitute(text, task.inputs)
        made.note_default(task, name, value, where)
        if isinstance(value, OpenValue) and not value.among:
            made.hide(task, name, value, where, resource)
            continue
        if isinstance(value, OpenValue):
            written = max((quantity(task.name, name, str(each), where) for each in value.among), key=Quantity)
            made.only_at_most = f"{task.name}: {name}: {value.because}, and the largest is counted"
        else:
            written = str(value.value)
        found.setdefault(side, {})[resource] = quantity(task.name, name, written, where)
    if spec.message("accelerator").value:
        for resource, count in _accelerator(task, spec, made):
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


def _accelerator(task: Task, resources: Message, made: BuiltPod) -> Iterator[tuple[str, str]]:
    spec = resources.message("accelerator")
    kind, count = (substitute(text, task.inputs) for text in accelerator_of(resources))
    if isinstance(kind, OpenValue) or isinstance(count, OpenValue):
        unknown, name = (kind, "resourceType") if isinstance(kind, OpenValue) else (count, "resourceCount")
        assert isinstance(unknown, OpenValue)
        # Which resource it is may not be known either: NVIDIA's is what nearly all ask for.
        resource = kind.value if isinstance(kind, KnownValue) and kind.value else "nvidia.com/gpu"
        made.hide(task, f"accelerator.{name}", unknown, spec.where(name), str(resource))
        return
    if kind.value and count.value:
        made.note_default(task, "accelerator.resourceType", kind, spec.where("resourceType"))
        made.note_default(task, "accelerator.resourceCount", count, spec.where("resourceCount"))
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


FIELDS = (
    "secretAsVolume", "secretAsEnv", "pvcMount", "nodeSelector", "podMetadata", "imagePullSecret", "imagePullPolicy",
    "configMapAsVolume", "configMapAsEnv", "activeDeadlineSeconds", "fieldPathAsEnv", "tolerations",
    "genericEphemeralVolume", "nodeAffinity", "podAffinity", "enabledSharedMemory", "emptyDirMounts",
    "securityContext", "initContainers",
)  # fmt: skip
"""All that a KubernetesExecutorConfig has; the backend refuses any other field."""
KNOWN_FIELDS = frozenset({*FIELDS, *(snake(name) for name in FIELDS)})
IGNORED_FIELDS = ("podAffinity", "enabledSharedMemory")
"""What the message has and the driver never reads."""
MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")


def apply_settings(task: Task, made: BuiltPod) -> None:
    """The pod with what the platform document says of it."""
    settings = task.settings
    if not settings.value:
        return
    _check_fields(task, made)
    for add in (_metadata, _claims, _selector, _tolerations, _mounts, _environment, _apply_rest, _ephemeral, _affinity):
        add(task, settings, made)
    _identity(settings, made)
    for each in settings.messages("initContainers"):
        made.pod["spec"].setdefault("initContainers", []).append(_init_container(task, each, made))


def _check_fields(task: Task, made: BuiltPod) -> None:
    for name in task.settings.value:
        if name not in KNOWN_FIELDS:
            text = (
                f'task "{task.name}": Kubeflow has no Kubernetes setting "{name[:60]}", and refuses the whole pipeline'
            )
            made.findings.append(Finding("GF729", text, task.settings.where(name, key=True), "remove it"))
    for name in IGNORED_FIELDS:
        if name in task.settings:
            text = f'task "{task.name}": Kubeflow\'s driver does not read {name}, and the pod is made without it'
            hint = "use an emptyDirMount with medium Memory" if name == "enabledSharedMemory" else "use nodeAffinity"
            made.findings.append(Finding("GF732", text, task.settings.where(name, key=True), hint, severity="warning"))


def _metadata(task: Task, settings: Message, made: BuiltPod) -> None:
    for part in ("labels", "annotations"):
        own = settings.message("podMetadata").strings(part)
        made.pod["metadata"][part] = {**own, **made.pod["metadata"][part]}


def _claims(task: Task, settings: Message, made: BuiltPod) -> None:
    for mount in settings.messages("pvcMount"):
        name = _claim_name(task, mount)
        if isinstance(name, OpenValue):
            made.hide(task, "pvcMount: the claim's name is not known", name, mount.where())
        elif not isinstance(name.value, str) or not name.value:
            raise _settings_error(task, "pvcMount names no claim", mount)
        elif made.on_pod["KUBERNETES_VOLUMES"]:
            claim = {"persistentVolumeClaim": {"claimName": name.value}}
            made.add_volume({"name": name.value, **claim}, mount.text("mountPath"))


def _claim_name(task: Task, mount: Message) -> Value:
    if "pvcNameParameter" in mount:
        return task.scope.parameter(mount.message("pvcNameParameter"))
    if mount.text("constant"):
        return KnownValue(mount.text("constant"))
    return task.scope.parameter(mount)  # the names of older documents are those of an input parameter


def _selector(task: Task, settings: Message, made: BuiltPod) -> None:
    selector = settings.message("nodeSelector")
    if "nodeSelectorJson" not in selector:
        labels: Any = selector.strings("labels")
    else:
        labels = _structure(task, selector, "nodeSelectorJson", made)
        if labels is not None and not all(isinstance(each, str) for each in labels.values()):
            raise _settings_error(task, "nodeSelectorJson holds values that are no text", selector)
    if labels and made.on_pod["KUBERNETES_NODE_SELECTOR"]:
        made.pod["spec"]["nodeSelector"] = dict(labels)


def _structure(task: Task, around: Message, name: str, made: BuiltPod) -> Mapping[str, Any] | None:
    """A setting that a parameter gives as a structure; None where it gives none."""
    value = task.scope.parameter(around.message(name))
    if isinstance(value, OpenValue):
        made.hide(task, name, value, around.where(name))
        return None
    return value.value if isinstance(value.value, Mapping) else None


def _tolerations(task: Task, settings: Message, made: BuiltPod) -> None:
    found: list[Any] = []
    for each in settings.messages("tolerations"):
        if "tolerationJson" not in each:
            found.append(_toleration(each))
            continue
        value = task.scope.parameter(each.message("tolerationJson"))
        if isinstance(value, OpenValue):
            made.hide(task, "tolerationJson", value, each.where("tolerationJson"))
        elif value.value:
            listed = value.value if isinstance(value.value, list) else [value.value]
            if not all(isinstance(one, Mapping) for one in listed):
                raise _settings_error(task, "tolerationJson is no toleration and no list of them", each)
            found += [dict(one) for one in listed]
    if found and made.on_pod["KUBERNETES_TOLERATIONS"]:
        made.pod["spec"]["tolerations"] = found


def _toleration(each: Message) -> dict[str, Any]:
    found: dict[str, Any] = {key: each.text(key) for key in ("key", "operator", "value", "effect") if each.text(key)}
    if "tolerationSeconds" in each:
        found["tolerationSeconds"] = each.integer("tolerationSeconds")
    return found


def _mounts(task: Task, settings: Message, made: BuiltPod) -> None:
    """Secrets and ConfigMaps as volumes. One whose name only the run knows is left out: no verdict depends on it."""
    for setting, named, kind, key in VOLUMES:
        for each in settings.messages(setting):
            name = _object_name(task, each, named)
            if name and made.on_pod["KUBERNETES_VOLUMES"]:
                source = {kind: {key: name, "optional": each.flag("optional")}}
                made.add_volume({"name": name, **source}, each.text("mountPath"))
    for each in settings.messages("emptyDirMounts"):
        chosen = {key: each.text(key) for key in ("medium", "sizeLimit") if each.text(key)}
        if "sizeLimit" in chosen:
            quantity(task.name, "sizeLimit", chosen["sizeLimit"], each.where("sizeLimit"))
        made.add_volume({"name": each.text("volumeName"), "emptyDir": chosen}, each.text("mountPath"))


def _object_name(task: Task, each: Message, field: str) -> str | None:
    """The name of a Secret or ConfigMap; None where the run gives it, or where an optional one is not given."""
    parameter = f"{field}Parameter"
    value = task.scope.parameter(each.message(parameter)) if parameter in each else KnownValue(each.text(field))
    if isinstance(value, OpenValue) or value.value is None:
        return None
    if not isinstance(value.value, str) or not value.value:
        raise _settings_error(task, f"{field} is empty", each)
    return value.value


def _environment(task: Task, settings: Message, made: BuiltPod) -> None:
    env: list[dict[str, Any]] = []
    for setting, named, kind, key in VARIABLES:
        for each in settings.messages(setting):
            name = _object_name(task, each, named)
            optional = {"optional": each.flag("optional")} if "optional" in each else {}
            for pair in each.messages("keyToEnv") if name else ():
                reference = {"name": name, "key": pair.text(key), **optional}
                env.append({"name": pair.text("envVar"), "valueFrom": {kind: reference}})
    for each in settings.messages("fieldPathAsEnv"):
        env.append({"name": each.text("name"), "valueFrom": {"fieldRef": {"fieldPath": each.text("fieldPath")}}})
    if env and made.on_pod["ENV"]:
        made.main.setdefault("env", []).extend(env)


def _apply_rest(task: Task, settings: Message, made: BuiltPod) -> None:
    policy = settings.text("imagePullPolicy")
    if policy and policy not in ("Always", "Never", "IfNotPresent"):
        raise _settings_error(
            task, f'imagePullPolicy is "{policy[:40]}"; it is Always, Never or IfNotPresent', settings
        )
    if policy:
        made.main["imagePullPolicy"] = policy
    for each in settings.messages("imagePullSecret"):
        name = _object_name(task, each, "secretName")
        if name:
            made.pod["spec"].setdefault("imagePullSecrets", []).append({"name": name})
    deadline = settings.integer("activeDeadlineSeconds")
    if deadline > 0:
        made.pod["spec"]["activeDeadlineSeconds"] = deadline


def _ephemeral(task: Task, settings: Message, made: BuiltPod) -> None:
    for each in settings.messages("genericEphemeralVolume"):
        size = quantity(task.name, "size", each.text("size"), each.where("size"))
        spec: dict[str, Any] = {
            "accessModes": [mode for mode in each.texts("accessModes") if mode in MODES],
            "resources": {"requests": {"storage": size}},
        }
        if not each.flag("defaultStorageClass"):
            spec["storageClassName"] = each.text("storageClassName")
        metadata = {part: each.message("metadata").strings(part) for part in ("labels", "annotations")}
        template = {"metadata": {key: value for key, value in metadata.items() if value}, "spec": spec}
        volume = {"name": each.text("volumeName"), "ephemeral": {"volumeClaimTemplate": template}}
        made.add_volume(volume, each.text("mountPath"))


def _affinity(task: Task, settings: Message, made: BuiltPod) -> None:
    required: list[Any] = []
    preferred: list[Any] = []
    for each in settings.messages("nodeAffinity"):
        if "nodeAffinityJson" in each:
            whole = _structure(task, each, "nodeAffinityJson", made) or {}
            required += _terms(task, each, (whole.get(REQUIRED_AFFINITY) or {}), "nodeSelectorTerms")
            preferred += _terms(task, each, whole, PREFERRED_AFFINITY)
            continue
        term = {
            name: [_requirement(one) for one in each.messages(name)] for name in ("matchExpressions", "matchFields")
        }
        term = {name: listed for name, listed in term.items() if listed}
        if term and "weight" in each:
            preferred.append({"weight": each.integer("weight"), "preference": term})
        elif term:
            required.append(term)
    node: dict[str, Any] = {REQUIRED_AFFINITY: {"nodeSelectorTerms": required}} if required else {}
    node |= {PREFERRED_AFFINITY: preferred} if preferred else {}
    if node and made.on_pod["KUBERNETES_AFFINITY"]:
        made.pod["spec"]["affinity"] = {"nodeAffinity": node}


def _terms(task: Task, each: Message, around: Any, name: str) -> Iterator[Any]:
    listed = around.get(name) if isinstance(around, Mapping) else None
    if listed is not None and not (isinstance(listed, list) and all(isinstance(one, Mapping) for one in listed)):
        raise _settings_error(task, f"nodeAffinityJson: {name} is no list of terms", each)
    yield from listed or ()


def _requirement(each: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"key": each.text("key"), "operator": each.text("operator")}
    values = each.texts("values")
    return {**found, "values": values} if values else found


def _identity(settings: Message, made: BuiltPod) -> None:
    if "securityContext" not in settings:
        return
    own = settings.message("securityContext")
    context = {key: own.integer(key) for key in ("runAsUser", "runAsGroup") if key in own}
    flags = {"runAsNonRoot": own.flag("runAsNonRoot")} if "runAsNonRoot" in own else {}
    made.main["securityContext"] = {**CONFINED_SECURITY, **context, **flags}


def _init_container(task: Task, each: Message, made: BuiltPod) -> dict[str, Any]:
    spec = made.pod["spec"]
    name, taken = each.text("name"), [one["name"] for one in (*spec["containers"], *spec.get("initContainers", ()))]
    if not name or name in taken:
        raise _settings_error(task, f'an init container is called "{name[:60]}"; it needs a name of its own', each)
    if not each.text("image"):
        raise _settings_error(task, f'the init container "{name[:60]}" has no image', each)
    found: dict[str, Any] = {"name": name, "image": each.text("image"), "securityContext": dict(CONFINED_SECURITY)}
    policy = each.text("restartPolicy")
    if policy not in ("", "Always"):
        raise _settings_error(task, f'the restart policy of the init container "{name[:60]}" is not Always', each)
    if policy:
        found["restartPolicy"] = policy
    resources = each.message("resources")
    sides = {}
    for side in ("requests", "limits"):
        amounts = resources.strings(side)
        where = resources.where(side)
        if amounts:
            sides[side] = {key: quantity(task.name, f"{side}.{key}", text, where) for key, text in amounts.items()}
    return {**found, "resources": sides} if sides else found


def _settings_error(task: Task, what: str, at: Message) -> Exception:
    hint = "Kubeflow's driver fails on it, and the task never starts: correct it where the pipeline is written"
    return fail("GF730", f'task "{task.name}": {what}', where=at.where(), hint=hint)


MOST_CLAIMS = 1000


@dataclass(frozen=True)
class Claims:
    """What a task that makes a claim asks for."""

    name: Value
    """The claim's name, for those that mount it."""
    claims: tuple[ClaimDemand, ...] = ()
    unseen: tuple[UnseenPart, ...] = ()


def is_claim_task(executor: Message) -> bool:
    """Whether the driver does the work of a task itself (argocompiler/dag.go, dummyImages)."""
    return executor.message("container").text("image") in (CREATE_CLAIM, DELETE_CLAIM)


def claims_of(path: str, task: Message, spec: Task, copies: int | None) -> Claims:
    """The claims that a task makes, one for each copy (driver/k8s.go, createPVC)."""
    if spec.executor.message("container").text("image") == DELETE_CLAIM:
        return Claims(OpenValue("it is a claim that is gone"))
    given = task.message("inputs").message("parameters")
    inputs = spec.inputs
    size, storage_class = inputs.get("size", KnownValue(None)), inputs.get("storage_class_name", KnownValue(None))
    named = inputs.get("pvc_name", KnownValue(None))
    name = named.value if isinstance(named, KnownValue) and named.value else volume_name(f"run-{path}")
    places = {key: given.where(key) for key in ("size", "storage_class_name")}
    hidden = []
    if isinstance(size, OpenValue):
        hidden.append(UnseenPart(path, f"size: {size.because}", places["size"], "storage"))
    if copies is None or copies > MOST_CLAIMS:
        because = "how many claims it makes is not known" if copies is None else f"it makes {copies:,} claims"
        hidden += [UnseenPart(path, because, task.where(), each) for each in ("storage", "persistentvolumeclaims")]
        return Claims(KnownValue(str(name)), unseen=tuple(hidden))
    text = size.value if isinstance(size, KnownValue) and isinstance(size.value, str) else "0"
    manifest: dict[str, Any] = {
        "accessModes": _modes(inputs.get("access_modes")),
        "resources": {"requests": {"storage": quantity(path, "size", text, places["size"])}},
    }
    if "storage_class_name" not in given.value:
        manifest["storageClassName"] = "standard"  # what the driver takes when nobody names one
    elif isinstance(storage_class, KnownValue):
        manifest["storageClassName"] = str(storage_class.value or "")
    made = tuple(
        ClaimDemand(
            path if number == 0 else f"{path}-{number + 1}",
            {"metadata": {"name": str(name)}, "spec": manifest},
            str(name),
            task.where(),
            places["size"],
            places["storage_class_name"],
        )
        for number in range(copies)
    )
    return Claims(KnownValue(str(name)), made, tuple(hidden))


def _modes(value: Value | None) -> list[str]:
    listed = value.value if isinstance(value, KnownValue) and isinstance(value.value, list) else []
    return [each for each in listed if each in MODES]
