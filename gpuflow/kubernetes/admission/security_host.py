"""Pod Security checks on what a pod takes of its host: namespaces, paths, ports and kernel settings.

Each gives `None` or what it forbids and why, in the words of Kubernetes' own admission plug-in. One that has changed
over the versions takes what changed as an argument.

Mirrors the checks in k8s.io/pod-security-admission/policy.DefaultChecks, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpuflow.kubernetes.admission.security_view import Finding, Map, View, plural, quote, these
from gpuflow.resources import read_map, read_maps

ALLOWED_VOLUMES: Final = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected",
    "secret",
)  # fmt: skip
RESTRICTED_VOLUMES: Final = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd",
    "flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk",
    "photonPersistentDisk", "portworxVolume", "scaleIO", "storageos",
)  # fmt: skip


def host_namespaces(pod: View) -> Finding:
    shared = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(field) is True]
    return ("host namespaces", ", ".join(shared)) if shared else None


def volumes_of(pod: View) -> list[Map]:
    return read_maps(pod.spec.get("volumes"), "spec.volumes")


def host_path(pod: View) -> Finding:
    names = [str(each.get("name") or "") for each in volumes_of(pod) if each.get("hostPath") is not None]
    return ("hostPath volumes", f"{plural('volume', len(names))} {quote(names)}") if names else None


def restricted_volumes(pod: View) -> Finding:
    names, kinds = [], set()
    for each in volumes_of(pod):
        if all(each.get(kind) is None for kind in ALLOWED_VOLUMES):
            names.append(str(each.get("name") or ""))
            kinds.add(next((kind for kind in RESTRICTED_VOLUMES if each.get(kind) is not None), "unknown"))
    if not names:
        return None
    use = "uses" if len(names) == 1 else "use"
    what = plural("restricted volume type", len(kinds))
    return (
        "restricted volume types",
        f"{plural('volume', len(names))} {quote(names)} {use} {what} {quote(sorted(kinds))}",
    )


def host_ports(pod: View) -> Finding:
    names = []
    ports: set[str] = set()
    # A port of a pod on the host's network is a port of the host, whether it says so or not.
    fields = ("hostPort", "containerPort") if pod.spec.get("hostNetwork") is True else ("hostPort",)
    for name, container, _ in pod.containers:
        listed = read_maps(container.get("ports"), "ports")
        found = [port for each in listed if (port := next(filter(None, map(each.get, fields)), None))]
        if found:
            names.append(name)
            ports.update(map(str, found))
    if not names:
        return None
    use = "uses" if len(names) == 1 else "use"
    return ("hostPort", f"{these(names)} {use} {plural('hostPort', len(ports))} {', '.join(sorted(ports))}")


def handlers(container: Map) -> Iterator[Map]:
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        yield read_map(container.get(probe), probe)
    lifecycle = read_map(container.get("lifecycle"), "lifecycle")
    for hook in ("postStart", "preStop"):
        yield read_map(lifecycle.get(hook), hook)


def probe_hosts(pod: View) -> Finding:
    names, hosts = set(), set()
    for name, container, _ in pod.containers:
        for handler in handlers(container):
            for kind in ("httpGet", "tcpSocket"):
                host = read_map(handler.get(kind), kind).get("host")
                if host:
                    names.add(name)
                    hosts.add(str(host))
    if not names:
        return None
    use = "uses" if len(names) == 1 else "use"
    what = plural("probe or lifecycle host", len(hosts))
    return ("probe or lifecycle host", f"{these(sorted(names))} {use} {what} {quote(sorted(hosts))}")


def sysctls(pod: View, allowed: frozenset[str]) -> Finding:
    listed = read_maps(pod.context.get("sysctls"), "spec.securityContext.sysctls")
    names = [name for each in listed if (name := str(each.get("name") or "")) not in allowed]
    return ("forbidden sysctls", ", ".join(names)) if names else None
