"""Argo with an artifact repository: the small file about each artifact is in it, and the node lists it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow.runtime.bundle import config_map_name
from proofs.artifacts_engines.ground import BUCKET, ROOT, SECRET, Ground

from . import argo as addon
from . import object_store
from .cluster import Cluster
from .fixtures import AnyCluster
from .kube import Kube
from .test_argo import ended, nodes
from .waiting import until

pytestmark = pytest.mark.cluster

REPOSITORY = "argo-artifacts"
PIPELINE = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: shown
defaults: {image: "registry.example.com/python-s3:3.12", cpu: 50m, memory: 256Mi}
steps:
  make:
    for_each: {number: [1, 2]}
    outputs: {model: {type: directory}, table: {type: file}, score: float}
    env: {NUMBER: {item: number}}
    script: |
      cd "$GPUFLOW_OUTPUTS"
      mkdir model
      echo "weights of $NUMBER" > model/weights
      echo "rows of $NUMBER" > table
      echo 0.5 > score
      exit EXIT
  read:
    inputs: {/in/models: {output: make.model}}
    script: cat /in/models/0/weights /in/models/1/weights
"""
PRINT_OBJECTS = """\
import json, sys, s3fs
store = s3fs.S3FileSystem()
print(json.dumps({key: store.cat_file(key).decode() for key in sys.argv[1:]}))
"""


@pytest.fixture(scope="module")
def ground(private_cluster: Cluster, argo: AnyCluster, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """An S3 server with a bucket for artifacts and one for Argo's repository, and a site that knows of both."""
    object_store.start(private_cluster)
    made = Ground(private_cluster, tmp_path_factory.mktemp("argo-artifacts"))
    made.artifacts()  # makes the bucket
    made.in_store("-c", f"import s3fs; s3fs.S3FileSystem().mkdirs('{REPOSITORY}', exist_ok=True)")
    site = yaml.safe_load(made.site.read_text())
    site["engines"] = {"argo": {"artifact_repository": True}}
    made.site.write_text(yaml.safe_dump(site))
    return made


def configure(cluster: Cluster, data: dict[str, str]) -> None:
    """Give the controller another configuration and start it anew."""
    kube = cluster.kube.within(addon.NAMESPACE)
    meta = {"name": "workflow-controller-configmap"}
    kube("delete", "configmap", meta["name"])
    kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
    cluster.restart(addon.CONTROLLER)


@pytest.fixture
def repository(private_cluster: Cluster) -> Iterator[None]:
    """The controller with a repository, as an administrator sets one; the pods read its keys from their namespace."""
    keys = {f"{name}KeySecret": {"name": SECRET, "key": key} for name, key in (("access", "id"), ("secret", "secret"))}
    where = {"bucket": REPOSITORY, "endpoint": object_store.ENDPOINT, "insecure": True}
    layout = {"keyFormat": "{{workflow.namespace}}/{{workflow.name}}/{{pod.name}}"}
    text = yaml.safe_dump({"s3": {**where, **keys, **layout}})
    configure(private_cluster, {"executor": addon.EXECUTOR, "artifactRepository": text})
    yield
    configure(private_cluster, {"executor": addon.EXECUTOR})


def run(ground: Ground, name: str, *, code: int = 0) -> tuple[Kube, dict[str, Any]]:
    """The pipeline to its end in a namespace of its own; its first step ends with the code."""
    ground.pipeline.write_text(PIPELINE.replace("EXIT", str(code)))
    kube = ground.namespace(name)
    made = ground.folder / f"{name}.yaml"
    ground.compile("argo", name, made)
    kube.apply(*yaml.safe_load_all(made.read_text()))
    until("the template", lambda: kube.get("workflowtemplate", "shown"))
    meta = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "run"}}
    kube.create({**meta, "spec": {"workflowTemplateRef": {"name": "shown"}}})
    return kube, ended(kube, "run", 400)


def kept(node: dict[str, Any], what: str) -> dict[str, Any]:
    return {each["name"]: each for each in node.get("outputs", {}).get(what, ())}


@pytest.mark.usefixtures("repository")
def test_the_repository_has_a_note_about_each_artifact_and_the_node_lists_it(ground: Ground) -> None:
    _, done = run(ground, "argo-noted")
    made = nodes(done, "make")
    assert (done["status"]["phase"], len(made)) == ("Succeeded", 2), done["status"].get("message")
    keys = {
        (node["id"], name): f"{REPOSITORY}/{kept(node, 'artifacts')[name]['s3']['key']}"
        for node in made
        for name in ("model", "table")
    }
    assert len(set(keys.values())) == 4
    assert all(key.startswith(f"{REPOSITORY}/argo-noted/run/") for key in keys.values())
    notes = json.loads(ground.in_store("-c", PRINT_OBJECTS, *keys.values()))
    stored = ground.artifacts()
    for node in made:
        for name, kind in (("model", "directory"), ("table", "file")):
            note = json.loads(notes[keys[node["id"], name]])
            assert note["uri"] == kept(node, "parameters")[name]["value"]
            assert note["uri"].startswith(f"s3://{BUCKET}/gpuflow/shown/")
            files = stored[note["uri"].partition("/files")[0]]["files"]
            assert (note["type"], note["files"]) == (kind, 1)
            assert note["bytes"] == sum(file["size"] for file in files if file.get("sha256"))
            assert len(note["sha256"]) == 64
    # Argo's executor uploads the notes only; the files themselves stay where gpuflow-run keeps them.
    listed = ground.in_store("-c", f"import s3fs; print(*s3fs.S3FileSystem().find('{REPOSITORY}/argo-noted'))").split()
    assert sorted(listed) == sorted(keys.values())


@pytest.mark.usefixtures("repository")
def test_a_step_that_fails_has_no_note_and_fails_for_its_own_reason(ground: Ground) -> None:
    _, done = run(ground, "argo-failed", code=7)
    assert done["status"]["phase"] == "Failed"
    failed = [node for node in nodes(done, "make") if node["phase"] == "Failed"]
    assert failed
    assert {node["outputs"]["exitCode"] for node in failed} == {"7"}
    assert all("artifact" not in node["message"] for node in failed), [node["message"] for node in failed]


def test_without_a_repository_argo_refuses_and_says_why(ground: Ground) -> None:
    _, done = run(ground, "argo-lacking")
    assert done["status"]["phase"] in ("Error", "Failed")
    words = json.dumps(done["status"])
    assert "artifact storage is not configured" in words, words[:3000]


def test_the_commands_of_the_guide_create_what_a_run_needs(ground: Ground) -> None:
    guide = (ROOT / "docs" / "guides" / "artifacts.md").read_text(encoding="utf-8")
    block = guide.partition("```console cluster\n")[2].partition("```")[0]
    commands = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
    kube = ground.cluster.kube.within("my-team")
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "my-team"}})
    path = os.pathsep.join([str(Path(kube.program).parent), str(ROOT / ".venvs" / "core" / "bin"), os.environ["PATH"]])
    keys = {"AWS_ACCESS_KEY_ID": object_store.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": object_store.SECRET_KEY}
    env = {**os.environ, **ground.cluster.environment(), **keys, "PATH": path, "PYTHONPATH": str(ROOT)}
    script = "\n".join(["set -e -o pipefail", *commands])
    done = subprocess.run(
        [*ground.cluster.enter, "bash", "-c", script],
        env=env,
        cwd=ground.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    secret = kube.get("secret", SECRET)
    assert secret is not None and set(secret["data"]) == {"id", "secret"}
    found = kube.get("configmap", config_map_name())
    assert found is not None and found["immutable"]
    kube("delete", "namespace", "my-team", "--wait=false")
