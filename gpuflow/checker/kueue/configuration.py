"""Kueue's own configuration, as far as it changes what a workload is charged and whether it is admitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpuflow.checker.kueue.queues import read_choice
from gpuflow.kubernetes.admission.pod import Body, read_object, read_text
from gpuflow.kubernetes.resources import BadField, ResourceList, read_map, read_maps, read_resource_list, read_texts

IGNORE_UNDECLARED = "IgnoreUndeclared"
STRATEGIES = ("BlockUndeclared", IGNORE_UNDECLARED)
INPUT_STRATEGIES = ("Retain", "Replace")
EXPECTED_GATES = {
    "AdmissionGatedBy": True,
    "ConcurrentAdmission": False,
    "FlavorFungibility": True,
    "FlavorFungibilityPreserveScanProgress": True,
    "KueueDRAIntegration": True,
    "MultiKueueOrchestratedPreemption": False,
    "PartialAdmission": True,
    "PriorityBoost": False,
    "PrioritySortingWithinCohort": True,
    "QuotaCheckStrategy": True,
    "ReclaimablePods": True,
    "SchedulerTimestampPreemptionBuffer": False,
    "TopologyAwareScheduling": True,
    "VectorizedResourceRequests": True,
}
"""Feature gates that change the answer, as Kueue 0.19 sets them and as they are followed here."""

TOPOLOGY_GATES = {
    "ElasticJobsViaWorkloadSlicesWithTAS": False,
    "SchedulerLibraryIntegration": False,
    "TASBalancedPlacement": False,
    "TASHandleOverlappingFlavors": True,
    "TASProfileMixed": True,
    "TASRespectNodeAffinityPreferred": False,
}
"""The same, of what only pods that are placed by topology meet."""


class Transformation(NamedTuple):
    """One resource counted as others: so much of each output for every unit of the input."""

    keeps_input: bool
    multiplied_by: str
    outputs: ResourceList


class Configuration(NamedTuple):
    excluded: tuple[str, ...] = ()
    transformations: Mapping[str, Transformation] = {}
    ignores_undeclared: bool = False
    orders_by_eviction: bool = True
    fair_sharing: bool = False
    unmodeled: tuple[str, ...] = ()
    """What is set and not followed here."""
    unmodeled_places: tuple[str, ...] = ()
    """The same, of topology-aware scheduling."""


def read_configuration(manifest: object) -> Configuration:
    """Kueue's `Configuration`, of v1beta1 or v1beta2; `None` for its defaults."""
    if manifest is None:
        return Configuration()
    manifest = read_object(manifest, "Configuration")
    resources = read_map(manifest.get("resources"), "Configuration: resources")
    ready = read_map(manifest.get("waitForPodsReady"), "Configuration: waitForPodsReady")
    requeuing = read_map(ready.get("requeuingStrategy"), "Configuration: waitForPodsReady.requeuingStrategy")
    return Configuration(
        tuple(read_texts(resources.get("excludeResourcePrefixes"), "Configuration: resources.excludeResourcePrefixes")),
        _read_transformations(resources.get("transformations"), "Configuration: resources.transformations"),
        read_choice(resources, "quotaCheckStrategy", "Configuration: resources", STRATEGIES) == IGNORE_UNDECLARED,
        read_text(requeuing, "timestamp", "Configuration: waitForPodsReady.requeuingStrategy") != "Creation",
        _is_on(manifest, "fairSharing"),
        tuple(_unmodeled_notes(manifest)),
        tuple(_other_gates(manifest, TOPOLOGY_GATES)),
    )


def _read_transformations(value: object, where: str) -> dict[str, Transformation]:
    found: dict[str, Transformation] = {}
    for index, item in enumerate(read_maps(value, where)):
        at = f"{where}[{index}]"
        name = read_text(item, "input", at) or ""
        if name in found:
            raise BadField(at, f"a second transformation of {name}")
        found[name] = Transformation(
            read_choice(item, "strategy", at, INPUT_STRATEGIES) != "Replace",
            read_text(item, "multiplyBy", at) or "",
            read_resource_list(item.get("outputs"), f"{at}.outputs"),
        )
    return found


def _unmodeled_notes(manifest: Body) -> list[str]:
    notes = []
    if _is_on(manifest, "admissionFairSharing"):
        notes.append("admissionFairSharing orders queues and victims by past usage")
    ready = read_map(manifest.get("waitForPodsReady"), "Configuration: waitForPodsReady")
    # v1beta1 blocks unless told otherwise; v1beta2 does not.
    blocks = ready.get("blockAdmission", ready.get("enable", False))
    if ready.get("enable", True) is True and blocks is True:
        notes.append("waitForPodsReady.blockAdmission holds a workload back until the pods of others are ready")
    return [*notes, *_other_gates(manifest, EXPECTED_GATES)]


def _other_gates(manifest: Body, followed: Mapping[str, bool]) -> list[str]:
    """The feature gates that are not set as they are followed here."""
    gates = read_map(manifest.get("featureGates"), "Configuration: featureGates")
    return [
        f"feature gate {name} is {str(gates[name]).lower()}"
        for name, expected in followed.items()
        if gates.get(name, expected) is not expected
    ]


def _is_on(manifest: Body, section: str) -> bool:
    """Whether a section is there; v1beta1 can also write it out and switch it off."""
    if manifest.get(section) is None:
        return False
    return read_map(manifest[section], f"Configuration: {section}").get("enable", True) is not False
