"""What the pod that looks after a gang must be allowed, as manifests: `gpuflow site gang` prints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuflow.pod.gang_kinds import DEFAULT, SPELLINGS

RBAC = "rbac.authorization.k8s.io"
LOOKING: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["get", "list"]},
]
REPORTS: dict[str, Any] = {
    "apiGroups": ["argoproj.io"],
    "resources": ["workflowtaskresults"],
    "verbs": ["create", "patch"],
}
"""What Argo's own container in the same pod asks for, where it has no account of its own."""


ROLE = "gpuflow-gang"
"""The Role that is bound to an account which is there already."""


def gang_rules(kind: str = DEFAULT) -> list[dict[str, Any]]:
    """What whoever looks after gangs of this kind must be allowed."""
    return [*SPELLINGS[kind].rules, *LOOKING]


def gang_role(account: str, namespace: str | None, kind: str = DEFAULT) -> list[dict[str, Any]]:
    """A Role, and its binding to an account that an engine gives to all pods of a run."""
    return _role(ROLE, account, namespace, gang_rules(kind))


def gang_account(name: str, namespace: str | None, *, reports: bool, kind: str = DEFAULT) -> list[dict[str, Any]]:
    """The account, and a Role with its binding. `reports`: Argo's container uses the same account."""
    place = {} if namespace is None else {"namespace": namespace}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, **place}}
    return [account, *_role(name, name, namespace, [*gang_rules(kind), *([REPORTS] if reports else [])])]


AIRFLOW_ACCOUNTS = ("airflow/airflow-worker", "airflow/airflow-triggerer")
"""Who runs GpuGangOperator and its trigger, as the chart of Airflow calls them in a release called airflow."""


def airflow_role(
    accounts: Sequence[tuple[str, str]], namespace: str | None, kind: str = DEFAULT
) -> list[dict[str, Any]]:
    """A Role, and its binding to accounts of Airflow's, each with its namespace: gangs run in another one."""
    role, binding = _role(ROLE, "", namespace, gang_rules(kind))
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": home} for home, name in accounts]
    return [role, {**binding, "subjects": subjects}]


def _role(name: str, account: str, namespace: str | None, rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    place = {} if namespace is None else {"namespace": namespace}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": name, **place}, "rules": rules},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, **place},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, **place}],
        },
    ]
