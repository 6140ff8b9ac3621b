"""The fields of manifests: which a kind has, and which of a live object a snapshot keeps.

kubectl refuses a field that its kind does not have and the API server drops it, so an amount under a misspelled key is
an amount that nobody enforces. `FIELDS` lists the fields of the kinds whose every word decides; other kinds are not
looked at.

`SHAPES` is an allow-list for live objects: a field that is not named there, in a type or in `pod_fields`, is gone,
whatever a later version of Kubernetes puts into it. So commands, variables, probes, sources of volumes, messages,
expressions and most annotations never reach a snapshot. Numbers that change by themselves are left out too: two
snapshots of an unchanged cluster are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from msgspec.structs import fields

from gpuflow.cluster.kueue_objects import ClusterQueueSpec, CohortSpec, LocalQueueSpec
from gpuflow.cluster.model import Path
from gpuflow.kubernetes.objects import Amounts, Closed, LimitRangeSpec, Object, ResourceQuotaSpec, ResourceQuotaStatus
from gpuflow.kubernetes.pod_fields import Field, fields_of

ANY: Final = "*"
OBJECT_FIELDS: Final = "apiVersion kind metadata spec status"


def closed_fields(wanted: Any, path: str) -> Iterator[tuple[str, str]]:
    """The paths of a type at which every word decides, with the names that may stand there."""
    origin, args = get_origin(wanted), get_args(wanted)
    if origin is Annotated:
        yield from closed_fields(args[1] if args[0] is Any else args[0], path)
    elif origin is tuple:
        yield from closed_fields(args[0], f"{path}.{ANY}")
    elif isinstance(wanted, type) and issubclass(wanted, Closed):
        hints = get_type_hints(wanted, include_extras=True)
        yield path, " ".join(each.encode_name for each in fields(wanted))
        for each in fields(wanted):
            yield from closed_fields(hints[each.name], f"{path}.{each.encode_name}")


FIRST: Final = ("spec", "spec.flavorFungibility", "spec.preemption", "spec.preemption.borrowWithinCohort")
"""The paths at which unknown fields are told before others."""


def _known_fields(spec: type[Closed], status: type[Object] = Object) -> dict[str, str]:
    """What is closed in a kind with such a spec and status."""
    paths = {**dict(closed_fields(spec, "spec")), **dict(closed_fields(status, "status"))}
    return {"": OBJECT_FIELDS, **{path: paths[path] for path in (*FIRST, *paths) if path in paths}}


FIELDS: Final[dict[str, dict[str, str]]] = {
    "ResourceQuota": _known_fields(ResourceQuotaSpec, ResourceQuotaStatus),
    "LimitRange": _known_fields(LimitRangeSpec),
    "LocalQueue": _known_fields(LocalQueueSpec),
    "ClusterQueue": _known_fields(ClusterQueueSpec),
    "Cohort": _known_fields(CohortSpec),
    "ResourceFlavor": {"": OBJECT_FIELDS, "spec": "nodeLabels nodeTaints tolerations topologyName"},
}
"""For each kind, the names that may stand at a path; `*` stands for every item of a list."""

OTHER_VERSIONS: Final[dict[tuple[str, str], str]] = {
    ("ClusterQueue", "v1beta1"): "cohortName concurrentAdmissionPolicy",
    ("ClusterQueue", "v1beta2"): "cohort admissionChecks",
}
"""Fields of `spec` that a kind has in other versions only."""


class UnknownField(NamedTuple):
    """A field that does not exist: where it stands, and the names that do exist there."""

    path: Path
    known: tuple[str, ...]


def unknown_fields(kind: str, body: Mapping[str, Any]) -> Iterator[UnknownField]:
    """The fields of a manifest that its kind does not have."""
    version = str(body.get("apiVersion")).rpartition("/")[2]
    foreign = OTHER_VERSIONS.get((kind, version), "").split()
    for path, names in FIELDS.get(kind, {}).items():
        known = tuple(name for name in names.split() if path != "spec" or name not in foreign)
        for found, holder in _holders(body, path.split(".") if path else [], ()):
            for key in holder:
                if key not in known:
                    yield UnknownField((*found, key), known)


def _holders(tree: Any, path: list[str], found: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    if not path:
        if isinstance(tree, Mapping):
            yield found, tree
    elif path[0] == ANY:
        for index, item in enumerate(tree if isinstance(tree, list) else ()):
            yield from _holders(item, path[1:], (*found, index))
    elif isinstance(tree, Mapping) and path[0] in tree:
        yield from _holders(tree[path[0]], path[1:], (*found, path[0]))


Shape = str | dict[str, Any] | list[Any] | None
"""What is kept of a value: None: a text, a number or a flag; "map": a map of those; "texts": a list of those; a dict:
these fields; a list of one: a list of it; "any": all of it, for amounts and selectors that may nest."""

MAP: Final = "map"
TEXTS: Final = "texts"


def _fields(names: str, **more: Shape) -> dict[str, Shape]:
    return {**dict.fromkeys(names.split()), **more}


KEPT_OF_PODS: Final = {
    "Container": "name ports resizePolicy resources restartPolicy restartPolicyRules",
    "ContainerPort": "containerPort hostIP hostPort protocol",
    "PersistentVolumeClaimTemplate": "spec",
    "PersistentVolumeClaimSpec": "accessModes resources storageClassName volumeMode",
    "PodSpec": "activeDeadlineSeconds affinity containers ephemeralContainers hostIPC hostNetwork hostPID hostUsers "
    "initContainers nodeName nodeSelector os overhead preemptionPolicy priority priorityClassName resourceClaims "
    "resources restartPolicy runtimeClassName schedulerName schedulingGates terminationGracePeriodSeconds tolerations "
    "topologySpreadConstraints volumes",
    "Volume": "name ephemeral persistentVolumeClaim awsElasticBlockStore gcePersistentDisk iscsi rbd",
    # Two pods cannot write to one of these disks: which disk it is decides, and nothing else of it.
    "AWSElasticBlockStoreVolumeSource": "readOnly volumeID",
    "GCEPersistentDiskVolumeSource": "pdName readOnly",
    "ISCSIVolumeSource": "iqn readOnly",
    "RBDVolumeSource": "image monitors pool readOnly",
}
"""What is kept of these types of a pod; of the types that they name, all fields in `pod_fields`."""
SAME_AS: Final = {"ephemeralContainers": "Container", "VolumeResourceRequirements": "ResourceRequirements"}


def _kept_of(type_name: str) -> Shape:
    """What is kept of a value of one of the types of a pod."""
    known = fields_of(SAME_AS.get(type_name, type_name))
    names = KEPT_OF_PODS[type_name].split() if type_name in KEPT_OF_PODS else known
    return {name: _held_by(known[name]) for name in names} or None


def _held_by(field: Field) -> Shape:
    inner = _kept_of(SAME_AS.get(field.name, field.type))
    if field.holds == "one":
        return inner
    return MAP if field.holds == "map" else TEXTS if inner is None else [inner]


SELECTOR, NODE_TERMS, TOLERATION = map(_kept_of, ("LabelSelector", "NodeSelector", "Toleration"))
RESOURCES, POD_SPEC = map(_kept_of, ("ResourceRequirements", "PodSpec"))
TAINT: Final = _fields("key value effect timeAdded")
DEVICE_SELECTORS: Final = [{"cel": _fields("expression")}]
DEVICE_REQUEST: Final = _fields(
    "name deviceClassName allocationMode count adminAccess",
    selectors=DEVICE_SELECTORS,
    tolerations=[TOLERATION],
    capacity={"requests": MAP},
)
DEVICE_CLAIM: Final = {
    "devices": {
        # In v1beta1 a request is not under `exactly`. The configuration of a driver is never kept: it decides nothing.
        "requests": [{**DEVICE_REQUEST, "exactly": DEVICE_REQUEST, "firstAvailable": [DEVICE_REQUEST]}],
        "constraints": [_fields("matchAttribute distinctAttribute", requests=TEXTS)],
    }
}
DEVICE: Final = _fields(
    "name nodeName allNodes bindsToNode allowMultipleAllocations",
    # Any attribute may be what a selector asks for; they describe hardware.
    attributes="any",
    capacity="any",
    consumesCounters="any",
    nodeSelector=NODE_TERMS,
    taints=[TAINT],
    bindingConditions=TEXTS,
    bindingFailureConditions=TEXTS,
    nodeAllocatableResourceMappings="any",
)
ALLOCATED: Final = _fields(
    "request driver pool device adminAccess shareID",
    tolerations=[TOLERATION],
    bindingConditions=TEXTS,
    bindingFailureConditions=TEXTS,
    consumedCapacity=MAP,
)
CONTAINER_STATE: Final = _fields("name", resources=RESOURCES, allocatedResources=MAP)
CONDITION: Final = _fields("type status reason lastTransitionTime observedGeneration")
CONDITIONS: Final = {"conditions": [CONDITION]}
RULE: Final = _fields("scope", operations=TEXTS, apiGroups=TEXTS, apiVersions=TEXTS, resources=TEXTS)
MATCH_FIELDS: Final = _fields("", namespaceSelector=SELECTOR, objectSelector=SELECTOR)
WEBHOOKS: Final[dict[str, Shape]] = {"webhooks": [{**_fields("name failurePolicy"), **MATCH_FIELDS, "rules": [RULE]}]}
MATCH_RESOURCES: Final[dict[str, Shape]] = {**MATCH_FIELDS, "resourceRules": [RULE], "excludeResourceRules": [RULE]}
POLICY: Final[dict[str, Shape]] = {"spec": {**_fields("failurePolicy"), "matchConstraints": MATCH_RESOURCES}}
BINDING: Final[dict[str, Shape]] = {
    "spec": _fields(
        "policyName", validationActions=TEXTS, matchResources=MATCH_RESOURCES, paramRef=_fields("namespace")
    )
}


def shape_of(wanted: Any) -> Shape:
    """What a snapshot keeps of a value of a type. A value without a type is kept as a text, a number or a flag."""
    origin, args = get_origin(wanted), get_args(wanted)
    if origin is Annotated:
        kept = args[1] if args[0] is Any else args[0]
        return kept if isinstance(kept, str) else shape_of(kept)
    if origin is UnionType:
        return shape_of(args[0])
    if origin in (tuple, frozenset):
        inner = shape_of(args[0])
        return TEXTS if inner is None else [inner]
    if wanted is Amounts:
        return MAP
    if isinstance(wanted, type) and issubclass(wanted, Object):
        hints = get_type_hints(wanted, include_extras=True)
        return {each.encode_name: shape_of(hints[each.name]) for each in fields(wanted)}
    return None


TOPOLOGY: Final = _fields(
    "required preferred unconstrained podIndexLabel subGroupIndexLabel subGroupCount podSetGroupName "
    "podSetSliceRequiredTopology podSetSliceSize"
)
PLACES: Final = _fields(
    "",
    levels=TEXTS,
    domains=[_fields("count", values=TEXTS)],
    slices=[
        _fields(
            "domainCount",
            valuesPerLevel=[_fields("universal", individual=_fields("prefix suffix", roots=TEXTS))],
            podCounts=_fields("universal", individual=TEXTS),
        )
    ],
)
"""Where the pods of an admitted workload are."""
USAGE: Final = [_fields("name", resources=[_fields("name total borrowed")])]

SHAPES: Final[dict[str, dict[str, Shape]]] = {
    "ResourceQuota": {"spec": shape_of(ResourceQuotaSpec), "status": shape_of(ResourceQuotaStatus)},
    "LimitRange": {"spec": shape_of(LimitRangeSpec)},
    "PersistentVolumeClaim": {
        "spec": _fields(
            "storageClassName volumeName volumeMode volumeAttributesClassName",
            accessModes=TEXTS,
            resources=RESOURCES,
            selector=SELECTOR,
        ),
        "status": _fields("phase", capacity=MAP, allocatedResources=MAP, accessModes=TEXTS),
    },
    "Namespace": {"status": _fields("phase")},
    "Node": {
        "spec": _fields("unschedulable", taints=[TAINT]),
        "status": {
            "allocatable": MAP,
            "capacity": MAP,
            "declaredFeatures": TEXTS,
            "conditions": [_fields("type status")],
        },
    },
    "PersistentVolume": {
        "spec": _fields(
            "storageClassName volumeMode volumeAttributesClassName",
            accessModes=TEXTS,
            capacity=MAP,
            nodeAffinity={"required": NODE_TERMS},
            claimRef=_fields("namespace name"),
            csi=_fields("driver"),
        ),
        "status": _fields("phase"),
    },
    "ServiceAccount": {},
    "PodDisruptionBudget": {
        "spec": _fields("minAvailable maxUnavailable unhealthyPodEvictionPolicy", selector=SELECTOR),
        "status": _fields("disruptionsAllowed currentHealthy desiredHealthy expectedPods"),
    },
    "DaemonSet": {"spec": {"template": {"metadata": {"labels": MAP}, "spec": POD_SPEC}}},
    "CSIDriver": {"spec": _fields("attachRequired storageCapacity podInfoOnMount")},
    "CSINode": {"spec": {"drivers": [_fields("name", topologyKeys=TEXTS, allocatable=_fields("count"))]}},
    "CSIStorageCapacity": _fields("storageClassName capacity maximumVolumeSize", nodeTopology=SELECTOR),
    "DeviceClass": {"spec": _fields("extendedResourceName", selectors=DEVICE_SELECTORS)},
    "DeviceTaintRule": {"spec": {"deviceSelector": _fields("driver pool device"), "taint": TAINT}},
    "ResourceSlice": {
        "spec": _fields(
            "driver nodeName allNodes perDeviceNodeSelection",
            pool=_fields("name generation resourceSliceCount"),
            nodeSelector=NODE_TERMS,
            sharedCounters="any",
            devices=[{**DEVICE, "basic": DEVICE}],  # in v1beta1 a device is under `basic`
        )
    },
    "ResourceClaim": {
        "spec": DEVICE_CLAIM,
        "status": {
            "allocation": {"devices": {"results": [ALLOCATED]}, "nodeSelector": NODE_TERMS},
            "reservedFor": [_fields("apiGroup resource name")],
        },
    },
    "ResourceClaimTemplate": {"spec": {"spec": DEVICE_CLAIM}},
    "Pod": {
        "spec": POD_SPEC,
        "status": _fields(
            "phase reason qosClass",
            conditions=[CONDITION],
            resources=RESOURCES,
            containerStatuses=[CONTAINER_STATE],
            initContainerStatuses=[CONTAINER_STATE],
        ),
    },
    "PriorityClass": _fields("value globalDefault preemptionPolicy"),
    "RuntimeClass": _fields(
        "handler", overhead={"podFixed": MAP}, scheduling={"nodeSelector": MAP, "tolerations": [TOLERATION]}
    ),
    "StorageClass": _fields(
        "provisioner reclaimPolicy volumeBindingMode allowVolumeExpansion",
        allowedTopologies=[{"matchLabelExpressions": [_fields("key", values=TEXTS)]}],
    ),
    "LocalQueue": {
        "spec": shape_of(LocalQueueSpec),
        "status": _fields("pendingWorkloads reservingWorkloads admittedWorkloads", **CONDITIONS),
    },
    "AdmissionCheck": {"spec": _fields("controllerName"), "status": CONDITIONS},
    "ClusterQueue": {
        "spec": shape_of(ClusterQueueSpec),
        "status": _fields(
            "pendingWorkloads reservingWorkloads admittedWorkloads",
            flavorsReservation=USAGE,
            flavorsUsage=USAGE,
            **CONDITIONS,
        ),
    },
    "Cohort": {"spec": shape_of(CohortSpec)},
    "ResourceFlavor": {"spec": _fields("topologyName", nodeLabels=MAP, nodeTaints=[TAINT], tolerations=[TOLERATION])},
    "Topology": {"spec": {"levels": [_fields("nodeLabel")]}},
    "Workload": {
        "spec": _fields(
            "queueName priority priorityClassName priorityClassSource active maximumExecutionTimeSeconds",
            priorityClassRef=_fields("group kind name"),
            podSets=[_fields("name count minCount", topologyRequest=TOPOLOGY, template={"spec": POD_SPEC})],
        ),
        "status": {
            **CONDITIONS,
            "admission": _fields(
                "clusterQueue",
                podSetAssignments=[_fields("name count", flavors=MAP, resourceUsage=MAP, topologyAssignment=PLACES)],
            ),
            "reclaimablePods": [_fields("name count")],
            "requeueState": _fields("count requeueAt"),
            "admissionChecks": [_fields("name state")],
        },
    },
    "WorkloadPriorityClass": _fields("value"),
    "MutatingAdmissionPolicy": POLICY,
    "MutatingAdmissionPolicyBinding": BINDING,
    "MutatingWebhookConfiguration": WEBHOOKS,
    "ValidatingAdmissionPolicy": POLICY,
    "ValidatingAdmissionPolicyBinding": BINDING,
    "ValidatingWebhookConfiguration": WEBHOOKS,
    # That they are there is all a check reads.
    "HierarchicalResourceQuota": {},
    "Queue": {},
    "NodePool": {},
    "Configuration": {
        **_fields("manageJobsWithoutQueueName"),
        "managedJobsNamespaceSelector": SELECTOR,
        "integrations": _fields(
            "",
            frameworks=TEXTS,
            externalFrameworks=TEXTS,
            podOptions=_fields("", namespaceSelector=SELECTOR, podSelector=SELECTOR),
        ),
        "resources": _fields(
            "quotaCheckStrategy",
            excludeResourcePrefixes=TEXTS,
            transformations=[_fields("input strategy multiplyBy", outputs=MAP)],
            deviceClassMappings=[_fields("name", deviceClassNames=TEXTS)],
        ),
        "waitForPodsReady": _fields(
            "enable blockAdmission timeout recoveryTimeout",
            requeuingStrategy=_fields("timestamp backoffLimitCount backoffBaseSeconds backoffMaxSeconds"),
        ),
        "fairSharing": _fields("enable", preemptionStrategies=TEXTS),
        "admissionFairSharing": _fields("enable usageHalfLifeTime usageSamplingInterval", resourceWeights=MAP),
        "featureGates": MAP,
    },
}
"""What is kept of each kind beside its apiVersion, kind and metadata."""

NAMES_ONLY: Final = ("ServiceAccount",)
"""Kinds of which only the name is kept: the rest says where tokens and roles are."""

METADATA: Final = _fields(
    "name namespace creationTimestamp deletionTimestamp deletionGracePeriodSeconds",
    labels=MAP,
    ownerReferences=[_fields("apiVersion kind controller")],
)
ANNOTATIONS: Final = (
    "gpuflow.dev/lets-pods-pass",
    "gpuflow.dev/node-group-max",
    "gpuflow.dev/node-group-min",
    "kueue.x-k8s.io/admission-gated-by",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/workload-slice-replacement-for",
    "openshift.io/node-selector",
    "scheduler.alpha.kubernetes.io/node-selector",
    "scheduler.alpha.kubernetes.io/tolerationsWhitelist",
    "storageclass.beta.kubernetes.io/is-default-class",
    "storageclass.kubernetes.io/is-default-class",
    "volume.beta.kubernetes.io/storage-class",
    "volume.kubernetes.io/selected-node",
)
"""The annotations that a check reads."""


def keep_checked_fields(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The object with the fields that a check reads."""
    kept: dict[str, Any] = _keep_shape(body, SHAPES.get(kind, {}))
    if kind in FIELDS and isinstance(body.get("spec"), Mapping):
        # Every word of these decides: a field that nobody knows yet stays by its name, and the verdict is unknown.
        kept["spec"] = _keep_shape(body["spec"], SHAPES[kind]["spec"], strange=True)
    head = {key: body[key] for key in ("apiVersion", "kind") if key in body}
    metadata = body.get("metadata")
    if metadata is None and kind == "Configuration":
        return {**head, **kept}
    if kind in NAMES_ONLY:
        return {**head, "metadata": _keep_shape(metadata or {}, _fields("name namespace"))}
    return {**head, "metadata": _metadata(metadata or {}), **kept}


def _metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = _keep_shape(metadata, METADATA)
    annotations = metadata.get("annotations")
    if isinstance(annotations, Mapping):
        read = {key: annotations[key] for key in annotations if key in ANNOTATIONS}
        kept |= {"annotations": read} if read else {}
    return kept


def _keep_shape(value: Any, shape: Shape, *, strange: bool = False) -> Any:
    """What a shape leaves of a value. A value of another shape is kept empty, so that a check still refuses it.

    `strange`: fields that the shape does not have are kept by name, without their value.
    """
    if shape == "any":
        return value
    if isinstance(value, Mapping):
        if shape == MAP:
            return {key: _plain(part) for key, part in value.items()}
        if not isinstance(shape, dict):
            return {}
        return {
            key: _keep_shape(part, shape[key], strange=strange) if key in shape else None
            for key, part in value.items()
            if key in shape or strange
        }
    if isinstance(value, list | tuple):
        if shape == TEXTS:
            return [_plain(part) for part in value]
        return [_keep_shape(part, shape[0], strange=strange) for part in value] if isinstance(shape, list) else []
    return value


def _plain(value: Any) -> Any:
    return value if not isinstance(value, Mapping | list | tuple) else type(value)()
