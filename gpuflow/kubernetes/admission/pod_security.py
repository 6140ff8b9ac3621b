"""Pod Security Standards: what the labels of a namespace demand of its pods.

`pod-security.kubernetes.io/enforce` names a level, `…/enforce-version` the Kubernetes version whose rules
apply. Only `enforce` refuses; `warn` and `audit` never do. Each check gives `None` or what it forbids and why, in the
words of Kubernetes' own admission plug-in. One that has changed over the versions takes what changed as an argument.

Mirrors k8s.io/pod-security-admission/policy.DefaultChecks, Kubernetes v1.36.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from gpuflow.kubernetes.admission.field_errors import quote_as_go
from gpuflow.kubernetes.admission.pod import Body
from gpuflow.kubernetes.pod_fields import fields_of
from gpuflow.kubernetes.resources import read_map, read_maps, read_texts

Map = Mapping[str, Any]
Finding = tuple[str, str] | None
"""What a check forbids and why; `None` when it has nothing against the pod."""


class View:
    """A pod, its annotations, and its containers with their security contexts."""

    __slots__ = ("annotations", "containers", "context", "spec")

    def __init__(self, metadata: Map, spec: Map) -> None:
        self.spec = spec
        annotations = read_map(metadata.get("annotations"), "metadata.annotations")
        self.annotations = {str(key): str(value) for key, value in annotations.items()}
        self.context = read_map(spec.get("securityContext"), "spec.securityContext")
        self.containers = [
            (str(each.get("name") or ""), each, read_map(each.get("securityContext"), f"spec.{field}"))
            for field in ("initContainers", "containers", "ephemeralContainers")
            for each in read_maps(spec.get(field), f"spec.{field}")
        ]

    def bad_containers(self, bad: Callable[[Map], object]) -> list[str]:
        """The names of the containers whose security context is bad."""
        return [name for name, _, context in self.containers if bad(context)]


def quote(items: Iterable[str]) -> str:
    return ", ".join(f'"{item}"' for item in items)


def plural(word: str, many: int) -> str:
    return word if many == 1 else f"{word}s"


def use(names: Sized) -> str:
    return "uses" if len(names) == 1 else "use"


def container_list(names: list[str]) -> str:
    return f"{plural('container', len(names))} {quote(names)}"


def setters(pod_is_bad: object, names: list[str]) -> str:
    """Who set a forbidden value: the pod, some containers, or both; empty when nobody."""
    return " and ".join([*(["pod"] if pod_is_bad else []), *([container_list(names)] if names else [])])


def context_section(context: Map, field: str) -> Map:
    return read_map(context.get(field), f"securityContext.{field}")


ALLOWED_VOLUMES: Final = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected",
    "secret",
)  # fmt: skip
RESTRICTED_VOLUMES: Final = tuple(kind for kind in fields_of("Volume") if kind not in ("name", *ALLOWED_VOLUMES))


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
    what = plural("restricted volume type", len(kinds))
    return (
        "restricted volume types",
        f"{plural('volume', len(names))} {quote(names)} {use(names)} {what} {quote(sorted(kinds))}",
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
    what = plural("hostPort", len(ports))
    return ("hostPort", f"{container_list(names)} {use(names)} {what} {', '.join(sorted(ports))}")


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
    what = plural("probe or lifecycle host", len(hosts))
    return ("probe or lifecycle host", f"{container_list(sorted(names))} {use(names)} {what} {quote(sorted(hosts))}")


def sysctls(pod: View, allowed: frozenset[str]) -> Finding:
    listed = read_maps(pod.context.get("sysctls"), "spec.securityContext.sysctls")
    names = [name for each in listed if (name := str(each.get("name") or "")) not in allowed]
    return ("forbidden sysctls", ", ".join(names)) if names else None


DEFAULT_CAPABILITIES: Final = frozenset(
    {
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE",
        "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
    }
)  # fmt: skip
PROFILES: Final = ("RuntimeDefault", "Localhost")
APPARMOR_ANNOTATION: Final = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP_POD_ANNOTATION: Final = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_ANNOTATION: Final = "container.seccomp.security.alpha.kubernetes.io/"


def privilege_escalation(pod: View) -> Finding:
    names = pod.bad_containers(lambda context: context.get("allowPrivilegeEscalation") is not False)
    if not names:
        return None
    return (
        "allowPrivilegeEscalation != false",
        f"{container_list(names)} must set securityContext.allowPrivilegeEscalation=false",
    )


def forbidden_profiles(pod: View, field: str) -> tuple[str, list[str]]:
    """Who sets a profile of a type that is not allowed, and these types."""

    def bad(context: Map) -> bool:
        return profile_type(context, field) not in (None, *PROFILES)

    every = [pod.context, *(context for _, _, context in pod.containers)]
    kinds = {str(profile_type(context, field)) for context in every if bad(context)}
    return setters(bad(pod.context), pod.bad_containers(bad)), sorted(kinds)


def profile_type(context: Map, field: str) -> str | None:
    profile = context.get(field)
    return None if profile is None else str(read_map(profile, field).get("type") or "")


def app_armor(pod: View) -> Finding:
    who, values = forbidden_profiles(pod, "appArmorProfile")
    culprits = [who] if who else []
    annotations = sorted(
        f"{key}={quote_as_go(value)}"
        for key, value in pod.annotations.items()
        if key.startswith(APPARMOR_ANNOTATION)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    )
    if annotations:
        values += annotations
        culprits.append(plural("annotation", len(annotations)))
    if not culprits:
        return None
    detail = f"{' and '.join(culprits)} must not set AppArmor profile type to {quote(values)}"
    return (plural("forbidden AppArmor profile", len(values)), detail)


def added_capabilities(pod: View, allowed: Collection[str]) -> str | None:
    """That containers add capabilities beside those allowed."""

    def extras(context: Map) -> list[str]:
        listed = read_texts(context_section(context, "capabilities").get("add"), "capabilities.add")
        return [each for each in listed if each not in allowed]

    names = pod.bad_containers(extras)
    if not names:
        return None
    every = {each for _, _, context in pod.containers for each in extras(context)}
    return f"{container_list(names)} must not include {quote(sorted(every))} in securityContext.capabilities.add"


def capabilities_baseline(pod: View) -> Finding:
    adding = added_capabilities(pod, DEFAULT_CAPABILITIES)
    return ("non-default capabilities", adding) if adding else None


def capabilities_restricted(pod: View) -> Finding:
    def keeps(context: Map) -> bool:
        return "ALL" not in read_texts(context_section(context, "capabilities").get("drop"), "capabilities.drop")

    names = pod.bad_containers(keeps)
    keeping = f'{container_list(names)} must set securityContext.capabilities.drop=["ALL"]' if names else None
    details = [each for each in (keeping, added_capabilities(pod, ("NET_BIND_SERVICE",))) if each]
    return ("unrestricted capabilities", "; ".join(details)) if details else None


def privileged(pod: View) -> Finding:
    names = pod.bad_containers(lambda context: context.get("privileged") is True)
    return ("privileged", f"{container_list(names)} must not set securityContext.privileged=true") if names else None


def proc_mount(pod: View) -> Finding:
    names = pod.bad_containers(lambda context: context.get("procMount") not in (None, "Default"))
    if not names:
        return None
    kinds = {str(context.get("procMount") or "Default") for _, _, context in pod.containers} - {"Default"}
    return ("procMount", f"{container_list(names)} must not set securityContext.procMount to {quote(sorted(kinds))}")


def run_as_non_root(pod: View) -> Finding:
    of_pod = pod.context.get("runAsNonRoot")
    who = setters(of_pod is False, pod.bad_containers(lambda context: context.get("runAsNonRoot") is False))
    if who:
        return ("runAsNonRoot != true", f"{who} must not set securityContext.runAsNonRoot=false")
    silent = [] if of_pod else pod.bad_containers(lambda context: context.get("runAsNonRoot") is None)
    if silent:
        return ("runAsNonRoot != true", f"pod or {container_list(silent)} must set securityContext.runAsNonRoot=true")
    return None


def run_as_user(pod: View) -> Finding:
    who = setters(pod.context.get("runAsUser") == 0, pod.bad_containers(lambda context: context.get("runAsUser") == 0))
    return ("runAsUser=0", f"{who} must not set runAsUser=0") if who else None


def se_linux(pod: View, allowed: frozenset[str]) -> Finding:
    def options(context: Map) -> Map:
        return context_section(context, "seLinuxOptions")

    def bad(context: Map) -> bool:
        chosen = options(context)
        return bool(str(chosen.get("type") or "") not in allowed or chosen.get("user") or chosen.get("role"))

    who = setters(bad(pod.context), pod.bad_containers(bad))
    if not who:
        return None
    every = [options(pod.context), *(options(context) for _, _, context in pod.containers)]
    kinds = sorted({str(each.get("type") or "") for each in every} - allowed)
    data = [f"{plural('type', len(kinds))} {quote(kinds)}"] if kinds else []
    data += [f"{field} may not be set" for field in ("user", "role") if any(each.get(field) for each in every)]
    return ("seLinuxOptions", f"{who} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}")


def seccomp_annotations(pod: View) -> Finding:
    keys = [SECCOMP_POD_ANNOTATION, *(f"{SECCOMP_ANNOTATION}{name}" for name, _, _ in pod.containers)]
    forbidden = sorted(
        {
            f"{key}={quote_as_go(value)}"
            for key in keys
            if (value := pod.annotations.get(key)) is not None
            and value not in ("runtime/default", "docker/default")
            and not value.startswith("localhost/")
        }
    )
    if not forbidden:
        return None
    return ("seccompProfile", f"forbidden {plural('annotation', len(forbidden))} {', '.join(forbidden)}")


def seccomp(pod: View, required: bool) -> Finding:
    who, values = forbidden_profiles(pod, "seccompProfile")
    if who:
        return ("seccompProfile", f"{who} must not set securityContext.seccompProfile.type to {quote(values)}")
    silent = pod.bad_containers(lambda context: context.get("seccompProfile") is None)
    if required and pod.context.get("seccompProfile") is None and silent:
        field = "securityContext.seccompProfile.type"
        return "seccompProfile", f'pod or {container_list(silent)} must set {field} to "RuntimeDefault" or "Localhost"'
    return None


def windows_host_process(pod: View) -> Finding:
    def bad(context: Map) -> bool:
        return context_section(context, "windowsOptions").get("hostProcess") is True

    who = setters(bad(pod.context), pod.bad_containers(bad))
    return ("hostProcess", f"{who} must not set securityContext.windowsOptions.hostProcess=true") if who else None


LABEL: Final = "pod-security.kubernetes.io/enforce"
LEVELS: Final = ("privileged", "baseline", "restricted")

SE_LINUX: Final = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})
SYSCTLS: Final = frozenset(
    {
        "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start",
    }
)  # fmt: skip
SYSCTLS_27: Final = SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
SYSCTLS_29: Final = SYSCTLS_27 | {
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}  # fmt: skip
SYSCTLS_32: Final = SYSCTLS_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}

Check = Callable[[View], Finding]


class Entry(NamedTuple):
    """One check, the minor version of Kubernetes 1 from which each form of it holds, and what it replaces."""

    forms: Mapping[int, Check]
    replaces: str = ""


def is_windows(pod: View) -> bool:
    return bool(read_map(pod.spec.get("os"), "spec.os").get("name") == "windows")


def has_own_users(pod: View) -> bool:
    return pod.spec.get("hostUsers") is False


def _with_exemption(check: Check, is_exempt: Callable[[View], bool], since: int, exempt_since: int) -> dict[int, Check]:
    """The two forms of a check that later exempts some pods, each from its minor version on."""
    return {since: check, exempt_since: lambda pod: None if is_exempt(pod) else check(pod)}


# In the order in which Kubernetes reports them: by name, baseline first.
BASELINE: Final[Mapping[str, Entry]] = {
    "appArmorProfile": Entry({0: app_armor}),
    "capabilities_baseline": Entry({0: capabilities_baseline}),
    "hostNamespaces": Entry({0: host_namespaces}),
    "hostPathVolumes": Entry({0: host_path}),
    "hostPorts": Entry({0: host_ports}),
    "hostProbesAndHostLifecycle": Entry({34: probe_hosts}),
    "privileged": Entry({0: privileged}),
    "procMount": Entry(_with_exemption(proc_mount, has_own_users, 0, 35)),
    "seLinuxOptions": Entry(
        {0: partial(se_linux, allowed=SE_LINUX), 31: partial(se_linux, allowed=SE_LINUX | {"container_engine_t"})}
    ),
    "seccompProfile_baseline": Entry({0: seccomp_annotations, 19: partial(seccomp, required=False)}),
    "sysctls": Entry(
        {
            0: partial(sysctls, allowed=SYSCTLS),
            27: partial(sysctls, allowed=SYSCTLS_27),
            29: partial(sysctls, allowed=SYSCTLS_29),
            32: partial(sysctls, allowed=SYSCTLS_32),
        }
    ),
    "windowsHostProcess": Entry({0: windows_host_process}),
}
RESTRICTED: Final[Mapping[str, Entry]] = {
    "allowPrivilegeEscalation": Entry(_with_exemption(privilege_escalation, is_windows, 8, 25)),
    "capabilities_restricted": Entry(
        _with_exemption(capabilities_restricted, is_windows, 22, 25), replaces="capabilities_baseline"
    ),
    "procMount_restricted": Entry({35: proc_mount}, replaces="procMount"),
    "restrictedVolumes": Entry({0: restricted_volumes}, replaces="hostPathVolumes"),
    "runAsNonRoot": Entry(_with_exemption(run_as_non_root, has_own_users, 0, 35)),
    "runAsUser": Entry(_with_exemption(run_as_user, has_own_users, 23, 35)),
    "seccompProfile_restricted": Entry(
        _with_exemption(partial(seccomp, required=True), is_windows, 19, 25), replaces="seccompProfile_baseline"
    ),
}
NEWEST: Final = max(minor for entry in (*BASELINE.values(), *RESTRICTED.values()) for minor in entry.forms)


class Policy(NamedTuple):
    """What a namespace enforces; `minor` is `None` for the latest rules."""

    level: str
    minor: int | None

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.minor is None else f'v1.{self.minor}'}"


PRIVILEGED: Final = Policy("privileged", None)


def read_policy(labels: Mapping[str, Any]) -> Policy:
    """The policy of a namespace; labels that cannot be read mean the strictest level and the latest rules."""
    level = labels.get(LABEL, "privileged")
    version = re.fullmatch(r"v1\.(0|[1-9][0-9]*)", str(labels.get(f"{LABEL}-version", "latest")))
    return Policy(level if level in LEVELS else "restricted", int(version[1]) if version else None)


def violation(metadata: Body, spec: Body, policy: Policy) -> str | None:
    """What the pod violates, as the admission plug-in says it."""
    if policy.level == "privileged":
        return None
    view = View(read_map(metadata, "metadata"), spec)
    found = [finding for check in _checks(policy) if (finding := check(view))]
    if not found:
        return None
    listed = ", ".join(f"{reason} ({detail})" for reason, detail in found)
    return f'violates PodSecurity "{policy}": {listed}'


@lru_cache(maxsize=256)
def _checks(policy: Policy) -> tuple[Check, ...]:
    minor = NEWEST if policy.minor is None else policy.minor
    restricted = _in_force(RESTRICTED, minor) if policy.level == "restricted" else {}
    replaced = {RESTRICTED[name].replaces for name in restricted}
    baseline = _in_force(BASELINE, minor)
    return (*(check for name, check in baseline.items() if name not in replaced), *restricted.values())


def _in_force(entries: Mapping[str, Entry], minor: int) -> dict[str, Check]:
    return {
        name: entry.forms[max(since)]
        for name, entry in entries.items()
        if (since := [each for each in entry.forms if each <= minor])
    }
