"""Whatever is wrong with a manifest, the answer is a refusal or a `ValueError` with the place, never a crash."""

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.kubernetes.admission.decision import admit
from tests.checker.admission_cases import Resources, container, limit_range, namespace, pod, quota


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ([], "a Pod must be a map, not []"),
        (None, "a Pod must be a map, not None"),
        ({"kind": "Job"}, "a Pod is needed, not a Job"),
        ({"spec": "x"}, "spec: must be a map, not 'x'"),
        (pod(initContainers="x"), "spec.initContainers: must be a list, not 'x'"),
        (pod(container(name=7)), "spec.containers[0].name: must be a string, not 7"),  # type: ignore[arg-type]  # wrong on purpose
        (pod(activeDeadlineSeconds="60"), "spec.activeDeadlineSeconds: must be a whole number, not '60'"),
        (
            pod(container(limits={"memory": "4GB"})),
            "spec.containers[0].resources.limits[memory]: '4GB': quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (pod(overhead={"cpu": "1K"}), "spec.overhead[cpu]: '1K': unable to parse quantity's suffix"),
    ],
)
def test_a_pod_that_the_server_could_not_decode(manifest: Any, message: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the whole message is compared
        admit(manifest)
    assert str(refusal.value) == message


def test_a_quota_or_limit_range_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ValueError, match=r"ResourceQuota q: status\.hard\[pods\]: 'many': quantities must match"):
        admit(pod(), quotas=[quota("q", {"pods": "many"})])
    with pytest.raises(ValueError, match=r"LimitRange bounds: spec\.limits\[0\]\.max: must be a map, not 3"):
        admit(pod(), limit_ranges=[limit_range({"type": "Container", "max": 3})])


def test_an_empty_pod_gets_the_servers_answer() -> None:
    answer = admit({})
    assert (answer.status, answer.clauses) == (
        422,
        ("metadata.name: Required value: name or generateName is required", "spec.containers: Required value"),
    )


def rich_case() -> dict[str, Any]:
    """One of everything that is read."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"add": ["SYS_ADMIN"], "drop": ["ALL"]},
        "seccompProfile": {"type": "Unconfined"},
        "appArmorProfile": {"type": "Unconfined"},
        "seLinuxOptions": {"type": "t", "user": "u"},
        "procMount": "Default",
        "runAsUser": 0,
        "windowsOptions": {"hostProcess": True},
    }
    full = container("main", requests={"cpu": 1}, limits={"cpu": 2, "nvidia.com/gpu": 1, "hugepages-2Mi": "2Mi"})
    full |= {
        "securityContext": security,
        "env": [{"name": "A", "value": "b"}],
        "ports": [{"containerPort": 80, "hostPort": 80}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "livenessProbe": {"httpGet": {"host": "h", "port": 80}},
        "lifecycle": {"preStop": {"tcpSocket": {"host": "h", "port": 80}}},
    }
    asked = pod(
        full,
        initContainers=[container("init") | {"restartPolicy": "Always"}],
        resources={"requests": {"cpu": 4}, "limits": {"memory": "1Gi"}},
        overhead={"cpu": "1"},
        priorityClassName="high",
        runtimeClassName="kata",
        restartPolicy="Never",
        nodeSelector={"a": "b"},
        tolerations=[{"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}],
        volumes=[{"name": "v", "hostPath": {"path": "/x"}}],
        resourceClaims=[{"name": "c", "resourceClaimName": "c"}],
        schedulingGates=[{"name": "gate"}],
        securityContext=security | {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]},
        affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["o"]}]}},
    )
    asked["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    scopes: Resources = {
        "scopes": ["NotBestEffort", "CrossNamespacePodAffinity"],
        "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]},
    }
    return {
        "pod": asked,
        "quotas": [quota("q", {"pods": "5", "requests.cpu": "8"}, **scopes), quota("r", {"limits.memory": "4Gi"})],
        "limit_ranges": [
            limit_range({"type": "Container", "default": {"memory": "1Gi"}}, {"type": "Pod", "max": {"cpu": "64"}}),
            limit_range({"type": "Container", "max": {"memory": "2Gi"}, "maxLimitRequestRatio": {"cpu": 4}}),
        ],
        "priority_classes": [{"metadata": {"name": "high"}, "value": 5, "preemptionPolicy": "Never"}],
        "runtime_classes": [
            {
                "metadata": {"name": "kata"},
                "overhead": {"podFixed": {"cpu": "1"}},
                "scheduling": {"nodeSelector": {"k": "v"}, "tolerations": [{"key": "t", "operator": "Exists"}]},
            }
        ],
        "namespace": namespace(enforce="restricted", enforce_version="v1.30"),
    }


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, child in children for place in [(*path, key), *places(child, (*path, key))]]


JUNK: list[Any] = [None, "", "x", "1K", 0, -1, 1.5, True, [], [None], [7], {}, {"a": None}, {"name": {}}, float("nan")]


def everything_of(case: Resources) -> None:
    answer = admit(case["pod"], **{field: value for field, value in case.items() if field != "pod"})
    for each in (answer, *answer.alternatives):
        assert each.status in (201, 403, 422)
        assert (each.message is None) == each.allowed
        assert isinstance(each.pod, dict)
        assert all(isinstance(text, str) for text in each.usage.values())
        assert isinstance(each.used, dict)


@settings(max_examples=600, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(places(rich_case())), st.sampled_from(JUNK)), min_size=1, max_size=3))
def test_junk_anywhere_is_refused_or_answered(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    case = rich_case()
    for path, junk in changes:
        with contextlib.suppress(KeyError, IndexError, TypeError):  # an earlier change took the place away
            holder: Any = case
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = copy.deepcopy(junk)
    try:
        everything_of(case)
    except ValueError as refusal:
        readable = str(refusal)
    else:
        readable = "answered"
    assert readable
