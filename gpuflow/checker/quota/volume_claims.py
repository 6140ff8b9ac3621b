"""Volumes that a step waits for and never gets: claims that do not exist, and claims that nothing will ever fill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuflow.checker.quota.claims import is_default
from gpuflow.checker.quota.namespace import StepAdmission
from gpuflow.cluster import Cluster
from gpuflow.demands import Demand
from gpuflow.errors import Finding, did_you_mean
from gpuflow.resources import read_map, read_maps


def pending_claims(
    demand: Demand, cluster: Cluster, namespace: str, admissions: Sequence[StepAdmission]
) -> Iterator[Finding]:
    """A finding for each volume that keeps its pod pending forever, as far as the snapshot can tell."""
    yield from _unfilled(demand, cluster)
    yield from _missing(demand, cluster, namespace, admissions)


def _unfilled(demand: Demand, cluster: Cluster) -> Iterator[Finding]:
    """Claims of the run whose storage class makes no volumes because it does not exist."""
    classes = cluster.bodies("StorageClass")
    if classes is None:
        return
    names = sorted(_name(body) for body in classes)
    ready = {_class_of(volume.body) for volume in cluster.of("PersistentVolume")}
    for claim in demand.claims:
        name, wanted = claim.name, claim.storage_class
        if wanted is None and not any(map(is_default, classes)) and "" not in ready:
            yield Finding(
                "GF561",
                f'claim "{name}" names no storage class, and the cluster has no default: it stays pending',
                claim.where,
                f"give it storage_class: {' or '.join(names)}" if names else "create a StorageClass",
                kubernetes="no persistent volumes available for this claim and no storage class is set",
            )
        elif wanted and wanted not in names and wanted not in ready:
            known = did_you_mean(wanted, names) or f"the cluster has {', '.join(names) or 'none'}"
            yield Finding(
                "GF561",
                f'claim "{name}" asks for storage class {wanted}, which does not exist: it stays pending',
                claim.class_where,
                known,
                kubernetes=f'storageclass.storage.k8s.io "{wanted}" not found',
            )


def _missing(
    demand: Demand, cluster: Cluster, namespace: str, admissions: Sequence[StepAdmission]
) -> Iterator[Finding]:
    """Claims that steps mount and that the namespace does not have."""
    claims = cluster.bodies("PersistentVolumeClaim", namespace)
    if claims is None:
        return
    names = sorted(_name(body) for body in claims)
    own = {claim.volume for claim in demand.claims}
    wanted: dict[str, list[str]] = {}
    for one in admissions:
        for volume in read_maps(one.step.pod["spec"].get("volumes"), "spec.volumes"):
            claim = read_map(volume.get("persistentVolumeClaim"), "persistentVolumeClaim").get("claimName")
            if claim is not None and volume["name"] not in own and claim not in names:
                wanted.setdefault(claim, []).append(one.step.name)
    for claim, steps in wanted.items():
        who = f'step "{steps[0]}" mounts' if len(steps) == 1 else f"steps {', '.join(steps)} mount"
        yield Finding(
            "GF561",
            f"{who} the claim {claim}, which does not exist in {namespace}: the pod stays pending",
            demand.where(steps[0]),
            did_you_mean(claim, names) or "create the claim first",
            kubernetes=f'persistentvolumeclaim "{claim}" not found',
        )


def _name(body: Mapping[str, Any]) -> str:
    return str(read_map(body.get("metadata"), "metadata").get("name") or "")


def _class_of(body: Mapping[str, Any]) -> str:
    return str(read_map(body.get("spec"), "spec").get("storageClassName") or "")
