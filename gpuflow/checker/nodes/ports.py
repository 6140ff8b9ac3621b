"""Ports of the node that pods take for themselves.

Mirrors k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeports.NodePorts.Filter, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from gpuflow.checker.nodes.flags import read_flag
from gpuflow.kubernetes.admission.pod import read_integer, read_text
from gpuflow.resources import read_maps

ANY_ADDRESS: Final = "0.0.0.0"


class HostPort(NamedTuple):
    address: str
    protocol: str
    number: int

    def clashes(self, other: HostPort) -> bool:
        same_address = self.address == other.address or ANY_ADDRESS in (self.address, other.address)
        return same_address and self.number == other.number and self.protocol == other.protocol


def clash(wanted: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    return any(port.clashes(other) for other in used for port in wanted)


def read_host_ports(spec: Mapping[str, Any]) -> tuple[HostPort, ...]:
    """The host ports of the containers that run all the time; on the host's network every port is one."""
    return tuple(port for port in _ports(spec) if port.number > 0)


def _ports(spec: Mapping[str, Any]) -> Iterator[HostPort]:
    on_host = read_flag(spec, "hostNetwork", "spec") or False
    for field in ("initContainers", "containers"):
        for index, container in enumerate(read_maps(spec.get(field), f"spec.{field}")):
            if container.get("ports") and (field == "containers" or container.get("restartPolicy") == "Always"):
                where = f"spec.{field}[{index}].ports"
                for position, port in enumerate(read_maps(container["ports"], where)):
                    yield _read_port(port, f"{where}[{position}]", on_host)


def _read_port(port: Mapping[str, Any], where: str, on_host: bool) -> HostPort:
    number = read_integer(port, "hostPort", where) or 0
    if on_host and not number:
        number = read_integer(port, "containerPort", where) or 0
    return HostPort(
        read_text(port, "hostIP", where) or ANY_ADDRESS, read_text(port, "protocol", where) or "TCP", number
    )
