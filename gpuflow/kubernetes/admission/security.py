"""Pod Security Standards: what the labels of a namespace demand of its pods.

`pod-security.kubernetes.io/enforce` names a level, `…/enforce-version` the Kubernetes version whose rules
apply. Only `enforce` refuses; `warn` and `audit` never do.

Mirrors k8s.io/pod-security-admission/policy.DefaultChecks, Kubernetes v1.36.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from gpuflow.kubernetes.admission import security_contexts as contexts
from gpuflow.kubernetes.admission import security_host as host
from gpuflow.kubernetes.admission.pod import Body
from gpuflow.kubernetes.admission.security_view import Finding, View
from gpuflow.resources import read_map

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


# In the order in which Kubernetes reports them: by name, baseline first.
BASELINE: Final[Mapping[str, Entry]] = {
    "appArmorProfile": Entry({0: contexts.app_armor}),
    "capabilities_baseline": Entry({0: contexts.capabilities_baseline}),
    "hostNamespaces": Entry({0: host.host_namespaces}),
    "hostPathVolumes": Entry({0: host.host_path}),
    "hostPorts": Entry({0: host.host_ports}),
    "hostProbesAndHostLifecycle": Entry({34: host.probe_hosts}),
    "privileged": Entry({0: contexts.privileged}),
    "procMount": Entry(
        {
            0: partial(contexts.proc_mount, exempt_own_users=False),
            35: partial(contexts.proc_mount, exempt_own_users=True),
        }
    ),
    "seLinuxOptions": Entry(
        {
            0: partial(contexts.se_linux, allowed=SE_LINUX),
            31: partial(contexts.se_linux, allowed=SE_LINUX | {"container_engine_t"}),
        }
    ),
    "seccompProfile_baseline": Entry(
        {
            0: contexts.seccomp_annotations,
            19: partial(contexts.seccomp, required=False, exempt_windows=False),
        }
    ),
    "sysctls": Entry(
        {
            0: partial(host.sysctls, allowed=SYSCTLS),
            27: partial(host.sysctls, allowed=SYSCTLS_27),
            29: partial(host.sysctls, allowed=SYSCTLS_29),
            32: partial(host.sysctls, allowed=SYSCTLS_32),
        }
    ),
    "windowsHostProcess": Entry({0: contexts.windows_host_process}),
}
RESTRICTED: Final[Mapping[str, Entry]] = {
    "allowPrivilegeEscalation": Entry(
        {
            8: partial(contexts.privilege_escalation, exempt_windows=False),
            25: partial(contexts.privilege_escalation, exempt_windows=True),
        }
    ),
    "capabilities_restricted": Entry(
        {
            22: partial(contexts.capabilities_restricted, exempt_windows=False),
            25: partial(contexts.capabilities_restricted, exempt_windows=True),
        },
        replaces="capabilities_baseline",
    ),
    "procMount_restricted": Entry({35: partial(contexts.proc_mount, exempt_own_users=False)}, replaces="procMount"),
    "restrictedVolumes": Entry({0: host.restricted_volumes}, replaces="hostPathVolumes"),
    "runAsNonRoot": Entry(
        {
            0: partial(contexts.run_as_non_root, exempt_own_users=False),
            35: partial(contexts.run_as_non_root, exempt_own_users=True),
        }
    ),
    "runAsUser": Entry(
        {
            23: partial(contexts.run_as_user, exempt_own_users=False),
            35: partial(contexts.run_as_user, exempt_own_users=True),
        }
    ),
    "seccompProfile_restricted": Entry(
        {
            19: partial(contexts.seccomp, required=True, exempt_windows=False),
            25: partial(contexts.seccomp, required=True, exempt_windows=True),
        },
        replaces="seccompProfile_baseline",
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
