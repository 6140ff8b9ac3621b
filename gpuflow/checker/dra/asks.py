"""What the pods of a pipeline ask of devices: claims from templates, claims by name, and extended resources."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpuflow.checker.dra.extended import contested, extended_claim
from gpuflow.checker.dra.inventory import ADMIN_ACCESS, Inventory
from gpuflow.checker.dra.nodes import read_terms
from gpuflow.checker.dra.objects import Claim, DeviceClass, read_claim
from gpuflow.checker.nodes.placement import NodeSelectorTerm
from gpuflow.cluster import Manifest
from gpuflow.errors import Finding, GpuflowError
from gpuflow.kubernetes.admission.names import is_extended
from gpuflow.kubernetes.admission.pod import Pod, read_pod, read_text
from gpuflow.resources import read_map, read_maps


@dataclass(frozen=True, eq=False)
class DeviceAsk:
    """What one pod of a group needs."""

    pod: Pod
    made: tuple[Claim, ...] = ()
    """To be allocated for the pod, as its spec names them."""
    held: tuple[tuple[NodeSelectorTerm, ...] | None, ...] = ()
    """Claims that are allocated already: the nodes where they can be used, `None` for all."""
    shared: tuple[str, ...] = ()
    """The claims that other pods may use too, by name."""
    extended: Mapping[str, DeviceClass] = field(default_factory=dict)
    """The extended resources that a class stands for; a node that has them from a device plug-in needs no device."""
    open: tuple[str, ...] = ()
    """The extended resources that no node has and that a class may stand for: classes are not shown."""
    never: str | None = None
    """Why no node will ever take the pod."""
    unknown: tuple[str, ...] = ()

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """To be allocated where no device plug-in helps."""
        return self.claims_on(())

    def claims_on(self, plugged: Collection[str]) -> tuple[Claim, ...]:
        """To be allocated on a node that has these resources from a device plug-in."""
        missing = {name: each for name, each in self.extended.items() if name not in plugged}
        return (*self.made, extended_claim(self.pod, missing)) if missing else self.made


class _Reader:
    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.claims: list[Claim] = []
        self.held: list[tuple[NodeSelectorTerm, ...] | None] = []
        self.shared: list[str] = []
        self.never: str | None = None
        self.unknown: list[str] = []

    def read(self, pod: Pod, offered: Collection[str]) -> DeviceAsk:
        for index, each in enumerate(read_maps(pod.spec.get("resourceClaims"), "spec.resourceClaims")):
            where = f"spec.resourceClaims[{index}]"
            name, template = (
                read_text(each, field, where) for field in ("resourceClaimName", "resourceClaimTemplateName")
            )
            if name is not None:
                self._named(name)
            elif template is not None:
                self._made(template)
        extended = {
            resource: self.inventory.by_resource[resource]
            for resource, amount in pod.requests().items()
            if amount and resource in self.inventory.by_resource
        }
        for resource in sorted(contested(self.inventory.classes.values()).intersection(extended)):
            self.unknown.append(f"whether the scheduler knows {resource}: another class has its extendedResourceName")
        for claim in self.claims:
            self._check(claim)
        self._check_admin_access()
        opened: tuple[str, ...] = ()
        if not self.inventory.is_known("DeviceClass"):
            asked = [name for name, amount in pod.requests().items() if amount and is_extended(name)]
            # Where a device plug-in gives resources of the same vendor, it gives this one too, or nobody does.
            vendors = {name.partition("/")[0] for name in offered if is_extended(name)}
            opened = tuple(name for name in asked if name.partition("/")[0] not in vendors)
        if opened:
            self.unknown.append(f"no node has {', '.join(opened)}, and the snapshot does not show whether a class does")
        return DeviceAsk(
            pod,
            tuple(self.claims),
            tuple(self.held),
            tuple(self.shared),
            extended,
            opened,
            self.never,
            tuple(self.unknown),
        )

    def _made(self, name: str) -> None:
        """A claim that is made for the pod from a template."""
        item = self.inventory.template(name)
        if item is not None:
            spec = read_map(item.body.get("spec"), "spec").get("spec")
            self.claims.append(_read(item, name, spec, "spec.spec"))
        elif self.inventory.is_known("ResourceClaimTemplate"):
            self.never = f'there is no ResourceClaimTemplate "{name}": the claim of the pod is never made'
        else:
            self.unknown.append(f"the snapshot shows no ResourceClaimTemplate: what {name} asks for is not known")

    def _named(self, name: str) -> None:
        item = self.inventory.claim(name)
        self.shared.append(name)
        if item is not None:
            status = read_map(item.body.get("status"), "status")
            if status.get("allocation") is None:
                self.claims.append(_read(item, name, item.body.get("spec"), "spec"))
                return
            selector = read_map(status["allocation"], "status.allocation").get("nodeSelector")
            where = "status.allocation.nodeSelector"
            self.held.append(None if selector is None else read_terms(selector, where))
        elif self.inventory.is_known("ResourceClaim"):
            self.never = f'there is no ResourceClaim "{name}"'
        else:
            self.unknown.append(f"the snapshot shows no ResourceClaim: what {name} asks for is not known")

    def _check_admin_access(self) -> None:
        """The API server takes claims with adminAccess, and those made from such a template, in namespaces with a
        label.

        Mirrors k8s.io/kubernetes/pkg/registry/resource.AuthorizedForAdmin, Kubernetes v1.36.3.
        """
        if not any(claim.admin_requests for claim in self.claims):
            return
        labels = self.inventory.namespace_labels
        if labels is None:
            self.unknown.append(
                f"the snapshot does not show namespace {self.inventory.namespace}: a claim with adminAccess needs its "
                f'label {ADMIN_ACCESS}: "true"'
            )
        elif labels.get(ADMIN_ACCESS) != "true":
            self.never = (
                f"Forbidden: admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing "
                "namespace"
            )

    def _check(self, claim: Claim) -> None:
        for request in (each for alternatives in claim.requests for each in alternatives):
            if request.device_class not in self.inventory.classes and self.inventory.is_known("DeviceClass"):
                self.never = f"request {request.full_name}: device class {request.device_class} does not exist"


def _read(item: Manifest, name: str, spec: Any, where: str) -> Claim:
    try:
        return read_claim(name, spec, where)
    except ValueError as refusal:
        raise GpuflowError(Finding("GF403", str(refusal), item.at_fault(refusal), "fix the manifest")) from None


def read_ask(pod: Mapping[str, Any], inventory: Inventory, offered: Collection[str]) -> DeviceAsk | None:
    """What a pod asks of devices; `None` when nothing. `offered`: the resources that some node has."""
    ask = _Reader(inventory).read(read_pod(pod), offered)
    asks = ask.claims or ask.held or ask.shared or ask.never or ask.unknown
    return ask if asks else None
