"""One patch of the pod, the same on every engine: what the API server has is what was written."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .cluster import Cluster
from .fixtures import AnyCluster, lacking
from .kube import Kube
from .test_airflow import Airflow, airflow
from .waiting import until

__all__ = ["airflow"]
pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: merge
steps:
  train:
    image: {image}
    image_pull_policy: IfNotPresent
    command: [sh, -c, 'grep models.internal /etc/hosts; ls -d /extra; echo "$BRACES $ADDRESS"; sleep 3']
    cpu: 50m
    memory: 32Mi
    kubernetes:
      merge:
        metadata:
          labels: {{team: nlp}}
          annotations: {{example.com/note: of the step}}
        spec:
          hostAliases: [{{ip: 10.1.2.3, hostnames: [models.internal]}}]
          shareProcessNamespace: true
          enableServiceLinks: false
          tolerations: [{{key: example.com/odd, operator: Exists}}]
          volumes: [{{name: extra, emptyDir: {{sizeLimit: 1Mi}}}}]
          securityContext: {{supplementalGroups: [4000]}}
          containers:
          - name: main
            env:
            - {{name: ADDRESS, valueFrom: {{fieldRef: {{fieldPath: metadata.namespace}}}}}}
            - {{name: BRACES, value: "{{{{a}}}} $(ADDRESS)"}}
            volumeMounts: [{{name: extra, mountPath: /extra}}]
"""
SITE = "apiVersion: gpuflow/v1\nkind: Site\nname: s\nextends: nvidia\n"


def compiled(target: str, image: str, namespace: str, folder: Path) -> Path:
    """The file that `gpuflow compile` writes."""
    python = ROOT / ".venvs" / ("argo" if target == "argo" else "core") / "bin" / "python"
    if not python.exists():
        lacking(f"compiling for {target} needs {python.parents[1].name} in .venvs")
    (folder / "merge.yaml").write_text(PIPELINE.format(image=image))
    (folder / "site.yaml").write_text(SITE)
    out = folder / ("merge_dag.py" if target == "airflow" else "merge_workflow.yaml")
    words = [
        "compile",
        "merge.yaml",
        "--site",
        "site.yaml",
        "--target",
        target,
        "--namespace",
        namespace,
        "-o",
        str(out),
    ]
    done = subprocess.run(
        [python, "-m", "gpuflow.cli.main", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "GF373" not in done.stderr  # nothing of ours is overridden
    return out


def seen(pod: dict[str, Any]) -> dict[str, Any]:
    """What the patch asked for, as the API server has it."""
    spec = pod["spec"]
    main = next(each for each in spec["containers"] if each["name"] == "main")
    return {
        "team": pod["metadata"]["labels"].get("team"),
        "note": pod["metadata"]["annotations"].get("example.com/note"),
        "hostAliases": spec.get("hostAliases"),
        "shareProcessNamespace": spec.get("shareProcessNamespace"),
        "enableServiceLinks": spec.get("enableServiceLinks"),
        "tolerations": [each for each in spec["tolerations"] if each["key"] == "example.com/odd"],
        "volumes": [each for each in spec["volumes"] if each["name"] == "extra"],
        "groups": spec["securityContext"].get("supplementalGroups"),
        "address": [each["valueFrom"]["fieldRef"]["fieldPath"] for each in main["env"] if each["name"] == "ADDRESS"],
        "mounts": [each for each in main["volumeMounts"] if each["mountPath"] == "/extra"],
    }


WANTED = {
    "team": "nlp",
    "note": "of the step",
    "hostAliases": [{"ip": "10.1.2.3", "hostnames": ["models.internal"]}],
    "shareProcessNamespace": True,
    "enableServiceLinks": False,
    "tolerations": [{"key": "example.com/odd", "operator": "Exists"}],
    "volumes": [{"name": "extra", "emptyDir": {"sizeLimit": "1Mi"}}],
    "groups": [4000],
    "address": ["metadata.namespace"],
    "mounts": [{"name": "extra", "mountPath": "/extra"}],
}


def printed(namespace: str) -> list[str]:
    return ["10.1.2.3\tmodels.internal", "/extra", f"{{{{a}}}} {namespace} {namespace}"]


def test_the_patch_on_argo(private_cluster: Cluster, workflows: Kube, tmp_path: Path) -> None:
    file = compiled("argo", private_cluster.image("busybox"), workflows.namespace, tmp_path)
    workflows.create(yaml.safe_load(file.read_text()))
    run = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "run"},
        "spec": {"workflowTemplateRef": {"name": "merge"}},
    }
    workflows.create(run)
    done = workflows.await_object(
        "workflow", "run", "ended", lambda item: bool(item.get("status", {}).get("finishedAt")), 240
    )
    assert done["status"]["phase"] == "Succeeded"
    (pod,) = workflows.list("pod", "gpuflow.dev/step=train")
    assert seen(pod) == WANTED
    log = workflows("logs", pod["metadata"]["name"], "--container=main")
    assert [line for line in log.splitlines() if " argo=true" not in line] == printed(workflows.namespace)


def test_the_patch_on_airflow(cluster: AnyCluster, airflow: Airflow, namespace: Kube, tmp_path: Path) -> None:
    file = compiled("airflow", cluster.image("busybox"), namespace.namespace, tmp_path)
    (airflow.dags / "merge.py").write_text(file.read_text())
    extra = {"kube_config_path": str(namespace.kubeconfig), "namespace": namespace.namespace, "in_cluster": False}
    environment = {
        **airflow.environment,
        "PYTHONPATH": str(ROOT),
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
    }
    program = str(ROOT / ".venvs" / "airflow" / "bin" / "airflow")
    play = subprocess.Popen(
        [*cluster.enter, program, "dags", "test", "merge"],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        (pod,) = until("the step's pod", lambda: namespace.list("pod"), timeout=240)
        log, _ = play.communicate(timeout=300)
    finally:
        play.kill()
    assert play.returncode == 0, log[-6000:]
    assert seen(pod) == WANTED
    for line in printed(namespace.namespace):
        assert line in log
