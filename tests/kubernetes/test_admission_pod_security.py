"""Pod Security Standards, in the words of the admission plug-in."""

import pytest

from gpuflow.kubernetes.admission.decision import admit
from tests.checker.admission_cases import Resources, container, namespace, pod

SAFE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
SAFE_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def with_context(name: str, **context: object) -> Resources:
    return container(name) | {"securityContext": context}


def refusal(asked: Resources, **labels: str) -> str | None:
    answer = admit(asked, namespace=namespace(**labels))
    assert answer.stage == ("created" if answer.allowed else "podsecurity")
    return (answer.message or "").removeprefix('pods "p" is forbidden: ') or None


def test_an_ordinary_pod_is_baseline_but_not_restricted() -> None:
    assert refusal(pod(), enforce="baseline") is None
    assert refusal(pod(), enforce="restricted") == (
        'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "main" must set '
        'securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "main" must set '
        'securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "main" must set '
        'securityContext.runAsNonRoot=true), seccompProfile (pod or container "main" must set '
        'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
    )


def test_a_hardened_pod_is_restricted() -> None:
    asked = pod(with_context("main", **SAFE), securityContext=SAFE_POD)
    assert refusal(asked, enforce="restricted") is None


def test_init_containers_are_named_first() -> None:
    asked = pod(container("main"), initContainers=[container("init")], securityContext=SAFE_POD)
    assert '(containers "init", "main" must set' in (refusal(asked, enforce="restricted") or "")


def test_only_enforce_refuses_and_without_labels_everything_passes() -> None:
    worst = pod(with_context("main", privileged=True), hostPID=True)
    assert refusal(worst, warn="restricted", audit="restricted") is None
    assert refusal(worst) is None
    assert admit(worst).allowed


def test_a_label_that_cannot_be_read_means_the_strictest() -> None:
    assert 'violates PodSecurity "restricted:latest"' in (refusal(pod(), enforce="bsaeline") or "")
    assert 'PodSecurity "restricted:latest"' in (refusal(pod(), enforce="restricted", enforce_version="1.20") or "")


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (pod(hostNetwork=True, hostIPC=True), "host namespaces (hostNetwork=true, hostIPC=true)"),
        (
            pod(with_context("main", privileged=True)),
            'privileged (container "main" must not set securityContext.privileged=true)',
        ),
        (
            pod(with_context("main", capabilities={"add": ["SYS_ADMIN", "CHOWN"]})),
            'non-default capabilities (container "main" must not include "SYS_ADMIN" in '
            "securityContext.capabilities.add)",
        ),
        (
            pod(volumes=[{"name": "a", "hostPath": {"path": "/dev"}}, {"name": "b", "hostPath": {"path": "/x"}}]),
            'hostPath volumes (volumes "a", "b")',
        ),
        (
            pod(container() | {"ports": [{"containerPort": 80, "hostPort": 8080}]}),
            'hostPort (container "main" uses hostPort 8080)',
        ),
        (
            pod(container() | {"livenessProbe": {"httpGet": {"host": "example.com", "port": 80}}}),
            'probe or lifecycle host (container "main" uses probe or lifecycle host "example.com")',
        ),
        (
            pod(securityContext={"seccompProfile": {"type": "Unconfined"}}),
            'seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")',
        ),
        (
            pod(with_context("main", seLinuxOptions={"type": "spc_t", "user": "u", "role": "r"})),
            'seLinuxOptions (container "main" set forbidden securityContext.seLinuxOptions: type "spc_t"; '
            "user may not be set; role may not be set)",
        ),
        (
            pod(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            pod(with_context("main", appArmorProfile={"type": "Unconfined"})),
            'forbidden AppArmor profile (container "main" must not set AppArmor profile type to "Unconfined")',
        ),
    ],
)
def test_baseline(asked: Resources, complaint: str) -> None:
    assert refusal(asked, enforce="baseline") == f'violates PodSecurity "baseline:latest": {complaint}'


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (
            pod(
                with_context("main", **SAFE),
                securityContext=SAFE_POD,
                volumes=[{"name": "n", "nfs": {"server": "s", "path": "/"}}],
            ),
            'restricted volume types (volume "n" uses restricted volume type "nfs")',
        ),
        (
            pod(with_context("main", **SAFE), securityContext=SAFE_POD | {"runAsNonRoot": False}),
            "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)",
        ),
        (
            pod(with_context("main", **SAFE, runAsUser=0), securityContext=SAFE_POD),
            'runAsUser=0 (container "main" must not set runAsUser=0)',
        ),
    ],
)
def test_restricted(asked: Resources, complaint: str) -> None:
    assert refusal(asked, enforce="restricted") == f'violates PodSecurity "restricted:latest": {complaint}'


def test_older_rules_are_kept_where_the_namespace_asks_for_them() -> None:
    probed = pod(container() | {"livenessProbe": {"httpGet": {"host": "example.com", "port": 80}}})
    assert refusal(probed, enforce="baseline", enforce_version="v1.33") is None
    assert 'PodSecurity "baseline:v1.34"' in (refusal(probed, enforce="baseline", enforce_version="v1.34") or "")
    root = pod(with_context("main", **SAFE, runAsUser=0), securityContext=SAFE_POD)
    assert refusal(root, enforce="restricted", enforce_version="v1.22") is None


def test_pods_with_users_of_their_own_may_run_as_root() -> None:
    root = pod(with_context("main", **SAFE, runAsUser=0), securityContext=SAFE_POD, hostUsers=False)
    assert refusal(root, enforce="restricted") is None
    assert refusal(root, enforce="restricted", enforce_version="v1.34") is not None


def test_pod_security_comes_after_limit_ranges_and_before_quota() -> None:
    answer = admit(
        pod(hostPID=True),
        namespace=namespace(enforce="baseline"),
        quotas=[{"metadata": {"name": "q"}, "status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}],
    )
    assert answer.stage == "podsecurity"
