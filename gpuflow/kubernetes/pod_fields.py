"""The fields of a pod: what each holds, and how a strategic merge patch treats it.

One line for each type, its fields by name. What follows a name is what the field holds: text when nothing does, `int`,
`bool`, `quantity`, `port` (a number or a name), another type, `[…]` a list, `{…}` a map from text. `!` is a field that
Kubernetes always writes. Lists `by` a key are merged element by element, those that are `joined` become one set, and
every other list is replaced as a whole.

Mirrors the fields and patch tags of k8s.io/api/core/v1.PodTemplateSpec, Kubernetes v1.36.3.

A strategic merge patch of a pod: maps are merged, lists by their merge keys, `null` takes away.

Mirrors k8s.io/apimachinery/pkg/util/strategicpatch.StrategicMergeMapPatch, Kubernetes v1.36.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

_TABLE = """
AWSElasticBlockStoreVolumeSource: volumeID!, fsType, partition int, readOnly bool
Affinity: nodeAffinity NodeAffinity, podAffinity PodAffinity, podAntiAffinity PodAntiAffinity
AppArmorProfile: type!, localhostProfile
AzureDiskVolumeSource: diskName!, diskURI!, cachingMode, fsType, readOnly bool, kind
AzureFileVolumeSource: secretName!, shareName!, readOnly bool
CSIVolumeSource: driver!, readOnly bool, fsType, volumeAttributes {text}, nodePublishSecretRef LocalObjectReference
Capabilities: add [text], drop [text]
CephFSVolumeSource: monitors! [text], path, user, secretFile, secretRef LocalObjectReference, readOnly bool
CinderVolumeSource: volumeID!, fsType, readOnly bool, secretRef LocalObjectReference
ClusterTrustBundleProjection: name, signerName, labelSelector LabelSelector, optional bool, path!
ConfigMapEnvSource: name, optional bool
ConfigMapKeySelector: name, key!, optional bool
ConfigMapProjection: name, items [KeyToPath], optional bool
ConfigMapVolumeSource: name, items [KeyToPath], defaultMode int, optional bool
Container: name!, image, command [text], args [text], workingDir, ports [ContainerPort] by containerPort, envFrom
    [EnvFromSource], env [EnvVar] by name, resources ResourceRequirements, resizePolicy [ContainerResizePolicy],
    restartPolicy, restartPolicyRules [ContainerRestartRule], volumeMounts [VolumeMount] by mountPath, volumeDevices
    [VolumeDevice] by devicePath, livenessProbe Probe, readinessProbe Probe, startupProbe Probe, lifecycle
    Lifecycle, terminationMessagePath, terminationMessagePolicy, imagePullPolicy, securityContext SecurityContext,
    stdin bool, stdinOnce bool, tty bool
ContainerPort: name, hostPort int, containerPort! int, protocol, hostIP
ContainerResizePolicy: resourceName!, restartPolicy!
ContainerRestartRule: action, exitCodes ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes: operator, values [int]
DownwardAPIProjection: items [DownwardAPIVolumeFile]
DownwardAPIVolumeFile: path!, fieldRef ObjectFieldSelector, resourceFieldRef ResourceFieldSelector, mode int
DownwardAPIVolumeSource: items [DownwardAPIVolumeFile], defaultMode int
EmptyDirVolumeSource: medium, sizeLimit quantity
EnvFromSource: prefix, configMapRef ConfigMapEnvSource, secretRef SecretEnvSource
EnvVar: name!, value, valueFrom EnvVarSource
EnvVarSource: fieldRef ObjectFieldSelector, resourceFieldRef ResourceFieldSelector, configMapKeyRef
    ConfigMapKeySelector, secretKeyRef SecretKeySelector, fileKeyRef FileKeySelector
EphemeralVolumeSource: volumeClaimTemplate PersistentVolumeClaimTemplate
ExecAction: command [text]
FCVolumeSource: targetWWNs [text], lun int, fsType, readOnly bool, wwids [text]
FileKeySelector: volumeName!, path!, key!, optional bool
FlexVolumeSource: driver!, fsType, secretRef LocalObjectReference, readOnly bool, options {text}
FlockerVolumeSource: datasetName, datasetUUID
GCEPersistentDiskVolumeSource: pdName!, fsType, partition int, readOnly bool
GRPCAction: port! int, service!
GitRepoVolumeSource: repository!, revision, directory
GlusterfsVolumeSource: endpoints!, path!, readOnly bool
HTTPGetAction: path, port! port, host, scheme, httpHeaders [HTTPHeader]
HTTPHeader: name!, value!
HostAlias: ip!, hostnames [text]
HostPathVolumeSource: path!, type
ISCSIVolumeSource: targetPortal!, iqn!, lun! int, iscsiInterface, fsType, readOnly bool, portals [text],
    chapAuthDiscovery bool, chapAuthSession bool, secretRef LocalObjectReference, initiatorName
ImageVolumeSource: reference, pullPolicy
KeyToPath: key!, path!, mode int
LabelSelector: matchLabels {text}, matchExpressions [LabelSelectorRequirement]
LabelSelectorRequirement: key!, operator!, values [text]
Lifecycle: postStart LifecycleHandler, preStop LifecycleHandler, stopSignal
LifecycleHandler: exec ExecAction, httpGet HTTPGetAction, tcpSocket TCPSocketAction, sleep SleepAction
LocalObjectReference: name
NFSVolumeSource: server!, path!, readOnly bool
NodeAffinity: requiredDuringSchedulingIgnoredDuringExecution NodeSelector,
    preferredDuringSchedulingIgnoredDuringExecution [PreferredSchedulingTerm]
NodeSelector: nodeSelectorTerms! [NodeSelectorTerm]
NodeSelectorRequirement: key!, operator!, values [text]
NodeSelectorTerm: matchExpressions [NodeSelectorRequirement], matchFields [NodeSelectorRequirement]
ObjectFieldSelector: apiVersion, fieldPath!
ObjectMeta: name, generateName, namespace, labels {text}, annotations {text}, ownerReferences [any] by uid,
    finalizers [text] joined
PersistentVolumeClaimSpec: accessModes [text], selector LabelSelector, resources VolumeResourceRequirements,
    volumeName, storageClassName, volumeMode, dataSource TypedLocalObjectReference, dataSourceRef
    TypedObjectReference, volumeAttributesClassName
PersistentVolumeClaimTemplate: metadata ObjectMeta, spec! PersistentVolumeClaimSpec
PersistentVolumeClaimVolumeSource: claimName!, readOnly bool
PhotonPersistentDiskVolumeSource: pdID!, fsType
PodAffinity: requiredDuringSchedulingIgnoredDuringExecution [PodAffinityTerm],
    preferredDuringSchedulingIgnoredDuringExecution [WeightedPodAffinityTerm]
PodAffinityTerm: labelSelector LabelSelector, namespaces [text], topologyKey!, namespaceSelector LabelSelector,
    matchLabelKeys [text], mismatchLabelKeys [text]
PodAntiAffinity: requiredDuringSchedulingIgnoredDuringExecution [PodAffinityTerm],
    preferredDuringSchedulingIgnoredDuringExecution [WeightedPodAffinityTerm]
PodCertificateProjection: signerName, keyType, maxExpirationSeconds int, credentialBundlePath, keyPath,
    certificateChainPath, userAnnotations {text}
PodDNSConfig: nameservers [text], searches [text], options [PodDNSConfigOption]
PodDNSConfigOption: name, value
PodOS: name!
PodReadinessGate: conditionType!
PodResourceClaim: name!, resourceClaimName, resourceClaimTemplateName
PodSchedulingGate: name!
PodSchedulingGroup: podGroupName
PodSecurityContext: seLinuxOptions SELinuxOptions, windowsOptions WindowsSecurityContextOptions, runAsUser int,
    runAsGroup int, runAsNonRoot bool, supplementalGroups [int], supplementalGroupsPolicy, fsGroup int, sysctls
    [Sysctl], fsGroupChangePolicy, seccompProfile SeccompProfile, appArmorProfile AppArmorProfile,
    seLinuxChangePolicy
PodSpec: volumes [Volume] by name, initContainers [Container] by name, containers! [Container] by name,
    ephemeralContainers [any] by name, restartPolicy, terminationGracePeriodSeconds int, activeDeadlineSeconds int,
    dnsPolicy, nodeSelector {text}, serviceAccountName, serviceAccount, automountServiceAccountToken bool, nodeName,
    hostNetwork bool, hostPID bool, hostIPC bool, shareProcessNamespace bool, securityContext PodSecurityContext,
    imagePullSecrets [LocalObjectReference] by name, hostname, subdomain, affinity Affinity, schedulerName,
    tolerations [Toleration], hostAliases [HostAlias] by ip, priorityClassName, priority int, dnsConfig
    PodDNSConfig, readinessGates [PodReadinessGate], runtimeClassName, enableServiceLinks bool, preemptionPolicy,
    overhead {quantity}, topologySpreadConstraints [TopologySpreadConstraint] by topologyKey, setHostnameAsFQDN
    bool, os PodOS, hostUsers bool, schedulingGates [PodSchedulingGate] by name, resourceClaims [PodResourceClaim]
    by name, resources ResourceRequirements, hostnameOverride, schedulingGroup PodSchedulingGroup
PodTemplateSpec: metadata ObjectMeta, spec PodSpec
PortworxVolumeSource: volumeID!, fsType, readOnly bool
PreferredSchedulingTerm: weight! int, preference! NodeSelectorTerm
Probe: exec ExecAction, httpGet HTTPGetAction, tcpSocket TCPSocketAction, grpc GRPCAction, initialDelaySeconds int,
    timeoutSeconds int, periodSeconds int, successThreshold int, failureThreshold int, terminationGracePeriodSeconds
    int
ProjectedVolumeSource: sources! [VolumeProjection], defaultMode int
QuobyteVolumeSource: registry!, volume!, readOnly bool, user, group, tenant
RBDVolumeSource: monitors! [text], image!, fsType, pool, user, keyring, secretRef LocalObjectReference, readOnly
    bool
ResourceClaim: name!, request
ResourceFieldSelector: containerName, resource!, divisor quantity
ResourceRequirements: limits {quantity}, requests {quantity}, claims [ResourceClaim]
SELinuxOptions: user, role, type, level
ScaleIOVolumeSource: gateway!, system!, secretRef! LocalObjectReference, sslEnabled bool, protectionDomain,
    storagePool, storageMode, volumeName, fsType, readOnly bool
SeccompProfile: type!, localhostProfile
SecretEnvSource: name, optional bool
SecretKeySelector: name, key!, optional bool
SecretProjection: name, items [KeyToPath], optional bool
SecretVolumeSource: secretName, items [KeyToPath], defaultMode int, optional bool
SecurityContext: capabilities Capabilities, privileged bool, seLinuxOptions SELinuxOptions, windowsOptions
    WindowsSecurityContextOptions, runAsUser int, runAsGroup int, runAsNonRoot bool, readOnlyRootFilesystem bool,
    allowPrivilegeEscalation bool, procMount, seccompProfile SeccompProfile, appArmorProfile AppArmorProfile
ServiceAccountTokenProjection: audience, expirationSeconds int, path!
SleepAction: seconds! int
StorageOSVolumeSource: volumeName, volumeNamespace, fsType, readOnly bool, secretRef LocalObjectReference
Sysctl: name!, value!
TCPSocketAction: port! port, host
Toleration: key, operator, value, effect, tolerationSeconds int
TopologySpreadConstraint: maxSkew! int, topologyKey!, whenUnsatisfiable!, labelSelector LabelSelector, minDomains
    int, nodeAffinityPolicy, nodeTaintsPolicy, matchLabelKeys [text]
TypedLocalObjectReference: apiGroup!, kind!, name!
TypedObjectReference: apiGroup!, kind!, name!, namespace
Volume: name!, hostPath HostPathVolumeSource, emptyDir EmptyDirVolumeSource, gcePersistentDisk
    GCEPersistentDiskVolumeSource, awsElasticBlockStore AWSElasticBlockStoreVolumeSource, gitRepo
    GitRepoVolumeSource, secret SecretVolumeSource, nfs NFSVolumeSource, iscsi ISCSIVolumeSource, glusterfs
    GlusterfsVolumeSource, persistentVolumeClaim PersistentVolumeClaimVolumeSource, rbd RBDVolumeSource, flexVolume
    FlexVolumeSource, cinder CinderVolumeSource, cephfs CephFSVolumeSource, flocker FlockerVolumeSource, downwardAPI
    DownwardAPIVolumeSource, fc FCVolumeSource, azureFile AzureFileVolumeSource, configMap ConfigMapVolumeSource,
    vsphereVolume VsphereVirtualDiskVolumeSource, quobyte QuobyteVolumeSource, azureDisk AzureDiskVolumeSource,
    photonPersistentDisk PhotonPersistentDiskVolumeSource, projected ProjectedVolumeSource, portworxVolume
    PortworxVolumeSource, scaleIO ScaleIOVolumeSource, storageos StorageOSVolumeSource, csi CSIVolumeSource,
    ephemeral EphemeralVolumeSource, image ImageVolumeSource
VolumeDevice: name!, devicePath!
VolumeMount: name!, readOnly bool, recursiveReadOnly, mountPath!, subPath, mountPropagation, subPathExpr
VolumeProjection: secret SecretProjection, downwardAPI DownwardAPIProjection, configMap ConfigMapProjection,
    serviceAccountToken ServiceAccountTokenProjection, clusterTrustBundle ClusterTrustBundleProjection,
    podCertificate PodCertificateProjection
VolumeResourceRequirements: limits {quantity}, requests {quantity}
VsphereVirtualDiskVolumeSource: volumePath!, fsType, storagePolicyName, storagePolicyID
WeightedPodAffinityTerm: weight! int, podAffinityTerm! PodAffinityTerm
WindowsSecurityContextOptions: gmsaCredentialSpecName, gmsaCredentialSpec, runAsUserName, hostProcess bool
"""
_ENTRY = re.compile(r"(\w+)(!?)(?: ([\[{]?)(\w+)[\]}]?)?(?: (by) (\w+)| (joined))?")
SCALARS = ("text", "int", "bool", "quantity", "port", "any")


class Field(NamedTuple):
    name: str
    type: str
    """A scalar, or the name of another type; of a list or a map, what is in it."""
    holds: str = "one"
    """`one`, `list` or `map`."""
    merge_key: str | None = None
    """By which key of its elements a list is merged."""
    is_set: bool = False
    """A list of texts that a patch adds to."""
    is_required: bool = False


@cache
def fields_of(type_name: str) -> dict[str, Field]:
    """The fields of a type by name; none of a scalar."""
    return {} if type_name in SCALARS else {field.name: field for field in _read_fields(_types()[type_name])}


@cache
def _types() -> dict[str, str]:
    lines = re.sub(r"\n +", " ", _TABLE.strip()).splitlines()
    return {name: fields for name, _, fields in (line.partition(": ") for line in lines)}


def _read_fields(text: str) -> list[Field]:
    found = []
    for entry in text.split(", "):
        match = _ENTRY.fullmatch(entry)
        assert match is not None, entry
        name, required, opening, type_name, _, key, joined = match.groups()
        holds = {"[": "list", "{": "map"}.get(opening or "", "one")
        found.append(Field(name, type_name or "text", holds, key, bool(joined), bool(required)))
    return found


@cache
def places_of(word: str) -> tuple[str, ...]:
    """The types that have a field of this name, in the order of the table."""
    return tuple(name for name in _types() if word in fields_of(name))


DIRECTIVE: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
ELEMENT_ORDER: Final = "$setElementOrder/"
DELETE_FROM: Final = "$deleteFromPrimitiveList/"
DIRECTIVES: Final = (DIRECTIVE, RETAIN_KEYS, ELEMENT_ORDER, DELETE_FROM)
"""How the keys of all of them begin."""
Map = dict[str, Any]
Path = tuple[str | int, ...]


class BadPatch(ValueError):
    """A patch that cannot be applied: why, and the place in it."""

    def __init__(self, reason: str, at: Path = ()) -> None:
        super().__init__(reason)
        self.reason, self.at = reason, at


def strategic_merge_map_patch(
    original: Mapping[str, Any], patch: Mapping[str, Any], type_name: str = "PodTemplateSpec"
) -> Map:
    """The object with the patch applied; neither argument is changed. Raises `BadPatch`."""
    return _merge_map(_deep_copy(original), _deep_copy(patch), type_name, ())


def _deep_copy(value: Any) -> Any:
    """A copy in which no two parts are one object: a change of one container must not change another."""
    if isinstance(value, Mapping):
        return {key: _deep_copy(item) for key, item in value.items()}
    return [_deep_copy(item) for item in value] if isinstance(value, list | tuple) else value


def _merge_map(original: Map, patch: Map, type_name: str, at: Path) -> Map:
    if DIRECTIVE in patch:
        directive = patch.pop(DIRECTIVE)
        if directive == "replace":
            return patch
        if directive == "delete":
            return {}
        raise BadPatch(f"$patch is replace or delete, not {directive!r:.40}", (*at, DIRECTIVE))
    _apply_retain_keys_directive(original, patch, at)
    _merge_patch_into_original(original, patch, type_name, at)
    for key, value in patch.items():
        field = _field(type_name, key.removeprefix(DELETE_FROM))
        if key.startswith(DELETE_FROM):
            name = key.removeprefix(DELETE_FROM)
            if not isinstance(value, list):
                raise BadPatch(f"{DELETE_FROM}{name} is a list", (*at, key))
            if isinstance(original.get(name), list):
                original[name] = [item for item in original[name] if item not in value]
        elif value is None:
            original.pop(key, None)
        elif isinstance(original.get(key), dict) and isinstance(value, dict):
            original[key] = _merge_map(original[key], value, field.type, (*at, key))
        elif isinstance(original.get(key), list) and isinstance(value, list):
            original[key] = _merge_slice(original[key], value, field, (*at, key))
        else:
            kept = _remove_directives(_discard_nulls(value))
            if kept is _NOTHING:
                original.pop(key, None)
            else:
                original[key] = kept
    return original


def _field(type_name: str, key: str) -> Field:
    """How a field is treated; below a map of texts everything is plain."""
    return fields_of(type_name).get(key) or Field(key, "any")


def _apply_retain_keys_directive(original: Map, patch: Map, at: Path) -> None:
    if RETAIN_KEYS not in patch:
        return
    kept = patch.pop(RETAIN_KEYS)
    if not isinstance(kept, list):
        raise BadPatch(f"{RETAIN_KEYS} is a list of keys", (*at, RETAIN_KEYS))
    for key, value in patch.items():
        if value is not None and not key.startswith((DELETE_FROM, ELEMENT_ORDER)) and key not in kept:
            raise BadPatch(f"{RETAIN_KEYS} does not name {key}, which stands beside it", (*at, RETAIN_KEYS))
    for key in [key for key in original if key not in kept]:
        del original[key]


def _merge_patch_into_original(original: Map, patch: Map, type_name: str, at: Path) -> None:
    """Lists whose order the patch sets are merged here, and taken out of the patch."""
    for directive in [key for key in patch if key.startswith(ELEMENT_ORDER)]:
        wanted, name = patch.pop(directive), directive.removeprefix(ELEMENT_ORDER)
        field = _field(type_name, name)
        if not isinstance(wanted, list):
            raise BadPatch(f"{directive} is a list", (*at, directive))
        if name not in fields_of(type_name):
            raise BadPatch(f"{directive} orders a field that is not here", (*at, directive))
        if field.merge_key is None and field.type not in SCALARS:
            raise BadPatch(f"{name} is replaced as a whole, so its elements have no order to set", (*at, directive))
        own, new = original.get(name), patch.get(name)
        if any(name in part and not isinstance(part[name], list) for part in (original, patch)):
            raise BadPatch(f"{name} is a list", (*at, name))
        _validate_set_order(new or [], wanted, field, (*at, directive))
        if new is None and own is None:
            continue
        if not own and not new:
            raise BadPatch(f"{directive} orders a list without elements", (*at, directive))
        if new is None:
            result = list(own or [])
        elif own is None:
            result = _remove_directives(new)
        else:
            result = _merge_slice(own, new, field, (*at, name))
        patch.pop(name, None)
        original[name] = _normalize_element_order(result, wanted, own or [], field.merge_key, (*at, name))


def _validate_set_order(new: list[Any], wanted: list[Any], field: Field, at: Path) -> None:
    """The patch lists its elements in the order that it sets."""
    if not new or not wanted:
        return
    left = [item for item in new if not (isinstance(item, dict) and item.get(DIRECTIVE) == "delete")]
    place = 0
    while left and place < len(wanted):
        if isinstance(left[0], dict) and DIRECTIVE in left[0]:
            left.pop(0)
            continue
        if _key(left[0], field.merge_key, at) == _key(wanted[place], field.merge_key, at):
            left.pop(0)
        place += 1
    if left:
        raise BadPatch(f"the elements of {field.name} do not stand in the order that {at[-1]} sets", at)


def _merge_slice(original: list[Any], patch: list[Any], field: Field, at: Path) -> list[Any]:
    if field.merge_key is None and not field.is_set:
        return patch
    if not original and not patch:
        return original
    key = field.merge_key
    if any(isinstance(item, dict) != isinstance((original + patch)[0], dict) for item in (*original, *patch)):
        raise BadPatch(f"{field.name} holds both mappings and other values", at)
    if key is None:
        return _normalize_element_order(list(dict.fromkeys([*original, *patch])), patch, original, None, at)
    original, patch = _merge_special_elements(original, patch, key, at)
    result = list(original)
    for index, item in enumerate(patch):
        value = _key(item, key, (*at, index))
        found = next((place for place, each in enumerate(result) if each.get(key) == value), None)
        if found is None:
            result.append(item)
        else:
            result[found] = _merge_map(result[found], item, field.type, (*at, index))
    return _normalize_element_order(result, patch, original, key, at)


def _merge_special_elements(original: list[Any], patch: list[Any], key: str, at: Path) -> tuple[list[Any], list[Any]]:
    """Elements with a directive: one takes a matching element away, or all of them."""
    plain, replace = [], False
    for index, item in enumerate(patch):
        directive = item.get(DIRECTIVE)
        if DIRECTIVE not in item:
            plain.append(item)
        elif directive == "delete":
            value = _key(item, key, (*at, index))
            original = [each for each in original if each.get(key) != value]
        elif directive == "replace":
            replace = True
        else:
            raise BadPatch(f"$patch is replace or delete, not {directive!r:.40}", (*at, index, DIRECTIVE))
    return (plain, []) if replace else (original, plain)


def _key(item: Any, key: str | None, at: Path) -> Any:
    if key is None:
        return item
    if not isinstance(item, dict) or key not in item:
        raise BadPatch(f"an element has no {key}, by which Kubernetes finds it", at)
    return item[key]


def _normalize_element_order(
    result: list[Any], first: Iterable[Any], own: list[Any], key: str | None, at: Path
) -> list[Any]:
    """What the patch names in its order, between what it does not name; that in the order it had."""
    order = [_key(item, key, at) for item in first]
    before = [_key(item, key, at) for item in own]

    def place(item: Any, among: list[Any]) -> int:
        value = _key(item, key, at)
        return among.index(value) if value in among else -1

    def sort(items: list[Any], among: list[Any]) -> list[Any]:
        # Go's stable sort with a comparison that is true where one of the two is nowhere: such elements change places.
        for right in range(1, len(items)):
            for left in range(right, 0, -1):
                one, other = place(items[left], among), place(items[left - 1], among)
                if one >= 0 and other >= 0 and one >= other:
                    break
                items[left - 1], items[left] = items[left], items[left - 1]
        return items

    named = sort([item for item in result if place(item, order) >= 0], order)
    left = sort([item for item in result if place(item, order) < 0], before)
    merged_list: list[Any] = []
    while left and named:
        mine, theirs = place(left[0], before), place(named[0], before)
        merged_list.append(left.pop(0) if 0 <= mine < theirs else named.pop(0))
    return [*merged_list, *left, *named]


_NOTHING: Final = object()


def _discard_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _discard_nulls(item) for key, item in value.items() if item is not None}
    return [_discard_nulls(item) for item in value] if isinstance(value, list) else value


def _remove_directives(value: Any) -> Any:
    """What is new to the object holds no directives; a map or an element that is one goes."""
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return _NOTHING
        inner = {key: _remove_directives(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item is not _NOTHING}
    if isinstance(value, list):
        return [item for item in map(_remove_directives, value) if item is not _NOTHING]
    return value
