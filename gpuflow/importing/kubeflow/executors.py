"""An executor of Kubeflow with its platform settings, as a pod in Kubernetes' words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.importing.unsupported import Place, Unsupported
from gpuflow.importing.values import mapping, maps, plain_value
from gpuflow.pod.supervision import RUN_ID
from gpuflow.runtime.bundle import FILE

AMOUNTS = (
    ("limits", "cpu", "resourceCpuLimit", "cpuLimit", ""),
    ("limits", "memory", "resourceMemoryLimit", "memoryLimit", "G"),
    ("requests", "cpu", "resourceCpuRequest", "cpuRequest", ""),
    ("requests", "memory", "resourceMemoryRequest", "memoryRequest", "G"),
)
CONTAINER = ("image", "command", "args", "env", "resources")
CONFIG = (
    "activeDeadlineSeconds", "configMapAsEnv", "configMapAsVolume", "emptyDirMounts", "fieldPathAsEnv",
    "imagePullPolicy", "imagePullSecret", "nodeAffinity", "nodeSelector", "podMetadata", "pvcMount", "secretAsEnv",
    "secretAsVolume",
    "securityContext", "tolerations",
)  # fmt: skip

RUN_LABEL = "metadata.labels['pipeline/runid']"
"""Where gpuflow-run looks for the run's id in a pod of Kubeflow's."""
RUN_WORD = "--run-id={{$.pipeline_job_uuid}}"


def pod_of(
    container: Mapping[str, Any], config: Mapping[str, Any], listing: Unsupported, place: Place
) -> tuple[dict[str, Any], dict[str, Any], Mapping[str, Any]]:
    """The pod's spec, its main container and its metadata."""
    listing.fields(container, CONTAINER, "container", place)
    listing.fields(config, CONFIG, "platform", place)
    main: dict[str, Any] = {key: container[key] for key in CONTAINER[:4] if container.get(key)}
    main["resources"] = _resources(mapping(container.get("resources")), listing, place)
    spec: dict[str, Any] = {}
    volumes: list[Any] = []
    mounts: list[Any] = []
    env: list[Any] = list(main.get("env") or ())
    for each in maps(config.get("pvcMount")):
        name = _constant(each, "pvcNameParameter", "constant")
        if name is None:
            listing.cannot("pvcMount", "the claim's name is only known in the run", place.of(each), "name a claim")
            continue
        volumes.append({"name": f"claim-{len(volumes)}", "persistentVolumeClaim": {"claimName": name}})
        mounts.append(_mount(each, volumes[-1]["name"]))
    for field, kind, name in (("secretAsVolume", "secret", "secretName"), ("configMapAsVolume", "configMap", "name")):
        for each, own, optional in _named_objects(config, field, listing, place):
            source = {name: own, **optional}
            volumes.append({"name": f"files-{len(volumes)}", kind: source})
            mounts.append(_mount(each, volumes[-1]["name"]))
    for each in maps(config.get("emptyDirMounts")):
        source = {key: each[key] for key in ("medium", "sizeLimit") if each.get(key)}
        volumes.append({"name": str(each.get("volumeName")), "emptyDir": source})
        mounts.append(_mount(each, volumes[-1]["name"]))
    for field, kind, key in (
        ("secretAsEnv", "secretKeyRef", "secretKey"),
        ("configMapAsEnv", "configMapKeyRef", "configMapKey"),
    ):
        for each, own, optional in _named_objects(config, field, listing, place):
            for pair in maps(each.get("keyToEnv")):
                source = {"name": own, "key": pair.get(key), **optional}
                env.append({"name": pair.get("envVar"), "valueFrom": {kind: source}})
    for each in maps(config.get("fieldPathAsEnv")):
        if each.get("name") == RUN_ID and each.get("fieldPath") == RUN_LABEL and (told := _command_with_run_id(main)):
            main["command"] = told
            continue
        env.append({"name": each.get("name"), "valueFrom": {"fieldRef": {"fieldPath": each.get("fieldPath")}}})
    if env:
        main["env"] = env
    if volumes:
        spec["volumes"], main["volumeMounts"] = volumes, mounts
    _read_scheduling(config, spec, listing, place)
    if config.get("imagePullPolicy"):
        main["imagePullPolicy"] = config["imagePullPolicy"]
    secrets = [_constant(each, "secretNameParameter", "secretName") for each in maps(config.get("imagePullSecret"))]
    if secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in secrets if name]
    if config.get("activeDeadlineSeconds"):
        spec["activeDeadlineSeconds"] = int(config["activeDeadlineSeconds"])
    security = mapping(config.get("securityContext"))
    if security:
        listing.fields(security, ("runAsUser", "runAsGroup", "runAsNonRoot"), "securityContext", place)
        numbers = {key: int(security[key]) for key in ("runAsUser", "runAsGroup") if security.get(key) is not None}
        spec["securityContext"] = numbers | ({"runAsNonRoot": True} if security.get("runAsNonRoot") else {})
    return spec, main, mapping(config.get("podMetadata"))


def _named_objects(
    config: Mapping[str, Any], field: str, listing: Unsupported, place: Place
) -> Iterator[tuple[Mapping[str, Any], str, dict[str, bool]]]:
    """The entries of a setting about Secrets or ConfigMaps, each with the object's name and its `optional`."""
    for each in maps(config.get(field)):
        own = each.get("secretName") or each.get("configMapName") or _constant(each, "secretNameParameter", "")
        own = own or _constant(each, "configMapNameParameter", "")
        if own is None:
            listing.cannot(field, "its name is only known in the run", place.of(each), "write the name")
        else:
            yield each, own, {"optional": True} if each.get("optional") else {}


def _command_with_run_id(main: Mapping[str, Any]) -> list[Any] | None:
    """The command of gpuflow-run with the run's id as an argument; None for another program's command.

    The variable that carries the id is gpuflow's own, which no pipeline may set, and gpuflow-run hands it to no program
    that it starts: a step that is supervised once more would not know its run.
    """
    words = list(main.get("command") or ())
    for index, word in enumerate(words):
        if str(word).rpartition("/")[2] == FILE:
            return [*words[: index + 1], RUN_WORD, *words[index + 1 :]]
    return None


def _read_scheduling(config: Mapping[str, Any], spec: dict[str, Any], listing: Unsupported, place: Place) -> None:
    selector = mapping(config.get("nodeSelector"))
    listing.fields(selector, ("labels",), "nodeSelector", place)
    if mapping(selector.get("labels")):
        spec["nodeSelector"] = selector["labels"]
    tolerations = [
        {key: value for key, value in plain_value(each).items() if value not in (None, "")}
        for each in maps(config.get("tolerations"))
    ]
    if tolerations:
        spec["tolerations"] = tolerations
        if any("tolerationJson" in each for each in tolerations):
            listing.cannot("tolerationJson", "it is only known in the run", place.of(config, "tolerations"))
    if config.get("nodeAffinity"):
        hint = "write kubernetes: {affinity: {…}} in the step"
        listing.cannot("nodeAffinity", "it is not imported", place.of(config, "nodeAffinity"), hint)


def _resources(resources: Mapping[str, Any], listing: Unsupported, place: Place) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for side, name, text, number, unit in AMOUNTS:
        if resources.get(text):
            found.setdefault(side, {})[name] = str(resources[text])
        elif resources.get(number):
            amount = resources[number]
            if not isinstance(amount, int | float):
                listing.cannot(f"resources {number}", "it is not a number", place.of(resources, number))
                continue
            found.setdefault(side, {})[name] = f"{float(amount):g}{unit}"
    accelerator = mapping(resources.get("accelerator"))
    listing.fields(accelerator, ("type", "count", "resourceType", "resourceCount"), "accelerator", place)
    kind = accelerator.get("resourceType") or accelerator.get("type")
    count = accelerator.get("resourceCount") or accelerator.get("count")
    if kind and count:
        if "/" not in str(kind):
            hint = "name the resource of the cluster: nvidia.com/gpu"
            listing.cannot(f"accelerator {kind}", "it is no resource of a node", place.of(accelerator), hint)
        found.setdefault("limits", {})[str(kind)] = str(count)
    known = ("accelerator", *(word for row in AMOUNTS for word in row[2:4]))
    listing.fields(resources, known, "resources", place)
    return found


def _constant(owner: Mapping[str, Any], field: str, also: str) -> str | None:
    value = mapping(mapping(owner.get(field)).get("runtimeValue")).get("constant") or owner.get(also)
    return str(value) if value else None


def _mount(each: Mapping[str, Any], name: str) -> dict[str, Any]:
    sub = {"subPath": each["subPath"]} if each.get("subPath") else {}
    return {"name": name, "mountPath": each.get("mountPath"), **sub}
