"""Kubernetes' own workloads and those of its operators, as demands. No operator's SDK is needed.

Mirrors how these count their pods: Kubernetes 1.36 (Job, CronJob, Deployment, StatefulSet, DaemonSet), JobSet 0.12,
LeaderWorkerSet 0.9, training-operator 1.9, MPI operator 0.8, Trainer 2.2, Volcano 1.14, KubeRay 1.6, Katib 0.19; and
Kueue 0.19 for what is queued as a whole.
"""

from gpuflow.readers.kubernetes.kinds import demand_of

__all__ = ["demand_of"]
