"""A small model of KFP's driver: how it turns an executor of the IR into the patch of a pod.

It must give back every pod in the recorded corpus before it may judge ours (test_driver_model.py). What it says about
Kubernetes settings beyond the corpus follows `extendPodSpecPatch` of the backend. On a cluster the driver is a pod:
what it is handed passes a kubelet first (kubelets.py), which the recordings were made without.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from gpuflow.quantity import Quantity
from tests.targets.kubeflow.kubelets import as_argument

INPUT = re.compile(r"\{\{\$\.inputs\.parameters\['([^']+)'\]\}\}")
ANY = re.compile(r"\{\{\$[^}]*\}\}")


class Refusal(Exception):
    """The driver's own error."""


Arrive = Callable[[Any], Any]


def driver_pods(
    spec: dict[str, Any],
    platform: dict[str, Any],
    parent: Mapping[str, str] | None = None,
    arrive: Arrive = as_argument,
) -> dict[str, Any]:
    """The pod patch of each container executor, or {"error": …}. Inputs take their default, else `<name>`.

    `arrive`: what becomes of a message on its way to the driver."""
    components = {c["executorLabel"]: c for c in spec.get("components", {}).values() if "executorLabel" in c}
    root = spec.get("root", {})
    if "executorLabel" in root:
        components[root["executorLabel"]] = root
    configs = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    pods: dict[str, Any] = {}
    for label, executor in spec["deploymentSpec"]["executors"].items():
        container = executor.get("container")
        if container is None:
            continue
        try:
            component, config = components.get(label, {}), configs.get(label, {})
            pods[label] = driver_pod(container, component, config, parent or {}, arrive)
        except Refusal as refusal:
            pods[label] = {"error": str(refusal)}
    return pods


def driver_pod(
    container: dict[str, Any],
    component: dict[str, Any],
    config: dict[str, Any],
    parent: Mapping[str, str],
    arrive: Arrive = as_argument,
) -> dict[str, Any]:
    """The patch of one executor's pod."""
    container, component, config = arrive(container), arrive(component), arrive(config)
    inputs = component.get("inputDefinitions", {})
    values = {name: _value(name, entry) for name, entry in inputs.get("parameters", {}).items()}
    main: dict[str, Any] = {"name": "main", "image": _resolved(container["image"], values)}
    args = [word for raw in (*container.get("command", []), *container.get("args", [])) for word in _words(raw, values)]
    if args:
        main["args"] = args
    if container.get("env"):
        main["env"] = [dict(entry) for entry in container["env"]]
    main["resources"] = _resources(container.get("resources", {}), values)
    pod: dict[str, Any] = {"containers": [main]}
    _extend(pod, main, config, parent)
    return pod


def _value(name: str, entry: dict[str, Any]) -> str:
    if "defaultValue" not in entry:
        return f"<{name}>"
    value = entry["defaultValue"]
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return format(Decimal(repr(value)).normalize(), "f")
    return json.dumps(value, separators=(",", ":"))


def _words(raw: str, values: Mapping[str, str]) -> list[str]:
    """One word of the command: `IfPresent` is decided, input parameters are put in, the rest is the launcher's."""
    optional = _if_present(raw)
    if optional is not None:
        present = optional["InputName"] in values
        chosen = optional.get("Then") if present else optional.get("Else")
        listed = [chosen] if isinstance(chosen, str) else chosen or []
        return [word for inner in listed for word in _words(inner, values)]
    return [_resolved(raw, values)]


def _if_present(raw: str) -> dict[str, Any] | None:
    if not raw.startswith('{"IfPresent"'):
        return None
    found: dict[str, Any] = json.loads(raw)["IfPresent"]
    return found


def _resolved(text: str, values: Mapping[str, str]) -> str:
    """Text with its inputs put in; a text that holds any other placeholder as well is left as it is."""
    if any(not INPUT.fullmatch(found) for found in ANY.findall(text)):
        return text
    return INPUT.sub(lambda match: values[match[1]], text)


def _resources(spec: dict[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    result: dict[str, dict[str, str]] = {}
    for side, kind in (("Limit", "limits"), ("Request", "requests")):
        for ours, theirs, old in (("cpu", "Cpu", "{}"), ("memory", "Memory", "{}G")):
            text = spec.get(f"resource{theirs}{side}") or ""
            if not text and spec.get(f"{theirs.lower()}{side}"):
                text = old.format(spec[f"{theirs.lower()}{side}"])
            if text:
                result.setdefault(kind, {})[ours] = str(Quantity(_resolved(text, values)))
    accelerator = spec.get("accelerator", {})
    name, count = (
        accelerator.get("resourceType") or accelerator.get("type"),
        accelerator.get("resourceCount") or accelerator.get("count"),
    )
    if name and count:
        result.setdefault("limits", {})[_resolved(name, values)] = _resolved(count, values)
    return result


def _extend(pod: dict[str, Any], main: dict[str, Any], config: dict[str, Any], parent: Mapping[str, str]) -> None:
    for mount in config.get("pvcMount", []):
        name = _text(
            mount["pvcNameParameter"], parent, "failed to extract volume mount info: failed to resolve pvc name: "
        )
        sub_path = {"subPath": mount["subPath"]} if mount.get("subPath") else {}
        _mount(pod, main, name, mount["mountPath"], {"persistentVolumeClaim": {"claimName": name}}, sub_path)
    if config.get("imagePullPolicy"):
        main["imagePullPolicy"] = config["imagePullPolicy"]
    selector = config.get("nodeSelector", {})
    if "nodeSelectorJson" in selector:
        _text(
            selector["nodeSelectorJson"], parent, "failed to resolve node selector: failed to resolve k8s parameter: "
        )
    if selector.get("labels"):
        pod["nodeSelector"] = selector["labels"]
    if config.get("tolerations"):
        pod["tolerations"] = [_toleration(toleration) for toleration in config["tolerations"]]
    for secret in config.get("secretAsVolume", []):
        name = _text(secret["secretNameParameter"], parent, "failed to resolve secret name: ")
        source = {"secret": {"secretName": name, "optional": secret.get("optional", False)}}
        _mount(pod, main, name, secret["mountPath"], source, {})
    for secret in config.get("secretAsEnv", []):
        for pair in secret["keyToEnv"]:
            name = _text(secret["secretNameParameter"], parent, "failed to resolve secret name: ")
            _env(main, pair["envVar"], "secretKeyRef", name, pair["secretKey"], secret.get("optional"))
    for config_map in config.get("configMapAsVolume", []):
        name = _text(config_map["configMapNameParameter"], parent, "failed to resolve configmap name: ")
        source = {"configMap": {"name": name, "optional": config_map.get("optional", False)}}
        _mount(pod, main, name, config_map["mountPath"], source, {})
    for config_map in config.get("configMapAsEnv", []):
        for pair in config_map["keyToEnv"]:
            name = _text(config_map["configMapNameParameter"], parent, "failed to resolve configmap name: ")
            _env(main, pair["envVar"], "configMapKeyRef", name, pair["configMapKey"], config_map.get("optional"))
    for secret in config.get("imagePullSecret", []):
        name = _text(secret["secretNameParameter"], parent, "failed to resolve image pull secret name: ")
        pod.setdefault("imagePullSecrets", []).append({"name": name})
    for field in config.get("fieldPathAsEnv", []):
        source = {"fieldRef": {"fieldPath": field["fieldPath"]}}
        main.setdefault("env", []).append({"name": field["name"], "valueFrom": source})
    if int(config.get("activeDeadlineSeconds", 0)) > 0:
        pod["activeDeadlineSeconds"] = int(config["activeDeadlineSeconds"])
    for volume in config.get("genericEphemeralVolume", []):
        spec = {"accessModes": volume["accessModes"], "resources": {"requests": {"storage": volume["size"]}}}
        if not volume.get("defaultStorageClass"):
            spec["storageClassName"] = volume.get("storageClassName", "")
        metadata = {"metadata": volume["metadata"]} if volume.get("metadata") else {}
        source = {"ephemeral": {"volumeClaimTemplate": {**metadata, "spec": spec}}}
        _mount(pod, main, volume["volumeName"], volume["mountPath"], source, {})
    for scratch in config.get("emptyDirMounts", []):
        source = {key: scratch[key] for key in ("medium", "sizeLimit") if scratch.get(key)}
        _mount(pod, main, scratch["volumeName"], scratch["mountPath"], {"emptyDir": source}, {})
    _affinity(pod, config.get("nodeAffinity", []))
    identity = config.get("securityContext")
    if identity is not None:
        context = {key: int(identity[key]) for key in ("runAsUser", "runAsGroup") if key in identity}
        if "runAsNonRoot" in identity:
            context["runAsNonRoot"] = identity["runAsNonRoot"]
        main["securityContext"] = {**context, "capabilities": {"drop": ["ALL"]}}


def _toleration(toleration: dict[str, Any]) -> dict[str, Any]:
    seconds = toleration.get("tolerationSeconds")
    rest = {key: value for key, value in toleration.items() if key != "tolerationSeconds"}
    return rest if seconds is None else {**rest, "tolerationSeconds": int(seconds)}


def _affinity(pod: dict[str, Any], terms: list[dict[str, Any]]) -> None:
    node: dict[str, Any] = {}
    for term in terms:
        inner = {key: term[key] for key in ("matchExpressions", "matchFields") if key in term}
        if "weight" in term:
            preferred = node.setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
            preferred.append({"weight": int(term["weight"]), "preference": inner})
        else:
            required = node.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []})
            required["nodeSelectorTerms"].append(inner)
    if node:
        pod["affinity"] = {"nodeAffinity": node}


def _mount(
    pod: dict[str, Any], main: dict[str, Any], name: str, path: str, source: dict[str, Any], more: dict[str, Any]
) -> None:
    pod.setdefault("volumes", []).append({"name": name, **source})
    main.setdefault("volumeMounts", []).append({"name": name, "mountPath": path, **more})


def _env(main: dict[str, Any], variable: str, kind: str, name: str, key: str, optional: bool | None) -> None:
    ref: dict[str, Any] = {"name": name, "key": key}
    if optional is not None:
        ref["optional"] = optional
    main.setdefault("env", []).append({"name": variable, "valueFrom": {kind: ref}})


def _text(source: dict[str, Any], parent: Mapping[str, str], prefix: str) -> str:
    if "componentInputParameter" in source:
        name = source["componentInputParameter"]
        if name not in parent:
            raise Refusal(
                f'{prefix}resolving input parameter with spec component_input_parameter:"{name}": '
                f"parent DAG does not have input parameter {name}"
            )
        return parent[name]
    text: str = source["runtimeValue"]["constant"]
    return text
