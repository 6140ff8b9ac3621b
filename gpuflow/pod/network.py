"""The names that a pod knows: lines of /etc/hosts, and how it asks for others."""

from __future__ import annotations

from typing import Any

from gpuflow.spec.hatch import DnsConfig
from gpuflow.spec.policies import Kubernetes


def network(hatch: Kubernetes) -> dict[str, Any]:
    """Fields of the pod's spec; None or empty where nothing is said."""
    return {
        "hostAliases": [{"ip": ip, "hostnames": list(names)} for ip, names in hatch.host_aliases.items()],
        "dnsPolicy": hatch.dns_policy,
        "dnsConfig": _dns(hatch.dns_config) if hatch.dns_config else None,
    }


def _dns(config: DnsConfig) -> dict[str, Any]:
    options = [
        {"name": name} if value is None else {"name": name, "value": value} for name, value in config.options.items()
    ]
    fields = {"nameservers": list(config.nameservers), "searches": list(config.searches), "options": options}
    return {key: value for key, value in fields.items() if value}
