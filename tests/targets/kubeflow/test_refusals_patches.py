"""What KFP can carry of a patch, and what is refused by name."""

from __future__ import annotations

import pytest

from gpuflow.plan import plan_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.kubeflow.refusals import partial_losses

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: 'i:1', cpu: 1, memory: 1Gi}\n"
SITE = Site.load("nvidia")


def losses(patch: str) -> list[str]:
    pipeline = loads(HEAD + f"steps: {{a: {{command: [x], kubernetes: {{merge: {patch}}}}}}}")
    return [loss.message for loss in partial_losses(plan_of(pipeline, SITE))]


@pytest.mark.parametrize(
    "patch",
    [
        "{metadata: {labels: {a: b}, annotations: {c: d}}}",
        "{spec: {nodeSelector: {a: b}, tolerations: [{key: k, operator: Exists}], imagePullSecrets: [{name: r}]}}",
        "{spec: {securityContext: {runAsUser: 5}}}",
        "{spec: {containers: [{name: main, env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]}]}}",
        "{spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: main, volumeMounts: "
        "[{name: v, mountPath: /v}]}]}}",
        "{spec: {volumes: [{name: v, ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: b}}, spec: "
        "{accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}}}}], "
        "containers: [{name: main, volumeMounts: [{name: v, mountPath: /v}]}]}}",
    ],
)
def test_what_the_executor_config_can_say_is_carried(patch: str) -> None:
    assert losses(patch) == []


@pytest.mark.parametrize(
    ("patch", "named"),
    [
        ("{spec: {hostPID: true, subdomain: s}}", "spec.hostPID, spec.subdomain"),
        ("{spec: {securityContext: {fsGroup: 5}}}", "spec.securityContext.fsGroup"),
        ("{spec: {containers: [{name: main, tty: true}]}}", "spec.containers.main.tty"),
        ("{spec: {volumes: [{name: v, hostPath: {path: /x}}]}}", "spec.volumes.v.hostPath.path"),
        (
            "{spec: {volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], "
            "volumeMode: Block, resources: {requests: {storage: 1Gi}}}}}}]}}",
            "spec.volumes.v.ephemeral.volumeClaimTemplate.spec.volumeMode",
        ),
        (
            "{spec: {volumes: [{name: v, secret: {secretName: s, defaultMode: 1}}]}}",
            "spec.volumes.v.secret.defaultMode",
        ),
    ],
)
def test_every_other_field_is_refused_by_name(patch: str, named: str) -> None:
    (message,) = losses(patch)
    assert message == f'kubeflow: step "a": KFP has no place for {named} of kubernetes.merge'
