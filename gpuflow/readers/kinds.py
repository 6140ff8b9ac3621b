"""The table of kinds: which reader reads which, and on which engine it runs. Kept free of imports of the readers."""

from __future__ import annotations

from typing import NamedTuple

from gpuflow.engines import NO_ENGINE
from gpuflow.readers.documents import KFP


class Reader(NamedTuple):
    module: str
    engine: str


ARGO = Reader("gpuflow.readers.argo", "argo")
KUBEFLOW = Reader("gpuflow.readers.kfp", "kubeflow")
KUBERNETES = Reader("gpuflow.readers.kubernetes", NO_ENGINE)
AIRFLOW = Reader("gpuflow.readers.python", "airflow")

READERS: dict[tuple[str, str], Reader] = {
    **{
        (kind, "argoproj.io"): ARGO
        for kind in ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")
    },
    ("PipelineSpec", KFP): KUBEFLOW,
    ("PipelineJob", KFP): KUBEFLOW,
    ("PipelineVersion", "pipelines.kubeflow.org"): KUBEFLOW,
    ("DAG", "airflow"): AIRFLOW,
    **{(kind, ""): KUBERNETES for kind in ("Pod", "ReplicationController", "PodTemplate")},
    **{(kind, "batch"): KUBERNETES for kind in ("Job", "CronJob")},
    **{(kind, "apps"): KUBERNETES for kind in ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet")},
    ("JobSet", "jobset.x-k8s.io"): KUBERNETES,
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io"): KUBERNETES,
    **{
        (kind, "kubeflow.org"): KUBERNETES
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob", "Experiment")
    },
    ("TrainJob", "trainer.kubeflow.org"): KUBERNETES,
    ("Job", "batch.volcano.sh"): KUBERNETES,
    **{(kind, "ray.io"): KUBERNETES for kind in ("RayJob", "RayCluster", "RayService")},
}
"""By kind and group; any version of the group is read."""


_OF_KUBERNETES = ("", "apps", "autoscaling", "batch", "policy")
_STARTS_PODS = ("sparkoperator.k8s.io",)
_SERVES_OTHERS = ("ClusterTrainingRuntime", "TrainingRuntime", "PodGroup")


def starts_nothing(kind: str, group: str) -> bool:
    """Whether a kind without a reader certainly starts no pods: it is Kubernetes' own, or serves one that is read."""
    own = group in _OF_KUBERNETES or (group.endswith("k8s.io") and group not in _STARTS_PODS)
    return own or kind in _SERVES_OTHERS
