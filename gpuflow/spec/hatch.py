"""Kubernetes' own fields in the style of the spec: DNS, and how pods are spread."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, WithJsonSchema

from gpuflow.spec.model import Count, Model, Str, problem
from gpuflow.spec.names import LabelKey, LabelValue


def _address(value: Any) -> str:
    try:
        return str(value) if isinstance(value, str) and ipaddress.ip_address(value) else _no_address(value)
    except ValueError:
        return _no_address(value)


def _no_address(value: Any) -> str:
    raise problem("GF127", f"{value!r:.60} is not an IP address", "write it like 10.0.0.7 or fd00::7")


IpAddress = Annotated[str, PlainValidator(_address), WithJsonSchema({"type": "string", "pattern": "^[0-9a-fA-F.:]+$"})]


class DnsConfig(Model):
    """How the pod asks for names."""

    nameservers: tuple[IpAddress, ...] = ()
    """Addresses of name servers."""
    searches: tuple[Str, ...] = ()
    """Domains that short names are looked up in."""
    options: dict[Str, Str | None] = {}
    """Options of the resolver, with or without a value: {ndots: "2", edns0: null}."""


class TopologySpread(Model):
    """One entry of topologySpreadConstraints."""

    topology_key: LabelKey
    """The node label whose values the pods are spread over."""
    max_skew: Count = 1
    """How many pods one value may have more than another."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "DoNotSchedule"
    """Wait, or take the best there is."""
    match_labels: dict[LabelKey, LabelValue] = {}
    """Which pods are counted; default: those of the same step."""
    min_domains: Count | None = None
    """The least number of values."""
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    """Whether only nodes that the pod may run on count."""
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    """Whether nodes with taints that the pod does not tolerate count."""
    match_label_keys: tuple[LabelKey, ...] = ()
    """Labels of the pod itself whose values must be the same."""
