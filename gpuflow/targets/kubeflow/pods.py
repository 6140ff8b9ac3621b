"""A pod as KFP's messages: its main container, and its other parts as Kubernetes executor config.

The executor config has placement, metadata, volumes, secrets, identity and timeout.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from google.protobuf import json_format

from gpuflow.core.caching import content_of, data_of
from gpuflow.pod.placement import PREFERRED_AFFINITY, REQUIRED_AFFINITY
from gpuflow.quantity import NANO, Quantity
from gpuflow.targets.kubeflow.containers import NO_OUTPUTS, PLACEHOLDER, StepOutputs, command_words
from gpuflow.targets.kubeflow.messages import constant, ir, message_dict, platform
from gpuflow.targets.kubeflow.references import BRACE, ClaimRef, each_for_driver, for_driver

_Container: Any = ir.PipelineDeploymentConfig.PipelineContainerSpec
_Resources: Any = _Container.ResourceSpec
_GIGA = 10**9


def container_spec(main: dict[str, Any], *, outputs: StepOutputs = NO_OUTPUTS) -> Any:
    """The typed container spec. `outputs`: what KFP's launcher looks for."""
    command = command_words(main, outputs)
    spec = _container_message(*_container_settings(main, command))
    spec.command.extend(map(for_driver, command))
    return spec


def plain_container(main: dict[str, Any], *, outputs: StepOutputs = NO_OUTPUTS) -> dict[str, Any]:
    """The same as plain data. Many steps have all but the command alike: it is made once for each content."""
    command = command_words(main, outputs)
    around = _plain(_container_message, _container_settings(main, command))
    return dict(sorted({"command": list(map(for_driver, command)), **around}.items()))


_BRACE = f"$({BRACE})"


def _container_settings(main: dict[str, Any], command: list[str]) -> tuple[str, list[Any], dict[str, Any], bool]:
    """What a container has beside its command: image, variables, resources; and whether the command has braces."""
    env = [entry for entry in main.get("env", ()) if "value" in entry and PLACEHOLDER not in entry["value"]]
    return main["image"], env, main.get("resources", {}), any(_BRACE in word for word in command)


def _plain(message: Callable[..., Any], said: tuple[Any, ...]) -> dict[str, Any]:
    content = content_of(said)
    return message_dict(message(*said)) if content is None else _plain_once(message, content)


@lru_cache(maxsize=2048)
def _plain_once(message: Callable[..., Any], content: bytes) -> dict[str, Any]:
    return message_dict(message(*data_of(content)))


def _container_message(
    image: str, env: list[dict[str, str]], resources: dict[str, dict[str, str]], braces: bool
) -> Any:
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


Config = Any
"""A KubernetesExecutorConfig."""


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


def executor_config(pod: dict[str, Any], claims: Mapping[str, Any]) -> Config:
    """The typed config of a pod. `claims`: where the name of each run's claim comes from, by volume name."""
    config = _config_message(*_settings(pod["spec"], claims))
    # Argo puts labels and annotations on the pod by itself: the driver, and its kubelet, have no part in it.
    metadata = pod.get("metadata", {})
    config.pod_metadata.labels.update(metadata.get("labels", {}))
    config.pod_metadata.annotations.update(metadata.get("annotations", {}))
    return config


def plain_config(pod: dict[str, Any], claims: Mapping[str, Any]) -> dict[str, Any]:
    """The same as plain data. Most pods of a pipeline have all but the metadata alike: it is made once."""
    config = _plain(_config_message, _settings(pod["spec"], claims))
    given = pod.get("metadata", {})
    metadata = {key: dict(sorted(given[key].items())) for key in ("annotations", "labels") if given.get(key)}
    return dict(sorted({**config, "podMetadata": metadata}.items())) if metadata else config


def _settings(
    spec: dict[str, Any], claims: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """All that a config says but the metadata."""
    main = spec["containers"][0]
    said = {key: spec[key] for key in _OF_SPEC if key in spec}
    own = {key: main[key] for key in _OF_MAIN if key in main}
    return said, own, [entry for entry in main.get("env", ()) if "valueFrom" in entry], dict(claims)


def _config_message(
    spec: dict[str, Any], main: dict[str, Any], env: list[dict[str, Any]], claims: Mapping[str, Any]
) -> Config:
    config = platform.KubernetesExecutorConfig()
    _placement(config, spec)
    _volumes(config, spec, main, claims)
    _environment(config, env)
    for secret in spec.get("imagePullSecrets", []):
        config.image_pull_secret.add(secret_name=secret["name"], secret_name_parameter=fixed_value(secret["name"]))
    config.image_pull_policy = main.get("imagePullPolicy", "")
    config.active_deadline_seconds = spec.get("activeDeadlineSeconds", 0)
    _identity(config, spec.get("securityContext", {}))
    if "$" in str(config):
        safe = each_for_driver(json_format.MessageToDict(config))
        config = json_format.ParseDict(safe, platform.KubernetesExecutorConfig())
    return config


def fixed_value(text: str) -> Any:
    """A value that is known now, as the backend wants it: in the form of a task's input."""
    return ir.TaskInputsSpec.InputParameterSpec(runtime_value=ir.ValueOrRuntimeParameter(constant=constant(text)))


def _placement(config: Config, spec: dict[str, Any]) -> None:
    if "nodeSelector" in spec:
        config.node_selector.labels.update(spec["nodeSelector"])
    for toleration in spec.get("tolerations", []):
        seconds = toleration.get("tolerationSeconds")
        fields = {key: toleration[key] for key in ("key", "operator", "value", "effect") if key in toleration}
        config.tolerations.add(**fields, **({} if seconds is None else {"toleration_seconds": seconds}))
    node = spec.get("affinity", {}).get("nodeAffinity", {})
    for term in node.get(REQUIRED_AFFINITY, {}).get("nodeSelectorTerms", []):
        config.node_affinity.add(**_term(term))
    for preferred in node.get(PREFERRED_AFFINITY, []):
        config.node_affinity.add(**_term(preferred["preference"]), weight=preferred["weight"])


def _term(term: dict[str, Any]) -> dict[str, Any]:
    return {
        ours: [platform.SelectorRequirement(**requirement) for requirement in term[theirs]]
        for ours, theirs in (("match_expressions", "matchExpressions"), ("match_fields", "matchFields"))
        if theirs in term
    }


def _volumes(config: Config, spec: dict[str, Any], main: dict[str, Any], claims: Mapping[str, Any]) -> None:
    sources = {volume["name"]: volume for volume in spec.get("volumes", [])}
    for mount in main.get("volumeMounts", []):
        volume, path = sources[mount["name"]], mount["mountPath"]
        if "persistentVolumeClaim" in volume:
            _claim(config, volume, mount, claims)
        elif "emptyDir" in volume:
            fields = {"medium": volume["emptyDir"].get("medium"), "size_limit": volume["emptyDir"].get("sizeLimit")}
            given = {key: value for key, value in fields.items() if value is not None}
            config.empty_dir_mounts.add(volume_name=volume["name"], mount_path=path, **given)
        elif "ephemeral" in volume:
            template = volume["ephemeral"].get("volumeClaimTemplate", {})
            config.generic_ephemeral_volume.add(volume_name=volume["name"], mount_path=path, **_template(template))
        elif "secret" in volume:
            source = volume["secret"]
            config.secret_as_volume.add(mount_path=path, **_object_fields("secret", source["secretName"], source))
        elif "configMap" in volume:
            source = volume["configMap"]
            config.config_map_as_volume.add(mount_path=path, **_object_fields("config_map", source["name"], source))


def _template(template: dict[str, Any]) -> dict[str, Any]:
    """The claim of an ephemeral volume; without a class, the cluster's default one."""
    spec, metadata = template.get("spec", {}), template.get("metadata", {})
    storage_class = spec.get("storageClassName")
    said = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    fields: dict[str, Any] = {
        "access_modes": spec.get("accessModes", []),
        "size": spec.get("resources", {}).get("requests", {}).get("storage", ""),
        "metadata": platform.PodMetadata(**said),
    }
    named = {"default_storage_class": True} if storage_class is None else {"storage_class_name": storage_class}
    return fields | named


def _object_fields(kind: str, name: str, source: dict[str, Any]) -> dict[str, Any]:
    """The fields that name a Secret or a ConfigMap, and whether it may be missing."""
    optional = bool(source.get("optional", False))
    return {f"{kind}_name": name, f"{kind}_name_parameter": fixed_value(name), "optional": optional}


def _claim(config: Config, volume: dict[str, Any], mount: dict[str, Any], claims: Mapping[str, Any]) -> None:
    entry = config.pvc_mount.add(mount_path=mount["mountPath"], sub_path=mount.get("subPath", ""))
    if volume["name"] in claims:
        name = claims[volume["name"]]
        entry.component_input_parameter = name
        entry.pvc_name_parameter.component_input_parameter = name
    else:
        entry.constant = volume["persistentVolumeClaim"]["claimName"]
        entry.pvc_name_parameter.CopyFrom(fixed_value(entry.constant))


def _environment(config: Config, env: list[dict[str, Any]]) -> None:
    for entry in env:
        source = entry["valueFrom"]
        if "secretKeyRef" in source:
            ref = source["secretKeyRef"]
            keys = [platform.SecretAsEnv.SecretKeyToEnvMap(secret_key=ref["key"], env_var=entry["name"])]
            config.secret_as_env.add(key_to_env=keys, **_object_fields("secret", ref["name"], ref))
        elif "fieldRef" in source:
            config.field_path_as_env.add(name=entry["name"], field_path=source["fieldRef"]["fieldPath"])
        elif "configMapKeyRef" in source:
            ref = source["configMapKeyRef"]
            pairs = [platform.ConfigMapAsEnv.ConfigMapKeyToEnvMap(config_map_key=ref["key"], env_var=entry["name"])]
            config.config_map_as_env.add(key_to_env=pairs, **_object_fields("config_map", ref["name"], ref))


def _identity(config: Config, security: dict[str, Any]) -> None:
    for field, key in (
        ("run_as_user", "runAsUser"),
        ("run_as_group", "runAsGroup"),
        ("run_as_non_root", "runAsNonRoot"),
    ):
        if key in security:
            setattr(config.security_context, field, security[key])


def claim_channels(pod: dict[str, Any], new_claims: Mapping[str, str]) -> dict[str, ClaimRef]:
    """The run's claims that a pod mounts, by volume name. `new_claims`: volume name of each claim of the pipeline."""
    volumes = {volume["name"] for volume in pod["spec"].get("volumes", [])}
    return {volume: ClaimRef(claim) for claim, volume in new_claims.items() if volume in volumes}
