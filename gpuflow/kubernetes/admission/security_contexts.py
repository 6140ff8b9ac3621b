"""Pod Security checks on how the containers of a pod run: users, capabilities and profiles.

Each gives `None` or what it forbids and why, in the words of Kubernetes' own admission plug-in. One that has changed
over the versions takes what changed as an argument.

Mirrors the checks in k8s.io/pod-security-admission/policy.DefaultChecks, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpuflow.kubernetes.admission.clauses import quoted
from gpuflow.kubernetes.admission.security_view import Finding, Map, View, plural, quote, setters, these, within
from gpuflow.resources import read_map, read_texts

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


def privilege_escalation(pod: View, exempt_windows: bool) -> Finding:
    if exempt_windows and pod.is_windows:
        return None
    names = pod.named(lambda context: context.get("allowPrivilegeEscalation") is not False)
    if not names:
        return None
    return (
        "allowPrivilegeEscalation != false",
        f"{these(names)} must set securityContext.allowPrivilegeEscalation=false",
    )


def app_armor(pod: View) -> Finding:
    def kind(context: Map) -> str | None:
        profile = context.get("appArmorProfile")
        return None if profile is None else str(read_map(profile, "appArmorProfile").get("type") or "")

    kinds = [kind(pod.context), *(kind(context) for _, _, context in pod.containers)]
    bad = [None if each in (None, *PROFILES) else each for each in kinds]
    values = sorted({each for each in bad if each is not None})
    names = [name for (name, _, _), each in zip(pod.containers, bad[1:], strict=True) if each is not None]
    culprits = [setters(bad[0] is not None, names)] if values else []
    annotations = sorted(
        f"{key}={quoted(value)}"
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
    who = " and ".join(culprits)
    return (
        plural("forbidden AppArmor profile", len(values)),
        f"{who} must not set AppArmor profile type to {quote(values)}",
    )


def added_capabilities(context: Map, allowed: Iterable[str]) -> list[str]:
    added = read_texts(within(context, "capabilities").get("add"), "capabilities.add")
    return [each for each in added if each not in allowed]


def dropped_capabilities(context: Map) -> list[str]:
    return read_texts(within(context, "capabilities").get("drop"), "capabilities.drop")


def capabilities_baseline(pod: View) -> Finding:
    names = pod.named(lambda context: added_capabilities(context, DEFAULT_CAPABILITIES))
    if not names:
        return None
    added = {each for _, _, context in pod.containers for each in added_capabilities(context, DEFAULT_CAPABILITIES)}
    return (
        "non-default capabilities",
        f"{these(names)} must not include {quote(sorted(added))} in securityContext.capabilities.add",
    )


def capabilities_restricted(pod: View, exempt_windows: bool) -> Finding:
    if exempt_windows and pod.is_windows:
        return None
    allowed = ("NET_BIND_SERVICE",)
    keeping = pod.named(lambda context: "ALL" not in dropped_capabilities(context))
    adding = pod.named(lambda context: added_capabilities(context, allowed))
    details = []
    if keeping:
        details.append(f'{these(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        added = {each for _, _, context in pod.containers for each in added_capabilities(context, allowed)}
        details.append(f"{these(adding)} must not include {quote(sorted(added))} in securityContext.capabilities.add")
    return ("unrestricted capabilities", "; ".join(details)) if details else None


def privileged(pod: View) -> Finding:
    names = pod.named(lambda context: context.get("privileged") is True)
    return ("privileged", f"{these(names)} must not set securityContext.privileged=true") if names else None


def proc_mount(pod: View, exempt_own_users: bool) -> Finding:
    if exempt_own_users and pod.has_own_users:
        return None
    names = pod.named(lambda context: context.get("procMount") not in (None, "Default"))
    if not names:
        return None
    kinds = {str(context.get("procMount") or "Default") for _, _, context in pod.containers} - {"Default"}
    return ("procMount", f"{these(names)} must not set securityContext.procMount to {quote(sorted(kinds))}")


def run_as_non_root(pod: View, exempt_own_users: bool) -> Finding:
    if exempt_own_users and pod.has_own_users:
        return None
    of_pod = pod.context.get("runAsNonRoot")
    who = setters(of_pod is False, pod.named(lambda context: context.get("runAsNonRoot") is False))
    if who:
        return ("runAsNonRoot != true", f"{who} must not set securityContext.runAsNonRoot=false")
    silent = [] if of_pod else pod.named(lambda context: context.get("runAsNonRoot") is None)
    if silent:
        return ("runAsNonRoot != true", f"pod or {these(silent)} must set securityContext.runAsNonRoot=true")
    return None


def run_as_user(pod: View, exempt_own_users: bool) -> Finding:
    if exempt_own_users and pod.has_own_users:
        return None
    who = setters(pod.context.get("runAsUser") == 0, pod.named(lambda context: context.get("runAsUser") == 0))
    return ("runAsUser=0", f"{who} must not set runAsUser=0") if who else None


def se_linux(pod: View, allowed: frozenset[str]) -> Finding:
    def options(context: Map) -> Map:
        return within(context, "seLinuxOptions")

    def bad(context: Map) -> bool:
        chosen = options(context)
        return bool(str(chosen.get("type") or "") not in allowed or chosen.get("user") or chosen.get("role"))

    who = setters(bad(pod.context), pod.named(bad))
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
            f"{key}={quoted(value)}"
            for key in keys
            if (value := pod.annotations.get(key)) is not None
            and value not in ("runtime/default", "docker/default")
            and not value.startswith("localhost/")
        }
    )
    if not forbidden:
        return None
    return ("seccompProfile", f"forbidden {plural('annotation', len(forbidden))} {', '.join(forbidden)}")


def seccomp(pod: View, required: bool, exempt_windows: bool) -> Finding:
    if exempt_windows and pod.is_windows:
        return None

    def kind(context: Map) -> str | None:
        profile = context.get("seccompProfile")
        return None if profile is None else str(read_map(profile, "seccompProfile").get("type") or "")

    def bad(context: Map) -> bool:
        return kind(context) not in (None, *PROFILES)

    who = setters(bad(pod.context), pod.named(bad))
    if who:
        every = [pod.context, *(context for _, _, context in pod.containers)]
        values = sorted({str(kind(context)) for context in every if bad(context)})
        return ("seccompProfile", f"{who} must not set securityContext.seccompProfile.type to {quote(values)}")
    silent = pod.named(lambda context: kind(context) is None)
    if required and kind(pod.context) is None and silent:
        return (
            "seccompProfile",
            f'pod or {these(silent)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"',
        )
    return None


def windows_host_process(pod: View) -> Finding:
    def bad(context: Map) -> bool:
        return within(context, "windowsOptions").get("hostProcess") is True

    who = setters(bad(pod.context), pod.named(bad))
    return ("hostProcess", f"{who} must not set securityContext.windowsOptions.hostProcess=true") if who else None
