"""The claims that a pipeline's pods mount, and what is known of the volumes behind them.

Claims that the run makes itself, or a controller for each of its pods, are taken as they will be stored. That a
provisioner does its work is taken for granted; where its volumes can be mounted is known from the CSINodes, and
otherwise not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from gpuflow.checker.nodes.filters import read_pending
from gpuflow.checker.nodes.node_info import UnboundPod
from gpuflow.checker.nodes.volumes import (
    NO_PROVISIONER,
    NO_VOLUME,
    SHARED_MODES,
    Claim,
    Storage,
    StorageClass,
    Volume,
    is_zonal,
    may_bind,
    read_claim,
)
from gpuflow.checker.quota.peak import Claims
from gpuflow.core.errors import Where, list_names
from gpuflow.demands import Demand
from gpuflow.kubernetes.admission.quota import claims_of_pod
from gpuflow.kubernetes.labels import CLAIM_PREFIX
from gpuflow.kubernetes.resources import read_map

Body = Mapping[str, Any]

OWN: Final = "run/"
"""Begins the names of the claims of a run: no claim of a cluster can have such a name."""
ONE_WRITER: Final = (
    "disk.csi.azure.com", "ebs.csi.aws.com", "pd.csi.storage.gke.io", "cinder.csi.openstack.org",
    "rancher.io/local-path", "topolvm.io",
)  # fmt: skip
"""Provisioners whose file systems one node mounts at a time, whatever a claim asks for, unless set up otherwise."""
SETTLE: Final = "gpuflow snapshot, or kubectl get pvc,pv,storageclass,csidriver,csinode,csistoragecapacity -A -o yaml"


NO_VOLUMES: Final = ("no persistent volumes available for this claim and no storage class is set", NO_VOLUME)
"""What Kubernetes says of a claim that waits for a volume that nobody makes, without a class and with one."""


class Tie(NamedTuple):
    """A volume that, once it is there, only some nodes can mount."""

    keys: tuple[str, ...] | None
    """Nodes with the same values of these labels can mount it together; `None`: perhaps one node alone."""
    is_certain: bool
    follows_pod: bool
    """It comes to where the first pod is; otherwise nobody asks the scheduler."""
    allowed: StorageClass | None = None
    """The class whose topologies bound where it may be."""


@dataclass(frozen=True, slots=True)
class MountedClaim:
    """A claim that pods of the pipeline mount."""

    key: str
    """Its name in the pods, as they are judged."""
    claim: Claim | None
    where: Where
    never: str | None = None
    """Why it can never be mounted, in the words of Kubernetes."""
    because: str = ""
    """The same in ours."""
    unknown: str | None = None
    """What of it is not known, in words."""
    not_shown: str | None = None
    """The kind that would tell, when the snapshot shows none of it."""
    is_placed: bool = False
    """Whether the scheduler's own rules say which nodes can have it."""
    is_waiting: bool = False
    """It is there, has no volume, and gets one without asking the scheduler."""
    tie: Tie | None = None
    driver: str | None = None
    one_node: bool | None = False
    """Whether one node at a time can have it attached; `None`: not known."""
    grants: tuple[str, ...] = ()
    is_each: bool = False
    """Every pod has such a claim, and a volume, of its own."""

    @property
    def is_own(self) -> bool:
        return self.key.startswith(OWN)

    @property
    def words(self) -> str:
        return f'claim "{self.key.removeprefix(OWN)}"'


class MountedClaims:
    """All claims of a pipeline. `assumed`: the kinds for which the author of a folder vouches."""

    def __init__(
        self,
        demand: Demand,
        own: Claims,
        storage: Storage,
        namespace: str,
        *,
        knows_claims: bool,
        assumed: frozenset[str] = frozenset(),
        default_class: str | None = None,
    ) -> None:
        self._demand, self._default_class = demand, default_class
        self._each: dict[tuple[Claim, str], str] = {}
        """The keys of claims of each pod, by what they ask for and how their names begin."""
        self._own = {claim.volume: claim for claim in demand.claims}
        self._assumed = assumed
        named = {
            OWN + claim.name: read_claim(
                {**own[claim.name], "metadata": {"name": OWN + claim.name, "namespace": namespace}}
            )
            for claim in demand.claims
        }
        self.namespace = namespace
        self._claims = {**storage.claims, **{(namespace, key): claim for key, claim in named.items()}}
        self.storage = replace(storage, claims=self._claims, kept={})
        self._knows_claims = knows_claims
        self._wheres = {OWN + claim.name: claim.where for claim in demand.claims}
        self.mounted: dict[str, MountedClaim] = {}
        for step in demand.steps:
            for each in step.pod_sets:
                for key in self.keys(each.pod):
                    self._of(key)

    def keys(self, pod: Body) -> list[str]:
        """The claims of a pod, by the names under which they are judged."""
        return [key for volume in pod["spec"].get("volumes") or () if (key := self._key(volume))]

    def users_phrase(self, mounted: MountedClaim) -> str:
        return list_names(self._users(mounted)[:3] or ["a step"], "step")

    def where(self, mounted: MountedClaim) -> Where:
        users = self._users(mounted)
        return mounted.where if (mounted.is_own and not mounted.is_each) or not users else self._demand.where(users[0])

    def _users(self, mounted: MountedClaim) -> list[str]:
        steps = self._demand.steps
        return [step.name for step in steps if any(mounted.key in self.keys(each.pod) for each in step.pod_sets)]

    def pod(self, pod: Body) -> Body:
        """The pod with the claims by which the scheduler decides, and without those that are judged here."""
        volumes = pod["spec"].get("volumes") or ()
        if not any(each.keys() & {"persistentVolumeClaim", "ephemeral"} for each in volumes):
            return pod
        kept = []
        for volume in volumes:
            key = self._key(volume)
            if key is None:
                kept.append(volume)
            elif self._of(key).is_placed:
                kept.append({"name": volume.get("name"), "persistentVolumeClaim": {"claimName": key}})
        return {**pod, "spec": {**pod["spec"], "volumes": kept}}

    def read(self, pod: Body) -> UnboundPod:
        return read_pending(self.pod(pod), storage=self.storage)

    def _of(self, key: str) -> MountedClaim:
        if key not in self.mounted:
            self.mounted[key] = self._examine(key, self._wheres.get(key, Where()))
        return self.mounted[key]

    def _key(self, volume: Body) -> str | None:
        made = next(claims_of_pod({"volumes": [volume]}, self._default_class), None)
        if made is not None:
            return self._key_of_each(*made)
        claim = read_map(volume.get("persistentVolumeClaim"), "persistentVolumeClaim").get("claimName")
        if claim is None:
            return None
        own = self._own.get(str(volume.get("name")))
        return str(claim) if own is None else OWN + own.name

    def _key_of_each(self, name: str, body: Body) -> str:
        prefix = read_map(body["metadata"].get("annotations"), "metadata.annotations").get(CLAIM_PREFIX, "")
        claim = read_claim({**body, "metadata": {"name": name, "namespace": self.namespace}})
        alike = sum(each.name == name for each, _ in self._each)
        key = self._each.setdefault((claim, prefix), f"{OWN}{name} of each pod" + (f" ({alike + 1})" if alike else ""))
        self._claims.setdefault((self.namespace, key), claim._replace(name=key))
        return key

    def _examine_each(self, mounted: MountedClaim, claim: Claim, prefix: str) -> MountedClaim:
        """A claim that every pod has for itself. `prefix`: how the names begin of those that outlive their pods."""
        found = self._examine_unbound(mounted, claim)
        unknown = self._unsure_of_stored(prefix) if prefix else None
        never = found.never if unknown is None else None
        unknown = unknown or found.unknown or self._unsure_of_each(claim, found)
        changed = replace(found, never=never, unknown=unknown, not_shown=None, one_node=False, is_each=True)
        return replace(changed, is_placed=found.is_placed and not unknown)

    def _unsure_of_stored(self, prefix: str) -> str | None:
        if not self._knows_claims and "PersistentVolumeClaim" not in self._assumed:
            return f"the snapshot does not show whether there is a claim {prefix}0 already"
        for namespace, name in self.storage.claims:
            end = name.removeprefix(prefix)
            if namespace == self.namespace and end != name and end.replace("-", "").isdigit():
                return f"claim {name} is there already, and the pod must run where its volume is"
        return None

    def _unsure_of_each(self, claim: Claim, found: MountedClaim) -> str | None:
        storage, made = self.storage, (self.storage.classes or {}).get(claim.storage_class)
        if claim.volume or claim.selector is not None or (storage.classes is not None and found.driver is None):
            return "whether each pod gets a volume that is there already is not modeled"
        if made is None:
            return None
        driver, volumes = (storage.drivers or {}).get(made.provisioner), storage.volumes
        if made.topologies or not made.is_on_demand:
            if volumes is None and "PersistentVolume" not in self._assumed:
                return "the snapshot does not show which volumes are there already"
            if any(may_bind(claim, volume) for volume in (volumes or {}).values()):
                return "some pods may get volumes that are there already"
        if driver is not None and driver.tells_capacity:
            return f"driver {driver.name} tells its free storage, and each pod takes some of it"
        if storage.node_drivers is None and "CSINode" not in self._assumed:
            return "the snapshot does not show its CSINodes"
        return None

    def _examine(self, key: str, where: Where) -> MountedClaim:
        claim = self.storage.claims.get((self.namespace, key))
        mounted = MountedClaim(key, claim, where)
        for (_, prefix), each in self._each.items():
            if each == key and claim is not None:
                return self._examine_each(mounted, claim, prefix)
        if claim is None:
            if self._knows_claims:
                return mounted  # said elsewhere: it does not exist
            if "PersistentVolumeClaim" in self._assumed:
                is_free = "PersistentVolume" in self._assumed
                return replace(mounted, tie=None if is_free else Tie(None, False, follows_pod=False))
            return replace(mounted, unknown="the snapshot does not show it", not_shown="PersistentVolumeClaim")
        if claim.is_lost:
            never = f'persistentvolumeclaim "{key}" bound to non-existent persistentvolume "{claim.volume}"'
            return replace(mounted, never=never, because=f"has lost its volume {claim.volume}")
        if claim.is_leaving:
            return replace(mounted, never=f'persistentvolumeclaim "{key}" is being deleted', because="is being deleted")
        return self._examine_bound(mounted, claim) if claim.is_bound else self._examine_unbound(mounted, claim)

    def _examine_bound(self, mounted: MountedClaim, claim: Claim) -> MountedClaim:
        volumes = self.storage.volumes
        if volumes is None:
            if "PersistentVolume" in self._assumed:
                return mounted
            one_node = None if claim.modes and not claim.modes & SHARED_MODES else False
            return replace(mounted, tie=Tie(None, False, follows_pod=False), one_node=one_node)
        volume = volumes.get(claim.volume)
        if volume is None:
            never = f'persistentvolume "{claim.volume}" not found'
            return replace(mounted, never=never, because=f"is bound to volume {claim.volume}, which does not exist")
        return replace(mounted, is_placed=True, driver=volume.driver, one_node=self._is_for_one_node(volume))

    def _examine_unbound(self, mounted: MountedClaim, claim: Claim) -> MountedClaim:
        classes, volumes = self.storage.classes, self.storage.volumes
        if claim.volume:
            return replace(mounted, is_waiting=True, tie=Tie(None, False, follows_pod=False))
        made = (classes or {}).get(claim.storage_class)
        ready = [volume for volume in (volumes or {}).values() if may_bind(claim, volume)]
        if made is None and classes is None:
            if "StorageClass" not in self._assumed:
                return replace(
                    mounted, unknown="the snapshot does not show its storage class", not_shown="StorageClass"
                )
            return replace(mounted, tie=Tie(None, False, follows_pod=True), one_node=self._writers(claim, None))
        if made is None or made.provisioner in ("", NO_PROVISIONER):
            return self._examine_static(mounted, claim, made, ready)
        return self._examine_dynamic(mounted, claim, made, ready)

    def _examine_static(
        self, mounted: MountedClaim, claim: Claim, made: StorageClass | None, ready: Sequence[Volume]
    ) -> MountedClaim:
        """A claim for which no volume is made: it gets one that is there."""
        if self.storage.volumes is None:
            return replace(mounted, unknown="nothing makes volumes for it, and the snapshot shows no PersistentVolume")
        named = f"storage class {made.name} makes no volumes" if made else "no storage class makes volumes for it"
        if not ready:
            if made is None and mounted.is_own:
                return mounted  # said elsewhere: it has no class
            because = f"gets no volume: {named}, and no PersistentVolume that is there suits it"
            return replace(mounted, never=NO_VOLUMES[made is not None], because=because)
        follows = made is not None and made.is_on_demand
        tied = any(volume.terms is not None or is_zonal(volume) for volume in ready)
        forbidden = [self._is_for_one_node(volume) for volume in ready]
        return replace(
            mounted,
            is_waiting=not follows and not mounted.is_own,
            is_placed=follows,
            tie=Tie(None, False, follows) if tied else None,
            one_node=True if all(forbidden) else None if any(each is not False for each in forbidden) else False,
        )

    def _examine_dynamic(
        self, mounted: MountedClaim, claim: Claim, made: StorageClass, ready: Sequence[Volume]
    ) -> MountedClaim:
        """A claim for which a provisioner makes a volume."""
        driver = (self.storage.drivers or {}).get(made.provisioner)
        if made.provisioner in ONE_WRITER and not claim.block and claim.modes & SHARED_MODES:
            modes = ", ".join(sorted(claim.modes))
            return replace(
                mounted, unknown=f"{made.provisioner} may not make {modes} volumes, and it waits forever then"
            )
        if driver is not None and driver.tells_capacity and self.storage.capacities is None and made.is_on_demand:
            return replace(mounted, unknown=f"driver {driver.name} tells its free storage, and the snapshot does not")
        keys = self._topology_keys(made.provisioner)
        tie = Tie(keys, keys is not None, made.is_on_demand, made) if keys is None or keys else None
        if ready and tie is None and any(volume.terms is not None or is_zonal(volume) for volume in ready):
            tie = Tie(None, False, made.is_on_demand)
        shared = sorted(claim.modes & SHARED_MODES)
        grants = [f"that {made.provisioner} makes {', '.join(shared)} volumes"] if shared else []
        return replace(
            mounted,
            is_waiting=not made.is_on_demand and not mounted.is_own,
            is_placed=made.is_on_demand,
            tie=tie,
            driver=made.provisioner,
            one_node=self._writers(claim, made.provisioner),
            grants=tuple(grants),
        )

    def _topology_keys(self, provisioner: str) -> tuple[str, ...] | None:
        """The labels of nodes by which a provisioner's volumes are tied; empty: to none. `None` when not known."""
        nodes = self.storage.node_drivers
        if nodes is None:
            return () if "CSINode" in self._assumed else None
        there = [drivers[provisioner] for drivers in nodes.values() if provisioner in drivers]
        return tuple(sorted({key for each in there for key in each.topology_keys})) if there else None

    def _is_for_one_node(self, volume: Volume) -> bool | None:
        """As the attach-detach controller of Kubernetes sees it: IsMultiAttachAllowed of pkg/volume/util."""
        if not volume.modes or volume.modes & SHARED_MODES or volume.is_attached is False:
            return False
        return self._attaches(volume.driver, is_csi=volume.driver is not None)

    def _writers(self, claim: Claim, provisioner: str | None) -> bool | None:
        if not claim.modes or claim.modes & SHARED_MODES:
            return False
        return self._attaches(provisioner, is_csi=False)

    def _attaches(self, driver: str | None, *, is_csi: bool) -> bool | None:
        """Whether a driver's volumes are attached to nodes; a CSI driver without a CSIDriver attaches."""
        drivers = self.storage.drivers
        if drivers is None:
            return False if "CSIDriver" in self._assumed else None
        if driver is not None and driver in drivers:
            return drivers[driver].attaches
        return True if is_csi else None
