"""Who is queued: Kueue admits an object as a whole where it has an integration for its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gpuflow.kubernetes.labels import QUEUE_LABEL, QUEUE_PRIORITY_LABEL, QUEUED_BY

INTEGRATIONS: Final = {
    ("Job", "batch"): "batch/job",
    ("CronJob", "batch"): "batch/job",
    ("Deployment", "apps"): "deployment",
    ("StatefulSet", "apps"): "statefulset",
    ("JobSet", "jobset.x-k8s.io"): "jobset.x-k8s.io/jobset",
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io"): "leaderworkerset.x-k8s.io/leaderworkerset",
    ("PyTorchJob", "kubeflow.org"): "kubeflow.org/pytorchjob",
    ("TFJob", "kubeflow.org"): "kubeflow.org/tfjob",
    ("XGBoostJob", "kubeflow.org"): "kubeflow.org/xgboostjob",
    ("PaddleJob", "kubeflow.org"): "kubeflow.org/paddlejob",
    ("JAXJob", "kubeflow.org"): "kubeflow.org/jaxjob",
    ("MPIJob", "kubeflow.org"): "kubeflow.org/mpijob",
    ("TrainJob", "trainer.kubeflow.org"): "trainer.kubeflow.org/trainjob",
    ("RayCluster", "ray.io"): "ray.io/raycluster",
    ("RayJob", "ray.io"): "ray.io/rayjob",
    ("RayService", "ray.io"): "ray.io/rayservice",
}
"""By kind and group, the names under which Kueue's configuration turns them on. Kueue v0.19.2."""
_LABELS: Final = (QUEUE_LABEL, QUEUE_PRIORITY_LABEL)


class Owner(NamedTuple):
    """The object that makes pods: its labels, and the integration for its kind."""

    labels: Mapping[str, str]
    integration: str | None

    @property
    def is_queued(self) -> bool:
        """Whether Kueue admits the object as a whole. Pods may name a queue of their own; that is another matter."""
        return self.integration is not None and bool(self.labels.get(QUEUE_LABEL))

    def with_queue(self, pod: dict[str, Any]) -> dict[str, Any]:
        """The pod in the queue of its object, which wins over one that the pod names.

        An object without queue may still get the namespace's default queue, so its pods say what would queue them.
        """
        metadata = pod["metadata"]
        if self.integration is None or (not self.is_queued and metadata.get("labels", {}).get(QUEUE_LABEL)):
            return pod
        queue = {key: self.labels[key] for key in _LABELS if self.labels.get(key)}
        own = metadata.get("labels", {})
        labels = (
            {**{key: value for key, value in own.items() if key not in _LABELS}, **queue} if self.is_queued else own
        )
        annotations = {**metadata.get("annotations", {}), QUEUED_BY: self.integration}
        return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}}
