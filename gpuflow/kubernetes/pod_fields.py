"""The fields of a pod: what each holds, and how a strategic merge patch treats it.

One line for each type, its fields by name. What follows a name is what the field holds: text when nothing does, `int`,
`bool`, `quantity`, `port` (a number or a name), another type, `[…]` a list, `{…}` a map from text. `!` is a field that
Kubernetes always writes. Lists `by` a key are merged element by element, those that are `joined` become one set, and
every other list is replaced as a whole.

Mirrors the fields and patch tags of k8s.io/api/core/v1.PodTemplateSpec, Kubernetes v1.36.3.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

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
