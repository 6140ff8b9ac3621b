"""Argo Workflows on the private cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engines import build
from .kube import Kube
from .programs import Program

if TYPE_CHECKING:
    from .cluster import Cluster

NAMESPACE = "argo"
CONTROLLER = "workflow-controller"
# Small enough that several pods fit a two-core machine at once.
EXECUTOR = '{"resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}'


def install(cluster: Cluster) -> None:
    """Definitions, executor image, configuration and controller."""
    kube = cluster.kube.within(NAMESPACE)
    definitions = sorted(build.shared("argo", "crds").glob("argoproj.io_*.yaml"))
    kube("apply", "--server-side", *(f"--filename={path}" for path in definitions))
    kube.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "workflow-controller-configmap"},
            "data": {"executor": EXECUTOR},
        },
    )
    kube.await_definitions()
    program = Program(
        (
            str(build.binary(CONTROLLER)),
            f"--kubeconfig={cluster.layout.kubeconfig}",
            f"--namespace={NAMESPACE}",
            f"--executor-image={cluster.image('argoexec')}",
            "--executor-image-pull-policy=IfNotPresent",
        ),
        port=6060,
        env={"LEADER_ELECTION_DISABLE": "true", "DEFAULT_REQUEUE_TIME": "1s"},
    )
    cluster.run(CONTROLLER, program)


def permit(kube: Kube) -> None:
    """Let the pods of workflows in this namespace report their results."""
    meta = {"name": "argo-executor"}
    kube.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [
                {
                    "apiGroups": ["argoproj.io"],
                    "resources": ["workflowtaskresults"],
                    "verbs": ["create", "patch"],
                }
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "argo-executor"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": kube.namespace}],
        },
    )
