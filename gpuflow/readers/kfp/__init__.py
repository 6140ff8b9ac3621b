"""Kubeflow Pipelines v2: the intermediate representation (IR) that `kfp` compiles, with its platform document.

What becomes of it is read out of Kubeflow's backend, 2.17: `backend/src/v2/compiler/argocompiler` makes a workflow of
tasks and drivers, `backend/src/v2/driver` makes the pod of each task.
"""

from gpuflow.readers.kfp.tasks import demand_of

__all__ = ["demand_of"]
