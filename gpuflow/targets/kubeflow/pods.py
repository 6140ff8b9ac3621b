"""A pod as the IR holds it: its main container, and its other parts as Kubernetes executor config, as plain data.

The executor config has placement, metadata, volumes, secrets, identity and timeout. Most pods of a pipeline have all
but the command and the metadata alike: the rest is made once for each content, and all of them hold the same map, which
nobody may change.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from gpuflow.core.caching import content_of, data_of
from gpuflow.pod.placement import PREFERRED_AFFINITY, REQUIRED_AFFINITY
from gpuflow.quantity import NANO, Quantity
from gpuflow.targets.kubeflow.containers import NO_OUTPUTS, PLACEHOLDER, StepOutputs, command_words
from gpuflow.targets.kubeflow.references import BRACE, ClaimRef, each_for_driver, for_driver

Data = dict[str, Any]
"""A message in its JSON form."""
_GIGA = 10**9
_BRACE = f"$({BRACE})"


def fixed_value(text: str) -> Data:
    """A value that is known now, as the backend wants it: in the form of a task's input."""
    return {"runtimeValue": {"constant": text}}


def in_order(value: Any) -> Any:
    """Plain data with the keys of every map sorted."""
    if isinstance(value, dict):  # most of what is inside is text, so without a call
        return {key: item if type(item := value[key]) is str else in_order(item) for key in sorted(value)}
    if isinstance(value, list):
        return [item if type(item) is str else in_order(item) for item in value]
    return value


def container_spec(main: dict[str, Any], *, outputs: StepOutputs = NO_OUTPUTS) -> Data:
    """The container (PipelineContainerSpec). `outputs`: what KFP's launcher looks for."""
    command = command_words(main, outputs)
    env = [entry for entry in main.get("env", ()) if "value" in entry and PLACEHOLDER not in entry["value"]]
    braces = any(_BRACE in word for word in command)
    around = _once(_container, main["image"], env, main.get("resources", {}), braces)
    return {"command": list(map(for_driver, command)), **around}


def _once(make: Callable[..., Data], *said: Any) -> Data:
    """What is made of plain data, one map for each content."""
    content = content_of(said)
    return make(*said) if content is None else _message_of(make, content)


@lru_cache(maxsize=2048)
def _message_of(make: Callable[..., Data], content: bytes) -> Data:
    return make(*data_of(content))


def _container(image: str, env: list[dict[str, str]], resources: dict[str, dict[str, str]], braces: bool) -> Data:
    if braces or any(_BRACE in entry["value"] for entry in env):
        env = [{"name": BRACE, "value": "{"}, *env]
    variables = [
        {"name": entry["name"], **({"value": for_driver(entry["value"])} if entry["value"] else {})} for entry in env
    ]
    asked = {"resources": _resources(resources)} if resources else {}
    return {**_nonempty({"env": variables, "image": for_driver(image)}), **asked}


def _nonempty(fields: Mapping[str, Any]) -> Data:
    """The fields that say something, in order. Nothing said is what protobuf leaves out as well."""
    found: Data = in_order({key: value for key, value in fields.items() if value})
    return found


def _double(amount: str) -> float:
    """An amount as a float, and the largest one of an amount that is larger."""
    return min(Quantity(amount).nano, int(sys.float_info.max)) / NANO


def _resources(resources: dict[str, dict[str, str]]) -> Data:
    """Amounts twice: as text, which the driver reads, and as the older floats, which other readers of the IR know."""
    spec: Data = {}
    for side in ("Request", "Limit"):
        amounts = resources.get(f"{side.lower()}s", {})
        if "cpu" in amounts:
            spec |= {f"cpu{side}": _double(amounts["cpu"]), f"resourceCpu{side}": amounts["cpu"]}
        if "memory" in amounts:
            gigabytes = _double(amounts["memory"]) / _GIGA
            spec |= {f"memory{side}": gigabytes, f"resourceMemory{side}": amounts["memory"]}
    devices = [(name, count) for name, count in resources.get("limits", {}).items() if "/" in name]
    for name, count in devices[:1]:  # the GPU comes first, and KFP knows one kind
        spec["accelerator"] = _nonempty(
            {"type": name, "count": str(int(count)), "resourceType": name, "resourceCount": count}
        )
    return _nonempty(spec)


_OF_SPEC = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "volumes",
    "imagePullSecrets",
    "activeDeadlineSeconds",
    "securityContext",
)
_OF_MAIN = ("volumeMounts", "imagePullPolicy")


def executor_config(pod: dict[str, Any], claims: Mapping[str, Any]) -> Data:
    """The KubernetesExecutorConfig of a pod. `claims`: where the name of each run's claim comes from, by volume."""
    main, spec, metadata = pod["spec"]["containers"][0], pod["spec"], pod.get("metadata", {})
    env = [entry for entry in main.get("env", ()) if "valueFrom" in entry]
    said = {key: spec[key] for key in _OF_SPEC if key in spec}
    config = _once(_config, said, {key: main[key] for key in _OF_MAIN if key in main}, env, dict(claims))
    # Argo puts labels and annotations on the pod by itself: the driver, and its kubelet, have no part in it.
    shown = _nonempty({key: metadata.get(key) for key in ("annotations", "labels")})
    return dict(sorted({**config, "podMetadata": shown}.items())) if shown else config


def _config(spec: Data, main: Data, env: list[Data], claims: Mapping[str, Any]) -> Data:
    node = spec.get("affinity", {}).get("nodeAffinity", {})
    required = node.get(REQUIRED_AFFINITY, {}).get("nodeSelectorTerms", [])
    preferred = node.get(PREFERRED_AFFINITY, [])
    tolerations = spec.get("tolerations", [])
    secrets = [secret["name"] for secret in spec.get("imagePullSecrets", [])]
    deadline, security = spec.get("activeDeadlineSeconds"), spec.get("securityContext", {})
    config = {
        "nodeSelector": {"labels": spec["nodeSelector"]} if spec.get("nodeSelector") else None,
        "tolerations": [_nonempty(_integers_as_text(each, "tolerationSeconds")) for each in tolerations],
        "nodeAffinity": [
            *map(_term, required),
            *({**_term(each["preference"]), "weight": each["weight"]} for each in preferred),
        ],
        **_volumes(spec, main, claims),
        **_environment(env),
        "imagePullSecret": [{"secretName": name, "secretNameParameter": fixed_value(name)} for name in secrets],
        "imagePullPolicy": main.get("imagePullPolicy"),
        "activeDeadlineSeconds": str(deadline) if deadline else None,
        "securityContext": _integers_as_text(
            {key: security[key] for key in ("runAsUser", "runAsGroup", "runAsNonRoot") if key in security},
            "runAsUser",
            "runAsGroup",
        ),
    }
    safe: Data = in_order(each_for_driver(_nonempty(config)))
    return safe


def _integers_as_text(fields: Mapping[str, Any], *large: str) -> Data:
    """Fields of which those that are `large`, of 64 bits, are text in a message's JSON form."""
    return {key: str(value) if key in large else value for key, value in fields.items() if value is not None}


def _term(term: dict[str, Any]) -> Data:
    found = {key: term[key] for key in ("matchExpressions", "matchFields") if key in term}
    return {key: [_nonempty(requirement) for requirement in items] for key, items in found.items() if items}


def _volumes(spec: Data, main: Data, claims: Mapping[str, Any]) -> dict[str, list[Data]]:
    sources = {volume["name"]: volume for volume in spec.get("volumes", [])}
    found: dict[str, list[Data]] = {}
    for mount in main.get("volumeMounts", []):
        volume, path = sources[mount["name"]], mount["mountPath"]
        if "persistentVolumeClaim" in volume:
            field, made = "pvcMount", _claim(volume, mount, claims)
        elif "emptyDir" in volume:
            field, source = "emptyDirMounts", volume["emptyDir"]
            own = {key: source[key] for key in ("medium", "sizeLimit") if source.get(key) is not None}
            made = {"volumeName": volume["name"], "mountPath": path, **own}
        elif "ephemeral" in volume:
            field, template = "genericEphemeralVolume", volume["ephemeral"].get("volumeClaimTemplate", {})
            made = {"volumeName": volume["name"], "mountPath": path, **_template(template)}
        elif kind := next((each for each in ("secret", "configMap") if each in volume), None):
            field, source = f"{kind}AsVolume", volume[kind]
            name = source["secretName" if kind == "secret" else "name"]
            made = {"mountPath": path, **_object_fields(kind, name, source)}
        else:
            continue
        found.setdefault(field, []).append(made)
    return found


def _template(template: Data) -> Data:
    """The claim of an ephemeral volume; without a class, the cluster's default one."""
    spec, metadata = template.get("spec", {}), template.get("metadata", {})
    storage_class = spec.get("storageClassName")
    fields = _nonempty(
        {
            "accessModes": spec.get("accessModes"),
            "size": spec.get("resources", {}).get("requests", {}).get("storage"),
            "storageClassName": storage_class,
            "defaultStorageClass": storage_class is None,
        }
    )
    return {**fields, "metadata": _nonempty({key: metadata.get(key) for key in ("labels", "annotations")})}


def _object_fields(kind: str, name: str, source: Data) -> Data:
    """The fields that name a Secret or a ConfigMap, and whether it may be missing."""
    optional = bool(source.get("optional", False))
    return {f"{kind}Name": name, f"{kind}NameParameter": fixed_value(name), "optional": optional}


def _claim(volume: Data, mount: Data, claims: Mapping[str, Any]) -> Data:
    if volume["name"] in claims:
        given = {"componentInputParameter": claims[volume["name"]]}
        name = {**given, "pvcNameParameter": given}
    else:
        known = volume["persistentVolumeClaim"]["claimName"]
        name = {"constant": known, "pvcNameParameter": fixed_value(known)}
    return _nonempty({"mountPath": mount["mountPath"], "subPath": mount.get("subPath"), **name})


def _environment(env: list[Data]) -> dict[str, list[Data]]:
    found: dict[str, list[Data]] = {}
    for entry in env:
        source, name = entry["valueFrom"], entry["name"]
        if "fieldRef" in source:
            made = {"name": name, "fieldPath": source["fieldRef"]["fieldPath"]}
            found.setdefault("fieldPathAsEnv", []).append(made)
        for kind in ("secret", "configMap"):
            ref = source.get(f"{kind}KeyRef")
            if ref is not None:
                keys = [{f"{kind}Key": ref["key"], "envVar": name}]
                made = {"keyToEnv": keys, **_object_fields(kind, ref["name"], ref)}
                found.setdefault(f"{kind}AsEnv", []).append(made)
    return found


def claim_channels(pod: dict[str, Any], new_claims: Mapping[str, str]) -> dict[str, ClaimRef]:
    """The run's claims that a pod mounts, by volume name. `new_claims`: volume name of each claim of the pipeline."""
    volumes = {volume["name"] for volume in pod["spec"].get("volumes", [])}
    return {volume: ClaimRef(claim) for claim, volume in new_claims.items() if volume in volumes}
