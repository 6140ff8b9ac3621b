"""The account of Argo's own containers, as manifests: `gpuflow site executor` prints them."""

from __future__ import annotations

from typing import Any

from gpuflow.site.model import Executor

RULES = [{"apiGroups": ["argoproj.io"], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]}]
"""All that Argo's `wait` asks of the API server."""
TOKEN_NAME = "workflows.argoproj.io/service-account-token.name"
"""Where Argo reads which Secret holds an account's token (TokenNameForServiceAccount in util/secrets, 4.0.2)."""


def account_manifests(executor: Executor, namespace: str | None) -> list[dict[str, Any]]:
    """The account, the Secret that Kubernetes fills with its token, and what it may do."""
    name, secret = executor.service_account, executor.token_secret
    place = {} if namespace is None else {"namespace": namespace}
    subject = {"kind": "ServiceAccount", "name": name, **place}
    rbac = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, **place, "annotations": {TOKEN_NAME: secret}},
            "automountServiceAccountToken": False,
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret, **place, "annotations": {"kubernetes.io/service-account.name": name}},
            "type": "kubernetes.io/service-account-token",
        },
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": name, **place}, "rules": RULES},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, **place},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [subject],
        },
    ]
