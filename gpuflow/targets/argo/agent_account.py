"""What Argo's agent, which sends alerts, needs to be allowed: `gpuflow argo agent` prints it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuflow.site import Site
from gpuflow.spec.notify import SecretValue
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.argo.alerts import sent_by_agent
from gpuflow.targets.argo.facts import FACTS

TASKS = [
    {"apiGroups": ["argoproj.io"], "resources": ["workflowtasksets"], "verbs": ["list", "watch"]},
    {"apiGroups": ["argoproj.io"], "resources": ["workflowtasksets/status"], "verbs": ["patch"]},
]
"""How the agent is told what to send, and says what came of it."""


def agent_manifests(pipelines: Iterable[Pipeline], site: Site, namespace: str | None) -> list[dict[str, Any]]:
    """A Role with its binding, and the Secret that Kubernetes fills with the account's token.

    The agent mounts that Secret (createAgentPod in agent.go, 4.0.2). Argo looks for NAME.service-account-token, unless
    the account has a Secret or the annotation workflows.argoproj.io/service-account-token.name.
    """
    account = site.engine(FACTS.name).service_account or "default"
    place = {} if namespace is None else {"namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    name = f"gpuflow-agent-{account}"
    rules: list[dict[str, Any]] = [*TASKS]
    if secrets := secrets_of(pipelines, site):
        rules.append({"apiGroups": [""], "resources": ["secrets"], "resourceNames": secrets, "verbs": ["get"]})
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": f"{account}.service-account-token",
                **place,
                "annotations": {"kubernetes.io/service-account.name": account},
            },
            "type": "kubernetes.io/service-account-token",
        },
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": name, **place}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, **place},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, **place}],
        },
    ]


def secrets_of(pipelines: Iterable[Pipeline], site: Site) -> list[str]:
    """The Secrets whose keys are sent as headers."""
    found: set[str] = set()
    for pipeline in pipelines:
        for alert in sent_by_agent(pipeline, site):
            values = alert.webhook.headers.values() if alert.webhook else [alert.slack and alert.slack.authorization]
            found |= {value.secret for value in values if isinstance(value, SecretValue)}
    return sorted(found)
