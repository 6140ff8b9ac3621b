"""Where the claims of a pod let it run: the nodes that reach its volumes, or for which volumes can be found or made.

Claims for one pod alone, attach limits of nodes, and in-tree volumes that became CSI ones are not looked at here.

Mirrors k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding.VolumeBinding.PreFilter and
volumeBinder.FindPodVolumes, with k8s.io/component-helpers/storage/volume.FindMatchingVolume, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

from gpuflow.checker.nodes.storage import NO_PROVISIONER, Claim, Storage, StorageClass, Volume
from gpuflow.checker.nodes.volume_zone import ZONE_KEYS, zone_refuses
from gpuflow.kubernetes.labels import Labels, Selector

NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
OUT_OF_REACH: Final = "node(s) didn't match PersistentVolume's node affinity"
NO_SPACE: Final = "node(s) did not have enough free storage"
NO_ZONE: Final = "node(s) had no available volume zone"
UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"


def pod_volumes(storage: Storage, namespace: str, names: Sequence[str]) -> PodVolumes:
    """The claims of a pod, the same object for the same claims."""
    key = namespace, frozenset(names)
    found = storage.kept.get(key)
    if not isinstance(found, PodVolumes):
        storage.kept[key] = found = PodVolumes(storage, namespace, names)
    return found


class PodVolumes:
    """The claims of one pod. One object stands for all pods that mount the same claims."""

    def __init__(self, storage: Storage, namespace: str, names: Sequence[str]) -> None:
        self.storage = storage
        self.names = tuple(names)
        self.claims = [claim for name in names if (claim := storage.claims.get((namespace, name)))]
        self._missing = [name for name in names if (namespace, name) not in storage.claims]
        self._volumes, self._classes = storage.volumes or {}, storage.classes or {}
        self._bound = [claim for claim in self.claims if claim.is_bound]
        waiting = [claim for claim in self.claims if not claim.is_bound]
        self._delayed = [claim for claim in waiting if self._is_delayed(claim)]
        self._immediate = [claim for claim in waiting if not self._is_delayed(claim)]
        self._ready = {
            claim.name: [volume for volume in self._volumes.values() if may_bind(claim, volume)]
            for claim in self._delayed
        }

    @cached_property
    def refusal(self) -> str | None:
        """Why no node is looked at, in the scheduler's words."""
        for name in self._missing:
            return f'persistentvolumeclaim "{name}" not found'
        for claim in self.claims:
            if claim.is_lost:
                return f'persistentvolumeclaim "{claim.name}" bound to non-existent persistentvolume "{claim.volume}"'
            if claim.is_leaving:
                return f'persistentvolumeclaim "{claim.name}" is being deleted'
        if self._immediate:
            return UNBOUND
        for claim in self._bound:
            if claim.volume not in self._volumes:
                return f'persistentvolume "{claim.volume}" not found'
        return None

    def refusals(self, name: str, labels: Labels) -> list[str]:
        """Why a node does not take the pod, in the scheduler's words."""
        reasons = []
        bound = [self._volumes[claim.volume] for claim in self._bound if claim.volume in self._volumes]
        if not all(volume.reaches(labels) for volume in bound):
            reasons.append(OUT_OF_REACH)
        reasons += self._unmet(name, labels)
        if not reasons and zone_refuses(bound, labels):
            return [NO_ZONE]
        return sorted(reasons)

    @cached_property
    def keys(self) -> frozenset[str]:
        """The labels of nodes that it looks at."""
        volumes = [self._volumes[claim.volume] for claim in self._bound if claim.volume in self._volumes]
        found = {key for volume in volumes for key in ZONE_KEYS} | set[str]()
        for volume in (*volumes, *(each for ready in self._ready.values() for each in ready)):
            found |= {each.key for term in volume.terms or () for each in term.expressions}
        for claim in self._delayed:
            made = self._classes[claim.storage_class]
            found |= {key for term in made.topologies for key, _ in term}
            found |= {each.key for selector in self._selectors(made) for each in selector.requirements}
        return frozenset(found)

    @property
    def looks_at_names(self) -> bool:
        return any(claim.selected_node is not None for claim in self._delayed)

    def _unmet(self, name: str, labels: Labels) -> Iterable[str]:
        """Why the claims that have no volume yet would get none there."""
        if any(claim.selected_node not in (None, name) for claim in self._delayed):
            return [NO_VOLUME]
        provisioned = [claim for claim in self._delayed if claim.selected_node is not None]
        chosen: set[str] = set()
        for claim in sorted((claim for claim in self._delayed if claim.selected_node is None), key=_size):
            volume = find_volume(claim, self._ready[claim.name], labels, chosen)
            if volume is None:
                provisioned.append(claim)
            else:
                chosen.add(volume.name)
        for claim in provisioned:
            made = self._classes[claim.storage_class]
            if made.provisioner in ("", NO_PROVISIONER) or not made.allows(labels):
                return [NO_VOLUME]
            if not self._has_space(claim, made, labels):
                return [NO_SPACE]
        return []

    def _has_space(self, claim: Claim, made: StorageClass, labels: Labels) -> bool:
        driver = (self.storage.drivers or {}).get(made.provisioner)
        if driver is None or not driver.tells_capacity or not claim.size:
            return True
        return any(
            each.largest is not None and each.largest.value >= claim.size.value
            for each in self.storage.capacities or ()
            if each.storage_class == made.name and each.nodes is not None and each.nodes.matches(labels)
        )

    def _selectors(self, made: StorageClass) -> Iterable[Selector]:
        capacities = self.storage.capacities or ()
        return [each.nodes for each in capacities if each.storage_class == made.name and each.nodes is not None]

    def _is_delayed(self, claim: Claim) -> bool:
        made = self._classes.get(claim.storage_class)
        return made is not None and made.is_on_demand and not claim.volume


def find_volume(claim: Claim, ready: Iterable[Volume], labels: Labels, chosen: Iterable[str] = ()) -> Volume | None:
    """The volume that a claim gets on a node with these labels, of those that it may get: its own, or the smallest."""
    smallest = None
    for volume in ready:
        if volume.name in chosen:
            continue
        if volume.claim is not None:
            return volume if volume.reaches(labels) else None
        if volume.reaches(labels) and (smallest is None or volume.size < smallest.size):
            smallest = volume
    return smallest


def may_bind(claim: Claim, volume: Volume) -> bool:
    """Whether a claim may get a volume, on some node. One that is set aside for the claim is taken as it is."""
    if (
        volume.storage_class != claim.storage_class
        or volume.size < claim.size
        or volume.block != claim.block
        or volume.attributes_class != claim.attributes_class
        or volume.is_leaving
    ):
        return False
    if volume.claim is not None:
        return volume.claim == (claim.namespace, claim.name)
    selected = claim.selector is None or claim.selector.matches(volume.labels)
    return volume.is_available and selected and claim.modes <= volume.modes


def _size(claim: Claim) -> int:
    return claim.size.value
