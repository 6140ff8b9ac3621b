"""One small document of each kind, with what it asks for: counted by hand."""

from __future__ import annotations

from typing import NamedTuple

GPU_POD = """
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: registry.example.com/train:1, resources: {limits: {nvidia.com/gpu: 2, cpu: "4", memory: 8Gi}}}
"""


def indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.strip().splitlines())


def pod(by: int, text: str = GPU_POD) -> str:
    """A pod template, to be put below a key that stands `by` columns less to the right."""
    return indented(text, by)


SERVER_POD = "metadata: {labels: {app: a}}" + GPU_POD.replace("  restartPolicy: Never\n", "")
"""As that of a Deployment: restarted for ever, and selected by its label."""
SELECTOR = "  selector: {matchLabels: {app: a}}\n"


class Sample(NamedTuple):
    text: str
    pods: int | None
    """None: not known."""
    gpus: int | None
    bound: str = "exact"
    gangs: int = 0
    """How many steps have several pods that live together."""


HEAD_TEMPLATE = f"""
template:
{pod(2, "spec: {containers: [{name: head, image: ray, resources: {limits: {cpu: '2', memory: 4Gi}}}]}")}
"""
SAMPLES: dict[str, Sample] = {
    "pod": Sample(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: one}}\n{pod(0)}\n", 1, 2),
    "replication controller": Sample(
        f"apiVersion: v1\nkind: ReplicationController\nmetadata: {{name: rc}}\n"
        f"spec:\n  replicas: 3\n  template:\n{pod(4)}\n",
        3,
        6,
        gangs=1,
    ),
    "replica set": Sample(
        f"apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {{name: rs}}\n"
        f"spec:\n  replicas: 2\n{SELECTOR}  template:\n{pod(4, SERVER_POD)}\n",
        2,
        4,
        gangs=1,
    ),
    "deployment": Sample(
        f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: serve}}\n"
        f"spec:\n  replicas: 4\n{SELECTOR}  template:\n{pod(4, SERVER_POD)}\n",
        4,
        8,
        gangs=1,
    ),
    "stateful set": Sample(
        f"""
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: shards}}
spec:
  replicas: 3
  podManagementPolicy: Parallel
{SELECTOR}  template:
{pod(4, SERVER_POD)}
  volumeClaimTemplates:
  - metadata: {{name: data}}
    spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 10Gi}}}}}}
""",
        3,
        6,
        gangs=1,
    ),
    "daemon set": Sample(
        f"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: exporter}}\n"
        f"spec:\n{SELECTOR}  template:\n{pod(4, SERVER_POD)}\n",
        None,
        None,
        "unknown",
    ),
    "job": Sample(f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j}}\nspec:\n  template:\n{pod(4)}\n", 1, 2),
    "job with more completions than parallelism": Sample(
        f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: j}}
spec:
  completions: 10
  parallelism: 3
  backoffLimit: 2
  podFailurePolicy: {{rules: [{{action: Ignore, onPodConditions: [{{type: DisruptionTarget}}]}}]}}
  template:
{pod(4)}
""",
        3,
        6,
    ),
    "indexed job in a queue": Sample(
        f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: j, labels: {{kueue.x-k8s.io/queue-name: gpus}}}}
spec:
  completions: 4
  parallelism: 4
  completionMode: Indexed
  suspend: true
  template:
{pod(4)}
""",
        4,
        8,
        gangs=1,
    ),
    "suspended job": Sample(
        f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j}}\nspec:\n  suspend: true\n  template:\n{pod(4)}\n",
        1,
        2,
        "at-most",
    ),
    "cron job": Sample(
        f"""
apiVersion: batch/v1
kind: CronJob
metadata: {{name: nightly}}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      parallelism: 2
      template:
{pod(8)}
""",
        2,
        4,
    ),
    "job set": Sample(
        f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: js}}
spec:
  startupPolicy: {{startupPolicyOrder: InOrder}}
  replicatedJobs:
  - name: driver
    template:
      spec:
        template:
{pod(10)}
  - name: workers
    replicas: 2
    template:
      spec:
        parallelism: 3
        completions: 3
        template:
{pod(10)}
""",
        7,
        14,
        gangs=1,
    ),
    "job set one after the other": Sample(
        f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: js}}
spec:
  replicatedJobs:
  - name: prepare
    template:
      spec:
        parallelism: 2
        template:
{pod(10)}
  - name: train
    dependsOn: [{{name: prepare, status: Complete}}]
    template:
      spec:
        parallelism: 3
        template:
{pod(10)}
""",
        3,
        6,
        gangs=2,
    ),
    "leader worker set": Sample(
        f"""
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: llm}}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 4
    leaderTemplate:
      spec: {{containers: [{{name: leader, image: x}}]}}
    workerTemplate:
{pod(6)}
""",
        8,
        12,
        gangs=1,
    ),
    "pytorch job": Sample(
        f"""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: pt}}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 3
      template:
{pod(8)}
    Master:
      template:
{pod(8)}
""",
        4,
        8,
        gangs=1,
    ),
    "elastic pytorch job": Sample(
        f"""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: pt}}
spec:
  elasticPolicy: {{minReplicas: 1, maxReplicas: 5}}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
{pod(8)}
""",
        5,
        10,
        "at-most",
        gangs=1,
    ),
    **{
        kind: Sample(
            f"""
apiVersion: kubeflow.org/v1
kind: {kind}
metadata: {{name: t}}
spec:
  {specs}:
    Worker:
      replicas: 2
      template:
{pod(8)}
""",
            2,
            4,
            gangs=1,
        )
        for kind, specs in (
            ("TFJob", "tfReplicaSpecs"),
            ("XGBoostJob", "xgbReplicaSpecs"),
            ("PaddleJob", "paddleReplicaSpecs"),
            ("JAXJob", "jaxReplicaSpecs"),
        )
    },
    "mpi job": Sample(
        f"""
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: mpi}}
spec:
  launcherCreationPolicy: WaitForWorkersReady
  runPolicy: {{suspend: false}}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec: {{containers: [{{name: mpi, image: x}}]}}
    Worker:
      replicas: 2
      template:
{pod(8)}
""",
        3,
        4,
        gangs=1,
    ),
    "mpi job without workers": Sample(
        f"""
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {{name: mpi}}
spec:
  mpiReplicaSpecs:
    Launcher:
      template:
{pod(8)}
    Worker:
      template:
{pod(8)}
""",
        1,
        2,
    ),
    "train job": Sample(
        """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: fine-tune}
spec:
  runtimeRef: {name: torch}
  trainer:
    numNodes: 4
    resourcesPerNode: {limits: {nvidia.com/gpu: 8}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              spec:
                containers: [{name: node, image: x}]
""",
        4,
        32,
        gangs=1,
    ),
    "train job with mpi": Sample(
        f"""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: fine-tune}}
spec:
  runtimeRef: {{name: deepspeed, kind: TrainingRuntime}}
  trainer: {{numNodes: 4}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {{name: deepspeed}}
spec:
  mlPolicy: {{numNodes: 1, mpi: {{runLauncherAsNode: true}}}}
  template:
    spec:
      replicatedJobs:
      - name: launcher
        template:
          metadata: {{labels: {{trainer.kubeflow.org/trainjob-ancestor-step: trainer}}}}
          spec:
            template:
{pod(14)}
      - name: node
        template:
          spec:
            template:
{pod(14)}
""",
        4,
        8,
        gangs=1,
    ),
    "train job without its runtime": Sample(
        """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: fine-tune}
spec: {runtimeRef: {name: torch}}
""",
        None,
        None,
        "unknown",
    ),
    "volcano job": Sample(
        f"""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: vc}}
spec:
  minAvailable: 3
  tasks:
  - name: ps
    replicas: 1
    template:
{pod(6)}
  - name: worker
    replicas: 2
    template:
{pod(6)}
""",
        3,
        6,
        gangs=1,
    ),
    "volcano job that starts with fewer": Sample(
        f"""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: vc}}
spec:
  minAvailable: 1
  tasks:
  - replicas: 4
    template:
{pod(6)}
""",
        4,
        8,
    ),
    "ray cluster": Sample(
        f"""
apiVersion: ray.io/v1
kind: RayCluster
metadata: {{name: ray}}
spec:
  headGroupSpec:
{indented(HEAD_TEMPLATE, 4)}
  workerGroupSpecs:
  - groupName: gpu
    replicas: 2
    numOfHosts: 2
    template:
{pod(6)}
""",
        5,
        8,
        gangs=1,
    ),
    "ray cluster that scales": Sample(
        f"""
apiVersion: ray.io/v1
kind: RayCluster
metadata: {{name: ray}}
spec:
  enableInTreeAutoscaling: true
  headGroupSpec:
{indented(HEAD_TEMPLATE, 4)}
  workerGroupSpecs:
  - groupName: gpu
    replicas: 1
    minReplicas: 0
    maxReplicas: 5
    template:
{pod(6)}
""",
        6,
        10,
        "at-most",
        gangs=1,
    ),
    "ray job": Sample(
        f"""
apiVersion: ray.io/v1
kind: RayJob
metadata: {{name: ray}}
spec:
  entrypoint: python train.py
  rayClusterSpec:
    headGroupSpec:
{indented(HEAD_TEMPLATE, 6)}
    workerGroupSpecs:
    - groupName: gpu
      replicas: 1
      template:
{pod(8)}
""",
        3,
        2,
        gangs=1,
    ),
    "ray job on a cluster that is there": Sample(
        "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: ray}\n"
        "spec: {clusterSelector: {ray.io/cluster: shared}}\n",
        None,
        None,
        "unknown",
    ),
    "ray service": Sample(
        f"""
apiVersion: ray.io/v1
kind: RayService
metadata: {{name: ray}}
spec:
  rayClusterConfig:
    headGroupSpec:
{indented(HEAD_TEMPLATE, 6)}
""",
        1,
        None,
    ),
    "experiment": Sample(
        f"""
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {{name: hpo}}
spec:
  parallelTrialCount: 3
  maxTrialCount: 12
  trialTemplate:
    trialSpec:
      apiVersion: batch/v1
      kind: Job
      spec:
        parallelism: 2
        template:
{pod(10)}
""",
        6,
        12,
    ),
    "experiment of training jobs": Sample(
        f"""
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {{name: hpo}}
spec:
  trialTemplate:
    trialSpec:
      apiVersion: kubeflow.org/v1
      kind: PyTorchJob
      spec:
        pytorchReplicaSpecs:
          Master:
            template:
{pod(14)}
          Worker:
            replicas: 3
            template:
{pod(14)}
""",
        12,
        24,
        gangs=1,
    ),
}
