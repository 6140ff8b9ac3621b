# An Airflow DAG, as people write them.
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG
from kubernetes.client import models as k8s

IMAGE = "registry.example.com/nlp/train:1.4"
GPU = k8s.V1ResourceRequirements(requests={"cpu": "8", "memory": "64Gi"}, limits={"nvidia.com/gpu": "2"})

with DAG("training", schedule=None):
    prepare = KubernetesPodOperator(task_id="prepare", image=IMAGE, cmds=["python", "prepare.py"])
    train = KubernetesPodOperator.partial(task_id="train", image=IMAGE, container_resources=GPU).expand(
        arguments=[["--seed", "1"], ["--seed", "2"], ["--seed", "3"]]
    )
    prepare >> train
